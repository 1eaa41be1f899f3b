package control_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/druid/control"
)

// A status that druid writes all the time starts no pass. What it works towards, and until when, does.
func TestWhatWakesDruid(t *testing.T) {
	tests := map[string]struct {
		change func(*v1alpha1.EtcdCluster)
		wakes  bool
	}{
		"an edit of the spec":     {func(c *v1alpha1.EtcdCluster) { c.Generation = 2 }, true},
		"a deadline":              {func(c *v1alpha1.EtcdCluster) { c.Status.ProgressDeadline = new(metav1.Unix(9, 0)) }, true},
		"a spec that was adopted": {func(c *v1alpha1.EtcdCluster) { c.Status.Observed = &runtime.RawExtension{Raw: []byte("{}")} }, true},
		"a request by annotation": {func(c *v1alpha1.EtcdCluster) {
			c.Annotations = map[string]string{v1alpha1.RotateCAAnnotation: "2026-11-25"}
		}, true},
		"an annotation of another program": {func(c *v1alpha1.EtcdCluster) {
			c.Annotations = map[string]string{"kubectl.kubernetes.io/last-applied-configuration": "{}"}
		}, false},
		"anything else of a status": {func(c *v1alpha1.EtcdCluster) { c.Status.ReadyReplicas = 3 }, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			before := &v1alpha1.EtcdCluster{ObjectMeta: metav1.ObjectMeta{Generation: 1}}
			after := before.DeepCopy()
			test.change(after)
			if got := control.SpecChanged.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}); got != test.wakes {
				t.Errorf("wakes: %t, want %t", got, test.wakes)
			}
		})
	}
}
