package druid

import (
	"context"
	"encoding/pem"
	"net/http/httptest"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// webhook is what the configurations of mutating and of validating webhooks share: which server the API server asks, and about what.
type webhook struct {
	meta      metav1.ObjectMeta
	server    admissionregistrationv1.WebhookClientConfig
	namespace *metav1.LabelSelector
	rules     []admissionregistrationv1.RuleWithOperations
	effects   *admissionregistrationv1.SideEffectClass
	versions  []string
}

// askAboutPods has the API server ask the server about each new Pod of the namespace, until the test ends. configuration makes the object
// to create. It returns after inForce found nothing wrong with a Pod that was created in a dry run, and with the error of that.
func (s *stage) askAboutPods(server *httptest.Server, configuration func(webhook) client.Object, inForce func(*corev1.Pod, error) error) client.Object {
	s.Helper()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	hook := configuration(webhook{
		meta:      metav1.ObjectMeta{Name: s.namespace},
		server:    admissionregistrationv1.WebhookClientConfig{URL: &server.URL, CABundle: ca},
		namespace: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: s.namespace}},
		rules: []admissionregistrationv1.RuleWithOperations{{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
		}},
		effects:  new(admissionregistrationv1.SideEffectClassNone),
		versions: []string{"v1"},
	})
	if err := s.Create(s.Context(), hook); err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = s.Delete(context.WithoutCancel(s.Context()), hook) }) // the API server ends with the tests
	s.eventually("the API server asks the webhook", func() error {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "probe"},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "probe", Image: "probe"}}},
		}
		return inForce(pod, s.Create(s.Context(), pod, client.DryRunAll))
	})
	return hook
}
