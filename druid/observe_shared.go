package druid

import (
	"context"
	"fmt"

	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/druid/plan"
	"github.com/etcd-druid/druid/manifests"
)

// observeShared compares the objects that druid applies with what they should be.
func (r *Reconciler) observeShared(ctx context.Context, from source, o *observation) error {
	if _, unwanted := from.Reader.(unshared); unwanted {
		return nil
	}
	applied, err := manifests.Shared(o.cluster, o.observed.Record.Members, r.manifests)
	if err != nil {
		return err
	}
	for _, a := range applied {
		object := plan.Object{Kind: a.Kind.Kind, Name: a.Name, Stage: sharedStage(o.cluster.Name, a)}
		live, err := r.client.Scheme().New(a.Kind)
		if err != nil {
			return fmt.Errorf("make an empty %s: %w", a.Kind.Kind, err)
		}
		if object.State, err = objectState(ctx, from, o, live.(client.Object), a); err != nil {
			return err
		}
		o.shared[object.Kind+"/"+object.Name] = a
		o.observed.Objects = append(o.observed.Objects, object)
	}
	return observeBudget(ctx, from, o)
}

// sharedStage is when the object is applied: a Pod needs neither the client Service nor, to be created, what binds the Role.
// The API server refuses to bind a Role that it does not know yet.
func sharedStage(cluster string, a manifests.Applied) plan.Stage {
	switch {
	case a.Kind.Kind == "RoleBinding":
		return plan.StageBound
	case a.Name == manifests.ClientServiceName(cluster):
		return plan.StageLate
	default:
		return plan.StageShared
	}
}

// objectState reads live and says how it was found. What druid would not write any more changes the hash, which is
// one of the fields that are compared; what someone changed by hand differs in its own field.
func objectState(ctx context.Context, from client.Reader, o *observation, live client.Object, a manifests.Applied) (plan.ObjectState, error) {
	err := from.Get(ctx, types.NamespacedName{Namespace: a.Namespace, Name: a.Name}, live)
	switch {
	case apierrors.IsNotFound(err):
		return plan.ObjectAbsent, nil
	case err != nil:
		return plan.ObjectAbsent, fmt.Errorf("get %s %s/%s: %w", a.Kind.Kind, a.Namespace, a.Name, err)
	case !ours(o.cluster, live):
		return plan.ObjectForeign, nil
	}
	held, err := a.HeldBy(live)
	if held {
		return plan.ObjectCurrent, err
	}
	return plan.ObjectOutdated, err
}

func observeBudget(ctx context.Context, from source, o *observation) error {
	var budget policyv1.PodDisruptionBudget
	// The number that the plan wants is not known yet, so the budget is compared with what it would be with the number
	// that it has.
	a, err := manifests.DisruptionBudget(o.cluster, 0)
	if err != nil {
		return err
	}
	state, err := objectState(ctx, from, o, &budget, a)
	if err != nil {
		return err
	}
	if state == plan.ObjectOutdated && budget.Spec.MinAvailable != nil {
		if a, err = manifests.DisruptionBudget(o.cluster, budget.Spec.MinAvailable.IntVal); err != nil {
			return err
		}
		held, err := a.HeldBy(&budget)
		if err != nil {
			return err
		}
		if held {
			state = plan.ObjectCurrent
		}
		o.observed.BudgetMin = int(budget.Spec.MinAvailable.IntVal)
	}
	o.observed.Budget = state
	return nil
}
