package view

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/rules"
)

// Cluster is an EtcdCluster for people. A nil pointer and an empty string are unknown, or do not apply.
type Cluster struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	State     State  `json:"state"`
	Health    Health `json:"health"`
	// Rule is the row of the headline table that decided, and Why its reason.
	Rule string `json:"rule"`
	Why  string `json:"why"`
	// Message is that of the condition that decided, and Since when its status last changed.
	Message string     `json:"message,omitempty"`
	Since   *time.Time `json:"since,omitempty"`
	Created time.Time  `json:"created"`
	// Deleted is when the deletion of the EtcdCluster was requested.
	Deleted *time.Time `json:"deleted,omitempty"`
	// Replicas are the members that the spec requires, Members those that the status or a Lease has.
	Replicas int32    `json:"replicas"`
	Ready    *int32   `json:"readyMembers,omitempty"`
	Members  []Member `json:"members,omitempty"`
	Leader   string   `json:"leader,omitempty"`
	// Version is the release of etcd that the spec requires.
	Version    string `json:"version,omitempty"`
	Generation int64  `json:"generation"`
	// Accepted is the generation of the spec that druid accepted, 0 for none: the status of a new EtcdCluster has -1.
	Accepted  int64    `json:"acceptedGeneration"`
	Endpoints []string `json:"endpoints,omitempty"`
	// Quota is the size of the database in bytes at which etcd refuses writes, as the spec requires.
	Quota int64 `json:"quotaBytes"`
	// Backup is nil without spec.backup.
	Backup       *Backup                  `json:"backup,omitempty"`
	Certificates []Certificate            `json:"certificates,omitempty"`
	Conditions   []Condition              `json:"conditions,omitempty"`
	Recovery     *v1alpha1.RecoveryStatus `json:"recovery,omitempty"`
	// Events are the last ones, the newest first.
	Events []Event  `json:"events,omitempty"`
	Next   []Step   `json:"next,omitempty"`
	Unread []Unread `json:"unread,omitempty"`
}

// Condition is a condition of the status.
type Condition struct {
	Type    string    `json:"type"`
	Status  string    `json:"status"`
	Reason  string    `json:"reason"`
	Message string    `json:"message"`
	Since   time.Time `json:"since"`
	// Wished says that the condition is as it should be in a steady cluster that matches its spec.
	Wished bool `json:"wished"`
	// Docs is the page that explains the reason.
	Docs string `json:"docs"`
}

// Certificate is the state of the certificates of one plane: client or peer.
type Certificate struct {
	Plane string `json:"plane"`
	// Stage says how far TLS is turned on.
	Stage string `json:"stage,omitempty"`
	// NotAfter is when the first certificate of a member or its authority expires, AuthorityNotAfter when the authority
	// that druid issues from expires.
	NotAfter          *time.Time `json:"notAfter,omitempty"`
	AuthorityNotAfter *time.Time `json:"authorityNotAfter,omitempty"`
	Message           string     `json:"message,omitempty"`
}

// Of describes the cluster at the time now. It compares times of other machines with now only to say how old they are,
// and to say that Leases are not renewed.
func Of(o Objects, now time.Time) Cluster {
	f := find(o)
	c := o.Cluster
	d := headlines.Decide(factsOf(f, now))
	v := Cluster{
		Namespace: c.Namespace, Name: c.Name, State: d.Verdict.State, Health: d.Verdict.Health, Rule: d.Rule, Why: d.Why,
		Created: c.CreationTimestamp.Time, Deleted: timeOf(c.DeletionTimestamp), Replicas: c.Spec.Replicas, Version: c.Spec.Version, Generation: c.Generation,
		Accepted: max(0, c.Status.ObservedGeneration), Endpoints: c.Status.Endpoints, Quota: c.Spec.QuotaBytes(),
		Members: f.describeMembers(now), Backup: f.backup(), Certificates: certificatesOf(c.Status.TLS), Conditions: conditionsOf(c),
		Recovery: c.Status.Recovery, Events: eventsOf(o.Events), Unread: o.Unread,
	}
	if len(v.Conditions) > 0 {
		v.Ready = new(c.Status.ReadyReplicas)
	}
	for _, m := range v.Members {
		if m.Role == roleLeader && (m.Renewed == nil || *m.Renewed) {
			v.Leader = m.Name
		}
	}
	v.explain(c)
	v.Next = v.next()
	return v
}

// explaining names the condition whose message explains the state.
var explaining = map[State]string{
	StateQuorumLost: v1alpha1.ConditionReady, StateUnknown: v1alpha1.ConditionReady, StateForming: v1alpha1.ConditionReady,
	StateResuming: v1alpha1.ConditionReady, StateClientsCutOff: v1alpha1.ConditionReady, StateServing: v1alpha1.ConditionReady,
	StateBootstrapFailed: v1alpha1.ConditionProgressing, StateChangeBlocked: v1alpha1.ConditionProgressing,
	StateHandsOff: v1alpha1.ConditionProgressing, StatePaused: v1alpha1.ConditionProgressing,
	StateChanging: v1alpha1.ConditionProgressing, StateDegraded: v1alpha1.ConditionDegraded, StateMembersNotReady: v1alpha1.ConditionAllMembersReady,
}

// explain sets the message and the time of the condition that decided.
func (v *Cluster) explain(c v1alpha1.EtcdCluster) {
	kind := explaining[v.State]
	switch v.State {
	case StateBackupsFailing:
		kind = v1alpha1.ConditionBackupReady
		if answer(c, v1alpha1.ConditionBackupReady) == rules.Yes {
			kind = v1alpha1.ConditionBackupVerified
		}
	case StateNotSecure:
		kind = v1alpha1.ConditionCertificatesReady
		if optional(c, c.Spec.TLS != nil, v1alpha1.ConditionCertificatesReady) == rules.Yes {
			kind = v1alpha1.ConditionAuthReady
		}
	default: // the table has it, or the row says why
	}
	if condition := conditionOf(c, kind); condition != nil {
		v.Message = condition.Message
		v.Since = new(condition.LastTransitionTime.Time)
	}
}

// wished are the statuses of conditions that are as they should be.
var wished = map[string]metav1.ConditionStatus{v1alpha1.ConditionDegraded: metav1.ConditionFalse, v1alpha1.ConditionProgressing: metav1.ConditionFalse}

func conditionsOf(c v1alpha1.EtcdCluster) (all []Condition) {
	for _, condition := range c.Status.Conditions {
		if condition.Type == v1alpha1.ConditionReconciling || condition.Type == v1alpha1.ConditionStalled {
			continue // tools read them: they repeat another condition
		}
		want := cmp.Or(wished[condition.Type], metav1.ConditionTrue)
		ok := condition.Status == want || condition.Reason == v1alpha1.ReasonPaused
		if condition.Type == v1alpha1.ConditionProgressing {
			ok = ok && withoutChange[condition.Reason]
		}
		all = append(all, Condition{
			Type: condition.Type, Status: string(condition.Status), Reason: condition.Reason, Message: condition.Message,
			Since: condition.LastTransitionTime.Time, Wished: ok, Docs: pageOf(condition.Type),
		})
	}
	return all
}

func certificatesOf(tls *v1alpha1.TLSStatus) (all []Certificate) {
	if tls == nil {
		return nil
	}
	for _, plane := range []struct {
		name string
		*v1alpha1.TLSPlaneStatus
	}{{"client", tls.Client}, {"peer", tls.Peer}} {
		if plane.TLSPlaneStatus == nil {
			continue
		}
		all = append(all, Certificate{
			Plane: plane.name, Stage: string(plane.Stage), NotAfter: timeOf(plane.NotAfter), AuthorityNotAfter: timeOf(plane.AuthorityNotAfter),
			Message: plane.Message,
		})
	}
	return all
}

func timeOf(t *metav1.Time) *time.Time {
	if t == nil || t.IsZero() {
		return nil
	}
	return &t.Time
}

// Sort brings the worst first. Clusters of the same state are in the order of their names.
func Sort(all []Cluster) {
	slices.SortStableFunc(all, func(a, b Cluster) int {
		return cmp.Or(cmp.Compare(slices.Index(States, a.State), slices.Index(States, b.State)), cmp.Compare(a.Namespace, b.Namespace),
			cmp.Compare(a.Name, b.Name))
	})
}
