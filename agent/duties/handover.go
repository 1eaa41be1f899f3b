package duties

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

// handoverTable is the name of the decisions about a slow leader in the metric of all decisions.
const handoverTable = "membership.handovers"

const (
	// slowFor is how long the disk of the leader must have been slow. The alert EtcdDiskSlow waits as long. It is longer than the five minutes
	// over which an agent measures, so that one bad moment moves nothing.
	slowFor = 10 * time.Minute
	// followersInterval is the time between two reads of the followers' Leases while the leader is slow. An agent renews its Lease each 15 s,
	// so that each read finds another version of the Lease of a live agent.
	followersInterval = 30 * time.Second
	// unmeasured is how long a slow disk counts as slow without a new measurement. An agent measures each 15 s, so three failed reads in a row
	// change nothing.
	unmeasured = time.Minute
)

// slowness is how long the disk of the leader has been slow.
type slowness struct {
	// since is when the disk was first seen slow, zero while it is not. seen is when it was last seen slow.
	since, seen time.Time
}

// look takes a verdict, and returns how long the disk has been slow. A disk that is not measured for a moment is as it was.
func (s *slowness) look(now time.Time, disk membership.DiskSpeed) time.Duration {
	switch {
	case disk == membership.DiskOK, disk == membership.DiskUnknown && now.Sub(s.seen) >= unmeasured:
		*s = slowness{}
	case disk == membership.DiskSlow:
		if s.since.IsZero() {
			s.since = now
		}
		s.seen = now
	}
	if s.since.IsZero() {
		return 0
	}
	return now.Sub(s.since)
}

// handover is the duty that moves leadership away from a member whose disk is much slower than that of a follower. While the disk is fast
// enough, it makes no calls.
type handover struct {
	*round
	slow slowness
	// readAt is when the Leases of the followers were last read, and versions are those that were found.
	readAt   time.Time
	versions map[string]leases.Version
	// last is the rule that decided last.
	last string
}

// Run decides, and moves leadership if that is due.
func (r *handover) Run(ctx context.Context, self Cluster, view membership.View) (again bool, err error) {
	if r.Fsync == nil {
		return false, nil
	}
	own := r.Fsync()
	f := r.handoverFacts(own)
	due := f.Disk == membership.DiskSlow && f.Lasting == rules.Yes && f.Moved == rules.No
	var to membership.Member
	if due {
		if time.Since(r.readAt) < r.followersAge {
			return false, nil
		}
		r.readAt = time.Now()
		if to, err = r.compareDisks(ctx, self, view, own, &f); err != nil {
			return false, err
		}
	}
	d := membership.DecideHandover(f)
	if r.last != d.Rule {
		r.last = d.Rule
		r.Decisions.WithLabelValues(handoverTable, d.Rule).Inc()
		r.Log.InfoContext(ctx, "disk of the leader decided", "disk", own.Speed, "p99", own.P99, "member", to.Name, "mode", d.Verdict, "rule", d.Rule, "reason", d.Why)
	}
	if d.Verdict != membership.HandoverMove {
		return false, nil
	}
	return false, r.handOver(ctx, to, d.Rule)
}

// handoverFacts returns what is known without a request.
func (r *handover) handoverFacts(own leases.Fsync) membership.HandoverFacts {
	f := membership.HandoverFacts{
		Disk: diskSpeed(own), Lasting: rules.No, Authoritative: rules.Unknown, Leads: rules.Unknown, Stable: rules.Unknown, Followers: membership.FollowersUnknown,
		Moved: rules.YesNoOf(!r.handedOver.IsZero() && time.Since(r.handedOver) < r.handoverRest),
	}
	slow := r.slow.look(time.Now(), f.Disk)
	if f.Lasting = rules.YesNoOf(slow >= r.slowFor); f.Lasting == rules.No {
		r.versions = nil
	}
	return f
}

func diskSpeed(f leases.Fsync) membership.DiskSpeed {
	switch f.Speed {
	case leases.SpeedOK:
		return membership.DiskOK
	case leases.SpeedSlow, leases.SpeedVerySlow:
		return membership.DiskSlow
	default:
		return membership.DiskUnknown
	}
}

// compareDisks reads the record, and then the Leases of all voters and their state in etcd. It does not read them if no
// transfer is possible. It returns the member that should lead.
func (r *handover) compareDisks(ctx context.Context, self Cluster, view membership.View, own leases.Fsync,
	f *membership.HandoverFacts) (to membership.Member, err error) {
	if err := r.read(ctx); err != nil {
		return to, err
	}
	f.Authoritative, f.Stable = r.authoritative(self), membership.Stable(view, r.record.Members)
	if r.record.PendingRemoval != nil || r.record.Replacing != nil || r.record.Undecided != (leases.Undecided{}) {
		f.Stable = rules.No
	}
	status, err := r.localStatus(ctx)
	if err != nil {
		return to, err
	}
	f.Leads = rules.AnswerOf(leads(status, view))
	if !membership.FollowersDecide(*f) { // for example in a joined raft group, whose external members have no Lease
		r.versions = nil
		return to, nil
	}
	versions := map[string]leases.Version{}
	var followers []membership.Follower
	for _, s := range statuses(ctx, r.Dial, view) {
		m, listed := view.Member(s.MemberID)
		if !listed {
			continue
		}
		lease, err := r.Store.Member(ctx, m.Name)
		switch {
		case err != nil && !errors.Is(err, leases.ErrAbsent): // without a Lease, it has reported nothing
			return to, err
		case m.ID == self.MemberID && (lease.PodUID != self.PodUID || lease.Removal.State != leases.RemovalNone):
			f.Authoritative = rules.No // a superseded agent changes nothing, and the removal of a leader moves leadership itself
		case m.ID != self.MemberID:
			versions[m.Name] = lease.LeaseVersion
			followers = append(followers, membership.Follower{Status: s, P99: r.reported(m, lease)})
		}
	}
	r.versions = versions
	best, state := membership.FastestFollower(status.RaftIndex, own.P99, followers)
	f.Followers = state
	to, _ = view.Member(best.Status.MemberID)
	return to, nil
}

// reported returns what a follower reports about its disk, or 0 if its agent did not renew the Lease since the last
// look, if the Lease is about another member ID, or if the member is being removed.
func (r *handover) reported(m membership.Member, lease leases.Member) time.Duration {
	before, seen := r.versions[m.Name]
	if !seen || before == lease.LeaseVersion || lease.ID != m.ID || lease.Removal.State != leases.RemovalNone || lease.DataDiffers() {
		return 0
	}
	return lease.Fsync.P99
}

// handOver moves leadership to the member.
func (r *handover) handOver(ctx context.Context, to membership.Member, rule string) error {
	before := r.handedOver
	r.handedOver = time.Now() // also when the answer is lost: it may have been done
	bounded, cancel := context.WithTimeout(ctx, transferTimeout)
	defer cancel()
	_, err := TransferTo(bounded, r.Dial, r.Local, to.Name)
	if errors.Is(err, ErrSuccessor) || errors.Is(err, ErrNoVoter) {
		r.handedOver = before // no leadership transfer was requested
	}
	if err != nil {
		return fmt.Errorf("hand the leadership over to %s, whose disk is much faster: %w", to.Name, err)
	}
	r.Log.InfoContext(ctx, "leadership transferred", "member", to.Name, "memberID", leases.FormatID(to.ID), "rule", rule)
	return nil
}
