package leases

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"github.com/etcd-druid/druid/internal/crash"
)

// Times of the leader's Lease (docs/architecture.md). A leader that cannot renew gives up 20 s before anybody else may
// take the Lease, and renews as often as a member Lease is renewed.
const (
	leaderDuration      = 60 * time.Second
	leaderRenewDeadline = 40 * time.Second
	leaderRetryPeriod   = 15 * time.Second
)

// Election campaigns for the cluster's leader Lease with client-go's leader election. The Lease exists already: agents
// may get and update it, not create it.
type Election struct {
	client   coordinationclient.LeasesGetter
	lease    metav1.ObjectMeta
	identity string
	log      *slog.Logger
	timeout  time.Duration

	duration, renewDeadline, retryPeriod time.Duration
}

// NewElection returns the election of a cluster for the Pod called identity.
func NewElection(client coordinationclient.LeasesGetter, namespace, cluster, identity string, log *slog.Logger) *Election {
	return &Election{
		client:   client,
		lease:    metav1.ObjectMeta{Namespace: namespace, Name: LeaderName(cluster)},
		identity: identity, log: log, timeout: callTimeout,
		duration: leaderDuration, renewDeadline: leaderRenewDeadline, retryPeriod: leaderRetryPeriod,
	}
}

// ErrNotLeader is the cause with which a leader's context ends.
var ErrNotLeader = errors.New("not the leader any more")

// Run campaigns until ctx ends. Whenever the Lease is ours it calls lead, whose ctx ends with cause ErrNotLeader when the
// Lease is lost, or as ctx ends. The Lease is released only after lead has returned, so that two leaders never act at the same time.
func (e *Election) Run(ctx context.Context, lead func(ctx context.Context)) error {
	for ctx.Err() == nil {
		if err := e.term(ctx, lead); err != nil {
			return fmt.Errorf("election of %s: %w", e.lease.Name, err)
		}
	}
	return nil
}

// term is one campaign and what follows: client-go's elector ends when the Lease is lost.
func (e *Election) term(ctx context.Context, lead func(ctx context.Context)) error {
	// The elector lives on its own context, because the end of that releases the Lease.
	lifetime, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	led := make(chan struct{})
	leading := make(chan struct{})
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock:            e.lock(),
		LeaseDuration:   e.duration,
		RenewDeadline:   e.renewDeadline,
		RetryPeriod:     e.retryPeriod,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(lease context.Context) {
				close(leading)
				defer close(led)
				held, lose := context.WithCancelCause(ctx)
				defer lose(nil)
				defer context.AfterFunc(lease, func() { lose(ErrNotLeader) })()
				if held.Err() != nil {
					return
				}
				e.log.InfoContext(ctx, "leader lease acquired")
				lead(held)
			},
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() {
		select {
		case <-leading:
			<-led
		default:
		}
		end()
	})()
	// client-go reports the same state at every try; the lock below logs once per change.
	elector.Run(klog.NewContext(lifetime, logr.Discard()))
	select {
	case <-leading:
		<-led
		e.log.InfoContext(ctx, "leader lease given up")
	default:
	}
	return nil
}

func (e *Election) lock() *leaderLock {
	return &leaderLock{
		LeaseLock: &resourcelock.LeaseLock{
			LeaseMeta: e.lease, Client: e.client,
			LockConfig: resourcelock.ResourceLockConfig{Identity: e.identity},
		},
		log: e.log, timeout: e.timeout,
	}
}

// leaderLock is client-go's lock with a time-out for each call, without the right to create, and with words for the log.
type leaderLock struct {
	*resourcelock.LeaseLock
	log     *slog.Logger
	timeout time.Duration
	last    string
}

// errNoCreate is what a campaign for a Lease ends with that does not exist.
var errNoCreate = errors.New("druid creates it")

func (l *leaderLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	record, raw, err := l.LeaseLock.Get(ctx)
	return record, raw, l.note(ctx, "get", err)
}

func (l *leaderLock) Create(context.Context, resourcelock.LeaderElectionRecord) error {
	return fmt.Errorf("create Lease %s: %w", l.LeaseMeta.Name, errNoCreate)
}

func (l *leaderLock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	defer crash.Around("renew-leader-lease")()
	return l.note(ctx, "update", l.LeaseLock.Update(ctx, record))
}

// note returns err as it is, because client-go looks into it, and logs it once per change.
func (l *leaderLock) note(ctx context.Context, operation string, err error) error {
	kind := ""
	if err != nil {
		kind = operation + " " + reasonOf(classify(err))
	}
	if kind != l.last && err != nil {
		l.log.WarnContext(ctx, "leader lease not reached", "reason", kind, "err", err)
	}
	l.last = kind
	return err
}
