package agent

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"

	"github.com/etcd-druid/druid/agent/access"
	"github.com/etcd-druid/druid/agent/backups"
	"github.com/etcd-druid/druid/agent/certificates"
	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/agent/duties"
	"github.com/etcd-druid/druid/agent/launch"
	"github.com/etcd-druid/druid/agent/start"
	"github.com/etcd-druid/druid/agent/transport"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

// Options of an Agent.
type Options struct {
	Config config.Config
	// Kubernetes is where the Leases are.
	Kubernetes *rest.Config
	// Registry of the agent's metrics, served at /metrics.
	Registry *prometheus.Registry
	Log      *slog.Logger
	// Level is set from the configuration file; nil for a fixed level.
	Level *slog.LevelVar
	// Version of the agent.
	Version string
	// Host is the DNS name of a member; nil for <member>.<peer service>.<namespace>.svc.
	Host func(member string) string
	// Addresses of the Pod; nil for those of its interfaces.
	Addresses func() ([]net.Addr, error)
	// Scratch is the directory into which backups are restored for verification; config.ScratchDir if empty.
	Scratch string
}

// Agent runs next to one member. Create it with New.
type Agent struct {
	options      Options
	transport    transport.Transport
	clients      *transport.Clients
	certificates *certificates.Certificates
	// certifying orders the reports of the certificates, so that an older one does not replace a newer one.
	certifying   sync.Mutex
	log          *slog.Logger
	metrics      *metrics
	live         *config.Live
	bootstrapper *start.Bootstrapper
	launch       *launch.Server
	observer     *observer
	renewer      *leases.Renewer
	election     *leases.Election
	duties       *duties.Duties
	takeover     *duties.Takeover
	departure    *duties.Departure
	differing    *duties.DifferingMember
	backups      *backups.Duty
	access       *access.Access
	// equal says that the last comparison of this leadership found nothing that differs, and that no Lease says so.
	equal atomic.Bool
	// differed has the IDs of the members whose data was found to differ, as the Leases said at the last comparison of this leadership.
	differed  atomic.Pointer[[]uint64]
	facts     *facts
	disk      *diskReport
	speed     *disk
	beats     *beats
	passwords passwords
	// serverClock is the clock of the API server.
	serverClock start.ServerClock
}

// New wires an Agent. It connects to nothing, because what is unavailable now can be available when it is needed.
func New(o Options) (*Agent, error) {
	if err := o.Config.Validate(); err != nil {
		return nil, fmt.Errorf("options: %w", err)
	}
	a := &Agent{options: o, log: o.Log, beats: newBeats()}
	var err error
	if a.metrics, err = newMetrics(o.Registry, o.Version); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	kubernetes, err := a.kubernetes()
	if err != nil {
		return nil, err
	}
	c := o.Config
	store := leases.NewStore(kubernetes, c.Cluster)
	a.live = config.NewLive(c.ConfigPath, o.Log)
	a.live.Loaded = a.loaded
	a.certificates = certificates.New(c, a.host(c.Member), o.Log)
	a.certificates.Checked = a.certified
	a.transport = a.dials()
	a.clients = transport.NewClients(a.transport)
	a.facts = newFacts(o.Version, leases.Snapshots{Entries: snapshotCount(o.Config), PodUID: c.PodUID})
	a.disk = newDiskReport(store, c.Member, c.PodUID, o.Log)
	a.bootstrapper, err = start.New(start.Options{
		Config: c, Store: store, Transport: a.transport, Clients: a.clients, Certificates: a.certificates, Log: o.Log, Registerer: o.Registry,
		Host: o.Host, Addresses: o.Addresses, ServerTime: a.serverClock.Now,
		Decided: func(p start.Published) { a.facts.decide(p); a.publish() }, Held: a.disk.set,
	})
	if err != nil {
		return nil, err
	}
	a.launch = launch.NewServer(c.SocketPath, decider{a.bootstrapper, a}, o.Log)
	a.observes()
	a.renewer = leases.NewRenewer(store, c.Member, c.PodUID, a.renewal, o.Log)
	a.renewer.Renewed = func(err error) { a.beats.beat(loopRenewer); a.metrics.renewed(err); a.bootstrapper.Renewed(err) }
	a.election = leases.NewElection(store, c.Member, o.Log)
	options := a.leaderOptions(store)
	a.duties = duties.New(options)
	a.takeover = &duties.Takeover{
		Store: store, Dial: options.Dial, Local: options.Local, Self: options.Self, PeerURL: options.PeerURL, Log: o.Log,
		Adopted: a.adopted,
	}
	joined, err := c.JoinEndpoints()
	if err != nil {
		return nil, fmt.Errorf("options: %w", err)
	}
	a.departure = &duties.Departure{
		Store: store, Dial: options.Dial, Member: c.Member, PodUID: c.PodUID, Endpoints: joined, PeerURL: options.PeerURL, Log: o.Log,
		Decisions: options.Decisions, Marked: a.marked,
	}
	a.differing = a.newDifferingMember(options)
	if a.backups, err = a.newBackups(store); err != nil {
		return nil, err
	}
	if a.access, err = a.newAccess(); err != nil {
		return nil, err
	}
	return a, nil
}

// dials returns how the agent dials members.
func (a *Agent) dials() transport.Transport {
	c := a.options.Config
	return transport.Transport{
		Client: a.certificates.Client(), Peer: a.certificates.Peer(), Plaintext: c.ClientPlaintext,
		External: start.External(c, a.certificates), Identity: a.identity,
	}
}

// identity identifies the certificates with which the agent dials members: its own, and those for a joined cluster.
func (a *Agent) identity() string {
	own, joined := a.certificates.Identity(), a.options.Config.JoinTLS
	if joined == "" {
		return own
	}
	return own + " " + certificates.ExternalIdentity(joined)
}

// kubernetes returns the only client of the Kubernetes API. It supports only Leases, so nothing else is linked.
func (a *Agent) kubernetes() (leases.Client, error) {
	c := rest.CopyConfig(a.options.Kubernetes)
	c.ContentType = "application/vnd.kubernetes.protobuf"
	c.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	// While it forms or joins, an agent sends a few requests per second. Each task limits its own rate.
	c.QPS = -1
	c.Wrap(func(next http.RoundTripper) http.RoundTripper { return a.serverClock.Wrap(a.metrics.count(next)) })
	return leases.NewClient(c, a.options.Config.Namespace)
}

func (a *Agent) leaderOptions(store *leases.Store) duties.Options {
	c := a.options.Config
	return duties.Options{
		Store: store, Dial: a.clients.Dial, Local: a.local(), Log: a.log, Decisions: a.metrics.decisions,
		Self: func() (duties.Cluster, bool) {
			identityFile, known := a.bootstrapper.Identity()
			return duties.Cluster{
				ClusterID: uint64(identityFile.ClusterID), MemberID: uint64(identityFile.MemberID), Member: c.Member, PodUID: c.PodUID,
			}, known && identityFile.Formed
		},
		PeerURL:               func(name string) string { return a.transport.PeerURL(a.host(name), c.PeerPort) },
		Grace:                 func() time.Duration { return time.Duration(a.live.Current().SuperfluousGracePeriod) },
		RemoveExternalMembers: func() bool { return a.live.Current().RemoveExternalMembers },
		Complete:              a.bootstrapper.CompleteRecord,
		PlanRestore:           a.bootstrapper.PlanRestore,
		Fsync:                 a.speed.now,
		Defrag: func(now time.Time) duties.DefragPolicy {
			live := a.live.Current()
			return defragPolicy(live.Defragmentation, live.Backup != nil, c.QuotaBackendBytes, now)
		},
		Defragmented: a.metrics.defragmented,
		Alarmed:      a.alarmed,
		Compare:      func() time.Duration { return time.Duration(a.live.Current().ComparisonInterval) }, Compared: a.compared,
		Differed: func(ids []uint64) { a.differed.Store(&ids) },
		Auth:     a.authPolicy, Authenticated: a.authenticated, AuthRead: func(cluster uint64, now membership.AuthSwitch) { a.backups.AuthIs(cluster, now) },
	}
}

func (a *Agent) newDifferingMember(o duties.Options) *duties.DifferingMember {
	return &duties.DifferingMember{
		Store: o.Store, Dial: o.Dial, Local: o.Local, Self: o.Self, Marked: a.differs, Log: o.Log, Decisions: o.Decisions,
		Unchecked: a.bootstrapper.Unchecked, Compared: a.bootstrapper.Compared,
	}
}

// Run runs the agent until ctx ends. It returns nil then, and never before.
func (a *Agent) Run(ctx context.Context) error {
	a.log.InfoContext(ctx, "agent started", "member", a.options.Config.Member, "version", a.options.Version)
	var group errgroup.Group
	for name, run := range map[string]func(context.Context) error{
		"launch":        a.launch.Run,
		"pending":       a.resolvePending,
		"barriers":      a.watchBarriers,
		"recovery":      a.watchOrders,
		"differing":     a.watchDifference,
		loopObserver:    a.observer.Run,
		loopRenewer:     a.renewer.Run,
		"leader":        a.lead,
		"takeover":      a.takeover.Run,
		"departure":     a.departure.Run,
		"disk":          a.disk.Run,
		"fsync":         a.speed.Run,
		"backups":       a.backUp,
		"verifications": a.backups.VerifyBackups,
		"config":        a.live.Run,
		"certificates":  a.certificates.Run,
		"memory":        a.release,
		"http":          a.serve,
	} {
		group.Go(func() error {
			a.keep(ctx, name, run)
			return nil
		})
	}
	err := group.Wait()
	a.clients.Close()
	a.log.InfoContext(ctx, "agent ended", "member", a.options.Config.Member)
	return err
}

// lead runs the duties while this agent leads. Each duty is restarted on its own, so a panic in one does not end
// another.
func (a *Agent) lead(ctx context.Context) error {
	return duties.WhileLeader(ctx, a.observer.leads, a.election.Run, func(ctx context.Context) {
		a.metrics.leading.Set(1)
		defer a.metrics.leading.Set(0)
		a.facts.lead(true)
		defer a.facts.lead(false)
		var group errgroup.Group
		for name, run := range map[string]func(context.Context) error{
			"duties": a.duties.Run, "retention": a.backups.Prune, "orders": a.backups.ServeOrders,
		} {
			group.Go(func() error {
				a.keep(ctx, name, run)
				return nil
			})
		}
		_ = group.Wait() // keep has reported what went wrong
	})
}

// adopted reports whether the raft group existed before the cluster.
func (a *Agent) adopted() bool {
	identityFile, known := a.bootstrapper.Identity()
	return known && identityFile.Externals != ""
}

// marked reports whether the member Lease had a removal request when it was last read.
func (a *Agent) marked() bool {
	lease, read, _ := a.renewer.Lease()
	return read && lease.Removal.State != leases.RemovalNone
}

// differs reports whether the member Lease said, when it was last read, that the data of this member differs.
func (a *Agent) differs() bool {
	lease, read, _ := a.renewer.Lease()
	identityFile, known := a.bootstrapper.Identity()
	return read && known && lease.Differs.Of(uint64(identityFile.MemberID))
}

// certified is called after every check of the certificates that found a change.
func (a *Agent) certified() {
	a.certifying.Lock()
	defer a.certifying.Unlock()
	states := a.certificates.States()
	a.metrics.certified(states)
	a.facts.certified(states)
	a.publish()
}

// publish writes the known facts to the member Lease.
func (a *Agent) publish() {
	identityFile, known := a.bootstrapper.Identity()
	a.renewer.Publish(a.facts.fact(identityFile, known))
}

func (a *Agent) renewal() leases.Settings {
	r := a.live.Current()
	return leases.Settings{Interval: time.Duration(r.RenewInterval), Duration: time.Duration(r.LeaseDuration)}
}

// loaded applies a new configuration file.
func (a *Agent) loaded(r config.Reloadable, err error) {
	a.metrics.configured(err)
	if err != nil {
		return
	}
	a.backups.Configure(r.Backup)
	if a.options.Level == nil {
		return
	}
	// config.Reloadable has been validated: the level is one of slog's.
	_ = a.options.Level.UnmarshalText([]byte(r.LogLevel))
}

// local is the client endpoint of the own etcd.
func (a *Agent) local() string {
	return a.transport.ClientURL(a.listenHost(), a.options.Config.ClientPort)
}

// listenHost is the host of the own etcd.
func (a *Agent) listenHost() string { return cmp.Or(a.options.Config.ListenHost, "localhost") }

func (a *Agent) host(member string) string {
	if a.options.Host != nil {
		return a.options.Host(member)
	}
	return start.PeerHost(a.options.Config, member)
}

// etcdMayRun is false only while launch reports that etcd does not run. There is then no etcd to query.
func (a *Agent) etcdMayRun() bool {
	status, _ := a.launch.State()
	return !status.Connected || status.Running()
}
