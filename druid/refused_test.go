package druid

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/druid/control"
	"github.com/etcd-druid/druid/druid/policy"
	"github.com/etcd-druid/druid/manifests"
)

// refuse has the API server refuse to make or to change what the resource names, in the namespace of the stage, until the returned
// function is called. probe is an object of that resource by which the test sees that it does.
func (s *stage) refuse(group, resource string, probe client.Object) (allow func()) {
	s.Helper()
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: s.namespace + "-" + resource},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: s.namespace}},
				ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
					Rule:       admissionregistrationv1.Rule{APIGroups: []string{group}, APIVersions: []string{"*"}, Resources: []string{resource}},
				}}},
			},
			Validations: []admissionregistrationv1.Validation{{Expression: "false", Message: "no " + resource + " here"}},
		},
	}
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: policy.Name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: policy.Name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		},
	}
	for _, object := range []client.Object{policy, binding} {
		if err := s.Create(s.Context(), object); err != nil {
			s.Fatal(err)
		}
		s.Cleanup(func() { _ = s.Delete(context.WithoutCancel(s.Context()), object) }) // the API server ends with the tests
	}
	probe.SetNamespace(s.namespace)
	probe.SetName("probe")
	refused := func() bool {
		err := s.Create(s.Context(), probe.DeepCopyObject().(client.Object), client.DryRunAll)
		return err != nil && strings.Contains(err.Error(), "no "+resource+" here")
	}
	s.eventually("the API server refuses "+resource, func() error {
		if !refused() {
			return fmt.Errorf("it does not yet")
		}
		return nil
	})
	return func() {
		s.Helper()
		if err := s.Delete(s.Context(), binding); err != nil {
			s.Fatal(err)
		}
		s.eventually("the API server takes "+resource, func() error {
			if refused() {
				return fmt.Errorf("it does not yet")
			}
			return nil
		})
	}
}

// try lets druid make some passes of which each may fail.
func (c *clocked) try() (err error) {
	for range 5 {
		err = c.reconcile(c.Reconciler)
	}
	return err
}

// outdate changes an object that druid applies, so that druid wants to write it.
func (s *stage) outdate(name string, object client.Object) {
	s.Helper()
	s.edit(name, object, func() { object.SetAnnotations(map[string]string{manifests.AnnotationHash: "of an older druid"}) })
}

// TestPodReturnsDespiteRefusedObject: a lost Pod comes back while a shared object is refused.
func TestPodReturnsDespiteRefusedObject(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		group, resource string
		name            string
		object          client.Object
	}{
		"the Role of the agents":  {"rbac.authorization.k8s.io", "roles", manifests.AgentName("demo"), &rbacv1.Role{}},
		"what binds the Role":     {"rbac.authorization.k8s.io", "rolebindings", manifests.AgentName("demo"), &rbacv1.RoleBinding{}},
		"the ServiceAccount":      {"", "serviceaccounts", manifests.AgentName("demo"), &corev1.ServiceAccount{}},
		"the ConfigMap":           {"", "configmaps", manifests.AgentName("demo"), &corev1.ConfigMap{}},
		"the Services":            {"", "services", manifests.PeerServiceName("demo"), &corev1.Service{}},
		"the PodDisruptionBudget": {"policy", "poddisruptionbudgets", manifests.DisruptionBudgetName("demo"), &policyv1.PodDisruptionBudget{}},
	} {
		t.Run(name, func(t *testing.T) {
			c, names := stuckCluster(t, 3)
			lost := names[2]
			c.outdate(test.name, test.object)
			probe := test.object.DeepCopyObject().(client.Object)
			probe.SetResourceVersion("")
			probe.SetUID("")
			allow := c.refuse(test.group, test.resource, probe)
			before := c.uids(names, &corev1.Pod{})[lost]
			c.end(lost)
			if err := c.try(); err == nil {
				t.Error("the refusal is not reported, and not tried again")
			}
			c.replaced(lost, before, &corev1.Pod{})
			if d := c.degraded(t); d.Reason != v1alpha1.ReasonAPIRequestRejected || !strings.Contains(d.Message, "no "+test.resource+" here") {
				t.Errorf("condition Degraded says %s: %s", d.Reason, d.Message)
			}
			c.kubelet(lost, true)
			c.renew(names, 2)
			_ = c.try()
			var pod corev1.Pod
			if err := c.fetch(lost, &pod); err != nil || pod.Labels[manifests.LabelServing] != manifests.LabelTrue {
				t.Errorf("the Pod that came back gets no clients: %v, %v", pod.Labels, err)
			}
			allow()
			c.pass()
			if err := c.fetch(test.name, test.object); err != nil || test.object.GetAnnotations()[manifests.AnnotationHash] == "of an older druid" {
				t.Errorf("%s is not what it should be: %v, %v", test.name, test.object.GetAnnotations(), err)
			}
		})
	}
}

func TestNoPodIsMadeThatCouldNotStart(t *testing.T) {
	c, names := stuckCluster(t, 3)
	allow := c.refuse("", "serviceaccounts", &corev1.ServiceAccount{})
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: manifests.AgentName("demo")}}
	if err := c.stage.Delete(t.Context(), account); err != nil {
		t.Fatal(err)
	}
	c.end(names[2])
	_ = c.try()
	if err := c.fetch(names[2], &corev1.Pod{}); !apierrors.IsNotFound(err) {
		t.Errorf("a Pod was made without a ServiceAccount: %v", err)
	}
	if posts := c.deeds.matching("POST", "/pods"); len(posts) > 0 {
		t.Errorf("druid tried to: %v", posts)
	}
	allow()
	c.pass()
	if err := c.fetch(names[2], &corev1.Pod{}); err != nil {
		t.Error(err)
	}
}

// A cluster forms, and its clients are served, where the API server takes no PodDisruptionBudget.
func TestClientsAreServedWhereNoBudgetMayBe(t *testing.T) {
	s := newStage(t)
	s.node(s.nodeName(), true)
	allow := s.refuse("policy", "poddisruptionbudgets", &policyv1.PodDisruptionBudget{})
	s.createCluster("demo", 1)
	c := s.clockedQuiet()
	_ = c.try()
	names := c.members("demo", 1)
	c.form("demo", names)
	_ = c.try()
	var pod corev1.Pod
	if err := c.fetch(names[0], &pod); err != nil || pod.Labels[manifests.LabelServing] != manifests.LabelTrue {
		t.Errorf("clients are not sent to the member: %v, %v", pod.Labels, err)
	}
	allow()
	c.pass()
	if err := c.fetch(manifests.DisruptionBudgetName("demo"), &policyv1.PodDisruptionBudget{}); err != nil {
		t.Error(err)
	}
}

// TestNoReplacementWithoutBudget: no Pod is replaced while the budget cannot be raised.
// What would cost a ready member waits for the budget, and its clients stay.
func TestNoReplacementWithoutBudget(t *testing.T) {
	c, names := renewed(t)
	allow := c.refuse("policy", "poddisruptionbudgets", &policyv1.PodDisruptionBudget{})
	c.patchCluster(`{"spec":{"resources":{"requests":{"cpu":"100m"}}}}`)
	_ = c.try()
	if going := c.going(names); len(going) > 0 {
		t.Errorf("%v go while any other may be evicted", going)
	}
	for _, name := range names {
		var pod corev1.Pod
		if err := c.fetch(name, &pod); err != nil || pod.Labels[manifests.LabelServing] != manifests.LabelTrue {
			t.Errorf("clients are not sent to %s, which stays: %v, %v", name, pod.Labels, err)
		}
	}
	allow()
	c.pass()
	if going := c.going(names); len(going) != 1 {
		t.Errorf("%v go, want one", going)
	}
}

// TestFewRequestsInDeletedNamespace: few objects are requested in a namespace that is being deleted.
// Whatever changes in a namespace that is being deleted, druid asks for an object once in each pause.
func TestFewRequestsInDeletedNamespace(t *testing.T) {
	c, names := stuckCluster(t, 3)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.namespace}}
	if err := c.stage.Delete(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	before := len(c.deeds.writes())
	for _, name := range names {
		c.end(name)
		_ = c.try()
	}
	if posts := c.deeds.matching("POST", "/pods"); len(posts) != 1 {
		t.Errorf("druid requested Pods %d times, want 1: %v", len(posts), posts)
	}
	if writes := c.deeds.writes()[before:]; len(writes) > 6 {
		t.Errorf("druid wrote %d times:\n%s", len(writes), strings.Join(writes, "\n"))
	}
	c.at = c.at.Add(control.NamePause + time.Second)
	_ = c.try()
	if posts := c.deeds.matching("POST", "/pods"); len(posts) <= 1 {
		t.Errorf("druid did not try again after the pause: %v", posts)
	}
}

func TestProblemsThatNeedTheUserAreReported(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	terminating := apierrors.NewForbidden(pods, "demo-a", errors.New("the namespace goes"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: control.NamespaceTerminating}}
	// As k8s.io/apiserver/pkg/admission/plugin/webhook/errors makes it of a webhook's answer without a code.
	denied := &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: 400, Message: `admission webhook "policy" denied the request`}}
	tests := map[string]struct {
		err      error
		reported string
	}{
		"a quota":                  {apierrors.NewForbidden(pods, "demo-a", errors.New("exceeded quota")), v1alpha1.ReasonAPIRequestRejected},
		"a namespace that goes":    {terminating, ""},
		"an object that cannot be": {apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "demo-a", nil), v1alpha1.ReasonAPIRequestRejected},
		"a webhook that refuses":   {denied, v1alpha1.ReasonAPIRequestRejected},
		"a webhook that does not answer": {apierrors.NewInternalError(errors.New(`failed calling webhook "policy": connection refused`)),
			v1alpha1.ReasonAPIRequestRejected},
		"an etcd that does not answer": {apierrors.NewInternalError(errors.New("etcdserver: request timed out")), ""},
		"a conflict":                   {apierrors.NewConflict(pods, "demo-a", nil), ""},
		"a name that is taken":         {&foreignError{kind: "Pod", name: "demo-a"}, v1alpha1.ReasonObjectNotOwned},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			problems, _ := classify(policy.Step{Member: "demo-a"}, fmt.Errorf("CreatePod: %w", test.err))
			reported := ""
			for _, p := range problems {
				reported += p.Reason
			}
			if reported != test.reported {
				t.Errorf("reported %q, want %q", reported, test.reported)
			}
		})
	}
}

// hook has the API server ask a webhook that can reject each Pod of the namespace.
func (s *stage) hook(server *httptest.Server) client.Object {
	s.Helper()
	const name = "policy.example.com"
	return s.askAboutPods(server, func(w webhook) client.Object {
		return &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: w.meta, Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: name, ClientConfig: w.server, NamespaceSelector: w.namespace, Rules: w.rules,
			SideEffects: w.effects, AdmissionReviewVersions: w.versions,
		}}}
	}, func(_ *corev1.Pod, err error) error {
		if err == nil || !strings.Contains(err.Error(), name) {
			return fmt.Errorf("it does not yet: %w", err)
		}
		return nil
	})
}

// deny refuses without a code, as most policies do.
func deny(w http.ResponseWriter, r *http.Request) {
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Result: &metav1.Status{Message: "no such Pod here"}}
	_ = json.NewEncoder(w).Encode(review)
}

// TestRejectedPodReportedThenCreated: a Pod that a webhook rejects is reported and created later.
func TestRejectedPodReportedThenCreated(t *testing.T) {
	for name, test := range map[string]struct {
		answers bool
		words   string
	}{
		"it refuses":         {true, "no such Pod here"},
		"it does not answer": {false, "failed calling webhook"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			server := httptest.NewTLSServer(http.HandlerFunc(deny))
			defer server.Close()
			if !test.answers {
				server.Close()
			}
			hook := s.hook(server)
			s.startDruid()
			s.createCluster("demo", 1)
			s.condition("demo", v1alpha1.ConditionDegraded, metav1.ConditionTrue, v1alpha1.ReasonAPIRequestRejected)
			var cluster v1alpha1.EtcdCluster
			if err := s.fetch("demo", &cluster); err != nil {
				t.Fatal(err)
			}
			reported := meta.FindStatusCondition(cluster.Status.Conditions, v1alpha1.ConditionDegraded).Message
			if !strings.Contains(reported, test.words) || !policy.RefusedBy(cluster.Status.Conditions) {
				t.Errorf("the condition says %q", reported)
			}
			if err := s.Delete(t.Context(), hook); err != nil {
				t.Fatal(err)
			}
			s.members("demo", 1)
		})
	}
}
