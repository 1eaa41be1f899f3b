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

// maxWindow limits the memory of the decoder for objects that other programs made; those of druid need 1 MiB.
const maxWindow = 8 << 20

// stream delivers what etcd sent, without the checksum at its end.
type stream struct {
	raw     io.Reader
	check   *checksum
	buffer  []byte
	pending [2][]byte
	err     error
	// finish checks everything at the end of raw. It returns io.EOF or what is wrong. failed wraps an error of raw.
	finish func() error
	failed func(error) error
}

func newStream() stream { return stream{check: newChecksum(), buffer: make([]byte, 128<<10)} }

// Reader streams the database from an object: what etcd sent, without the checksum of etcd.
type Reader struct {
	stream
	object  string
	source  *tailReader
	decoder *zstd.Decoder
	trailer Trailer
}

// Open reads an object from source, which must deliver it from the first to the last byte. object is its key, for
// errors.
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

// Read returns io.EOF only if all checksums match. Do not trust what was read before that.
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

// Trailer is valid after Read has returned io.EOF.
func (r *Reader) Trailer() Trailer { return r.trailer }

// Close releases the decoder. It does not close the source.
func (r *Reader) Close() error {
	r.decoder.Close()
	return nil
}

// compare compares what was read with the trailer and the checksum of etcd.
func (r *Reader) compare() error {
	t, err := parseTrailer(r.source.tail, r.source.size)
	if err != nil {
		return unusable(r.object, err)
	}
	if crc := r.source.crcBefore(t.Stored); crc != t.CRC32C {
		return &DamagedError{Object: r.object, Reason: fmt.Sprintf("its CRC-32C is %08x, but the trailer says %08x", crc, t.CRC32C)}
	}
	sum, err := r.check.verify()
	if err != nil {
		return &DamagedError{Object: r.object, Reason: "content", Err: err}
	}
	if sum != t.SHA256 || r.check.passed != t.Size {
		return &DamagedError{Object: r.object, Reason: fmt.Sprintf("it holds %d bytes with sha256 %s, but the trailer says %d and %s",
			r.check.passed, sum, t.Size, t.SHA256)}
	}
	r.trailer = t
	return io.EOF
}

// broken separates a source that could not be read from wrong bytes, and wrong bytes from a newer format. The trailer,
// which has the version, comes last.
func (r *Reader) broken(err error) error {
	if r.source.err == nil {
		_, _ = io.Copy(io.Discard, struct{ io.Reader }{r.source}) // the source keeps its error
	}
	if r.source.err != nil {
		return fmt.Errorf("read full backup %s: %w", r.object, r.source.err)
	}
	if _, newer := parseTrailer(r.source.tail, r.source.size); errors.Is(newer, store.ErrNewer) {
		return unusable(r.object, newer)
	}
	return &DamagedError{Object: r.object, Reason: fmt.Sprintf("after %d bytes of the database", r.check.passed), Err: err}
}

// tailReader keeps the last bytes that were read, the checksum of those before them, and the error of the source.
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

// crcBefore returns the checksum of the first n bytes, which extend into the tail.
func (t *tailReader) crcBefore(n int64) uint32 {
	return crc32.Update(t.crc, castagnoli, t.tail[:n-(t.size-int64(len(t.tail)))])
}

// sector divides the size of every database. etcd itself uses it to find out whether a checksum follows.
const sector = 512

// checksum verifies the sha256 that etcd appends to a database that it sends.
type checksum struct {
	sum hash.Hash
	// held are the last bytes, which may be the checksum.
	held []byte
	// passed counts the bytes before them.
	passed int64
}

func newChecksum() *checksum { return &checksum{sum: sha256.New()} }

// pass takes the next bytes of the stream and returns the bytes that are certainly part of the database: first what
// was held back so far, then a part of p. Both are valid until the next call.
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

// verify checks the end of the stream. It returns the sha256 of the database in hexadecimal.
func (c *checksum) verify() (string, error) {
	sum := c.sum.Sum(nil)
	switch {
	case len(c.held) < sha256.Size || c.passed == 0:
		return "", fmt.Errorf("it ends after %d bytes", c.passed+int64(len(c.held)))
	case c.passed%sector != 0:
		return "", fmt.Errorf("it ends after %d bytes, without the checksum of etcd", c.passed+sha256.Size)
	case string(sum) != string(c.held):
		return "", fmt.Errorf("its sha256 is %x, but etcd says %x", sum, c.held)
	}
	return hex.EncodeToString(sum), nil
}
