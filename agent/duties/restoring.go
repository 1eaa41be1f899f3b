package duties

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/etcd-druid/druid/internal/crash"
	"github.com/etcd-druid/druid/internal/loop"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

const (
	// planTimeout bounds one attempt to plan a restore. A listing of 100 000 objects takes a minute.
	planTimeout = 10 * time.Minute
	// planSoon is how long the other duties wait for a plan after its attempt began. Most stores answer earlier. A later plan is written
	// at a later look.
	planSoon = 2 * time.Second
	// planPause and maxPlanPause are the first and the longest pause after an attempt without a plan. Each one lists the store.
	planPause, maxPlanPause = 10 * time.Second, time.Minute
)

// restoring is the duty that answers druid's request for the plan of a restore in place. Without a request it makes no calls.
type restoring struct {
	*round
	// attempt that runs, or nil.
	attempt *planAttempt
	// nonce of the request that was tried last. It is not tried again before next, after the pauses of rest.
	nonce string
	next  time.Time
	rest  loop.Backoff
	// reported is the error that was written last for the request. The one on the record can be shorter.
	reported string
}

// planAttempt is an attempt to plan a restore.
type planAttempt struct {
	nonce string
	// over ends at the latest after limit. A directory whose mount hangs ignores it.
	over  context.Context
	limit time.Duration
	// done receives the result.
	done chan planned
}

type planned struct {
	plan leases.RestorePlan
	err  error
}

// Run plans the restore that is requested on the record, and writes the answer.
func (r *restoring) Run(ctx context.Context, self Cluster, _ membership.View) (again bool, err error) {
	wait := time.Duration(0)
	if r.attempt == nil {
		if !r.begin(ctx, self) {
			return false, nil
		}
		wait = planSoon
	}
	result, ended := r.attempt.result(ctx, wait)
	if !ended {
		return false, nil
	}
	nonce := r.attempt.nonce
	r.attempt = nil
	return false, r.answer(ctx, self, nonce, result)
}

// begin starts an attempt if a request is open and due.
func (r *restoring) begin(ctx context.Context, self Cluster) bool {
	request := r.record.Restore.Request
	if r.PlanRestore == nil || !r.record.Restore.Open() || r.authoritative(self) != rules.Yes {
		return false
	}
	if request.Nonce != r.nonce {
		r.nonce, r.next, r.reported = request.Nonce, time.Time{}, ""
		r.rest.Reset()
	}
	if time.Now().Before(r.next) {
		return false
	}
	limited, cancel := context.WithTimeout(ctx, r.planTimeout)
	a := &planAttempt{nonce: request.Nonce, over: limited, limit: r.planTimeout, done: make(chan planned, 1)}
	lineage := r.record.Lineage
	var group errgroup.Group // it is not waited for: a store can hang
	group.Go(func() error {
		defer cancel()
		var p planned
		p.err = loop.Recover(func() (err error) { p.plan, err = r.PlanRestore(limited, request.Target, lineage); return err })
		a.done <- p
		return nil
	})
	r.attempt = a
	return true
}

// result waits at most this long for the result. ended is false if the attempt goes on.
func (a *planAttempt) result(ctx context.Context, atMost time.Duration) (p planned, ended bool) {
	timer := time.NewTimer(atMost)
	defer timer.Stop()
	select {
	case p := <-a.done:
		return p, true
	case <-timer.C:
	case <-ctx.Done():
	}
	select {
	case p := <-a.done: // it was there before the timer fired
		return p, true
	default:
	}
	if errors.Is(a.over.Err(), context.DeadlineExceeded) {
		return planned{err: fmt.Errorf("the backup store does not respond within %s, the agent tries again; check that it can be reached", a.limit)}, true
	}
	return planned{}, false
}

// answer writes the result if the request is still the one on the record. A repeated error is written once.
func (r *restoring) answer(ctx context.Context, self Cluster, nonce string, result planned) error {
	r.next = time.Now().Add(r.rest.Next())
	own, err := r.Store.Member(ctx, self.Member)
	if err != nil {
		return err
	}
	if err := r.read(ctx); err != nil {
		return err
	}
	current := r.record.Restore
	if own.PodUID != self.PodUID || r.authoritative(self) != rules.Yes || current.Request.Nonce != nonce || !current.Open() {
		return nil // a superseded agent answers nothing
	}
	plan := result.plan
	if result.err != nil {
		plan = leases.RestorePlan{Error: result.err.Error()}
	}
	if plan.Error != "" && (plan.Error == r.reported || plan.Error == current.Plan.Error) {
		return nil
	}
	plan.Nonce, plan.At = nonce, time.Now().UTC().Truncate(time.Second)
	crash.Before("answer-restore")
	version, err := r.Store.AnswerRestore(ctx, r.version, plan)
	crash.After("answer-restore")
	if err != nil {
		r.next = time.Time{}
		return r.notWritten(err)
	}
	r.version, r.record.Restore.Plan, r.reported = version, plan, plan.Error
	r.Log.InfoContext(ctx, "restore planned", "request", nonce, "lineage", plan.Lineage, "full", plan.Full, "deltas", plan.Deltas, "revision", plan.Revision,
		"err", plan.Error)
	return nil
}
