package druid

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/etcd-druid/druid/manifests"
)

// A webhook of the platform changed the image when it created the Pod: the Deployment names another one.
func TestAgentsGetTheImageOfDruidsPod(t *testing.T) {
	const image = "mirror.example.com/druid@sha256:0123"
	s := newStage(t)
	own := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "druid-0"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "sidecar", Image: "example.com/sidecar"}, {Name: "druid", Image: image}}},
	}
	if err := s.Create(t.Context(), own); err != nil {
		t.Fatal(err)
	}
	s.startDruid(func(o *Options) {
		o.AgentImage, o.Pod = "", types.NamespacedName{Namespace: own.Namespace, Name: own.Name}
	})
	s.createCluster("demo", 1)
	name := s.members("demo", 1)[0]
	s.eventually("have an agent of druid's image", func() error {
		var pod corev1.Pod
		if err := s.fetch(name, &pod); err != nil {
			return err
		}
		if got := manifests.AgentImage(&pod); got != image {
			return fmt.Errorf("the agent has the image %q, want %q", got, image)
		}
		return nil
	})
}

// TestDruidNeedsAgentImage: druid does not start without an image for the agents.
func TestDruidNeedsAgentImage(t *testing.T) {
	s := newStage(t)
	other := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "other"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "other", Image: "example.com/other"}}},
	}
	if err := s.Create(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"other": "it has no container druid; set --agent-image", "none": "permit druid to get it, or set --agent-image"} {
		o := Options{Pod: types.NamespacedName{Namespace: s.namespace, Name: name}}
		err := o.readImage(t.Context(), s.Client)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("from Pod %s: got %v, want %s", name, err, want)
		}
	}
}
