package plan

import (
	"fmt"
	"strings"

	"github.com/etcd-druid/druid/leases"
)

// guests is who else is in a raft group that was joined.
type guests uint8

const (
	guestsNone guests = iota // nobody, or the group was born here
	guestsStay               // whoever was there before is kept until the user lets it go
	guestsGo                 // the leader's agent removes it, one member after another
)

// guestsOf goes by the list that the leader's agent published; before there is one, whoever was there is there.
func guestsOf(d Desired, o Observed) guests {
	others, listed := o.Record.Others()
	switch {
	case o.RecordState != RecordFormed || !o.Record.Adopted() || listed && len(others) == 0:
		return guestsNone
	case d.RemoveOthers:
		return guestsGo
	default:
		return guestsStay
	}
}

// beside is what is under way where nothing else is.
func (g guests) beside(p progress) progress {
	switch {
	case p == progressNone && g == guestsStay:
		return progressShared
	case p == progressNone && g == guestsGo:
		return progressParting
	default:
		return p
	}
}

// othersLeft names the members of the cluster that was joined that are still there.
func othersLeft(p picture) string {
	others, listed := p.Record.Others()
	if !listed {
		return stillThere(len(p.Record.Guests))
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

// crowded says why no Pod is replaced because of who is in the raft group beside the listed members; empty if nobody is. What is
// not one of ours counts in the quorum, and nothing is known of it.
func crowded(r leases.Record, listed int) string {
	switch {
	case r.MemberList == nil && r.Adopted():
		return "who is in the raft group that was joined is not told yet"
	case r.MemberList != nil && len(r.MemberList.Members) > listed:
		return fmt.Sprintf("the raft group has %s, and %d are asked for", count(len(r.MemberList.Members)), listed)
	default:
		return ""
	}
}
