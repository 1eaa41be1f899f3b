package duties

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/etcd-druid/druid/internal/crash"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

// defragTable is the name of the defragmentation decisions in the metric of all decisions.
const defragTable = "membership.defrags"

const (
	// defragBase and defragPerGiB determine the time that a defragmentation may take. etcd-backup-restore allows 8
	// minutes for databases of up to 8 GiB, the largest that etcd recommends. In k3s#11122, a database of 8 GB takes
	// 30 to 40 s. etcd's liveness probe tolerates ten minutes.
	defragBase   = time.Minute
	defragPerGiB = time.Minute
	// movePause is the minimum time between two transfers of leadership by one agent for the same reason: a defragmentation, or a slow disk.
	movePause = time.Hour
	// walRoom is what the log can need meanwhile, in addition to the copy: two segments, which etcd allocates
	// completely (wal.SegmentSizeBytes, 64 MB).
	walRoom = 2 * 64_000_000
)

// DefragPolicy is the configuration in force at one moment.
type DefragPolicy struct {
	// Enabled says that the agents defragment. Window says that a defragmentation may begin now; it is Unknown if the
	// schedule cannot be read. Scheduled says that the user configured windows.
	Enabled, Window, Scheduled rules.Answer
	Thresholds                 membership.Thresholds
	// Nospace is the policy for the alarm NOSPACE.
	Nospace NospacePolicy
	// Interval between two reads of the sizes of all databases, and therefore between two steps. A new leader waits
	// one interval before its first read, so that it sees whether a defragmentation of its predecessor is complete or
	// still runs.
	Interval time.Duration
}

// Defragmented reports one defragmentation. After is zero if the member did not answer afterwards or was not asked.
// Err is context.Canceled if the agent lost leadership before the answer; etcd then completes the defragmentation
// alone. This is always the case for the only member of a cluster when it stalls for more than a few seconds, because
// its own agent can no longer confirm that it leads.
type Defragmented struct {
	Member string
	// Took is how long the member was stalled, as the leader's agent saw it.
	Took          time.Duration
	Before, After membership.Space
	Err           error
}

// attempt is a DefragAttempt and when it ended.
type attempt struct {
	membership.DefragAttempt
	at time.Time
}

// defragMemory outlives a leadership, so that members are not defragmented again when leadership returns. It is lost
// with the process, which costs at most one needless stall.
type defragMemory struct {
	attempts map[uint64]attempt
	movedAt  time.Time
}

// databases is the duty that frees space: it defragments, and acts on the alarm NOSPACE.
type databases struct {
	*round
	// sizedAt is when the sizes of the databases were last read. lastDefrag is the last decision about them.
	sizedAt     time.Time
	lastDefrag  string
	spaceMemory spaceMemory
	// waiting is a request of a user that the next look answers, or nil.
	waiting *defragRequest
}

// Run measures the databases once per interval and takes at most one step. If the agent dies or loses leadership, the
// next leader's agent measures again and continues.
func (r *databases) Run(ctx context.Context, self Cluster, view membership.View) (again bool, err error) {
	r.serve(ctx, self, view)
	return false, r.measured(ctx, self, view)
}

func (r *databases) measured(ctx context.Context, self Cluster, view membership.View) error {
	if r.Defrag == nil {
		return nil
	}
	policy := r.Defrag(time.Now())
	if time.Since(r.sizedAt) < policy.Interval {
		return nil
	}
	defer func() { r.sizedAt = time.Now() }() // the pause begins when the step has ended
	if acted, err := r.nospace(ctx, self, view, policy); acted || err != nil {
		return err
	}
	return r.defragment(ctx, self, view, policy)
}

// defragment defragments the next fragmented database. Before the leader's database, it moves leadership.
func (r *databases) defragment(ctx context.Context, self Cluster, view membership.View, policy DefragPolicy) error {
	w := sizes{self: self, view: view, facts: membership.DefragFacts{
		Enabled: policy.Enabled, Window: policy.Window, Scheduled: policy.Scheduled, Turn: membership.FragmentsUnknown, Alone: rules.Unknown,
		Authoritative: rules.Unknown, Leads: rules.Unknown, Stable: rules.Unknown, Healthy: rules.Unknown, Room: rules.Unknown, Moved: rules.Unknown,
	}}
	if policy.Enabled == rules.Yes && policy.Window == rules.Yes {
		w.thresholds = policy.Thresholds
		r.measure(ctx, &w, r.due(policy.Thresholds))
	}
	d := membership.DecideDefrag(w.facts)
	if d.Verdict == membership.Defrag || d.Verdict == membership.DefragMove {
		// The step is due according to the last read of Kubernetes. Read it again before the step.
		if err := r.freshSizes(ctx, &w); err != nil {
			return err
		}
		d = membership.DecideDefrag(w.facts)
	}
	r.reportDefrag(ctx, w, d)
	switch d.Verdict {
	case membership.Defrag:
		_, err := r.defragOne(ctx, w)
		return err
	case membership.DefragMove:
		return r.moveFor(ctx, w, d.Rule)
	case membership.DefragKeep, membership.DefragWait:
	}
	return nil
}

// moveFor moves leadership away, so that the database of the agent's own member can be defragmented.
func (r *databases) moveFor(ctx context.Context, w sizes, rule string) error {
	before := r.defrag.movedAt
	r.defrag.movedAt = time.Now() // also when the answer is lost: it may have been done
	err := r.moveAway(ctx, "defragment "+w.member.Name, rule)
	if errors.Is(err, ErrNoSuccessor) {
		r.defrag.movedAt = before // no leadership transfer was requested
	}
	return err
}

// reportDefrag counts and logs a decision once per change. If a member's volume has no room, it lets the other members
// go first.
func (r *databases) reportDefrag(ctx context.Context, w sizes, d membership.DefragDecision) {
	if d.Rule == "no-room" {
		r.remember(w.member.ID, membership.DefragAttempt{Failures: 1, After: w.space})
	}
	if r.lastDefrag == d.Rule {
		return
	}
	r.lastDefrag = d.Rule
	r.Decisions.WithLabelValues(defragTable, d.Rule).Inc()
	r.Log.InfoContext(ctx, "defragmentation decided", "member", w.member.Name, "mode", d.Verdict, "rule", d.Rule, "reason", d.Why)
}

func (r *round) remember(id uint64, a membership.DefragAttempt) {
	r.defrag.attempts[id] = attempt{a, time.Now()}
}

// defragOne defragments the selected member if the agent's own member still leads.
func (r *databases) defragOne(ctx context.Context, w sizes) (done Defragmented, err error) {
	client, release, err := r.Dial(ctx, w.member.ClientURLs...)
	if err != nil {
		return done, err
	}
	defer func() { release(err) }()
	status, err := r.localStatus(ctx)
	if err != nil {
		return done, err
	}
	if !leads(status, w.view) {
		return done, fmt.Errorf("defragment %s: %w", w.member.Name, errLeadershipMoved)
	}
	r.Log.InfoContext(ctx, "defragmentation started", "member", w.member.Name, "memberID", leases.FormatID(w.member.ID),
		"dbSize", w.space.Size, "dbSizeInUse", w.space.InUse)
	bounded, cancel := context.WithTimeout(ctx, defragTimeout(w.space))
	defer cancel()
	began := time.Now()
	crash.Before("defragment")
	err = membership.Defragment(bounded, client, w.member.ClientURLs[0])
	crash.After("defragment")
	return r.defragged(ctx, w, time.Since(began), err)
}

// defragTimeout grows with the data that must be read and written.
func defragTimeout(s membership.Space) time.Duration {
	return defragBase + time.Duration(s.Size>>20)*defragPerGiB/1024
}

// defragged remembers and reports the result.
func (r *databases) defragged(ctx context.Context, w sizes, took time.Duration, failed error) (Defragmented, error) {
	done := Defragmented{Member: w.member.Name, Took: took, Before: w.space, Err: failed}
	last, left := membership.DefragAttempt{After: w.space}, failed != nil && ctx.Err() != nil
	switch {
	case ctx.Err() != nil:
		last.Helped = true // assume that it helped
	case failed != nil:
		last.Failures = r.defrag.attempts[w.member.ID].Failures + 1
	default:
		if status, err := statusOf(ctx, r.Dial, w.view.ClusterID, w.member); err == nil {
			done.After = membership.Space{Size: status.DBSize, InUse: status.DBSizeInUse}
			last.After = done.After
		}
		last.Helped = done.After.Size > 0 && !w.thresholds.Fragmented(done.After)
	}
	r.remember(w.member.ID, last)
	r.noteDefrag(ctx, done)
	if r.Defragmented != nil {
		r.Defragmented(done)
	}
	if left {
		// We do not lead any more; etcd goes on, and the next leader's agent measures.
		r.Log.InfoContext(ctx, "leadership lost during defragmentation, etcd continues", "member", w.member.Name, "memberID",
			leases.FormatID(w.member.ID), "took", took)
		return done, nil
	}
	if failed != nil {
		return done, fmt.Errorf("defragment member %s, stalled for %s: %w", w.member.Name, took.Round(time.Millisecond), failed)
	}
	r.Log.InfoContext(ctx, "member defragmented", "member", w.member.Name, "memberID", leases.FormatID(w.member.ID),
		"took", took, "dbSizeBefore", done.Before.Size, "dbSize", done.After.Size, "dbSizeInUse", done.After.InUse)
	return done, nil
}

// Results of a defragmentation, as metrics and Leases report them.
const (
	DefragDone   = "defragmented"
	DefragFailed = "failed"
	// DefragLeft means that the agent no longer leads and etcd continues. The stall can be longer than what the agent
	// saw.
	DefragLeft = "left"
)

// Result returns the result in one word.
func (d Defragmented) Result() string {
	switch {
	case errors.Is(d.Err, context.Canceled):
		return DefragLeft
	case d.Err != nil:
		return DefragFailed
	}
	return DefragDone
}

// noteTimeout bounds the write of the note, which is written even if leadership ended while etcd worked.
const noteTimeout = 5 * time.Second

// noteDefrag writes the result of a defragmentation into the member's Lease, once. If the write fails, the log and the
// metric still have the result.
func (r *databases) noteDefrag(ctx context.Context, d Defragmented) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), noteTimeout)
	defer cancel()
	note := leases.Defragmentation{
		At: time.Now().UTC().Truncate(time.Second), Result: d.Result(), Took: d.Took.Round(time.Millisecond), Before: d.Before.Size, After: d.After.Size,
	}
	crash.Before("note-defragmentation")
	err := r.Store.NoteDefragmentation(ctx, d.Member, note)
	crash.After("note-defragmentation")
	if err != nil {
		r.Log.WarnContext(ctx, "result of defragmentation not written to the Lease", "member", d.Member, "err", err)
	}
}
