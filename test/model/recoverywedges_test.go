package model

import (
	"regexp"
	"strings"
	"testing"
)

// walkMutations are mutations of a recovery that walks find. After some of them, a cluster stays as it is, and no promise about its data is broken.
var walkMutations = map[string]struct {
	mutant lostMutation
	finds  string // the violation, as a regular expression
	// from is the seed of the first walk: soon before one that finds the mutation.
	from uint64
}{
	"no release":                              {mutNoRelease, "^" + isStuck, 80},
	"no order in place of another":            {mutNoOther, "^" + isStuck, 1280},
	"no record in place of one that was lost": {mutNoRecord, "^" + isStuck, 0},
	"no limit of learners":                    {mutNoLimit, "^" + isStuck, 30},
	"a recovery that is always the last":      {mutAlwaysRecent, "^" + isStuck + " waits for the approval", 115},
	"an older backup than the order names":    {mutOldBackup, "the order permits the loss of", 80},
	"a backup although a disk has more":       {mutDisksUnused, "the disk of .* has more", 110},
	"a plan without approval, policy Manual":  {mutUnasked, "the user did not approve order", 20},
}

// mutationWalks is how many walks a mutation may take to be found.
const mutationWalks = 4000

func TestEveryMutationIsFoundByWalks(t *testing.T) {
	for name, m := range walkMutations {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			finds := regexp.MustCompile(m.finds)
			for n := range uint64(mutationWalks) {
				w := lostWalk(m.from+n, m.mutant)
				if w.faultsOver(); finds.MatchString(w.bad) {
					t.Logf("seed %d, after %d walks: %.120s", m.from+n, n+1, w.bad)
					return
				}
			}
			t.Fatalf("not found in %d walks", mutationWalks)
		})
	}
}

// One of three members joins again as a learner, and then the others lose their data. The published list is the one from before the join, or
// it was lost with the record. The cluster is formed again from the disk of the learner, whose etcd runs.
func TestClusterIsFormedFromALearner(t *testing.T) {
	for name, published := range map[string]bool{"a list from before the join": true, "no list": false} {
		w := newLostWorld(0)
		list := w.record.MemberList
		w.lose(1)
		for range 2 {
			w.agent(1)
		}
		w.renew(1)
		_, learns := w.groups[0].learners[w.members[1].lease.ID]
		w.lose(0, 2)
		if w.record.MemberList = nil; published {
			w.record.MemberList = list
		}
		w.version++
		if end := w.faultsOver(); !learns || end.lost || w.bad != "" || w.newest == 0 {
			t.Errorf("%s: learns %t, lost %t, violation %q:\n%s", name, learns, end.lost, w.bad, strings.Join(w.story, "\n"))
		}
	}
}
