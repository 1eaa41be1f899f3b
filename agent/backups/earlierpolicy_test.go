package backups

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

// The admission policy of an earlier druid refuses an annotation that it does not know, for example after a rollback. Full backups are reported
// without it.
func TestEarlierPolicyRefusesAuth(t *testing.T) {
	t.Parallel()
	admin, namespace, agentOf := snapshotLeases(t)
	refuseAuthSaved(t, admin, namespace)
	g := newGroup(t, 1)
	c := directory(t.TempDir())
	a := agentOf(g, 0)
	a.AuthIs(g.self(0).ClusterID, membership.AuthSwitch{Enabled: true, Revision: 5})
	a.Configure(c)
	a.start()
	eventually(t, "the Lease has the full backup", func() error {
		b, err := decoded(t, admin, namespace, leases.FullSnapshotName("demo"))
		if err != nil {
			return err
		}
		if b.Object == "" || b.Object != history(t, opened(t, c)).Fulls[0].Key {
			return fmt.Errorf("it has %q", b.Object)
		}
		if b.Auth != (leases.BackupAuth{}) {
			t.Fatalf("the policy accepted %+v", b.Auth)
		}
		return nil
	})
}

// refuseAuthSaved has the API server refuse the annotation, in the namespace alone.
func refuseAuthSaved(t *testing.T, admin *kubernetes.Clientset, namespace string) {
	t.Helper()
	const annotation = leases.Prefix + "auth-saved"
	meta := metav1.ObjectMeta{Name: namespace + "-earlier"}
	api := admin.AdmissionregistrationV1()
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: meta, Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admissionregistrationv1.MatchResources{
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}},
			ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Update},
				Rule: admissionregistrationv1.Rule{
					APIGroups: []string{coordinationv1.GroupName}, APIVersions: []string{"v1"}, Resources: []string{"leases"},
				},
			}}},
		},
		Validations: []admissionregistrationv1.Validation{{
			Expression: fmt.Sprintf("!has(object.metadata.annotations) || !('%s' in object.metadata.annotations)", annotation),
			Message:    "unknown annotation", Reason: new(metav1.StatusReasonForbidden),
		}},
	}}
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: meta, Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
		PolicyName: meta.Name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
	}}
	if _, err := api.ValidatingAdmissionPolicies().Create(t.Context(), policy, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := api.ValidatingAdmissionPolicyBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{annotation: "1 on full"}}})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the API server refuses the annotation", func() error {
		_, err := admin.CoordinationV1().Leases(namespace).Patch(t.Context(), leases.FullSnapshotName("demo"), types.MergePatchType, patch,
			metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil {
			return errors.New("it does not yet")
		}
		return nil
	})
}
