package plan

import "slices"

// budgetFacts is all that the policy of the PodDisruptionBudget may look at.
type budgetFacts struct {
	voters, ready int
	// strays are Pods that bear the voter label and whose names the record does not list any more.
	strays int
	// moving: a member joins, leaves or replaces itself, Pods are replaced, or others are in the raft group that was joined.
	moving bool
	// unsaved: the backup fails.
	unsaved bool
}

func budgetFactsOf(d Desired, o Observed) budgetFacts {
	// Raised before a Pod is replaced, so that no other can be evicted next to it.
	outdated := slices.ContainsFunc(o.listed(), func(m Member) bool { return m.Make == MakeOutdated })
	rolls := outdated && rolloutOf(d, o).sum&(rollingGoes|rollingUpgrades) != 0
	moves := rolls || o.Record.Replacing != nil || o.Record.Retiring != nil || externalsOf(d, o) != externalsNone
	f := budgetFacts{moving: moves, unsaved: backupBlocks(d, o)}
	for _, m := range o.listed() {
		if !m.votes() {
			f.moving = true
			continue
		}
		f.voters++
		if m.up() {
			f.ready++
		}
	}
	for _, m := range o.Members {
		if !m.Listed && m.Voter && m.Pod&(PodAbsent|PodForeign) == 0 {
			f.strays++
		}
	}
	return f
}

// minAvailable of the PodDisruptionBudget, which counts Pods that bear the voter label: a quorum while all voters are
// ready; as many as are ready, and at least a quorum, while one is not, so that no ready one may be evicted; all voters
// while the membership changes, or the backup fails and the members hold the only good copy. A Pod that is counted and is no member any more may be ready too, so that it adds to all of
// them. It is an integer: a percentage or maxUnavailable would be counted against the replicas
// that the user wrote a moment ago.
func minAvailable(f budgetFacts) int {
	switch {
	case f.moving || f.unsaved || f.strays > 0:
		return f.strays + max(f.voters, quorum(f.voters))
	case f.ready == f.voters:
		return quorum(f.voters)
	default:
		return max(f.ready, quorum(f.voters))
	}
}
