package druid

import (
	"cmp"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/druid/policy"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/manifests"
)

// observeTLS finds how far TLS is turned on for clients and for peers. What is read of the cluster from then on, and every Pod that is
// created, follows from that instead of from the spec alone. Each pass finds it again from the Pods and the Leases, so a status that was
// lost or restored changes nothing.
func (o *observation) observeTLS() error {
	o.cluster = o.base.DeepCopy()
	former, err := o.cluster.Status.Former()
	if err != nil {
		return fmt.Errorf("EtcdCluster %s/%s: %w", o.cluster.Namespace, o.cluster.Name, err)
	}
	kept := v1alpha1.TLSSpec{}
	if former != nil {
		kept = *former
	}
	o.keepWhileUsed(&kept)
	if err := o.cluster.Status.KeepFormer(kept); err != nil {
		return err
	}
	for _, p := range manifests.Planes(o.cluster) {
		manifests.SetTLSStage(o.cluster, p, policy.TLSStage(o.tlsFacts(p)))
	}
	return nil
}

// keepWhileUsed keeps the former source of a plane exactly while a member possibly uses it. If the status does not name what the
// members use, it is what druid issues. When no member uses the former source any more, the status of its certificates ends too: those
// of the next source have other authorities.
func (o *observation) keepWhileUsed(kept *v1alpha1.TLSSpec) {
	now, status := manifests.TLSOf(o.cluster), cmp.Or(o.cluster.Status.TLS, &v1alpha1.TLSStatus{})
	switch used := o.uses(manifests.PlaneClient); {
	case used == rules.No && kept.Client != nil:
		kept.Client, status.Client = nil, nil
	case used == rules.Yes && now.Client == nil:
		kept.Client = &v1alpha1.ClientTLS{Auto: &v1alpha1.AutoTLS{}, Mode: v1alpha1.TLSMutual}
	}
	switch used := o.uses(manifests.PlanePeer); {
	case used == rules.No && kept.Peer != nil:
		kept.Peer, status.Peer = nil, nil
	case used == rules.Yes && now.Peer == nil:
		kept.Peer = &v1alpha1.PeerTLS{Auto: &v1alpha1.AutoTLS{}}
	}
}

// uses says whether a member uses TLS, also with plain text.
func (o *observation) uses(p manifests.Plane) rules.Answer {
	for _, pod := range o.runningPods() {
		if manifests.PodTLS(pod, p) != v1alpha1.TLSStageOff {
			return rules.Yes
		}
	}
	if p == manifests.PlanePeer {
		return o.securePeers()
	}
	return rules.No
}

// adds says that members are to get certificates for the plane, and that none uses any yet.
func (o *observation) adds(p manifests.Plane) bool {
	return manifests.TLSStage(o.cluster, p) == v1alpha1.TLSStageAdding && o.uses(p) == rules.No
}

// withoutTLS drops what the Lease of a member still says about certificates that its Pod does not have.
func withoutTLS(m *policy.Member, pod *corev1.Pod) {
	if manifests.PodTLS(pod, manifests.PlaneClient) == v1alpha1.TLSStageOff {
		m.Reports.TLS.Client = leases.TLSPlane{}
	}
	if manifests.PodTLS(pod, manifests.PlanePeer) == v1alpha1.TLSStageOff {
		m.Reports.TLS.Peer = leases.TLSPlane{}
	}
}

// observeSchemes takes a Pod for outdated whose etcd listens to its peers otherwise than the Pod was made for, and does not change that
// by itself: it started as a learner, or without a quorum. The rolling update then replaces it in its turn.
func (o *observation) observeSchemes() {
	for i := range o.observed.Members {
		m := &o.observed.Members[i]
		if m.Make != policy.MakeCurrent || !m.Stable {
			continue
		}
		stage := manifests.PodTLS(o.pods[m.Name], manifests.PlanePeer)
		scheme := m.Reports.TLS.Peer.Scheme
		if stage == v1alpha1.TLSStageOn && scheme == leases.SchemePlain || stage == v1alpha1.TLSStageBoth && scheme == leases.SchemeSecure {
			m.Make = policy.MakeOutdated
		}
	}
}

// tlsFacts are the input of the decision about a plane.
func (o *observation) tlsFacts(p manifests.Plane) policy.TLSFacts {
	goals := map[v1alpha1.TLSStage]policy.TLSGoal{
		v1alpha1.TLSStageOff: policy.GoalOff, v1alpha1.TLSStageBoth: policy.GoalBoth, v1alpha1.TLSStageOn: policy.GoalOn,
	}
	f := policy.TLSFacts{Goal: goals[manifests.TLSTarget(o.cluster, p)], Plain: rules.No, Only: rules.No}
	for _, pod := range o.runningPods() {
		switch manifests.PodTLS(pod, p) {
		case v1alpha1.TLSStageOff:
			f.Plain = rules.Yes
		case v1alpha1.TLSStageOn:
			f.Only = rules.Yes
		case v1alpha1.TLSStageAdding, v1alpha1.TLSStageBoth: // it reaches all others
		}
	}
	if p == manifests.PlanePeer && f.Only == rules.No {
		f.Only = o.securePeers()
	}
	return f
}

// securePeers says whether peers of a member must use TLS, although no Pod says so. A member without a Pod listens again as the member
// list of etcd says, and so does one whose etcd did not change yet.
func (o *observation) securePeers() rules.Answer {
	if list := o.observed.Record.MemberList; list != nil {
		for _, m := range list.Members {
			if strings.HasPrefix(m.PeerURL, leases.SchemeSecure+"://") {
				return rules.Yes
			}
		}
	}
	secure := rules.Answer(rules.No)
	for name, lease := range o.leases {
		if lease.Labels[leases.LabelComponent] != string(leases.ComponentMember) || !ours(o.cluster, lease) {
			continue
		}
		if pod := o.pods[name]; pod != nil && ours(o.cluster, pod) && manifests.PodTLS(pod, manifests.PlanePeer) == v1alpha1.TLSStageOff {
			continue // it has no certificates
		}
		switch says, err := leases.DecodeMember(lease); {
		case err == nil && says.TLS.Peer.Scheme == leases.SchemeSecure:
			return rules.Yes
		case err != nil || says.TLS.Peer.Scheme == "" && says.TLS.Peer != (leases.TLSPlane{}):
			secure = rules.Unknown // an agent of an earlier version does not report it
		}
	}
	return secure
}

// runningPods are the Pods of the cluster in which an etcd can run.
func (o *observation) runningPods() []*corev1.Pod {
	var all []*corev1.Pod
	for _, pod := range o.pods {
		ended := pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded
		if ours(o.cluster, pod) && !ended {
			all = append(all, pod)
		}
	}
	return all
}
