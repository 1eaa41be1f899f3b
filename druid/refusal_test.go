package druid

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/druid/plan"
)

func TestWhatAPersonMustRepairIsReported(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	terminating := apierrors.NewForbidden(pods, "demo-a", errors.New("the namespace goes"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: namespaceTerminating}}
	// As k8s.io/apiserver/pkg/admission/plugin/webhook/errors makes it of a webhook's answer without a code.
	denied := &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: 400, Message: `admission webhook "policy" denied the request`}}
	tests := map[string]struct {
		err      error
		notified string
	}{
		"a quota":                        {apierrors.NewForbidden(pods, "demo-a", errors.New("exceeded quota")), v1alpha1.ReasonAPIRequestRejected},
		"a namespace that goes":          {terminating, ""},
		"an object that cannot be":       {apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "demo-a", nil), v1alpha1.ReasonAPIRequestRejected},
		"a webhook that refuses":         {denied, v1alpha1.ReasonAPIRequestRejected},
		"a webhook that does not answer": {apierrors.NewInternalError(errors.New(`failed calling webhook "policy": connection refused`)), v1alpha1.ReasonAPIRequestRejected},
		"an etcd that does not answer":   {apierrors.NewInternalError(errors.New("etcdserver: request timed out")), ""},
		"a conflict":                     {apierrors.NewConflict(pods, "demo-a", nil), ""},
		"a name that is taken":           {&foreignError{kind: "Pod", name: "demo-a"}, v1alpha1.ReasonObjectNotOwned},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			problems, _ := sort(plan.Step{Member: "demo-a"}, fmt.Errorf("CreatePod: %w", test.err))
			notified := ""
			for _, p := range problems {
				notified += p.Reason
			}
			if notified != test.notified {
				t.Errorf("reported %q, want %q", notified, test.notified)
			}
		})
	}
}

// hook has the API server ask a webhook about each Pod of the namespace.
func (s *stage) hook(server *httptest.Server) *admissionregistrationv1.ValidatingWebhookConfiguration {
	s.Helper()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	hook := &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: s.namespace},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name:              "policy.example.com",
			ClientConfig:      admissionregistrationv1.WebhookClientConfig{URL: &server.URL, CABundle: ca},
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: s.namespace}},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
			}},
			SideEffects:             new(admissionregistrationv1.SideEffectClassNone),
			AdmissionReviewVersions: []string{"v1"},
		}},
	}
	if err := s.Create(s.Context(), hook); err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = s.Delete(context.WithoutCancel(s.Context()), hook) }) // the API server ends with the tests
	s.eventually("the API server asks the hook", func() error {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "probe"},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "probe", Image: "probe"}}},
		}
		if err := s.Create(s.Context(), pod, client.DryRunAll); err == nil || !strings.Contains(err.Error(), "policy.example.com") {
			return fmt.Errorf("it does not yet: %w", err)
		}
		return nil
	})
	return hook
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

func TestAPodThatAWebhookRefusesIsReportedAndComesWhenItMay(t *testing.T) {
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
			notified := meta.FindStatusCondition(cluster.Status.Conditions, v1alpha1.ConditionDegraded).Message
			if !strings.Contains(notified, test.words) || !plan.RefusedBy(cluster.Status.Conditions) {
				t.Errorf("the condition says %q", notified)
			}
			if err := s.Delete(t.Context(), hook); err != nil {
				t.Fatal(err)
			}
			s.members("demo", 1)
		})
	}
}
