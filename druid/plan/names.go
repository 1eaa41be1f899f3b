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
)

func (w witness) String() string {
	return rules.Word(w, "a member of the group", "removed", "there is no Lease", "nothing that counts")
}

const (
	entryThere entry = 1 << iota
	entryMissing
	entryUnknown // no list was published
)

func (e entry) String() string {
	return rules.Word(e, "there", "missing", "not published")
}

// lostVerdict says what becomes of a name that the record does not list.
type lostVerdict string

const (
	lostLeave  lostVerdict = "Leave"
	lostRelist lostVerdict = "Relist"
)

// lostRows decide whether a name that a Formed record does not list was taken out of it by hand. A name leaves a record only after its
// Lease says that the member was removed, and the Lease goes last. Nothing is ever taken out by this policy: a name that was just
// drawn has no Lease yet.
var lostRows = rules.New(lostLeave, []rules.Row[lostFacts, lostVerdict]{
	{Name: "removed-on-purpose", When: lostFacts{witness: witnessOut}, Verdict: lostLeave},
	{Name: "no-witness", When: lostFacts{witness: witnessElse}, Verdict: lostLeave},
	{Name: "member-of-the-group", When: lostFacts{witness: witnessOwn, entry: entryThere | entryUnknown}, Verdict: lostRelist},
	{Name: "slot-names-it", When: lostFacts{witness: witnessOwn, entry: entryMissing, slot: rules.Yes}, Verdict: lostRelist},
	{Name: "renews-its-lease", When: lostFacts{witness: witnessOwn, entry: entryMissing, slot: rules.No, live: rules.Yes}, Verdict: lostRelist},
	{Name: "all-names-lost", When: lostFacts{witness: witnessOwn | witnessMute, body: rules.Yes, empty: rules.Yes}, Verdict: lostRelist},
	{Name: "not-proven", When: lostFacts{witness: witnessOwn, entry: entryMissing, slot: rules.No, live: rules.No}, Verdict: lostLeave},
	{Name: "lease-lost-too", When: lostFacts{witness: witnessMute, entry: entryThere, body: rules.Yes}, Verdict: lostRelist},
	{Name: "mute", When: lostFacts{witness: witnessMute}, Verdict: lostLeave},
})

// lostFacts is all that the policy may look at.
type lostFacts struct {
	witness witness     `fact:"its Lease says"`
	entry   entry       `fact:"in the member list"`
	slot    rules.YesNo `fact:"a slot names it"`
	live    rules.YesNo `fact:"its Lease is renewed"`
	body    rules.YesNo `fact:"an object bears it"`      // a Lease, a Pod or a claim of the cluster bears it
	empty   rules.YesNo `fact:"the record lists no one"` // the record lists no names at all
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
		if lostRows.Decide(lostFactsOf(m, o)).Verdict == lostRelist {
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
