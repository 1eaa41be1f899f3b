package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/manifests"
	"github.com/etcd-druid/druid/test/e2e/harness"
	"github.com/etcd-druid/druid/test/e2e/stories"
)

// TestPodReturnsDespiteRefusedRole: a lost Pod comes back while the API server refuses another object.
// A policy that refuses one object of a cluster keeps nothing else of it from healing.
func TestPodReturnsDespiteRefusedRole(t *testing.T) {
	stories.Begin(t)
	c := rig.Apply(t)
	view := c.Agree(t, 3, formWithin)
	w := harness.Write(t, c.EtcdService(t))
	w.AwaitWrites(t, 20, time.Minute)
	for _, test := range []struct {
		name, group, resource, object string
		kind                          client.Object
	}{
		{"a Role", "rbac.authorization.k8s.io", "roles", manifests.AgentName(c.Name), &rbacv1.Role{}},
		{"a PodDisruptionBudget", "policy", "poddisruptionbudgets", manifests.DisruptionBudgetName(c.Name), &policyv1.PodDisruptionBudget{}},
	} {
		t.Run(test.name+" is refused", func(t *testing.T) {
			allow := refuse(t, c, test.group, test.resource)
			harness.Eventually(t, healWithin, "druid is refused "+test.resource, func(ctx context.Context) error {
				test.kind.SetNamespace(c.Namespace)
				test.kind.SetName(test.object)
				// Until the policy holds druid puts it right again.
				if err := rig.Client.Patch(ctx, test.kind, client.RawPatch(types.MergePatchType, []byte(outdated))); err != nil {
					return err
				}
				cluster, err := c.Get(ctx)
				if err != nil {
					return err
				}
				degraded := meta.FindStatusCondition(cluster.Status.Conditions, v1alpha1.ConditionDegraded)
				if degraded == nil || degraded.Reason != v1alpha1.ReasonAPIRequestRejected {
					return fmt.Errorf("condition Degraded is %+v", degraded)
				}
				return nil
			})
			deletePod(t, c, view.Follower())
			harness.Eventually(t, healWithin, "clients are sent to all members", func(ctx context.Context) error {
				for member := range view.Members {
					pod, err := c.Pod(ctx, member)
					if err != nil || pod.Labels[manifests.LabelServing] != manifests.LabelTrue {
						return fmt.Errorf("%s is not among those that serve (%w)", member, err)
					}
				}
				return nil
			})
			allow()
			c.AwaitCondition(t, healWithin, "Degraded", "False")
			same(t, view, c.Agree(t, 3, healWithin))
		})
	}
	w.Stop(t, c.Etcd(t))
}

// Names that a user takes out of the record come back, and no other is drawn.
func TestNamesRemovedByUserReturn(t *testing.T) {
	stories.Begin(t)
	c := rig.Apply(t)
	view := c.Agree(t, 3, formWithin)
	w := harness.Write(t, c.Etcd(t))
	names := c.MemberNames(t)
	for _, left := range []string{"", names[0], names[1] + "," + names[2]} {
		record, err := c.Lease(t.Context(), leases.RecordName(c.Name))
		if err != nil {
			t.Fatal(err)
		}
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{leases.Prefix + "members": left}}})
		if err != nil {
			t.Fatal(err)
		}
		if err := rig.Client.Patch(t.Context(), record, client.RawPatch(types.MergePatchType, patch)); err != nil {
			t.Fatal(err)
		}
		harness.Eventually(t, healWithin, "the names in the record", func(ctx context.Context) error {
			lease, err := c.Lease(ctx, leases.RecordName(c.Name))
			if err != nil {
				return err
			}
			is, err := leases.DecodeRecord(lease)
			if err == nil && !slices.Equal(is.Members, names) {
				return fmt.Errorf("the record lists %v, want %v", is.Members, names)
			}
			return err
		})
		same(t, view, c.Agree(t, 3, healWithin))
	}
	servedOn(t, w)
	w.Stop(t, c.Etcd(t))
}

// outdated makes druid want to write an object.
const outdated = `{"metadata":{"annotations":{"` + manifests.AnnotationHash + `":"of an older druid"}}}`

// refuse has the API server refuse what druid makes or changes of the resource, in the namespace of the cluster.
func refuse(t *testing.T, c *harness.Cluster, group, resource string) (allow func()) {
	t.Helper()
	name := c.Namespace + "-" + resource
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: c.Namespace}},
				ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
					Rule:       admissionregistrationv1.Rule{APIGroups: []string{group}, APIVersions: []string{"*"}, Resources: []string{resource}},
				}}},
			},
			Validations: []admissionregistrationv1.Validation{{Expression: "!request.userInfo.username.endsWith(':druid')", Message: "no " + resource + " here"}},
		},
	}
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		},
	}
	for _, object := range []client.Object{policy, binding} {
		if err := rig.Client.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = client.IgnoreNotFound(rig.Client.Delete(context.WithoutCancel(t.Context()), object)) })
	}
	return func() {
		t.Helper()
		if err := rig.Client.Delete(t.Context(), binding); err != nil {
			t.Fatal(err)
		}
	}
}
