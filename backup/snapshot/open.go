package snapshot

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"slices"

	"github.com/klauspost/compress/zstd"

	"github.com/etcd-druid/druid/backup/store"
)

// maxWindow bounds what the decoder holds for an object that someone else made; ours need 1 MiB.
const maxWindow = 8 << 20

// stream hands on what etcd sent, without the checksum at its end.
type stream struct {
	raw     io.Reader
	check   *checksum
	buffer  []byte
	pending [2][]byte
	err     error
	// finish says at the end of raw whether all holds: io.EOF or what is wrong. failed makes an error of one that raw ends in.
	finish func() error
	failed func(error) error
}

func newStream() stream { return stream{check: newChecksum(), buffer: make([]byte, 128<<10)} }

// Reader streams the database out of an object: what etcd sent, without etcd's checksum.
type Reader struct {
	stream
	object  string
	source  *tailReader
	decoder *zstd.Decoder
	trailer Trailer
}

// Open reads the object that source delivers from its first byte to its last; object is its key, for errors.
func Open(object string, source io.Reader) (*Reader, error) {
	r := &Reader{object: object, source: &tailReader{source: source}, stream: newStream()}
	r.finish, r.failed = r.compare, r.broken
	var err error
	r.decoder, err = zstd.NewReader(r.source, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
	if err != nil {
		return nil, r.failed(err)
	}
	r.raw = r.decoder
	return r, nil
}

// Read ends in io.EOF only when all checksums hold: until then nothing of what was read may be trusted.
func (r *stream) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for len(r.pending[0]) == 0 && len(r.pending[1]) == 0 {
		if r.err != nil {
			return 0, r.err
		}
		n, err := r.raw.Read(r.buffer)
		r.pending[0], r.pending[1] = r.check.pass(r.buffer[:n])
		switch {
		case err == io.EOF: // what is damaged may wrap it
			r.err = r.finish()
		case err != nil:
			r.err = r.failed(err)
		}
	}
	var n int
	for i, rest := range r.pending {
		m := copy(p[n:], rest)
		r.pending[i] = rest[m:]
		n += m
	}
	return n, nil
}

// Trailer is known once Read has returned io.EOF.
func (r *Reader) Trailer() Trailer { return r.trailer }

// Close frees the decoder. It does not close the source.
func (r *Reader) Close() error {
	r.decoder.Close()
	return nil
}

// compare what was read with all that is said about it.
func (r *Reader) compare() error {
	t, err := parseTrailer(r.source.tail, r.source.size)
	if err != nil {
		return unusable(r.object, err)
	}
	if crc := r.source.crcBefore(t.Stored); crc != t.CRC32C {
		return &DamagedError{Object: r.object, Reason: fmt.Sprintf("its CRC-32C is %08x, the trailer says %08x", crc, t.CRC32C)}
	}
	sum, err := r.check.verify()
	if err != nil {
		return &DamagedError{Object: r.object, Reason: "content", Err: err}
	}
	if sum != t.SHA256 || r.check.passed != t.Size {
		return &DamagedError{Object: r.object, Reason: fmt.Sprintf("it holds %d bytes of sha256 %s, the trailer says %d and %s",
			r.check.passed, sum, t.Size, t.SHA256)}
	}
	r.trailer = t
	return io.EOF
}

// broken reports a source that could not be read from bytes that are wrong, and these from a newer format: the trailer, which says
// which it is, comes last.
func (r *Reader) broken(err error) error {
	if r.source.err == nil {
		_, _ = io.Copy(io.Discard, struct{ io.Reader }{r.source}) // the source keeps its error
	}
	if r.source.err != nil {
		return fmt.Errorf("read full %s: %w", r.object, r.source.err)
	}
	if _, newer := parseTrailer(r.source.tail, r.source.size); errors.Is(newer, store.ErrNewer) {
		return unusable(r.object, newer)
	}
	return &DamagedError{Object: r.object, Reason: fmt.Sprintf("after %d bytes of the database", r.check.passed), Err: err}
}

// tailReader keeps the last bytes that were read, the checksum of those before, and what went wrong.
type tailReader struct {
	source io.Reader
	size   int64
	tail   []byte
	crc    uint32
	err    error
}

func (t *tailReader) Read(p []byte) (int, error) {
	n, err := t.source.Read(p)
	t.size += int64(n)
	t.tail = append(t.tail, p[:n]...)
	if surplus := len(t.tail) - maxTrailer; surplus > 0 {
		t.crc = crc32.Update(t.crc, castagnoli, t.tail[:surplus])
		t.tail = append(t.tail[:0], t.tail[surplus:]...)
	}
	if err != nil && err != io.EOF {
		t.err = err
	}
	return n, err
}

// crcBefore is the checksum of the first n bytes, which reach into the tail.
func (t *tailReader) crcBefore(n int64) uint32 {
	return crc32.Update(t.crc, castagnoli, t.tail[:n-(t.size-int64(len(t.tail)))])
}

// sector is what a database's size is a multiple of; etcd itself reports by it whether a checksum follows.
const sector = 512

// checksum verifies what etcd appends to a database that it sends: the sha256 of all before.
type checksum struct {
	sum hash.Hash
	// held are the last bytes seen, which may turn out to be the checksum.
	held []byte
	// passed counts the bytes before them.
	passed int64
}

func newChecksum() *checksum { return &checksum{sum: sha256.New()} }

// pass takes the next bytes of the stream and returns what of them, and of those before, is surely database. Both
// results are valid until the next call: first what was held back until now, then a part of p.
func (c *checksum) pass(p []byte) (first, second []byte) {
	if len(p) >= sha256.Size {
		first, second = c.held, p[:len(p)-sha256.Size]
		c.held = append(make([]byte, 0, 2*sha256.Size), p[len(p)-sha256.Size:]...)
	} else {
		all := append(slices.Clip(c.held), p...)
		n := max(len(all)-sha256.Size, 0)
		first, c.held = all[:n], all[n:]
	}
	_, _ = c.sum.Write(first) // a hash never fails
	_, _ = c.sum.Write(second)
	c.passed += int64(len(first) + len(second))
	return first, second
}

// verify is called at the stream's end, and returns the sha256 of the database in hexadecimal.
func (c *checksum) verify() (string, error) {
	sum := c.sum.Sum(nil)
	switch {
	case len(c.held) < sha256.Size || c.passed == 0:
		return "", fmt.Errorf("it ends after %d bytes", c.passed+int64(len(c.held)))
	case c.passed%sector != 0:
		return "", fmt.Errorf("it ends after %d bytes, without etcd's checksum", c.passed+sha256.Size)
	case string(sum) != string(c.held):
		return "", fmt.Errorf("its sha256 is %x, etcd says %x", sum, c.held)
	}
	return hex.EncodeToString(sum), nil
}
