package druid

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
)

// TestHandsOffTakesNoAction: druid takes no action while its hands are off.
func TestHandsOffTakesNoAction(t *testing.T) {
	c, names := renewed(t)
	if err := c.annotates(v1alpha1.HandsOffAnnotation, " disk copy on n2, ask Kim "); err != nil {
		t.Fatal(err)
	}
	c.pass()
	c.stands(v1alpha1.ReasonHandsOff)
	if p := c.progressing(); p.Status != metav1.ConditionFalse || !strings.HasSuffix(p.Message, "hands-off: disk copy on n2, ask Kim.") ||
		p.LastTransitionTime.Sub(c.at).Abs() > time.Second {
		t.Errorf("condition is %+v", p)
	}
	if reported := strings.Join(c.reported(), "\n"); !strings.Contains(reported, "Normal "+v1alpha1.ReasonHandsOff) {
		t.Errorf("events are\n%s", reported)
	}
	// Neither what is missing nor what the spec asks for.
	if err := c.Delete(t.Context(), &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: "demo-client"}}); err != nil {
		t.Fatal(err)
	}
	c.patchCluster(`{"spec":{"resources":{"requests":{"cpu":"100m"}}}}`)
	for range 3 {
		c.after(late)
		c.adopted(true)
		if err := c.gone("demo-client", &corev1.Service{}); err != nil {
			t.Error(err)
		}
	}
	c.isGoing("while its hands are off", names)

	if err := c.annotates(v1alpha1.HandsOffAnnotation, ""); err != nil {
		t.Fatal(err)
	}
	c.pass()
	c.adopted(false)
	c.pass()
	if err := c.fetch("demo-client", &corev1.Service{}); err != nil {
		t.Error(err)
	}
}

// TestHandsOnRestartsDeadline: the deadline begins again when the annotation is removed.
// The time of a change does not run out while druid must not act.
func TestHandsOnRestartsDeadline(t *testing.T) {
	c, names := renewed(t)
	c.patchCluster(`{"spec":{"resources":{"requests":{"cpu":"100m"}}}}`)
	c.pass()
	c.isGoing("after the edit", names, names[1])
	if err := c.annotates(v1alpha1.HandsOffAnnotation, "a look at the disk"); err != nil {
		t.Fatal(err)
	}
	c.patchCluster(`{"spec":{"resources":{"requests":{"cpu":"200m"}}}}`)
	c.reported()
	c.after(late)
	if p := c.progressing(); !strings.Contains(p.Message,
		fmt.Sprintf("a look at the disk. Until then, generation %d of spec is not accepted", c.cluster().Generation)) {
		t.Errorf("condition is %+v", p)
	}
	if reported := strings.Join(c.reported(), "\n"); strings.Contains(reported, "waits until") {
		t.Errorf("events are\n%s", reported)
	}
	if err := c.annotates(v1alpha1.HandsOffAnnotation, ""); err != nil {
		t.Fatal(err)
	}
	c.pass()
	c.stands(v1alpha1.ReasonRollingUpdate)
	c.adopted(true)
	if at := c.cluster().Status.ProgressDeadline; at == nil || at.Sub(c.at.Add(defaultProgressDeadline)).Abs() > time.Second {
		t.Errorf("the deadline is %v", at)
	}
}
