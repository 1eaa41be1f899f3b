package policy

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
)

// A user can request that a new member takes the place of a named one. The new member joins first, as in a scale-up. When it votes, the
// named member leaves, as in a scale-down. So this policy only decides whether the record gets one name more than replicas. The
// policy of removals decides everything else, with all its guards.

type (
	// replaceNamed is the member that the annotation names.
	replaceNamed uint8
	// replaceSize compares the names in the record with the replicas.
	replaceSize uint8
	// replaceTime is what the spec, its deadline and the EtcdCluster leave time for.
	replaceTime uint8
	// replaceVerdict is the decision about the requested replacement.
	replaceVerdict string
)

const (
	replaceNamedNone   replaceNamed = 1 << iota // there is no annotation
	replaceNamedGone                            // the record does not list it
	replaceNamedListed                          // the record lists it
)

func (n replaceNamed) String() string {
	return rules.Word(n, "nothing", "no member", "a member")
}

const (
	replaceSizePaused replaceSize = 1 << iota // replicas is 0
	replaceSizeFew
	replaceSizeRight
	replaceSizeMany // one leaves: the named one first
)

func (s replaceSize) String() string {
	return rules.Word(s, "paused", "few", "right", "many")
}

const (
	replaceTimeFree   replaceTime = 1 << iota // no spec change is in progress
	replaceTimeChange                         // one is
	replaceTimePassed                         // its deadline has passed, or the EtcdCluster is deleted
)

func (s replaceTime) String() string {
	return rules.Word(s, "free", "a spec change is in progress", "the deadline passed, or it is deleted")
}

const (
	replaceNothing replaceVerdict = "Nothing"
	replaceWait    replaceVerdict = "Wait" // for something that the conditions show, or that comes by itself
	replaceHeld    replaceVerdict = "Held" // by another member, or by failing backups
	replaceGrow    replaceVerdict = "Grow"
	replaceLeave   replaceVerdict = "Leave" // the record has more names than replicas, and the named member leaves first
)

// replaceRows decide about a requested replacement. A name is never used twice, so a request whose member has left does nothing.
var replaceRows = rules.New(replaceWait, []rules.Row[replaceFacts, replaceVerdict]{
	{Name: "no-request", When: replaceFacts{named: replaceNamedNone}, Verdict: replaceNothing,
		Why: "no annotation requests it"},
	{Name: "request-done", When: replaceFacts{named: replaceNamedGone}, Verdict: replaceNothing,
		Why: "the named member has left, or never was in the cluster"},
	{Name: "request-not-formed", When: replaceFacts{named: replaceNamedListed, record: anyRecord &^ RecordFormed}, Verdict: replaceWait,
		Why: "no member can join a raft group that does not exist"},
	{Name: "request-late", When: replaceFacts{named: replaceNamedListed, record: RecordFormed, time: replaceTimePassed}, Verdict: replaceWait,
		Why: "druid starts no further change"},
	{Name: "request-leaves", When: replaceFacts{named: replaceNamedListed, record: RecordFormed, size: replaceSizeMany, time: replaceTimeFree | replaceTimeChange},
		Verdict: replaceLeave,
		Why:     "the record lists enough members without it, and the policy of removals decides when it leaves"},
	{Name: "request-paused", When: replaceFacts{named: replaceNamedListed, record: RecordFormed, size: replaceSizePaused,
		time: replaceTimeFree | replaceTimeChange},
		Verdict: replaceWait,
		Why:     "the spec requests no member"},
	{Name: "request-scales", When: replaceFacts{named: replaceNamedListed, record: RecordFormed, size: replaceSizeFew, time: replaceTimeFree | replaceTimeChange},
		Verdict: replaceWait,
		Why:     "the members that the spec requests come first"},
	{Name: "request-after-change", When: replaceFacts{named: replaceNamedListed, record: RecordFormed, size: replaceSizeRight, time: replaceTimeChange},
		Verdict: replaceWait,
		Why:     "the deadline of the spec change would also end the replacement"},
	{Name: "request-after-slot", When: replaceFacts{named: replaceNamedListed, record: RecordFormed, size: replaceSizeRight, time: replaceTimeFree,
		slot: anySlot &^ slotFree},
		Verdict: replaceWait,
		Why:     "a member is being removed or replaces itself"},
	{Name: "request-after-update", When: replaceFacts{named: replaceNamedListed, record: RecordFormed, size: replaceSizeRight,
		time: replaceTimeFree, slot: slotFree, upToDate: rules.No},
		Verdict: replaceWait,
		Why:     "Pods are being replaced, or the version of etcd changes"},
	{Name: "request-others-unknown", When: replaceFacts{named: replaceNamedListed, record: RecordFormed, size: replaceSizeRight,
		time: replaceTimeFree, slot: slotFree, upToDate: rules.Yes, others: removalUnknown | removalNotNeeded},
		Verdict: replaceWait,
		Why:     "the state of another member is not known yet"},
	{Name: "request-after-others", When: replaceFacts{named: replaceNamedListed, record: RecordFormed, size: replaceSizeRight,
		time: replaceTimeFree, slot: slotFree, upToDate: rules.Yes, others: removalBlocked},
		Verdict: replaceHeld,
		Why:     "another member is not a ready voter, so the named member could not leave"},
	{Name: "request-after-backup", When: replaceFacts{named: replaceNamedListed, record: RecordFormed, size: replaceSizeRight,
		time: replaceTimeFree, slot: slotFree, upToDate: rules.Yes, others: removalBackupFailing},
		Verdict: replaceHeld,
		Why:     "backups fail, so the named member could not leave"},
	{Name: "request-without-quorum", When: replaceFacts{named: replaceNamedListed, record: RecordFormed, size: replaceSizeRight,
		time: replaceTimeFree, slot: slotFree, upToDate: rules.Yes, others: removalAllowed, admits: rules.No},
		Verdict: replaceHeld,
		Why:     "etcd adds a member only while the voters that serve are a quorum also with one voter more"},
	{Name: "request-grows", When: replaceFacts{named: replaceNamedListed, record: RecordFormed, size: replaceSizeRight, time: replaceTimeFree,
		slot: slotFree, upToDate: rules.Yes, others: removalAllowed, admits: rules.Yes},
		Verdict: replaceGrow,
		Why:     "a new member joins, and the named member leaves when the new one votes"},
})

// replaceFacts is the complete input of replaceRows.
type replaceFacts struct {
	named    replaceNamed `fact:"annotation names"`
	record   RecordState
	size     replaceSize `fact:"names against replicas"`
	time     replaceTime `fact:"spec"`
	slot     slot        `fact:"slots"`
	upToDate rules.YesNo `fact:"Pods up to date"`
	others   removalGate `fact:"the others"`
	admits   rules.YesNo `fact:"etcd adds a member"`
}

// replace is the decision about the requested replacement.
type replace struct {
	rules.Decision[replaceVerdict]
	// hindrance names what blocks it, for the user.
	hindrance string
}

// replaceOf decides about the requested replacement. It follows the scale-down and the rolling update.
func replaceOf(e Evaluation) replace {
	f := replaceFacts{
		named: replaceNamedNone, record: e.RecordState, size: e.replaceSize(), time: replaceTimeFree, slot: slotOf(e.Record),
		upToDate: rules.YesNoOf(e.rollout.sum == rollingNone), others: removalNotNeeded,
	}
	switch {
	case e.Deleted || e.Expired:
		f.time = replaceTimePassed
	case e.clock() == ClockRuns:
		f.time = replaceTimeChange
	}
	r, lacks := replace{}, ""
	f.admits, lacks = e.admits()
	switch m, there := e.member(e.Replace); {
	case e.Replace == "":
	case !there || !m.Listed:
		f.named = replaceNamedGone
	default:
		f.named = replaceNamedListed
		f.others, r.hindrance = wayOut(m, e)
		r.hindrance = cmp.Or(r.hindrance, lacks)
	}
	// A record that does not name its raft group permits no change of the members.
	if e.RecordState == RecordFormed && e.Record.ClusterID == 0 {
		f.record = RecordForming
	}
	r.Decision = replaceRows.Decide(f)
	return r
}

// admits says whether etcd adds a member, and otherwise what it lacks. etcd counts the new member as a voter that does not serve, and
// the only member of a cluster may always add one (etcdserver.isConnectedToQuorumAfterAddingNewMemberSince of etcd 3.5 to 3.7).
func (e Evaluation) admits() (rules.YesNo, string) {
	if hasExternals(e.Record) {
		return rules.No, "the cluster that it joined still has external members. Complete the move first"
	}
	voters, up := 0, 0
	for _, m := range e.listed {
		if m.votes() || m.publishedVoter(e.Observed) {
			voters++
			if m.up() {
				up++
			}
		}
	}
	if list := e.Record.MemberList; list != nil { // etcd can have voters that the record does not list
		voters = 0
		for _, m := range list.Members {
			if !m.Learner {
				voters++
			}
		}
	}
	if voters == 1 && up == 1 || up >= quorum(voters+1) {
		return rules.Yes, ""
	}
	return rules.No, fmt.Sprintf("%d of %d voters serve, and etcd adds no member before %d do", up, voters, quorum(voters+1))
}

func (e Evaluation) replaceSize() replaceSize {
	switch listed := len(e.Record.Members); {
	case e.Replicas == 0:
		return replaceSizePaused
	case listed < e.Replicas:
		return replaceSizeFew
	case listed > e.Replicas:
		return replaceSizeMany
	default:
		return replaceSizeRight
	}
}

// replaceStep adds one name to the record. druid plans it again from live reads: the request can have been withdrawn.
func replaceStep(e Evaluation) (Step, bool) {
	if e.replace.Verdict != replaceGrow {
		return Step{}, false
	}
	return Step{Kind: UpdateRecord, Rule: e.replace.Rule, Stage: StageRecord, Member: e.Replace, Draw: 1, Irreversible: true}, true
}

// Missing returns how many new names the step adds to the record as it was just read. A record that another druid changed since the
// plan can have them already. A step that names a member adds one name more than replicas, so that the member can leave.
func (s Step) Missing(record leases.Record, replicas int) int {
	missing := replicas - len(record.Members)
	switch {
	case s.Member == "":
		return max(missing, 0)
	case missing == 0 && record.Phase == leases.PhaseFormed && record.Lists(s.Member) && slotOf(record) == slotFree:
		return 1
	default:
		return 0
	}
}

// replaces says whether the record has the one name too many that a requested replacement adds, and the named member is the one that
// leaves.
func (e Evaluation) replaces() bool {
	return e.replace.Verdict == replaceLeave && len(e.Record.Members) == e.Replicas+1 && e.scaleDown.member.Name == e.Replace
}

// newcomer is a listed member that does not vote yet, while another one waits for its vote.
func (e Evaluation) newcomer() (Member, bool) {
	at := slices.IndexFunc(e.listed, func(m Member) bool {
		return m.Name != e.Replace && (m.Lease == LeaseAbsent || m.outside() || m.learns()) && !m.publishedVoter(e.Observed)
	})
	if at < 0 {
		return Member{}, false
	}
	return e.listed[at], true
}

// shrinking summarizes for the status how names come and go in excess of replicas.
func (e Evaluation) shrinking() shrinking {
	scaleDown := e.scaleDown.shrinking()
	newcomer, joins := e.newcomer()
	admits, _ := e.admits()
	switch {
	case e.replace.Verdict == replaceHeld:
		return shrinkingReplaceBlocked
	case !e.replaces() || scaleDown == shrinkingNone:
		return scaleDown
	case scaleDown == shrinkingBlocked && !joins, joins && !newcomer.learns() && admits == rules.No:
		return shrinkingReplaceBlocked
	default:
		return shrinkingReplaces
	}
}

// replacingMessage says what a requested replacement waits for.
func replacingMessage(p messageContext) string {
	if m, joins := p.newcomer(); joins && p.scaleDown.facts.slot == slotFree {
		return "replacing member " + p.Replace + ": member " + m.Name + " joins, and has to vote first"
	}
	return "replacing member " + p.Replace + ": " + p.departure()
}

// replaceBlockedMessage says what prevents a requested replacement from beginning, or from going on.
func replaceBlockedMessage(p messageContext) string {
	hindrance := p.replace.hindrance
	if p.replaces() {
		hindrance = p.scaleDown.hindrance
		if newcomer, joins := p.newcomer(); joins && !newcomer.learns() {
			_, lacks := p.admits()
			hindrance = cmp.Or(lacks, hindrance)
		}
	}
	return "member " + p.Replace + " cannot be replaced, because " + hindrance
}
