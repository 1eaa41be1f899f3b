package duties

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

const mib = 1 << 20

// policy of a test: windows are always open, and freeing one MiB is worth a defragmentation.
func policy() DefragPolicy {
	return DefragPolicy{
		Enabled: rules.Yes, Window: rules.Yes, Scheduled: rules.No,
		Thresholds: membership.Thresholds{FreePercent: 45, FreeBytes: mib}, Interval: 200 * time.Millisecond,
		Nospace: NospacePolicy{Enabled: rules.No, Compact: rules.No},
	}
}

// defragCluster is a drainCluster whose agents defragment by a policy that can change, and report each result.
type defragCluster struct {
	*drainCluster
	mu       sync.Mutex
	policy   DefragPolicy
	reported []Defragmented
}

func newDefragCluster(t *testing.T, members ...string) *defragCluster {
	t.Helper()
	return newDefragClusterOn(newDrainClusterOf(t, members), members)
}

func newDefragClusterOn(c *drainCluster, members []string) *defragCluster {
	c.t.Helper()
	d := &defragCluster{drainCluster: c, policy: policy()}
	d.defrag = func(time.Time) DefragPolicy {
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.policy
	}
	d.defragmented = func(done Defragmented) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.reported = append(d.reported, done)
	}
	for _, name := range members {
		d.room(name, 1<<40)
	}
	return d
}

func (d *defragCluster) setPolicy(change func(*DefragPolicy)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.policy = policy()
	change(&d.policy)
}

// done returns the defragmentations so far.
func (d *defragCluster) done() []Defragmented {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.reported)
}

// room writes free space into a member's Lease, as its agent does.
func (d *defragCluster) room(name string, free int64) {
	d.t.Helper()
	d.eventually("the Lease reports the volume", func() error {
		_, err := d.store.PatchMember(d.t.Context(), name, leases.MemberPatch{Member: leases.Member{
			ID: d.memberID(name), Role: leases.RoleMember, VolumeFree: free,
		}})
		return err
	})
}

func (d *defragCluster) space(name string) (s membership.Space, err error) {
	status, err := membership.ReadStatus(d.t.Context(), d.client(name), d.endpoint(name))
	return membership.Space{Size: status.DBSize, InUse: status.DBSizeInUse}, err
}

// fragment writes and compacts until every running member's database is mostly free.
func (d *defragCluster) fragment() {
	d.t.Helper()
	client := d.client(d.mustLead())
	value := strings.Repeat("x", mib)
	var revision int64
	for range 8 {
		d.eventually("a large value is written", func() error {
			response, err := client.Put(d.t.Context(), "large", value)
			if err == nil {
				revision = response.Header.Revision
			}
			return err
		})
	}
	_, err := client.Delete(d.t.Context(), "large")
	if err == nil {
		_, err = client.Compact(d.t.Context(), revision+1, clientv3.WithCompactPhysical())
	}
	if err != nil {
		d.t.Fatal(err)
	}
	for name := range d.members {
		d.eventually(name+" is fragmented", func() error {
			// etcd counts the freed space at the next commit.
			if _, err := client.Put(d.t.Context(), "tick", ""); err != nil {
				return err
			}
			s, err := d.space(name)
			if err == nil && !policy().Thresholds.Fragmented(s) {
				err = fmt.Errorf("it holds %+v", s)
			}
			return err
		})
	}
}

// alarm raises NOSPACE for the member; disarm clears it.
func (d *defragCluster) alarm(name string) {
	d.t.Helper()
	_, err := d.members[name].Server.Alarm(d.t.Context(), &etcdserverpb.AlarmRequest{
		Action: etcdserverpb.AlarmRequest_ACTIVATE, MemberID: d.memberID(name), Alarm: etcdserverpb.AlarmType_NOSPACE,
	})
	if err != nil {
		d.t.Fatal(err)
	}
}

func (d *defragCluster) disarm() {
	d.t.Helper()
	d.eventually("the alarm is taken back", func() error {
		_, err := d.client(d.mustLead()).AlarmDisarm(d.t.Context(), &clientv3.AlarmMember{})
		return err
	})
}

// decidedDefrag waits until a row has decided more often than before.
func (d *defragCluster) decidedDefrag(rule string, before float64) {
	d.t.Helper()
	d.eventually("rule "+rule+" decides", func() error {
		if d.decisionsOf(rule) <= before {
			return errors.New("not yet")
		}
		return nil
	})
}

func (d *defragCluster) decisionsOf(rule string) float64 {
	return testutil.ToFloat64(d.seen.WithLabelValues(defragTable, rule))
}

// compacts waits until no database is fragmented and until more defragmentations than from were reported. It returns
// their members.
func (d *defragCluster) compacts(from, more int) (order []string) {
	d.t.Helper()
	for name := range d.members {
		d.eventually(name+" is defragmented", func() error {
			s, err := d.space(name)
			if err == nil && policy().Thresholds.Fragmented(s) {
				err = fmt.Errorf("it holds %+v; done: %+v", s, d.done())
			}
			return err
		})
	}
	d.eventually("the last one is reported", func() error {
		if done := d.done(); len(done) < from+more {
			return fmt.Errorf("reported %+v", done)
		}
		return nil
	})
	for _, done := range d.done()[from:] {
		if done.Err == nil && done.After.Size >= done.Before.Size/2 || done.Took <= 0 {
			d.t.Errorf("reported %+v, want a smaller file and the time that it took", done)
		}
		order = append(order, done.Member)
	}
	return order
}

// noted waits until the Leases report the members' defragmentations.
func (d *defragCluster) noted(members ...string) {
	d.t.Helper()
	for _, name := range members {
		d.eventually("the Lease of "+name+" reports", func() error {
			lease, err := d.store.Member(d.t.Context(), name)
			if n := lease.Defragmentation; err == nil && (n.Result != DefragDone || n.At.IsZero() || n.Took <= 0 || n.After >= n.Before) {
				err = fmt.Errorf("it says %+v", n)
			}
			return err
		})
	}
}

// writer writes until the returned func is called, which returns how many writes were acknowledged.
func (d *defragCluster) writer() (end func() int) {
	d.t.Helper()
	var endpoints []string
	for name := range d.members {
		endpoints = append(endpoints, d.endpoint(name))
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints, Logger: zap.NewNop()})
	if err != nil {
		d.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(d.t.Context())
	result := make(chan int, 1)
	go func() {
		n := 0
		for began := time.Now(); ctx.Err() == nil; {
			if _, err := client.Put(ctx, fmt.Sprintf("written/%06d", n), "yes"); err == nil {
				n, began = n+1, time.Now()
			} else if time.Since(began) > time.Minute {
				d.t.Errorf("no write was acknowledged for a minute: %v", err)
				break
			}
		}
		result <- n
	}()
	return func() int {
		cancel()
		n := <-result
		if err := client.Close(); err != nil {
			d.t.Errorf("close the writer: %v", err)
		}
		return n
	}
}
