package datadir

import (
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/etcd-druid/druid/agent/datadir/volume"
	"github.com/etcd-druid/druid/internal/crash"
	"github.com/etcd-druid/druid/internal/rules"
)

// Room is the free space of a volume, and the size of the database on it, both in bytes. It is zero if that is unknown.
type Room struct {
	Free, Database int64
}

// RoomOf reads the room of the volume at dir.
func RoomOf(dir string) Room {
	free, err := volume.Free(dir)
	database := databaseSize(volume.DataPath(dir))
	if err != nil || database == 0 {
		return Room{}
	}
	return Room{Free: free, Database: database}
}

// databaseSize is the size in bytes of the database in a data directory, 0 if there is none.
func databaseSize(data string) int64 {
	file, err := os.Stat(filepath.Join(data, "member", "snap", "db"))
	if err != nil {
		return 0
	}
	return file.Size()
}

// LargestDatabase is the size in bytes of the largest database of the volume at dir, in use or in quarantine. It is 0 if there is none.
func LargestDatabase(dir string, quarantined []Quarantined) int64 {
	size := databaseSize(volume.DataPath(dir))
	for _, a := range quarantined {
		size = max(size, databaseSize(filepath.Join(dir, a.Name)))
	}
	return size
}

// SpaceOf is the space in bytes that the named directories take on the volume at dir. What cannot be read does not count.
func SpaceOf(dir string, names ...string) (bytes int64) {
	for _, name := range names {
		_ = filepath.WalkDir(filepath.Join(dir, name), func(_ string, e fs.DirEntry, err error) error {
			if err != nil {
				return nil //nolint:nilerr // see above
			}
			if info, err := e.Info(); err == nil {
				bytes += volume.Allocated(info)
			}
			return nil
		})
	}
	return bytes
}

// LogRoom is the space in bytes that etcd needs in addition to its database: two preallocated WAL files of 64 MB and some snapshots.
const LogRoom = 160 << 20

// short says whether one more copy of the database does not fit. A recovery builds one, and keeps the old data next to it.
func (r Room) short() bool { return r.Database > 0 && r.Free < r.Database+LogRoom }

// replaced says whether other data took the place of this data in the cluster. The quorum need not have its content.
func (a Quarantined) replaced() bool {
	return slices.Contains([]string{ReasonSurvivor, ReasonSuperseded, ReasonDiffers}, a.Content.Reason)
}

// heldBy says whether the later copy b can replace a. A recovery copied all of a into the raft group of lineage FormedInto, so a later copy
// of that raft group has it. Other data can be the only copy of what the raft group lost: only more of the same raft group replaces it.
// Damaged data replaces nothing. What damaged data holds is not certain, so nothing replaces it either.
func (a Quarantined) heldBy(b Quarantined) bool {
	one, later := a.Content, b.Content
	if b.Seq <= a.Seq || !b.replaced() || !one.Intact || !later.Intact {
		return false
	}
	if one.FormedInto != "" && one.FormedInto == later.Lineage && later.Reason != ReasonDiffers {
		return true
	}
	return one.Reason == later.Reason && one.ClusterID != 0 && one.ClusterID == later.ClusterID && !later.Last.Less(one.Last)
}

// PruneFacts is the complete input of the decision to delete quarantined data.
type PruneFacts struct {
	Voter  rules.Answer // is this member a started voter?
	Quorum rules.Answer // is the quorum healthy?
	// Current: is the data on which etcd runs or will run of the record's formed epoch?
	Current rules.Answer
	// Full: does the volume have no room for what precedes the next start of etcd? It is No while etcd runs.
	Full rules.YesNo
	// Undecided: does the record say that members differ, and that no majority has the same data? Old data is evidence then.
	Undecided rules.Answer
}

// PruneVerdict says whether quarantined data is deleted.
type PruneVerdict string

// The verdicts.
const (
	KeepQuarantined   PruneVerdict = "Keep"
	DeleteExpired     PruneVerdict = "DeleteExpired" // only data that was replaced, and whose time is over
	DeleteQuarantined PruneVerdict = "Delete"
)

// pruneRules is the policy. The first match wins. The default is to keep the data.
var pruneRules = rules.New(KeepQuarantined, []rules.Row[PruneFacts, PruneVerdict]{
	{Name: "room-to-start", When: PruneFacts{Full: rules.Yes, Current: rules.Yes, Undecided: rules.No}, Verdict: DeleteExpired},
	{Name: "not-a-voter", When: PruneFacts{Voter: rules.No | rules.Unknown}, Verdict: KeepQuarantined},
	{Name: "no-healthy-quorum", When: PruneFacts{Voter: rules.Yes, Quorum: rules.No | rules.Unknown}, Verdict: KeepQuarantined},
	{Name: "other-epoch", When: PruneFacts{Voter: rules.Yes, Quorum: rules.Yes, Current: rules.No | rules.Unknown}, Verdict: KeepQuarantined},
	{Name: "data-undecided", When: PruneFacts{Voter: rules.Yes, Quorum: rules.Yes, Current: rules.Yes, Undecided: rules.Yes | rules.Unknown},
		Verdict: KeepQuarantined},
	{Name: "data-on-voters", When: PruneFacts{Voter: rules.Yes, Quorum: rules.Yes, Current: rules.Yes, Undecided: rules.No}, Verdict: DeleteQuarantined},
})

// DecidePrune decides whether quarantined data may be deleted: only if a healthy quorum of the current epoch, with
// this member as a voter, has its content, and no tie of members that differ is open. Without room for a start of etcd, that quorum might
// never come back, for example because all volumes are full. Then only data is deleted whose time is over.
func DecidePrune(f PruneFacts) rules.Decision[PruneVerdict] { return pruneRules.Decide(f) }

// PruneOrder returns the order of deletion: first the data of other clusters, then that of this cluster by its last
// position, so that the most recent is deleted last. The content of a directory without a readable description is
// unknown. Such directories come last of all.
func PruneOrder(quarantined []Quarantined, clusterID uint64) []Quarantined {
	order := slices.Clone(quarantined)
	rank := func(a Quarantined) int {
		switch {
		case !a.Known:
			return 2
		case uint64(a.Content.ClusterID) == clusterID:
			return 1
		default:
			return 0
		}
	}
	slices.SortStableFunc(order, func(a, b Quarantined) int {
		return cmp.Or(
			cmp.Compare(rank(a), rank(b)),
			cmp.Compare(a.Content.Last.Term, b.Content.Last.Term),
			cmp.Compare(a.Content.Last.Index, b.Content.Last.Index),
			cmp.Compare(a.Seq, b.Seq),
		)
	})
	return order
}

// prunedPrefix starts the name of a quarantined directory whose deletion has begun. It no longer counts as quarantined
// data, because part of it can be missing.
const prunedPrefix = ".pruned-"

// isPruned reports whether an entry of the volume is the rest of an incomplete Prune.
func isPruned(e os.DirEntry) bool { return strings.HasPrefix(e.Name(), prunedPrefix) }

// isLeftover reports whether an entry of the volume is the rest of an incomplete Prune, or what a restore made next to the data directory.
func isLeftover(e os.DirEntry) bool {
	return isPruned(e) || strings.HasPrefix(e.Name(), volume.RestoredDir)
}

// Leftovers are the names of the directories that an incomplete Prune or restore left. DropLeftovers deletes them.
func Leftovers(dir string) (names []string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("list incomplete deletions: %w", err)
	}
	for _, e := range entries {
		if isLeftover(e) {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// DropLeftovers deletes the rest of an incomplete Prune or restore. Call it before a restore, or while etcd runs: in between, what a restore
// made can be the only data of a new raft group.
func DropLeftovers(dir string) error { return drop(dir, isLeftover) }

func drop(dir string, which func(os.DirEntry) bool) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("prune: %w", err)
	}
	for _, e := range entries {
		if which(e) {
			crash.Before("drop-leftover")
			err := os.RemoveAll(filepath.Join(dir, e.Name()))
			crash.After("drop-leftover")
			if err != nil {
				return fmt.Errorf("prune: %w", err)
			}
		}
	}
	return nil
}

// Prune deletes first the rest of an incomplete Prune, then the named quarantined directories one after another.
func Prune(dir string, names ...string) error {
	if err := drop(dir, isPruned); err != nil {
		return err
	}
	for _, name := range names {
		if !strings.HasPrefix(name, volume.QuarantinePrefix) || filepath.Base(name) != name {
			return fmt.Errorf("prune %q: not a directory with quarantined data", name)
		}
		begun := filepath.Join(dir, prunedPrefix+name)
		crash.Before("begin-prune")
		err := os.Rename(filepath.Join(dir, name), begun)
		crash.After("begin-prune")
		if err != nil {
			return fmt.Errorf("prune: %w", err)
		}
		if err := volume.SyncDir(dir); err != nil {
			return err
		}
		crash.Before("prune")
		err = os.RemoveAll(begun)
		crash.After("prune")
		if err != nil {
			return fmt.Errorf("prune: %w", err)
		}
	}
	return volume.SyncDir(dir)
}
