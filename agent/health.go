package agent

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcd-druid/druid/agent/transport"
	"github.com/etcd-druid/druid/membership"
)

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
	changed chan struct{}
}

func newObserver(t transport.Transport, endpoint string, mayRun func() bool, log *slog.Logger) *observer {
	return &observer{
		transport: t, endpoint: endpoint, mayRun: mayRun, log: log,
		looked: func(State) {}, changed: make(chan struct{}),
	}
}

// State is the last one and a channel that is closed at the next look.
func (o *observer) State() (State, <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.state, o.changed
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
		pause(ctx, interval)
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
	close(o.changed)
	o.changed = make(chan struct{})
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
