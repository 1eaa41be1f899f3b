package duties

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/internal/versions"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

// upgradeFacts derives the facts from the request and from the status of each member.
func upgradeFacts(authoritative rules.Answer, order leases.UpgradeOrder, all []membership.Status) membership.UpgradeFacts {
	f := membership.UpgradeFacts{
		Authoritative: authoritative, Whole: rules.Yes, Course: membership.CourseOn, Announced: membership.AnnouncedNone,
		Reached: rules.No, Storage: rules.Yes, Log: membership.LogReadable,
	}
	if order.Downgrade != "" {
		f.Course = membership.CourseBack
	}
	announced := announcedBy(all)
	switch announced {
	case "":
	case order.Downgrade:
		f.Announced = membership.AnnouncedThis
	default:
		f.Announced = membership.AnnouncedOther
	}
	for _, s := range all {
		runs := lineOf(s.Version)
		if runs == "" {
			f.Reached, f.Storage = rules.Unknown, rules.Unknown
			return f
		}
		if runs == order.Downgrade || runs == announced {
			f.Reached = rules.Yes
		}
		if lags(s, order) {
			f.Storage = rules.No
		}
	}
	return f
}

// announcedBy returns the minor version of the downgrade that a member knows of, empty for none.
func announcedBy(all []membership.Status) string {
	for _, s := range all {
		if s.Downgrade != "" {
			return lineOf(s.Downgrade)
		}
	}
	return ""
}

// lags says whether the storage of a member still has the format of a later minor version than requested. A member
// that runs the requested minor version reads no other format.
func lags(s membership.Status, order leases.UpgradeOrder) bool {
	return order.Downgrade != "" && lineOf(s.Version) != order.Downgrade && lineOf(s.StorageVersion) != order.Downgrade
}

// lineOf returns major.minor of a version, empty if it is not a version.
func lineOf(version string) string {
	if strings.Count(version, ".") == 1 {
		version += ".0"
	}
	v, ok := versions.Parse(version)
	if !ok {
		return ""
	}
	return v.Line()
}

func storageText(order leases.UpgradeOrder, all []membership.Status) string {
	for _, s := range all {
		if lags(s, order) {
			return fmt.Sprintf(": the storage of member %s has the format of %s", leases.FormatID(s.MemberID), s.StorageVersion)
		}
	}
	return ""
}

const (
	// lastOldLog is the last minor version whose log can contain entries of etcd 3.5. The next minor version cannot
	// apply them and panics with "unmarshal should never fail" (etcdserver/apply: 3.7 does not know the requests of
	// the v2 API with which 3.5 published its members).
	lastOldLog, firstNewLog = "3.6", "3.7"
	// longestLog is the largest number of entries to wait for: a minute of small writes.
	longestLog = versions.MaxSnapshotCount
	// logSlack allows for entries that a member has applied but not yet recorded.
	logSlack = 100
	// lengthenTimeout bounds one attempt. The next attempt continues from where the members are then.
	lengthenTimeout = 2 * time.Minute
)

// logState returns what the members' logs hold for the requested version. etcd 3.6 or later formed a group whose
// max-learners is not 1, so 3.5 never wrote to its log. For other groups, the leader's agent remembers the raft index
// at which it first saw all members run 3.6. Each member then has to apply as many entries as the snapshot count,
// after which etcd takes a raft snapshot. Afterwards, no member applies the older entries again. The agent forgets the
// index when 3.7 is no longer requested or a member does not run 3.6, because 3.5 can write again then.
//
// The largest snapshot count of all members decides, because the Pods of the members can run with different counts.
func (r *upgrade) logState(ctx context.Context, order leases.UpgradeOrder, view membership.View, all []membership.Status) (membership.LogState, error) {
	if lineOf(order.Version) != firstNewLog || r.record.MaxLearners > leases.MaxLearners35 {
		r.upgrading.sinceIndex = 0
		return membership.LogReadable, nil
	}
	applied, index := ^uint64(0), uint64(0)
	for _, s := range all {
		if lineOf(s.Version) != lastOldLog {
			r.upgrading.sinceIndex = 0
			return membership.LogReadable, nil // the upgrade has already continued, or its step to 3.6 is the requested one
		}
		applied, index = min(applied, s.AppliedIndex), max(index, s.RaftIndex)
	}
	if r.upgrading.sinceIndex == 0 {
		r.upgrading.sinceIndex = index
	}
	count, err := r.largestSnapshotCount(ctx, view)
	if err != nil || count == 0 {
		return membership.LogUnknown, err
	}
	readableFrom := r.upgrading.sinceIndex + count + logSlack
	switch {
	case applied >= readableFrom:
		return membership.LogReadable, nil
	case count > longestLog:
		return membership.LogTooLong, nil
	default:
		r.upgrading.missing = readableFrom - applied
		return membership.LogOld, nil
	}
}

// largestSnapshotCount returns the largest snapshot count that the agents report for the Pods that exist, 0 while an
// agent does not report one.
func (r *upgrade) largestSnapshotCount(ctx context.Context, view membership.View) (largest uint64, err error) {
	for _, m := range view.Members {
		lease, err := r.Store.Member(ctx, m.Name)
		if err != nil {
			return 0, err
		}
		said := lease.Snapshots
		if lease.ID != m.ID || said.Entries == 0 || said.PodUID != lease.PodUID {
			return 0, nil
		}
		largest = max(largest, said.Entries)
	}
	return largest, nil
}

// passLog writes raft entries until the members no longer need the old part of the log.
func (r *upgrade) passLog(ctx context.Context) (err error) {
	client, done, err := r.Dial(ctx, r.Local)
	if err != nil {
		return err
	}
	defer func() { done(err) }()
	r.Log.InfoContext(ctx, "started to write raft entries, so that each member takes a raft snapshot before the next minor version", "entries",
		r.upgrading.missing)
	ctx, cancel := context.WithTimeout(ctx, lengthenTimeout)
	defer cancel()
	return membership.LengthenLog(ctx, client, r.upgrading.missing)
}

func passedText(entries uint64) string {
	return fmt.Sprintf("%d raft entries were written, so that no member needs the entries of etcd 3.5 any more", entries)
}
