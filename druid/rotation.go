package druid

import (
	"fmt"
	"strings"
	"time"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/druid/policy"
	"github.com/etcd-druid/druid/manifests"
)

// rotationRequest is the value of the annotation that requests another authority, if it is about the plane.
func rotationRequest(cluster *v1alpha1.EtcdCluster, p manifests.Plane) string {
	request := cluster.Annotations[v1alpha1.RotateCAAnnotation]
	only, _, _ := strings.Cut(request, ":")
	if other := manifests.Plane(only); other != p && (other == manifests.PlaneClient || other == manifests.PlanePeer) ||
		len(request) > v1alpha1.MaxRotateCALength {
		return ""
	}
	return request
}

// unhandled says whether the annotation requests an authority that druid has not made. What it says when the first certificates are issued,
// or when the status was lost, requests nothing.
func unhandled(cluster *v1alpha1.EtcdCluster, p manifests.Plane) bool {
	request, s := rotationRequest(cluster, p), manifests.PlaneStatus(cluster, p)
	return request != "" && s != nil && s.Authority != "" && s.LastHandledRotateCA != request
}

// badRotation says what is wrong with the annotation, or nothing.
func badRotation(cluster *v1alpha1.EtcdCluster) string {
	request := cluster.Annotations[v1alpha1.RotateCAAnnotation]
	if len(request) > v1alpha1.MaxRotateCALength {
		return fmt.Sprintf("annotation %s is longer than %d characters; use a shorter value, for example a date", v1alpha1.RotateCAAnnotation,
			v1alpha1.MaxRotateCALength)
	}
	for p := range manifests.Issued(cluster) {
		if request == "" || rotationRequest(cluster, p) != "" {
			return ""
		}
	}
	if request == "" {
		return ""
	}
	return fmt.Sprintf("annotation %s: %s requests nothing, because druid issues no certificates for these connections", v1alpha1.RotateCAAnnotation, request)
}

const (
	// holdSteps is how often, at least, the status gets how much of the wait for clients has passed: at most a twelfth of the wait is lost
	// when druid restarts.
	holdSteps = 12
	// holdInterval bounds the time between two of these writes, so that a wait of weeks ends although druid restarts each day.
	holdInterval = 10 * time.Minute
)

// held says whether clients had their time since all Secrets have what the present phase gives them, and how much of it
// the status is to have. Only time counts that druid saw pass, by its monotonic clock: the clock of a node can be set,
// and that of another node can differ.
func (r *Reconciler) held(o *observation, p manifests.Plane, hold time.Duration) (held bool, counted time.Duration) {
	s := manifests.PlaneStatus(o.cluster, p)
	if s == nil || s.DistributedAt == nil {
		return hold == 0, 0
	}
	if s.HeldFor != nil {
		counted = s.HeldFor.Duration
	}
	f := fact{o.cluster.UID, string(p) + " trustHold"}
	r.memory.note(f, fmt.Sprint(s.DistributedAt.UTC(), counted))
	held, left := r.memory.lasts(f, true, hold-counted, r.now())
	step, passed := min(hold/holdSteps, holdInterval), hold-counted-left
	if !held && passed >= step {
		counted += passed
	}
	o.lookAgain(min(left, step))
	return held, counted
}

// urgentAfter is the longest time for which druid sees that certificates end soon before it waits for no client. A
// clock that was wrong when its machine started is set within that time.
const urgentAfter = 10 * time.Minute

// urgent says whether so little time is left that clients are not waited for, for half of the time that they would get.
func (r *Reconciler) urgent(o *observation, p manifests.Plane, ends bool, hold time.Duration) bool {
	urgent, left := r.memory.lasts(fact{o.cluster.UID, string(p) + " urgent"}, ends, min(hold/2, urgentAfter), r.now())
	o.lookAgain(left)
	return urgent
}

// observeTrust finds the members whose etcd was started with other authorities than it is to trust. A rolling update restarts them.
func (o *observation) observeTrust() {
	for i := range o.observed.Members {
		m := &o.observed.Members[i]
		for _, c := range o.observed.Certificates {
			m.Outruns = m.Outruns || m.Listed && c.Outruns(*m)
		}
		for _, p := range manifests.Planes(o.cluster) {
			if _, ours := certificatesIn(o, p); !ours {
				m.Outruns = m.Outruns || m.Listed && policy.OutrunsProvided(o.observed, string(p), *m, manifests.IssuersNoted(o.cluster, p))
			}
		}
		if m.Outruns && m.Make == policy.MakeCurrent {
			m.Make = policy.MakeOutdated
		}
	}
}
