package start

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcd-druid/druid/agent/certificates"
	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/agent/datadir"
	"github.com/etcd-druid/druid/agent/launch"
	"github.com/etcd-druid/druid/agent/transport"
	"github.com/etcd-druid/druid/backup/restore"
	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/backup/store/open"
	"github.com/etcd-druid/druid/internal/loop"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

// Times of a start. They are fields of the Bootstrapper for the tests alone.
const (
	// pollInterval between two checks while a change is expected: one GET each, two per second.
	pollInterval = 500 * time.Millisecond
	// calmInterval is the longest interval of a long wait. calmAfter is when the interval starts to grow.
	calmInterval, calmAfter = 5 * time.Second, 20 * time.Second
	// leaseAge is how long a read of the member Lease stays valid while the decision is only to wait.
	leaseAge = 3 * time.Second
	// kubernetesTimeout bounds the requests to Kubernetes before a start. A Resume needs none of them.
	kubernetesTimeout = 2500 * time.Millisecond
	// endpointTimeout bounds the response of one member. TCP sends a lost SYN again after 1 s.
	endpointTimeout = 1500 * time.Millisecond
	// finishInterval between the two lists that must agree before a joining member starts.
	finishInterval = 150 * time.Millisecond
	// defaultElectionTimeout is etcd's own.
	defaultElectionTimeout = time.Second
)

// Options of a Bootstrapper.
type Options struct {
	Config    config.Config
	Store     *leases.Store
	Transport transport.Transport
	// Clients of etcd members, which dial with Transport.
	Clients *transport.Clients
	// Certificates that etcd starts with; nil without TLS.
	Certificates *certificates.Certificates
	Log          *slog.Logger
	// Registerer of the metric etcd_agent_decisions_total.
	Registerer prometheus.Registerer
	// Decided is called once per change of decision, for the member Lease; it must not block. It may be nil.
	Decided func(Published)
	// Held is called with what the volume holds while etcd does not run on it, and with nil when etcd starts. It is for
	// the member Lease, and must not block. It may be nil.
	Held func(*leases.DiskReport)
	// Host is the DNS name of a member; nil for <member>.<peer service>.<namespace>.svc.
	Host func(member string) string
	// OpenStore opens a backup store; nil for all supported kinds of store.
	OpenStore func(context.Context, store.Config) (store.Store, error)
	// ServerTime returns the time of the API server, and false if it is unknown. If it is nil, no quarantined data expires.
	ServerTime func() (time.Time, bool)
	// Addresses of the Pod; nil for those of its interfaces.
	Addresses func() ([]net.Addr, error)
}

// Published is a start decision as the member Lease reports it.
type Published struct {
	Decision
	// Data is the state of the volume in words.
	Data string
}

// Bootstrapper decides how this member starts and follows it until it votes. It implements launch.Decider except
// Stopping, which belongs to the owner of leadership.
type Bootstrapper struct {
	cfg       config.Config
	store     *leases.Store
	transport transport.Transport
	etcd      *transport.Clients
	certs     *certificates.Certificates
	dial      membership.Dial
	log       *slog.Logger
	decided   func(Published)
	held      func(*leases.DiskReport)
	host      func(string) string
	metrics   *prometheus.CounterVec
	openStore func(context.Context, store.Config) (store.Store, error)

	// lookup and addresses are replaced by tests, which have no Pod network.
	lookup     func(ctx context.Context, host string) ([]string, error)
	addresses  func() ([]net.Addr, error)
	poll       time.Duration
	serverTime func() (time.Time, bool)
	// pruneInterval is how often PruneQuarantined looks. watchTime is for how long it sees data before the data expires.
	pruneInterval, watchTime time.Duration
	watch                    datadir.Watch

	mu       sync.Mutex
	identity datadir.IdentityFile // of the data that etcd was last started on
	known    bool
	// comparedStart: the data of the running etcd was compared with that of the other members, by etcd or by the agent.
	comparedStart atomic.Bool
	// later has an element if the leader's duties read of a later raft group or of an order to restore, or if the member Lease is renewed
	// again after a failure, see WatchOrders. unrenewed says that the last renewal failed.
	later     chan struct{}
	unrenewed bool

	// These fields are used by one goroutine at a time: that of launch or that of FinishStart.
	last    Decision
	record  *recordState // the last one that could be read
	joining joining
	clients clientsLeaving
	// unstarted are the learners of other members that have not started, and when each was first seen.
	unstarted map[uint64]time.Time
	failed    string
	lease     ownLease
	leaseAt   time.Time
	started   time.Time
	inspects  *volumeState
	holding   *datadir.Holding // what the inspected volume holds, nil before it was read
	lastKnown lastKnown
	// notRun counts the consecutive starts in which the etcd program could not be run.
	notRun      int
	storeAnswer storeAnswer
	// acknowledged is the name of the recovery order that the claim of the volume acknowledges, withdrawn says that the Lease
	// acknowledges none since, and rebuilds counts the failed attempts in a row to carry one out.
	acknowledged string
	withdrawn    bool
	rebuilds     int
	unrestorable permanentFailure
	attemptAt    restore.Progress // the progress of the present attempt
	// restores has the results of the attempts to restore.
	restores restores
}

// joining is the learner that this process added and whose etcd has not written a log yet.
type joining struct {
	// asked says that the add request was sent. Its response can be lost. An entry at this peer URL that was not there
	// before is then this member's.
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
		cfg: o.Config, store: o.Store, transport: o.Transport, etcd: o.Clients, certs: o.Certificates, log: o.Log,
		decided: o.Decided, held: o.Held, host: o.Host, metrics: metrics, openStore: o.OpenStore,
		lookup: net.DefaultResolver.LookupHost, addresses: o.Addresses, poll: pollInterval, unstarted: map[uint64]time.Time{},
		later: make(chan struct{}, 1), pruneInterval: pruneInterval,
		watchTime: datadir.WatchTime, serverTime: o.ServerTime,
	}
	if b.host == nil {
		b.host = func(member string) string { return PeerHost(o.Config, member) }
	}
	if b.addresses == nil {
		b.addresses = net.InterfaceAddrs
	}
	if b.certs == nil {
		b.certs = &certificates.Certificates{}
	}
	if b.decided == nil {
		b.decided = func(Published) {}
	}
	if b.held == nil {
		b.held = func(*leases.DiskReport) {}
	}
	if b.openStore == nil {
		b.openStore = open.Open
	}
	b.dial = b.reached
	return b, nil
}

// reached lends a client of the one member at endpoint. It fails at once if nothing listens there.
func (b *Bootstrapper) reached(ctx context.Context, endpoints ...string) (*clientv3.Client, func(error), error) {
	if b.etcd.Keeps(endpoints...) {
		return b.etcd.Dial(ctx, endpoints...)
	}
	for _, endpoint := range endpoints {
		u, err := url.Parse(endpoint)
		if err != nil {
			return nil, nil, fmt.Errorf("endpoint %s: %w", endpoint, err)
		}
		if err := b.transport.Reach(ctx, u.Host); err != nil {
			return nil, nil, err
		}
	}
	return b.etcd.Dial(ctx, endpoints...)
}

// PeerHost is the DNS name at which peers and the other agents reach a member. It is part of the peer URL and so of
// the member's identity, and it never changes.
func PeerHost(cfg config.Config, member string) string {
	return member + "." + cfg.PeerService + "." + cfg.Namespace + ".svc"
}

// Identity returns the identity of the data that etcd runs on, and false before a start was decided. Only if Formed is
// set is it certain that the raft group exists. Until then, the IDs of the member must not be published.
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

// forgetIdentity is called when the data is given up.
func (b *Bootstrapper) forgetIdentity() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.known = false
}

func (b *Bootstrapper) peerURL(member string) string {
	return transport.URL(b.cfg.PeersSecure(), b.host(member), b.cfg.PeerPort)
}

func (b *Bootstrapper) clientURL(member string) string {
	return b.transport.ClientURL(b.host(member), b.cfg.ClientPort)
}

func (b *Bootstrapper) electionTimeout() time.Duration {
	if b.cfg.ElectionTimeout > 0 {
		return b.cfg.ElectionTimeout
	}
	return defaultElectionTimeout
}

// waiting is the order to stay idle, with the reason.
func waiting(reason string) launch.Order {
	return launch.Order{Version: launch.ProtocolVersion, Kind: launch.OrderWait, Reason: reason}
}

// Next observes, decides and acts until etcd may start. It implements launch.Decider. The caller holds the lock of the
// volume while it runs.
func (b *Bootstrapper) Next(ctx context.Context, idle launch.Idle, inform func(launch.Order)) (launch.Order, error) {
	b.forgetVolume()
	b.leaseAt, b.started, b.storeAnswer, b.clients = time.Time{}, time.Now(), storeAnswer{}, clientsLeaving{}
	var reported loop.Change[string]
	say := func(reason string) {
		if reported.To(reason) {
			inform(waiting(reason))
		}
	}
	for rested := false; ctx.Err() == nil; {
		order, reason, err := b.step(ctx, idle.Report)
		switch {
		case errors.Is(err, errNotYet), errors.Is(err, errClients):
			say(err.Error())
			continue
		case err != nil && ctx.Err() == nil:
			b.fail(ctx, err)
			say(fmt.Sprintf("%s: %s", b.last.Rule, err))
		case order != nil:
			if !rested && b.restAfterCrash(ctx, idle.Report, say) && b.Unchecked() {
				rested = true
				continue // the quorum that served before the pause might be lost
			}
			if ctx.Err() == nil {
				b.held(nil)
				return *order, nil
			}
		case reason != "":
			say(reason)
		default:
			continue // something was done: look again at once
		}
		loop.Sleep(ctx, b.interval())
	}
	return launch.Order{}, context.Cause(ctx)
}

// step observes once and acts on the decision. It returns an order, or the reason of a wait, or neither if it changed
// something.
func (b *Bootstrapper) step(ctx context.Context, report launch.Report) (*launch.Order, string, error) {
	b.observePeerNames(ctx)
	if err := b.certs.Ready(); err != nil {
		return nil, b.withoutCertificates(ctx, err), nil
	}
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
		b.reportDisk(ctx, report, &o)
		return nil, d.Reason, nil
	}
	if failing(report) || d.Mode == ModeRecover {
		b.reportDisk(ctx, report, &o) // the next start is later, or never
	}
	order, err := b.act(ctx, d, &o)
	return order, "", err
}

// needsFreshLease reports whether the decision requires a Lease that was just read. Every decision that starts or
// changes something does, except Resume (R1).
func needsFreshLease(d Decision) bool {
	return d.Mode != ModeResume && d.Mode != ModeWait && d.Mode != ModeRefuse
}

// publish reports a decision, once for each change.
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

// dataText describes the state of the data for the member Lease.
func (o *observation) dataText() string {
	if o.Data == Corrupt {
		return o.volume.report.String()
	}
	return o.Data.String()
}
