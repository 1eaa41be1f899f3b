package duties

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"github.com/etcd-druid/druid/internal/crash"
	"github.com/etcd-druid/druid/internal/loop"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

// Intervals and timeouts of the duties.
const (
	// pollInterval is the pause between two reads of the member list from the leader itself. They make no Kubernetes
	// calls.
	pollInterval = 5 * time.Second
	// recordInterval is how long a record that was read is used while there is nothing to write or remove. In addition
	// to its Leases, the leader costs the API server one GET each 30 s.
	recordInterval = 30 * time.Second
	// callTimeout bounds one call to etcd. The leader answers at once unless its disk or its quorum has a problem.
	callTimeout = 3 * time.Second
	// drainInterval is the pause between two looks while a member is being removed. What a step waits for, such as
	// etcd's 5 s check, takes seconds.
	drainInterval = time.Second
	// statusTimeout bounds the answer of another member. It is half of what a transfer of leadership may take in
	// total.
	statusTimeout = 1500 * time.Millisecond
)

// Cluster identifies the agent's own member, Pod and raft group.
type Cluster struct {
	// ClusterID of the raft group of the agent's own member. The duties never change a record of another raft group.
	ClusterID uint64
	// MemberID and Member are the ID and the name of the agent's own member.
	MemberID uint64
	Member   string
	// PodUID of this Pod.
	PodUID string
}

// Options configures the duties.
type Options struct {
	Store *leases.Store
	Dial  membership.Dial
	// Local is the client endpoint of the agent's own member.
	Local string
	// Self returns the agent's own member and Pod, or false while they are unknown. A member that replaced itself has a new ID.
	Self func() (Cluster, bool)
	// PeerURL of the member called name.
	PeerURL func(name string) string
	// Grace returns the grace period in force for superfluous members.
	Grace func() time.Duration
	// RemoveExternalMembers says whether the user allows the removal of the external members of a joined raft group. nil means no.
	RemoveExternalMembers func() bool
	// Complete adds the fields that a recreated record lacks, and says whether it lacked any. It can be nil.
	Complete func(leases.Record) (leases.Record, bool)
	// Defrag returns the configuration in force for defragmentations; nil disables them. Defragmented receives each
	// result; it can be nil.
	Defrag       func(now time.Time) DefragPolicy
	Defragmented func(Defragmented)
	// Alarmed receives the decision about etcd's alarms whenever it changes. It receives the zero decision when there
	// is no alarm or this agent no longer leads. It can be nil.
	Alarmed func(membership.NospaceDecision)
	// Auth returns the configuration in force for authentication in etcd; nil means that the agents leave it alone.
	// Authenticated receives each report about it; it can be nil.
	Auth          func() AuthPolicy
	Authenticated func(leases.AuthReport)
	// AuthRead receives the ID of the cluster and etcd's state of authentication each time that the agent read it, unless it then made changes
	// and reads it again. It can be nil.
	AuthRead func(cluster uint64, now membership.AuthSwitch)
	// Compare returns how often the data of all voters is compared; nil means never. Compared receives each result, and whether
	// nothing is known to differ, also from earlier comparisons. When this agent no longer leads, it receives the zero
	// Comparison and false. It can be nil.
	Compare  func() time.Duration
	Compared func(found membership.Comparison, equal bool)
	// Differed receives the IDs of the members whose data was found to differ, also of those that were replaced since. It can be nil.
	Differed func(ids []uint64)
	// Fsync returns how fast the agent's own member wrote its log in the last minutes, zero if that is unknown. nil means
	// that leadership is never moved for a slow disk.
	Fsync func() leases.Fsync
	// PlanRestore plans a restore in place to the target. lineage is that of the cluster record. An error is a sentence for the user. nil
	// means that requests for a plan are not answered.
	PlanRestore func(ctx context.Context, target leases.RestoreTarget, lineage string) (leases.RestorePlan, error)
	Log         *slog.Logger
	// Decisions counts decisions by table and rule.
	Decisions *prometheus.CounterVec
}

// Duties are the work of the leader's agent. Run them under WhileLeader, and never twice at once. Each call of Run
// starts all grace periods again, but remembers which members were defragmented.
type Duties struct {
	Options
	poll, recordAge, revert, comparePause, nospaceAgain, authEvery, authHold, planTimeout time.Duration
	// planRest is the pause after an attempt to plan a restore that failed.
	planRest loop.Backoff

	slowFor, handoverRest, followersAge time.Duration
	// handedOver is when this agent last moved leadership for a slow disk. It outlives a leadership. If it is lost with
	// the process, slowFor still has to pass.
	handedOver time.Time

	defrag defragMemory
	// requested passes a request of a user to the duties.
	requested chan *defragRequest
}

// New returns the duties with the default intervals.
func New(o Options) *Duties {
	if o.RemoveExternalMembers == nil {
		o.RemoveExternalMembers = func() bool { return false }
	}
	return &Duties{
		Options: o, poll: pollInterval, recordAge: recordInterval, revert: revertAfter, comparePause: comparePause,
		nospaceAgain: membership.NospaceAgain, authEvery: authInterval, authHold: authHold, planTimeout: planTimeout,
		planRest: loop.Backoff{First: planPause, Last: maxPlanPause},
		slowFor:  slowFor, handoverRest: movePause, followersAge: followersInterval,
		defrag: defragMemory{attempts: map[uint64]attempt{}}, requested: make(chan *defragRequest),
	}
}

// Duty is one kind of work of the leader's agent. It keeps what it remembers for one leadership. Its facts, its act and its
// reports are in its own file, and so is the decision table of a new duty. Tables that other packages use are in package membership.
type Duty interface {
	// Run decides and takes at most one step. again means that the next step can follow immediately.
	Run(ctx context.Context, self Cluster, view membership.View) (again bool, err error)
}

// round is what one leadership knows between looks, for all duties.
type round struct {
	*Duties
	record  leases.Record
	version leases.Version
	readAt  time.Time
	// removedAt is when this leader last removed a member, for any reason.
	removedAt time.Time
	// trouble is the error that was logged last.
	trouble loop.Change[string]

	request    *removalRequest
	databases  *databases
	comparison *comparison
	// stages are the duties in their order. The duties of a stage run only if no earlier stage failed or has a next step: nothing touches
	// a database or a version while members change.
	stages [][]Duty
}

func newRound(d *Duties) *round {
	r := &round{Duties: d}
	r.request = &removalRequest{round: r}
	r.databases = &databases{round: r, sizedAt: time.Now()}
	r.comparison = &comparison{round: r}
	r.stages = [][]Duty{
		{r.request, &removal{round: r, since: map[uint64]time.Time{}, last: map[uint64]string{}}},
		{&authentication{round: r, began: time.Now()}, &upgrade{round: r}, r.comparison, r.databases, &restoring{round: r, rest: d.planRest}, &handover{round: r}},
	}
	return r
}

// notWritten forgets the version of the record after a write that failed: another process wrote, or it is unknown whether this agent
// did. The next look reads the record again. A conflict is no error.
func (r *round) notWritten(err error) error {
	r.version = ""
	if errors.Is(err, leases.ErrConflict) {
		return nil
	}
	return err
}

// Run works until ctx ends. It logs an error once per change and retries.
func (d *Duties) Run(ctx context.Context) error {
	versions := make(chan leases.Version, 1)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return d.follow(ctx, versions) })
	group.Go(func() error { return d.perform(ctx, versions) })
	return group.Wait()
}

// perform looks at each poll, immediately when the record changed, and immediately after a step that another step
// follows.
func (d *Duties) perform(ctx context.Context, versions <-chan leases.Version) error {
	r := newRound(d)
	defer r.databases.reportAlarm(membership.NospaceDecision{})
	defer r.comparison.report(membership.Comparison{}, false)
	for {
		again, err := r.look(ctx)
		r.databases.drop(err)
		r.note(ctx, err)
		if again && err == nil {
			continue
		}
		if !r.rest(ctx, versions) {
			return nil
		}
	}
}

// withLocal calls do with a client of the own member. What do asks may take callTimeout.
func (r *round) withLocal(ctx context.Context, do func(ctx context.Context, client *clientv3.Client) error) (err error) {
	client, done, err := r.Dial(ctx, r.Local)
	if err != nil {
		return err
	}
	defer func() { done(err) }()
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return do(ctx, client)
}

// rest waits until the next look is due. It returns false if ctx ended.
func (r *round) rest(ctx context.Context, versions <-chan leases.Version) bool {
	timer := time.NewTimer(r.request.pause())
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-timer.C:
			return true
		case r.databases.waiting = <-r.requested:
			return true
		case version := <-versions:
			if version != r.version { // not our own write
				r.readAt = time.Time{}
				return true
			}
		}
	}
}

// look reads the member list and acts on it. again means that the next step can follow immediately.
func (r *round) look(ctx context.Context) (again bool, err error) {
	self, ok := r.Self()
	if !ok {
		return false, nil
	}
	query := membership.Query{Endpoints: []string{r.Local}, ClusterID: self.ClusterID, Timeout: callTimeout}
	view, err := membership.Observe(ctx, r.Dial, query)
	if err != nil {
		return false, err
	}
	if r.version == "" || time.Since(r.readAt) >= r.recordAge || !sameMembers(r.record.MemberList, listOf(view)) {
		err = r.read(ctx)
		if err == nil && !sameMembers(r.record.MemberList, listOf(view)) { // only a list from after the record is written to it
			view, err = membership.Observe(ctx, r.Dial, query)
		}
	}
	if err == nil {
		err = r.publish(ctx, self, listOf(view))
	}
	if err != nil {
		return false, err
	}
	for _, stage := range r.stages {
		for _, duty := range stage {
			more, failed := duty.Run(ctx, self, view)
			again, err = again || more, errors.Join(err, failed)
		}
		if again || err != nil {
			break
		}
	}
	return again, err
}

// read gets the record. If the record cannot be read, the duties have nothing to act on.
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

// complete writes the fields that the record lacks. It does not read the record again, because the write returns the
// version.
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
		return record, version, fmt.Errorf("complete the cluster record: %w", err)
	}
	r.Log.InfoContext(ctx, "cluster record completed", "clusterID", leases.FormatID(completed.ClusterID), "epoch", completed.Epoch)
	return completed, version, nil
}

// note logs a repeated error once per change. It ignores errors after ctx ended.
func (r *round) note(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	text := ""
	if err != nil {
		text = err.Error()
	}
	if r.trouble.To(text) && err != nil {
		r.Log.WarnContext(ctx, "leader duties failed, retrying", "err", err)
	}
}

// Pauses before the watch of the record restarts. A denied watch, for example with a Role of an older druid, costs the
// API server one request per minute. The record is still read each recordInterval.
const (
	watchPause    = time.Second
	maxWatchPause = time.Minute
)

// follow sends the newest version of the record that a watch reports to versions, until ctx ends. The watch only makes
// the duties faster: they act only on what they read themselves.
func (d *Duties) follow(ctx context.Context, versions chan leases.Version) error {
	failed := false
	rest := loop.Backoff{First: watchPause, Last: maxWatchPause}
	for {
		err := d.Store.WatchRecord(ctx, func(version leases.Version) {
			rest.Reset()
			select {
			case <-versions: // discard an older one
			default:
			}
			versions <- version // this is the only sender
		})
		if err != nil && !failed && ctx.Err() == nil {
			d.Log.WarnContext(ctx, "watch of the cluster record failed, retrying", "err", err)
		}
		failed = err != nil
		if !loop.Sleep(ctx, rest.Next()) {
			return nil
		}
	}
}
