package plan

import "github.com/etcd-druid/druid/internal/rules"

// verdict on one object of a member.
type verdict uint8

const (
	// keep: it is as it should be, or nothing can be done about it.
	keep verdict = 1 << iota
	// wait: something else has to happen first, and an event will tell.
	wait
	// conflict: the name is taken by an object that is not ours.
	conflict
	// held: what would mend the member would cost the cluster its quorum.
	held
	create
	remove
	mark
	// change what runs in the Pod.
	change
)

// leaseRows: a listed name without Lease gets it back.
var leaseRows = []struct {
	name    string
	lease   LeaseState
	verdict verdict
}{
	{"lease-conflict", LeaseForeign, conflict},
	{"lease-missing", LeaseAbsent, create},
	{"lease-there", LeaseOurs, keep},
}

// claimRows: a claim is made only while no Pod could run on the volume of the one before it. The claim of a paused cluster held
// the only copy of its data: another one would be empty.
var claimRows = []struct {
	name    string
	claim   ClaimState
	lease   LeaseState
	pod     PodState
	paused  rules.YesNo
	verdict verdict
}{
	{"claim-unwanted", ClaimUnwanted, anyLease, anyPod, anyAnswer, keep},
	{"claim-conflict", ClaimForeign, anyLease, anyPod, anyAnswer, conflict},
	{"claim-after-lease-conflict", ClaimAbsent, LeaseForeign, anyPod, anyAnswer, wait},
	{"claim-of-paused-cluster-lost", ClaimAbsent, anyLease, anyPod, rules.Yes, held},
	{"claim-missing", ClaimAbsent, anyLease, PodAbsent | PodUnscheduled, rules.No, create},
	{"claim-after-pod", ClaimAbsent, anyLease, anyPod, rules.No, wait},
	{"claim-terminating", ClaimTerminating, anyLease, anyPod, anyAnswer, wait},
	{"claim-there", ClaimPresent, anyLease, anyPod, anyAnswer, keep},
}

// podRows: a lost Pod comes back at once. A Pod whose claim is gone or going is deleted so that the member can heal on a
// new volume, but never one without which the others are fewer than a quorum:
// it stays, and its Lease names it, so that its agent may go on with its duties.
var podRows = []struct {
	name    string
	pod     PodState
	claim   ClaimState
	lease   LeaseState
	spare   rules.YesNo
	marked  rules.YesNo
	paused  rules.YesNo
	verdict verdict
}{
	{"pod-conflict", PodForeign, anyClaim, anyLease, anyAnswer, anyAnswer, anyAnswer, conflict},
	{"pod-terminating", PodTerminating, anyClaim, anyLease, anyAnswer, anyAnswer, anyAnswer, wait},
	{"pod-ended", PodEnded, anyClaim, anyLease, anyAnswer, anyAnswer, anyAnswer, remove},
	{"pod-after-conflict", PodAbsent, ClaimForeign, anyLease, anyAnswer, anyAnswer, anyAnswer, wait},
	{"pod-after-lease-conflict", PodAbsent, anyClaim, LeaseForeign, anyAnswer, anyAnswer, anyAnswer, wait},
	{"pod-after-claim", PodAbsent, ClaimTerminating, anyLease, anyAnswer, anyAnswer, anyAnswer, wait},
	{"pod-paused", PodAbsent, anyClaim, anyLease, anyAnswer, anyAnswer, rules.Yes, keep},
	{"pod-missing", PodAbsent, anyClaim, anyLease, anyAnswer, anyAnswer, rules.No, create},
	{"pod-of-lost-claim", PodUnstarted, ClaimAbsent | ClaimTerminating, anyLease, anyAnswer, anyAnswer, anyAnswer, remove},
	{"volume-lost", PodLive, ClaimAbsent | ClaimTerminating, anyLease, rules.Yes, anyAnswer, anyAnswer, remove},
	{"volume-lost-unmarked", PodLive, ClaimTerminating, LeaseOurs, rules.No, rules.No, anyAnswer, mark},
	{"volume-lost-held", PodLive, ClaimAbsent | ClaimTerminating, anyLease, rules.No, anyAnswer, anyAnswer, held},
	{"pod-unmarked", PodUnscheduled | PodUnstarted | PodLive, ClaimPresent | ClaimUnwanted, LeaseOurs, anyAnswer, rules.No, anyAnswer, mark},
	{"pod-there", PodUnscheduled | PodUnstarted | PodLive, anyClaim, anyLease, anyAnswer, anyAnswer, anyAnswer, keep},
}

// memberFacts is all that the three policies may look at.
type memberFacts struct {
	lease LeaseState
	claim ClaimState
	pod   PodState
	// spare: the other members hold a quorum without this one, or there never was one; and no other goes before it, leaves or
	// replaces itself.
	spare rules.YesNo
	// marked: the Lease names the Pod's and the claim's UID.
	marked rules.YesNo
	// paused: the member is the last one of a paused cluster.
	paused rules.YesNo
}

func memberFactsOf(m Member, d Desired, o Observed, listed []Member) memberFacts {
	others, turn := serving(m, listed), o.slotsFreeFor(m)
	for _, other := range listed {
		turn = turn && (other.Name == m.Name || !(other.lostVolume() && before(other, m)))
	}
	return memberFacts{
		lease:  m.Lease,
		claim:  m.Claim,
		pod:    m.Pod,
		spare:  rules.YesNoOf(turn && (o.RecordState == RecordForming || others >= quorum(votersOf(o, listed)))),
		marked: rules.YesNoOf(m.Readable && m.Says.PodUID == m.PodUID && m.Says.VolumeUID == m.ClaimUID),
		paused: rules.YesNoOf(standstillOf(d, o).holds(m, pauseRest)),
	}
}

// votersOf is how many voters the raft group may have: the members that the leader published, or that bear the mark of
// one, whichever are more. A learner counts, for it may have been promoted since. A name that was added and did not join yet
// does not: etcd lets nobody join while a voter of three is down, so a voter that lost its volume cannot wait for joiners.
// Where no list was published all names count, and all who were in a group that was joined.
func votersOf(o Observed, listed []Member) int {
	if o.Record.MemberList == nil {
		return len(listed) + len(o.Record.Guests)
	}
	known := 0
	for _, m := range listed {
		if m.votes() || m.Readable && m.Says.EverFormed() {
			known++
		}
	}
	return max(len(o.Record.MemberList.Members), known)
}

// slotsFreeFor says whether no other member is on its way out or replaces itself: its vote still counts among those that
// serve, and is about to go.
func (o Observed) slotsFreeFor(m Member) bool {
	holder := ""
	switch slotOf(o.Record) {
	case slotTaken:
		holder = o.Record.Retiring.Member
	case slotReplacing:
		holder = o.Record.Replacing.Member
	default:
	}
	return holder == "" || holder == m.Name
}

// lostVolume says whether a Pod runs on a volume whose claim is gone or going.
func (m Member) lostVolume() bool {
	return m.Pod == PodLive && m.Claim&(ClaimAbsent|ClaimTerminating) != 0
}

// before orders members that lost their volumes: one at a time is replaced, first one that serves nobody anyway.
func before(a, b Member) bool {
	if a.up() != b.up() {
		return !a.up()
	}
	return a.Name < b.Name
}

func judgeLease(f memberFacts) (verdict, string) {
	for _, r := range leaseRows {
		if r.lease&f.lease != 0 {
			return r.verdict, r.name
		}
	}
	return wait, "uncovered"
}

func judgeClaim(f memberFacts) (verdict, string) {
	for _, r := range claimRows {
		if r.claim&f.claim != 0 && r.lease&f.lease != 0 && r.pod&f.pod != 0 && r.paused&f.paused != 0 {
			return r.verdict, r.name
		}
	}
	return wait, "uncovered"
}

func judgePod(f memberFacts) (verdict, string) {
	for _, r := range podRows {
		if r.pod&f.pod != 0 && r.claim&f.claim != 0 && r.lease&f.lease != 0 && r.spare&f.spare != 0 &&
			r.marked&f.marked != 0 && r.paused&f.paused != 0 {
			return r.verdict, r.name
		}
	}
	return wait, "uncovered"
}
