package leases

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/etcd-druid/druid/internal/crash"
	"github.com/etcd-druid/druid/internal/loop"
	"github.com/etcd-druid/druid/internal/rules"
)

// Times of the leader's Lease (docs/explanation/architecture.md). A leader that cannot renew gives up 20 s before
// another agent may take the Lease. It renews as often as a member Lease is renewed.
const (
	leaderDuration      = 60 * time.Second
	leaderRenewDeadline = 40 * time.Second
	leaderRetryPeriod   = 15 * time.Second
	// leaderHurry is the pause after a failed renewal. With callTimeout, it allows three attempts before the deadline.
	leaderHurry = 5 * time.Second
	// campaignJitter is the maximum random part of the pause between two attempts to take the Lease, as in client-go.
	campaignJitter = 1.2
	// rounds bounds how often one renewal or release is repeated after a conflict. A write that was cut off can arrive
	// late, and druid can restore a label.
	rounds = 3
)

// Election campaigns for the cluster's leader Lease by the rules of client-go's leader election
// (docs/explanation/adr/20261122-own-election.md). The Lease must exist: agents may get and patch it, but not create
// it.
type Election struct {
	store    *Store
	identity string
	log      *slog.Logger

	duration, renewDeadline, retryPeriod, hurry time.Duration

	// What only Run touches, and while it leads the one goroutine that renews.
	seen     sighted
	reported loop.Change[string]
}

// sighted is the content of the Lease when it was last read or written.
type sighted struct {
	Leadership
	// since is when that content was first seen, by this process's monotonic clock. It is never earlier than the
	// change.
	since time.Time
}

// NewElection returns the election of the Store's cluster for the Pod called identity. Call its Run once.
func NewElection(store *Store, identity string, log *slog.Logger) *Election {
	return &Election{
		store: store, identity: identity, log: log,
		duration: leaderDuration, renewDeadline: leaderRenewDeadline, retryPeriod: leaderRetryPeriod, hurry: leaderHurry,
	}
}

// ErrNotLeader is the cause with which a leader's context ends.
var ErrNotLeader = errors.New("no longer the leader")

// Run campaigns until ctx ends. Whenever it holds the Lease, it calls lead. lead's ctx ends when ctx ends, or with
// cause ErrNotLeader when the Lease is lost or was not renewed in time. The Lease is renewed until lead has returned
// and released only then, so that two leaders never act at the same time.
func (e *Election) Run(ctx context.Context, lead func(ctx context.Context)) error {
	for ctx.Err() == nil {
		if e.look(ctx, rules.No) == claimWrite && e.take(ctx, lead) {
			continue
		}
		loop.Sleep(ctx, e.retryPeriod+time.Duration(rand.Float64()*campaignJitter*float64(e.retryPeriod)))
	}
	return nil
}

// take writes this identity into the Lease as it was seen, and leads after a success. The end of ctx does not cancel
// the write: the Lease could then be held without being released.
func (e *Election) take(ctx context.Context, lead func(ctx context.Context)) bool {
	began := time.Now()
	if e.write(context.WithoutCancel(ctx), e.identity) != nil {
		return false
	}
	e.term(ctx, began, lead)
	return true
}

// term leads until the Lease is lost or ctx ends. The term starts at began, when the write that took the Lease was
// started.
func (e *Election) term(ctx context.Context, began time.Time, lead func(ctx context.Context)) {
	e.log.InfoContext(ctx, "leader Lease acquired")
	// Renewals continue while lead ends, and the release follows.
	outlives, end := context.WithCancel(context.WithoutCancel(ctx))
	held, lose := context.WithCancelCause(ctx)
	defer lose(nil)
	expiry := time.AfterFunc(time.Until(began.Add(e.renewDeadline)), func() { lose(ErrNotLeader) })
	defer expiry.Stop()
	var renewals errgroup.Group
	renewals.Go(func() error {
		e.keep(outlives, expiry)
		lose(ErrNotLeader)
		return nil
	})
	defer func() {
		end()
		_ = renewals.Wait()
		e.release(context.WithoutCancel(ctx))
		e.log.InfoContext(ctx, "leader Lease released")
	}()
	// A process that was frozen meanwhile can get here before the timer fires.
	if time.Since(began) >= e.renewDeadline {
		lose(ErrNotLeader)
	}
	if held.Err() == nil {
		lead(held)
	}
	<-held.Done()
}

// keep renews until ctx ends or the Lease is lost. A successful renewal postpones expiry, counted from its start.
// Other candidates start to count later.
func (e *Election) keep(ctx context.Context, expiry *time.Timer) {
	for pause := e.retryPeriod; loop.Sleep(ctx, pause); {
		began := time.Now()
		claim, err := e.over(ctx, e.identity)
		if claim == claimLose {
			return
		}
		// An expired timer has already ended the term, whether it is set again or not.
		if pause = e.hurry; err == nil {
			pause = e.retryPeriod
			expiry.Reset(time.Until(began.Add(e.renewDeadline)))
		}
	}
}

// release releases the Lease if this agent still holds it, so that the next leader need not wait. Errors are only
// logged, because the Lease then expires.
func (e *Election) release(ctx context.Context) {
	if e.seen.Holder == e.identity {
		_, _ = e.over(ctx, "")
	}
}

// over writes holder into the Lease while this agent holds it, and repeats that after other changes of the Lease. It
// returns claimLose if the agent no longer holds the Lease.
func (e *Election) over(ctx context.Context, holder string) (claim, error) {
	var err error
	for range rounds {
		if err = e.write(ctx, holder); err == nil || !errors.Is(err, ErrConflict) && !errors.Is(err, ErrAbsent) {
			return claimWrite, err
		}
		if claim := e.look(ctx, rules.Yes); claim != claimWrite {
			return claim, err
		}
	}
	return claimWait, err
}

// look reads the Lease and decides what to do.
func (e *Election) look(ctx context.Context, leading rules.YesNo) claim {
	said, err := e.store.Leadership(ctx)
	e.note(ctx, "get", err)
	now := time.Now()
	facts := claimFacts{holding: heldUnknown, elapsed: rules.No, leading: leading}
	switch {
	case errors.Is(err, ErrAbsent):
		facts.holding = heldAbsent
	case err != nil:
	default:
		e.see(said, now)
		facts.holding = holdingOf(said.Holder, e.identity)
		// The Lease counts as valid for at least this agent's own duration. A shorter duration in it was edited
		// manually.
		facts.elapsed = rules.YesNoOf(now.Sub(e.seen.since) >= max(said.Duration, e.duration))
	}
	return claims.Decide(facts).Verdict
}

// see records the content of the Lease. The age of a holder counts from the change that this process saw itself.
func (e *Election) see(said Leadership, now time.Time) {
	if e.seen.since.IsZero() || !e.seen.sameTerm(said) {
		e.seen.since = now
	}
	e.seen.Leadership = said
}

// write makes holder the holder of the Lease as it was seen, by compare-and-set.
func (e *Election) write(ctx context.Context, holder string) error {
	crash.Before("renew-leader-lease")
	said, err := e.store.Lead(ctx, e.seen.Leadership, holder, e.duration)
	crash.After("renew-leader-lease")
	e.note(ctx, "patch", err)
	if err == nil {
		e.see(said, time.Now())
	}
	return err
}

// note logs an error once per change. It ignores errors after ctx ended.
func (e *Election) note(ctx context.Context, operation string, err error) {
	if ctx.Err() != nil {
		return
	}
	kind := ""
	if err != nil {
		kind = operation + " " + reasonOf(err)
	}
	if e.reported.To(kind) && err != nil {
		e.log.WarnContext(ctx, "leader Lease read or write failed, retrying", "reason", kind, "err", err)
	}
}

// Leadership is the content of the leader's Lease.
type Leadership struct {
	Version Version
	// Holder is the name of the Pod whose agent leads, empty for none.
	Holder string
	// Duration for which the Lease is held without a renewal, 0 if it has none.
	Duration time.Duration
	// Transitions counts the holders so far. It is information for users.
	Transitions int32

	uid types.UID
	// renewed is a time of another machine's clock in microseconds. It is only compared for equality.
	renewed int64
}

// sameTerm says whether other is the same leadership without a renewal in between. Labels and annotations can differ.
func (l Leadership) sameTerm(other Leadership) bool {
	l.Version = other.Version
	return l == other
}

// Leadership reads the leader's Lease.
func (s *Store) Leadership(ctx context.Context) (Leadership, error) {
	lease, err := s.get(ctx, LeaderName(s.cluster))
	if err != nil {
		return Leadership{}, err
	}
	return leadershipOf(lease), nil
}

// Lead makes holder the holder of the leader's Lease for duration from now on, if the Lease still has the version of
// was. Otherwise it changes nothing and returns ErrConflict. An empty holder releases the Lease.
func (s *Store) Lead(ctx context.Context, was Leadership, holder string, duration time.Duration) (Leadership, error) {
	name := LeaderName(s.cluster)
	if was.Version == "" {
		return Leadership{}, fmt.Errorf("patch Lease %s: a compare-and-set needs the version that was read", name)
	}
	now := metav1.NowMicro()
	seconds := int32(duration / time.Second)
	spec := &patchSpec{HolderIdentity: &holder, RenewTime: &now, LeaseDurationSeconds: &seconds}
	if holder != was.Holder && holder != "" {
		transitions := was.Transitions + 1
		spec.AcquireTime, spec.LeaseTransitions = &now, &transitions
	}
	lease, err := s.patch(ctx, name, leasePatch{Metadata: patchMetadata{ResourceVersion: was.Version}, Spec: spec})
	if err != nil {
		return Leadership{}, err
	}
	return leadershipOf(lease), nil
}

func leadershipOf(lease *coordinationv1.Lease) Leadership {
	l := Leadership{Version: Version(lease.ResourceVersion), uid: lease.UID}
	spec := lease.Spec
	if spec.HolderIdentity != nil {
		l.Holder = *spec.HolderIdentity
	}
	if spec.LeaseDurationSeconds != nil {
		l.Duration = time.Duration(*spec.LeaseDurationSeconds) * time.Second
	}
	if spec.LeaseTransitions != nil {
		l.Transitions = *spec.LeaseTransitions
	}
	if spec.RenewTime != nil {
		l.renewed = spec.RenewTime.UnixMicro()
	}
	return l
}
