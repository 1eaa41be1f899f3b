package view

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
)

const roleLeader = string(leases.RoleLeader)

// Member is a member of a cluster. The numbers are those of its last report, at RenewTime.
type Member struct {
	Name string `json:"name"`
	ID   string `json:"id,omitempty"`
	// Role is what the member's agent last reported, and State what druid last wrote into the status.
	Role    string `json:"role,omitempty"`
	State   string `json:"state,omitempty"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Leaving says how far the removal of the member is.
	Leaving string `json:"leaving,omitempty"`
	// Renewed says whether the agent renews the Lease, nil if the Lease was not read. RenewTime is when it last did, nil for never.
	Renewed   *bool      `json:"renewed,omitempty"`
	RenewTime *time.Time `json:"renewTime,omitempty"`
	// RaftLag is how many entries of the raft log the member lacks of what another member reported. The reports are up to
	// one renewal apart, so that a few entries under load are normal.
	RaftLag  *uint64 `json:"raftLag,omitempty"`
	Term     *uint64 `json:"term,omitempty"`
	Revision *int64  `json:"revision,omitempty"`
	// DBSize, DBInUse and VolumeFree are in bytes.
	DBSize     *int64 `json:"dbSizeBytes,omitempty"`
	DBInUse    *int64 `json:"dbInUseBytes,omitempty"`
	VolumeFree *int64 `json:"volumeFreeBytes,omitempty"`
	// Disk is the agent's verdict on the disk: OK, Slow or VerySlow. FsyncP99 is how long 99 % of the writes to the log of etcd
	// take at most, in seconds, nil if the agent did not measure it in the last minutes.
	Disk     string   `json:"disk,omitempty"`
	FsyncP99 *float64 `json:"fsyncP99Seconds,omitempty"`
	// DiskState is the state in the disk report, empty while etcd runs.
	DiskState string `json:"diskState,omitempty"`
	Version   string `json:"version,omitempty"`
	Agent     string `json:"agentVersion,omitempty"`
	Node      string `json:"node,omitempty"`
	// NodeReady is the condition Ready of the node: True, False or Unknown.
	NodeReady string `json:"nodeReady,omitempty"`
	Zone      string `json:"zone,omitempty"`
	// Alarm, Refused and Waits are what the agent reports: an alarm of etcd, why etcd refuses the agent, and why etcd does
	// not start.
	Alarm   string `json:"alarm,omitempty"`
	Refused string `json:"refused,omitempty"`
	Waits   string `json:"waits,omitempty"`
	// Rule is the row of the last decision of the agent about the start of etcd.
	Rule string `json:"rule,omitempty"`
}

// describeMembers describes each member that the status or a Lease has.
func (f findings) describeMembers(now time.Time) (all []Member) {
	var newest uint64
	for _, m := range f.members {
		newest = max(newest, m.Raft.LastIndex)
	}
	states := map[string]v1alpha1.MemberStatus{}
	for _, m := range f.Cluster.Status.Members {
		states[m.Name] = m
	}
	for _, name := range f.names() {
		status := states[name]
		m := Member{
			Name: name, ID: status.ID, Role: status.Role, State: string(status.Status), Reason: status.Reason, Message: status.Message,
			Leaving: string(status.Leaving), Version: status.Version, Disk: status.Disk,
		}
		if lease, ok := f.members[name]; ok {
			m.report(lease, newest, now)
		}
		if pod := f.pods[name]; pod != nil {
			f.place(&m, pod)
		}
		all = append(all, m)
	}
	return all
}

// report adds what the agent reported.
func (m *Member) report(lease member, newest uint64, now time.Time) {
	m.Renewed = new(lease.renewed(now))
	if at := lease.lease.Spec.RenewTime; at != nil {
		m.RenewTime = new(at.Time)
	}
	if !lease.known {
		return
	}
	if lease.ID != 0 {
		m.ID, m.Role = leases.FormatID(lease.ID), string(lease.Role)
	}
	if !lease.Raft.IsZero() {
		m.RaftLag, m.Term = new(newest-lease.Raft.LastIndex), new(lease.Raft.Term)
	}
	m.Revision, m.DBSize, m.DBInUse, m.VolumeFree = Known(lease.Revision), Known(lease.DBSize), Known(lease.DBSizeInUse), Known(lease.VolumeFree)
	m.Disk = string(lease.Fsync.Speed)
	if lease.Fsync.Fresh() {
		m.FsyncP99 = new(lease.Fsync.P99.Seconds())
	}
	if report := lease.Member.Disk; report != nil {
		m.DiskState = string(report.State)
	}
	if lease.Version != "" {
		m.Version = lease.Version
	}
	m.Agent, m.Alarm, m.Refused, m.Waits, m.Rule = lease.AgentVersion, lease.Alarm, lease.Refused, lease.Reason, lease.Rule
}

// Known is nil for zero, with which a Lease and a status say that a number is unknown.
func Known(n int64) *int64 {
	if n == 0 {
		return nil
	}
	return &n
}

// place adds where the Pod runs. Kubernetes 1.35 and later copy the zone of the node to the Pod.
func (f findings) place(m *Member, pod *corev1.Pod) {
	m.Node, m.Zone = pod.Spec.NodeName, pod.Labels[corev1.LabelTopologyZone]
	node := f.nodes[m.Node]
	if node == nil {
		return
	}
	if m.Zone == "" {
		m.Zone = node.Labels[corev1.LabelTopologyZone]
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			m.NodeReady = string(condition.Status)
		}
	}
}
