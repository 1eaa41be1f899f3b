package plugin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/view"
	"github.com/etcd-druid/druid/leases"
)

// restorePoll is the pause between two looks at the plan of druid.
const restorePoll = time.Second

// requestOf is spec.recovery.restore for a target.
func requestOf(t leases.RestoreTarget) v1alpha1.RestoreInPlace {
	request := v1alpha1.RestoreInPlace{Revision: t.Revision, Lineage: t.Lineage, Latest: t.Revision == 0 && t.Time.IsZero()}
	if !t.Time.IsZero() {
		request.Time = &metav1.Time{Time: t.Time}
	}
	return request
}

// fieldsOf are the fields of a request that are set.
func fieldsOf(request v1alpha1.RestoreInPlace) map[string]any {
	fields := map[string]any{}
	if request.Revision > 0 {
		fields["revision"] = request.Revision
	}
	if request.Time != nil {
		fields["time"] = request.Time.UTC().Format(time.RFC3339)
	}
	if request.Latest {
		fields["latest"] = true
	}
	if request.Lineage != "" {
		fields["lineage"] = request.Lineage
	}
	return fields
}

// same says whether both requests are for the same state.
func same(a, b v1alpha1.RestoreInPlace) bool {
	return a.Revision == b.Revision && a.Latest == b.Latest && a.Lineage == b.Lineage && a.Time.Equal(b.Time)
}

// requestable says why the restore cannot be requested now.
func (s selection) requestable(c v1alpha1.EtcdCluster, target leases.RestoreTarget) error {
	withdraw := s.invoke(c, "restore") + " --cancel"
	if r := c.Status.Recovery; r != nil && underWay(r.Phase) {
		return fmt.Errorf("a restore or a recovery is under way, in the phase %s. See it: %s. To withdraw a restore: %s", r.Phase, s.invoke(c, "recover"), withdraw)
	}
	if c.Spec.Recovery != nil && c.Spec.Recovery.Restore != nil && same(*c.Spec.Recovery.Restore, requestOf(target)) {
		return fmt.Errorf("spec.recovery.restore requests this already. See the plan: %s. To request it once more, withdraw it first: %s",
			s.invoke(c, "recover"), withdraw)
	}
	return nil
}

// targetOf is the target of spec.recovery.restore.
func targetOf(r v1alpha1.RestoreInPlace) leases.RestoreTarget {
	t := leases.RestoreTarget{Revision: r.Revision, Lineage: r.Lineage}
	if r.Time != nil {
		t.Time = r.Time.UTC()
	}
	return t
}

// requestRestore writes the request, and waits for the plan of druid. The agent can have needed minutes for its plan,
// so the EtcdCluster is read and checked again. notes are those of the agent's plan.
func (o *options) requestRestore(cmd *cobra.Command, k *kube, name string, target leases.RestoreTarget, notes []string, f restoreFlags) error {
	objects, err := k.objects(cmd.Context(), name)
	if err != nil {
		return err
	}
	c := objects.Cluster
	if err = k.restorable(c, view.Of(objects, o.now())); err == nil {
		err = k.requestable(c, target)
	}
	if err != nil {
		return fmt.Errorf("restore EtcdCluster %s/%s: %w. Nothing was changed", c.Namespace, c.Name, err)
	}
	// A merge patch keeps what it does not name, and one target excludes the others.
	restore := map[string]any{"revision": nil, "time": nil, "latest": nil, "lineage": nil}
	maps.Copy(restore, fieldsOf(requestOf(target)))
	patch := map[string]any{
		"metadata": map[string]any{"resourceVersion": c.ResourceVersion}, "spec": map[string]any{"recovery": map[string]any{"restore": restore}},
	}
	if err := k.patch(cmd, c, patch); err != nil {
		return err
	}
	p := o.page(cmd, k)
	p.line(cell{text: fmt.Sprintf("You requested to restore %s in EtcdCluster %s/%s.", target, c.Namespace, c.Name)})
	if c.Spec.Recovery != nil && c.Spec.Recovery.Restore != nil {
		p.line(cell{fmt.Sprintf("It replaces the request for %s.", targetOf(*c.Spec.Recovery.Restore)), middle})
	}
	for _, note := range notes {
		p.line(cell{"Note: " + sentence(note), middle})
	}
	p.line(cell{text: "druid changes nothing before you approve its plan."})
	p.waits(c)
	ctx, cancel := context.WithTimeout(cmd.Context(), f.timeout)
	defer cancel()
	planned, err := awaited(cmd, "the plan of druid", func() (v1alpha1.EtcdCluster, error) { return k.awaitPlan(ctx, c, target) })
	switch {
	case errors.Is(err, errNoPlanYet):
		p.line(cell{"druid has no plan yet. See it later: " + k.invoke(c, "recover"), middle})
		return p.err
	case err != nil:
		return err
	}
	p.line()
	p.recovery(planned)
	if planned.Status.Recovery.Phase == v1alpha1.RecoveryRefused && p.err == nil {
		return fmt.Errorf("restore EtcdCluster %s/%s: druid refuses. Read the cause. To withdraw the request: %s --cancel", c.Namespace, c.Name,
			k.invoke(c, "restore"))
	}
	return f.waiting.awaitRecovery(cmd, k, p, planned, planned.Status.Recovery.Plan.Hash)
}

var errNoPlanYet = errors.New("there is no plan yet")

// awaitPlan returns the EtcdCluster when its status has an answer to the request.
func (k *kube) awaitPlan(ctx context.Context, before v1alpha1.EtcdCluster, target leases.RestoreTarget) (v1alpha1.EtcdCluster, error) {
	for poll := time.Tick(restorePoll); ; {
		now, err := k.cluster(ctx, before.Name)
		switch {
		case errors.Is(ctx.Err(), context.DeadlineExceeded):
			return now, errNoPlanYet
		case err != nil:
			return now, err
		case answersTo(before.Status.Recovery, now.Status.Recovery, target):
			return now, nil
		}
		select {
		case <-poll:
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return now, errNoPlanYet
			}
			return now, ctx.Err()
		}
	}
}

// answersTo says whether the status answers the request, and not one before it.
func answersTo(before, now *v1alpha1.RecoveryStatus, target leases.RestoreTarget) bool {
	switch {
	case now == nil:
		return false
	case now.Phase == v1alpha1.RecoveryProposed:
		return restores(now.Plan) && now.Plan.Target == target.String()
	case now.Phase == v1alpha1.RecoveryRefused:
		return strings.Contains(now.Message, target.String()+":") || !reflect.DeepEqual(before, now)
	default: // it is planned, or the status is older than the request
		return false
	}
}

// cancelRestore withdraws the request.
func (o *options) cancelRestore(cmd *cobra.Command, k *kube, name string) error {
	c, err := k.cluster(cmd.Context(), name)
	if err != nil {
		return err
	}
	if c.Spec.Recovery == nil || c.Spec.Recovery.Restore == nil {
		return fmt.Errorf("EtcdCluster %s/%s requests no restore: spec.recovery.restore is not set", c.Namespace, c.Name)
	}
	patch := map[string]any{
		"metadata": map[string]any{"resourceVersion": c.ResourceVersion}, "spec": map[string]any{"recovery": map[string]any{"restore": nil}},
	}
	if err := k.patch(cmd, c, patch); err != nil {
		return err
	}
	p := o.page(cmd, k)
	p.line(cell{text: fmt.Sprintf("You withdrew the restore of EtcdCluster %s/%s.", c.Namespace, c.Name)})
	phase := v1alpha1.RecoveryPhase("")
	if c.Status.Recovery != nil {
		phase = c.Status.Recovery.Phase
	}
	switch phase {
	case v1alpha1.RecoveryRecovered:
		p.line(cell{text: "The restore was complete, so the data stays as it is. To undo it, see " + inPlacePage})
	case v1alpha1.RecoverySaving, v1alpha1.RecoveryPreparing, v1alpha1.RecoveryExecuting:
		p.line(cell{text: "The cluster continues with its present data, unless the restored cluster is formed meanwhile."})
	default:
		p.line(cell{text: "The cluster continues with its present data."})
	}
	p.waits(c)
	p.line(cell{text: "See the progress: " + k.invoke(c, "status")})
	return p.err
}
