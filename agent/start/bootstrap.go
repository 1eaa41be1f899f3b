package start

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/agent/datadir"
	"github.com/etcd-druid/druid/agent/launch"
	"github.com/etcd-druid/druid/agent/transport"
	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/backup/store/open"
	"github.com/etcd-druid/druid/internal/loop"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

// Times of a start. They are fields of the Bootstrapper for the tests alone.
const (
	// pollInterval between two looks while something is about to change: one GET each, two per second.
	pollInterval = 500 * time.Millisecond
	// calmInterval is where a wait that lasts ends up; calmAfter is when it begins to slow down.
	calmInterval, calmAfter = 5 * time.Second, 20 * time.Second
	// leaseAge is how long our own Lease is taken as read while nothing but waiting follows from it.
	leaseAge = 3 * time.Second
	// kubernetesTimeout bounds what Kubernetes is asked for before a start: a Resume needs none of it.
	kubernetesTimeout = 2500 * time.Millisecond
	// endpointTimeout bounds one member's answer; a SYN that was lost is sent again after 1 s.
	endpointTimeout = 1500 * time.Millisecond
	// settleInterval between the two lists that must agree before a joiner starts.
	finishInterval = 150 * time.Millisecond
	// defaultElectionTimeout is etcd's own.
	defaultElectionTimeout = time.Second
)

// Options of a Bootstrapper.
type Options struct {
	Config    config.Config
	Store     *leases.Store
	Transport transport.Transport
	Log       *slog.Logger
	// Registerer of the metric etcd_agent_decisions_total.
	Registerer prometheus.Registerer
	// Decided is called once per change of decision, for the member Lease; it must not block. It may be nil.
	Decided func(Published)
	// Host is the DNS name of a member; nil for <member>.<peer service>.<namespace>.svc.
	Host func(member string) string
	// OpenStore of backups; nil for any kind of store that there is.
	OpenStore func(context.Context, store.Config) (store.Store, error)
	// Addresses of the Pod; nil for those of its interfaces.
	Addresses func() ([]net.Addr, error)
}

// Published is what the member Lease reports a start decision.
type Published struct {
	Decision
	// Data is the state of the volume in words.
	Data string
}

// Bootstrapper decides how this member starts and follows it until it votes. It implements launch.Decider but for
// Stopping, which is the business of anyone who knows etcd's leader.
type Bootstrapper struct {
	cfg       config.Config
	store     *leases.Store
	transport transport.Transport
	dial      membership.Dial
	log       *slog.Logger
	decided   func(Published)
	host      func(string) string
	metrics   *prometheus.CounterVec
	openStore func(context.Context, store.Config) (store.Store, error)

	// Seams: what the tests stand in for is the network of a Pod.
	lookup    func(ctx context.Context, host string) ([]string, error)
	addresses func() ([]net.Addr, error)
	poll      time.Duration

	mu       sync.Mutex
	identity datadir.IdentityFile // of the data that etcd was last started on
	known    bool

	// What one goroutine, launch's or Settle's, keeps from one look to the next.
	last    Decision
	record  *recordState // the last one that could be read
	joining joining
	// unstarted learners of others, and since when they are known.
	unstarted map[uint64]time.Time
	failed    string
	lease     ownLease
	leaseAt   time.Time
	started   time.Time
	inspects  *volumeState
	lastKnown lastKnown
	// notRun counts the starts in a row that could not run etcd's program.
	notRun     int
	bootstraps bootstraps
	// restores is what became of the attempts to restore.
	restores restores
}

// joining is the learner that this process added and whose etcd has not written a log yet.
type joining struct {
	// asked: the add was sent. Its answer may be lost: an entry at our peer URL that was not there before is ours.
	asked    bool
	id       uint64
	attempts int
}

// New returns a Bootstrapper.
func New(o Options) (*Bootstrapper, error) {
	if _, err := minorOf(o.Config.EtcdVersion); err != nil {
		return nil, err
	}
	metrics, err := newDecisions(o.Registerer)
	if err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	b := &Bootstrapper{
		cfg: o.Config, store: o.Store, transport: o.Transport, log: o.Log,
		decided: o.Decided, host: o.Host, metrics: metrics, openStore: o.OpenStore,
		lookup: net.DefaultResolver.LookupHost, addresses: o.Addresses, poll: pollInterval, unstarted: map[uint64]time.Time{},
	}
	if b.host == nil {
		b.host = func(member string) string { return PeerHost(o.Config, member) }
	}
	if b.addresses == nil {
		b.addresses = net.InterfaceAddrs
	}
	if b.decided == nil {
		b.decided = func(Published) {}
	}
	if b.openStore == nil {
		b.openStore = open.Open
	}
	b.dial = b.reached
	return b, nil
}

// reached is a client of the one member at endpoint, or at once an error where no one listens.
func (b *Bootstrapper) reached(ctx context.Context, endpoints ...string) (*clientv3.Client, error) {
	for _, endpoint := range endpoints {
		u, err := url.Parse(endpoint)
		if err != nil {
			return nil, fmt.Errorf("endpoint %s: %w", endpoint, err)
		}
		if err := b.transport.Reach(ctx, u.Host); err != nil {
			return nil, err
		}
	}
	return b.transport.Etcd(ctx, endpoints...)
}

// PeerHost is the DNS name under which a member is reached by its peers and by the other agents. It is part of the peer
// URL, hence of the member's identity, and never changes.
func PeerHost(cfg config.Config, member string) string {
	return member + "." + cfg.PeerService + "." + cfg.Namespace + ".svc"
}

// Identity is the stamp of the data that etcd runs on, false while no start was decided. Only with Formed set does the
// raft group exist for certain: before that no one may be informed of the member's IDs.
func (b *Bootstrapper) Identity() (datadir.IdentityFile, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.identity, b.known
}

func (b *Bootstrapper) setIdentity(s datadir.IdentityFile) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.identity, b.known = s, true
}

func (b *Bootstrapper) peerURL(member string) string {
	return b.transport.URL(b.host(member), b.cfg.PeerPort)
}

func (b *Bootstrapper) clientURL(member string) string {
	return b.transport.URL(b.host(member), b.cfg.ClientPort)
}

func (b *Bootstrapper) electionTimeout() time.Duration {
	if b.cfg.ElectionTimeout > 0 {
		return b.cfg.ElectionTimeout
	}
	return defaultElectionTimeout
}

// waiting is the order to stay idle for a reason.
func waiting(reason string) launch.Order {
	return launch.Order{Version: launch.ProtocolVersion, Kind: launch.OrderWait, Reason: reason}
}

// Next observes, decides and acts until etcd may start. It implements launch.Decider's half: the caller holds the volume's
// lock for as long as it runs.
func (b *Bootstrapper) Next(ctx context.Context, idle launch.Idle, inform func(launch.Order)) (launch.Order, error) {
	b.forgetVolume()
	b.leaseAt, b.started, b.bootstraps = time.Time{}, time.Now(), bootstraps{}
	var reported loop.Change[string]
	say := func(reason string) {
		if reported.To(reason) {
			inform(waiting(reason))
		}
	}
	for ctx.Err() == nil {
		order, reason, err := b.step(ctx, idle.Report)
		switch {
		case errors.Is(err, errNotYet):
			say(err.Error())
			continue
		case err != nil && ctx.Err() == nil:
			b.fail(ctx, err)
			say(fmt.Sprintf("%s: %s", b.last.Rule, err))
		case order != nil:
			if !b.restAfterCrash(ctx, idle.Report, say) {
				break
			}
			return *order, nil
		case reason != "":
			say(reason)
		default:
			continue // something was done: look again at once
		}
		loop.Sleep(ctx, b.interval())
	}
	return launch.Order{}, context.Cause(ctx)
}

// step is one look and what follows from it: an order, the reason of a wait, or neither where something was done.
func (b *Bootstrapper) step(ctx context.Context, report launch.Report) (*launch.Order, string, error) {
	o := b.observe(ctx, report, false)
	d := b.decide(&o)
	if needsFreshLease(d) && !o.fresh {
		o = b.observe(ctx, report, true)
		d = b.decide(&o)
	}
	if ctx.Err() != nil {
		return nil, "", context.Cause(ctx)
	}
	d.Reason = o.reason(d)
	b.publish(ctx, d, &o)
	if d.Mode == ModeWait || d.Mode == ModeRefuse {
		return nil, d.Reason, nil
	}
	order, err := b.act(ctx, d, &o)
	return order, "", err
}

// fail logs why an act did not succeed, once per change.
func (b *Bootstrapper) fail(ctx context.Context, err error) {
	if err.Error() != b.failed {
		b.failed = err.Error()
		b.log.WarnContext(ctx, "start decision failed", "rule", b.last.Rule, "err", err)
	}
}

// needsFreshLease: everything but Resume is decided by what was read just now (R1).
func needsFreshLease(d Decision) bool {
	return d.Mode != ModeResume && d.Mode != ModeWait && d.Mode != ModeRefuse
}

// publish reports a decision, once per change.
func (b *Bootstrapper) publish(ctx context.Context, d Decision, o *observation) {
	changed := d.Rule != b.last.Rule
	if changed {
		b.started = time.Now()
		b.metrics.WithLabelValues(startTable, d.Rule).Inc()
		b.log.InfoContext(ctx, "start decided", "mode", d.Mode, "rule", d.Rule, "reason", d.Reason, "facts", o.Facts)
	}
	if changed || d.Reason != b.last.Reason {
		b.decided(Published{Decision: d, Data: o.dataText()})
	}
	b.last = d
}

// dataWords is the state of the data for the member Lease.
func (o *observation) dataText() string {
	if o.Data == Corrupt {
		return o.volume.report.String()
	}
	return o.Data.String()
}

// interval grows once a wait lasts: a cluster that waits for a person costs little.
func (b *Bootstrapper) interval() time.Duration {
	if over := time.Since(b.started) - calmAfter; over > 0 {
		return min(calmInterval, b.poll+over/8)
	}
	return b.poll
}

// Pauses before an etcd that keeps crashing is started again: none after the first crash, then doubling.
const (
	crashPause, maxCrashPause = time.Second, 30 * time.Second
	// soonAfter: an etcd that ran longer than this did not crash by being started.
	soonAfter = 10 * time.Second
)

// restAfterCrash waits before the next start of an etcd that ends again and again; false means that ctx ended.
func (b *Bootstrapper) restAfterCrash(ctx context.Context, report launch.Report, say func(string)) bool {
	rest, why := b.crashRest(report)
	if rest == 0 {
		return ctx.Err() == nil
	}
	say(fmt.Sprintf("%s; it is started again in %s", why, rest))
	return loop.Sleep(ctx, rest)
}

// crashRest is how long to wait and why. A program that could not be run at all is no crash of etcd, which launch counts,
// but at once it would fail again: each such start may cost a claim in the record.
func (b *Bootstrapper) crashRest(report launch.Report) (rest time.Duration, why string) {
	exit := report.LastExit
	if exit != nil && exit.Code == -1 && exit.Signal == "" {
		b.notRun++
		return doubling(b.notRun - 1), "etcd could not be started: " + exit.Message
	}
	b.notRun = 0
	// The starts of a learner that lost the race with another joiner end too, and are to be repeated at once.
	if report.Crashes < 2 || exit == nil || exit.RanFor > soonAfter || b.joining.attempts > 1 {
		return 0, ""
	}
	return doubling(report.Crashes - 2), fmt.Sprintf("etcd ended %d times in a row, last with code %d %s; its log says why",
		report.Crashes, exit.Code, exit.Signal)
}

func doubling(times int) time.Duration { return min(maxCrashPause, crashPause<<min(times, 5)) }
