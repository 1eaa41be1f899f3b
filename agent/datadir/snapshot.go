package datadir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"go.etcd.io/etcd/server/v3/etcdserver/api/snap"
	etcdlayout "go.etcd.io/etcd/server/v3/storage/datadir"
	"go.uber.org/zap"
)

// startSnapshot is the snapshot from which etcd of this minor would read the log: the newest that the log names, and
// before 3.7 the newest of them whose file can be read.
func startSnapshot(data string, l *raftLog, minor version) (Position, error) {
	valid := l.valid()
	if len(valid) == 0 {
		return Position{}, nil
	}
	if !minor.needsSnapFile() {
		return valid[len(valid)-1], nil
	}
	var broken error
	for _, p := range slices.Backward(valid) {
		if p.Index == 0 {
			continue // the beginning of a log, of which there is no file
		}
		path := filepath.Join(etcdlayout.ToSnapDir(data), fmt.Sprintf("%016x-%016x.snap", p.Term, p.Index))
		_, err := snap.Read(zap.NewNop(), path)
		var disk *fs.PathError
		switch {
		case err == nil:
			return p, nil
		case errors.As(err, &disk) && !errors.Is(err, fs.ErrNotExist):
			return Position{}, err
		case broken == nil:
			broken = fmt.Errorf("%s: %w", filepath.Base(path), err)
		}
	}
	// Without a file etcd begins at index 0, which works while the log still reaches back there.
	if l.firstFile == 0 || broken == nil {
		return Position{}, nil
	}
	return Position{}, damaged(MissingSnapshotFile, "the log reaches back to index %d only: %v", l.firstFile, broken)
}

// snapshotDB is the backend that the leader sent with the snapshot at index.
func snapshotDB(data string, index uint64) string {
	return filepath.Join(etcdlayout.ToSnapDir(data), fmt.Sprintf("%016x.snap.db", index))
}

// openBackendFile opens a backend for reading. A missing one is errNoBackend.
func openBackendFile(path string) (*os.File, int64, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, errNoBackend
	}
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, info.Size(), nil
}
