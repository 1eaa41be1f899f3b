package datadir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	etcdlayout "go.etcd.io/etcd/server/v3/storage/datadir"

	"github.com/etcd-druid/druid/agent/datadir/volume"
)

// Options of an inspection.
type Options struct {
	// EtcdVersion is the version to start, major.minor or more. It decides which schema is newer and which files the
	// start needs. Empty means the newest version that this build supports.
	EtcdVersion string
	// Full looks at every page of the backend. It is due after an unclean end and after repeated crashes; after a clean
	// stop the log, the meta pages and etcd's own marks are enough.
	Full bool
}

// Inspect returns the state of etcd's data on the volume dir. It opens everything read-only and creates nothing. The
// caller holds the lock of the volume. An error means that the state is unknown: the disk returned an error, another
// process has the backend open, or ctx ended.
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
		if o.Full {
			if err := r.findWhole(ctx, data); err != nil {
				return Report{}, fmt.Errorf("inspect %s: %w", data, err)
			}
		}
	case err != nil:
		return Report{}, fmt.Errorf("inspect %s: %w", data, err)
	case minor.lessThan(r.StorageVersion):
		r.State = NewerSchema
	default:
		r.State = Intact
	}
	return r, nil
}

// isEmpty reports whether no raft ID was ever started here. etcd creates a complete member/wal by a rename before it
// starts raft.
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

// inspect fills r as far as it can. It returns damage as an error.
func inspect(ctx context.Context, data string, minor version, full bool, r *Report) error {
	log, err := readLog(ctx, etcdlayout.ToWALDir(data))
	log.fill(r)
	if err != nil {
		return err
	}
	path := etcdlayout.ToBackendFileName(data)
	be, err := readBackend(path)
	be.fill(r)
	r.DB = path
	if err != nil {
		return nameByPages(ctx, path, err)
	}
	start, err := startSnapshot(data, log, minor)
	if err != nil {
		return err
	}
	// If its own backend is behind a snapshot of the leader, etcd uses the backend that came with that snapshot.
	if be.consistentIndex < start.Index {
		path = snapshotDB(data, start.Index)
		r.DB = path
		if be, err = readBackend(path); err != nil {
			if errors.Is(err, errNoBackend) {
				return damaged(MissingSnapshotFile, "the log starts at index %d, the backend has applied only index %d, and %s is missing",
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
		if err := checkPages(ctx, path); err != nil {
			return err
		}
		r.Whole = true
	}
	return nil
}

// findWhole looks for a backend in corrupt data of which every page is good: the log alone is damaged then.
func (r *Report) findWhole(ctx context.Context, data string) error {
	candidates := []string{r.DB, etcdlayout.ToBackendFileName(data)}
	r.DB = ""
	for _, path := range slices.Compact(candidates) {
		if path == "" {
			continue
		}
		be, err := readBackend(path)
		if err == nil {
			err = checkPages(ctx, path)
		}
		var found *damage
		switch {
		case err == nil:
			r.DB, r.Whole = path, true
			be.fill(r)
			return nil
		case !errors.As(err, &found):
			return err
		}
	}
	return nil
}

// nameByPages finds and names the page that made a backend unreadable, because the error of the reader has less
// detail.
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

// State of a data directory. There is no unknown state: Inspect returns an error instead.
type State uint8

// The states.
const (
	// Empty: no member/wal, so no raft ID was ever started on it.
	Empty State = 1 << iota
	// Intact: etcd can start on it and continue where it stopped.
	Intact
	// Corrupt: data is present, but differs from what etcd wrote. Report.Kind names the damage.
	Corrupt
	// NewerSchema: intact, but written by a newer minor version of etcd than the one to start.
	NewerSchema
)

// String returns the name of the state in Leases, logs and metrics.
func (s State) String() string {
	switch s {
	case Empty:
		return "empty"
	case Intact:
		return "intact"
	case Corrupt:
		return "corrupt"
	case NewerSchema:
		return "newer-schema"
	default:
		return fmt.Sprintf("State(%d)", uint8(s))
	}
}

// Kind names the damage of corrupt data.
type Kind string

// The kinds of damage, in the order in which Inspect looks for them.
const (
	// MissingWALFile: the log has no file, a file of the sequence is missing, or the log begins after the newest
	// usable snapshot.
	MissingWALFile Kind = "missing-wal-file"
	// BadWALRecord: a record fails its checksum or cannot be decoded, and it is not a torn tail.
	BadWALRecord Kind = "bad-wal-record"
	// TornWAL: a file before the last one is torn, entries in the middle are missing, or the log ends before its
	// committed index. A torn tail without loss of committed entries can follow every crash, and etcd repairs it. That
	// is Intact, with Report.TornTail.
	TornWAL Kind = "torn-wal"
	// MissingSnapshotFile: the log starts at a snapshot whose files are all missing.
	MissingSnapshotFile Kind = "missing-snapshot-file"
	// MissingDB: there is a log but no backend.
	MissingDB Kind = "missing-db"
	// TruncatedDB: the backend is shorter than its meta page says.
	TruncatedDB Kind = "truncated-db"
	// ConsistentIndexAhead: the backend has applied entries that the log does not have. Either the log lost them, and
	// the member forgot what it had acknowledged. Or etcd crashed while it applied entries whose write to the log was
	// not complete, and no member relies on them. The two cases look the same, so the worse one is assumed.
	ConsistentIndexAhead Kind = "consistent-index-ahead"
	// BadMeta: neither meta page of the backend is valid.
	BadMeta Kind = "bad-meta-page"
	// BadPage: a page of the backend does not match its tree.
	BadPage Kind = "bad-page"
	// BadBackend: the pages are valid, but etcd's buckets in them are not.
	BadBackend Kind = "bad-backend"
)

// Position is a place in the raft log.
type Position struct {
	Term  uint64 `json:"term"`
	Index uint64 `json:"index"`
}

// Less orders positions as raft does: by term, then by index.
func (p Position) Less(q Position) bool {
	return p.Term < q.Term || p.Term == q.Term && p.Index < q.Index
}

// Report is the result of Inspect. Fields that the damage hides are zero.
type Report struct {
	State State
	// Kind and Detail describe the damage of corrupt data.
	Kind   Kind
	Detail string
	// Full says that every page of the backend was looked at.
	Full bool
	// Leftover: the state is Empty, but data/ has content, which must be quarantined before another start.
	Leftover bool
	// TornTail: the last record of the log is incomplete. etcd truncates it.
	TornTail bool

	// ClusterID and MemberID from the metadata of the log.
	ClusterID, MemberID uint64
	// Term, Vote and Commit of the last hard state.
	Term, Vote, Commit uint64
	// Last entry of the log, or the position of the snapshot if the log has no entry above it.
	Last Position
	// Snapshot is the newest snapshot in the log at or below Commit.
	Snapshot Position
	// ConsistentIndex is the last entry that the backend has applied.
	ConsistentIndex uint64
	// StorageVersion is the minor version that wrote the schema of the backend, such as 3.6. etcd 3.5 does not record
	// it.
	StorageVersion string
	// DB is the path of the backend that counts: etcd's own, or the one that the leader sent with a snapshot. Whole says
	// that every page of it was found good, which corrupt data can have too if only the log is damaged.
	DB    string
	Whole bool
	// DBSize in bytes, of the file.
	DBSize int64
	// Took is how long the inspection took.
	Took time.Duration
}

// String returns the state, and for damage also its kind.
func (r Report) String() string {
	if r.State == Corrupt {
		return r.State.String() + " (" + string(r.Kind) + ")"
	}
	return r.State.String()
}

// damage is the error of a check that finds corrupt data. Every other error means that the check could not read the
// data.
type damage struct {
	kind   Kind
	detail string
}

func (d *damage) Error() string { return string(d.kind) + ": " + d.detail }

func damaged(kind Kind, format string, args ...any) error {
	return &damage{kind: kind, detail: fmt.Sprintf(format, args...)}
}
