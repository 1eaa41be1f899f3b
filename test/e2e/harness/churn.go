package harness

import (
	"context"
	"fmt"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"
)

const (
	churnPrefix = "/churn/"
	churnKeys   = 32
	churnPace   = 40 * time.Millisecond
)

// Churn writes to the same keys again and again, until the test ends. If deletions is positive, each change of that number deletes a key
// instead. Writes that fail are left out.
func Churn(t testing.TB, etcd *clientv3.Client, deletions int) {
	t.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var group errgroup.Group
	group.Go(func() error {
		for n := 1; pause(ctx, churnPace); n++ {
			attempt, cancel := context.WithTimeout(ctx, writeTimeout)
			if key := fmt.Sprintf("%s%d", churnPrefix, n%churnKeys); deletions > 0 && n%deletions == 0 {
				_, _ = etcd.Delete(attempt, key)
			} else {
				_, _ = etcd.Put(attempt, key, fmt.Sprint(n))
			}
			cancel()
		}
		return nil
	})
	t.Cleanup(func() {
		stop()
		_ = group.Wait()
	})
}
