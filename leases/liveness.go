package leases

import (
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/etcd-druid/druid/internal/rules"
)

// Liveness of a member Lease or a snapshot Lease as one observer sees it.
type Liveness uint8

// The livenesses. Only Stale and Never say something about the process that renews.
const (
	// Live: the observer saw a renewal less than the Lease's duration ago.
	Live Liveness = 1 << iota
	// Stale: the observer saw the Lease unchanged for its duration. Before any action follows, a live GET must still
	// show the same renewTime, because an observer that was frozen has an old copy.
	Stale
	// Never: the Lease was never renewed.
	Never
	// Unknown: the Lease cannot be read, or the observer has not watched it for long enough.
	Unknown
)

// String returns the name of the liveness in logs and tables.
func (l Liveness) String() string { return rules.Word(l, "live", "stale", "never", "unknown") }

// sight is the complete input of the decision. renewTime is only compared for equality, because it comes from another
// machine's clock.
type sight struct {
	readable rules.YesNo // the Lease is there and can be decoded
	renewed  rules.YesNo // it has a renewTime at all
	moved    rules.YesNo // the observer saw renewTime change
	elapsed  rules.YesNo // by the observer's clock it is unchanged for its duration
}

// livenesses is the complete policy. The first match wins. The default is Unknown.
var livenesses = rules.New(Unknown, []rules.Row[sight, Liveness]{
	{Name: "unreadable", When: sight{readable: rules.No}, Verdict: Unknown},
	{Name: "never-renewed", When: sight{renewed: rules.No}, Verdict: Never},
	{Name: "unchanged-for-its-duration", When: sight{elapsed: rules.Yes}, Verdict: Stale},
	{Name: "seen-renewing", When: sight{moved: rules.Yes}, Verdict: Live},
	{Name: "observer-just-started", Verdict: Unknown},
})

// Watcher judges member and snapshot Leases by its own observations. It is safe for concurrent use. Its clocks start
// when it first sees a Lease, so that an observer that just started never reports a stale Lease.
type Watcher struct {
	mu   sync.Mutex
	seen map[leaseKey]sighting
}

type leaseKey struct{ namespace, name string }

// sighting is the last change of a Lease that the observer saw, and when it saw it.
type sighting struct {
	uid       string
	renewTime time.Time
	since     time.Time
	moved     bool
	duration  time.Duration
}

// defaultDuration applies to a Lease without a duration. It is the usual one of a member Lease.
const defaultDuration = 45 * time.Second

// DurationOf returns how long the Lease is valid without a renewal.
func DurationOf(lease *coordinationv1.Lease) time.Duration {
	if lease.Spec.LeaseDurationSeconds == nil {
		return defaultDuration
	}
	return time.Duration(*lease.Spec.LeaseDurationSeconds) * time.Second
}

// NewWatcher returns a Watcher without observations.
func NewWatcher() *Watcher { return &Watcher{seen: map[leaseKey]sighting{}} }

// Observe records the Lease as seen at now, by the observer's monotonic clock, and judges it.
func (w *Watcher) Observe(lease *coordinationv1.Lease, now time.Time) Liveness {
	if lease == nil {
		return Unknown
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	key := leaseKey{lease.Namespace, lease.Name}
	s := w.seen[key].next(lease, now)
	w.seen[key] = s
	return livenesses.Decide(sight{
		readable: rules.YesNoOf(readable(lease)),
		renewed:  rules.YesNoOf(lease.Spec.RenewTime != nil),
		moved:    rules.YesNoOf(s.moved),
		elapsed:  rules.YesNoOf(now.Sub(s.since) >= s.duration),
	}).Verdict
}

// readable says whether the Lease has valid content for its component.
func readable(lease *coordinationv1.Lease) bool {
	var err error
	switch Component(lease.Labels[LabelComponent]) {
	case ComponentFullSnapshot, ComponentDeltaSnapshot:
		_, err = DecodeBackup(lease)
	default:
		_, err = DecodeMember(lease)
	}
	return err == nil
}

func (s sighting) next(lease *coordinationv1.Lease, now time.Time) sighting {
	n := sighting{uid: string(lease.UID), duration: DurationOf(lease), since: now}
	if lease.Spec.RenewTime != nil {
		n.renewTime = lease.Spec.RenewTime.Time
	}
	switch known := !s.since.IsZero() && s.uid == n.uid; {
	case !known: // first seen, or deleted and made again: the clock starts
	case s.renewTime.Equal(n.renewTime):
		n.since, n.moved = s.since, s.moved
	default:
		n.moved = true
	}
	return n
}

// Expiry returns when, by the observer's clock, the Lease becomes stale unless it changes. It returns false for a
// Lease that was never observed.
func (w *Watcher) Expiry(namespace, name string) (time.Time, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s, ok := w.seen[leaseKey{namespace, name}]
	return s.since.Add(s.duration), ok
}

// Forget drops the state of a deleted Lease.
func (w *Watcher) Forget(namespace, name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.seen, leaseKey{namespace, name})
}

// claim is what a candidate does with the leader's Lease.
type claim string

// The claims.
const (
	// claimWait: leave the Lease, and look again later.
	claimWait claim = "Wait"
	// claimWrite: take or renew the Lease by compare-and-set.
	claimWrite claim = "Write"
	// claimLose: this agent held the Lease and lost it.
	claimLose claim = "Lose"
)

// holding is who holds the leader's Lease.
type holding uint8

// The holdings.
const (
	// heldUnknown: the Lease could not be read.
	heldUnknown holding = 1 << iota
	// heldAbsent: the Lease does not exist.
	heldAbsent
	// heldByNoOne: the Lease was released, or was never held.
	heldByNoOne
	// heldByUs: the Lease names this agent. After a restart, the agent can find itself named from before.
	heldByUs
	// heldByAnother: the Lease names another holder.
	heldByAnother
)

func (h holding) String() string {
	return rules.Word(h, "unknown", "absent", "not held", "held by us", "held by another")
}

func holdingOf(holder, identity string) holding {
	switch holder {
	case "":
		return heldByNoOne
	case identity:
		return heldByUs
	default:
		return heldByAnother
	}
}

// claimFacts is the complete input of a claim decision.
type claimFacts struct {
	holding holding
	elapsed rules.YesNo // by the candidate's own clock the Lease is unchanged for as long as it lasts
	leading rules.YesNo // our last write made it ours
}

// claims is the complete policy. The first match wins. The default is to wait.
var claims = rules.New(claimWait, []rules.Row[claimFacts, claim]{
	{Name: "api-unreachable", When: claimFacts{holding: heldUnknown}, Verdict: claimWait},
	{Name: "held-by-us", When: claimFacts{holding: heldByUs}, Verdict: claimWrite},
	{Name: "held-by-another", When: claimFacts{leading: rules.Yes}, Verdict: claimLose},
	{Name: "lease-absent", When: claimFacts{holding: heldAbsent}, Verdict: claimWait},
	{Name: "released", When: claimFacts{holding: heldByNoOne}, Verdict: claimWrite},
	{Name: "not-expired", When: claimFacts{elapsed: rules.No}, Verdict: claimWait},
	{Name: "expired", When: claimFacts{elapsed: rules.Yes}, Verdict: claimWrite},
})
