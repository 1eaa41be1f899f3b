package druid

import (
	"context"
	"fmt"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/druid/plan"
	"github.com/etcd-druid/druid/internal/crash"
	"github.com/etcd-druid/druid/leases"
)

// markHealing announces on the member's Lease what is about to be done about the member, or takes the word back. It is a
// compare-and-set on the Lease as the plan saw it.
func (r *Reconciler) markHealing(ctx context.Context, o *observation, step plan.Step) error {
	value, err := step.Healing.Encode()
	if err != nil {
		return err
	}
	annotations := map[string]*string{leases.AnnotationHealing: nil}
	if value != "" {
		annotations[leases.AnnotationHealing] = &value
	}
	lease := o.leases[step.Member]
	crash.Before("mark-healing")
	err = r.patchMetadata(ctx, lease.DeepCopy(), metadataPatch{
		UID: string(lease.UID), ResourceVersion: lease.ResourceVersion, Annotations: annotations,
	})
	crash.After("mark-healing")
	if err != nil {
		return fmt.Errorf("mark Lease %s: %w", step.Member, err)
	}
	switch before := healingOf(o, step.Member); {
	case step.Healing.Restarts > before.Restarts:
		r.inform(o, v1alpha1.EventPodRestarted, step, "Pod %s is restarted because its etcd was not ready for %s; restarts in a row: %d",
			step.Member, plan.Patience(r.grace, before.Restarts), step.Healing.Restarts)
	case step.Healing.ClaimUID != "" && step.Healing.ClaimUID != before.ClaimUID:
		r.inform(o, v1alpha1.EventVolumeAbandoned, step, "The volume of member %s is given up: its node %s was declared lost, and alone could mount it",
			step.Member, nodeOf(o, step.Member))
	}
	return nil
}

func healingOf(o *observation, member string) leases.Healing {
	for _, m := range o.observed.Members {
		if m.Name == member {
			return m.Says.Healing
		}
	}
	return leases.Healing{}
}

func nodeOf(o *observation, member string) string {
	for _, m := range o.observed.Members {
		if m.Name == member {
			return m.NodeName
		}
	}
	return ""
}
