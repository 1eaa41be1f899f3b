package dir

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"

	"github.com/etcd-druid/druid/backup/store"
)

const (
	// Backups hold all secrets of a cluster, so only the user of the agent may read them.
	fileMode = 0o600
	dirMode  = 0o700
	// bufferSize for copying, in bytes. It is large enough that the cost of system calls does not matter.
	bufferSize = 256 << 10
	// temporary is the prefix of an unfinished file: temporary<random>-<last name of the key>.
	temporary = ".put-"
)

// Put writes a temporary file next to the final path and links it there when it is complete and synced.
func (s *Store) Put(ctx context.Context, key string, r io.Reader, o store.PutOptions) (store.Object, error) {
	if err := store.CheckKey(key); err != nil {
		return store.Object{}, err
	}
	root, err := s.root()
	if err != nil {
		return store.Object{}, err
	}
	defer root.Close()
	// This check only avoids reading the stream; the link decides.
	if _, err := root.Lstat(key); err == nil && o.IfAbsent {
		return store.Object{}, s.exists(key)
	}
	tmp := path.Join(path.Dir(key), temporaryName(path.Base(key)))
	object, err := s.write(ctx, root, tmp, r)
	if err == nil {
		err = s.place(root, tmp, key, o)
	}
	if err == nil {
		err = s.syncAbove(root, key)
	}
	if err != nil {
		// Sweep removes what could not be removed here.
		_ = root.Remove(tmp)
		return store.Object{}, err
	}
	object.Key = key
	return object, nil
}

// write creates the temporary file and syncs it.
func (s *Store) write(ctx context.Context, root *os.Root, tmp string, r io.Reader) (store.Object, error) {
	if err := root.MkdirAll(path.Dir(tmp), dirMode); err != nil {
		return store.Object{}, s.failed("put", tmp, err)
	}
	f, err := root.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fileMode)
	if err != nil {
		return store.Object{}, s.failed("put", tmp, err)
	}
	defer f.Close()
	// Without the wrapper, io.CopyBuffer would use ReadFrom of the file, which does not check ctx.
	if _, err := io.CopyBuffer(struct{ io.Writer }{f}, contextReader{ctx, r}, make([]byte, bufferSize)); err != nil {
		if source, ok := errors.AsType[sourceError](err); ok {
			return store.Object{}, store.Failed("put", tmp, s, fmt.Errorf("read the source: %w", source.error))
		}
		return store.Object{}, s.failed("put", tmp, err)
	}
	if err := f.Sync(); err != nil {
		return store.Object{}, s.failed("put", tmp, err)
	}
	info, err := f.Stat()
	if err != nil {
		return store.Object{}, s.failed("put", tmp, err)
	}
	// A network file system may report a full disk only at the close.
	if err := f.Close(); err != nil {
		return store.Object{}, s.failed("put", tmp, err)
	}
	return store.Object{Size: info.Size(), Modified: info.ModTime()}, nil
}

// place gives the temporary file its name, atomically.
func (s *Store) place(root *os.Root, tmp, key string, o store.PutOptions) error {
	if !o.IfAbsent {
		if err := root.Rename(tmp, key); err != nil {
			return s.failed("put", key, err)
		}
		return nil
	}
	err := root.Link(tmp, key)
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOTSUP) || errors.Is(err, syscall.ENOSYS) {
		err = renameIfAbsent(root, tmp, key) // some file systems have no second name for a file
	}
	switch {
	case errors.Is(err, fs.ErrExist) && hasTwoNames(root, tmp):
	// NFS repeats a call whose response was lost, and then finds its own link.
	case errors.Is(err, fs.ErrExist):
		return s.exists(key)
	case err != nil:
		return s.failed("put", key, err)
	}
	_ = root.Remove(tmp) // the object is there; Sweep removes its second name
	return nil
}

func (s *Store) exists(key string) error {
	return fmt.Errorf("put %s in %s: %w", key, s, store.ErrExists)
}

// syncAbove makes all directories above key durable, also those that another process created and did not sync yet.
func (s *Store) syncAbove(root *os.Root, key string) error {
	for name := key; name != "."; {
		name = path.Dir(name)
		d, err := root.Open(name)
		if err != nil {
			return s.failed("sync", name, err)
		}
		if err := errors.Join(syncDirectory(d), d.Close()); err != nil {
			return s.failed("sync", name, err)
		}
	}
	return nil
}

func temporaryName(base string) string { return temporary + rand.Text() + "-" + base }

// meantFor returns the last name of the key of a temporary file.
func meantFor(name string) (base string, ok bool) {
	rest, ok := strings.CutPrefix(name, temporary)
	if !ok {
		return "", false
	}
	_, base, ok = strings.Cut(rest, "-")
	return base, ok
}

// contextReader ends a copy when its context ends, between two reads.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (c contextReader) Read(p []byte) (int, error) {
	if err := context.Cause(c.ctx); err != nil {
		return 0, err
	}
	n, err := c.r.Read(p)
	if err != nil && err != io.EOF {
		err = sourceError{err}
	}
	return n, err
}

// sourceError is an error of the reader that Put reads, not of the store.
type sourceError struct{ error }
