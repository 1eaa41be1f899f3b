package backups

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/internal/loop"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

// Intervals, timeouts and limits of the duty.
const (
	// identityPause is the pause between two reads of the identity while it is unknown. A bootstrap takes seconds.
	identityPause = time.Second
	// maxRest is the longest pause between two decisions. It keeps schedules accurate to the minute, even if a clock
	// was set.
	maxRest = 30 * time.Second
	// readTimeout bounds one linearizable read. An election takes seconds.
	readTimeout = 10 * time.Second
	// bearTimeout bounds the write of a bootstrap record: some requests for an object of some hundred bytes.
	bearTimeout = 2 * time.Minute
	// maxBacklog is the largest number of revisions that a watch may have to catch up with. etcd reads all of them,
	// with its lock held, to send 1000 of them (watchableStore.syncWatchers), ten times a second, so the time grows
	// with the square. On two busy cores, etcd 3.7 took 15 s for 50 000 revisions of 200 bytes, and a put waited at
	// most 1 s. For 100 000 revisions, it took 68 s and a put waited at most 3 s.
	maxBacklog = 100_000
	// flushTimeout bounds the last delta backup when leadership ends. The next leader saves what is missing.
	flushTimeout = 4 * time.Second
)

// pace is the pause after a failure, which doubles each time.
type pace struct{ first, last time.Duration }

// after returns the pause after n failures in a row.
func (p pace) after(n int) time.Duration { return min(p.first<<min(max(n-1, 0), 20), p.last) }

// Identity identifies the history that is saved.
type Identity struct {
	Lineage    catalog.Lineage
	ClusterID  uint64
	MemberID   uint64
	ClusterUID string
	// Parent is the lineage from which the cluster was restored, and Fork is its last revision. Both are empty if the
	// cluster was formed empty or if only another member knows them.
	Parent catalog.Lineage
	Fork   int64
	// Forked is when that was, by the clock of the agent that built the data. It is zero if that is not known.
	Forked time.Time
}

// Options configures a Duty.
type Options struct {
	// Leases stores the two backup Leases.
	Leases *leases.Store
	Dial   membership.Dial
	// Listen is Dial for the watch, which can receive events in bursts.
	Listen func(ctx context.Context, endpoint string) (*clientv3.Client, error)
	// Local is the client endpoint of the agent's own member.
	Local string
	// Self returns the identity of the history that the agent's own member has, or false while that is not certain.
	// Meanwhile, nothing is saved.
	Self func() (Identity, bool)
	// Scratch is a directory for restores of backups that are verified. Nothing else uses it.
	Scratch string
	// Quota of etcd's database in bytes. 0 is etcd's default.
	Quota int64
	// MoveLeader moves leadership to another member, if there is one. It is nil if that is not possible.
	MoveLeader func(context.Context)
	// Equal says whether the data of the members is not known to differ, since this agent leads. nil means always. Otherwise no
	// backup is deleted.
	Equal func() bool
	// Majority returns the IDs of the members whose data is now that of a majority of all voters. With an error, no such majority is known. If
	// voters differ then, no backup can be verified. nil trusts all members.
	Majority func(ctx context.Context, clusterID uint64) (ids []uint64, differ bool, err error)
	// Differed returns the IDs of the members whose data was found to differ, also of members that were replaced since. nil means none.
	Differed func() []uint64
	// Open opens a store.
	Open    func(context.Context, store.Config) (store.Store, error)
	Metrics *Metrics
	Log     *slog.Logger
}

// Duty backs up a cluster while Run runs.
type Duty struct {
	Options
	fullPace, recorderPace, readPace pace
	// replacePace is the pause before a full backup replaces an invalid one, if the one before it was invalid too.
	replacePace pace
	beats       func(config.Backup) beats
	// flushFor bounds the last delta backup when leadership ends.
	flushFor time.Duration
	// verificationLook is how often the Duty checks whether a verification is due.
	verificationLook time.Duration
	// backlog is how many revisions a watch may have to catch up with.
	backlog int64
	// verificationReserve is the part of the scratch directory's file system that stays free, in percent.
	verificationReserve int64
	// verifyPause is the pause between two attempts to verify a requested backup. verifying has an entry while a backup
	// is restored into the scratch directory.
	verifyPause time.Duration
	verifying   chan struct{}
	// revalidation is how long backups that were saved are assumed to exist.
	revalidation time.Duration

	// away means that the store did not respond right after a verification without a result. Only Prove uses it.
	away bool

	mu     sync.Mutex
	config *config.Backup
	// auth is etcd's state of authentication as the agent last read it, nil before.
	auth    *authState
	changed loop.Signal
	// session that is running, or nil.
	session *session
	// pruning has an entry while a new backup might have made an older one superfluous.
	pruning chan struct{}
	// passing has an entry while a retention run is in progress or hangs.
	passing chan struct{}
}

// New returns a Duty without a configuration. It does nothing until Configure is called.
func New(o Options) *Duty {
	return &Duty{
		Options: o, pruning: make(chan struct{}, 1), passing: make(chan struct{}, 1), verifying: make(chan struct{}, 1),
		// A full backup costs the member one pass over its database. A listing costs some requests.
		fullPace:     pace{5 * time.Second, 5 * time.Minute},
		recorderPace: pace{time.Second, time.Minute},
		readPace:     pace{time.Second, time.Minute},
		// A verification reads all that is saved; at the longest pause four fulls are taken in a day.
		replacePace:         pace{10 * time.Minute, 6 * time.Hour},
		beats:               beatsOf,
		flushFor:            flushTimeout,
		verificationLook:    verificationLook,
		backlog:             maxBacklog,
		verificationReserve: verificationReserve,
		verifyPause:         verifyPause,
		revalidation:        revalidationInterval,
	}
}

// Configure replaces the configuration. nil ends all backups. An equal configuration changes nothing.
func (d *Duty) Configure(c *config.Backup) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if reflect.DeepEqual(d.config, c) {
		return
	}
	d.config = c
	d.notify()
}

// notify wakes all waiters when config or session changed. The caller holds the lock.
func (d *Duty) notify() {
	d.changed.Send()
}

func (d *Duty) configured() (*config.Backup, <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.config, d.changed.Wait()
}

func (d *Duty) work(s *session) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.session = s
	d.notify()
}

// at returns the session that is running, or nil, and a channel that is closed when the session or the configuration
// changes.
func (d *Duty) at() (*session, <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.session, d.changed.Wait()
}

// errAgain ends a session whose configuration or identity is no longer in force.
var errAgain = errors.New("another configuration is in force")

// Run makes backups until ctx ends, which happens when raft leadership is lost. It then saves the buffered changes,
// for some seconds at most. Errors are reported and retried.
func (d *Duty) Run(ctx context.Context) error {
	trouble := ""
	for failures := 0; ctx.Err() == nil; {
		c, changed := d.configured()
		self, known := d.Self()
		switch {
		case c == nil:
			await(ctx, changed, maxRest)
		case !known:
			await(ctx, changed, identityPause)
		default:
			err := d.serve(ctx, *c, self)
			if failures++; err == nil || errors.Is(err, errAgain) {
				failures, err = 0, nil
			}
			if err != nil && store.Brief(err) != trouble && ctx.Err() == nil {
				d.Log.WarnContext(ctx, "backups failed to start, retrying", "err", err)
			}
			if trouble = store.Brief(err); failures > 0 {
				_, changed = d.configured()
				await(ctx, changed, d.readPace.after(failures))
			}
		}
	}
	return nil
}

// serve runs one session until ctx ends, or the configuration or the identity changes.
func (d *Duty) serve(ctx context.Context, c config.Backup, self Identity) error {
	s, err := d.begin(ctx, c, self)
	if err != nil {
		d.Metrics.failed(kindStore)
		newReporter(d, c, self).unopened(ctx, err)
		return err
	}
	d.work(s)
	defer d.work(nil)
	return s.run(ctx, func() (<-chan struct{}, bool) {
		now, next := d.configured()
		who, known := d.Self()
		return next, known && who == self && reflect.DeepEqual(now, &c)
	})
}

// begin opens the store again, so that it uses the current configuration. The store itself reads credentials and
// certificates from files whenever it needs them.
func (d *Duty) begin(ctx context.Context, c config.Backup, self Identity) (*session, error) {
	parsed, err := store.ParseConfig(c.Store)
	if err != nil {
		return nil, fmt.Errorf("backup store: %w", err)
	}
	opened, err := d.Open(ctx, parsed)
	if err != nil {
		return nil, fmt.Errorf("backup store: %w", err)
	}
	s := newSession(d, c, self, opened)
	s.orders.uri = parsed.URI
	return s, nil
}

// await waits until wake has an entry, d has passed or ctx ends.
func await(ctx context.Context, wake <-chan struct{}, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-wake:
	case <-timer.C:
	}
}

// hangTimeout is how long a retention run may outlive leadership or delay another one. A run that observes its context
// ends in less time.
const hangTimeout = 10 * time.Second

// errHangs means that no retention run was started.
var errHangs = errors.New("an earlier retention run is in progress, or its store does not respond")

// pass runs one retention run or one deletion on demand. Two never run at the same time, because each would rely on
// objects that the other deletes. It waits briefly for a run in progress. After ctx has ended it also waits only
// briefly: a directory whose mount hangs ignores the context and would hold the leader's Lease permanently. If an
// abandoned run continues later, it deletes nothing more, because it reads the raft term before each deletion, with
// the same ctx.
func (d *Duty) pass(ctx context.Context, retain func(context.Context) error) error {
	maxWait := time.NewTimer(hangTimeout)
	defer maxWait.Stop()
	select {
	case d.passing <- struct{}{}:
	case <-maxWait.C:
		return errHangs
	case <-ctx.Done():
		return errHangs
	}
	done := make(chan error, 1)
	var group errgroup.Group
	group.Go(func() error {
		defer func() { <-d.passing }()
		done <- loop.Recover(func() error { return retain(ctx) })
		return nil
	})
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	timer := time.NewTimer(hangTimeout)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C:
		d.Log.WarnContext(ctx, "retention run timed out, next run waits for it", "after", hangTimeout)
		return errHangs
	}
}
