package plan

import (
	"fmt"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
)

type (
	keepers uint8 // the names that are left of a cluster that is to be paused
	alone   uint8 // whether the raft group is the last member alone
	keeper  uint8 // the last member
	saving  uint8 // what the backups have of the last member
)

const (
	keepersNone  keepers = 1 << iota // no name, and nothing speaks of an earlier life
	keepersOne                       // one
	keepersOther                     // several, or none of a cluster that was there before

	anyKeepers = keepersNone | keepersOne | keepersOther
)

const (
	aloneYes     alone = 1 << iota // by the list that the leader's agent published
	aloneNo                        // that list has another one, or this one as a learner
	aloneUnknown                   // no list was published

	anyAlone = aloneYes | aloneNo | aloneUnknown
)

const (
	keeperReady keeper = 1 << iota // a ready voter, of which that is known
	keeperIdle                     // a kubelet that is heard of runs no etcd in its Pod
	keeperComes                    // not ready, or not known, and perhaps about to be
	keeperStays                    // not ready, and not about to be
	keeperAway                     // its node is not heard of

	anyKeeper = keeperReady | keeperIdle | keeperComes | keeperStays | keeperAway
)

const (
	savedAll     saving = 1 << iota // all that the member's Lease tells of, or nothing is to be backed up
	savedBehind                     // not all yet
	savedFailing                    // backups fail, or there are none yet and the Pods do not reach the store

	anySaved = savedAll | savedBehind | savedFailing
)

// pause is what becomes of the last member of a cluster that is asked to have none.
type pause uint8

const (
	pauseNone  pause = 1 << iota // the cluster is not to be paused, or not yet
	pauseWait                    // something else comes first, and comes by itself
	pauseHeld                    // something else comes first, which a person may have to mend
	pauseDrain                   // no client is to be sent to the member any more; what it holds is being saved
	pauseStop                    // its Pod is to be deleted
	pauseEnds                    // its Pod terminates
	pauseRest                    // the cluster is paused: no Pod is made

	anyPause = pauseWait | pauseHeld | pauseDrain | pauseStop | pauseEnds | pauseRest
)

// pauseRows decide about the last member of a cluster with replicas 0. Its Pod goes while its Lease, its claim and its name
// in the record stay, so that the same member comes back on the same data. A Pod that is not there stays away, whoever
// deleted it: the claim has what it held.
var pauseRows = []struct {
	name   string
	asked  rules.YesNo
	record RecordState
	names  keepers
	alone  alone
	slot   slot
	pod    PodState
	volume rules.YesNo
	keeper keeper
	saved  saving
	late   rules.YesNo
	pause  pause
	why    string
}{
	{"not-asked", rules.No, anyRecord, anyKeepers, anyAlone, anySlot, anyPod, anyAnswer, anyKeeper, anySaved, anyAnswer, pauseNone,
		"members are asked for"},
	{"nothing-made", rules.Yes, RecordAbsent, keepersNone, anyAlone, anySlot, anyPod, anyAnswer, anyKeeper, anySaved, anyAnswer, pauseRest,
		"no member was ever asked for, so there is nothing to make"},
	{"not-formed", rules.Yes, anyRecord &^ RecordFormed, anyKeepers, anyAlone, anySlot, anyPod, anyAnswer, anyKeeper, anySaved, anyAnswer, pauseNone,
		"what was begun is finished first: only a cluster that formed can be resumed"},
	{"others-leave-first", rules.Yes, RecordFormed, keepersNone | keepersOther, anyAlone, anySlot, anyPod, anyAnswer, anyKeeper, anySaved, anyAnswer, pauseNone,
		"the members leave by the way of every scale down, until one is left"},
	{"not-alone", rules.Yes, RecordFormed, keepersOne, aloneNo, anySlot, anyPod, anyAnswer, anyKeeper, anySaved, anyAnswer, pauseWait,
		"the raft group has others, which the leader's agent removes"},
	{"paused", rules.Yes, RecordFormed, keepersOne, aloneYes | aloneUnknown, anySlot, PodAbsent, anyAnswer, anyKeeper, anySaved, anyAnswer, pauseRest,
		"the claim has the data, and no Pod is asked for"},
	{"pod-ends", rules.Yes, RecordFormed, keepersOne, aloneYes | aloneUnknown, anySlot, PodTerminating, anyAnswer, anyKeeper &^ keeperAway, anySaved, anyAnswer, pauseEnds,
		"its kubelet ends it"},
	{"pod-not-ours", rules.Yes, RecordFormed, keepersOne, aloneYes | aloneUnknown, anySlot, PodForeign | PodEnded, anyAnswer, anyKeeper, anySaved, anyAnswer, pauseWait,
		"another rule deletes it, or tells of it"},
	{"keeper-away", rules.Yes, RecordFormed, keepersOne, aloneYes | aloneUnknown, anySlot, PodLive | PodTerminating, anyAnswer, keeperAway, anySaved, anyAnswer, pauseHeld,
		"nobody would end the Pod; and a node that is merely away comes back"},
	{"after-slot", rules.Yes, RecordFormed, keepersOne, aloneYes | aloneUnknown, anySlot &^ slotFree, anyPod, anyAnswer, anyKeeper, anySaved, anyAnswer, pauseWait,
		"a member leaves or replaces itself"},
	{"never-started", rules.Yes, RecordFormed, keepersOne, aloneYes | aloneUnknown, slotFree, PodUnscheduled | PodUnstarted, anyAnswer, anyKeeper, anySaved, anyAnswer, pauseStop,
		"nothing ever ran in it, so the volume is as it was"},
	{"volume-lost", rules.Yes, RecordFormed, keepersOne, aloneYes | aloneUnknown, slotFree, PodLive, rules.No, anyKeeper, anySaved, anyAnswer, pauseHeld,
		"its claim was deleted: the data would go with the Pod"},
	{"group-not-known", rules.Yes, RecordFormed, keepersOne, aloneUnknown, slotFree, PodLive, rules.Yes, anyKeeper, anySaved, anyAnswer, pauseWait,
		"the leader's agent publishes the list of members"},
	{"keeper-not-ready", rules.Yes, RecordFormed, keepersOne, aloneYes, slotFree, PodLive, rules.Yes, keeperStays, anySaved, anyAnswer, pauseHeld,
		"whether its data is whole is not known"},
	{"keeper-comes", rules.Yes, RecordFormed, keepersOne, aloneYes, slotFree, PodLive, rules.Yes, keeperComes, anySaved, anyAnswer, pauseWait,
		"its etcd is about to be ready, or not known to be"},
	{"not-saved", rules.Yes, RecordFormed, keepersOne, aloneYes, slotFree, PodLive, rules.Yes, keeperReady | keeperIdle, savedFailing, anyAnswer, pauseHeld,
		"the backup fails, and the member holds the only good copy"},
	{"idle-not-saved", rules.Yes, RecordFormed, keepersOne, aloneYes, slotFree, PodLive, rules.Yes, keeperIdle, savedBehind, anyAnswer, pauseHeld,
		"nobody saves what it held last"},
	{"after-deadline", rules.Yes, RecordFormed, keepersOne, aloneYes, slotFree, PodLive, rules.Yes, keeperReady | keeperIdle, savedAll | savedBehind, rules.Yes, pauseHeld,
		"the time for it is over: nothing of it is begun any more"},
	{"saved-soon", rules.Yes, RecordFormed, keepersOne, aloneYes, slotFree, PodLive, rules.Yes, keeperReady, savedBehind, rules.No, pauseDrain,
		"its agent saves what it holds, and new clients come no more"},
	{"pause", rules.Yes, RecordFormed, keepersOne, aloneYes, slotFree, PodLive, rules.Yes, keeperReady | keeperIdle, savedAll, rules.No, pauseStop,
		"its Pod is deleted and is not made again"},
}

// pauseFacts is all that the policy may look at.
type pauseFacts struct {
	asked  rules.YesNo // replicas is 0
	record RecordState
	names  keepers
	alone  alone
	slot   slot
	pod    PodState
	volume rules.YesNo // its claim is there, and stays
	keeper keeper
	saved  saving
	late   rules.YesNo // the deadline of what the spec asks for has passed
}

func judgePause(f pauseFacts) (pause, string) {
	for _, r := range pauseRows {
		if r.asked&f.asked != 0 && r.record&f.record != 0 && r.names&f.names != 0 && r.alone&f.alone != 0 && r.slot&f.slot != 0 &&
			r.pod&f.pod != 0 && r.volume&f.volume != 0 && r.keeper&f.keeper != 0 && r.saved&f.saved != 0 && r.late&f.late != 0 {
			return r.pause, r.name
		}
	}
	return pauseNone, "uncovered"
}

// standstill is what the policy says, and of whom.
type standstill struct {
	pause pause
	rule  string
	// member that is left, empty where none was ever made.
	member Member
	// hindrance names what blocks it, for a person.
	hindrance string
}

// is says whether the policy says one of these.
func (s standstill) is(one pause) bool { return s.pause&one != 0 }

// holds says whether m is the member that is left, and the policy one of these.
func (s standstill) holds(m Member, one pause) bool { return s.is(one) && s.member.Name == m.Name }

func standstillOf(d Desired, o Observed) standstill {
	f := pauseFacts{
		asked: rules.YesNoOf(d.Replicas == 0), record: o.RecordState, names: keepersOther, alone: aloneUnknown, slot: slotOf(o.Record),
		pod: PodAbsent, volume: rules.No, keeper: keeperStays, saved: savedAll, late: rules.YesNoOf(d.Expired),
	}
	if f.asked == rules.No || d.Deleted {
		return standstill{pause: pauseNone, rule: "not-asked"}
	}
	s := standstill{}
	switch listed := o.listed(); {
	case len(listed) == 0 && evidenceOf(d, o) == evidenceNone:
		f.names = keepersNone
	case len(listed) == 1:
		m := listed[0]
		s.member = m
		f.names, f.alone, f.pod = keepersOne, aloneOf(m, o), m.Pod
		f.volume, f.keeper, f.saved = rules.YesNoOf(m.Claim == ClaimPresent), keeperOf(m), savedOf(m, d, o)
	}
	s.pause, s.rule = judgePause(f)
	if braked := brakePause(rules.YesNoOf(d.Expired), s.pause); braked != s.pause {
		s.pause, s.rule = braked, "after-deadline"
	}
	if s.is(pauseHeld) {
		s.hindrance = holdingWords(s.rule, s.member)
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

func keeperOf(m Member) keeper {
	switch ready, _ := m.steady(rules.No); {
	case m.NodeLost:
		return keeperAway
	case m.Idle:
		return keeperIdle
	case ready == wayFree:
		return keeperReady
	case ready == wayUnknown || m.comes():
		return keeperComes
	default:
		return keeperStays
	}
}

// savedOf compares what the Leases of the backups say with what the member's Lease says. A revision that the member does not tell
// is not saved yet.
func savedOf(m Member, d Desired, o Observed) saving {
	if !d.Backup {
		return savedAll
	}
	_, reason, _ := judgeBackup(backupFactsOf(d, o))
	switch {
	case backupBlocks(d, o) || reason == v1alpha1.ReasonBackupStoreNotAttached:
		return savedFailing
	case m.Says.Revision > 0 && max(o.Full.Says.Revision, o.Delta.Says.Revision) >= m.Says.Revision:
		return savedAll
	default:
		return savedBehind
	}
}

// holdingWords say what keeps the last member's Pod, and what a person can do.
func holdingWords(rule string, m Member) string {
	switch rule {
	case "keeper-away":
		return "it is on a node that is not heard of"
	case "volume-lost":
		return "its PersistentVolumeClaim was deleted, and the data would go with its Pod; save it, for example with an EtcdSnapshot"
	case "after-deadline":
		return "the deadline of status.progressDeadline has passed; edit the spec to have it go on"
	case "not-saved":
		return "the backup fails, as condition BackupReady tells, and its volume would hold the only copy; mend it, or remove spec.backup"
	case "idle-not-saved":
		return "no etcd runs in its Pod, and what it held last is not backed up; set replicas to 1 to have it mended, or remove spec.backup"
	default:
		_, why := m.steady(rules.No)
		return "it " + why + "; set replicas to 1 to have it mended"
	}
}

// step deletes the last Pod.
func (s standstill) step(leaving map[string]bool, add func(Step)) {
	if !s.is(pauseStop) || leaving[s.member.Name] {
		return
	}
	leaving[s.member.Name] = true
	add(Step{Kind: DeletePod, Rule: s.rule, Stage: StageDelete, Member: s.member.Name, PodUID: s.member.PodUID, Irreversible: true})
}

// resting sums up for the conditions whether the cluster stands still.
type resting uint8

const (
	restingNone    resting = 1 << iota
	restingBegins          // the last member's Pod is about to go
	restingBlocked         // it is to, and something hinders it
	restingPaused          // there is none, or it ends
	restingResumes         // members are asked for again, and none was ready since

	anyResting = restingNone | restingBegins | restingBlocked | restingPaused | restingResumes
)

func restingOf(d Desired, o Observed) resting {
	switch s := standstillOf(d, o); {
	case s.is(pauseRest | pauseEnds):
		return restingPaused
	case s.is(pauseHeld):
		return restingBlocked
	case s.is(pauseWait | pauseDrain | pauseStop):
		return restingBegins
	case d.PauseTold && d.Replicas > 0:
		return restingResumes
	default:
		return restingNone
	}
}

// Paused says whether the cluster stands still: the last member has no Pod, and none is asked for.
func Paused(d Desired, o Observed) bool { return standstillOf(d, o).is(pauseRest) }

// Saving says whether the last member of a cluster that is to be paused waits for its backup. How far that is changes in Leases
// without an event that druid heeds.
func Saving(d Desired, o Observed) bool { return standstillOf(d, o).is(pauseDrain) }

// pauseWords tell of a pause that begins, is hindered or stands.
func pauseWords(p picture) string {
	s := standstillOf(p.Desired, p.Observed)
	name := s.member.Name
	switch {
	case s.is(pauseRest|pauseEnds) && name == "":
		return "no members are asked for, and none was ever made; set replicas to 1 or more to begin"
	case s.is(pauseRest | pauseEnds):
		return fmt.Sprintf("paused: PersistentVolumeClaim %s holds the data, and member %s comes back on it when replicas is 1 or more", name, name)
	case s.is(pauseHeld):
		return fmt.Sprintf("no members are asked for, and the last one, %s, cannot be stopped: %s", name, s.hindrance)
	case s.is(pauseDrain):
		return fmt.Sprintf("no members are asked for: what the last one, %s, holds is backed up before its Pod goes", name)
	default:
		return fmt.Sprintf("no members are asked for: the Pod of the last one, %s, goes, and PersistentVolumeClaim %s stays", name, name)
	}
}

// resumeWords tell who comes back.
func resumeWords(p picture) string {
	for _, m := range p.listed() {
		if m.Readable && m.Says.Role != leases.RoleLearner && m.Says.EverFormed() {
			return fmt.Sprintf("the cluster was paused, and member %s is started again on its PersistentVolumeClaim", m.Name)
		}
	}
	return "the cluster was paused, and is started again"
}
