package policy

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/rules"
)

type (
	recoveryVerdict uint8 // what druid reports about a lost quorum
	returns         uint8 // whether the members that may hold their data are a quorum
)

const (
	recoverNothing recoveryVerdict = 1 << iota
	recoverWait
	recoverRefuse
	recoverPropose
)

func (v recoveryVerdict) String() string {
	return rules.Word(v, "Nothing", "Waiting", "Refused", "Proposed")
}

const (
	returnsNot     returns = 1 << iota // too many voters lost their data
	returnsMay                         // those that are not known to have lost their data are a quorum
	returnsUnknown                     // no list of voters is known
)

func (r returns) String() string { return rules.Word(r, "cannot", "may", "unknown") }

// recoveryRows decide what druid reports about a lost quorum. Only positive evidence makes a member lost: one that is merely
// away may return with its data, and with it the quorum.
var recoveryRows = rules.New(recoverNothing, []rules.Row[recoveryFacts, recoveryVerdict]{
	{Name: "not-ours", When: recoveryFacts{applies: rules.No}, Verdict: recoverNothing,
		Why: "the cluster is deleted or paused, never formed, or its record cannot be used"},
	{Name: "quorum-serves", When: recoveryFacts{quorum: rules.Yes}, Verdict: recoverNothing,
		Why: "there is nothing to recover"},
	{Name: "quorum-unknown", When: recoveryFacts{quorum: rules.Unknown}, Verdict: recoverNothing,
		Why: "missing information is no evidence of a loss"},
	{Name: "not-yet", When: recoveryFacts{overdue: rules.No}, Verdict: recoverWait,
		Why: "an election or a restart takes a moment"},
	{Name: "voters-unknown", When: recoveryFacts{returns: returnsUnknown}, Verdict: recoverWait,
		Why: "without a list of voters, a loss of the majority cannot be shown"},
	{Name: "majority-may-return", When: recoveryFacts{returns: returnsMay}, Verdict: recoverWait,
		Why: "the members that may still hold their data are a quorum, and no write is lost when they return"},
	{Name: "no-source", When: recoveryFacts{source: rules.No}, Verdict: recoverRefuse,
		Why: "no member and no backup is known to hold the data"},
	{Name: "propose", When: recoveryFacts{returns: returnsNot}, Verdict: recoverPropose,
		Why: "the old raft group can never have a quorum again, and the best source is known"},
})

// recoveryFacts is the complete input of recoveryRows.
type recoveryFacts struct {
	applies rules.YesNo  `fact:"concerns druid"`
	quorum  rules.Answer `fact:"quorum serves"`
	overdue rules.YesNo  `fact:"lost for long enough"`
	returns returns      `fact:"quorum returns"`
	source  rules.YesNo  `fact:"source known"`
}

// recovery is what is known about a lost quorum.
type recovery struct {
	rule    string
	verdict recoveryVerdict
	facts   recoveryFacts
	parts   []part
	plan    recoveryPlan
}

// is reports whether the decision is one of these.
func (r recovery) is(verdict recoveryVerdict) bool { return r.verdict&verdict != 0 }

// recoveryOf decides what druid reports.
func recoveryOf(d Desired, o Observed, listed []Member) recovery {
	r := recovery{facts: recoveryFacts{
		applies: rules.YesNoOf(recoverable(d, o)), quorum: groupQuorum(listed), overdue: rules.YesNoOf(o.QuorumOverdue),
		returns: returnsUnknown, source: rules.No,
	}}
	if r.facts.applies == rules.Yes && r.facts.quorum == rules.No && o.QuorumOverdue {
		r.observeParts(o, listed)
		r.facts.returns = r.returning(o)
		r.facts.source = rules.YesNoOf(r.makePlan(d, o))
	}
	decision := recoveryRows.Decide(r.facts)
	r.rule, r.verdict = decision.Rule, decision.Verdict
	return r
}

// recoverable says whether the cluster formed and is to run. Of a joined raft group druid does not know all members.
func recoverable(d Desired, o Observed) bool {
	return !d.Deleted && d.Replicas > 0 && o.RecordState == RecordFormed && !o.Record.Leaving && !o.Record.Adopted()
}

// QuorumLost reports whether no voter serves, as far as druid knows, so that its clock runs.
func QuorumLost(d Desired, o Observed) bool {
	return recoverable(d, o) && groupQuorum(o.listed()) == rules.No
}

// recoveryPlan is the best source for a new cluster, and what it lacks.
type recoveryPlan struct {
	source source
	// revisions and seconds are lost at most, if measured.
	revisions, seconds int64
	measured           bool
	// notes say what else you need to know about the source.
	notes []string
}

// makePlan finds the best source. It returns false if there is none.
func (r *recovery) makePlan(d Desired, o Observed) bool {
	best, found := r.bestDisk(o)
	if d.Backup {
		if backup, saved := backupSource(o); saved && (!found || backup.lineage == best.lineage && backup.revision > best.revision) {
			best, found = backup, true
		}
	}
	if !found {
		return false
	}
	r.plan.source = best
	r.plan.measure(r.parts, o)
	r.plan.annotate(r.parts)
	return true
}

// renewalInterval is how often an agent renews its member Lease. The last renewal before a loss can be as old.
const renewalInterval = 15 * time.Second

// measure computes the loss. Times come from different machines, so that they are only an estimate.
func (p *recoveryPlan) measure(parts []part, o Observed) {
	var newest time.Time
	highest := max(o.Full.Reports.Revision, o.Delta.Reports.Revision)
	for _, m := range o.Members {
		if m.Lease != LeaseOurs || !m.Readable || m.Reports.ClusterID != o.Record.ClusterID {
			continue
		}
		highest = max(highest, m.Reports.Revision)
		if m.Renewed.After(newest) {
			newest = m.Renewed
		}
	}
	for _, part := range parts {
		if c := part.claim; c != nil {
			highest = max(highest, c.Revision+int64(c.Tail))
		}
	}
	p.revisions = max(0, highest-p.source.revision)
	p.measured = p.source.revision > 0 && !newest.IsZero() && !p.source.at.IsZero() && p.source.class == classIntact
	if p.measured {
		p.seconds = int64((max(0, newest.Sub(p.source.at)) + renewalInterval + time.Second - 1) / time.Second)
	}
}

// annotate says what is wrong with the source, and which member that is away holds more.
func (p *recoveryPlan) annotate(parts []part) {
	switch p.source.class {
	case classStale:
		p.notes = append(p.notes, "its disk is older than what the member reported before")
	case classDatabase:
		p.notes = append(p.notes, "its log is damaged, and only its database can be used")
	default:
	}
	for _, part := range parts {
		m := part.member
		ahead := m.Reports.Revision > p.source.revision
		if p.source.mode == v1alpha1.RecoveryFromSurvivor {
			raft := m.Reports.Raft
			ahead = raft.LastTerm > p.source.lastTerm || raft.LastTerm == p.source.lastTerm && raft.LastIndex > p.source.last
		}
		if part.known && part.holds == holdsUnknown && ahead {
			p.notes = append(p.notes, "member "+m.Name+" is away and reported more: bring it back first if you can")
		}
	}
}

// words describe the plan and its loss.
func (p recoveryPlan) words() string {
	from := fmt.Sprintf("the best source is the disk of member %s", p.source.member.Name)
	if p.source.mode == v1alpha1.RecoveryFromBackup {
		from = fmt.Sprintf("the best source is the backup of lineage %s, up to revision %d", p.source.lineage, p.source.revision)
	}
	loss := "what it lacks is unknown"
	if p.measured {
		loss = fmt.Sprintf("as far as the members reported, it lacks %s, and at most %s of writes", counted(int(p.revisions), "revision"), counted(int(p.seconds), "second"))
	}
	return strings.Join(slices.Concat([]string{from + "; " + loss}, p.notes), "; ")
}

// steps are what you do about a plan.
func (p recoveryPlan) steps() string {
	if p.source.mode == v1alpha1.RecoveryFromBackup {
		return "Restore it into a new EtcdCluster with spec.bootstrap.restore"
	}
	if p.source.member.Claim == ClaimUnwanted {
		return "Keep its Pod, which holds the data in memory: save the data with etcdctl snapshot save, and restore that file into a new EtcdCluster"
	}
	return "Keep its volume, and copy its data into a new EtcdCluster"
}

// problem is that of a quorum that cannot return.
func (r recovery) problem() (Problem, bool) {
	switch {
	case r.is(recoverPropose):
		return Problem{Reason: v1alpha1.ReasonRecoveryProposed, Message: r.lost() + ", so that the quorum cannot return: " + r.plan.words() + ". " + r.plan.steps()}, true
	case r.is(recoverRefuse):
		return Problem{Reason: v1alpha1.ReasonRecoveryRefused, Message: r.lost() + ", so that the quorum cannot return, and no member or backup is known to hold " +
			"the data. Bring back a node or a volume of a member, or restore an older backup into a new EtcdCluster with spec.bootstrap.restore"}, true
	default:
		return Problem{}, false
	}
}

// status is status.recovery, nil while no quorum is lost.
func (r recovery) status() *v1alpha1.RecoveryStatus {
	problem, found := r.problem()
	switch {
	case r.is(recoverPropose):
		s := &v1alpha1.RecoveryStatus{Phase: v1alpha1.RecoveryProposed, Message: AsSentences(problem.Message)}
		s.Plan = &v1alpha1.RecoveryPlan{Source: r.plan.source.mode, Member: r.plan.source.member.Name, Revision: r.plan.source.revision}
		if r.plan.source.mode == v1alpha1.RecoveryFromBackup {
			s.Plan.Lineage = r.plan.source.lineage
		}
		if r.plan.measured {
			s.Plan.LostRevisions, s.Plan.LostSeconds = new(r.plan.revisions), new(r.plan.seconds)
		}
		return s
	case found:
		return &v1alpha1.RecoveryStatus{Phase: v1alpha1.RecoveryRefused, Message: AsSentences(problem.Message)}
	case r.is(recoverWait):
		return &v1alpha1.RecoveryStatus{Phase: v1alpha1.RecoveryWaiting, Message: AsSentences(r.waits())}
	default:
		return nil
	}
}

// waits says what has to happen before the quorum returns.
func (r recovery) waits() string {
	switch r.facts.returns {
	case returnsMay:
		return "the quorum is lost, and the members that may still hold their data are a quorum: bring them back. " + r.standing()
	default:
		if r.facts.overdue == rules.No {
			return "the quorum is lost. druid looks for what is left of the data if it does not return within a minute"
		}
		return "the quorum is lost, and no list of its voters is known. Bring back the members that are down"
	}
}

// lost says how many voters lost their data.
func (r recovery) lost() string {
	var names []string
	for _, p := range r.parts {
		if p.holds == holdsNothing {
			names = append(names, p.name())
		}
	}
	return fmt.Sprintf("%d of %d voters lost their data (%s)", len(names), len(r.parts), strings.Join(names, ", "))
}

// standing names the voters by what is known of their data.
func (r recovery) standing() string {
	kinds := map[holding][]string{}
	for _, p := range r.parts {
		kinds[p.holds] = append(kinds[p.holds], p.name())
	}
	var words []string
	for _, kind := range []struct {
		holds holding
		words string
	}{{holdsUnknown, "away"}, {holdsHere, "here with data"}, {holdsNothing, "lost"}} {
		if names := kinds[kind.holds]; len(names) > 0 {
			slices.Sort(names)
			words = append(words, kind.words+": "+strings.Join(names, ", "))
		}
	}
	return "Voters " + strings.Join(words, "; ")
}
