package plan

import (
	"slices"

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
	slot    Answer // a slot of the record names it
	live    Answer // its Lease is renewed
	body    Answer // a Lease, a Pod or a claim of the cluster bears it
	empty   Answer // the record lists no names at all
	lost    Answer
}{
	{"removed-on-purpose", witnessOut, anyEntry, anyAnswer, anyAnswer, anyAnswer, anyAnswer, No},
	{"no-witness", witnessElse, anyEntry, anyAnswer, anyAnswer, anyAnswer, anyAnswer, No},
	{"member-of-the-group", witnessOwn, entryThere | entryUnknown, anyAnswer, anyAnswer, anyAnswer, anyAnswer, Yes},
	{"slot-names-it", witnessOwn, entryMissing, Yes, anyAnswer, anyAnswer, anyAnswer, Yes},
	{"renews-its-lease", witnessOwn, entryMissing, No, Yes, anyAnswer, anyAnswer, Yes},
	{"all-names-lost", witnessOwn | witnessMute, anyEntry, anyAnswer, anyAnswer, Yes, Yes, Yes},
	{"not-proven", witnessOwn, entryMissing, No, No, anyAnswer, anyAnswer, No},
	{"lease-lost-too", witnessMute, entryThere, anyAnswer, anyAnswer, Yes, anyAnswer, Yes},
	{"mute", witnessMute, anyEntry, anyAnswer, anyAnswer, anyAnswer, anyAnswer, No},
}

// lostFacts is all that the policy may look at.
type lostFacts struct {
	witness                 witness
	entry                   entry
	slot, live, body, empty Answer
}

func judgeLost(f lostFacts) (Answer, string) {
	for _, r := range lostRows {
		if r.witness&f.witness != 0 && r.entry&f.entry != 0 && r.slot&f.slot != 0 && r.live&f.live != 0 && r.body&f.body != 0 &&
			r.empty&f.empty != 0 {
			return r.lost, r.name
		}
	}
	return No, "uncovered"
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
		if lost, _ := judgeLost(lostFactsOf(m, o)); lost == Yes {
			names = append(names, m.Name)
		}
	}
	return names
}

func lostFactsOf(m Member, o Observed) lostFacts {
	r := o.Record
	f := lostFacts{
		witness: witnessOf(m, o), entry: entryUnknown, live: AnswerOf(m.Lease == LeaseOurs && m.Liveness == leases.Live),
		slot:  AnswerOf(r.Retiring != nil && r.Retiring.Member == m.Name || r.Replacing != nil && r.Replacing.Member == m.Name),
		body:  AnswerOf(m.ours()),
		empty: AnswerOf(len(r.Members) == 0),
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
