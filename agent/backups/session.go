package backups

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/backup/delta"
	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/membership"
)

// session is the work for one configuration and one identity while this member leads. Only the loop of run uses the
// fields that are not marked as shared.
type session struct {
	*Duty
	config config.Backup
	self   Identity
	store  store.Store
	log    *slog.Logger
	client *clientv3.Client
	watch  *clientv3.Client
	group  *errgroup.Group

	// catalogState, with its last saved revision, and the revision after which RecordAgain starts.
	catalogState CatalogState
	saved        int64
	now          int64
	// doubt about the content of the store, nil for none. Nothing is deleted meanwhile, even if the backups are
	// complete.
	doubt error
	// newest full backup, when it was taken (at most the time of this clock when the session first saw it), and when
	// the next one is due.
	newest catalog.Full
	due    time.Time
	// newestBy is the ID of the member whose database the newest full backup is, 0 if it is unknown.
	newestBy uint64
	// since is the beginning of the newest sequence of backups without a gap, zero for none.
	since time.Time
	// behind is what followed the newest full backup when the store was listed, and how many bytes the recorder had
	// saved then.
	behind struct {
		tail
		bytes int64
	}
	// digest of the last revision that was saved when the store was listed, and that revision. Both are zero if
	// unknown.
	digest   delta.Digest
	digestOf int64
	// gap is the last saved revision after which the watch omitted changes or etcd has another history, 0 for none.
	gap int64

	read    attempts
	looked  time.Time
	full    attempts
	fulling bool
	// replacing of full backups that were found to be invalid.
	replacing replacing
	authFulls authFulls
	deltas    attempts
	recorder  *recording
	last      Decision

	// ended has the work to do when a recorder or a full backup ended. There is at most one of each, so that neither
	// blocks.
	ended chan func(context.Context)
	// The fields below are shared.
	orders *orders
	// whole means that this history is complete. sound also means that it is the history that is saved here. Only then
	// is anything deleted.
	whole, sound atomic.Bool
	reporter     *reporter
}

// attempts counts failures and computes the pause before the next attempt.
type attempts struct {
	pace     pace
	failures int
	next     time.Time
}

func (a *attempts) failed(now time.Time) {
	a.failures++
	a.next = now.Add(a.pace.after(a.failures))
}

func (a *attempts) succeeded() { a.failures, a.next = 0, time.Time{} }

func (a *attempts) resting(now time.Time) bool { return now.Before(a.next) }

func newSession(d *Duty, c config.Backup, self Identity, s store.Store) *session {
	log := d.Log.With("lineage", string(self.Lineage))
	return &session{
		Duty: d, config: c, self: self, store: s, log: log, catalogState: CatalogUnknown,
		read: attempts{pace: d.readPace}, full: attempts{pace: d.fullPace}, deltas: attempts{pace: d.recorderPace},
		replacing: replacing{taken: attempts{pace: d.replacePace}}, authFulls: authFulls{pace: authPace},
		ended: make(chan func(context.Context), 2), orders: newOrders(), reporter: newReporter(d, c, self),
	}
}

// run decides and starts steps until ctx ends or the session is no longer current.
func (s *session) run(ctx context.Context, current func() (<-chan struct{}, bool)) (err error) {
	// The client is needed for a moment after ctx ended.
	client, done, err := s.Dial(context.WithoutCancel(ctx), s.Local)
	if err != nil {
		return fmt.Errorf("backups: %w", err)
	}
	s.client = client
	defer func() { done(err) }()
	if s.watch, err = s.Listen(context.WithoutCancel(ctx), s.Local); err != nil {
		return fmt.Errorf("backups: %w", err)
	}
	defer func() { err = errors.Join(err, s.watch.Close()) }()
	s.log.InfoContext(ctx, "backups started", "prefix", s.config.Prefix)
	defer s.log.InfoContext(ctx, "backups ended")
	working, end := context.WithCancel(ctx)
	s.group = &errgroup.Group{}
	s.group.Go(func() error { return s.reporter.run(working) })
	defer func() {
		end()
		s.recorder.end()
		s.orders.refuse()
		_ = s.group.Wait() // each has reported its result
		s.Metrics.idle()
	}()
	s.Metrics.hinder(time.Now())
	err = s.loop(working, current)
	s.flush(ctx)
	return err
}

func (s *session) loop(ctx context.Context, current func() (<-chan struct{}, bool)) error {
	for ctx.Err() == nil {
		changed, ok := current()
		if !ok {
			return errAgain
		}
		s.learn(ctx, changed)
		s.resolvePending()
		s.moveLeader(ctx)
		d := Decide(s.facts(time.Now()))
		s.note(ctx, d)
		switch d.Verdict {
		case TakeFull:
			s.takeFull(ctx, d.Rule)
		case RecordOn:
			s.record(ctx, s.saved+1)
		case RecordAgain:
			s.record(ctx, s.now+1)
		case Wait:
			s.rest(ctx, changed)
		case VerifyBackups: // which the other table orders, of another member
		}
	}
	return nil
}

// learn reads the store when that is due, until the configuration or the identity changes: the store can be the wrong
// place, and full of objects.
func (s *session) learn(ctx context.Context, changed <-chan struct{}) {
	look := s.observe
	switch now := time.Now(); {
	case s.catalogState == CatalogUnknown && !s.read.resting(now):
	case s.stale(now):
		look = s.observeAgain
	default:
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.group.Go(func() error {
		defer cancel()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		return nil
	})
	look(ctx)
}

// resolvePending requests a retention run once the backups are found to be complete, and once they are beyond doubt.
func (s *session) resolvePending() {
	whole := s.catalogState == CatalogComplete
	switch was := s.whole.Swap(whole); {
	case whole && !was:
		s.Metrics.hinder(time.Time{})
		s.prune()
	case was && !whole:
		s.Metrics.hinder(time.Now())
	}
	sound := whole && s.doubt == nil
	if was := s.sound.Swap(sound); sound && !was {
		s.prune()
	}
}

func (s *session) facts(now time.Time) Facts {
	due := DecideDue(dueFacts(s.due, now, s.newest, s.follows(), s.Quota, s.authDue(now))).Verdict
	f := Facts{
		CatalogState: s.catalogState, Recorder: RecorderOff, Full: FullIdle,
		Asked: rules.YesNoOf(s.orders.waiting()), Due: due,
		Doubted: rules.YesNoOf(s.replacement(now) == ReplaceNow),
	}
	switch {
	case s.recorder != nil:
		f.Recorder = RecorderOn
	case s.deltas.resting(now):
		f.Recorder = RecorderResting
	}
	switch {
	case s.fulling:
		f.Full = FullRunning
	case s.full.resting(now):
		f.Full = FullResting
	}
	return f
}

// note logs a repeated decision once.
func (s *session) note(ctx context.Context, d Decision) {
	if d == s.last || ctx.Err() != nil {
		return
	}
	s.last = d
	s.Metrics.decided(d.Rule)
	s.log.InfoContext(ctx, "backup decision changed", "verdict", string(d.Verdict), "rule", d.Rule)
}

// rest waits until a step ended, a request arrived, something is due, or ctx ended.
func (s *session) rest(ctx context.Context, changed <-chan struct{}) {
	timer := time.NewTimer(s.pause(time.Now()))
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case ended := <-s.ended:
		ended(ctx)
	case <-s.orders.asked:
	case <-s.reporter.changed:
	case <-changed:
	case <-timer.C:
		if s.recorder == nil && s.catalogState != CatalogUnknown && !s.deltas.resting(time.Now()) {
			s.catalogState = CatalogUnknown // it is older than the pause after the recorder that failed
		}
	}
}

// pause returns the time until the next step that depends on time.
func (s *session) pause(now time.Time) time.Duration {
	pause := maxRest
	for _, at := range []time.Time{s.due, s.read.next, s.full.next, s.deltas.next, s.replacing.taken.next, s.authFulls.next, s.looked.Add(s.revalidation)} {
		if at.After(now) {
			pause = min(pause, at.Sub(now))
		}
	}
	return pause
}

// errTerm means that another term began.
var errTerm = errors.New("raft leadership changed")

// errCorrupt blocks all deletions: the older backups can be the last ones without the corruption.
var errCorrupt = errors.New("the alarm CORRUPT is raised; no backup is deleted until it is disarmed")

// errDiffers blocks all deletions for the same reason.
var errDiffers = errors.New("the data of the members differs, or was not compared yet; no backup is deleted until all members are equal")

// leadershipTerm is the raft term in which deletions are allowed.
type leadershipTerm struct {
	s      *session
	client *clientv3.Client
	// done gives the client back.
	done func(error)
	term uint64
}

// begins reads the term in which the agent's own member leads.
func (s *session) begins(ctx context.Context) (t *leadershipTerm, err error) {
	client, done, err := s.Dial(ctx, s.Local)
	if err != nil {
		return nil, err
	}
	t = &leadershipTerm{s: s, client: client, done: done}
	if t.term, err = t.read(ctx); err != nil {
		done(err)
		return nil, err
	}
	return t, nil
}

func (t *leadershipTerm) read(ctx context.Context) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	status, err := membership.ReadStatus(ctx, t.client, t.s.Local)
	if err != nil {
		return 0, err
	}
	if status.Role != membership.RoleLeader || status.ClusterID != t.s.self.ClusterID {
		return 0, errTerm
	}
	if status.Corrupt() {
		return 0, errCorrupt
	}
	if t.s.Equal != nil && !t.s.Equal() {
		return 0, errDiffers
	}
	return status.RaftTerm, nil
}

// lasts returns an error if the term is over or no more deletions are allowed in it. It is called before each
// deletion.
func (t *leadershipTerm) lasts(ctx context.Context) error {
	switch now, err := t.read(ctx); {
	case err != nil:
		return err
	case now != t.term:
		return fmt.Errorf("%w: term %d, was %d", errTerm, now, t.term)
	}
	return nil
}
