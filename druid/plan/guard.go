package plan

import "github.com/etcd-druid/druid/internal/rules"

type (
	// Guard is what becomes of the finalizer by which druid holds an EtcdCluster whose members are in a group beside others.
	Guard uint8

	hosts    uint8 // who else is in the group that was joined
	deletion uint8 // whether and how the EtcdCluster was deleted
)

// The verdicts.
const (
	GuardNothing Guard = 1 << iota
	GuardHold          // take it, before anything else is done
	GuardRelease       // give it back
	GuardWait          // Kubernetes takes away what the EtcdCluster owned; it is looked at again when that is done
	GuardLeave         // all members leave the group, one after another
)

const (
	hostsNone    hosts = 1 << iota // nobody: the leader's agent listed ours alone
	hostsThere                     // others are listed
	hostsUnknown                   // ours may be in the group, and who else is, is not told
	hostsBegun                     // the seed has claimed to join, and nobody votes there yet
	hostsUnborn                    // nothing tells that any of ours was ever in it
	hostsLeft                      // all of ours have left
	hostsForeign                   // the record is not the EtcdCluster's: nobody is led by it

	anyHosts = hostsNone | hostsThere | hostsUnknown | hostsBegun | hostsUnborn | hostsLeft | hostsForeign
)

const (
	deletionNone       deletion = 1 << iota
	deletionPlain               // what it owns goes after it
	deletionForeground          // what it owns goes before it, whatever holds it
	deletionOrphan              // what it owns stays

	anyDeletion = deletionNone | deletionPlain | deletionForeground | deletionOrphan
)

// guards is the policy of the finalizer. A voter that is gone and still listed counts in the quorum of those that stay: three of ours
// beside three others cost them theirs. So no member may join before the finalizer is there, and it goes only when ours are out or
// alone, or nothing can be done any more.
var guards = []struct {
	name     string
	joins    rules.YesNo // it joins a running cluster, or did
	held     rules.YesNo
	deletion deletion
	going    rules.YesNo // the namespace is deleted
	hosts    hosts
	guard    Guard
	why      string
}{
	{"never-held", rules.No, rules.No, anyDeletion, anyAnswer, anyHosts, GuardNothing, "its members are a group of their own"},
	{"held-for-nothing", rules.No, rules.Yes, anyDeletion, anyAnswer, anyHosts, GuardRelease, "its members are a group of their own"},
	{"deleted-unheld", rules.Yes, rules.No, deletionPlain | deletionForeground | deletionOrphan, anyAnswer, anyHosts, GuardNothing,
		"Kubernetes takes no finalizer for what is deleted"},
	{"record-foreign", rules.Yes, anyAnswer, deletionNone, anyAnswer, hostsForeign, GuardNothing, "nothing is done by a record that is not its own"},
	{"hold", rules.Yes, rules.No, deletionNone, anyAnswer, anyHosts &^ (hostsNone | hostsForeign), GuardHold, "a member may join, or has"},
	{"alone", rules.Yes, rules.No, deletionNone, anyAnswer, hostsNone, GuardNothing, "nobody is left whose quorum it could cost"},
	{"others-gone", rules.Yes, rules.Yes, deletionNone, anyAnswer, hostsNone, GuardRelease, "nobody is left whose quorum it could cost"},
	{"held", rules.Yes, rules.Yes, deletionNone, anyAnswer, anyHosts, GuardNothing, "it is held as long as others are there"},
	{"namespace-goes", rules.Yes, rules.Yes, anyDeletion, rules.Yes, anyHosts, GuardRelease, "nothing can be made in it any more, and all that is in it goes"},
	{"orphans", rules.Yes, rules.Yes, deletionOrphan, anyAnswer, anyHosts, GuardRelease, "its members are to stay as they are"},
	{"orphaned", rules.Yes, rules.Yes, deletionPlain | deletionForeground, anyAnswer, hostsForeign, GuardRelease, "its members are not its own any more"},
	{"never-in", rules.Yes, rules.Yes, deletionPlain | deletionForeground, anyAnswer, hostsUnborn, GuardRelease, "no member of it was ever there"},
	{"left", rules.Yes, rules.Yes, deletionPlain | deletionForeground, anyAnswer, hostsLeft, GuardRelease, "the group has acknowledged that all of them are out"},
	{"deleted-alone", rules.Yes, rules.Yes, deletionPlain | deletionForeground, anyAnswer, hostsNone, GuardRelease, "nobody is left whose quorum it could cost"},
	{"foreground", rules.Yes, rules.Yes, deletionForeground, anyAnswer, anyHosts, GuardWait,
		"what is made now is deleted at once; afterwards the members come back on their volumes, to leave"},
	{"leave", rules.Yes, rules.Yes, deletionPlain, anyAnswer, hostsThere | hostsUnknown | hostsBegun, GuardLeave,
		"its voters would be missed by those that stay"},
}

// guardFacts is all that the policy may look at.
type guardFacts struct {
	joins, held rules.YesNo
	deletion    deletion
	going       rules.YesNo
	hosts       hosts
}

func judgeGuard(f guardFacts) (Guard, string) {
	for _, r := range guards {
		if r.joins&f.joins != 0 && r.held&f.held != 0 && r.deletion&f.deletion != 0 && r.going&f.going != 0 && r.hosts&f.hosts != 0 {
			return r.guard, r.name
		}
	}
	return GuardNothing, "uncovered"
}

// GuardOf says what becomes of the finalizer, and by which rule.
func GuardOf(d Desired, o Observed) (Guard, string) {
	return judgeGuard(guardFacts{
		joins: rules.YesNoOf(d.Joins || o.Record.Adopted()), held: rules.YesNoOf(d.Held), deletion: deletionOf(d), going: rules.YesNoOf(d.NamespaceGoes),
		hosts: hostsOf(d, o),
	})
}

func deletionOf(d Desired) deletion {
	switch {
	case !d.Deleted:
		return deletionNone
	case d.Orphans:
		return deletionOrphan
	case d.Foreground:
		return deletionForeground
	default:
		return deletionPlain
	}
}

func hostsOf(d Desired, o Observed) hosts {
	others, listed := o.Record.Others()
	born := evidenceOf(d, o) >= evidenceLease
	switch {
	case o.RecordState == RecordForeign:
		return hostsForeign
	case o.RecordState == RecordAbsent && !born, o.RecordState == RecordForming && !born && o.Record.Executor == "":
		return hostsUnborn
	case o.RecordState == RecordForming && !born:
		return hostsBegun
	case o.RecordState&(RecordFormed|RecordRecovering) == 0:
		return hostsUnknown
	case o.Record.Leaving && len(o.Record.Members) == 0:
		return hostsLeft
	case !o.Record.Adopted() || !listed: // a record that was made anew does not know yet
		return hostsUnknown
	case len(others) == 0:
		return hostsNone
	default:
		return hostsThere
	}
}

// goes says whether the EtcdCluster is deleted and its members are on their way out.
func goes(d Desired, o Observed) bool {
	guard, _ := GuardOf(d, o)
	return guard == GuardLeave
}

// leaves says whether the record tells everybody so.
func leaves(d Desired, o Observed) bool {
	return o.RecordState == RecordFormed && o.Record.Leaving && goes(d, o)
}

// leaveStep tells it, before the first one goes.
func leaveStep(d Desired, o Observed) (Step, bool) {
	if o.RecordState != RecordFormed || o.Record.Leaving || !goes(d, o) {
		return Step{}, false
	}
	return Step{Kind: UpdateRecord, Rule: "leave", Stage: StageRecord, Leave: true, Irreversible: true}, true
}
