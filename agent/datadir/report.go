package datadir

import (
	"fmt"
	"time"
)

// State of a data directory. There is no unknown among them: what could not be found out is an error of Inspect.
type State uint8

// The states.
const (
	// Empty: no member/wal, so no raft ID was ever started on it.
	Empty State = 1 << iota
	// Intact: etcd can start on it and continue where it stopped.
	Intact
	// Corrupt: present, but not what etcd had written; Report.Kind names the damage.
	Corrupt
	// NewerSchema: intact, but written by a newer minor of etcd than the one that is to be started.
	NewerSchema
)

// String is the state's word in Leases, logs and metrics.
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
	// MissingWALFile: the log has no file, lacks one in its sequence, or starts above the newest usable snapshot.
	MissingWALFile Kind = "missing-wal-file"
	// BadWALRecord: a record fails its checksum or cannot be decoded, and it is not a torn tail.
	BadWALRecord Kind = "bad-wal-record"
	// TornWAL: the log is torn before its last file, lacks entries in its middle, or ends below what it had committed. A
	// torn tail that lost nothing committed is what every crash may leave, and etcd repairs it: that is Intact, with
	// Report.TornTail.
	TornWAL Kind = "torn-wal"
	// MissingSnapshotFile: the log starts at a snapshot of which no file is left.
	MissingSnapshotFile Kind = "missing-snapshot-file"
	// MissingDB: there is a log but no backend.
	MissingDB Kind = "missing-db"
	// TruncatedDB: the backend is shorter than its own meta page says.
	TruncatedDB Kind = "truncated-db"
	// ConsistentIndexAhead: the backend has applied entries that the log does not hold. Either the log lost them, then the
	// member forgot what it had acknowledged; or etcd crashed while it applied entries whose write to the log was still
	// under way, then no one counts on them. The two cannot be reported apart, so it counts as the worse.
	ConsistentIndexAhead Kind = "consistent-index-ahead"
	// BadMeta: neither meta page of the backend is valid.
	BadMeta Kind = "bad-meta-page"
	// BadPage: a page of the backend is not what its tree says.
	BadPage Kind = "bad-page"
	// BadBackend: the pages are right, but etcd's buckets in them are not.
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

// Report is what Inspect found. Fields that the damage hides are zero.
type Report struct {
	State State
	// Kind and Detail say what is damaged and where, of Corrupt only.
	Kind   Kind
	Detail string
	// Full says that every page of the backend was looked at.
	Full bool
	// Leftover: Empty, but data/ holds something, which must be moved aside before another start.
	Leftover bool
	// TornTail: the log's last record is half written; etcd will cut it off.
	TornTail bool

	// ClusterID and MemberID from the metadata of the log.
	ClusterID, MemberID uint64
	// Term, Vote and Commit of the last hard state.
	Term, Vote, Commit uint64
	// Last entry of the log; the snapshot's position where the log holds none above it.
	Last Position
	// Snapshot is the newest one that the log names at or below Commit.
	Snapshot Position
	// ConsistentIndex is the last entry that the backend has applied.
	ConsistentIndex uint64
	// StorageVersion is the minor that wrote the backend's schema, such as 3.6; 3.5 left no word.
	StorageVersion string
	// DBSize in bytes, of the file.
	DBSize int64
	// Took is how long the inspection took.
	Took time.Duration
}

// String is the state and, of damage, its kind.
func (r Report) String() string {
	if r.State == Corrupt {
		return r.State.String() + " (" + string(r.Kind) + ")"
	}
	return r.State.String()
}

// damage is the error by which a check says that the data is corrupt. Every other error means that it could not look.
type damage struct {
	kind   Kind
	detail string
}

func (d *damage) Error() string { return string(d.kind) + ": " + d.detail }

func damaged(kind Kind, format string, args ...any) error {
	return &damage{kind: kind, detail: fmt.Sprintf(format, args...)}
}
