package policy

import (
	"fmt"
	"strings"

	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
)

type (
	// Finalizer is the decision about the finalizer that protects an EtcdCluster whose members share a raft group with
	// external members.
	Finalizer uint8

	joinedGroup uint8 // the external members of the joined raft group
	deletion    uint8 // whether and how the EtcdCluster was deleted
)

// The verdicts.
const (
	FinalizerNothing Finalizer = 1 << iota
	FinalizerHold              // take it, before anything else is done
	FinalizerRelease           // give it back
	FinalizerWait              // Kubernetes deletes the objects of the EtcdCluster; druid checks again afterwards
	FinalizerLeave             // all members leave the group, one after another
)

func (g Finalizer) String() string {
	return rules.Word(g, "Nothing", "Hold", "Release", "Wait", "Leave")
}

const (
	joinedGroupNone        joinedGroup = 1 << iota // none: the leader's agent listed only members of this cluster
	joinedGroupThere                               // others are listed
	joinedGroupUnknown                             // members of this cluster may be in the group, and its other members are not reported
	joinedGroupBegun                               // the seed has begun to join, and no member of this cluster votes yet
	joinedGroupNeverFormed                         // no member of this cluster was ever reported in it
	joinedGroupLeft                                // all of ours have left
	joinedGroupForeign                             // the record belongs to another EtcdCluster, so no agent follows it

	anyJoinedGroup = joinedGroupNone | joinedGroupThere | joinedGroupUnknown | joinedGroupBegun | joinedGroupNeverFormed | joinedGroupLeft | joinedGroupForeign
)

func (h joinedGroup) String() string {
	return rules.Word(h, "no external members", "external members", "not known", "joining has begun", "never in it", "all left", "record foreign")
}

const (
	deletionNone       deletion = 1 << iota
	deletionPlain               // Kubernetes deletes its objects after it
	deletionForeground          // Kubernetes deletes its objects before it, despite its finalizers
	deletionOrphan              // its objects stay
)

func (d deletion) String() string {
	return rules.Word(d, "no", "background", "foreground", "orphan")
}

// guards are the policy of the finalizer. A voter that is deleted and still listed counts in the quorum of the
// remaining members: three such voters next to three external members cost them the quorum.
//
// So no member may join before the finalizer is set. druid removes it only if our members are removed or are alone in
// the group, or if druid can do nothing more.
var guards = rules.New(FinalizerNothing, []rules.Row[finalizerFacts, Finalizer]{
	{Name: "finalizer-not-needed", When: finalizerFacts{joins: rules.No, held: rules.No}, Verdict: FinalizerNothing,
		Why: "its members are a raft group of their own"},
	{Name: "finalizer-no-longer-needed", When: finalizerFacts{joins: rules.No, held: rules.Yes}, Verdict: FinalizerRelease,
		Why: "its members are a raft group of their own"},
	{Name: "deleted-without-finalizer", When: finalizerFacts{joins: rules.Yes, held: rules.No, deletion: deletionPlain | deletionForeground | deletionOrphan},
		Verdict: FinalizerNothing,
		Why:     "Kubernetes accepts no new finalizer on an object that is being deleted"},
	{Name: "record-not-owned", When: finalizerFacts{joins: rules.Yes, deletion: deletionNone, joinedGroup: joinedGroupForeign}, Verdict: FinalizerNothing,
		Why: "druid does not act on a record with another owner"},
	{Name: "add-finalizer", When: finalizerFacts{joins: rules.Yes, held: rules.No, deletion: deletionNone,
		joinedGroup: anyJoinedGroup &^ (joinedGroupNone | joinedGroupForeign)},
		Verdict: FinalizerHold,
		Why:     "a member might join or has joined"},
	{Name: "no-external-members",
		When: finalizerFacts{joins: rules.Yes, held: rules.No, deletion: deletionNone, joinedGroup: joinedGroupNone}, Verdict: FinalizerNothing,
		Why: "there is no external member whose quorum could be lost"},
	{Name: "external-members-removed",
		When: finalizerFacts{joins: rules.Yes, held: rules.Yes, deletion: deletionNone, joinedGroup: joinedGroupNone}, Verdict: FinalizerRelease,
		Why: "there is no external member whose quorum could be lost"},
	{Name: "keep-finalizer", When: finalizerFacts{joins: rules.Yes, held: rules.Yes, deletion: deletionNone}, Verdict: FinalizerNothing,
		Why: "the finalizer stays while external members exist"},
	{Name: "namespace-terminating", When: finalizerFacts{joins: rules.Yes, held: rules.Yes, going: rules.Yes}, Verdict: FinalizerRelease,
		Why: "nothing can be created in the namespace, and everything in it is deleted"},
	{Name: "deletion-orphans", When: finalizerFacts{joins: rules.Yes, held: rules.Yes, deletion: deletionOrphan}, Verdict: FinalizerRelease,
		Why: "its members stay as they are"},
	{Name: "deleted-record-not-owned",
		When:    finalizerFacts{joins: rules.Yes, held: rules.Yes, deletion: deletionPlain | deletionForeground, joinedGroup: joinedGroupForeign},
		Verdict: FinalizerRelease,
		Why:     "its members no longer belong to it"},
	{Name: "never-joined",
		When:    finalizerFacts{joins: rules.Yes, held: rules.Yes, deletion: deletionPlain | deletionForeground, joinedGroup: joinedGroupNeverFormed},
		Verdict: FinalizerRelease,
		Why:     "none of its members was ever in the joined group"},
	{Name: "all-members-left",
		When:    finalizerFacts{joins: rules.Yes, held: rules.Yes, deletion: deletionPlain | deletionForeground, joinedGroup: joinedGroupLeft},
		Verdict: FinalizerRelease,
		Why:     "the raft group acknowledged the removal of all of them"},
	{Name: "deleted-without-external-members",
		When:    finalizerFacts{joins: rules.Yes, held: rules.Yes, deletion: deletionPlain | deletionForeground, joinedGroup: joinedGroupNone},
		Verdict: FinalizerRelease,
		Why:     "there is no external member whose quorum could be lost"},
	{Name: "foreground", When: finalizerFacts{joins: rules.Yes, held: rules.Yes, deletion: deletionForeground}, Verdict: FinalizerWait,
		Why: "an object that is created now is deleted at once; afterwards the members start with their volumes and are removed"},
	{Name: "leave", When: finalizerFacts{joins: rules.Yes, held: rules.Yes, deletion: deletionPlain,
		joinedGroup: joinedGroupThere | joinedGroupUnknown | joinedGroupBegun},
		Verdict: FinalizerLeave,
		Why:     "the quorum of the remaining members would still count its voters"},
})

// finalizerFacts is the complete input of guards.
type finalizerFacts struct {
	joins       rules.YesNo `fact:"joins a running one"` // it joins a running cluster, or did
	held        rules.YesNo
	deletion    deletion    `fact:"deleted"`
	going       rules.YesNo `fact:"namespace goes"` // the namespace is deleted
	joinedGroup joinedGroup `fact:"external members"`
}

// finalizerOf decides about the finalizer.
func finalizerOf(d Desired, o Observed, has evidence) rules.Decision[Finalizer] {
	return guards.Decide(finalizerFacts{
		joins: rules.YesNoOf(d.Joins || o.Record.Adopted()), held: rules.YesNoOf(d.Held), deletion: deletionOf(d), going: rules.YesNoOf(d.NamespaceGoes),
		joinedGroup: joinedGroupOf(o, has),
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

func joinedGroupOf(o Observed, has evidence) joinedGroup {
	others, listed := o.Record.Others()
	wasFormed := has >= evidenceLease
	switch {
	case o.RecordState == RecordForeign:
		return joinedGroupForeign
	case o.RecordState == RecordAbsent && !wasFormed, o.RecordState == RecordForming && !wasFormed && o.Record.Executor == "":
		return joinedGroupNeverFormed
	case o.RecordState == RecordForming && !wasFormed:
		return joinedGroupBegun
	case o.RecordState&(RecordFormed|RecordRecovering) == 0:
		return joinedGroupUnknown
	case o.Record.Leaving && len(o.Record.Members) == 0:
		return joinedGroupLeft
	case !o.Record.Adopted() || !listed: // a record that was made again does not know yet
		return joinedGroupUnknown
	case len(others) == 0:
		return joinedGroupNone
	default:
		return joinedGroupThere
	}
}

// goes says whether the EtcdCluster is deleted and its members are on their way out.
func (e Evaluation) goes() bool {
	return e.Finalizer.Verdict == FinalizerLeave
}

// leaves says whether the record reports everybody so.
func (e Evaluation) leaves() bool {
	return e.RecordState == RecordFormed && e.Record.Leaving && e.goes()
}

// leaveStep writes that into the record, before the first member leaves.
func leaveStep(e Evaluation) (Step, bool) {
	if e.RecordState != RecordFormed || e.Record.Leaving || !e.goes() {
		return Step{}, false
	}
	return Step{Kind: UpdateRecord, Rule: "leave", Stage: StageRecord, Leave: true, Irreversible: true}, true
}

// releaseFinalizer is the command with which a user removes the finalizer.
const releaseFinalizer = `kubectl patch etcdcluster <name> --type json -p '[{"op":"remove","path":"/metadata/finalizers"}]'`

// leavingMessage reports how many members have yet to leave the joined group, and what a user can do if that does not
// continue.
func leavingMessage(p messageContext) string {
	left := count(len(p.Record.Members))
	switch {
	case p.Foreground:
		return "deleted in the foreground: Kubernetes deletes the Pods and Leases although the joined cluster has external members, which still count " +
			"the deleted voters. Afterwards, druid creates the members again with their volumes, and they leave the joined cluster"
	case joinedGroupOf(p.Observed, p.evidence) == joinedGroupBegun:
		return fmt.Sprintf("deleted while member %s was joining the running cluster. It leaves that cluster after it has joined. If it cannot join, remove "+
			"it there with etcdctl member remove if it is listed, and then remove the finalizer: %s", p.Record.Seed, releaseFinalizer)
	case p.RecordState != RecordFormed:
		return fmt.Sprintf("deleted while the joined cluster has external members, and its members cannot leave, because the cluster record cannot "+
			"be used. Remove them there with etcdctl member remove, and then remove the finalizer: %s", releaseFinalizer)
	}
	return fmt.Sprintf("deleted: removing %s from the joined cluster, one at a time, while the remaining members are a healthy quorum%s. %s. "+
		"If that does not continue, remove them there with etcdctl member remove (%s), and then remove the finalizer: %s",
		left, p.nextToLeave(), othersLeft(p), strings.Join(p.idsLeft(), " "), releaseFinalizer)
}

// nextToLeave names the member that is being removed.
func (p messageContext) nextToLeave() string {
	if p.Record.PendingRemoval == nil {
		return ""
	}
	return ". Member " + p.Record.PendingRemoval.Member + " is being removed" + p.unconfirmed()
}

// idsLeft returns the IDs of the members that are still in the group, as its leader listed them.
func (p messageContext) idsLeft() []string {
	var ids []string
	for _, m := range p.status.Members {
		if m.ID != "" {
			ids = append(ids, m.ID)
		}
	}
	return ids
}

// externals is the decision about the external members of a joined raft group.
type externals uint8

const (
	externalsNone externals = iota // none, or the raft group was formed by this cluster
	externalsStay                  // the external members stay until the user allows their removal
	externalsGo                    // the leader's agent removes it, one member after another
)

// externalsOf uses the list that the leader's agent published. Until it is published, all external members count as
// present.
func externalsOf(d Desired, o Observed) externals {
	others, listed := o.Record.Others()
	switch {
	case o.RecordState != RecordFormed || !o.Record.Adopted() || listed && len(others) == 0:
		return externalsNone
	case d.RemoveExternalMembers:
		return externalsGo
	default:
		return externalsStay
	}
}

// alongside returns what is in progress if nothing else is.
func (g externals) alongside(p progress) progress {
	switch {
	case p == progressNone && g == externalsStay:
		return progressShared
	case p == progressNone && g == externalsGo:
		return progressParting
	default:
		return p
	}
}

// othersLeft names the remaining external members.
func othersLeft(p messageContext) string {
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
	return fmt.Sprintf("%[2]s of the former cluster %[1]s still in the raft group", are, count(members))
}

// overThreshold returns why the members of the raft group that are not listed block the replacement of a Pod, or "" if
// there are none. They count in the quorum, and their state is unknown.
func overThreshold(r leases.Record, listed int) string {
	switch {
	case r.MemberList == nil && r.Adopted():
		return "the members of the joined raft group are not reported yet"
	case r.MemberList != nil && len(r.MemberList.Members) > listed:
		return fmt.Sprintf("the raft group has %s, and %d are requested", count(len(r.MemberList.Members)), listed)
	default:
		return ""
	}
}
