package harness

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/leases"
)

const (
	// evictPace is how often every member's eviction is asked for.
	evictPace = 250 * time.Millisecond
	// evictTimeout is for how long more may be allowed than the quorum spares: a vote that came or went has to reach druid by a
	// Lease, the budget by a patch, and the eviction API by the disruption controller, on a machine that is busy with a rig.
	evictTimeout = 15 * time.Second
)

// Evictor asks the eviction API again and again whether each member's Pod may be evicted, as drains of all nodes would, and holds
// that it never may when the quorum cannot spare that member. It asks in dry run, which consults the PodDisruptionBudget and takes
// no Pod away.
type Evictor struct {
	cluster *Cluster
	sampler *Sampler
	group   *errgroup.Group
	stop    context.CancelFunc

	mu      sync.Mutex
	since   map[string]time.Time // by member: since when too much is allowed
	longest time.Duration
	asked   int
	granted int
	broken  []error
}

// Evict starts an evictor, which judges by what the sampler sees. It ends with Stop, or with the test.
func (c *Cluster) Evict(t testing.TB, s *Sampler) *Evictor {
	t.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	e := &Evictor{cluster: c, sampler: s, group: &errgroup.Group{}, stop: stop, since: map[string]time.Time{}}
	e.group.Go(func() error {
		for pause(ctx, evictPace) {
			e.round(ctx)
		}
		return nil
	})
	t.Cleanup(e.end)
	return e
}

func (e *Evictor) end() {
	e.stop()
	_ = e.group.Wait() // nothing in it returns an error
}

// Stop ends the evictor, and fails the test if more was allowed than the quorum spared.
func (e *Evictor) Stop(t testing.TB) {
	t.Helper()
	e.end()
	for _, err := range e.broken[:min(len(e.broken), 5)] {
		t.Errorf("evictions: %v", err)
	}
	if e.asked == 0 || e.granted == 0 {
		t.Errorf("of %d evictions that were asked for %d were allowed: nothing is shown", e.asked, e.granted)
	}
	t.Logf("%d evictions asked for, %d allowed; more than the quorum spared for %s at the most",
		e.asked, e.granted, e.longest.Round(time.Millisecond))
}

// round asks for each Pod of a member, and judges what is allowed by the voters that are well before and after.
func (e *Evictor) round(ctx context.Context) {
	var pods corev1.PodList
	err := e.cluster.Rig.Client.List(ctx, &pods, client.InNamespace(e.cluster.Namespace),
		client.MatchingLabels{leases.LabelCluster: e.cluster.Name}, client.HasLabels{leases.LabelMember})
	if err != nil {
		return // the API server is away, and with it all evictions
	}
	before := e.sampler.indispensable()
	allowed := map[string]bool{}
	for _, pod := range pods.Items {
		if pod.DeletionTimestamp != nil {
			continue
		}
		err := e.cluster.tryEvict(ctx, &pod)
		if err != nil && !apierrors.IsTooManyRequests(err) {
			continue // it is gone, or the API server
		}
		e.count(err == nil)
		allowed[pod.Name] = err == nil
	}
	after := e.sampler.indispensable()
	e.judge(func(member string) bool { return allowed[member] && before[member] && after[member] }, slices.Collect(maps.Keys(before)))
}

func (e *Evictor) count(granted bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.asked++
	if granted {
		e.granted++
	}
}

func (e *Evictor) judge(tooMuch func(string) bool, members []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for member := range e.since {
		if !tooMuch(member) {
			delete(e.since, member)
		}
	}
	for _, member := range members {
		if !tooMuch(member) {
			continue
		}
		now := time.Now()
		if e.since[member].IsZero() {
			e.since[member] = now
		}
		lasts := now.Sub(e.since[member])
		e.longest = max(e.longest, lasts)
		if lasts > evictTimeout {
			e.broken = append(e.broken, fmt.Errorf("at %s: for %s %s may be evicted, and the quorum cannot spare it",
				now.Format("15:04:05.000"), lasts.Round(time.Millisecond), member))
		}
	}
}

// tryEvict asks for an eviction that removes no Pod.
func (c *Cluster) tryEvict(ctx context.Context, pod *corev1.Pod) error {
	return c.Rig.Client.SubResource("eviction").Create(ctx, pod, &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
		DeleteOptions: &metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}},
	}, client.DryRunAll)
}

// AwaitEvictable waits until the eviction of so many members, and no others, is allowed, each by itself.
func (c *Cluster) AwaitEvictable(t testing.TB, want int) {
	t.Helper()
	Eventually(t, maxWait, fmt.Sprintf("%d members of %s that may be evicted", want, c), func(ctx context.Context) error {
		var may []string
		names, err := c.Record(ctx)
		if err != nil {
			return err
		}
		for _, name := range names.Members {
			pod, err := c.Pod(ctx, name)
			if err != nil {
				return err
			}
			switch err := c.tryEvict(ctx, pod); {
			case err == nil:
				may = append(may, name)
			case !apierrors.IsTooManyRequests(err):
				return err
			}
		}
		if len(may) != want {
			return fmt.Errorf("it is %d: %s", len(may), strings.Join(may, " "))
		}
		return nil
	})
}
