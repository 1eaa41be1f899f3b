package policy

import (
	"cmp"
	"slices"

	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
)

type (
	podHealth uint8 // of the member whose Pod is outdated
	others    uint8 // the other members, as far as they let one go
	place     uint8 // of the member in the order in which Pods are replaced
)

const (
	podHealthServes   podHealth = 1 << iota // a ready voter, of which that is known
	podHealthSilent                         // its etcd serves, and its agent is not renewing its Lease
	podHealthLearns                         // a learner that gets on
	podHealthDown                           // its etcd is not ready
	podHealthIdle                           // no etcd runs in the Pod
	podHealthAway                           // its node is unreachable
	podHealthNotKnown                       // it has not renewed its Lease yet
)

func (s podHealth) String() string {
	return rules.Word(s, "serves", "serves, agent silent", "is a learner", "is down", "runs no etcd", "node unreachable", "not known yet")
}

const (
	othersReady    others = 1 << iota // each is a ready voter, and was for some seconds
	othersComing                      // one is on its way to that, or not known
	othersNotReady                    // one is not, and does not get there by itself
)

func (o others) String() string {
	return rules.Word(o, "ready", "coming", "not ready")
}

const (
	placeFirst   place = 1 << iota
	placeLater         // another outdated Pod goes before it
	placeUnknown       // who leads is not known
)

func (p place) String() string {
	return rules.Word(p, "first", "later", "leader not known")
}

// rolloutRows decide about a Pod that differs from the spec. druid replaces a Pod that serves only while all others
// serve, so that it never takes down two members. Followers come first and the leader last, because its agent moves
// leadership before etcd ends. druid can always replace a Pod that is down with a Pod of a corrected spec.
var rolloutRows = rules.New(wait, []rules.Row[rolloutFacts, verdict]{
	{Name: "volume-grows", When: rolloutFacts{make: MakeUnknown | MakeCurrent, leaves: rules.No, room: RoomGrows}, Verdict: wait,
		Why: "the spec requests a larger volume, and then possibly another quota"},
	{Name: "pod-current", When: rolloutFacts{make: MakeUnknown | MakeCurrent}, Verdict: keep,
		Why: "it matches the spec, as far as druid knows"},
	{Name: "pod-absent", When: rolloutFacts{pod: anyPod &^ (PodUnscheduled | PodUnstarted | PodLive)}, Verdict: keep,
		Why: "the new Pod matches the spec"},
	{Name: "pod-not-reported", When: rolloutFacts{make: MakeUnmarked}, Verdict: mark,
		Why: "it is assumed to match the spec: druid replaces nothing because of missing information"},
	{Name: "pod-leaves", When: rolloutFacts{make: MakeOutdated, leaves: rules.Yes}, Verdict: keep,
		Why: "its member is being removed, or the cluster is being paused"},
	{Name: "outdated-version-refused", When: rolloutFacts{make: MakeOutdated, leaves: rules.No, gate: gateRefused}, Verdict: held,
		Why: "etcd does not support the step from the version that a member runs"},
	{Name: "outdated-idle-unsaved", When: rolloutFacts{make: MakeOutdated, leaves: rules.No, podHealth: podHealthIdle | podHealthDown,
		record: RecordFormed, gate: gateWaits},
		Verdict: wait,
		Why:     "no etcd of another version starts with its data before a backup exists, and none of another minor version before the members are compared"},
	{Name: "outdated-idle-not-saved", When: rolloutFacts{make: MakeOutdated, leaves: rules.No, podHealth: podHealthIdle | podHealthDown,
		record: RecordFormed, gate: gateClosed},
		Verdict: held,
		Why:     "there is no backup, or the members differ"},
	{Name: "outdated-idle", When: rolloutFacts{make: MakeOutdated, leaves: rules.No, podHealth: podHealthIdle, record: usableRecord}, Verdict: remove,
		Why: "no etcd runs in it, so nothing is lost"},
	{Name: "outdated-before-formed", When: rolloutFacts{make: MakeOutdated, leaves: rules.No, record: anyRecord &^ RecordFormed}, Verdict: wait,
		Why: "the raft group does not exist yet"},
	{Name: "outdated-unreachable", When: rolloutFacts{make: MakeOutdated, leaves: rules.No, podHealth: podHealthAway, record: RecordFormed}, Verdict: held,
		Why: "no kubelet would end the Pod, and a node that is only unreachable returns"},
	{Name: "outdated-in-turn", When: rolloutFacts{make: MakeOutdated, leaves: rules.No, record: RecordFormed, turn: rules.No}, Verdict: wait,
		Why: "another member is being replaced, removed or repaired, or the data of members differs"},
	{Name: "outdated-catches-up", When: rolloutFacts{make: MakeOutdated, leaves: rules.No, podHealth: podHealthLearns | podHealthNotKnown,
		record: RecordFormed, turn: rules.Yes},
		Verdict: wait,
		Why:     "the learner becomes a voter, or its state is not known yet"},
	{Name: "outdated-down", When: rolloutFacts{make: MakeOutdated, leaves: rules.No, podHealth: podHealthDown, record: RecordFormed,
		turn: rules.Yes, spare: rules.Yes},
		Verdict: remove,
		Why:     "this member is down already, and the others are a healthy quorum"},
	{Name: "outdated-down-held", When: rolloutFacts{make: MakeOutdated, leaves: rules.No, podHealth: podHealthDown, record: RecordFormed,
		turn: rules.Yes, spare: rules.No},
		Verdict: held,
		Why:     "the others are not a healthy quorum without it"},
	{Name: "outdated-volume-grows", When: rolloutFacts{make: MakeOutdated, leaves: rules.No, podHealth: podHealthServes | podHealthSilent,
		record: RecordFormed, turn: rules.Yes, room: RoomGrows},
		Verdict: wait,
		Why:     "the quota of a new Pod depends on the size of the volume, so one restart is enough"},
	{Name: "outdated-before-expiry", When: rolloutFacts{make: MakeOutdated, leaves: rules.No, podHealth: podHealthServes | podHealthSilent, record: RecordFormed,
		gate: gateOpen, turn: rules.Yes, spare: rules.Yes, others: othersNotReady, saved: rules.Yes, place: placeFirst, expires: rules.Yes},
		Verdict: remove,
		Why:     "all members are cut off when their certificates end, and the others are a healthy quorum"},
	{Name: "outdated-after-others", When: rolloutFacts{make: MakeOutdated, leaves: rules.No, podHealth: podHealthServes | podHealthSilent,
		record: RecordFormed, turn: rules.Yes, others: othersNotReady},
		Verdict: held,
		Why:     "another member is not ready, and druid never takes down a second one"},
	{Name: "outdated-others-starting", When: rolloutFacts{make: MakeOutdated, leaves: rules.No, podHealth: podHealthServes | podHealthSilent,
		record: RecordFormed, turn: rules.Yes, others: othersComing},
		Verdict: wait,
		Why:     "another member is about to be ready"},
	{Name: "outdated-before-check", When: rolloutFacts{make: MakeOutdated, leaves: rules.No, podHealth: podHealthServes | podHealthSilent,
		record: RecordFormed, gate: gateWaits, turn: rules.Yes, others: othersReady},
		Verdict: wait,
		Why:     "a change of version waits for a backup or for the comparison of the members"},
	{Name: "outdated-after-check", When: rolloutFacts{make: MakeOutdated, leaves: rules.No, podHealth: podHealthServes | podHealthSilent,
		record: RecordFormed, gate: gateClosed, turn: rules.Yes, others: othersReady},
		Verdict: held,
		Why:     "there is no backup, or the members differ"},
	{Name: "outdated-silent", When: rolloutFacts{make: MakeOutdated, leaves: rules.No, podHealth: podHealthSilent, record: RecordFormed,
		turn: rules.Yes, others: othersReady},
		Verdict: remove,
		Why:     "only a new Pod can replace the agent, and all others are ready"},
	{Name: "outdated-after-backup", When: rolloutFacts{make: MakeOutdated, leaves: rules.No, podHealth: podHealthServes, record: RecordFormed,
		turn: rules.Yes, others: othersReady, saved: rules.No},
		Verdict: held,
		Why:     "backups fail, and the members have the only good copy"},
	{Name: "outdated-later", When: rolloutFacts{make: MakeOutdated, leaves: rules.No, podHealth: podHealthServes, record: RecordFormed,
		turn: rules.Yes, others: othersReady, saved: rules.Yes, place: placeLater | placeUnknown},
		Verdict: wait,
		Why:     "followers go first, the leader last"},
	{Name: "outdated", When: rolloutFacts{make: MakeOutdated, leaves: rules.No, podHealth: podHealthServes, record: RecordFormed, turn: rules.Yes,
		others: othersReady, saved: rules.Yes, place: placeFirst},
		Verdict: remove,
		Why:     "the Pod is deleted and created again with its volume"},
})

// rolloutFacts is the complete input of rolloutRows.
type rolloutFacts struct {
	make      PodMake  `fact:"Pod is"`
	pod       PodState `fact:"Pod"`
	leaves    rules.YesNo
	podHealth podHealth `fact:"member"`
	record    RecordState
	gate      gate        `fact:"a change of version"`     // what a change of etcd's version lets become of it
	turn      rules.YesNo `fact:"its turn"`                // no other member replaces itself, leaves or heals, and no data is known to differ
	spare     rules.YesNo `fact:"the others are a quorum"` // the others are a healthy quorum, or there are none
	others    others      `fact:"the others"`
	saved     rules.YesNo `fact:"backups allow it"` // backups do not fail, or spec.backup.whenFailing is Continue, or without another Pod they cannot be made
	place     place
	room      Room        `fact:"volume"`
	expires   rules.YesNo `fact:"its authorities end soon"` // and it is outdated because it runs with them
}

func rolloutFactsOf(m Member, e Evaluation) rolloutFacts {
	d, o, listed, u := e.Desired, e.Observed, e.listed, e.upgrade
	f := rolloutFacts{
		make: m.Make, pod: m.Pod,
		leaves:    rules.YesNoOf(e.scaleDown.leaving(m) || e.pause.holds(m, anyPause)),
		podHealth: podHealthOf(m, o),
		record:    o.RecordState,
		gate:      u.gateFor(m, d, o),
		turn:      rules.YesNoOf(turnOf(m, o, listed) == rules.Yes && !o.undecided() && countDiffering(listed) == 0),
		spare:     rules.YesNoOf(len(listed) == 1 && !m.volatile() || spared(m, o, listed) == rules.Yes),
		saved:     rules.YesNoOf(!e.backups.block(actionReplacePod) || slices.Contains(o.Unattached, m.Name)),
		place: placeOf(m, listed, func(other Member) bool {
			// A Pod that a change of version blocks is not ahead of any other.
			return other.Make == MakeOutdated && u.gateFor(other, d, o) == gateOpen
		}),
		room: m.Room,
		expires: rules.YesNoOf(slices.ContainsFunc(o.Certificates, func(c Certificates) bool {
			return c.Urgent == rules.Yes && c.Outruns(m)
		})),
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

func podHealthOf(m Member, o Observed) podHealth {
	ready, _ := m.steady(rules.No)
	switch {
	case m.NodeLost:
		return podHealthAway
	case m.Idle && m.volatile() && o.RecordState == RecordFormed && !m.outside():
		return podHealthDown // what it stores in its Pod would go with it
	case m.Idle || m.Pod&(PodUnscheduled|PodUnstarted) != 0:
		return podHealthIdle
	case m.learns() && m.Liveness == leases.Live:
		return podHealthLearns
	case !m.up():
		return podHealthDown
	case ready == removalAllowed:
		return podHealthServes
	case ready == removalUnknown:
		return podHealthNotKnown
	default:
		return podHealthSilent
	}
}

// othersOf says whether the other members allow the replacement of m, and otherwise which member does not and why. A
// superfluous member counts in the quorum although druid knows nothing about it; the leader's agent removes it first.
func othersOf(m Member, o Observed, listed []Member) (others, string) {
	found, why := othersReady, ""
	if m.volatile() && spared(m, o, listed) == rules.No {
		return othersNotReady, "member " + m.Name + " stores its data in its Pod, and the others are not a quorum without it"
	}
	if words := overThreshold(o.Record, len(listed)); words != "" {
		found, why = othersComing, words
	}
	for _, other := range listed {
		if other.Name == m.Name {
			continue
		}
		ready, words := other.steady(spared(other, o, listed))
		words = "member " + other.Name + " " + words
		switch {
		case ready == removalBlocked && !other.comes():
			return othersNotReady, words
		case ready != removalAllowed:
			found, why = othersComing, words
		case !other.Stable && found == othersReady:
			found, why = othersComing, "member "+other.Name+" has just become ready"
		}
	}
	return found, why
}

// comes says whether a member that is not a ready voter can become one by itself. A member with an outdated Pod
// cannot: it needs another Pod.
func (m Member) comes() bool {
	if m.learns() && m.Liveness == leases.Live {
		return true
	}
	silent := m.up() && m.Expired
	return m.Lease == LeaseOurs && m.Readable && m.Make != MakeOutdated && m.Arrival != ArrivalLate && !m.Stuck && !m.Blocked && !m.NodeLost && !silent
}

// placeOf orders outdated members: the followers by name, and the leader last.
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
