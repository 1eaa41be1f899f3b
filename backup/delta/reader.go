package delta

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"

	"github.com/klauspost/compress/zstd"

	"github.com/etcd-druid/druid/backup/store"
)

// Expected is what the name of a delta backup says. Zero fields are not checked.
type Expected struct {
	// Object is the name, for messages.
	Object   string
	Lineage  string
	From, To int64
}

// Reader reads and verifies a delta backup: each block before it returns the records, and the complete object before
// io.EOF. It keeps one block in memory, 2 MiB unless there are larger values. It is not safe for concurrent use.
type Reader struct {
	object string
	source io.Reader
	sum    hash.Hash
	// offset is the number of bytes read. frame is where the current frame begins.
	offset, frame int64
	decoder       *zstd.Decoder
	header        Header
	cursor        cursor
	blocks        int64
	leases        *Leases
	checkpoint    *Checkpoint
	end           error // io.EOF, or what was wrong
}

// NewReader reads the header. It returns store.ErrNewer for a newer format. All other errors, also those of Next, are
// a *DamagedError if the content is wrong, or else the error of the source.
func NewReader(source io.Reader, want Expected) (*Reader, error) {
	r := &Reader{object: want.Object, source: bufio.NewReaderSize(source, 64<<10), sum: sha256.New()}
	if err := r.readHeader(want); err != nil {
		return nil, err
	}
	r.cursor = cursor{header: &r.header}
	return r, nil
}

// Close releases the decoder. It does not close the source.
func (r *Reader) Close() {
	if r.decoder != nil {
		r.decoder.Close()
		r.decoder = nil
	}
	if r.end == nil {
		r.end = io.ErrClosedPipe
	}
}

// Header returns the header, which has a checksum of its own. Only io.EOF of Next confirms that the content matches
// it.
func (r *Reader) Header() Header { return r.header }

// Leases are complete after Next returned io.EOF.
func (r *Reader) Leases() Leases {
	if r.leases == nil {
		return Leases{}
	}
	return *r.leases
}

// Checkpoint is complete after Next returned io.EOF. It is nil if the delta backup has none.
func (r *Reader) Checkpoint() *Checkpoint { return r.checkpoint }

// Next returns the next records in order, between one and some thousand. A revision may span two calls. The caller may
// keep the records. io.EOF confirms that the complete delta backup was read and is what its writer wrote.
func (r *Reader) Next() ([]Record, error) {
	if r.end != nil {
		return nil, r.end
	}
	batch, err := r.next()
	r.end = err
	return batch, err
}

func (r *Reader) next() ([]Record, error) {
	for {
		content, err := r.textFrame()
		if err != nil {
			return nil, err
		}
		switch string(content[:magicLength]) {
		case magicBlock:
			batch, err := r.readBlock(content)
			if err != nil || batch != nil {
				return batch, err
			}
		case magicFooter:
			return nil, r.finish(content)
		default:
			return nil, r.damaged("it has neither a block nor the footer here")
		}
	}
}

func (r *Reader) readHeader(want Expected) error {
	content, err := r.textFrame()
	if err != nil {
		return err
	}
	if string(content[:magicLength]) != magicHeader || len(content) < headerFixed {
		return r.damaged("it is not a delta backup")
	}
	body, sum := content[:len(content)-4], content[len(content)-4:]
	if checksum(body) != binary.LittleEndian.Uint32(sum) {
		return r.damaged("the checksum of its header does not match")
	}
	version := binary.LittleEndian.Uint32(body[magicLength:])
	if version > Version {
		return fmt.Errorf("delta backup %s has format version %d, but this program reads versions up to %d: %w", r.object, version, Version, store.ErrNewer)
	}
	if version != Version {
		return r.damaged(fmt.Sprintf("its format version %d does not exist", version))
	}
	if r.header, err = unmarshalHeader(int(version), body[magicLength+4:]); err != nil {
		return r.damaged(err.Error())
	}
	switch h := r.header; {
	case want.Lineage != "" && h.Lineage != want.Lineage:
		return r.damaged(fmt.Sprintf("it belongs to lineage %q, not to %q", h.Lineage, want.Lineage))
	case want.From != 0 && h.From != want.From || want.To != 0 && h.To != want.To:
		return r.damaged(fmt.Sprintf("it holds revisions %d to %d, not %d to %d", h.From, h.To, want.From, want.To))
	}
	return nil
}

// readBlock returns no records for a block of leases.
func (r *Reader) readBlock(content []byte) ([]Record, error) {
	h, ok := unmarshalBlock(content)
	if !ok {
		return nil, r.damaged("the checksum of a block header does not match")
	}
	// Content that cannot be compressed grows by a few bytes for each 128 KiB.
	if h.plain > MaxBlock || h.compressed > h.plain+h.plain/1024+1024 || r.leases != nil {
		return nil, r.damaged(fmt.Sprintf("a block of %d bytes, %d compressed, is not allowed here", h.plain, h.compressed))
	}
	r.frame = r.offset
	plain, err := r.decompress(h)
	if err != nil {
		return nil, err
	}
	switch h.kind {
	case leases:
		l, err := unmarshalLeases(plain)
		if err != nil {
			return nil, r.damaged(err.Error())
		}
		r.leases = &l
		return nil, nil
	case records:
		r.blocks++
		batch, err := r.cursor.block(h, plain)
		if err != nil {
			return nil, r.damaged(err.Error())
		}
		return batch, nil
	}
	return nil, r.damaged(fmt.Sprintf("a block has the unknown kind %d", h.kind))
}

func (r *Reader) decompress(h blockHeader) ([]byte, error) {
	frame, err := r.read(int(h.compressed))
	if err != nil {
		return nil, err
	}
	if checksum(frame) != h.sum {
		return nil, r.damaged("the checksum of a block does not match")
	}
	var z zstd.Header
	if err := z.Decode(frame); err != nil || z.Skippable || !z.HasFCS || z.FrameContentSize != uint64(h.plain) {
		return nil, r.damaged("a block is not a zstd frame of the length in its header")
	}
	if r.decoder == nil {
		r.decoder, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(MaxBlock), zstd.WithDecoderMaxWindow(MaxBlock))
		if err != nil {
			return nil, fmt.Errorf("create the decoder: %w", err)
		}
	}
	plain, err := r.decoder.DecodeAll(frame, make([]byte, 0, h.plain))
	if err != nil || len(plain) != int(h.plain) {
		return nil, r.damaged(fmt.Sprintf("a block does not decompress to %d bytes: %v", h.plain, err))
	}
	return plain, nil
}

func (r *Reader) finish(content []byte) error {
	if len(content) < footerFixed {
		return r.damaged("its footer is too short")
	}
	text, sum := content[magicLength:len(content)-sha256.Size], content[len(content)-sha256.Size:]
	if !bytes.Equal(r.sum.Sum(nil), sum) {
		return r.damaged("its sha256 does not match")
	}
	if err := r.cursor.done(r.blocks); err != nil {
		return r.damaged(err.Error())
	}
	var err error
	if r.checkpoint, err = unmarshalFooter(text); err != nil {
		return r.damaged(fmt.Sprintf("its footer cannot be read: %v", err))
	}
	r.frame = r.offset
	switch n, err := io.ReadFull(r.source, make([]byte, 1)); {
	case n > 0:
		return r.damaged("there is data after its end")
	case err != io.EOF:
		return fmt.Errorf("read delta backup %s at byte %d: %w", r.object, r.offset, err)
	}
	return io.EOF
}

// textFrame reads one of druid's skippable frames and returns its content, which has at least a magic. The last bytes
// of a footer are the sum of everything before them and are not part of the sum.
func (r *Reader) textFrame() ([]byte, error) {
	r.frame = r.offset
	head, err := r.read(frameHeader)
	if err != nil {
		return nil, err
	}
	length := binary.LittleEndian.Uint32(head[4:])
	if binary.LittleEndian.Uint32(head) != skippable || length < magicLength || length > maxText {
		return nil, r.damaged("no frame of a delta backup begins there")
	}
	content, err := r.read(magicLength)
	if err != nil {
		return nil, err
	}
	rest := int(length) - magicLength
	if string(content) == magicFooter && rest >= sha256.Size {
		text, err := r.read(rest - sha256.Size)
		if err != nil {
			return nil, err
		}
		sum, err := r.fetch(sha256.Size)
		return append(append(content, text...), sum...), err
	}
	more, err := r.read(rest)
	return append(content, more...), err
}

// read reads n bytes and adds them to the sum.
func (r *Reader) read(n int) ([]byte, error) {
	b, err := r.fetch(n)
	r.sum.Write(b)
	return b, err
}

// fetch allocates memory as bytes arrive, whatever length was claimed.
func (r *Reader) fetch(n int) ([]byte, error) {
	const trusted = 1 << 20
	var b bytes.Buffer
	b.Grow(min(n, trusted) + bytes.MinRead)
	got, err := io.CopyN(&b, r.source, int64(n))
	r.offset += got
	switch {
	case err == io.EOF: //nolint:errorlint // a bare one alone is the object's end; a connection that broke says more
		return nil, r.damaged(fmt.Sprintf("it ends at byte %d, before its footer", r.offset))
	case err != nil:
		return nil, fmt.Errorf("read delta backup %s at byte %d: %w", r.object, r.offset, err)
	}
	return b.Bytes(), nil
}

func (r *Reader) damaged(reason string) error {
	return &DamagedError{Object: r.object, Offset: r.frame, Reason: reason}
}

// Why a Recorder ends. In both cases the delta backups cannot continue, and only a new full backup closes the gap.
var (
	// ErrCompacted: etcd no longer has revisions that were not saved.
	ErrCompacted = errors.New("etcd compacted revisions that were not saved")
	// ErrGap: the watch of etcd skipped revisions.
	ErrGap = errors.New("the watch skipped revisions")
)

// ErrFork: etcd has other content for the revision that was saved last, so its history does not continue the existing
// delta backups.
var ErrFork = errors.New("the history of etcd is not the one that was saved")

// ErrEnded: the Recorder ended before the flush was complete. The next Recorder saves the rest.
var ErrEnded = errors.New("the recorder ended")

// DamagedError reports what is wrong with a delta backup, and where.
type DamagedError struct {
	// Object is the name that the reader was given.
	Object string
	// Offset is where the damaged frame begins, in bytes from the beginning of the object.
	Offset int64
	Reason string
}

func (e *DamagedError) Error() string {
	return fmt.Sprintf("delta backup %s is damaged at byte %d: %s", e.Object, e.Offset, e.Reason)
}
