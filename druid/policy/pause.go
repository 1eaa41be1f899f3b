package policy

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
)

type (
	lastMembers uint8 // the names that are left of a cluster that is to be paused
	alone       uint8 // whether the raft group is the last member alone
	lastMember  uint8 // the last member
	saving      uint8 // how much of the data of the last member is backed up
)

const (
	lastMembersNone  lastMembers = 1 << iota // there is none, and no sign of an earlier bootstrap
	lastMembersOne                           // one
	lastMembersOther                         // several, or none although the cluster existed before
)

func (k lastMembers) String() string {
	return rules.Word(k, "none ever", "one", "others")
}

const (
	aloneYes     alone = 1 << iota // by the list that the leader's agent published
	aloneNo                        // that list has another one, or this one as a learner
	aloneUnknown                   // no list was published
)

func (a alone) String() string {
	return rules.Word(a, "yes", "no", "not known")
}

const (
	lastMemberReady lastMember = 1 << iota // it is known to be a ready voter
	lastMemberIdle                         // a kubelet that is reachable runs no etcd in its Pod
	lastMemberComes                        // not ready, or not known, and perhaps about to be
	lastMemberStays                        // not ready, and not about to be
	lastMemberAway                         // its node is unreachable

	anyLastMember = lastMemberReady | lastMemberIdle | lastMemberComes | lastMemberStays | lastMemberAway
)

func (k lastMember) String() string {
	return rules.Word(k, "ready", "runs no etcd", "coming", "not ready", "away")
}

const (
	savedAll     saving = 1 << iota // all revisions that the member's Lease reports, or backups are off
	savedBehind                     // not all yet
	savedFailing                    // backups fail, or the Pods do not reach the store
)

func (s saving) String() string {
	return rules.Word(s, "all", "not yet", "backup fails")
}

// pause is the decision about the last member of a cluster with replicas 0.
type pause uint8

const (
	pauseNone  pause = 1 << iota // the cluster is not to be paused, or not yet
	pauseWait                    // something else comes first, and comes by itself
	pauseHeld                    // something else comes first, which an operator may have to repair
	pauseDrain                   // no client is to be sent to the member any more; what it holds is being saved
	pauseStop                    // its Pod is to be deleted
	pauseEnds                    // its Pod is terminating
	pauseRest                    // the cluster is paused: no Pod is made

	anyPause = pauseWait | pauseHeld | pauseDrain | pauseStop | pauseEnds | pauseRest
)

func (p pause) String() string {
	return rules.Word(p, "Nothing", "Wait", "Held", "Drain", "Delete", "Wait", "Rest")
}

// pauseRows decide about the last member of a cluster with replicas 0. druid deletes its Pod and keeps its Lease, its
// claim and its name in the record, so that the same member returns with the same data. A missing Pod is not created
// again, no matter what deleted it: the claim has the data.
var pauseRows = rules.New(pauseNone, []rules.Row[pauseFacts, pause]{
	{Name: "not-requested", When: pauseFacts{asked: rules.No}, Verdict: pauseNone,
		Why: "the spec requests members"},
	{Name: "nothing-created", When: pauseFacts{asked: rules.Yes, record: RecordAbsent, names: lastMembersNone}, Verdict: pauseRest,
		Why: "the spec never requested a member, so there is nothing to create"},
	{Name: "not-formed", When: pauseFacts{asked: rules.Yes, record: anyRecord &^ RecordFormed}, Verdict: pauseNone,
		Why: "a bootstrap that has started finishes first, because only a formed cluster can be resumed"},
	{Name: "others-leave-first", When: pauseFacts{asked: rules.Yes, record: RecordFormed, names: lastMembersNone | lastMembersOther}, Verdict: pauseNone,
		Why: "the members are removed like in a scale-down, until one is left"},
	{Name: "other-members-remain", When: pauseFacts{asked: rules.Yes, record: RecordFormed, names: lastMembersOne, alone: aloneNo}, Verdict: pauseWait,
		Why: "the raft group has other members, which the leader's agent removes"},
	{Name: "paused", When: pauseFacts{asked: rules.Yes, record: RecordFormed, names: lastMembersOne, alone: aloneYes | aloneUnknown, pod: PodAbsent},
		Verdict: pauseRest,
		Why:     "the claim has the data, and the spec requests no Pod"},
	{Name: "pod-terminating", When: pauseFacts{asked: rules.Yes, record: RecordFormed, names: lastMembersOne, alone: aloneYes | aloneUnknown,
		pod: PodTerminating, lastMember: anyLastMember &^ lastMemberAway}, Verdict: pauseEnds,
		Why: "its kubelet ends the Pod"},
	{Name: "volume-lost-pod-ended", When: pauseFacts{asked: rules.Yes, record: RecordFormed, names: lastMembersOne, alone: aloneYes | aloneUnknown,
		pod: PodEnded, volume: rules.No}, Verdict: pauseHeld,
		Why: "its claim was deleted, and the data would be lost with the Pod"},
	{Name: "pod-not-ours", When: pauseFacts{asked: rules.Yes, record: RecordFormed, names: lastMembersOne, alone: aloneYes | aloneUnknown,
		pod: PodForeign | PodEnded}, Verdict: pauseWait,
		Why: "another rule deletes it, or reports it"},
	{Name: "last-member-unreachable", When: pauseFacts{asked: rules.Yes, record: RecordFormed, names: lastMembersOne, alone: aloneYes | aloneUnknown,
		pod: PodLive | PodTerminating, lastMember: lastMemberAway}, Verdict: pauseHeld,
		Why: "no kubelet would end the Pod, and a node that is only unreachable returns"},
	{Name: "after-slot", When: pauseFacts{asked: rules.Yes, record: RecordFormed, names: lastMembersOne, alone: aloneYes | aloneUnknown,
		slot: anySlot &^ slotFree}, Verdict: pauseWait,
		Why: "a member is being removed or replaced"},
	{Name: "volume-lost", When: pauseFacts{asked: rules.Yes, record: RecordFormed, names: lastMembersOne, alone: aloneYes | aloneUnknown,
		slot: slotFree, pod: PodUnstarted | PodLive, volume: rules.No}, Verdict: pauseHeld,
		Why: "its claim was deleted, and the data would be lost with the Pod"},
	{Name: "never-started", When: pauseFacts{asked: rules.Yes, record: RecordFormed, names: lastMembersOne, alone: aloneYes | aloneUnknown,
		slot: slotFree, pod: PodUnscheduled | PodUnstarted}, Verdict: pauseStop,
		Why: "nothing ever ran in the Pod, so the volume did not change"},
	{Name: "group-not-known", When: pauseFacts{asked: rules.Yes, record: RecordFormed, names: lastMembersOne, alone: aloneUnknown, slot: slotFree,
		pod: PodLive, volume: rules.Yes}, Verdict: pauseWait,
		Why: "the leader's agent publishes the list of members"},
	{Name: "last-member-not-ready", When: pauseFacts{asked: rules.Yes, record: RecordFormed, names: lastMembersOne, alone: aloneYes, slot: slotFree,
		pod: PodLive, volume: rules.Yes, lastMember: lastMemberStays}, Verdict: pauseHeld,
		Why: "it is not known whether its data is complete"},
	{Name: "last-member-starts", When: pauseFacts{asked: rules.Yes, record: RecordFormed, names: lastMembersOne, alone: aloneYes, slot: slotFree,
		pod: PodLive, volume: rules.Yes, lastMember: lastMemberComes}, Verdict: pauseWait,
		Why: "its etcd is about to be ready, or its state is not known"},
	{Name: "not-saved", When: pauseFacts{asked: rules.Yes, record: RecordFormed, names: lastMembersOne, alone: aloneYes, slot: slotFree,
		pod: PodLive, volume: rules.Yes, lastMember: lastMemberReady | lastMemberIdle, saved: savedFailing}, Verdict: pauseHeld,
		Why: "backups fail, and the member has the only good copy"},
	{Name: "idle-not-saved", When: pauseFacts{asked: rules.Yes, record: RecordFormed, names: lastMembersOne, alone: aloneYes, slot: slotFree,
		pod: PodLive, volume: rules.Yes, lastMember: lastMemberIdle, saved: savedBehind}, Verdict: pauseHeld,
		Why: "its last changes are not backed up"},
	{Name: "after-deadline", When: pauseFacts{asked: rules.Yes, record: RecordFormed, names: lastMembersOne, alone: aloneYes, slot: slotFree,
		pod: PodLive, volume: rules.Yes, lastMember: lastMemberReady | lastMemberIdle, saved: savedAll | savedBehind, late: rules.Yes}, Verdict: pauseHeld,
		Why: "the progress deadline has passed, and druid starts no further step"},
	{Name: "await-backup", When: pauseFacts{asked: rules.Yes, record: RecordFormed, names: lastMembersOne, alone: aloneYes, slot: slotFree,
		pod: PodLive, volume: rules.Yes, lastMember: lastMemberReady, saved: savedBehind, late: rules.No}, Verdict: pauseDrain,
		Why: "its agent backs up its data, and it gets no new clients"},
	{Name: "pause", When: pauseFacts{asked: rules.Yes, record: RecordFormed, names: lastMembersOne, alone: aloneYes, slot: slotFree, pod: PodLive,
		volume: rules.Yes, lastMember: lastMemberReady | lastMemberIdle, saved: savedAll, late: rules.No}, Verdict: pauseStop,
		Why: "its Pod is deleted and not created again"},
})

// pauseFacts is the complete input of pauseRows.
type pauseFacts struct {
	asked      rules.YesNo `fact:"replicas is 0"` // replicas is 0
	record     RecordState
	names      lastMembers
	alone      alone       `fact:"alone in the raft group"`
	slot       slot        `fact:"slots"`
	pod        PodState    `fact:"Pod"`
	volume     rules.YesNo `fact:"PVC stays"` // its claim is there, and stays
	lastMember lastMember  `fact:"etcd"`
	saved      saving
	late       rules.YesNo `fact:"deadline passed"` // the deadline of what the spec asks for has passed
}

// pauseState is the decision of the policy and the member that it is about.
type pauseState struct {
	pause pause
	rule  string
	// member that is left, empty where none was ever made.
	member Member
	// hindrance names what blocks it, for the user.
	hindrance string
}

// is reports whether the decision is one of these.
func (s pauseState) is(one pause) bool { return s.pause&one != 0 }

// holds reports whether m is the last member and the decision is one of these.
func (s pauseState) holds(m Member, one pause) bool { return s.is(one) && s.member.Name == m.Name }

func pauseStateOf(d Desired, o Observed, has evidence, saved backups) pauseState {
	f := pauseFacts{
		asked: rules.YesNoOf(d.Replicas == 0), record: o.RecordState, names: lastMembersOther, alone: aloneUnknown, slot: slotOf(o.Record),
		pod: PodAbsent, volume: rules.No, lastMember: lastMemberStays, saved: savedAll, late: rules.YesNoOf(d.Expired),
	}
	if f.asked == rules.No || d.Deleted {
		return pauseState{pause: pauseNone, rule: "not-requested"}
	}
	s := pauseState{}
	switch listed := o.listed(); {
	case len(listed) == 0 && has == evidenceNone:
		f.names = lastMembersNone
	case len(listed) == 1:
		m := listed[0]
		s.member = m
		f.names, f.alone, f.pod = lastMembersOne, aloneOf(m, o), m.Pod
		f.volume, f.lastMember, f.saved = rules.YesNoOf(m.Claim == ClaimPresent), lastMemberOf(m), savedOf(m, o, saved)
	}
	decision := pauseRows.Decide(f)
	s.pause, s.rule = decision.Verdict, decision.Rule
	if braked := overdueRolloutPause(rules.YesNoOf(d.Expired), s.pause); braked != s.pause {
		s.pause, s.rule = braked, "after-deadline"
	}
	if s.is(pauseHeld) {
		s.hindrance = holdingMessage(s.rule, s.member)
	}
	return s
}

func aloneOf(m Member, o Observed) alone {
	switch {
	case o.Record.MemberList == nil:
		return aloneUnknown
	case len(o.Record.MemberList.Members) == 1 && m.publishedVoter(o):
		return aloneYes
	default:
		return aloneNo
	}
}

func lastMemberOf(m Member) lastMember {
	switch ready, _ := m.steady(rules.No); {
	case m.NodeLost:
		return lastMemberAway
	case m.Idle:
		return lastMemberIdle
	case ready == removalAllowed:
		return lastMemberReady
	case ready == removalUnknown || m.comes():
		return lastMemberComes
	default:
		return lastMemberStays
	}
}

// savedOf compares the revisions in the Leases of the backups with that in the member's Lease. If the member reports
// no revision, its data does not count as saved.
func savedOf(m Member, o Observed, b backups) saving {
	switch {
	case b.reason == "":
		return savedAll
	case b.failing() || b.reason == v1alpha1.ReasonBackupStoreNotAttached || b.reason == v1alpha1.ReasonBackupClaimMissing:
		return savedFailing
	case m.Reports.Revision > 0 && max(o.Full.Reports.Revision, o.Delta.Reports.Revision) >= m.Reports.Revision:
		return savedAll
	default:
		return savedBehind
	}
}

// holdingMessage says why the last Pod is not deleted, and what a user can do.
func holdingMessage(rule string, m Member) string {
	switch rule {
	case "last-member-unreachable":
		return "it is on an unreachable node"
	case "volume-lost":
		return "its PersistentVolumeClaim was deleted, so its data would be lost with its Pod. Save the data, for example with an EtcdSnapshot"
	case "after-deadline":
		return "status.progressDeadline has passed. Change the spec to continue"
	case "not-saved":
		return "backups fail (see condition BackupReady), and its volume would have the only copy. Repair the backup, or remove spec.backup"
	case "idle-not-saved":
		return "no etcd runs in its Pod, and its last writes are not backed up. Set replicas to 1 to have it repaired, or remove spec.backup"
	default:
		_, why := m.steady(rules.No)
		return "it " + why + ". Set replicas to 1 to have it repaired"
	}
}

// step deletes the last Pod.
func (s pauseState) step(leaving map[string]bool, add func(Step)) {
	if !s.is(pauseStop) || leaving[s.member.Name] {
		return
	}
	leaving[s.member.Name] = true
	add(Step{Kind: DeletePod, Rule: s.rule, Stage: StageDelete, Member: s.member.Name, PodUID: s.member.PodUID})
}

// resting summarizes the state of a pause for the conditions.
type resting uint8

const (
	restingNone    resting = 1 << iota
	restingBegins          // the last member's Pod is about to go
	restingBlocked         // it is to, and something hinders it
	restingPaused          // there is none, or it ends
	restingResumes         // the spec requests members again, and none was ready since
)

func (r resting) String() string {
	return rules.Word(r, "none", "begins", "blocked", "paused", "resumes")
}

func (e Evaluation) resting() resting {
	switch s := e.pause; {
	case s.is(pauseRest | pauseEnds):
		return restingPaused
	case s.is(pauseHeld):
		return restingBlocked
	case s.is(pauseWait | pauseDrain | pauseStop):
		return restingBegins
	case e.PauseReported && e.Replicas > 0:
		return restingResumes
	default:
		return restingNone
	}
}

// Paused reports whether the cluster is paused: the last member has no Pod, and none is requested.
func Paused(d Desired, o Observed) bool {
	return pauseStateOf(d, o, evidenceOf(d, o), backupsOf(d, o)).is(pauseRest)
}

// Saving reports whether the last member waits for its backup before a pause. The progress of that backup changes
// Leases without an event that druid acts on.
func Saving(d Desired, o Observed) bool {
	return pauseStateOf(d, o, evidenceOf(d, o), backupsOf(d, o)).is(pauseDrain)
}

// pauseMessage reports a pause that begins, is blocked or is complete.
func pauseMessage(p messageContext) string {
	s := p.pause
	name := s.member.Name
	switch {
	case s.is(pauseRest|pauseEnds) && name == "":
		return "replicas is 0, and no member was ever created. Set replicas to 1 or more to start"
	case s.is(pauseRest | pauseEnds):
		return fmt.Sprintf("paused: PersistentVolumeClaim %s holds the data. Member %s returns with it when replicas is 1 or more", name, name)
	case s.is(pauseHeld):
		return fmt.Sprintf("replicas is 0, and the last member %s cannot be stopped: %s", name, s.hindrance)
	case s.is(pauseDrain):
		return fmt.Sprintf("replicas is 0: the data of the last member %s is backed up before its Pod is deleted", name)
	default:
		return fmt.Sprintf("replicas is 0: the Pod of the last member %s is being deleted, and PersistentVolumeClaim %s stays", name, name)
	}
}

// resumeWords names the member that is started again.
func resumeWords(p messageContext) string {
	for _, m := range p.listed {
		if m.Readable && m.Reports.Role != leases.RoleLearner && m.Reports.EverFormed() {
			return fmt.Sprintf("the cluster was paused, and member %s is restarted with its PersistentVolumeClaim", m.Name)
		}
	}
	return "the cluster was paused and is being restarted"
}

// PauseReportedBy reports whether, according to the conditions, the cluster is paused, or was paused and has had no
// quorum since.
func PauseReportedBy(conditions []metav1.Condition) bool {
	c := meta.FindStatusCondition(conditions, v1alpha1.ConditionReady)
	return c != nil && (c.Reason == v1alpha1.ReasonPaused || c.Reason == v1alpha1.ReasonResuming)
}
