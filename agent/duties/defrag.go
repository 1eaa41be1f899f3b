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

// defragTable is the defragmentations' name in the metric of all decisions.
const defragTable = "membership.defrags"

const (
	// defragBase and defragPerGiB make the time that a defragmentation may take. etcd-backup-restore gives 8 minutes to
	// databases of up to 8 GiB, the largest that etcd recommends; k3s#11122 has one of 8 GB that takes 30 to 40 s. etcd's
	// liveness probe bears ten minutes.
	defragBase   = time.Minute
	defragPerGiB = time.Minute
	// movePause is how long leadership is not moved again for a defragmentation's sake.
	movePause = time.Hour
	// walRoom is what the log may take meanwhile, besides the copy: two segments, which etcd allocates whole
	// (wal.SegmentSizeBytes, 64 MB).
	walRoom = 2 * 64_000_000
)

// DefragPolicy is what the configuration in force says at one moment.
type DefragPolicy struct {
	// Enabled; Window: it may be begun now, Unknown when the schedule cannot be read; Scheduled: windows were chosen.
	Enabled, Window, Scheduled rules.Answer
	Thresholds                 membership.Thresholds
	// Cure says what is done about the alarm NOSPACE.
	Nospace NospacePolicy
	// Interval between two looks at the sizes of all databases, and so between two steps. A new leader waits as long before
	// its first look, so that what its predecessor began is over or is seen to go on.
	Interval time.Duration
}

// Defragmented reports one defragmentation. After is zero when the member did not answer afterwards, or was not asked. Err is
// context.Canceled when the agent did not lead any more before the answer came: etcd goes on with it alone. That is always so for the
// only member of a cluster that is stalled for more than a few seconds: its own agent cannot report any more that it leads.
type Defragmented struct {
	Member string
	// Took is how long the member was stalled, as its leader's agent saw it.
	Took          time.Duration
	Before, After membership.Space
	Err           error
}

// attempt is a DefragAttempt and when it ended.
type attempt struct {
	membership.DefragAttempt
	at time.Time
}

// defragMemory outlives a leadership, so that members are not defragmented again because leadership came back. It is lost with the
// process, which costs a needless stall at most.
type defragMemory struct {
	attempts map[uint64]attempt
	movedAt  time.Time
}

// tendDatabases looks at the databases once per interval and does at most one thing. What an agent that died or lost leadership left
// to do is measured again by the next one.
func (r *round) tendDatabases(ctx context.Context, self Cluster, view membership.View) error {
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

// defragment has the next fragmented database defragmented, or hands leadership on before the leader's.
func (r *round) defragment(ctx context.Context, self Cluster, view membership.View, policy DefragPolicy) error {
	w := sizes{self: self, view: view, facts: membership.DefragFacts{
		Enabled: policy.Enabled, Window: policy.Window, Scheduled: policy.Scheduled, Turn: membership.FragmentsUnknown, Alone: rules.Unknown,
		Authoritative: rules.Unknown, Leads: rules.Unknown, Settled: rules.Unknown, Healthy: rules.Unknown, Room: rules.Unknown, Moved: rules.Unknown,
	}}
	if policy.Enabled == rules.Yes && policy.Window == rules.Yes {
		r.measure(ctx, &w, policy.Thresholds)
	}
	d := membership.DecideDefrag(w.facts)
	if d.Verdict == membership.Defrag || d.Verdict == membership.DefragMove {
		// It is due by what was last known of Kubernetes: now that is read again.
		if err := r.freshSizes(ctx, &w); err != nil {
			return err
		}
		d = membership.DecideDefrag(w.facts)
	}
	r.reportDefrag(ctx, w, d)
	switch d.Verdict {
	case membership.Defrag:
		return r.defragOne(ctx, w)
	case membership.DefragMove:
		return r.moveFor(ctx, w, d.Rule)
	case membership.DefragKeep, membership.DefragWait:
	}
	return nil
}

// moveFor moves leadership, so that our member's database can be defragmented.
func (r *round) moveFor(ctx context.Context, w sizes, rule string) error {
	before := r.defrag.movedAt
	r.defrag.movedAt = time.Now() // also when the answer is lost: it may have been done
	err := r.moveAway(ctx, "defragment "+w.member.Name, rule)
	if errors.Is(err, ErrNoSuccessor) {
		r.defrag.movedAt = before // no one was asked to lead
	}
	return err
}

// tellDefrag counts and logs a decision once per change, and lets the others have their turn before a member without room.
func (r *round) reportDefrag(ctx context.Context, w sizes, d membership.DefragDecision) {
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

// defragOne defragments the member whose turn it is, if ours still leads.
func (r *round) defragOne(ctx context.Context, w sizes) (err error) {
	client, err := r.Dial(ctx, w.member.ClientURLs...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	status, err := r.localStatus(ctx)
	if err != nil {
		return err
	}
	if !leads(status, w.view) {
		return fmt.Errorf("defragment %s: %w", w.member.Name, errLeadershipMoved)
	}
	r.Log.InfoContext(ctx, "defragmentation begun", "member", w.member.Name, "memberID", leases.FormatID(w.member.ID),
		"dbSize", w.space.Size, "dbSizeInUse", w.space.InUse)
	bounded, cancel := context.WithTimeout(ctx, defragTimeout(w.space))
	defer cancel()
	began := time.Now()
	crash.Before("defragment")
	err = membership.Defragment(bounded, client, w.member.ClientURLs[0])
	crash.After("defragment")
	return r.defragged(ctx, w, time.Since(began), err)
}

// defragTimeout grows with what has to be read and written.
func defragTimeout(s membership.Space) time.Duration {
	return defragBase + time.Duration(s.Size>>20)*defragPerGiB/1024
}

// defragged remembers and reports what came of it.
func (r *round) defragged(ctx context.Context, w sizes, took time.Duration, failed error) error {
	done := Defragmented{Member: w.member.Name, Took: took, Before: w.space, Err: failed}
	last, left := membership.DefragAttempt{After: w.space}, failed != nil && ctx.Err() != nil
	switch {
	case ctx.Err() != nil:
		last.Helped = true // nothing is known against it
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
		r.Log.InfoContext(ctx, "defragmentation left to etcd", "member", w.member.Name, "memberID", leases.FormatID(w.member.ID), "took", took)
		return nil
	}
	if failed != nil {
		return fmt.Errorf("member %s was stalled for %s: %w", w.member.Name, took.Round(time.Millisecond), failed)
	}
	r.Log.InfoContext(ctx, "member defragmented", "member", w.member.Name, "memberID", leases.FormatID(w.member.ID),
		"took", took, "dbSizeBefore", done.Before.Size, "dbSize", done.After.Size, "dbSizeInUse", done.After.InUse)
	return nil
}

// Results of a defragmentation, as metrics and Leases report them.
const (
	DefragDone   = "defragmented"
	DefragFailed = "failed"
	// DefragLeft: the agent does not lead any more, and etcd goes on: the stall may be longer than what was seen.
	DefragLeft = "left"
)

// Result of it in one word.
func (d Defragmented) Result() string {
	switch {
	case errors.Is(d.Err, context.Canceled):
		return DefragLeft
	case d.Err != nil:
		return DefragFailed
	}
	return DefragDone
}

// noteTimeout of the note, which is written also when leadership ended while etcd worked.
const noteTimeout = 5 * time.Second

// noteDefrag writes what came of a defragmentation into the member's Lease, once: a note that is lost stands in log and metric.
func (r *round) noteDefrag(ctx context.Context, d Defragmented) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), noteTimeout)
	defer cancel()
	note := leases.Defragmentation{
		At: time.Now().UTC().Truncate(time.Second), Result: d.Result(), Took: d.Took.Round(time.Millisecond), Before: d.Before.Size, After: d.After.Size,
	}
	crash.Before("note-defragmentation")
	err := r.Store.NoteDefragmentation(ctx, d.Member, note)
	crash.After("note-defragmentation")
	if err != nil {
		r.Log.WarnContext(ctx, "defragmentation not noted", "member", d.Member, "err", err)
	}
}
