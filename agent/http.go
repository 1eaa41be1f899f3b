package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"github.com/etcd-druid/druid/agent/transport"
	"github.com/etcd-druid/druid/internal/loop"
	"github.com/etcd-druid/druid/membership"
)

// Times of the endpoints.
const (
	// observerBound is how long a loop of short, bounded calls may take before the agent calls itself stuck.
	observerBound = time.Minute
	// shutdownTimeout of requests that are under way when the agent ends.
	shutdownTimeout = 2 * time.Second
)

// serve answers on the agent's port until ctx ends.
func (a *Agent) serve(ctx context.Context) error {
	c := a.options.Config
	listener, err := a.options.Transport.Listen(ctx, c.ListenHost, c.AgentPort)
	if err != nil {
		return err
	}
	server := a.options.Transport.Server(a.handler())
	group, serving := errgroup.WithContext(ctx)
	group.Go(func() error {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve %s: %w", listener.Addr(), err)
		}
		return nil
	})
	group.Go(func() error {
		<-serving.Done()
		ended, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		defer cancel()
		return server.Shutdown(ended)
	})
	return group.Wait()
}

func (a *Agent) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", probe(a.alive))
	mux.HandleFunc("GET /readyz", probe(a.ready))
	mux.HandleFunc("GET /healthz", probe(a.healthy))
	mux.Handle("GET /metrics", promhttp.HandlerFor(a.options.Registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /v1/status", a.serveStatus)
	mux.HandleFunc("POST "+snapshotsPath, a.serveSnapshot)
	return mux
}

// probe answers 200 ok, or 503 and why.
func probe(check func() error) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if err := check(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte("ok\n")) // a client that went away needs no answer
	}
}

// alive looks at the agent's own loops and at nothing else: no fault of etcd or of Kubernetes is repaired by a restart of
// the agent.
func (a *Agent) alive() error {
	bounds := map[string]time.Duration{loopObserver: observerBound, loopRenewer: observerBound + 2*a.renewal().Interval}
	if loop := a.beats.stuck(bounds); loop != "" {
		return fmt.Errorf("loop %s does not come round", loop)
	}
	return nil
}

// healthy says whether the member is in the cluster and serves.
func (a *Agent) healthy() error {
	if state, _ := a.observer.State(); !state.Healthy {
		return fmt.Errorf("etcd is not healthy: %s", state.Problem)
	}
	return nil
}

// ready says whether clients may be sent to the member: it is healthy and votes.
func (a *Agent) ready() error {
	if err := a.healthy(); err != nil {
		return err
	}
	if state, _ := a.observer.State(); state.Status.Role == membership.RoleLearner {
		return errors.New("etcd is a learner: it serves no linearizable reads")
	}
	return nil
}

func (a *Agent) serveStatus(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(a.Status()); err != nil {
		a.log.DebugContext(r.Context(), "status not written", "err", err)
	}
}

// Pace of the observer.
const (
	// lookInterval between two looks at an etcd that is well; a change of role or health is reported within it.
	lookInterval = time.Second
	// troubledInterval while it is not: a start is seen soon after it succeeded.
	troubledInterval = 250 * time.Millisecond
	// lookTimeout of one call: etcd answers for itself in milliseconds, a linearizable read within an election timeout.
	lookTimeout = 3 * time.Second
)

// State is our own etcd as the agent last saw it.
type State struct {
	// Reachable: etcd answered for itself; Status is that answer.
	Reachable bool
	Status    membership.Status
	// Healthy: it is in the cluster and serves: it knows a leader and, as a voter, answers a linearizable read. An alarm
	// does not make it unhealthy: with NOSPACE it still serves reads and votes.
	Healthy bool
	// Problem says why it is not healthy.
	Problem string
}

// observer looks at our own etcd.
type observer struct {
	transport transport.Transport
	endpoint  string
	mayRun    func() bool
	log       *slog.Logger
	// looked is informed of every look.
	looked func(State)

	mu      sync.Mutex
	state   State
	changed loop.Signal
}

func newObserver(t transport.Transport, endpoint string, mayRun func() bool, log *slog.Logger) *observer {
	return &observer{
		transport: t, endpoint: endpoint, mayRun: mayRun, log: log,
		looked: func(State) {},
	}
}

// State is the last one and a channel that is closed at the next look.
func (o *observer) State() (State, <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.state, o.changed.Wait()
}

// Run looks until ctx ends.
func (o *observer) Run(ctx context.Context) (err error) {
	client, err := o.transport.Etcd(ctx, o.endpoint)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	for {
		state := o.look(ctx, client)
		if ctx.Err() != nil {
			return nil
		}
		o.set(ctx, state)
		interval := lookInterval
		if !state.Healthy {
			interval = troubledInterval
		}
		loop.Sleep(ctx, interval)
	}
}

func (o *observer) look(ctx context.Context, client *clientv3.Client) State {
	if !o.mayRun() {
		return State{Problem: "etcd does not run"}
	}
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	status, err := membership.ReadStatus(ctx, client, o.endpoint)
	if err != nil {
		client.ActiveConnection().ResetConnectBackoff() // the next look need not wait for it
		return State{Problem: "etcd does not answer: " + err.Error()}
	}
	state := State{Reachable: true, Status: status}
	switch {
	case status.Leader == 0:
		state.Problem = "no leader"
	case status.Role == membership.RoleLearner:
		state.Healthy = true // a learner serves no linearizable read
	default:
		err := membership.Linearizable(ctx, client)
		// etcd's own health check reads as no one: a refusal came through raft all the same.
		state.Healthy = err == nil || errors.Is(err, rpctypes.ErrPermissionDenied) || errors.Is(err, rpctypes.ErrUserEmpty)
		if !state.Healthy {
			state.Problem = err.Error()
		}
	}
	return state
}

// set logs a repeated state once per change.
func (o *observer) set(ctx context.Context, state State) {
	o.mu.Lock()
	before := o.state
	o.state = state
	o.changed.Send()
	o.mu.Unlock()
	if before.Healthy != state.Healthy || before.Reachable != state.Reachable || before.Status.Role != state.Status.Role {
		o.log.InfoContext(ctx, "member state changed", "healthy", state.Healthy, "role", state.Status.Role, "problem", state.Problem)
	}
	o.looked(state)
}

// leads blocks until our member's raft leadership is as wanted (leader.Gate). A member that does not answer does not
// lead.
func (o *observer) leads(ctx context.Context, wanted bool) error {
	for {
		state, changed := o.State()
		if (state.Reachable && state.Status.Role == membership.RoleLeader) == wanted {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-changed:
		}
	}
}
