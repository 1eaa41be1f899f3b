package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
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
	// observerBound is how long a task of short, bounded calls may take before the agent reports that it is stuck.
	observerBound = time.Minute
	// shutdownTimeout bounds the requests in progress when the agent ends.
	shutdownTimeout = 2 * time.Second
)

// serve serves the agent's ports until ctx ends.
func (a *Agent) serve(ctx context.Context) error {
	c := a.options.Config
	listener, err := a.transport.Listen(ctx, c.ListenHost, c.AgentPort)
	if err != nil {
		return err
	}
	settings := a.certificates.Server()
	var secure net.Listener
	if settings != nil {
		if secure, err = a.transport.Listen(ctx, c.ListenHost, c.APIPort); err != nil {
			return errors.Join(err, listener.Close())
		}
	}
	group, serving := errgroup.WithContext(ctx)
	run := func(server *http.Server, listener net.Listener) {
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
	}
	run(a.transport.Server(a.handler()), listener)
	if secure != nil {
		run(a.transport.Secure(secure, settings, a.actions()))
	}
	return group.Wait()
}

// handler serves probes and metrics in plain text. It also serves the actions, which access refuses where the connection is
// not secure.
func (a *Agent) handler() http.Handler {
	mux := a.actions()
	mux.HandleFunc("GET /livez", probe(a.alive))
	mux.HandleFunc("GET /readyz", probe(a.ready))
	mux.HandleFunc("GET /healthz", probe(a.healthy))
	mux.Handle("GET /metrics", promhttp.HandlerFor(a.options.Registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /v1/status", a.serveStatus)
	return mux
}

// probe responds with 200 and ok, or with 503 and the reason.
func probe(check func() error) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if err := check(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte("ok\n")) // a client that went away needs no answer
	}
}

// alive checks only the agent's own tasks. A restart of the agent repairs no fault of etcd or of Kubernetes.
func (a *Agent) alive() error {
	bounds := map[string]time.Duration{loopObserver: observerBound, loopRenewer: observerBound + 2*a.renewal().Interval}
	if loop := a.beats.stuck(bounds); loop != "" {
		return fmt.Errorf("task %s is stuck", loop)
	}
	return nil
}

// healthy returns nil if the member is in the cluster and serves.
func (a *Agent) healthy() error {
	if state, _ := a.observer.State(); !state.Healthy {
		return fmt.Errorf("etcd is not healthy: %s", state.Problem)
	}
	return nil
}

// ready returns nil if the member can serve clients: it is healthy and votes.
func (a *Agent) ready() error {
	if err := a.healthy(); err != nil {
		return err
	}
	if state, _ := a.observer.State(); state.Status.Role == membership.RoleLearner {
		return errors.New("etcd is a learner and does not serve linearizable reads")
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
	// lookInterval between two checks of a healthy etcd. A change of role or health is reported within it.
	lookInterval = time.Second
	// troubledInterval is the interval while etcd is not healthy, so that a start is detected soon.
	troubledInterval = 250 * time.Millisecond
	// lookTimeout bounds one call. etcd responds for itself in milliseconds, and to a linearizable read within an
	// election timeout.
	lookTimeout = 3 * time.Second
)

// State is the own etcd at the last check.
type State struct {
	// Reachable: etcd answered for itself; Status is that answer.
	Reachable bool
	Status    membership.Status
	// Healthy: etcd is in the cluster and serves. It has a leader and, as a voter, responds to a linearizable read. An
	// alarm does not make it unhealthy: with NOSPACE it still serves reads and votes.
	Healthy bool
	// Problem says why it is not healthy.
	Problem string
	// Refused is etcd's error if it serves and refuses its agent, because authentication is on.
	Refused string
}

// observer checks the own etcd.
type observer struct {
	transport transport.Transport
	endpoint  string
	// probe is etcd's own readiness, which needs no user. Empty means that it is not asked.
	probe  string
	mayRun func() bool
	log    *slog.Logger
	// looked is called after every check.
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

// State is the last one, with a channel that is closed at the next check.
func (o *observer) State() (State, <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.state, o.changed.Wait()
}

// Run checks etcd until ctx ends.
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
	if membership.Denied(err) {
		return o.refused(ctx, err)
	}
	if err != nil {
		client.ActiveConnection().ResetConnectBackoff() // the next look need not wait for it
		return State{Problem: "etcd does not respond: " + err.Error()}
	}
	state := State{Reachable: true, Status: status}
	switch {
	case status.Leader == 0:
		state.Problem = "no leader"
	case status.Role == membership.RoleLearner:
		state.Healthy = true // a learner serves no linearizable read
	default:
		err := membership.Linearizable(ctx, client)
		// The health check reads without a user, like etcd's own. A rejection has passed through raft too.
		state.Healthy = err == nil || errors.Is(err, rpctypes.ErrPermissionDenied) || errors.Is(err, rpctypes.ErrUserEmpty)
		if !state.Healthy {
			state.Problem = err.Error()
		}
	}
	return state
}

// refused is the state of an etcd that refuses its agent. It is healthy if its own probe says so.
func (o *observer) refused(ctx context.Context, refusal error) State {
	state := State{Refused: refusal.Error(), Problem: refusal.Error()}
	if o.probe == "" {
		return state
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, o.probe, nil)
	if err != nil {
		return state
	}
	response, err := o.transport.HTTPClient().Do(request)
	if err != nil {
		return state
	}
	_ = response.Body.Close()
	state.Healthy = response.StatusCode == http.StatusOK
	return state
}

// set stores the state, and logs it if it has changed.
func (o *observer) set(ctx context.Context, state State) {
	o.mu.Lock()
	before := o.state
	o.state = state
	o.changed.Send()
	o.mu.Unlock()
	if before.Healthy != state.Healthy || before.Refused != state.Refused || before.Reachable != state.Reachable || before.Status.Role != state.Status.Role {
		o.log.InfoContext(ctx, "member state changed", "healthy", state.Healthy, "role", state.Status.Role, "problem", state.Problem)
	}
	o.looked(state)
}

// leads blocks until the raft leadership of this member is as wanted (leader.Gate). A member that does not respond
// does not lead.
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
