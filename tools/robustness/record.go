package main

import (
	"context"
	"fmt"
	"time"

	"go.etcd.io/etcd/tests/v3/robustness/client"
	"go.etcd.io/etcd/tests/v3/robustness/identity"
	"go.etcd.io/etcd/tests/v3/robustness/report"
	"go.etcd.io/etcd/tests/v3/robustness/traffic"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
)

const (
	compactionPeriod = 2 * time.Second
	// endWithin is for the end of a record: the last operation succeeds, and each watch delivers it.
	endWithin = 3 * time.Minute
)

var kinds = map[string]traffic.Traffic{"etcd": traffic.EtcdPutDeleteLease, "kubernetes": traffic.Kubernetes}

// record runs clients of each endpoint and of all endpoints until done, and writes what they did and saw to the directory.
func record(ctx context.Context, endpoints []string, kind string, p pace, out string, done <-chan struct{}) error {
	tf, ok := kinds[kind]
	if !ok {
		return fmt.Errorf("traffic %q: choose etcd or kubernetes", kind)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		<-done
		time.AfterFunc(endWithin, cancel)
	}()
	ids, base := identity.NewIDProvider(), time.Now()
	writers, watchers := client.NewSet(ids, base), client.NewSet(ids, base)
	defer writers.Close()
	defer watchers.Close()
	last := make(chan int64, 1)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		defer close(last)
		if err := act(ctx, tf, writers, endpoints, p, done); err != nil {
			return err
		}
		last <- report.OperationsMaxRevision(writers.Reports())
		return nil
	})
	g.Go(func() error {
		return client.CollectClusterWatchEvents(ctx, client.CollectClusterWatchEventsParam{
			Lg: zap.NewNop(), Endpoints: endpoints, MaxRevisionChan: last, ClientSet: watchers,
		})
	})
	if err := g.Wait(); err != nil {
		return fmt.Errorf("record the traffic: %w", err)
	}
	reports := append(writers.Reports(), watchers.Reports()...)
	written, err := report.NewTestReport(zap.NewNop(), out, nil, &report.TrafficDetail{ExpectUniqueRevision: tf.ExpectUniqueRevision()})
	if err != nil {
		return err
	}
	written.SetClientReports(reports)
	if err := written.SaveEtcdData(); err != nil {
		return fmt.Errorf("write the record to %s: %w", out, err)
	}
	return summarize(reports)
}
