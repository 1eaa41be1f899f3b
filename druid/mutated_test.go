package druid

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/api/v1alpha1"
)

const (
	meshLabel   = "mesh.example.com"
	meshSidecar = "proxy"
)

// addSidecar answers as the webhook of a service mesh: it adds a label, an annotation, and a container before all others.
func addSidecar(w http.ResponseWriter, r *http.Request) {
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var pod corev1.Pod
	if err := json.Unmarshal(review.Request.Object.Raw, &pod); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	labels, annotations := map[string]string{meshLabel: "on"}, map[string]string{meshLabel: "on"}
	maps.Copy(labels, pod.Labels)
	maps.Copy(annotations, pod.Annotations)
	patch, err := json.Marshal([]map[string]any{
		{"op": "add", "path": "/metadata/labels", "value": labels},
		{"op": "add", "path": "/metadata/annotations", "value": annotations},
		{"op": "add", "path": "/spec/containers/0", "value": corev1.Container{Name: meshSidecar, Image: "example.com/proxy"}},
	})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	review.Response = &admissionv1.AdmissionResponse{
		UID: review.Request.UID, Allowed: true, Patch: patch, PatchType: new(admissionv1.PatchTypeJSONPatch),
	}
	_ = json.NewEncoder(w).Encode(review)
}

// mutate has the API server ask a webhook about each new Pod of the namespace, and give limits to containers that have none.
func (s *stage) mutate(server *httptest.Server) {
	s.Helper()
	limits := &corev1.LimitRange{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "defaults"},
		Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
			Type: corev1.LimitTypeContainer, Default: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("3")},
		}}},
	}
	if err := s.Create(s.Context(), limits); err != nil {
		s.Fatal(err)
	}
	s.askAboutPods(server, func(w webhook) client.Object {
		return &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: w.meta, Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name: "mesh.example.com", ClientConfig: w.server, NamespaceSelector: w.namespace, Rules: w.rules,
			SideEffects: w.effects, AdmissionReviewVersions: w.versions,
		}}}
	}, func(pod *corev1.Pod, err error) error {
		if err != nil {
			return err
		}
		return mutated(pod)
	})
}

// mutated returns an error unless the Pod has all that mutate adds.
func mutated(pod *corev1.Pod) error {
	first, last := pod.Spec.Containers[0], pod.Spec.Containers[len(pod.Spec.Containers)-1]
	if pod.Labels[meshLabel] == "" || pod.Annotations[meshLabel] == "" || first.Name != meshSidecar || last.Resources.Limits.Cpu().String() != "3" {
		return fmt.Errorf("Pod %s has labels %v, annotations %v and containers %v", pod.Name, pod.Labels, pod.Annotations, pod.Spec.Containers)
	}
	return nil
}

// TestWebhookChangedPodsWaitForEdit: Pods that a webhook changes are replaced only for an edit.
// A service mesh and a LimitRange change each Pod when it is created. druid replaces a Pod for an edit of the spec, once, and for nothing
// that others added.
func TestWebhookChangedPodsWaitForEdit(t *testing.T) {
	s := newStage(t)
	server := httptest.NewTLSServer(http.HandlerFunc(addSidecar))
	defer server.Close()
	s.mutate(server)
	s.node(s.nodeName(), true)
	stop := s.startDruid()
	names := s.whole(3)
	stop()
	c := s.clocked()
	c.renewAll(names)
	c.pass()
	stay := func(when string) {
		t.Helper()
		before := c.uids(names, &corev1.Pod{})
		for range 3 {
			c.renewAll(names)
			c.after(stable)
		}
		if after := c.uids(names, &corev1.Pod{}); len(c.going(names)) > 0 || fmt.Sprint(after) != fmt.Sprint(before) {
			t.Fatalf("%s, %v terminate, and the Pods are %v, were %v", when, c.going(names), after, before)
		}
		if p := c.progressing(); p.Reason != v1alpha1.ReasonReconciled {
			t.Fatalf("%s, the condition is %+v", when, p)
		}
		for _, name := range names {
			var pod corev1.Pod
			if err := c.fetch(name, &pod); err != nil {
				t.Fatal(err)
			}
			if err := mutated(&pod); err != nil {
				t.Errorf("%s: %v", when, err)
			}
		}
	}
	stay("after the cluster formed")
	c.patchCluster(`{"spec":{"priorityClassName":"system-cluster-critical"}}`)
	for _, name := range []string{names[1], names[2], names[0]} {
		c.pass()
		if got := c.going(names); len(got) != 1 || got[0] != name {
			t.Fatalf("for the edit %v were deleted, want %s", got, name)
		}
		c.replace(name)
		c.kubelet(name, true)
		c.renewAll(names)
		c.pass()
		c.after(stable)
	}
	stay("after the edit")
}
