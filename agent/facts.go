package agent

import (
	"strings"
	"sync"

	"github.com/etcd-druid/druid/agent/bootstrap"
	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/agent/datadir"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

// facts gathers what the member's Lease and the status report.
type facts struct {
	version string

	mu      sync.Mutex
	decided bootstrap.Published
	// barred stands above decided while launch has no volume: the decision is of a time when it had one.
	barred bootstrap.Decision
	// seen is the last answer of our etcd; now is the last look, which may be none.
	seen    membership.Status
	now     State
	leading bool
	// alarm is what the leader's duties say of an alarm that stands, empty for none.
	alarm string
	// free is what the volume has left, in bytes; 0 while it is not known.
	free int64
	// snapshots that an etcd of this Pod takes of its log.
	snapshots leases.Snapshots
}

// undecided is what is said of an alarm before the leader's duties looked at it: who came to lead waits with that, and the alarm stands all the
// same.
const undecided = "undecided: it has not looked at it yet"

func newFacts(version string, snapshots leases.Snapshots) *facts {
	return &facts{version: version, snapshots: snapshots}
}

// snapshotCount is the number of raft entries after which the member's etcd writes a raft snapshot: what is configured, or etcd's own
// default (server/etcdserver.DefaultSnapshotCount: 100000 in 3.5, 10000 since 3.6).
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

func (f *facts) decide(p bootstrap.Published) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.decided = p
}

func (f *facts) bar(d bootstrap.Decision) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.barred = d
}

// reported is the start decision that holds now. The caller holds the lock.
func (f *facts) notified() bootstrap.Published {
	if f.barred.Rule != "" {
		return bootstrap.Published{Decision: f.barred, Data: bootstrap.DataUnread.String()}
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

func (f *facts) alarmed(alarm string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.alarm = alarm
}

func (f *facts) lead(leading bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.leading = leading
}

// fact is what the Lease is to say. The IDs are reported only once the raft group exists for certain: a Lease that bears an
// ID is evidence against a second bootstrap.
func (f *facts) fact(stamp datadir.Stamp, known bool) leases.Fact {
	f.mu.Lock()
	defer f.mu.Unlock()
	notified := f.notified()
	m := leases.Member{
		AgentVersion: f.version, Snapshots: f.snapshots, Data: notified.Data, Rule: notified.Rule, Reason: notified.Reason,
	}
	ours := known && stamp.Formed && f.seen.MemberID == uint64(stamp.MemberID) && f.seen.ClusterID == uint64(stamp.ClusterID)
	if !ours || f.seen.MemberID == 0 {
		return leases.Fact{Member: m}
	}
	m.ID, m.ClusterID, m.Epoch, m.Lineage = f.seen.MemberID, f.seen.ClusterID, stamp.Epoch, stamp.Lineage
	m.Role = leases.Role(f.seen.Role)
	if !f.now.Reachable && m.Role == leases.RoleLeader {
		m.Role = leases.RoleMember // anyone who does not answer does not lead
	}
	m.Raft = leases.Raft{Term: f.seen.RaftTerm, Committed: f.seen.RaftIndex}
	m.Revision, m.DBSize, m.DBSizeInUse, m.Version = f.seen.Revision, f.seen.DBSize, f.seen.DBSizeInUse, f.seen.Version
	m.VolumeFree, m.Alarm = f.free, f.alarm
	if m.Alarm == "" && m.Role == leases.RoleLeader && f.seen.Alarmed() {
		m.Alarm = undecided
	}
	return leases.Fact{Member: m, Alive: f.now.Healthy}
}
