package duties

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/membership"
)

// acceptTimeout is how long a request waits for the duties, which can be in the middle of a step.
const acceptTimeout = 30 * time.Second

var (
	// ErrRefused means that the policy does not permit the defragmentation now. The error says why.
	ErrRefused = errors.New("the member is not defragmented now")
	// ErrNoVoter means that no voter has the name.
	ErrNoVoter = errors.New("no voter of the cluster has this name")
)

// defragRequest is one defragmentation that a user requests.
type defragRequest struct {
	member string
	done   chan defragResult // has room for the only result
}

type defragResult struct {
	Defragmented
	err error
}

// DefragmentNow has the leader's agent defragment a member, whatever the thresholds, windows and pauses are. All other conditions
// hold as always. Only the duties defragment, so that one member at a time is stalled.
func (d *Duties) DefragmentNow(ctx context.Context, member string) (Defragmented, error) {
	request := &defragRequest{member: member, done: make(chan defragResult, 1)}
	timer := time.NewTimer(acceptTimeout)
	defer timer.Stop()
	select {
	case d.requested <- request:
	case <-timer.C:
		return Defragmented{}, fmt.Errorf("%w: this agent does not hold the Lease of the leader's agent yet, or is busy", ErrRefused)
	case <-ctx.Done():
		return Defragmented{}, ctx.Err()
	}
	select {
	case result := <-request.done:
		return result.Defragmented, result.err
	case <-ctx.Done():
		return Defragmented{}, ctx.Err()
	}
}

// serve answers the request that is waiting, if there is one.
func (r *databases) serve(ctx context.Context, self Cluster, view membership.View) {
	request := r.waiting
	if request == nil {
		return
	}
	r.waiting = nil
	done, err := r.defragmentNow(ctx, self, view, request.member)
	r.sizedAt = time.Now() // the next step has its pause
	request.done <- defragResult{done, err}
}

// drop answers the request that no look reached.
func (r *databases) drop(err error) {
	if r.waiting == nil {
		return
	}
	if err == nil {
		err = errors.New("a member joins, is removed or is repaired first")
	}
	r.waiting.done <- defragResult{err: fmt.Errorf("%w: %w", ErrRefused, err)}
	r.waiting = nil
}

func (r *databases) defragmentNow(ctx context.Context, self Cluster, view membership.View, member string) (Defragmented, error) {
	if !slices.ContainsFunc(view.Voters(), func(m membership.Member) bool { return m.Name == member }) {
		return Defragmented{}, fmt.Errorf("%w: %s", ErrNoVoter, member)
	}
	// What prevented it at the last read may have ended since.
	if err := r.read(ctx); err != nil {
		return Defragmented{}, err
	}
	w := sizes{self: self, view: view, facts: membership.DefragFacts{Enabled: rules.Yes, Window: rules.Yes, Scheduled: rules.Yes}}
	if r.Defrag != nil {
		w.thresholds = r.Defrag(time.Now()).Thresholds
	}
	r.measure(ctx, &w, func(m membership.Member, _ membership.Space) bool { return m.Name == member })
	d := membership.DecideDefrag(w.facts)
	if d.Verdict == membership.Defrag {
		// The members took a while to answer. Read Kubernetes again before the step.
		if err := r.freshSizes(ctx, &w); err != nil {
			return Defragmented{}, err
		}
		d = membership.DecideDefrag(w.facts)
	}
	r.Decisions.WithLabelValues(defragTable, d.Rule).Inc()
	r.Log.InfoContext(ctx, "requested defragmentation decided", "member", member, "mode", d.Verdict, "rule", d.Rule, "reason", d.Why)
	switch {
	case d.Verdict == membership.Defrag:
		return r.defragOne(ctx, w)
	case w.facts.Turn == membership.LeaderFragmented && (d.Verdict == membership.DefragMove || d.Rule == "moved-before"):
		return Defragmented{}, fmt.Errorf("%w: %s leads; move the leadership first", ErrRefused, member)
	default:
		return Defragmented{}, fmt.Errorf("%w: %s", ErrRefused, d.Why)
	}
}
