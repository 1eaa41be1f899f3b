package druid

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/etcd-druid/druid/druid/plan"
)

// maxNote is the length of an Event's note that the API server accepts, 1024 bytes, with room for an ellipsis.
const maxNote = 1000

// event reports the cluster. A member's Pod is what the Event is related to, because the recorder takes two Events that
// differ in nothing but their notes for one that happened twice, and keeps the first note.
func (r *Reconciler) event(o *observation, e plan.Event, action string) {
	kind := corev1.EventTypeNormal
	if e.Warning {
		kind = corev1.EventTypeWarning
	}
	var related runtime.Object
	if e.Member != "" {
		related = &corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: o.cluster.Namespace, Name: e.Member}
	}
	r.metrics.events.WithLabelValues(kind, e.Reason).Inc()
	r.recorder.Eventf(o.cluster, related, kind, e.Reason, action, "%s", noted(e.Note))
}

// noted is a note of a length that the API server accepts.
func noted(note string) string {
	if len(note) > maxNote {
		return strings.ToValidUTF8(note[:maxNote], "") + "…"
	}
	return note
}

// report reports a step that was taken.
func (r *Reconciler) inform(o *observation, reason string, step plan.Step, note string, args ...any) {
	r.event(o, plan.Event{Reason: reason, Member: step.Member, Note: fmt.Sprintf(note, args...)}, string(step.Kind))
}
