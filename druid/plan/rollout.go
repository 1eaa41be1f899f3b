package plan

import (
	"cmp"
	"slices"

	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
)

type (
	shape  uint8 // of the member whose Pod is outdated
	others uint8 // the other members, as far as they let one go
	place  uint8 // of the member in the order in which Pods are replaced
)

const (
	shapeServes   shape = 1 << iota // a ready voter, of which that is known
	shapeSilent                     // its etcd serves, and its agent is not heard of
	shapeLearns                     // a learner that gets on
	shapeDown                       // its etcd is not ready
	shapeIdle                       // no etcd runs in the Pod
	shapeAway                       // its node is not heard of
	shapeNotKnown                   // it was not heard of yet

	anyShape = shapeServes | shapeSilent | shapeLearns | shapeDown | shapeIdle | shapeAway | shapeNotKnown
)

const (
	othersReady    others = 1 << iota // each is a ready voter, and was for some seconds
	othersComing                      // one is on its way to that, or not known
	othersNotReady                    // one is not, and does not get there by itself

	anyOthers = othersReady | othersComing | othersNotReady
)

const (
	placeFirst   place = 1 << iota
	placeLater         // another outdated Pod goes before it
	placeUnknown       // who leads is not known

	anyPlace = placeFirst | placeLater | placeUnknown
)

// rolloutRows decide about a Pod that is not what the spec asks for. One that serves goes only while all others do, so that
// never two are away by our own hand; followers first, the leader last: its agent moves leadership before etcd ends. A Pod
// that is down already may always be replaced by one of a corrected spec, else nothing would ever mend it.
var rolloutRows = []struct {
	name    string
	make    PodMake
	pod     PodState
	leaves  rules.YesNo
	shape   shape
	record  RecordState
	gate    gate
	turn    rules.YesNo
	spare   rules.YesNo
	others  others
	saved   rules.YesNo
	place   place
	room    Room
	verdict verdict
	why     string
}{
	{"volume-grows", MakeUnknown | MakeCurrent, anyPod, rules.No, anyShape, anyRecord, anyGate, anyAnswer, anyAnswer, anyOthers, anyAnswer, anyPlace, RoomGrows, wait,
		"the spec asks for a larger volume, and after that perhaps for another quota"},
	{"pod-current", MakeUnknown | MakeCurrent, anyPod, anyAnswer, anyShape, anyRecord, anyGate, anyAnswer, anyAnswer, anyOthers, anyAnswer, anyPlace, anyRoom, keep,
		"it is what the spec asks for, as far as is known"},
	{"pod-not-there", anyMake, anyPod &^ (PodUnscheduled | PodUnstarted | PodLive), anyAnswer, anyShape, anyRecord, anyGate, anyAnswer, anyAnswer, anyOthers, anyAnswer, anyPlace, anyRoom, keep,
		"the Pod that comes is what the spec asks for"},
	{"pod-untold", MakeUnmarked, anyPod, anyAnswer, anyShape, anyRecord, anyGate, anyAnswer, anyAnswer, anyOthers, anyAnswer, anyPlace, anyRoom, mark,
		"it is taken for what the spec asks for: what is not known replaces nothing"},
	{"pod-leaves", MakeOutdated, anyPod, rules.Yes, anyShape, anyRecord, anyGate, anyAnswer, anyAnswer, anyOthers, anyAnswer, anyPlace, anyRoom, keep,
		"its member is on its way out, or the cluster is to be paused"},
	{"outdated-version-refused", MakeOutdated, anyPod, rules.No, anyShape, anyRecord, gateRefused, anyAnswer, anyAnswer, anyOthers, anyAnswer, anyPlace, anyRoom, held,
		"etcd cannot go there from what a member runs"},
	{"outdated-idle-unsaved", MakeOutdated, anyPod, rules.No, shapeIdle | shapeDown, RecordFormed, gateWaits, anyAnswer, anyAnswer, anyOthers, anyAnswer, anyPlace, anyRoom, wait,
		"no etcd of another version starts on its data before there is a backup, and one of another minor not before the members were compared"},
	{"outdated-idle-not-saved", MakeOutdated, anyPod, rules.No, shapeIdle | shapeDown, RecordFormed, gateClosed, anyAnswer, anyAnswer, anyOthers, anyAnswer, anyPlace, anyRoom, held,
		"there is no backup, or the members differ"},
	{"outdated-idle", MakeOutdated, anyPod, rules.No, shapeIdle, usableRecord, anyGate, anyAnswer, anyAnswer, anyOthers, anyAnswer, anyPlace, anyRoom, remove,
		"no etcd runs in it, so nothing is lost"},
	{"outdated-before-formed", MakeOutdated, anyPod, rules.No, anyShape, anyRecord &^ RecordFormed, anyGate, anyAnswer, anyAnswer, anyOthers, anyAnswer, anyPlace, anyRoom, wait,
		"the raft group is not there yet"},
	{"outdated-away", MakeOutdated, anyPod, rules.No, shapeAway, RecordFormed, anyGate, anyAnswer, anyAnswer, anyOthers, anyAnswer, anyPlace, anyRoom, held,
		"nobody would end the Pod; and a node that is merely away comes back"},
	{"outdated-in-turn", MakeOutdated, anyPod, rules.No, anyShape, RecordFormed, anyGate, rules.No, anyAnswer, anyOthers, anyAnswer, anyPlace, anyRoom, wait,
		"another member replaces itself, leaves or heals"},
	{"outdated-catches-up", MakeOutdated, anyPod, rules.No, shapeLearns | shapeNotKnown, RecordFormed, anyGate, rules.Yes, anyAnswer, anyOthers, anyAnswer, anyPlace, anyRoom, wait,
		"it becomes a voter, or is not known yet"},
	{"outdated-down", MakeOutdated, anyPod, rules.No, shapeDown, RecordFormed, anyGate, rules.Yes, rules.Yes, anyOthers, anyAnswer, anyPlace, anyRoom, remove,
		"it is the one that is down anyhow, and the others are a healthy quorum"},
	{"outdated-down-held", MakeOutdated, anyPod, rules.No, shapeDown, RecordFormed, anyGate, rules.Yes, rules.No, anyOthers, anyAnswer, anyPlace, anyRoom, held,
		"the others are no healthy quorum without it"},
	{"outdated-volume-grows", MakeOutdated, anyPod, rules.No, shapeServes | shapeSilent, RecordFormed, anyGate, rules.Yes, anyAnswer, anyOthers, anyAnswer, anyPlace, RoomGrows, wait,
		"the quota of a new Pod is by what the volume holds: one restart is enough"},
	{"outdated-after-others", MakeOutdated, anyPod, rules.No, shapeServes | shapeSilent, RecordFormed, anyGate, rules.Yes, anyAnswer, othersNotReady, anyAnswer, anyPlace, anyRoom, held,
		"another member is not ready: never a second one"},
	{"outdated-others-come", MakeOutdated, anyPod, rules.No, shapeServes | shapeSilent, RecordFormed, anyGate, rules.Yes, anyAnswer, othersComing, anyAnswer, anyPlace, anyRoom, wait,
		"another member is about to be ready"},
	{"outdated-before-check", MakeOutdated, anyPod, rules.No, shapeServes | shapeSilent, RecordFormed, gateWaits, rules.Yes, anyAnswer, othersReady, anyAnswer, anyPlace, anyRoom, wait,
		"a change of version waits for a backup, or for the members to be compared"},
	{"outdated-after-check", MakeOutdated, anyPod, rules.No, shapeServes | shapeSilent, RecordFormed, gateClosed, rules.Yes, anyAnswer, othersReady, anyAnswer, anyPlace, anyRoom, held,
		"there is no backup, or the members differ"},
	{"outdated-silent", MakeOutdated, anyPod, rules.No, shapeSilent, RecordFormed, anyGate, rules.Yes, anyAnswer, othersReady, anyAnswer, anyPlace, anyRoom, remove,
		"only a new Pod brings another agent, and the others are all ready"},
	{"outdated-after-backup", MakeOutdated, anyPod, rules.No, shapeServes, RecordFormed, anyGate, rules.Yes, anyAnswer, othersReady, rules.No, anyPlace, anyRoom, held,
		"the backup fails, and the members hold the only good copy"},
	{"outdated-later", MakeOutdated, anyPod, rules.No, shapeServes, RecordFormed, anyGate, rules.Yes, anyAnswer, othersReady, rules.Yes, placeLater | placeUnknown, anyRoom, wait,
		"followers go first, the leader last"},
	{"outdated", MakeOutdated, anyPod, rules.No, shapeServes, RecordFormed, anyGate, rules.Yes, anyAnswer, othersReady, rules.Yes, placeFirst, anyRoom, remove,
		"the Pod is deleted and comes back with its volume"},
}

// rolloutFacts is all that the policy may look at.
type rolloutFacts struct {
	make   PodMake
	pod    PodState
	leaves rules.YesNo
	shape  shape
	record RecordState
	gate   gate        // what a change of etcd's version lets become of it
	turn   rules.YesNo // no other member replaces itself, leaves or heals
	spare  rules.YesNo // the others are a healthy quorum, or there are none
	others others
	saved  rules.YesNo // backups do not fail, or it is this Pod without which they cannot be made
	place  place
	room   Room
}

func judgeRollout(f rolloutFacts) (verdict, string) {
	for _, r := range rolloutRows {
		if r.make&f.make != 0 && r.pod&f.pod != 0 && r.leaves&f.leaves != 0 && r.shape&f.shape != 0 && r.record&f.record != 0 &&
			r.gate&f.gate != 0 && r.turn&f.turn != 0 && r.spare&f.spare != 0 && r.others&f.others != 0 && r.saved&f.saved != 0 && r.place&f.place != 0 && r.room&f.room != 0 {
			return r.verdict, r.name
		}
	}
	return wait, "uncovered"
}

func rolloutFactsOf(m Member, d Desired, o Observed, listed []Member, u upgrade) rolloutFacts {
	f := rolloutFacts{
		make: m.Make, pod: m.Pod,
		leaves: rules.YesNoOf(retreatOf(d, o).leaving(m) || standstillOf(d, o).holds(m, anyPause)),
		shape:  shapeOf(m, o),
		record: o.RecordState,
		gate:   u.gateFor(m, d, o),
		turn:   turnOf(m, o, listed),
		spare:  rules.YesNoOf(len(listed) == 1 && !m.volatile() || spared(m, o, listed) == rules.Yes),
		saved:  rules.YesNoOf(!backupBlocks(d, o) || slices.Contains(o.Unattached, m.Name)),
		place: placeOf(m, listed, func(other Member) bool {
			// One that a change of version holds goes before no other.
			return other.Make == MakeOutdated && u.gateFor(other, d, o) == gateOpen
		}),
		room: m.Room,
	}
	if m.Room == 0 {
		f.room = RoomUnknown
	}
	if m.Make == 0 {
		f.make = MakeUnknown
	}
	f.others, _ = othersOf(m, o, listed)
	return f
}

func shapeOf(m Member, o Observed) shape {
	ready, _ := m.steady(rules.No)
	switch {
	case m.NodeLost:
		return shapeAway
	case m.Idle && m.volatile() && o.RecordState == RecordFormed && !m.outside():
		return shapeDown // what it holds in memory would go with the Pod
	case m.Idle || m.Pod&(PodUnscheduled|PodUnstarted) != 0:
		return shapeIdle
	case m.learns() && m.Liveness == leases.Live:
		return shapeLearns
	case !m.up():
		return shapeDown
	case ready == wayFree:
		return shapeServes
	case ready == wayUnknown:
		return shapeNotKnown
	default:
		return shapeSilent
	}
}

// othersOf says whether the other members let m go, and else which one does not and why. One that nobody asked for counts in the
// quorum, and nothing is known of it: the leader's agent removes it first.
func othersOf(m Member, o Observed, listed []Member) (others, string) {
	found, why := othersReady, ""
	if m.volatile() && spared(m, o, listed) == rules.No {
		return othersNotReady, "member " + m.Name + " stores in memory, which would be lost with its Pod, and the others are no quorum without it"
	}
	if words := crowded(o.Record, len(listed)); words != "" {
		found, why = othersComing, words
	}
	for _, other := range listed {
		if other.Name == m.Name {
			continue
		}
		ready, words := other.steady(spared(other, o, listed))
		words = "member " + other.Name + " " + words
		switch {
		case ready == wayBlocked && !other.comes():
			return othersNotReady, words
		case ready != wayFree:
			found, why = othersComing, words
		case !other.Settled && found == othersReady:
			found, why = othersComing, "member "+other.Name+" has just become ready"
		}
	}
	return found, why
}

// comes says whether a member that is not a ready voter may become one by itself. One whose Pod is outdated does not: it is
// mended by another Pod.
func (m Member) comes() bool {
	if m.learns() && m.Liveness == leases.Live {
		return true
	}
	silent := m.up() && m.Expired
	return m.Lease == LeaseOurs && m.Readable && m.Make != MakeOutdated && m.Arrival != ArrivalLate && !m.Stuck && !m.Blocked && !m.NodeLost && !silent
}

// placeOf: of several that are outdated the followers go by name, and the leader last.
func placeOf(m Member, listed []Member, isOutdated func(Member) bool) place {
	outdated := slices.DeleteFunc(slices.Clone(listed), func(other Member) bool { return !isOutdated(other) })
	before := func(a, b Member) int {
		switch {
		case a.leads() == b.leads():
			return cmp.Compare(a.Name, b.Name)
		case b.leads():
			return -1
		default:
			return 1
		}
	}
	switch {
	case len(listed) > 1 && !slices.ContainsFunc(listed, Member.leads):
		return placeUnknown
	case len(outdated) > 0 && slices.MinFunc(outdated, before).Name != m.Name:
		return placeLater
	default:
		return placeFirst
	}
}
