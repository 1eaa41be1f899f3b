package view

import (
	"maps"
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
)

// Objects are what the API server has about one EtcdCluster. A list that could not be read is empty, and Unread names it.
type Objects struct {
	Cluster v1alpha1.EtcdCluster
	Leases  []coordinationv1.Lease
	Pods    []corev1.Pod
	Nodes   []corev1.Node
	// Events are those of the EtcdCluster.
	Events []corev1.Event
	Unread []Unread
}

// Unread is a kind of objects that could not be read, and why.
type Unread struct {
	Kind    string `json:"kind"`
	Problem string `json:"problem"`
}

// findings are the Objects, decoded and by name.
type findings struct {
	Objects
	members map[string]member
	full    *leases.Backup
	delta   *leases.Backup
	// deltaLease is the Lease of delta.
	deltaLease *coordinationv1.Lease
	verified   *leases.Verification
	pods       map[string]*corev1.Pod
	nodes      map[string]*corev1.Node
}

// member is a member Lease. known is false if its content cannot be decoded.
type member struct {
	lease *coordinationv1.Lease
	leases.Member
	known bool
}

// find decodes the objects. What cannot be decoded is unknown.
func find(o Objects) findings {
	f := findings{Objects: o, members: map[string]member{}, pods: map[string]*corev1.Pod{}, nodes: map[string]*corev1.Node{}}
	for i := range o.Leases {
		lease := &o.Leases[i]
		switch leases.ComponentOf(lease) {
		case leases.ComponentMember:
			m, err := leases.DecodeMember(lease)
			f.members[lease.Name] = member{lease: lease, Member: m, known: err == nil}
		case leases.ComponentFullSnapshot:
			if b, err := leases.DecodeBackup(lease); err == nil {
				f.full = &b
			}
			if v, err := leases.DecodeVerification(lease); err == nil {
				f.verified = &v
			}
		case leases.ComponentDeltaSnapshot:
			if b, err := leases.DecodeBackup(lease); err == nil {
				f.delta, f.deltaLease = &b, lease
			}
		default: // the view needs no other one
		}
	}
	for i := range o.Pods {
		f.pods[o.Pods[i].Name] = &o.Pods[i]
	}
	for i := range o.Nodes {
		f.nodes[o.Nodes[i].Name] = &o.Nodes[i]
	}
	return f
}

// names are those of all members that the status or a Lease has, sorted.
func (f findings) names() []string {
	all := map[string]bool{}
	for _, m := range f.Cluster.Status.Members {
		all[m.Name] = true
	}
	for name := range f.members {
		all[name] = true
	}
	return slices.Sorted(maps.Keys(all))
}
