package dir

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"github.com/etcd-druid/druid/backup/store"
)

// Store is a backup store in a directory.
type Store struct {
	path string
}

var _ store.Store = (*Store)(nil)

// Open returns the store in an existing directory. The path is resolved again at each call, so that a later mount over it
// is seen.
func Open(c store.Directory) (*Store, error) {
	if err := (store.Config{Directory: &c}).Validate(); err != nil {
		return nil, err
	}
	s := &Store{path: c.Path}
	root, err := s.root()
	if err != nil {
		return nil, err
	}
	return s, root.Close()
}

// String names the store as its errors do.
func (s *Store) String() string { return "directory " + s.path }

// Get reads a file. What is deleted or replaced while it is read is read to its end all the same.
func (s *Store) Get(_ context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	if err := store.CheckKey(key); err != nil {
		return nil, err
	}
	if offset < 0 {
		return nil, fmt.Errorf("%w: get %s from offset %d", store.ErrInvalid, key, offset)
	}
	root, err := s.root()
	if err != nil {
		return nil, err
	}
	defer root.Close()
	f, err := s.openObject(root, key)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, s.failed("get", key, err)
	}
	n := max(info.Size()-offset, 0)
	if length >= 0 {
		n = min(n, length)
	}
	return section{Reader: io.NewSectionReader(f, offset, n), Closer: f}, nil
}

type section struct {
	io.Reader
	io.Closer
}

// openObject opens only regular files: opening a pipe would wait for its other end.
func (s *Store) openObject(root *os.Root, key string) (*os.File, error) {
	info, err := root.Stat(key)
	if err != nil {
		return nil, s.failed("get", key, err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("get %s in %s: %w: it is no file", key, s, store.ErrAbsent)
	}
	f, err := root.Open(key)
	if err != nil {
		return nil, s.failed("get", key, err)
	}
	return f, nil
}

// Delete unlinks a file. Directories that become empty stay: removing one would race with a Put into it.
func (s *Store) Delete(_ context.Context, key string) error {
	if err := store.CheckKey(key); err != nil {
		return err
	}
	root, err := s.root()
	if err != nil {
		return err
	}
	defer root.Close()
	switch info, err := root.Lstat(key); {
	case isAbsent(err) || err == nil && info.IsDir():
		return nil
	case err != nil:
		return s.failed("delete", key, err)
	}
	if err := root.Remove(key); err != nil && !isAbsent(err) {
		return s.failed("delete", key, err)
	}
	return s.syncAbove(root, key)
}

func (s *Store) root() (*os.Root, error) {
	root, err := os.OpenRoot(s.path)
	switch {
	case isAbsent(err):
		return nil, fmt.Errorf("open %s: %w: %w; mount the volume there, or create the directory", s, store.ErrNoBucket, err)
	case err != nil:
		return nil, s.failed("open", ".", err)
	}
	return root, nil
}

// isAbsent is also true below what is a file: no key is another key's directory.
func isAbsent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// failed says in a sentence what failed, and which of the store's errors it is, if any.
func (s *Store) failed(verb, key string, err error) error {
	wrapped := fmt.Errorf("%s %s in %s: %w", verb, key, s, err)
	switch {
	case verb == "put" && (errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.EISDIR) || errors.Is(err, syscall.EEXIST)):
		return fmt.Errorf("%w: %w: no key is another key's directory", wrapped, store.ErrInvalid)
	case isAbsent(err) && verb != "put":
		return fmt.Errorf("%w: %w", wrapped, store.ErrAbsent)
	case errors.Is(err, syscall.EROFS):
		return fmt.Errorf("%w: %w; mount it writable", wrapped, store.ErrForbidden)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: %w; give the process's user (%d) the right to read and write there", wrapped, store.ErrForbidden, os.Getuid())
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fmt.Errorf("%w; grow the volume, or let retention keep less", wrapped)
	}
	return wrapped
}
