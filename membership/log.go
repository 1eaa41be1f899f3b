package membership

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"
)

// entriesAtOnce are so many that the members write many of them to disk by one fsync, and so few that clients do not notice.
const entriesAtOnce = 64

// LengthenLog makes the raft log longer by n entries that change nothing: etcd answers a list of its alarms through raft. It ends early
// with the first error.
func LengthenLog(ctx context.Context, client *clientv3.Client, n uint64) error {
	group, each := errgroup.WithContext(ctx)
	group.SetLimit(entriesAtOnce)
	for range n {
		if each.Err() != nil {
			break
		}
		group.Go(func() error {
			_, err := client.AlarmList(each)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return fmt.Errorf("make the raft log longer: %w", err)
	}
	return ctx.Err() // that of each has ended with Wait
}
