package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/tests/v3/robustness/client"
	"go.etcd.io/etcd/tests/v3/robustness/model"
	"go.etcd.io/etcd/tests/v3/robustness/report"
	"go.etcd.io/etcd/tests/v3/robustness/traffic"
	"go.uber.org/zap"
	"golang.org/x/time/rate"
)

// act reads, writes, watches and compacts until done, and then writes once more: the validation requires that the last operation succeeds.
func act(ctx context.Context, tf traffic.Traffic, clients *client.ClientSet, endpoints []string, p pace, done <-chan struct{}) error {
	if err := traffic.CheckEmptyDatabaseAtStart(ctx, zap.NewNop(), endpoints, clients); err != nil {
		return fmt.Errorf("the traffic needs an etcd that never had a key: %w", err)
	}
	limiter := rate.NewLimiter(rate.Limit(p.perSecond), p.perSecond)
	keys, storage := traffic.NewKeyStore(10, "key"), traffic.NewKubernetesStorage()
	writes := traffic.KeyValue{MaxNonUniqueRequestConcurrency: 3, MemberClientCount: len(endpoints), ClusterClientCount: 2}
	watches := traffic.Watch{MemberClientCount: len(endpoints), ClusterClientCount: 2, RevisionOffsetRange: traffic.Range{Min: -100, Max: 100}}
	var wg sync.WaitGroup
	wg.Go(func() { p.slowDown(limiter, done) })
	err := traffic.SimulateKeyValueTraffic(ctx, &wg, &writes, endpoints, clients, tf, traffic.RunTrafficLoopParam{
		QPSLimiter: limiter, IDs: clients.IdentityProvider(), LeaseIDStorage: newLeaseIDs(),
		NonUniqueRequestConcurrencyLimiter: traffic.NewConcurrencyLimiter(writes.MaxNonUniqueRequestConcurrency),
		KeyStore:                           keys, Storage: storage, Finish: done,
	})
	if err != nil {
		return err
	}
	err = traffic.SimulateWatchTraffic(ctx, &wg, &watches, endpoints, clients, tf, traffic.RunWatchLoopParam{
		Config: watches, QPSLimiter: limiter, KeyStore: keys, Storage: storage, Finish: done, Logger: zap.NewNop(),
	})
	if err != nil {
		return err
	}
	err = traffic.SimulateCompactionTraffic(ctx, &wg, &traffic.Compaction{Period: compactionPeriod}, endpoints, clients, tf,
		traffic.RunCompactLoopParam{Period: compactionPeriod, Finish: done})
	if err != nil {
		return err
	}
	wg.Wait()
	return writeLast(ctx, clients, endpoints)
}

func writeLast(ctx context.Context, clients *client.ClientSet, endpoints []string) error {
	c, err := clients.NewClient(endpoints)
	if err != nil {
		return err
	}
	for {
		attempt, end := context.WithTimeout(ctx, 5*time.Second)
		_, err = c.Put(attempt, "tombstone", "true")
		end()
		if err == nil || ctx.Err() != nil {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("the last write failed: %w", err)
	}
	return nil
}

// summary is what a record contains.
type summary struct {
	Clients, Succeeded, Failed, Watches, Events int
	Revision                                    int64
	// LongestWriteGap is the longest time without a write that etcd acknowledged.
	LongestWriteGap string
}

// summarize prints what the record contains.
func summarize(reports []report.ClientReport) error {
	s := summary{Clients: len(reports), Revision: report.OperationsMaxRevision(reports)}
	var acknowledged []int64
	for _, r := range reports {
		for _, op := range r.KeyValue {
			if op.Output.(model.MaybeEtcdResponse).Error != "" {
				s.Failed++
				continue
			}
			s.Succeeded++
			if request := op.Input.(model.EtcdRequest); !request.IsRead() {
				acknowledged = append(acknowledged, op.Return)
			}
		}
		s.Watches += len(r.Watch)
		s.Events += r.WatchEventCount()
	}
	s.LongestWriteGap = longestGap(acknowledged).Round(time.Millisecond).String()
	return json.NewEncoder(os.Stdout).Encode(s)
}

// longestGap is the longest time between two of the moments, which are in nanoseconds.
func longestGap(moments []int64) (longest time.Duration) {
	slices.Sort(moments)
	for i := 1; i < len(moments); i++ {
		longest = max(longest, time.Duration(moments[i]-moments[i-1]))
	}
	return longest
}
