package agent

import (
	"github.com/etcd-druid/druid/leases"
)

// Status is the answer of /v1/status: what the agent knows of its member. Fields are added, never changed in meaning.
type Status struct {
	Namespace string `json:"namespace"`
	Cluster   string `json:"cluster"`
	Member    string `json:"member"`
	PodUID    string `json:"podUID"`
	// AgentVersion is the version of the agent that answers.
	AgentVersion string `json:"agentVersion"`
	// Launch is what the etcd container reports.
	Launch LaunchStatus `json:"launch"`
	Etcd   EtcdStatus   `json:"etcd"`
	Start  StartStatus  `json:"start"`
	Lease  LeaseStatus  `json:"lease"`
	// Leading: this agent performs the leader's duties.
	Leading bool `json:"leading"`
}

// LaunchStatus is what launch reports of etcd's process.
type LaunchStatus struct {
	// Connected is false while no launch is on the line; etcd may well be running then.
	Connected bool `json:"connected"`
	// State is idle, running, blocked or stopping.
	State string `json:"state,omitempty"`
	PID   int    `json:"pid,omitempty"`
	Error string `json:"error,omitempty"`
}

// EtcdStatus is etcd's own answer. IDs are hexadecimal, sizes are bytes.
type EtcdStatus struct {
	Reachable bool `json:"reachable"`
	// Healthy: in the cluster and serving. Problem says why not.
	Healthy   bool   `json:"healthy"`
	Problem   string `json:"problem,omitempty"`
	ClusterID string `json:"clusterID,omitempty"`
	MemberID  string `json:"memberID,omitempty"`
	// Role is Leader, Member or Learner.
	Role string `json:"role,omitempty"`
	// Leader is the member ID of the leader that this member knows.
	Leader       string `json:"leader,omitempty"`
	Version      string `json:"version,omitempty"`
	Revision     int64  `json:"revision,omitempty"`
	DBSize       int64  `json:"dbSize,omitempty"`
	DBSizeInUse  int64  `json:"dbSizeInUse,omitempty"`
	RaftTerm     uint64 `json:"raftTerm,omitempty"`
	RaftIndex    uint64 `json:"raftIndex,omitempty"`
	AppliedIndex uint64 `json:"appliedIndex,omitempty"`
	// Errors are etcd's own words, raised alarms among them.
	Errors []string `json:"errors,omitempty"`
}

// StartStatus is the last start decision: empty while an etcd runs that this agent did not start.
type StartStatus struct {
	Mode   string `json:"mode,omitempty"`
	Rule   string `json:"rule,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Data is the state in which the data directory was found.
	Data string `json:"data,omitempty"`
}

// LeaseStatus is what the member's Lease said when it was last read or written.
type LeaseStatus struct {
	// Known is false while the Lease could not be read: then the rest says nothing.
	Known          bool   `json:"known"`
	HolderIdentity string `json:"holderIdentity,omitempty"`
	// PodUID that druid wrote; another one than ours means that a successor bears the member's name.
	PodUID string `json:"podUID,omitempty"`
	// Retire is the state of the drain mark, empty for a member that is to stay.
	Retire string `json:"retire,omitempty"`
}

// Status is what the agent knows now. It asks no one.
func (a *Agent) Status() Status {
	c := a.options.Config
	s := Status{
		Namespace: c.Namespace, Cluster: c.Cluster, Member: c.Member, PodUID: c.PodUID, AgentVersion: a.options.Version,
		Lease: leaseStatus(a.renewer.Lease()),
	}
	launched, _ := a.launch.State()
	s.Launch = LaunchStatus{
		Connected: launched.Connected, State: string(launched.Report.State), PID: launched.Report.PID, Error: launched.Report.Error,
	}
	a.facts.mu.Lock()
	defer a.facts.mu.Unlock()
	s.Etcd, s.Leading = etcdStatus(a.facts.now), a.facts.leading
	d := a.facts.notified()
	s.Start = StartStatus{Mode: string(d.Mode), Rule: d.Rule, Reason: d.Reason, Data: d.Data}
	return s
}

func leaseStatus(lease leases.Member, known bool, _ <-chan struct{}) LeaseStatus {
	return LeaseStatus{Known: known, HolderIdentity: lease.HolderIdentity(), PodUID: lease.PodUID, Retire: string(lease.Retire.State)}
}

func etcdStatus(s State) EtcdStatus {
	e := EtcdStatus{Reachable: s.Reachable, Healthy: s.Healthy, Problem: s.Problem}
	if !s.Reachable {
		return e
	}
	st := s.Status
	e.ClusterID, e.MemberID, e.Role = leases.FormatID(st.ClusterID), leases.FormatID(st.MemberID), string(st.Role)
	if st.Leader != 0 {
		e.Leader = leases.FormatID(st.Leader)
	}
	e.Version, e.Revision, e.DBSize, e.DBSizeInUse = st.Version, st.Revision, st.DBSize, st.DBSizeInUse
	e.RaftTerm, e.RaftIndex, e.AppliedIndex, e.Errors = st.RaftTerm, st.RaftIndex, st.AppliedIndex, st.Errors
	return e
}
