package dir

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/etcd-druid/druid/backup/store"
)

// Store is a backup store in a directory.
type Store struct {
	path string
}

var _ store.Store = (*Store)(nil)

// Open returns the store in an existing directory. Each call resolves the path again, so that it sees a volume that is
// mounted later.
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

// String names the store as in its errors.
func (s *Store) String() string { return "directory " + s.path }

// Get reads a file. A file that is deleted or replaced while it is read is still read to its end.
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

// openObject opens only regular files, because opening a pipe would block.
func (s *Store) openObject(root *os.Root, key string) (*os.File, error) {
	info, err := root.Stat(key)
	if err != nil {
		return nil, s.failed("get", key, err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("get %s in %s: %w: it is not a regular file", key, s, store.ErrAbsent)
	}
	f, err := root.Open(key)
	if err != nil {
		return nil, s.failed("get", key, err)
	}
	return f, nil
}

// Delete unlinks a file. It keeps empty directories, because removing one would race with a Put into it.
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
		return nil, fmt.Errorf("open %s: %w: %w; mount the volume at this path, or create the directory", s, store.ErrNoBucket, err)
	case err != nil:
		return nil, s.failed("open", ".", err)
	}
	return root, nil
}

// isAbsent is also true for a path below a file, because no key is the directory of another key.
func isAbsent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// failed describes what failed, and wraps the matching error of package store, if any.
func (s *Store) failed(verb, key string, err error) error {
	wrapped := store.Failed(verb, key, s, err)
	switch {
	case verb == "put" && (errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.EISDIR) || errors.Is(err, syscall.EEXIST)):
		return fmt.Errorf("%w: %w: a key cannot be the directory of another key", wrapped, store.ErrInvalid)
	case isAbsent(err) && verb != "put":
		return fmt.Errorf("%w: %w", wrapped, store.ErrAbsent)
	case errors.Is(err, syscall.EROFS):
		return store.Caused(store.CauseUnauthorized, fmt.Errorf("%w: %w; mount it writable", wrapped, store.ErrForbidden))
	case errors.Is(err, fs.ErrPermission):
		return store.Caused(store.CauseUnauthorized,
			fmt.Errorf("%w: %w; give user %d of the process permission to read and write there", wrapped, store.ErrForbidden, os.Getuid()))
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return store.Caused(store.CauseFull, fmt.Errorf("%w; expand the volume, or keep fewer backups", wrapped))
	}
	return wrapped
}

// List walks the directories that can have keys with the prefix.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[store.Object, error] {
	return func(yield func(store.Object, error) bool) {
		err := s.walk(ctx, prefix, func(_ *os.Root, key string, entry fs.DirEntry) (bool, error) {
			if !store.IsSegment(entry.Name()) || !strings.HasPrefix(key, prefix) {
				return true, nil
			}
			info, err := entry.Info()
			switch {
			case isAbsent(err): // deleted since
				return true, nil
			case err != nil:
				return false, s.failed("list", key, err)
			}
			return yield(store.Object{Key: key, Size: info.Size(), Modified: info.ModTime()}, nil), nil
		})
		if err != nil {
			yield(store.Object{}, err)
		}
	}
}

// Sweep removes temporary files that were not written for olderThan.
func (s *Store) Sweep(ctx context.Context, prefix string, olderThan time.Duration) (int, error) {
	var removed int
	var now time.Time
	err := s.walk(ctx, prefix, func(root *os.Root, name string, entry fs.DirEntry) (bool, error) {
		base, ok := meantFor(entry.Name())
		if !ok || !strings.HasPrefix(path.Join(path.Dir(name), base), prefix) {
			return true, nil
		}
		info, err := entry.Info()
		if isAbsent(err) {
			return true, nil
		}
		if err == nil && now.IsZero() {
			now, err = clock(root)
		}
		if err == nil && now.Sub(info.ModTime()) > olderThan {
			if err = root.Remove(name); err == nil {
				removed++
			}
		}
		if err != nil && !isAbsent(err) {
			return false, s.failed("sweep", name, err)
		}
		return true, nil
	})
	return removed, err
}

// clock returns the time of the file system. With NFS, that is the time of another machine.
func clock(root *os.Root) (time.Time, error) {
	name := temporaryName("clock")
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fileMode)
	if err != nil {
		return time.Time{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err := root.Remove(name); err != nil {
		return time.Time{}, err
	}
	if err != nil {
		return time.Time{}, err
	}
	return info.ModTime(), nil
}

// visit is called with the path of each regular file. It returns whether to continue.
type visit func(root *os.Root, name string, entry fs.DirEntry) (bool, error)

// walk visits the files that can have the prefix, in byte order of their paths.
func (s *Store) walk(ctx context.Context, prefix string, visit visit) error {
	if err := store.CheckPrefix(prefix); err != nil {
		return err
	}
	root, err := s.root()
	if err != nil {
		return err
	}
	defer root.Close()
	start := "."
	if i := strings.LastIndexByte(prefix, '/'); i > 0 {
		start = prefix[:i]
	}
	_, err = s.walkDir(ctx, root, start, prefix, visit)
	return err
}

func (s *Store) walkDir(ctx context.Context, root *os.Root, dir, prefix string, visit visit) (bool, error) {
	if err := context.Cause(ctx); err != nil {
		return false, fmt.Errorf("list %s in %s: %w", dir, s, err)
	}
	entries, err := fs.ReadDir(root.FS(), dir)
	switch {
	case isAbsent(err):
		return true, nil
	case err != nil:
		return false, s.failed("list", dir, err)
	}
	// A directory sorts with its slash, as its keys do: "a-b" comes before "a/b".
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return cmp.Compare(sortName(a), sortName(b)) })
	for _, entry := range entries {
		store.Progressed(ctx)
		name := path.Join(dir, entry.Name())
		more := true
		switch {
		case entry.IsDir() && store.IsSegment(entry.Name()) && strings.HasPrefix(name+"/", prefix[:min(len(prefix), len(name)+1)]):
			more, err = s.walkDir(ctx, root, name, prefix, visit)
		case entry.Type().IsRegular():
			more, err = visit(root, name, entry)
		}
		if !more || err != nil {
			return false, err
		}
	}
	return true, nil
}

func sortName(e fs.DirEntry) string {
	if e.IsDir() {
		return e.Name() + "/"
	}
	return e.Name()
}
