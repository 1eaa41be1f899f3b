package plan

import (
	"slices"

	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
)

type (
	witness uint8 // what the Lease of a name says
	entry   uint8 // whether the published member list has the name
)

const (
	witnessOwn  witness = 1 << iota // of a member of the record's raft group, which was not removed
	witnessOut                      // the member was removed, or its name dropped
	witnessMute                     // there is no Lease
	witnessElse                     // of another group or of none, not the cluster's, or it cannot be read

	anyWitness = witnessOwn | witnessOut | witnessMute | witnessElse
)

const (
	entryThere entry = 1 << iota
	entryMissing
	entryUnknown // no list was published

	anyEntry = entryThere | entryMissing | entryUnknown
)

// lostRows decide whether a name that a Formed record does not list was taken out of it by hand. A name leaves a record only after its
// Lease says that the member was removed, and the Lease goes last. Nothing is ever taken out by this policy: a name that was just
// drawn has no Lease yet.
var lostRows = []struct {
	name    string
	witness witness
	entry   entry
	slot    rules.YesNo // a slot of the record names it
	live    rules.YesNo // its Lease is renewed
	body    rules.YesNo // a Lease, a Pod or a claim of the cluster bears it
	empty   rules.YesNo // the record lists no names at all
	lost    rules.YesNo
}{
	{"removed-on-purpose", witnessOut, anyEntry, anyAnswer, anyAnswer, anyAnswer, anyAnswer, rules.No},
	{"no-witness", witnessElse, anyEntry, anyAnswer, anyAnswer, anyAnswer, anyAnswer, rules.No},
	{"member-of-the-group", witnessOwn, entryThere | entryUnknown, anyAnswer, anyAnswer, anyAnswer, anyAnswer, rules.Yes},
	{"slot-names-it", witnessOwn, entryMissing, rules.Yes, anyAnswer, anyAnswer, anyAnswer, rules.Yes},
	{"renews-its-lease", witnessOwn, entryMissing, rules.No, rules.Yes, anyAnswer, anyAnswer, rules.Yes},
	{"all-names-lost", witnessOwn | witnessMute, anyEntry, anyAnswer, anyAnswer, rules.Yes, rules.Yes, rules.Yes},
	{"not-proven", witnessOwn, entryMissing, rules.No, rules.No, anyAnswer, anyAnswer, rules.No},
	{"lease-lost-too", witnessMute, entryThere, anyAnswer, anyAnswer, rules.Yes, anyAnswer, rules.Yes},
	{"mute", witnessMute, anyEntry, anyAnswer, anyAnswer, anyAnswer, anyAnswer, rules.No},
}

// lostFacts is all that the policy may look at.
type lostFacts struct {
	witness                 witness
	entry                   entry
	slot, live, body, empty rules.YesNo
}

func judgeLost(f lostFacts) (rules.YesNo, string) {
	for _, r := range lostRows {
		if r.witness&f.witness != 0 && r.entry&f.entry != 0 && r.slot&f.slot != 0 && r.live&f.live != 0 && r.body&f.body != 0 &&
			r.empty&f.empty != 0 {
			return r.lost, r.name
		}
	}
	return rules.No, "uncovered"
}

// lostNames are the names that were taken out of the record by hand. Of an EtcdCluster that goes, or whose members all leave,
// none is brought back.
func lostNames(d Desired, o Observed) (names []string) {
	if o.RecordState != RecordFormed || o.Record.ClusterID == 0 || o.Record.Leaving || d.Deleted {
		return nil
	}
	for _, m := range o.Members {
		if m.Listed {
			continue
		}
		if lost, _ := judgeLost(lostFactsOf(m, o)); lost == rules.Yes {
			names = append(names, m.Name)
		}
	}
	return names
}

func lostFactsOf(m Member, o Observed) lostFacts {
	r := o.Record
	f := lostFacts{
		witness: witnessOf(m, o), entry: entryUnknown, live: rules.YesNoOf(m.Lease == LeaseOurs && m.Liveness == leases.Live),
		slot:  rules.YesNoOf(r.Retiring != nil && r.Retiring.Member == m.Name || r.Replacing != nil && r.Replacing.Member == m.Name),
		body:  rules.YesNoOf(m.ours()),
		empty: rules.YesNoOf(len(r.Members) == 0),
	}
	if r.MemberList != nil {
		f.entry = entryMissing
		if slices.ContainsFunc(r.MemberList.Members, func(e leases.ListedMember) bool {
			return e.Name == m.Name || leases.MemberOfURL(e.PeerURL) == m.Name
		}) {
			f.entry = entryThere
		}
	}
	return f
}

func witnessOf(m Member, o Observed) witness {
	switch {
	case m.Lease == LeaseAbsent:
		return witnessMute
	case farewellOf(m, o) != farewellNone:
		return witnessOut
	case m.Lease != LeaseOurs || !m.Readable || m.Says.Retire.State == leases.RetireUnreadable || m.Says.Retire.State == leases.RetireDone,
		!m.Says.EverFormed() || m.Says.ClusterID != o.Record.ClusterID:
		return witnessElse
	default:
		return witnessOwn
	}
}
