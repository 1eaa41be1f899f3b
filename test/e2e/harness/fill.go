package harness

import (
	"context"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/etcd-druid/druid/api/v1alpha1"
)

const (
	fillPrefix = "/fill/"
	fillLanes  = 16
	// logEntries is what etcd keeps of its log for members that lag (server/etcdserver, DefaultSnapshotCatchUpEntries), and
	// some: anyone who joins after so many entries gets a snapshot instead.
	logEntries = 5000 + 500
	// smallPerLarge entries follow each large one, so that the part of the log that every etcd has in memory stays small.
	smallPerLarge = 8
)

// Room makes room for so many MiB of data, twice.
func Room(mib int) Option {
	return func(c *v1alpha1.EtcdCluster) {
		quota := resource.NewQuantity(int64(2*mib+256)<<20, resource.BinarySI)
		c.Spec.Etcd.QuotaBackendBytes = quota
		c.Spec.Storage.Size = *resource.NewQuantity(2*quota.Value(), resource.BinarySI)
	}
}

// Fill writes so many values of a MiB, and so many entries more that who joins afterwards needs a snapshot. It returns the
// number of keys.
func Fill(t testing.TB, etcd *clientv3.Client, mib int) int {
	t.Helper()
	small := max(smallPerLarge, (logEntries+mib-1)/mib)
	value := make([]byte, 1<<20)
	for i := range value {
		value[i] = byte(rand.Uint32())
	}
	lanes, ctx := errgroup.WithContext(t.Context())
	lanes.SetLimit(fillLanes)
	put := func(key, value string) {
		lanes.Go(func() error {
			_, err := poll(ctx, maxWait, func(ctx context.Context) error {
				_, err := etcd.Put(ctx, fillPrefix+key, value)
				return err
			})
			return err
		})
	}
	begun := time.Now()
	for i := range mib {
		put(fmt.Sprintf("large/%d", i), string(value))
		for j := range small {
			put(fmt.Sprintf("small/%d/%d", i, j), "")
		}
	}
	if err := lanes.Wait(); err != nil {
		t.Fatalf("fill with %d MiB: %v", mib, err)
	}
	keys := mib * (1 + small)
	t.Logf("filled with %d MiB in %d keys in %s", mib, keys, time.Since(begun).Round(time.Second))
	return keys
}

// Filled is how many keys of Fill a member has itself.
func (c *Cluster) Filled(t testing.TB, member string) int {
	t.Helper()
	etcd := c.Etcd(t, member)
	defer etcd.Close()
	var count int64
	Eventually(t, maxWait, "what "+member+" has", func(ctx context.Context) error {
		answer, err := etcd.Get(ctx, fillPrefix, clientv3.WithPrefix(), clientv3.WithCountOnly(), clientv3.WithSerializable())
		if err == nil {
			count = answer.Count
		}
		return err
	})
	return int(count)
}

var snapshotMetric = regexp.MustCompile(`(?m)^etcd_network_snapshot_receive_success\{.*\} (\d+)$`)

// SnapshotsReceived is how many snapshots a member's etcd received from others since it started, as its metrics report.
func (c *Cluster) SnapshotsReceived(t testing.TB, member string) int {
	t.Helper()
	var received int
	Eventually(t, maxWait, "the metrics of "+member, func(ctx context.Context) error {
		received = 0
		metrics, err := c.metrics(ctx, member)
		for _, m := range snapshotMetric.FindAllStringSubmatch(metrics, -1) {
			n, _ := strconv.Atoi(m[1]) // the expression matches digits only
			received += n
		}
		return err
	})
	return received
}
