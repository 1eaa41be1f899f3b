package duties

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/etcd-druid/druid/internal/crash"
	"github.com/etcd-druid/druid/internal/loop"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

// Pace of the duties.
const (
	// pollInterval between two looks at the member list, asked of the leader itself: no Kubernetes call.
	pollInterval = 5 * time.Second
	// recordInterval is how long a record that was read serves as long as nothing is to be written or removed: one GET
	// each 30 s is what the leader costs the API server besides its Leases.
	recordInterval = 30 * time.Second
	// callTimeout of one call to etcd. The leader answers at once unless its disk or its quorum is in trouble.
	callTimeout = 3 * time.Second
	// drainInterval between two looks while a member is on its way out: what a step waits for, etcd's guard of 5 s among it,
	// is met within seconds.
	drainInterval = time.Second
	// statusTimeout bounds the answer of another member: half of what a transfer of leadership may take in all.
	statusTimeout = 1500 * time.Millisecond
)

// Cluster is what the duties know of their own place.
type Cluster struct {
	// ClusterID of the raft group that our member runs in; a record of another one is not ours to touch.
	ClusterID uint64
	// MemberID and Member, the name, of our own member.
	MemberID uint64
	Member   string
	// PodUID of this Pod.
	PodUID string
}

// Options of the duties.
type Options struct {
	Store *leases.Store
	Dial  membership.Dial
	// Local is the client endpoint of our own member.
	Local string
	// Self reports our own place, false while it is not known. It may change: a member that replaced itself has a new ID.
	Self func() (Cluster, bool)
	// PeerURL of the member called name.
	PeerURL func(name string) string
	// Grace is the superfluous grace period that is in force.
	Grace func() time.Duration
	// RemoveOthers is the user's word that the members of a group that was joined may go; nil for a word that was not given.
	RemoveOthers func() bool
	// Complete fills in what a record that was made again lacks, and says whether it lacked anything; it may be nil.
	Complete func(leases.Record) (leases.Record, bool)
	// Defrag reports what the configuration in force says of defragmentations now; nil for never. Defragmented is informed of each one;
	// it may be nil.
	Defrag       func(now time.Time) DefragPolicy
	Defragmented func(Defragmented)
	// Alarmed is reported what is done about etcd's alarms whenever that changes, and that nothing is to be done (the zero decision) when
	// none stands or this agent does not lead any more; it may be nil.
	Alarmed func(membership.NospaceDecision)
	Log     *slog.Logger
	// Decisions counts decisions by table and rule.
	Decisions *prometheus.CounterVec
}

// Duties are performed by the leader's agent. Run them under WhileLeader, never twice at once: each call of Run begins with
// clean clocks, and remembers of the one before it which members were defragmented.
type Duties struct {
	Options
	poll, recordAge, handBack, comparePause, nospaceAgain time.Duration

	defrag defragMemory
}

// New returns the duties.
func New(o Options) *Duties {
	if o.RemoveOthers == nil {
		o.RemoveOthers = func() bool { return false }
	}
	return &Duties{
		Options: o, poll: pollInterval, recordAge: recordInterval, handBack: handBackAfter, comparePause: comparePause,
		nospaceAgain: membership.NospaceAgain,
		defrag:       defragMemory{attempts: map[uint64]attempt{}},
	}
}

// round is what one leadership keeps from one look to the next.
type round struct {
	*Duties
	record  leases.Record
	version leases.Version
	readAt  time.Time
	// since says when each superfluous member was first seen so; removedAt is when this leader last removed one.
	since     map[uint64]time.Time
	removedAt time.Time
	// last decision per member, so that a repeated one is reported once.
	last map[uint64]string
	// draining is what is known of the member that is on its way out.
	draining draining
	// sizedAt is when the databases' sizes were last looked at, lastDefrag the last decision about them.
	sizedAt    time.Time
	lastDefrag string
	// curing is what is known of the revisions, and of the alarm.
	recovering recovering
	// upgrading is what is known of the order to compare the members.
	upgrading upgrading
	// trouble that was logged last.
	trouble loop.Change[string]
}

// Run performs the duties until ctx ends. What goes wrong is logged once per change and tried again.
func (d *Duties) Run(ctx context.Context) error {
	versions := make(chan leases.Version, 1)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return d.follow(ctx, versions) })
	group.Go(func() error { return d.perform(ctx, versions) })
	return group.Wait()
}

// perform looks at each poll, at once when the record changed, and again at once after a step that another one follows.
func (d *Duties) perform(ctx context.Context, versions <-chan leases.Version) error {
	r := &round{Duties: d, since: map[uint64]time.Time{}, last: map[uint64]string{}, sizedAt: time.Now()}
	defer r.reportAlarm(membership.NospaceDecision{})
	for {
		again, err := r.look(ctx)
		r.note(ctx, err)
		if again && err == nil {
			continue
		}
		if !r.rest(ctx, versions) {
			return nil
		}
	}
}

// rest until the next look is due; false means that ctx ended.
func (r *round) rest(ctx context.Context, versions <-chan leases.Version) bool {
	timer := time.NewTimer(r.pause())
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-timer.C:
			return true
		case version := <-versions:
			if version != r.version { // not our own write
				r.readAt = time.Time{}
				return true
			}
		}
	}
}

// look is one look at the list and what follows from it; again says that a step was done which another one follows.
func (r *round) look(ctx context.Context) (again bool, err error) {
	self, ok := r.Self()
	if !ok {
		return false, nil
	}
	view, err := membership.Observe(ctx, r.Dial, membership.Query{
		Endpoints: []string{r.Local}, ClusterID: self.ClusterID, Timeout: callTimeout,
	})
	if err != nil {
		return false, err
	}
	list := listOf(view)
	if r.version == "" || time.Since(r.readAt) >= r.recordAge || !sameMembers(r.record.MemberList, list) {
		if err := r.read(ctx); err != nil {
			return false, err
		}
	}
	if err := r.publish(ctx, self, list); err != nil {
		return false, err
	}
	again, err = r.drain(ctx, self, view)
	if err = errors.Join(err, r.removeSuperfluous(ctx, self, view)); again || err != nil {
		return again, err
	}
	return false, errors.Join(r.upgrade(ctx, self, view), r.tendDatabases(ctx, self, view))
}

// read gets the record. One that cannot be read leaves nothing to act on.
func (r *round) read(ctx context.Context) error {
	record, version, err := r.Store.Record(ctx)
	if err == nil {
		record, version, err = r.complete(ctx, record, version)
	}
	if err != nil {
		r.version = ""
		return err
	}
	r.record, r.version, r.readAt = record, version, time.Now()
	return nil
}

// complete writes what the record lacks. One that was completed is not read again: the write reports its version.
func (r *round) complete(ctx context.Context, record leases.Record, version leases.Version) (leases.Record, leases.Version, error) {
	if r.Complete == nil {
		return record, version, nil
	}
	completed, lacked := r.Complete(record)
	if !lacked {
		return record, version, nil
	}
	crash.Before("complete-record")
	version, err := r.Store.UpdateRecord(ctx, version, completed)
	crash.After("complete-record")
	if err != nil {
		return record, version, fmt.Errorf("complete the record: %w", err)
	}
	r.Log.InfoContext(ctx, "record completed", "clusterID", leases.FormatID(completed.ClusterID), "epoch", completed.Epoch)
	return completed, version, nil
}

// note logs a repeated trouble once per change. What fails because ctx ended is none.
func (r *round) note(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	text := ""
	if err != nil {
		text = err.Error()
	}
	if r.trouble.To(text) && err != nil {
		r.Log.WarnContext(ctx, "leader duties hindered", "err", err)
	}
}

// Pauses before the record is watched again. A watch that is refused, as by a Role of an older druid, costs the API server
// one request per minute; the record is read each recordInterval all the same.
const (
	watchPause    = time.Second
	maxWatchPause = time.Minute
)

// follow puts the newest version of the record that a watch reports into versions, until ctx ends. The watch makes the
// duties prompt and nothing else: they act only on what they read themselves.
func (d *Duties) follow(ctx context.Context, versions chan leases.Version) error {
	failed := false
	rest := loop.Backoff{First: watchPause, Last: maxWatchPause}
	for {
		err := d.Store.WatchRecord(ctx, func(version leases.Version) {
			rest.Reset()
			select {
			case <-versions: // an older one that no one took
			default:
			}
			versions <- version // no one else sends
		})
		if err != nil && !failed && ctx.Err() == nil {
			d.Log.WarnContext(ctx, "record not watched", "err", err)
		}
		failed = err != nil
		if !loop.Sleep(ctx, rest.Next()) {
			return nil
		}
	}
}
