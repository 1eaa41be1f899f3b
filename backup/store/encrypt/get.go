package encrypt

import (
	"context"
	"errors"
	"fmt"
	"io"

	"filippo.io/age"

	"github.com/etcd-druid/druid/backup/store"
)

// Get reads an encrypted object if keys are configured, and a plain one otherwise. If that does not exist, it tries
// the other.
func (s *Store) Get(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	if err := checkKey(key); err != nil {
		return nil, err
	}
	if offset < 0 {
		return nil, fmt.Errorf("%w: get %s from offset %d", store.ErrInvalid, key, offset)
	}
	if isPlain(key) {
		return s.inner.Get(ctx, key, offset, length)
	}
	plain := func() (io.ReadCloser, error) { return s.inner.Get(ctx, key, offset, length) }
	encrypted := func() (io.ReadCloser, error) { return s.open(ctx, key, offset, length) }
	first, second := plain, encrypted
	if s.keys != nil {
		first, second = encrypted, plain
	}
	r, err := first()
	if !errors.Is(err, store.ErrAbsent) {
		return r, err
	}
	if r, other := second(); !errors.Is(other, store.ErrAbsent) {
		return r, other
	}
	return nil, err
}

// open reads a range of an encrypted object. A range from the beginning needs one request. For any other, it first
// requests header and size.
func (s *Store) open(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	if length == 0 {
		return s.inner.Get(ctx, encryptedName(key), 0, 0)
	}
	if offset > 0 {
		return s.openAt(ctx, key, offset, length)
	}
	body, err := s.inner.Get(ctx, encryptedName(key), 0, encryptedLength(length))
	if err != nil {
		return nil, err
	}
	r := &reader{store: s, key: key, source: &source{Reader: body}, Closer: body}
	content, err := age.Decrypt(r.source, opener{s.keys})
	if err != nil {
		return nil, errors.Join(r.failed(err), body.Close())
	}
	if r.content = content; length > 0 {
		r.content = io.LimitReader(content, length)
	}
	return r, nil
}

// openAt reads a range that does not start at the beginning of the object.
func (s *Store) openAt(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	size, err := s.encryptedSize(ctx, key)
	if err != nil {
		return nil, err
	}
	end := plainSize(size)
	if length > 0 {
		end = min(end, offset+min(length, end))
	}
	at := &ranged{ctx: ctx, inner: s.inner, key: encryptedName(key), size: size, end: min(encryptedLength(end), size)}
	r := &reader{store: s, key: key, source: &source{}, Closer: at}
	at.failed = &r.source.err
	content, inside, err := age.DecryptReaderAt(at, size, opener{s.keys})
	if err != nil {
		return nil, errors.Join(r.failed(err), at.Close())
	}
	r.content = io.NewSectionReader(content, min(offset, inside), max(end-offset, 0))
	return r, nil
}

// encryptedSize lists the object, because a store has no other call for its size.
func (s *Store) encryptedSize(ctx context.Context, key string) (int64, error) {
	for o, err := range s.inner.List(ctx, encryptedName(key)) {
		if err != nil {
			return 0, err
		}
		if o.Key == encryptedName(key) {
			return o.Size, nil
		}
	}
	return 0, fmt.Errorf("get %s in %s: %w", key, s, store.ErrAbsent)
}

// reader delivers the decrypted content of an object.
type reader struct {
	store   *Store
	key     string
	source  *source
	content io.Reader
	io.Closer
}

func (r *reader) Read(p []byte) (int, error) {
	n, err := r.content.Read(p)
	if err == nil || err == io.EOF { // bare: an error that wraps it is no end
		return n, err
	}
	return n, r.failed(err)
}

// failed separates a store that could not be read, and a missing key, from wrong bytes.
func (r *reader) failed(err error) error {
	switch {
	case r.source.err != nil:
		return r.source.err
	case errors.Is(err, store.ErrNoKey):
		return fmt.Errorf("get %s in %s: %w", r.key, r.store, err)
	}
	// The cause is not wrapped, because a caller that finds io.EOF in it would take it for the end of the object.
	return fmt.Errorf("get %s in %s: %w: %s; do not use this object; take a new backup", r.key, r.store, store.ErrDamaged, err.Error())
}

// source keeps the error of the store, which age does not wrap.
type source struct {
	io.Reader
	err error
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	if err != nil && err != io.EOF { // bare: an error that wraps it is no end
		s.err = err
	}
	return n, err
}

// headSize is how much of the beginning of an object is requested at once. age searches no further for its header.
const headSize = 4 << 10

// ranged reads an object at any position, with one request for each consecutive range.
type ranged struct {
	ctx   context.Context // io.ReaderAt has no parameter for it
	inner store.Store
	key   string
	size  int64
	// end of the requested range. A request that begins before it ends there.
	end int64
	// body is the current range. at is the offset of its next byte, until that after its last one.
	body      io.ReadCloser
	at, until int64
	failed    *error
}

func (r *ranged) ReadAt(p []byte, offset int64) (int, error) {
	if err := r.seek(offset); err != nil {
		*r.failed = err
		return 0, err
	}
	n, err := io.ReadFull(r.body, p)
	r.at += int64(n)
	switch {
	case err == io.EOF || err == io.ErrUnexpectedEOF: // bare: an error that wraps them is no end
		return n, io.EOF
	case err != nil:
		*r.failed = err
	}
	return n, err
}

// seek opens the range that begins at offset, unless it is the current one.
func (r *ranged) seek(offset int64) error {
	if r.body != nil && r.at == offset && offset < r.until {
		return nil
	}
	if err := r.Close(); err != nil {
		return err
	}
	length := r.size - offset
	switch {
	case offset == 0:
		length = min(length, headSize)
	case offset < r.end:
		length = r.end - offset
	}
	body, err := r.inner.Get(r.ctx, r.key, offset, length)
	if err != nil {
		return err
	}
	r.body, r.at, r.until = body, offset, offset+length
	return nil
}

func (r *ranged) Close() error {
	if r.body == nil {
		return nil
	}
	body := r.body
	r.body = nil
	return body.Close()
}
