package leases

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/etcd-druid/druid/internal/crash"
	"github.com/etcd-druid/druid/internal/loop"
)

// Intervals of a Renewer.
const (
	// minGap is the minimum time between two renewals, so that a burst of changes (a member that is formed, promoted
	// and elected) becomes one or two patches.
	minGap = time.Second
	// jitter is the maximum random part of an interval, so that a fleet that started at the same time does not renew
	// at the same time. It only lengthens the interval: three agents may send at most 0.1 requests per second and
	// member to the API server, and intervals of 15 s without jitter already reach that.
	jitter = 0.1
	// backoffStart doubles after each error, up to a third of the interval, so that a Lease survives a lost renewal.
	backoffStart = 500 * time.Millisecond
)

// Fact is what an agent knows of its member now.
type Fact struct {
	// Member as in MemberPatch. The Renewer sets its Floor.
	Member Member
	// Alive: etcd is healthy AND in the cluster. Only then does renewTime change.
	Alive bool
}

// urgent says whether the change from f to g must not wait for the next interval, because it is a change of state and
// not only progress.
func (f Fact) urgent(g Fact) bool {
	quiet := func(m Member) Member {
		m.Raft, m.Floor, m.Revision, m.DBSize, m.DBSizeInUse, m.VolumeFree, m.Fsync = Raft{}, Raft{}, 0, 0, 0, 0, Fsync{}
		return m
	}
	return f.Alive != g.Alive || quiet(f.Member) != quiet(g.Member)
}

// Settings of a Renewer that can change while it runs.
type Settings struct {
	Interval, Duration time.Duration
}

// Renewer keeps one member's Lease up to date. It writes the facts at every interval and immediately after a change of
// state, and reads from the answers what druid wrote. While the Lease names another Pod, it writes nothing.
type Renewer struct {
	store    *Store
	name     string
	podUID   string
	settings func() Settings
	log      *slog.Logger
	// Renewed receives the result of each attempt, nil for a success. It can be nil.
	Renewed func(error)

	wake chan struct{}

	mu      sync.Mutex
	fact    Fact
	lease   Member
	read    bool
	changed loop.Signal

	// What only Run touches.
	floor    floor
	reported loop.Change[string]
}

// NewRenewer returns the Renewer of the member called name for the Pod with podUID.
func NewRenewer(store *Store, name, podUID string, settings func() Settings, log *slog.Logger) *Renewer {
	return &Renewer{
		store: store, name: name, podUID: podUID, settings: settings, log: log,
		wake: make(chan struct{}, 1),
	}
}

// Publish replaces the facts. It never blocks.
func (r *Renewer) Publish(fact Fact) {
	r.mu.Lock()
	urgent := r.fact.urgent(fact)
	r.fact = fact
	r.mu.Unlock()
	if urgent {
		select {
		case r.wake <- struct{}{}:
		default:
		}
	}
}

// Lease returns the Lease from the last answer, false before the first one, and a channel that is closed at the next
// answer. It can be as old as a renewal interval. For the fresh GET of R1, use Store.Member.
func (r *Renewer) Lease() (Member, bool, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lease, r.read, r.changed.Wait()
}

// ErrSuperseded means that the Lease names another Pod, which has replaced this one as the member.
var ErrSuperseded = errors.New("the Lease belongs to another Pod of this member")

// Run renews until ctx ends. It logs an error once per change and retries.
func (r *Renewer) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var failures int
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		// The wake-up is reset before the facts are read, so that no change is lost.
		select {
		case <-r.wake:
		default:
		}
		interval := r.settings().Interval
		err := r.renew(ctx)
		if ctx.Err() != nil {
			return nil
		}
		r.note(ctx, err)
		pause, hurry := interval, true
		if failures++; err == nil || errors.Is(err, ErrSuperseded) {
			failures = 0
		}
		if failures > 0 {
			pause, hurry = min(backoffStart<<min(failures-1, 10), interval/3), false
		}
		if err := r.rest(ctx, timer, pause, hurry); err != nil {
			return nil
		}
	}
}

// rest sets the timer to pause. If hurry is set, a change of state shortens it to minGap.
func (r *Renewer) rest(ctx context.Context, timer *time.Timer, pause time.Duration, hurry bool) error {
	pause += time.Duration(rand.Float64() * jitter * float64(pause))
	timer.Reset(pause)
	if !hurry || pause <= minGap {
		return nil
	}
	started := time.Now()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-r.wake:
		timer.Reset(max(minGap-time.Since(started), 0))
	case <-timer.C:
		timer.Reset(0)
	}
	return nil
}

// renew writes the facts to the Lease as it was last read. After a conflict, it reads the Lease and writes once more.
// One more attempt is enough, because only druid and users write there.
func (r *Renewer) renew(ctx context.Context) error {
	known, read, _ := r.Lease()
	var err error
	for range 2 {
		if !read {
			if known, err = r.look(ctx); err != nil {
				return err
			}
		}
		if known.PodUID != "" && known.PodUID != r.podUID {
			if read { // it may be ours again
				if known, err = r.look(ctx); err != nil {
					return err
				}
			}
			if known.PodUID != r.podUID {
				return fmt.Errorf("%w: its Pod UID is %s, and that of this Pod is %s", ErrSuperseded, known.PodUID, r.podUID)
			}
		}
		if err = r.write(ctx, known); !errors.Is(err, ErrConflict) {
			return err
		}
		read = false
	}
	return err
}

// look reads the Lease. After a restart of the agent, the floor continues from its content.
func (r *Renewer) look(ctx context.Context) (Member, error) {
	lease, err := r.store.Member(ctx, r.name)
	if errors.Is(err, ErrUnreadable) {
		// The Lease was edited and is invalid. The agent overwrites it with its own facts, and does not use its
		// content before that.
		r.unread()
		return r.store.Marks(ctx, r.name)
	}
	if err != nil {
		r.unread()
		return Member{}, err
	}
	if r.floor.id == 0 {
		r.floor.resume(lease)
	}
	r.learn(lease)
	return lease, nil
}

func (r *Renewer) write(ctx context.Context, known Member) error {
	r.mu.Lock()
	fact := r.fact
	r.mu.Unlock()
	settings, now := r.settings(), time.Now()
	patch := MemberPatch{Member: fact.Member, At: known.LeaseVersion, Duration: settings.Duration}
	if fact.Alive {
		patch.RenewTime = &now
	}
	if fact.Member.ID != 0 {
		patch.Member.Floor = r.floor.next(fact.Member.ID, fact.Alive, now, settings.Interval)
	}
	crash.Before("renew-lease")
	lease, err := r.store.PatchMember(ctx, r.name, patch)
	crash.After("renew-lease")
	if err != nil {
		r.unread()
		return err
	}
	if fact.Member.ID != 0 {
		r.floor.published(fact.Member.Raft, fact.Alive, now)
	}
	r.learn(lease)
	return nil
}

// unread drops the version of a Lease whose content is no longer known.
func (r *Renewer) unread() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.read = false
}

func (r *Renewer) learn(lease Member) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lease, r.read = lease, true
	r.changed.Send()
}

// note logs a repeated state once per change.
func (r *Renewer) note(ctx context.Context, err error) {
	if r.Renewed != nil {
		r.Renewed(err)
	}
	kind := reasonOf(err)
	if !r.reported.To(kind) {
		return
	}
	if err == nil {
		r.log.InfoContext(ctx, "lease renewed", "member", r.name)
		return
	}
	r.log.WarnContext(ctx, "lease renewal failed, retrying", "member", r.name, "reason", kind, "err", err)
}

// reasonOf returns the class of an error. The text of two timeouts can differ although their meaning is the same.
func reasonOf(err error) string {
	if err == nil {
		return ""
	}
	for _, class := range []struct {
		is   error
		name string
	}{
		{ErrSuperseded, "superseded"},
		{ErrAbsent, "absent"},
		{ErrForbidden, "forbidden"},
		{ErrConflict, "conflict"},
		{ErrUnreadable, "unreadable"},
	} {
		if errors.Is(err, class.is) {
			return class.name
		}
	}
	return "unreachable"
}

// floor keeps the raft position below which a volume must have gone back in time: a position that was published at
// least one renewal interval ago, by an etcd that has been healthy since then. The newest position is not usable,
// because etcd reports its commit index a moment before the entries are on disk. After a crash in that moment, the
// volume can have less without having gone back in time. The last position that an etcd reported before it ended never
// becomes the floor, however long it is stopped.
type floor struct {
	id        uint64
	surely    Raft
	candidate Raft
	since     time.Time
}

// resume continues with the floor in the Lease after a restart of the agent. The position in the Lease is not a
// candidate: the etcd that published it can have ended since, and its successor can have less.
func (f *floor) resume(m Member) {
	*f = floor{id: m.ID, surely: m.Floor}
}

// next returns the floor to publish with a member's newest position. A new raft ID starts without a floor, because the
// position of its predecessor does not apply to a learner that has not caught up.
func (f *floor) next(id uint64, alive bool, now time.Time, interval time.Duration) Raft {
	if f.id != id {
		*f = floor{id: id}
	}
	if !alive {
		f.candidate = Raft{}
	}
	if !f.candidate.IsZero() && now.Sub(f.since) >= interval {
		if f.candidate.Committed >= f.surely.Committed {
			f.surely = f.candidate
		}
		f.candidate = Raft{}
	}
	return f.surely
}

// published records that a position is in the Lease now.
func (f *floor) published(position Raft, alive bool, now time.Time) {
	if alive && f.candidate.IsZero() {
		f.candidate, f.since = position, now
	}
}
