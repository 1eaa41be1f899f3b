package policy

import (
	"slices"
)

// electorates are the lists of voters by which a return of the old raft group is judged: those that the best disk can have, else the
// published one.
func (r *recovery) electorates(o Observed) (all [][]oldVoter) {
	var lists [][]string
	if best, ok := r.bestDisk(o, func(oldVoter) bool { return true }); ok && best.report != nil {
		lists = best.report.VoterLists()
	}
	if len(lists) == 0 && o.Record.MemberList != nil {
		var published []string
		for _, e := range o.Record.MemberList.Members {
			if !e.Learner {
				published = append(published, e.ID)
			}
		}
		lists = append(lists, published)
	}
	if len(slices.Concat(lists...)) == 0 { // only the Leases name the voters
		return [][]oldVoter{r.voters}
	}
	for _, ids := range lists {
		all = append(all, slices.DeleteFunc(slices.Clone(r.voters), func(p oldVoter) bool { return !slices.Contains(ids, p.id) }))
	}
	return all
}

// returning says whether the members that hold their data are a quorum, also if learners that are away got a vote meanwhile. A quorum of one
// list is enough: a change of the members that is not committed may never happen.
func (r *recovery) returning(o Observed) returns {
	all := returnsNot
	for _, voters := range r.electorates(o) {
		switch r.returningOf(voters) {
		case returnsFenced:
			return returnsFenced
		case returnsMay:
			all = returnsMay
		default:
		}
	}
	return all
}

func (r *recovery) returningOf(voters []oldVoter) returns {
	fenced, here := 0, 0
	for _, p := range voters {
		switch p.holds {
		case holdsFenced:
			fenced++
		case holdsHere:
			here++
		default:
		}
	}
	switch n := len(voters); {
	case n == 0:
		return returnsMay
	case fenced >= quorum(n), r.order == nil && fenced > 0 && fenced+here >= quorum(n): // the record can have lost the order
		return returnsFenced
	case r.mayServe(voters, r.unlisted(voters), nil):
		return returnsMay
	default:
		return returnsNot
	}
}

// membersToGiveUp returns members that are away without which the others cannot be a quorum, and none that is not needed.
func (r *recovery) membersToGiveUp(o Observed) (names []string, enough bool) {
	lists := r.electorates(o)
	serve := func(without []string) bool {
		return slices.ContainsFunc(lists, func(voters []oldVoter) bool { return r.mayServe(voters, r.unlisted(voters), without) })
	}
	for _, p := range unknownLast(slices.Concat(lists...), r.unlisted(nil)) {
		if p.holds == holdsUnknown && serve(names) && !slices.Contains(names, p.name()) {
			names = append(names, p.name())
		}
	}
	if !serve(names) {
		names = needed(names, func(fewer []string) bool { return !serve(fewer) })
	}
	slices.Sort(names)
	return names, len(names) > 0 && !serve(names)
}
