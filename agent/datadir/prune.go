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

const anyAnswer rules.Answer = rules.Yes | rules.No | rules.Unknown

// PruneFacts is all that may be looked at before data that was moved aside is deleted.
type PruneFacts struct {
	Voter   rules.Answer // is this member a started voter?
	Quorum  rules.Answer // is the quorum healthy?
	Current rules.Answer // is the data that etcd runs on of the record's formed epoch?
}

// PruneDecision says whether asides may be deleted, and by which rule.
type PruneDecision struct {
	Prune bool
	Rule  string
}

// pruneRules is the policy: first match wins, and what no rule covers is kept.
var pruneRules = []struct {
	name                   string
	voter, quorum, current rules.Answer
	prune                  bool
}{
	{"not-a-voter", rules.No | rules.Unknown, anyAnswer, anyAnswer, false},
	{"no-healthy-quorum", rules.Yes, rules.No | rules.Unknown, anyAnswer, false},
	{"other-epoch", rules.Yes, rules.Yes, rules.No | rules.Unknown, false},
	{"data-is-elsewhere", rules.Yes, rules.Yes, rules.Yes, true},
}

// DecidePrune says whether asides may be deleted: only where a healthy quorum of the current epoch, this member among its
// voters, holds what they held.
func DecidePrune(f PruneFacts) PruneDecision {
	for _, r := range pruneRules {
		if r.voter&f.Voter != 0 && r.quorum&f.Quorum != 0 && r.current&f.Current != 0 {
			return PruneDecision{Prune: r.prune, Rule: r.name}
		}
	}
	return PruneDecision{Rule: "uncovered"}
}

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

// isLeftover says whether an entry of the volume is nobody's data: what a former Prune did not finish is no aside any more,
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
