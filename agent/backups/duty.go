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

// Times of the duty.
const (
	// identityPause between two looks at who we are while that is not known: a bootstrap takes seconds.
	identityPause = time.Second
	// maxRest between two decisions, however little happens: schedules are kept to the minute, also when a clock was set.
	maxRest = 30 * time.Second
	// readTimeout of one linearizable read: an election takes seconds.
	readTimeout = 10 * time.Second
	// bearTimeout of a bootstrap record: some requests of an object of some hundred bytes.
	bearTimeout = 2 * time.Minute
	// maxBacklog that a watch catches up with, in revisions. etcd reads all of it, with its lock held, to hand out 1000 of it
	// (watchableStore.syncWatchers), ten times a second: the time for it grows with the square. On two busy cores etcd 3.7 took
	// 15 s for 50 000 revisions of 200 bytes, where a put waited 1 s at the longest, and 68 s and 3 s for 100 000.
	maxBacklog = 100_000
	// flushTimeout of the last delta when leadership ends. What it does not save the next leader does.
	flushTimeout = 4 * time.Second
)

// pace is how long to wait after a failure: twice as long each time.
type pace struct{ first, last time.Duration }

// after n failures in a row.
func (p pace) after(n int) time.Duration { return min(p.first<<min(max(n-1, 0), 20), p.last) }

// Identity is whose history is saved.
type Identity struct {
	Lineage    catalog.Lineage
	ClusterID  uint64
	MemberID   uint64
	ClusterUID string
	// Parent is the lineage that the cluster was restored from, and Fork the last revision of it; empty where it began with
	// nothing, and where only another member knows.
	Parent catalog.Lineage
	Fork   int64
}

// Options of a Duty.
type Options struct {
	// Leases is where the two backup Leases are.
	Leases *leases.Store
	Dial   membership.Dial
	// Listen is Dial for the watch, which may hear of things in bursts.
	Listen func(ctx context.Context, endpoint string) (*clientv3.Client, error)
	// Local is the client endpoint of our own member.
	Local string
	// Self reports whose history our member has; false while that is not known for certain. Nothing is saved then.
	Self func() (Identity, bool)
	// Scratch is a directory in which backups may be restored to be proven, and no one else's.
	Scratch string
	// Quota of etcd's database, in bytes; 0 is etcd's own.
	Quota int64
	// HandOn moves leadership to another member, if there is one; nil where nothing can.
	HandOn func(context.Context)
	// Open a store.
	Open    func(context.Context, store.Config) (store.Store, error)
	Metrics *Metrics
	Log     *slog.Logger
}

// Duty keeps a cluster backed up while Run runs.
type Duty struct {
	Options
	fullPace, recorderPace, readPace pace
	// replacePace is how long a full rests that would replace another one, when the one before it was found to be broken too.
	replacePace pace
	beats       func(config.Backup) beats
	// flushFor is how long the last delta may take when leadership ends.
	flushFor time.Duration
	// proofLook is how often it is looked whether backups are to be proven.
	verificationLook time.Duration
	// backlog is how many revisions a watch may have to catch up with.
	backlog int64
	// proofReserve is what stays free of the scratch directory's file system, in percent.
	verificationReserve int64
	// verifyPause is what lies between two attempts to verify an ordered backup. proving holds a mark while one is restored into
	// the scratch directory.
	verifyPause time.Duration
	proving     chan struct{}
	// relook is how long what was saved is believed to be there.
	revalidation time.Duration

	// away: the store was, right after a proof that did not find out. It is touched by Prove alone.
	away bool

	mu      sync.Mutex
	config  *config.Backup
	changed loop.Signal
	// session is the one at work, nil for none.
	session *session
	// pruning holds a mark when something new may have made something old superfluous.
	pruning chan struct{}
	// passing holds a mark while a pass of retention runs, or hangs.
	passing chan struct{}
}

// New returns a Duty without a configuration: it does nothing until Configure says what.
func New(o Options) *Duty {
	return &Duty{
		Options: o, pruning: make(chan struct{}, 1), passing: make(chan struct{}, 1), proving: make(chan struct{}, 1),
		// A full costs the member a pass over its database, a listing some requests.
		fullPace:     pace{5 * time.Second, 5 * time.Minute},
		recorderPace: pace{time.Second, time.Minute},
		readPace:     pace{time.Second, time.Minute},
		// A proof reads all that is saved; at the longest pause four fulls are taken in a day.
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

// Configure replaces the configuration; nil ends all backups. What is the same changes nothing.
func (d *Duty) Configure(c *config.Backup) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if reflect.DeepEqual(d.config, c) {
		return
	}
	d.config = c
	d.notify()
}

// notify wakes everyone who waits when config or session changed. The caller holds the lock.
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

// at is the session at work, nil for none, and a channel that is closed when that, or the configuration, changes.
func (d *Duty) at() (*session, <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.session, d.changed.Wait()
}

// errAnew ends a session whose configuration or identity is not in force any more.
var errAgain = errors.New("another configuration is in force")

// Run backs up until ctx ends, which it does with raft leadership. Then what is at hand is saved, for some seconds at
// most. What goes wrong is reported and tried again.
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
			if err != nil && err.Error() != trouble && ctx.Err() == nil {
				d.Log.WarnContext(ctx, "backups not begun", "err", err)
			}
			if trouble = textOf(err); failures > 0 {
				_, changed = d.configured()
				await(ctx, changed, d.readPace.after(failures))
			}
		}
	}
	return nil
}

// serve runs one session, until ctx ends or something of it is not as it was.
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

// begin opens the store again, so that whatever changed of it counts. Credentials and certificates in files are read by
// the store itself whenever it needs them.
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

// await waits for a channel, for at most d, or until ctx ends.
func await(ctx context.Context, wake <-chan struct{}, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-wake:
	case <-timer.C:
	}
}

// hangPatience is for how long a pass of retention may outlive leadership, or hold up another: what heeds its context ends in
// less.
const hangTimeout = 10 * time.Second

// errHangs says that no pass is begun.
var errHangs = errors.New("an earlier pass of retention is under way, or hangs in its store")

// pass runs one pass of retention, or a deletion on demand, and no second one next to it: each of two would count on what the
// other deletes. One that is under way is waited for, but not for long. Once ctx has ended it does not wait for long: a directory
// whose mount hangs heeds no context, and would hold the leader's Lease permanently. A pass that is left finds, should it
// ever go on, that it may delete nothing more: it asks for the raft term before each deletion, under the same ctx.
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
		d.Log.WarnContext(ctx, "retention left hanging in its store: none is begun before it returns", "after", hangTimeout)
		return errHangs
	}
}
