package bench

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/test/e2e/harness"
)

const (
	// The clients write to each cluster in so many rounds, by turns with the other cluster.
	writeRounds, writeSpan = 5, 4 * time.Second
	manyClients            = 32
	valueSize              = 1 << 10
)

// BenchmarkWrites shows the latency and the throughput of writes to the leader of 1, 3 and 5 members and on each storage, by turns with
// the same etcds that no operator manages. A value has 1 KiB, and there is no other load.
func BenchmarkWrites(b *testing.B) {
	for _, one := range []struct {
		members int
		medium  v1alpha1.StorageMedium
	}{{1, persistent}, {3, persistent}, {5, persistent}, {3, v1alpha1.StorageDisk}, {3, v1alpha1.StorageMemory}} {
		b.Run(fmt.Sprintf("%d members, %s", one.members, cmp.Or(string(one.medium), "PVC")), func(b *testing.B) {
			for b.Loop() {
				measureWrites(b, one.members, one.medium)
			}
		})
	}
}

func measureWrites(b *testing.B, members int, medium v1alpha1.StorageMedium) {
	b.Helper()
	c := rig.Apply(b, harness.Replicas(int32(members)), func(c *v1alpha1.EtcdCluster) {
		if medium != persistent {
			c.Spec.Storage = v1alpha1.StorageSpec{Size: resource.MustParse("512Mi"), Medium: medium}
		}
		if medium == v1alpha1.StorageMemory {
			c.Spec.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}
		}
	})
	view := c.Agree(b, members, within)
	namespace := rig.MakeNamespace(b)
	formBare(b, namespace, members, medium)
	druid, bare := &writes{etcd: c.Etcd(b, view.Leader())}, &writes{etcd: bareLeader(b, namespace)}
	for range writeRounds {
		for _, w := range []*writes{bare, druid} {
			w.alone = append(w.alone, w.write(b, 1)...)
			w.together += len(w.write(b, manyClients))
		}
	}
	where := fmt.Sprintf("%d members, %s: ", members, cmp.Or(string(medium), "PVC"))
	for _, figure := range []struct {
		what, unit string
		of         func(*writes) float64
	}{
		{"one client, median of a write", "ms", func(w *writes) float64 { return w.quantile(0.5) }},
		{"one client, 99 of 100 writes within", "ms", func(w *writes) float64 { return w.quantile(0.99) }},
		{fmt.Sprintf("%d clients, writes", manyClients), "per s", func(w *writes) float64 {
			return float64(w.together) / (writeRounds * writeSpan).Seconds()
		}},
	} {
		report.add(where+figure.what+": bare etcd", "", figure.unit, figure.of(bare))
		report.add(where+figure.what+": druid", "", figure.unit, figure.of(druid))
	}
	harness.DestroyNamespace(b, rig, namespace)
	c.Destroy(b)
}

// writes are what a cluster acknowledged.
type writes struct {
	etcd     *clientv3.Client
	alone    []time.Duration // of one client
	together int             // of many clients
}

func (w *writes) quantile(q float64) float64 {
	slices.Sort(w.alone)
	return float64(w.alone[int(q*float64(len(w.alone)-1))]) / float64(time.Millisecond)
}

// write lets so many clients write for a span, and returns how long each write took. A client writes the next value when etcd acknowledged the
// one before.
func (w *writes) write(b *testing.B, clients int) []time.Duration {
	b.Helper()
	value, all := strings.Repeat("v", valueSize), make([][]time.Duration, clients)
	var group errgroup.Group
	until := time.Now().Add(writeSpan)
	for i := range clients {
		group.Go(func() error {
			for n := 0; time.Now().Before(until); n++ {
				begun := time.Now()
				if _, err := w.etcd.Put(b.Context(), fmt.Sprintf("/bench/%d/%d", i, n%1000), value); err != nil {
					return err
				}
				all[i] = append(all[i], time.Since(begun))
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		b.Fatal(err)
	}
	return slices.Concat(all...)
}

// bareLeader makes a client of the leader of the etcds without an operator.
func bareLeader(b *testing.B, namespace string) *clientv3.Client {
	b.Helper()
	var found *clientv3.Client
	harness.Eventually(b, within, "a leader of the bare etcds", func(ctx context.Context) error {
		var pods corev1.PodList
		if err := rig.Client.List(ctx, &pods, client.InNamespace(namespace), client.MatchingLabels{"app": "bare"}); err != nil {
			return err
		}
		for _, pod := range pods.Items {
			endpoint := net.JoinHostPort(pod.Status.PodIP, "2379")
			etcd, err := clientv3.New(clientv3.Config{
				Endpoints: []string{"http://" + endpoint}, Logger: zap.NewNop(),
				DialOptions: []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
					return rig.Dial(ctx, "tcp", endpoint)
				})},
			})
			if err != nil {
				return err
			}
			status, err := etcd.Status(ctx, endpoint)
			if err == nil && status.Leader == status.Header.MemberId {
				found = etcd
				return nil
			}
			_ = etcd.Close()
		}
		return fmt.Errorf("none of %d Pods is the leader", len(pods.Items))
	})
	b.Cleanup(func() { _ = found.Close() })
	return found
}
