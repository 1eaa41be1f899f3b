package dir

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/etcd-druid/druid/backup/store"
)

// List walks the directories that can hold keys with the prefix.
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

// Sweep removes temporary files that no one has written to for olderThan.
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

// clock asks the file system for its time: behind NFS it is another machine's.
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

// visit is called with each regular file's path; it says whether to go on.
type visit func(root *os.Root, name string, entry fs.DirEntry) (bool, error)

// walk visits the files that can have the prefix, in the order of their paths' bytes.
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
	// A directory sorts as its keys do, with the slash: "a-b" comes before "a/b".
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
