package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/test/bench/fleet"
	"github.com/etcd-druid/druid/test/e2e/harness"
)

const (
	// fleetWithin is for a machine that is busy with much else.
	fleetWithin = 10 * time.Minute
	// fleetRest follows the last condition that turned True: by then the last label and the last Event are written.
	fleetRest = time.Minute
	// fleetSpan is how long a fleet at rest is watched.
	fleetSpan = 3 * time.Minute
	// appliers create EtcdClusters at once.
	appliers = 8
)

// BenchmarkFleet shows what many clusters cost druid and the API server. Nodes, volumes and members are played (package
// fleet); API server, scheduler, controllers and druid are real.
func BenchmarkFleet(b *testing.B) {
	for b.Loop() {
		measureFleet(b, 50, 1)
		measureFleet(b, 100, 3)
	}
}

func measureFleet(b *testing.B, clusters, replicas int) {
	b.Helper()
	what := fmt.Sprintf("%d clusters of %d", clusters, replicas)
	namespace := rig.MakeNamespace(b)
	played, end := play(b, namespace)
	leader := druidUsage(b)

	begun := time.Now()
	applyFleet(b, namespace, clusters, replicas)
	harness.Eventually(b, fleetWithin, "all Pods of "+what, func(context.Context) error {
		if got := played.Pods(); got < clusters*replicas {
			return fmt.Errorf("%d Pods", got)
		}
		return nil
	})
	report.seconds(what+": apply → all Pods created", "", time.Since(begun))
	harness.Eventually(b, fleetWithin, what+" ready", func(ctx context.Context) error { return fleetReady(ctx, namespace) })
	report.seconds(what+": apply → all Ready", "", time.Since(begun))
	harness.Consistently(b, fleetRest, "rest", func(context.Context) error { return nil })
	formed := druidUsage(b)
	requests := rig.Since(b, begun, harness.DruidNamespace, "").In(namespace)
	each := 1 / float64(clusters)
	report.add(what+": druid's API requests until Ready, each", want(replicas, "≤ 15"), "", each*float64(len(requests)))
	report.add(what+": · of them writes", "", "", each*float64(len(requests.Writes())))
	report.add(what+": druid's CPU until Ready, each", "", "ms", each*1000*(formed.CPU-leader.CPU).Seconds())
	b.Logf("%s: druid's requests, each: %s", what, kinds(requests, each))

	begun = time.Now()
	harness.Consistently(b, fleetSpan, "rest", func(context.Context) error { return nil })
	rested := druidUsage(b)
	requests = rig.Since(b, begun, harness.DruidNamespace, "")
	minutes := time.Since(begun).Minutes()
	report.add(what+": druid's RSS", "≤ 50 MiB", "MiB", float64(rested.RSS)/(1<<20))
	report.add(what+": druid's CPU at rest", "", "% of a core", 100*(rested.CPU-formed.CPU).Minutes()/minutes)
	report.add(what+": druid's API requests at rest", "", "per min", float64(len(requests))/minutes)
	report.add(what+": druid's API writes for the clusters at rest", "0", "", float64(len(requests.In(namespace).Writes())))
	if writes := requests.In(namespace); len(writes) > 0 {
		b.Logf("%s at rest:\n%s", what, writes)
	}
	harness.DestroyNamespace(b, rig, namespace)
	end()
}

// want is a bound that holds for clusters of one member.
func want(replicas int, bound string) string {
	if replicas == 1 {
		return bound
	}
	return ""
}

// play plays nodes, volumes and members in a namespace until end is called, or the benchmark ends.
func play(b *testing.B, namespace string) (played *fleet.Fleet, end func()) {
	b.Helper()
	played = fleet.New(rig.Kube, namespace)
	if err := played.Prepare(b.Context()); err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(b.Context()))
	var group errgroup.Group
	group.Go(func() error { return played.Run(ctx) })
	end = sync.OnceFunc(func() {
		stop()
		err := group.Wait()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(b.Context()), within)
		defer cancel()
		if err := errors.Join(err, played.Remove(ctx)); err != nil {
			b.Errorf("end the fleet: %v", err)
		}
	})
	b.Cleanup(end)
	return played, end
}

func applyFleet(b *testing.B, namespace string, clusters, replicas int) {
	b.Helper()
	var group errgroup.Group
	group.SetLimit(appliers)
	for i := range clusters {
		group.Go(func() error {
			c := harness.Definition(namespace, harness.Named(fmt.Sprintf("c%03d", i)), harness.Replicas(int32(replicas)), fleet.Place)
			return rig.Client.Create(b.Context(), c)
		})
	}
	if err := group.Wait(); err != nil {
		b.Fatalf("apply the fleet: %v", err)
	}
}

func fleetReady(ctx context.Context, namespace string) error {
	var all v1alpha1.EtcdClusterList
	if err := rig.Client.List(ctx, &all, client.InNamespace(namespace)); err != nil {
		return err
	}
	var not []string
	for _, c := range all.Items {
		if !meta.IsStatusConditionTrue(c.Status.Conditions, v1alpha1.ConditionAllMembersReady) || c.Status.ReadyReplicas != c.Spec.Replicas {
			not = append(not, c.Name)
		}
	}
	if len(not) > 0 {
		return fmt.Errorf("%d are not, among them %s", len(not), not[0])
	}
	return nil
}

// druidUsage is what the druid that leads has used.
func druidUsage(b *testing.B) harness.Usage {
	b.Helper()
	pod := rig.DruidLeader(b)
	pids, err := harness.Processes(string(pod.UID), harness.Druid)
	if err != nil || len(pids) != 1 {
		b.Fatalf("druid runs as %v (%v)", pids, err)
	}
	usage, err := harness.UsageOf(pids[0])
	if err != nil {
		b.Fatal(err)
	}
	return usage
}

// kinds counts requests by verb and resource, the most frequent first.
func kinds(requests harness.Requests, each float64) string {
	counts := map[string]int{}
	for _, r := range requests {
		counts[strings.TrimSuffix(r.Verb+" "+r.ObjectRef.Resource+"/"+r.ObjectRef.Subresource, "/")]++
	}
	var b strings.Builder
	for _, kind := range slices.SortedFunc(maps.Keys(counts), func(x, y string) int { return counts[y] - counts[x] }) {
		fmt.Fprintf(&b, "%.2f %s, ", each*float64(counts[kind]), kind)
	}
	return strings.TrimSuffix(b.String(), ", ")
}
