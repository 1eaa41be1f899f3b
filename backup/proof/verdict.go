package proof

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/etcd-druid/druid/backup/chain"
	"github.com/etcd-druid/druid/backup/delta"
	"github.com/etcd-druid/druid/backup/restore"
	"github.com/etcd-druid/druid/backup/snapshot"
	"github.com/etcd-druid/druid/backup/store"
)

// Verdict is what is known of backups.
type Verdict string

const (
	// Proven: all was read and restored, and at a revision it holds what etcd said that it held.
	Proven Verdict = "Proven"
	// Broken: what is in the store does not lead to a state that the cluster had. Only new backups repair that.
	Broken Verdict = "Broken"
	// Unknown: it was not found out. That says nothing of the backups.
	Unknown Verdict = "Unknown"
)

// Result of a verification.
type Result struct {
	Verdict Verdict `json:"verdict"`
	// Reason says in words why it is not Proven.
	Reason string `json:"reason,omitempty"`
	// Object is the key of what is broken. Where a comparison failed it is the oldest that can be to blame: Suspects are all.
	Object   string   `json:"object,omitempty"`
	Suspects []string `json:"suspects,omitempty"`
	// Full that it began with, and the last revision that was restored; 0: none was.
	Full     string `json:"full,omitempty"`
	Revision int64  `json:"revision,omitempty"`
	// Checkpoint that was compared, and the key of the delta that it is from; nil: there was none to compare with.
	Checkpoint *Checkpoint `json:"checkpoint,omitempty"`
	// Compared is what was compared with the checkpoint and is equal, NotCompared what was not, and why.
	Compared    []string `json:"compared,omitempty"`
	NotCompared []string `json:"notCompared,omitempty"`
	// HashKV that was found at the checkpoint's revision, and Keys that were alive.
	HashKV uint32 `json:"hashKV,omitempty"`
	Keys   int64  `json:"keys,omitempty"`
	Contents
	// Size of the database in bytes, and Took is the time that all took.
	Size int64         `json:"size,omitempty"`
	Took time.Duration `json:"took"`
}

// Checkpoint is what etcd said of itself.
type Checkpoint struct {
	Object          string `json:"object"`
	Revision        int64  `json:"revision"`
	CompactRevision int64  `json:"compactRevision"`
	HashKV          uint32 `json:"hashKV"`
	MemberID        uint64 `json:"memberID"`
	delta.Beside
}

// judge reports what is broken from what was not found out, and which object it is.
func judge(err error, p chain.Plan) (Verdict, string) {
	if full, ok := errors.AsType[*snapshot.DamagedError](err); ok {
		return Broken, full.Object
	}
	if part, ok := errors.AsType[*delta.DamagedError](err); ok {
		return Broken, part.Object
	}
	if gap, ok := errors.AsType[*restore.GapError](err); ok {
		return Broken, gap.Before
	}
	if gap, ok := errors.AsType[*chain.GapError](err); ok {
		return Broken, gap.After
	}
	for _, is := range []error{restore.ErrFork, restore.ErrSwapped, restore.ErrShort, store.ErrDamaged} {
		if errors.Is(err, is) {
			return Broken, named(err, p)
		}
	}
	return Unknown, ""
}

// named is the last object of the plan that an error names; all of those that judge calls broken name one.
func named(err error, p chain.Plan) string {
	for _, d := range slices.Backward(p.Deltas) {
		if strings.Contains(err.Error(), d.Key) {
			return d.Key
		}
	}
	return p.Full.Key
}
