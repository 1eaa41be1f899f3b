package datadir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	etcdlayout "go.etcd.io/etcd/server/v3/storage/datadir"

	"github.com/etcd-druid/druid/agent/datadir/volume"
)

// Options of an inspection.
type Options struct {
	// EtcdVersion is the version that is to be started, major.minor or more. It decides what a newer schema is and which
	// files the start needs. Empty means the newest that this build knows.
	EtcdVersion string
	// Full looks at every page of the backend. It is due after an unclean end and after repeated crashes; after a clean
	// stop the log, the meta pages and etcd's own marks are enough.
	Full bool
}

// Inspect finds out in what state etcd's data on the volume dir is. It opens everything read-only and creates nothing.
// The caller holds the volume's lock. An error means that the state is unknown: the disk did not answer, another process
// has the backend open, or ctx ended.
func Inspect(ctx context.Context, dir string, o Options) (r Report, err error) {
	start := time.Now()
	defer func() { r.Took = time.Since(start) }()
	minor, err := parseMinor(o.EtcdVersion)
	if err != nil {
		return r, err
	}
	data := volume.DataPath(dir)
	if empty, leftover, err := isEmpty(data); empty || err != nil {
		return Report{State: Empty, Leftover: leftover}, err
	}
	err = inspect(ctx, data, minor, o.Full, &r)
	var found *damage
	switch {
	case errors.As(err, &found):
		r.State, r.Kind, r.Detail = Corrupt, found.kind, found.detail
	case err != nil:
		return Report{}, fmt.Errorf("inspect %s: %w", data, err)
	case minor.lessThan(r.StorageVersion):
		r.State = NewerSchema
	default:
		r.State = Intact
	}
	return r, nil
}

// isEmpty says whether no raft ID was ever started here: etcd makes member/wal whole, by rename, before it starts raft.
func isEmpty(data string) (empty, leftover bool, err error) {
	_, err = os.Lstat(etcdlayout.ToWALDir(data))
	if err == nil {
		return false, false, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return false, false, fmt.Errorf("inspect %s: %w", data, err)
	}
	entries, err := os.ReadDir(data)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, false, fmt.Errorf("inspect %s: %w", data, err)
	}
	return true, len(entries) > 0, nil
}

// inspect fills r as far as it gets. Damage is its error.
func inspect(ctx context.Context, data string, minor version, full bool, r *Report) error {
	log, err := readLog(ctx, etcdlayout.ToWALDir(data))
	log.fill(r)
	if err != nil {
		return err
	}
	path := etcdlayout.ToBackendFileName(data)
	be, err := readBackend(path)
	be.fill(r)
	if err != nil {
		return nameByPages(ctx, path, err)
	}
	start, err := startSnapshot(data, log, minor)
	if err != nil {
		return err
	}
	// etcd takes the backend that came with a snapshot of the leader where its own is behind that snapshot.
	if be.consistentIndex < start.Index {
		path = snapshotDB(data, start.Index)
		if be, err = readBackend(path); err != nil {
			if errors.Is(err, errNoBackend) {
				return damaged(MissingSnapshotFile, "the log starts at index %d, the backend at %d, and %s is missing",
					start.Index, r.ConsistentIndex, filepath.Base(path))
			}
			return nameByPages(ctx, path, err)
		}
		be.fill(r)
	}
	if err := log.check(start, be.consistentIndex); err != nil {
		return err
	}
	if full {
		r.Full = true
		return checkPages(ctx, path)
	}
	return nil
}

// nameByPages looks for the page that made a backend unreadable, to name it; the reader itself stops with less.
func nameByPages(ctx context.Context, path string, err error) error {
	var found *damage
	if !errors.As(err, &found) || found.kind != BadBackend {
		return err
	}
	if pages := checkPages(ctx, path); pages != nil {
		return pages
	}
	return err
}
