package delta

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/etcd-druid/druid/backup/store"
)

// Writer builds one delta backup in memory. All but the current block is compressed. It is not safe for concurrent
// use.
type Writer struct {
	header  Header
	encoder *zstd.Encoder
	blocks  [][]byte // frames
	size    int
	plain   []byte // the block at hand
	scratch []byte // the frame of the last one
	head    blockHeader
	sub     int64
	at      int64 // Unix milliseconds of the revision at hand
	// digest has the records of the current revision, except those in plain from tail on.
	digest   Digester
	tail     int
	finished bool
}

// NewWriter begins a delta backup. It uses Lineage, ClusterID, MemberID and Before of h; the other fields follow from
// the records.
func NewWriter(h Header) (*Writer, error) {
	encoder, err := newEncoder(zstd.SpeedFastest)
	if err != nil {
		return nil, err
	}
	return newWriter(h, encoder), nil
}

func newWriter(h Header, encoder *zstd.Encoder) *Writer {
	return &Writer{
		header:  Header{Version: Version, Lineage: h.Lineage, ClusterID: h.ClusterID, MemberID: h.MemberID, Before: h.Before},
		encoder: encoder,
	}
}

func newEncoder(level zstd.EncoderLevel) (*zstd.Encoder, error) {
	// One goroutine and no window beyond the block; otherwise the encoder allocates several MiB of history. A single
	// segment always records its length.
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(max(level, zstd.SpeedFastest)), zstd.WithEncoderConcurrency(1),
		zstd.WithWindowSize(blockSize), zstd.WithSingleSegment(true))
	if err != nil {
		return nil, fmt.Errorf("create the encoder: %w", err)
	}
	return encoder, nil
}

// Append adds the next record. The caller may reuse key and value afterwards. Revisions must follow each other without
// a gap, and sub-revisions within a revision start at 0. Times count at the beginning of a revision and never go back.
func (w *Writer) Append(key, value []byte, at time.Time) error {
	if w.finished {
		return errors.New("append to a finished delta backup")
	}
	main, sub, err := parseKey(key)
	if err != nil {
		return err
	}
	if len(value) > maxValue {
		return fmt.Errorf("a record of %d bytes at revision %d does not fit into a block", len(value), main)
	}
	if err := w.advance(main, sub, at); err != nil {
		return err
	}
	w.plain = binary.AppendUvarint(w.plain, uint64(len(key)))
	w.plain = append(w.plain, key...)
	w.plain = binary.AppendUvarint(w.plain, uint64(len(value)))
	w.plain = append(w.plain, value...)
	w.head.records++
	w.head.last = main
	w.header.Events++
	return nil
}

// advance makes room for a record and begins its revision if it is the first.
func (w *Writer) advance(main, sub int64, at time.Time) error {
	begins := w.header.Revisions == 0 || main != w.header.To
	switch {
	case main < 1 || w.header.Revisions > 0 && begins && main != w.header.To+1:
		return fmt.Errorf("revision %d follows revision %d in a delta backup", main, w.header.To)
	case begins && sub != 0 || !begins && sub != w.sub+1:
		return fmt.Errorf("sub-revision %d of revision %d follows revision %d in a delta backup", sub, main, w.sub)
	}
	if len(w.plain) >= blockSize {
		w.flush()
	}
	ms := w.at
	if begins {
		ms = max(at.UnixMilli(), w.at)
		w.begin(main, ms)
	}
	if len(w.plain) == 0 || ms != w.at {
		w.plain = append(w.plain, 0)
		w.plain = binary.BigEndian.AppendUint64(w.plain, uint64(ms))
	}
	if w.head.records == 0 {
		w.head = blockHeader{kind: records, first: main}
	}
	w.sub, w.at = sub, ms
	return nil
}

func (w *Writer) begin(main, ms int64) {
	if w.header.Revisions == 0 {
		w.header.From, w.header.Opened = main, time.UnixMilli(ms)
	}
	w.header.To = main
	w.header.Revisions++
	w.digest.Reset()
	w.tail = len(w.plain)
}

// digested returns the digest of the current revision. It is needed for only one in thousands of revisions.
func (w *Writer) digested() Digest {
	for rest := w.plain[w.tail:]; len(rest) > 0; {
		if rest[0] == 0 {
			rest = rest[timeLength:]
			continue
		}
		var key, value []byte
		key, rest, _ = field(rest) // we wrote it
		value, rest, _ = field(rest)
		w.digest.Add(key, value)
	}
	w.tail = len(w.plain)
	return w.digest.Sum()
}

func (w *Writer) flush() {
	if len(w.plain) == 0 {
		return
	}
	w.digested()
	w.block(w.head, w.plain)
	w.header.Blocks++
	w.plain, w.tail, w.head = w.plain[:0], 0, blockHeader{}
	if cap(w.plain) > 4*blockSize {
		w.plain = nil // one large record was there
	}
}

func (w *Writer) block(h blockHeader, plain []byte) {
	w.scratch = w.encoder.EncodeAll(plain, w.scratch[:0])
	frame := bytes.Clone(w.scratch) // without unused capacity
	h.compressed, h.plain, h.sum = uint32(len(frame)), uint32(len(plain)), checksum(frame)
	w.blocks = append(w.blocks, h.marshal(), frame)
	w.size += frameHeader + blockFixed + len(frame)
}

// Header returns what is known so far.
func (w *Writer) Header() Header {
	h := w.header
	h.Last = w.digested()
	return h
}

// Size is about the memory that the delta backup takes, in bytes: the compressed blocks and the current one.
func (w *Writer) Size() int { return w.size + len(w.plain) }

// Finish closes the delta backup. The Writer cannot be used afterwards.
func (w *Writer) Finish(closed time.Time, l Leases, c *Checkpoint) (*FinishedDelta, error) {
	if w.finished || w.header.Revisions == 0 {
		return nil, errors.New("finish a delta backup that is empty or already finished")
	}
	w.finished = true
	w.flush()
	if len(l.Records) > 0 || l.Known {
		text, err := l.marshal()
		if err != nil || len(text) > MaxBlock {
			return nil, errors.Join(fmt.Errorf("leases of %d bytes", len(text)), err)
		}
		w.block(blockHeader{kind: leases}, text)
	}
	w.header.Closed, w.header.Last = time.UnixMilli(closed.UnixMilli()), w.digested()
	w.plain, w.scratch = nil, nil // it may be long until the rest is saved
	return assemble(w.header, w.blocks, c)
}

// FinishedDelta is a complete delta backup in memory.
type FinishedDelta struct {
	Header Header
	// Size in bytes, and the sha256 of all of it.
	Size   int64
	SHA256 [sha256.Size]byte
	parts  [][]byte
}

func assemble(h Header, blocks [][]byte, c *Checkpoint) (*FinishedDelta, error) {
	head, err := marshalHeader(h)
	if err != nil {
		return nil, fmt.Errorf("write the header of a delta backup: %w", err)
	}
	text, err := marshalFooter(c)
	if err != nil {
		return nil, fmt.Errorf("write the footer of a delta backup: %w", err)
	}
	if len(head) > maxText || len(h.Lineage) > math.MaxUint8 {
		return nil, fmt.Errorf("the header of a delta backup has %d bytes, want at most %d", len(head), maxText)
	}
	parts := append([][]byte{head}, blocks...)
	parts = append(parts, append(appendFrame(nil, footerFixed+len(text), magicFooter), text...))
	sum, size := sha256.New(), int64(0)
	for _, p := range parts {
		sum.Write(p)
		size += int64(len(p))
	}
	content := sum.Sum(nil)
	sum.Write(content)
	s := &FinishedDelta{Header: h, Size: size + int64(len(content)), parts: append(parts, content)}
	sum.Sum(s.SHA256[:0])
	return s, nil
}

// Reader returns a reader from the beginning of the delta backup. It may be called several times.
func (s *FinishedDelta) Reader() store.Sized { return &finishedReader{parts: s.parts, size: s.Size} }

// finishedReader reads a delta backup without copying it.
type finishedReader struct {
	parts [][]byte
	size  int64
	// part and offset are the position of the reader.
	part, offset int
}

func (r *finishedReader) Size() int64 { return r.size }

func (r *finishedReader) Read(p []byte) (int, error) {
	for r.part < len(r.parts) {
		if n := copy(p, r.parts[r.part][r.offset:]); n > 0 || len(p) == 0 {
			r.offset += n
			return n, nil
		}
		r.part, r.offset = r.part+1, 0
	}
	return 0, io.EOF
}

// WriteTo avoids the buffer of io.Copy.
func (r *finishedReader) WriteTo(w io.Writer) (written int64, err error) {
	for r.part < len(r.parts) {
		n, err := w.Write(r.parts[r.part][r.offset:])
		written += int64(n)
		if r.offset += n; err != nil {
			return written, err
		}
		r.part, r.offset = r.part+1, 0
	}
	return written, nil
}

func (r *finishedReader) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekStart:
	case io.SeekCurrent:
		offset += r.at()
	case io.SeekEnd:
		offset += r.size
	default:
		return 0, errors.New("seek in a delta backup: invalid whence")
	}
	if offset < 0 || offset > r.size {
		return 0, errors.New("seek in a delta backup: the position is outside of it")
	}
	left := offset
	for r.part, r.offset = 0, 0; r.part < len(r.parts) && left >= int64(len(r.parts[r.part])); r.part++ {
		left -= int64(len(r.parts[r.part]))
	}
	r.offset = int(left)
	return offset, nil
}

// at returns the number of bytes read.
func (r *finishedReader) at() int64 {
	at := int64(r.offset)
	for _, p := range r.parts[:r.part] {
		at += int64(len(p))
	}
	return at
}
