package policy

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
)

// holding is what is known of the data of one voter.
type holding uint8

const (
	holdsUnknown holding = iota // away: it holds what it held, as far as is known
	holdsHere                   // its etcd runs without a leader, or its disk is intact
	holdsNothing                // lost: positive evidence says that its data is gone or unusable
)

// part is one voter of the raft group.
type part struct {
	id string
	// member is empty for a voter that is no member of the cluster.
	member Member
	known  bool
	holds  holding
	claim  *leases.Claim
}

// name of the voter, for users.
func (p part) name() string {
	if p.known {
		return p.member.Name
	}
	return "ID " + p.id
}

// class orders sources of the same epoch.
type class uint8

const (
	classIntact class = iota
	classStale
	classDatabase // the log is damaged
)

// source is a disk or a backup.
type source struct {
	mode           v1alpha1.RecoverySource
	member         Member
	class          class
	epoch          uint32
	lastTerm, last uint64
	revision       int64
	// at is until when it has all writes, by the clock of the agent that said so.
	at      time.Time
	lineage string
}

// better orders sources: by epoch, then by the state of the data, then by the end of the log.
func (s source) better(other source) bool {
	return cmp.Or(cmp.Compare(s.epoch, other.epoch), cmp.Compare(other.class, s.class), cmp.Compare(s.lastTerm, other.lastTerm),
		cmp.Compare(s.last, other.last), cmp.Compare(s.revision, other.revision), strings.Compare(other.member.Name, s.member.Name)) > 0
}

// groupQuorum says whether the raft group serves: an agent renews its Lease only while its etcd is healthy in the cluster,
// and a kubelet calls etcd ready only if it answers a read of a quorum.
func groupQuorum(listed []Member) rules.Answer {
	answer, ready := rules.Answer(rules.No), 0
	for _, m := range listed {
		switch {
		case m.Lease == LeaseOurs && m.Readable && m.Liveness == leases.Live && m.Reports.ID != 0 && m.Reports.Role != leases.RoleLearner:
			return rules.Yes
		case m.Lease == LeaseOurs && m.Liveness == leases.Unknown:
			answer = rules.Unknown
		}
		if m.up() {
			ready++
		}
	}
	switch {
	case len(listed) > 0 && ready >= quorum(len(listed)):
		return rules.Yes
	case len(listed) == 0:
		return rules.Unknown
	default:
		return answer
	}
}

// counts says whether the claim of a member is about its present Pod and volume and about the record's raft group, or about
// an empty volume.
func counts(m Member, o Observed) bool {
	c := m.Reports.Disk
	if m.Lease != LeaseOurs || !m.Readable || c == nil || c.Pod != m.Reports.PodUID || c.Volume != m.Reports.VolumeUID {
		return false
	}
	if c.State == leases.DiskForeign || c.State == leases.DiskNewer {
		return false
	}
	if c.Cluster == "" {
		return true
	}
	twice := slices.ContainsFunc(o.Members, func(other Member) bool {
		d := other.Reports.Disk
		return other.Name != m.Name && d != nil && d.Cluster == c.Cluster && d.Member == c.Member
	})
	return !twice && (c.Cluster == leases.FormatID(o.Record.ClusterID) || c.Epoch > o.Record.FormedEpoch)
}

// volumeGone is evidence that the data of a member does not exist any more.
func volumeGone(m Member) bool {
	if m.Claim == ClaimAbsent && m.Pod == PodAbsent {
		return true
	}
	return m.Node == NodeOutOfService && m.Volume == VolumeLocal && m.Claim&(ClaimPresent|ClaimUnwanted) != 0
}

// observeParts finds the voters of the published list and of the claims.
func (r *recovery) observeParts(o Observed, listed []Member) {
	ids := publishedVoters(o)
	for _, m := range listed {
		if counts(m, o) {
			ids = append(ids, m.Reports.Disk.VoterIDs()...)
		}
	}
	slices.Sort(ids)
	for _, id := range slices.Compact(ids) {
		r.parts = append(r.parts, partOf(id, o, listed))
	}
}

// publishedVoters are the voters in the list that the leader published last.
func publishedVoters(o Observed) (ids []string) {
	if o.Record.MemberList == nil {
		return nil
	}
	for _, e := range o.Record.MemberList.Members {
		if !e.Learner {
			ids = append(ids, e.ID)
		}
	}
	return ids
}

func partOf(id string, o Observed, listed []Member) part {
	p := part{id: id}
	i := slices.IndexFunc(listed, func(m Member) bool { return hasID(m, id, o) })
	if i < 0 {
		return p
	}
	p.member, p.known = listed[i], true
	m := p.member
	if counts(m, o) {
		p.claim = m.Reports.Disk
	}
	state := diskOf(m, p.claim)
	switch {
	case volumeGone(m), state == leases.DiskEmpty, state == leases.DiskCorrupt, state == leases.DiskStale:
		p.holds = holdsNothing
	case p.claim != nil && state == leases.DiskIntact && p.claim.Member != id:
		p.holds = holdsNothing // a raft ID starts once on a volume
	case state == leases.DiskIntact:
		p.holds = holdsHere
	}
	return p
}

// diskOf is the state of a member's disk: by its claim, or else by what its agent reports while it waits to start etcd. An
// etcd that runs has intact data. It is empty if nothing is known.
func diskOf(m Member, claim *leases.Claim) leases.DiskState {
	switch {
	case claim != nil:
		return claim.State
	case m.Lease != LeaseOurs || !m.Readable || m.Pod != PodLive || m.NodeLost || m.Reports.PodUID != m.PodUID:
		return ""
	case m.Reports.Reason == "":
		return leases.DiskIntact
	}
	state, _, _ := strings.Cut(m.Reports.Data, " ")
	switch known := leases.DiskState(state); known {
	case leases.DiskEmpty, leases.DiskCorrupt, leases.DiskStale, leases.DiskIntact:
		return known
	default:
		return ""
	}
}

// hasID says whether the member has the ID, by its Lease, its claim or the published list.
func hasID(m Member, id string, o Observed) bool {
	if m.Lease == LeaseOurs && m.Readable && (m.Reports.ID != 0 && leases.FormatID(m.Reports.ID) == id || m.Reports.Disk != nil && m.Reports.Disk.Member == id) {
		return true
	}
	return o.Record.MemberList != nil && slices.ContainsFunc(o.Record.MemberList.Members, func(e leases.ListedMember) bool {
		return e.ID == id && (e.Name == m.Name || leases.MemberOfURL(e.PeerURL) == m.Name)
	})
}

// returning says whether the members that may hold their data are a quorum: of the best claim's list, because a published
// list can be older, else of the published one.
func (r *recovery) returning(o Observed) returns {
	ids := publishedVoters(o)
	if best, found := r.bestDisk(o); found {
		for _, p := range r.parts {
			if p.known && p.member.Name == best.member.Name && p.claim != nil && p.claim.Voters != "" {
				ids = p.claim.VoterIDs()
			}
		}
	}
	if len(ids) == 0 {
		return returnsUnknown
	}
	lost := 0
	for _, p := range r.parts {
		if p.holds == holdsNothing && slices.Contains(ids, p.id) {
			lost++
		}
	}
	if len(ids)-lost >= quorum(len(ids)) {
		return returnsMay
	}
	return returnsNot
}

// bestDisk returns the best source among the disks.
func (r *recovery) bestDisk(o Observed) (best source, found bool) {
	for _, p := range r.parts {
		if s, usable := diskSource(p, o); usable && (!found || s.better(best)) {
			best, found = s, true
		}
	}
	return best, found
}

// diskSource is the disk of a voter as a source. Without a claim, the last report of its Lease is an estimate.
func diskSource(p part, o Observed) (source, bool) {
	m, c := p.member, p.claim
	if !p.known || volumeGone(m) {
		return source{}, false
	}
	s := source{mode: v1alpha1.RecoveryFromSurvivor, member: m, at: m.Renewed, epoch: m.Reports.Epoch, lastTerm: m.Reports.Raft.LastTerm,
		last: m.Reports.Raft.LastIndex, revision: m.Reports.Revision, lineage: m.Reports.Lineage}
	if c == nil {
		return s, p.holds == holdsHere && m.Reports.ClusterID == o.Record.ClusterID && m.Reports.Revision > 0
	}
	s.epoch, s.lastTerm, s.last, s.revision, s.lineage = c.Epoch, c.LastTerm, c.Last, c.Revision+int64(c.Tail), c.Lineage
	switch {
	case c.Cluster == "":
		return s, false
	case c.State == leases.DiskIntact:
		s.class = classIntact
	case c.State == leases.DiskStale:
		s.class = classStale
	case c.State == leases.DiskCorrupt && c.WholeDB:
		s.class, s.revision = classDatabase, c.Revision
	default: // an etcd that ends again and again has data, and a cause that another start does not remove
		return s, false
	}
	return s, true
}

// backupSource is the newest backup of the raft group.
func backupSource(o Observed) (source, bool) {
	s := source{mode: v1alpha1.RecoveryFromBackup, at: o.SavedUntil}
	for _, report := range []leases.Backup{o.Full.Reports, o.Delta.Reports} {
		if report.EverSaved() && report.Lineage == o.Record.Lineage && report.Revision >= s.revision {
			s.revision, s.lineage = report.Revision, report.Lineage
		}
	}
	return s, s.revision > 0
}
