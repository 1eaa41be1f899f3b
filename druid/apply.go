package druid

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"github.com/etcd-druid/druid/druid/plan"
)

const (
	// fieldOwner of what druid writes.
	fieldOwner = "druid"
	// namespaceTerminating is the cause with which the API server refuses objects in a namespace that goes.
	namespaceTerminating = corev1.NamespaceTerminatingCause
	// parallel steps of one stage: a cluster has at most nine members and about as many shared objects.
	parallel = 16
)

// apply takes the steps, stage by stage, those of a stage at once. A step that fails holds back what needs it (see plan.Troubles), and
// nothing else.
func (r *Reconciler) apply(ctx context.Context, o *observation, steps []plan.Step) ([]plan.Problem, error) {
	var (
		mu      sync.Mutex
		refused []plan.Problem
		errs    []error
		failed  plan.Troubles
	)
	for len(steps) > 0 {
		var group errgroup.Group
		group.SetLimit(parallel)
		stage := steps[0].Stage
		for len(steps) > 0 && steps[0].Stage == stage {
			mu.Lock()
			step, ok := failed.Leave(steps[0])
			mu.Unlock()
			steps = steps[1:]
			if !ok {
				continue
			}
			group.Go(func() error {
				problems, err := sort(step, r.take(ctx, o, step))
				if err != nil || len(problems) > 0 {
					mu.Lock()
					defer mu.Unlock()
					failed.Add(step)
					refused = append(refused, problems...)
					errs = append(errs, err)
				}
				return nil
			})
		}
		_ = group.Wait() // the errors are in errs
	}
	return refused, errors.Join(errs...)
}

// act takes steps of one kind. Where a step must be confirmed, the observation is the one from live reads.
type act func(context.Context, *observation, plan.Step) error

// perform confirms the step if it must be, and acts. A step that the second plan does not have is not taken.
func (r *Reconciler) perform(ctx context.Context, o *observation, step plan.Step, act act) error {
	confirmed, step, err := r.confirmed(ctx, o, step)
	if err != nil || confirmed == nil {
		return err
	}
	return act(ctx, confirmed, step)
}

// take takes one step.
func (r *Reconciler) take(ctx context.Context, o *observation, step plan.Step) error {
	act := map[plan.Kind]act{
		plan.ApplyObject:         r.applyObject,
		plan.ApplyBudget:         r.applyBudget,
		plan.DeleteBudget:        r.deleteBudget,
		plan.CreateLeaderLease:   r.createLeaderLease,
		plan.CreateSnapshotLease: r.createSnapshotLease,
		plan.DeleteSnapshotLease: r.deleteSnapshotLease,
		plan.CreateMemberLease:   r.createMemberLease,
		plan.CreateClaim:         r.createClaim,
		plan.CreatePod:           r.createPod,
		plan.MarkLease:           r.markLease,
		plan.LabelPod:            r.labelPod,
		plan.DeletePod:           r.deletePod,
		plan.AdoptPod:            r.adoptPod,
		plan.ReplaceAgent:        r.replaceAgent,
		plan.RetireLease:         r.retireLease,
		plan.UnretireLease:       r.unretireLease,
		plan.DeleteClaim:         r.deleteClaim,
		plan.RetainClaim:         r.retainClaim,
		plan.DeleteLease:         r.deleteLease,
		plan.TakeClaim:           r.takeClaim,
		plan.ReleaseClaim:        r.releaseClaim,
		plan.GrowClaim:           r.growClaim,
		plan.MarkHealing:         r.markHealing,
		plan.CreateSnapshot:      r.createSave,
		plan.OrderUpgrade:        r.orderUpgrade,
		plan.EndUpgrade:          r.orderUpgrade,
	}[step.Kind]
	if act == nil {
		return fmt.Errorf("step %s by rule %s: there is no such step", step.Kind, step.Rule)
	}
	if err := r.perform(ctx, o, step, act); err != nil {
		if passing(err) == 0 {
			r.metrics.failures.WithLabelValues(string(step.Kind), step.Rule).Inc()
		}
		return fmt.Errorf("%s by rule %s: %w", step.Kind, step.Rule, err)
	}
	r.taken(ctx, o, step)
	return nil
}

// taken reports a step: that it was taken, or that it was not needed any more.
func (r *Reconciler) taken(ctx context.Context, o *observation, step plan.Step) {
	r.metrics.steps.WithLabelValues(string(step.Kind), step.Rule).Inc()
	log := r.log.With("namespace", o.cluster.Namespace, "cluster", o.cluster.Name, "step", step.Kind, "rule", step.Rule)
	if step.Member != "" {
		log = log.With("member", step.Member)
	}
	if step.Object != "" {
		log = log.With("object", step.Object)
	}
	log.InfoContext(ctx, "step taken")
}
