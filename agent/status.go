package agent

import (
	"net"
	"strconv"
	"strings"
	"sync"

	"github.com/etcd-druid/druid/agent/certificates"
	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/agent/datadir"
	"github.com/etcd-druid/druid/agent/datadir/volume"
	"github.com/etcd-druid/druid/agent/start"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

// Status is the response of /v1/status: what the agent knows about its member. Fields are added, and never change
// their meaning.
type Status struct {
	Namespace string `json:"namespace"`
	Cluster   string `json:"cluster"`
	Member    string `json:"member"`
	PodUID    string `json:"podUID"`
	// AgentVersion is the version of the agent that responds.
	AgentVersion string `json:"agentVersion"`
	// Launch is what the etcd container reports.
	Launch LaunchStatus `json:"launch"`
	Etcd   EtcdStatus   `json:"etcd"`
	Start  StartStatus  `json:"start"`
	Lease  LeaseStatus  `json:"lease"`
	// Leading: this agent runs the leader's duties.
	Leading bool `json:"leading"`
}

// LaunchStatus is what launch reports about the etcd process.
type LaunchStatus struct {
	// Connected is false while launch is not connected. etcd can still be running.
	Connected bool `json:"connected"`
	// State is idle, running, blocked or stopping.
	State string `json:"state,omitempty"`
	PID   int    `json:"pid,omitempty"`
	Error string `json:"error,omitempty"`
}

// EtcdStatus is etcd's own response. IDs are hexadecimal, sizes are in bytes.
type EtcdStatus struct {
	Reachable bool `json:"reachable"`
	// Healthy: in the cluster and serving. Problem says why not.
	Healthy   bool   `json:"healthy"`
	Problem   string `json:"problem,omitempty"`
	ClusterID string `json:"clusterID,omitempty"`
	MemberID  string `json:"memberID,omitempty"`
	// Role is Leader, Member or Learner.
	Role string `json:"role,omitempty"`
	// Leader is the member ID of the leader according to this member.
	Leader       string `json:"leader,omitempty"`
	Version      string `json:"version,omitempty"`
	Revision     int64  `json:"revision,omitempty"`
	DBSize       int64  `json:"dbSize,omitempty"`
	DBSizeInUse  int64  `json:"dbSizeInUse,omitempty"`
	RaftTerm     uint64 `json:"raftTerm,omitempty"`
	RaftIndex    uint64 `json:"raftIndex,omitempty"`
	AppliedIndex uint64 `json:"appliedIndex,omitempty"`
	// Errors are from etcd, and include raised alarms.
	Errors []string `json:"errors,omitempty"`
}

// StartStatus is the last start decision. It is empty while an etcd runs that this agent did not start.
type StartStatus struct {
	Mode   string `json:"mode,omitempty"`
	Rule   string `json:"rule,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Data is the state of the data directory.
	Data string `json:"data,omitempty"`
}

// LeaseStatus is the member Lease when it was last read or written.
type LeaseStatus struct {
	// Known is false while the Lease cannot be read. The other fields then have no meaning.
	Known          bool   `json:"known"`
	HolderIdentity string `json:"holderIdentity,omitempty"`
	// PodUID from druid. If it differs from that of this Pod, a later Pod has the member's name.
	PodUID string `json:"podUID,omitempty"`
	// Removal is the state of the removal request, empty for a member that stays.
	Removal string `json:"removal,omitempty"`
}

// Status returns what the agent knows now. It sends no requests.
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
	d := a.facts.reported()
	s.Start = StartStatus{Mode: string(d.Mode), Rule: d.Rule, Reason: d.Reason, Data: d.Data}
	return s
}

func leaseStatus(lease leases.Member, known bool, _ <-chan struct{}) LeaseStatus {
	return LeaseStatus{Known: known, HolderIdentity: lease.HolderIdentity(), PodUID: lease.PodUID, Removal: string(lease.Removal.State)}
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

// facts collects what the member Lease and the status report.
type facts struct {
	version string

	mu      sync.Mutex
	decided start.Published
	// barred takes precedence over decided while launch has no volume. decided is then from a time when it had one.
	barred start.Decision
	// seen is the last response of etcd. now is the last check, which can have no response.
	seen    membership.Status
	now     State
	leading bool
	// alarm is what the leader's duties report about a raised alarm, empty for none.
	alarm string
	// free is the free space of the volume in bytes, 0 while it is unknown.
	free int64
	// snapshots that an etcd of this Pod takes of its log.
	snapshots leases.Snapshots
	// tls is the state of the certificates.
	tls leases.TLS
	// fsync is how fast the running etcd writes its log, zero while that is unknown.
	fsync leases.Fsync
}

// undecided is reported for an alarm until the leader's duties have handled it. A new leader handles it later, but the
// alarm is already raised.
const undecided = "undecided: the leader's agent has not handled the alarm yet"

func newFacts(version string, snapshots leases.Snapshots) *facts {
	return &facts{version: version, snapshots: snapshots}
}

// snapshotCount is the number of raft entries after which the member's etcd writes a raft snapshot: the configured
// number, or etcd's default (server/etcdserver.DefaultSnapshotCount: 100000 in 3.5, 10000 since 3.6).
func snapshotCount(c config.Config) uint64 {
	switch {
	case c.SnapshotCount > 0:
		return uint64(c.SnapshotCount)
	case strings.HasPrefix(c.EtcdVersion, "3.5."):
		return 100_000
	default:
		return 10_000
	}
}

func (f *facts) decide(p start.Published) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.decided = p
}

func (f *facts) bar(d start.Decision) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.barred = d
}

// reported is the current start decision. The caller holds the lock.
func (f *facts) reported() start.Published {
	if f.barred.Rule != "" {
		return start.Published{Decision: f.barred, Data: start.DataUnread.String()}
	}
	return f.decided
}

func (f *facts) observe(s State) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now = s
	if s.Reachable {
		f.seen = s.Status
	}
}

func (f *facts) room(free int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.free = free
}

func (f *facts) measured(fsync leases.Fsync) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fsync = fsync
}

func (f *facts) alarmed(alarm string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.alarm = alarm
}

func (f *facts) certified(states []certificates.State) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tls = leases.TLS{}
	for _, s := range states {
		f.tls = f.tls.With(s.Plane, leases.TLSPlane{
			Trusted: strings.Join(s.Trusted[:min(len(s.Trusted), leases.MaxTLSTrusted)], ","), Running: s.Running, Staged: s.Staged, Issuer: s.Issuer,
			NotAfter: s.NotAfter, ComparesNames: s.ComparesNames, Problem: s.Problem,
		})
	}
}

func (f *facts) lead(leading bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.leading = leading
}

// listening adds how etcd listens to its peers. That is empty while the data is not known.
func listening(t leases.TLS, identityFile datadir.IdentityFile) leases.TLS {
	if t.Peer != (leases.TLSPlane{}) {
		t.Peer.Scheme = identityFile.PeerScheme
	}
	return t
}

// fact returns the content of the Lease. It contains the IDs only when the raft group exists for certain, because a
// Lease with an ID is evidence against a second bootstrap.
func (f *facts) fact(identityFile datadir.IdentityFile, known bool) leases.Fact {
	f.mu.Lock()
	defer f.mu.Unlock()
	reported := f.reported()
	m := leases.Member{
		AgentVersion: f.version, Snapshots: f.snapshots, TLS: listening(f.tls, identityFile), Data: reported.Data, Rule: reported.Rule, Reason: reported.Reason,
	}
	if f.now.Refused != "" && f.seen.MemberID == 0 && known && identityFile.Formed {
		// This process has not seen an answer of the etcd, which serves. It is the one of the data.
		f.seen.MemberID, f.seen.ClusterID, f.seen.Role = uint64(identityFile.MemberID), uint64(identityFile.ClusterID), membership.RoleMember
	}
	ours := known && identityFile.Formed && f.seen.MemberID == uint64(identityFile.MemberID) && f.seen.ClusterID == uint64(identityFile.ClusterID)
	if !ours || f.seen.MemberID == 0 {
		return leases.Fact{Member: m}
	}
	m.ID, m.ClusterID, m.Epoch, m.Lineage = f.seen.MemberID, f.seen.ClusterID, identityFile.Epoch, identityFile.Lineage
	m.Role = leases.Role(f.seen.Role)
	if !f.now.Reachable && m.Role == leases.RoleLeader {
		m.Role = leases.RoleMember // a member that does not respond does not lead
	}
	m.Raft = leases.Raft{Term: f.seen.RaftTerm, Committed: f.seen.RaftIndex}
	m.Revision, m.DBSize, m.DBSizeInUse, m.Version = f.seen.Revision, f.seen.DBSize, f.seen.DBSizeInUse, f.seen.Version
	m.VolumeFree, m.Fsync, m.Alarm, m.Refused = f.free, f.fsync, f.alarm, f.now.Refused
	if m.Alarm == "" && m.Role == leases.RoleLeader && f.seen.Alarmed() {
		m.Alarm = undecided
	}
	return leases.Fact{Member: m, Alive: f.now.Healthy}
}

// observes wires what looks at the etcd of the member: whether it serves, and how fast it writes its log.
func (a *Agent) observes() {
	a.observer = newObserver(a.transport, a.local(), a.etcdMayRun, a.log)
	a.observer.looked = a.looked
	metricsURL := "http://" + net.JoinHostPort(a.listenHost(), strconv.Itoa(a.options.Config.MetricsPort))
	a.observer.probe = metricsURL + "/readyz"
	a.speed = &disk{
		client: a.transport.HTTPClient(), url: metricsURL + "/metrics", every: fsyncInterval, mayRun: a.etcdMayRun, log: a.log,
		measured: a.measured,
	}
}

// looked is called after every check of the own etcd.
func (a *Agent) looked(s State) {
	a.beats.beat(loopObserver)
	a.metrics.observe(s)
	a.facts.observe(s)
	if free, err := volume.Free(a.options.Config.VolumePath); err == nil { // otherwise the Lease keeps the last known value
		a.facts.room(free)
		a.metrics.free.Set(float64(free))
	}
	if size, err := volume.Size(a.options.Config.VolumePath); err == nil {
		a.metrics.size.Set(float64(size))
	}
	a.publish()
}

// measured is called after every measurement of the disk. The result goes into the Lease with the next renewal.
func (a *Agent) measured(f leases.Fsync) {
	a.metrics.measured(f)
	a.facts.measured(f)
	a.publish()
}
