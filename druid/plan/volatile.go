package plan

import (
	"fmt"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
)

// volatile says whether what the member holds goes with its Pod.
func (m Member) volatile() bool { return m.Claim == ClaimUnwanted }

// forgot says whether a member that stores in memory is known to have lost what it held: it has no Pod, or one in which nothing
// ran yet, or its agent says that the volume of this very Pod is empty and why no etcd starts on it. Without a reason the volume
// was empty when its etcd was started, which is how each member begins.
func (m Member) forgot() bool {
	if !m.volatile() {
		return false
	}
	notified := m.Lease == LeaseOurs && m.Readable && m.Says.PodUID == m.PodUID && m.Says.Data == leases.DataEmpty &&
		m.Says.Reason != "" && m.Says.EverFormed()
	return m.Pod&(PodAbsent|PodUnscheduled|PodUnstarted|PodEnded) != 0 || m.Pod == PodLive && !m.EtcdReady && notified
}

// lossProblem: of a raft group whose voters lost what they held the others can never be a quorum again. No one forms another
// one by a record that says Formed.
func lossProblem(o Observed, listed []Member) (Problem, bool) {
	if o.RecordState != RecordFormed {
		return Problem{}, false
	}
	lost := 0
	for _, m := range listed {
		if m.forgot() && (m.votes() || m.publishedVoter(o)) {
			lost++
		}
	}
	voters := votersOf(o, listed)
	if lost == 0 || voters-lost >= quorum(voters) {
		return Problem{}, false
	}
	return Problem{Reason: v1alpha1.ReasonDataLost, Message: fmt.Sprintf("%d of %d voters lost their Pods, and with them what they held in memory: "+
		"the others are no quorum, and never will be. No new cluster is formed in its place. Restore a backup into a new EtcdCluster by "+
		"spec.bootstrap.restore, or delete this one and create it again, empty", lost, voters)}, true
}
