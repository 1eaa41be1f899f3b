package datadir

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/etcd-druid/druid/agent/datadir/volume"
	"github.com/etcd-druid/druid/internal/crash"
	"github.com/etcd-druid/druid/internal/rules"
)

// PruneFacts is all that may be looked at before data that was moved aside is deleted.
type PruneFacts struct {
	Voter   rules.Answer // is this member a started voter?
	Quorum  rules.Answer // is the quorum healthy?
	Current rules.Answer // is the data that etcd runs on of the record's formed epoch?
}

// PruneVerdict says what becomes of data that was moved aside.
type PruneVerdict string

// The verdicts.
const (
	KeepAsides   PruneVerdict = "Keep"
	DeleteAsides PruneVerdict = "Delete"
)

// pruneRules is the policy: first match wins, and what no rule covers is kept.
var pruneRules = rules.New(KeepAsides, []rules.Row[PruneFacts, PruneVerdict]{
	{Name: "not-a-voter", When: PruneFacts{Voter: rules.No | rules.Unknown}, Verdict: KeepAsides},
	{Name: "no-healthy-quorum", When: PruneFacts{Voter: rules.Yes, Quorum: rules.No | rules.Unknown}, Verdict: KeepAsides},
	{Name: "other-epoch", When: PruneFacts{Voter: rules.Yes, Quorum: rules.Yes, Current: rules.No | rules.Unknown}, Verdict: KeepAsides},
	{Name: "data-is-elsewhere", When: PruneFacts{Voter: rules.Yes, Quorum: rules.Yes, Current: rules.Yes}, Verdict: DeleteAsides},
})

// DecidePrune says whether asides may be deleted: only where a healthy quorum of the current epoch, this member among its
// voters, holds what they held.
func DecidePrune(f PruneFacts) rules.Decision[PruneVerdict] { return pruneRules.Decide(f) }

// PruneOrder is the order in which asides are deleted: those of other clusters, then of ours by their last position, so
// that the best goes last. What is in an aside without a readable description is unknown, hence spared longest.
func PruneOrder(asides []Aside, clusterID uint64) []Aside {
	order := slices.Clone(asides)
	rank := func(a Aside) int {
		switch {
		case !a.Known:
			return 2
		case uint64(a.Content.ClusterID) == clusterID:
			return 1
		default:
			return 0
		}
	}
	slices.SortStableFunc(order, func(a, b Aside) int {
		return cmp.Or(
			cmp.Compare(rank(a), rank(b)),
			cmp.Compare(a.Content.Last.Term, b.Content.Last.Term),
			cmp.Compare(a.Content.Last.Index, b.Content.Last.Index),
			cmp.Compare(a.Seq, b.Seq),
		)
	})
	return order
}

// prunedPrefix starts the name of an aside whose deletion began: it is no aside any more, for part of it may be gone.
const prunedPrefix = ".pruned-"

// isLeftover says whether an entry of the volume is no one's data: what a former Prune did not finish is no aside any more,
// and no etcd ever ran on what a restore did not finish.
func isLeftover(e os.DirEntry) bool {
	return strings.HasPrefix(e.Name(), prunedPrefix) || strings.HasPrefix(e.Name(), volume.RestoredDir)
}

// PruneBegun says whether a former Prune, or a restore, did not come to its end: what it left behind is deleted by the next
// Prune.
func PruneBegun(dir string) (bool, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return false, fmt.Errorf("list what was begun to be pruned: %w", err)
	}
	return slices.ContainsFunc(entries, isLeftover), nil
}

// Prune deletes the asides of the given names one after the other, and first what a former Prune or a restore did not
// finish.
func Prune(dir string, names ...string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("prune: %w", err)
	}
	for _, e := range entries {
		if isLeftover(e) {
			crash.Before("drop-leftover")
			err := os.RemoveAll(filepath.Join(dir, e.Name()))
			crash.After("drop-leftover")
			if err != nil {
				return fmt.Errorf("prune: %w", err)
			}
		}
	}
	for _, name := range names {
		if !strings.HasPrefix(name, volume.AsidePrefix) || filepath.Base(name) != name {
			return fmt.Errorf("prune %q: not a directory that was moved aside", name)
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
