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

// Times of the leader's Lease (docs/explanation/architecture.md). A leader that cannot renew gives up 20 s before anybody else may
// take the Lease, and renews as often as a member Lease is renewed.
const (
	leaderDuration      = 60 * time.Second
	leaderRenewDeadline = 40 * time.Second
	leaderRetryPeriod   = 15 * time.Second
	// leaderHurry is the pause after a renewal that failed: with callTimeout three are tried before the deadline.
	leaderHurry = 5 * time.Second
	// campaignJitter is the part of a pause that is drawn by lot between two tries to take the Lease: client-go's.
	campaignJitter = 1.2
	// rounds bounds how often one renewal or release is written over what changed meanwhile. One that was cut off may
	// come through late, and druid may restore a label.
	rounds = 3
)

// Election campaigns for the cluster's leader Lease by the rules of client-go's leader election
// (docs/explanation/adr/20261122-own-election.md). The Lease exists already: agents may get and patch it, not create it.
type Election struct {
	store    *Store
	identity string
	log      *slog.Logger

	duration, renewDeadline, retryPeriod, hurry time.Duration

	// What only Run touches, and while it leads the one goroutine that renews.
	seen     sighted
	reported loop.Change[string]
}

// sighted is what the Lease said when it was last read or written.
type sighted struct {
	Leadership
	// since is when it was first seen to say so, by our own monotonic clock, and not before it did.
	since time.Time
}

// NewElection returns the election of the Store's cluster for the Pod called identity. It has one Run.
func NewElection(store *Store, identity string, log *slog.Logger) *Election {
	return &Election{
		store: store, identity: identity, log: log,
		duration: leaderDuration, renewDeadline: leaderRenewDeadline, retryPeriod: leaderRetryPeriod, hurry: leaderHurry,
	}
}

// ErrNotLeader is the cause with which a leader's context ends.
var ErrNotLeader = errors.New("not the leader any more")

// Run campaigns until ctx ends. Whenever the Lease is ours it calls lead, whose ctx ends with cause ErrNotLeader when the
// Lease is lost or was not renewed in time, or as ctx ends. The Lease is renewed until that happened and lead has returned,
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

// take writes ourselves into the Lease that was seen, and leads when that was answered. The write is not cut off by the end
// of ctx: then the Lease would be ours, and no one would give it back.
func (e *Election) take(ctx context.Context, lead func(ctx context.Context)) bool {
	began := time.Now()
	if e.write(context.WithoutCancel(ctx), e.identity) != nil {
		return false
	}
	e.term(ctx, began, lead)
	return true
}

// term leads until the Lease is lost or ctx ends. The Lease is ours from began on, when the write that took it was begun.
func (e *Election) term(ctx context.Context, began time.Time, lead func(ctx context.Context)) {
	e.log.InfoContext(ctx, "leader lease acquired")
	// Renewals go on while lead ends, and the release comes after that.
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
		e.log.InfoContext(ctx, "leader lease given up")
	}()
	// Who was frozen meanwhile may be here before the timer is.
	if time.Since(began) >= e.renewDeadline {
		lose(ErrNotLeader)
	}
	if held.Err() == nil {
		lead(held)
	}
	<-held.Done()
}

// keep renews until ctx ends or the Lease is lost. A renewal that was answered puts off expiry, counted from when it was
// begun: who waits for the Lease counts from later on.
func (e *Election) keep(ctx context.Context, expiry *time.Timer) {
	for pause := e.retryPeriod; loop.Sleep(ctx, pause); {
		began := time.Now()
		claim, err := e.over(ctx, e.identity)
		if claim == claimLose {
			return
		}
		// One that expired stays so: the timer's work is done, whether it is set again or not.
		if pause = e.hurry; err == nil {
			pause = e.retryPeriod
			expiry.Reset(time.Until(began.Add(e.renewDeadline)))
		}
	}
}

// release gives the Lease back where it still is ours, so that the next leader need not wait. The log has what goes wrong:
// then the Lease runs out by itself.
func (e *Election) release(ctx context.Context) {
	if e.seen.Holder == e.identity {
		_, _ = e.over(ctx, "")
	}
}

// over writes holder over the Lease that is ours, and over what changed in it meanwhile as long as it still is. It is
// claimLose when it is not.
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

// look reads the Lease and says what to do.
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
		// It lasts for at least what we would hold it ourselves: what else it says was written by hand.
		facts.elapsed = rules.YesNoOf(now.Sub(e.seen.since) >= max(said.Duration, e.duration))
	}
	return claims.Decide(facts).Verdict
}

// see notes what the Lease says. Anyone who holds it is as old as the change that we saw ourselves.
func (e *Election) see(said Leadership, now time.Time) {
	if e.seen.since.IsZero() || !e.seen.sameTerm(said) {
		e.seen.since = now
	}
	e.seen.Leadership = said
}

// write makes holder the holder of the Lease that was seen, by compare-and-set.
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

// note logs what stands in the way, once per change. The end of ctx is none.
func (e *Election) note(ctx context.Context, operation string, err error) {
	if ctx.Err() != nil {
		return
	}
	kind := ""
	if err != nil {
		kind = operation + " " + reasonOf(err)
	}
	if e.reported.To(kind) && err != nil {
		e.log.WarnContext(ctx, "leader lease not reached", "reason", kind, "err", err)
	}
}

// Leadership is what the leader's Lease says.
type Leadership struct {
	Version Version
	// Holder is the name of the Pod whose agent leads, empty for no one.
	Holder string
	// Duration for which it is held without a renewal, 0 where it says none.
	Duration time.Duration
	// Transitions counts the holders so far, for people.
	Transitions int32

	uid types.UID
	// renewed is another machine's clock, in microseconds: it is only ever compared for equality.
	renewed int64
}

// sameTerm says whether other is what l is, without a renewal between them. Labels and annotations may have changed.
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

// Lead makes holder the holder of the leader's Lease, for duration from now on, if the Lease still is at the version of
// was, else nothing and ErrConflict. An empty holder gives it back.
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
