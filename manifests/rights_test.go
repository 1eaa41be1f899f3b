package manifests

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1ac "k8s.io/client-go/applyconfigurations/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/api/v1alpha1"
)

// right is one request and whether it must be allowed.
type right struct {
	do   func() error
	want bool
}

func check(t *testing.T, rights map[string]right) {
	t.Helper()
	got, want := map[string]bool{}, map[string]bool{}
	for name, r := range rights {
		err := r.do()
		if err != nil && !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v", name, err)
		}
		got[name], want[name] = err == nil, r.want
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("allowed (-want +got):\n%s", diff)
	}
}

func (in *installed) agentRights(t *testing.T) {
	ctx, ns := t.Context(), in.cluster.Namespace
	lease := func(name string) *coordinationv1.Lease {
		return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: ns}}
	}
	get := func(name string) func() error {
		return func() error { return in.agent.Get(ctx, client.ObjectKey{Namespace: ns, Name: name}, lease(name)) }
	}
	patch := func(name string) func() error {
		return func() error {
			patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"etcd.druid.dev/lineage":"yes"}}}`))
			return in.agent.Patch(ctx, lease(name), patch)
		}
	}
	update := func(name string) func() error {
		return func() error {
			l := lease(name)
			if err := in.agent.Get(ctx, client.ObjectKeyFromObject(l), l); err != nil {
				return err
			}
			return in.agent.Update(ctx, l)
		}
	}
	watch := func(name string) func() error {
		return func() error {
			w, err := in.agent.Watch(ctx, &coordinationv1.LeaseList{}, client.InNamespace(ns), client.MatchingFields{"metadata.name": name})
			if err == nil {
				w.Stop()
			}
			return err
		}
	}
	allowed(t, "agents", get(member))
	other := MemberLease(in.cluster, "demo-other")
	if err := in.druid.Create(ctx, other); err != nil {
		t.Fatalf("create the Lease of a name that the record does not list: %v", err)
	}
	check(t, map[string]right{
		"read the record":                        {get("demo-cluster"), true},
		"change the record":                      {update("demo-cluster"), true},
		"watch the record":                       {watch("demo-cluster"), true},
		"watch for orders of full backups":       {watch("demo-full-snapshot"), true},
		"watch for orders of deltas":             {watch("demo-delta-snapshot"), true},
		"watch its own Lease":                    {watch(member), false},
		"read its own Lease":                     {get(member), true},
		"renew its own Lease":                    {patch(member), true},
		"campaign":                               {update("demo-leader"), true},
		"report a full backup":                   {patch("demo-full-snapshot"), true},
		"report deltas":                          {patch("demo-delta-snapshot"), true},
		"read a Lease that the record lists not": {get("demo-other"), false},
		"renew such a Lease":                     {patch("demo-other"), false},
		"make a Lease":                           {func() error { return in.agent.Create(ctx, lease("demo-new")) }, false},
		"make a Lease of a listed name": {func() error {
			gone := coordinationv1ac.Lease(lost, ns).WithAnnotations(map[string]string{"test": "yes"})
			return in.agent.Apply(ctx, gone, client.FieldOwner("agent"))
		}, false},
		"list its own Lease": {func() error {
			return in.agent.List(ctx, &coordinationv1.LeaseList{}, client.InNamespace(ns), client.MatchingFields{"metadata.name": member})
		}, false},
		"watch Leases": {func() error {
			w, err := in.agent.Watch(ctx, &coordinationv1.LeaseList{}, client.InNamespace(ns))
			if err == nil {
				w.Stop()
			}
			return err
		}, false},
		"delete its own Lease": {func() error { return in.agent.Delete(ctx, lease(member)) }, false},
		"list Leases": {func() error {
			return in.agent.List(ctx, &coordinationv1.LeaseList{}, client.InNamespace(ns))
		}, false},
		"read Pods":    {func() error { return in.agent.List(ctx, &corev1.PodList{}, client.InNamespace(ns)) }, false},
		"read Secrets": {func() error { return in.agent.List(ctx, &corev1.SecretList{}, client.InNamespace(ns)) }, false},
	})
}

func (in *installed) druidRights(t *testing.T) {
	ctx, ns := t.Context(), in.cluster.Namespace
	check(t, map[string]right{
		"read Secrets": {func() error { return in.druid.List(ctx, &corev1.SecretList{}, client.InNamespace(ns)) }, false},
		"delete the Lease of a cluster that is not backed up any more": {func() error {
			lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "demo-full-snapshot", Namespace: ns}}
			return in.druid.Delete(ctx, lease, client.DryRunAll)
		}, true},
		"delete the claim of a lost volume": {func() error {
			return in.druid.Delete(ctx, PersistentVolumeClaim(in.cluster, member), client.DryRunAll)
		}, true},
		"delete a volume": {func() error {
			return in.druid.Delete(ctx, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "any"}}, client.DryRunAll)
		}, false},
		"change a node": {func() error {
			return in.druid.Patch(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "any"}},
				client.RawPatch("application/merge-patch+json", []byte(`{}`)), client.DryRunAll)
		}, false},
		"change endpoints": {func() error {
			return in.druid.Create(ctx, &discoveryv1.EndpointSlice{
				ObjectMeta: metav1.ObjectMeta{Name: "demo", Namespace: ns}, AddressType: discoveryv1.AddressTypeIPv4,
			}, client.DryRunAll)
		}, false},
		"delete the Service of the leader": {func() error {
			return in.druid.Delete(ctx, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "demo-leader", Namespace: ns}}, client.DryRunAll)
		}, true},
		"delete the disruption budget of a paused cluster": {func() error {
			return in.druid.Delete(ctx, &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "demo", Namespace: ns}}, client.DryRunAll)
		}, true},
		"hold an EtcdCluster": {func() error {
			patch := fmt.Appendf(nil, `{"metadata":{"finalizers":[%q]}}`, v1alpha1.JoinFinalizer)
			return in.druid.Patch(ctx, in.cluster.DeepCopy(), client.RawPatch("application/merge-patch+json", patch), client.DryRunAll)
		}, true},
		"replace what the user wants": {func() error {
			return in.druid.Update(ctx, in.cluster.DeepCopy(), client.DryRunAll)
		}, false},
		"delete an EtcdCluster": {func() error {
			return in.druid.Delete(ctx, in.cluster.DeepCopy(), client.DryRunAll)
		}, false},
		"write the status": {func() error {
			return in.druid.Status().Patch(ctx, in.cluster.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(`{"status":{"readyReplicas":1}}`)))
		}, true},
		"delete a Pod": {func() error {
			return in.druid.Delete(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: member, Namespace: ns}}, client.DryRunAll)
		}, true},
	})
}

func (in *installed) druidPod(t *testing.T) {
	deployment := installedDeployment(t)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "druid", Namespace: deployment.Namespace},
		Spec:       deployment.Spec.Template.Spec,
	}
	if err := in.admin.Create(t.Context(), pod, client.DryRunAll); err != nil {
		t.Errorf("create druid's Pod in its own namespace: %v", err)
	}
}
