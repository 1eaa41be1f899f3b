package plan

import (
	"fmt"
	"strings"

	"github.com/etcd-druid/druid/leases"
)

// external members is who else is in a raft group that was joined.
type externals uint8

const (
	externalsNone externals = iota // no one, or the group was formed here
	externalsStay                  // anyone who was there before is kept until the user lets it go
	externalsGo                    // the leader's agent removes it, one member after another
)

// guestsOf goes by the list that the leader's agent published; before there is one, anyone who was there is there.
func externalsOf(d Desired, o Observed) externals {
	others, listed := o.Record.Others()
	switch {
	case o.RecordState != RecordFormed || !o.Record.Adopted() || listed && len(others) == 0:
		return externalsNone
	case d.RemoveOthers:
		return externalsGo
	default:
		return externalsStay
	}
}

// next to is what is under way where nothing else is.
func (g externals) beside(p progress) progress {
	switch {
	case p == progressNone && g == externalsStay:
		return progressShared
	case p == progressNone && g == externalsGo:
		return progressParting
	default:
		return p
	}
}

// othersLeft names the members of the cluster that was joined that are still there.
func othersLeft(p picture) string {
	others, listed := p.Record.Others()
	if !listed {
		return stillThere(len(p.Record.Externals))
	}
	names := make([]string, len(others))
	for i, m := range others {
		if names[i] = m.Name; m.Name == "" {
			names[i] = m.PeerURL
		}
	}
	return fmt.Sprintf("%s (%s)", stillThere(len(others)), strings.Join(names, ", "))
}

func stillThere(members int) string {
	are := "are"
	if members == 1 {
		are = "is"
	}
	return fmt.Sprintf("of the former cluster there %s still %s", are, count(members))
}

// crowded says why no Pod is replaced because of who is in the raft group next to the listed members; empty if no one is. What is
// not one of ours counts in the quorum, and nothing is known of it.
func crowded(r leases.Record, listed int) string {
	switch {
	case r.MemberList == nil && r.Adopted():
		return "who is in the raft group that was joined is not reported yet"
	case r.MemberList != nil && len(r.MemberList.Members) > listed:
		return fmt.Sprintf("the raft group has %s, and %d are asked for", count(len(r.MemberList.Members)), listed)
	default:
		return ""
	}
}
