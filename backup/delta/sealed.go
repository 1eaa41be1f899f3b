package delta

import (
	"errors"
	"io"
)

// sealedReader reads a delta from where it lies.
type sealedReader struct {
	parts [][]byte
	size  int64
	// part and offset are where reading is.
	part, offset int
}

func (r *sealedReader) Size() int64 { return r.size }

func (r *sealedReader) Read(p []byte) (int, error) {
	for r.part < len(r.parts) {
		if n := copy(p, r.parts[r.part][r.offset:]); n > 0 || len(p) == 0 {
			r.offset += n
			return n, nil
		}
		r.part, r.offset = r.part+1, 0
	}
	return 0, io.EOF
}

// WriteTo spares anyone who copies a buffer.
func (r *sealedReader) WriteTo(w io.Writer) (written int64, err error) {
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

func (r *sealedReader) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekStart:
	case io.SeekCurrent:
		offset += r.at()
	case io.SeekEnd:
		offset += r.size
	default:
		return 0, errors.New("seek in a delta from nowhere")
	}
	if offset < 0 || offset > r.size {
		return 0, errors.New("seek in a delta to where it is not")
	}
	left := offset
	for r.part, r.offset = 0, 0; r.part < len(r.parts) && left >= int64(len(r.parts[r.part])); r.part++ {
		left -= int64(len(r.parts[r.part]))
	}
	r.offset = int(left)
	return offset, nil
}

// at is how much was read.
func (r *sealedReader) at() int64 {
	at := int64(r.offset)
	for _, p := range r.parts[:r.part] {
		at += int64(len(p))
	}
	return at
}
