package crash_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/test/machine"
)

const (
	// smallDisk has room for two files of etcd's log, which have 64 MiB each, and for a database.
	smallDisk = 224 << 20
	// largerDisk is that disk after it grew, with the ballast on it.
	largerDisk = 448 << 20
	// staysFor is three durations of a member Lease, see quick: what druid would do about it, it would have begun.
	staysFor = 18 * time.Second
)

// The disk of a member is full, so that its etcd ends at a write and at each start. The member keeps its ID and its data, and is not
// replaced. It serves again when there is space: first because files are deleted, and then because the volume grew. The others serve all
// that time, and no acknowledged write is lost.
func TestAMemberWithAFullDiskServesAgain(t *testing.T) {
	c := newCluster(t, 3)
	p := c.pods[c.names[1]]
	p.onSmallDisk()
	c.form()
	c.lead(c.pods[c.names[0]])
	before, err := c.memberID(c.names[0], p.name)
	c.must(err)
	w := c.startWriter([]string{c.endpoint(c.names[0])})
	for i, heal := range []func(){
		func() { c.must(machine.EmptyDisk(p.config.VolumePath)) },
		func() { c.must(machine.GrowDisk(p.config.VolumePath, largerDisk)) },
	} {
		former := c.processes()[p.name]
		machine.FillDisk(c.t, p.config.VolumePath)
		c.endsWithoutSpace(p, former, fmt.Sprintf("large/%d", i))
		c.staysAway(p, before)
		heal()
		c.eventually(p.name+" serves", func() error {
			return c.etcd(p.name, func(ctx context.Context, client *clientv3.Client) error {
				_, err := client.Get(ctx, "after")
				return err
			})
		})
		c.must(machine.EmptyDisk(p.config.VolumePath)) // a volume that heals has only what agents and etcd put there
		c.heals()
		if now, err := c.memberID(c.names[0], p.name); err != nil || now != before {
			t.Errorf("%s has ID %x (%v), want %x as before its disk was full", p.name, now, err, before)
		}
		c.put("after", fmt.Sprint(i))
		c.keeps("after", fmt.Sprint(i))
	}
	w.endAt(c, c.endpoint(p.name))
}

// onSmallDisk mounts a file system of limited size as the volume, which is empty.
func (p *pod) onSmallDisk() {
	p.c.t.Helper()
	p.launch.end(syscall.SIGTERM)
	machine.SmallDisk(p.c.t, p.config.VolumePath, smallDisk)
	p.c.t.Cleanup(p.powerOff)
	p.startLaunch()
}

// endsWithoutSpace writes until the database of the member must grow, and its etcd ends for that reason.
func (c *cluster) endsWithoutSpace(p *pod, former int, prefix string) {
	c.t.Helper()
	n := 0
	c.eventually("the etcd of "+p.name+" ends", func() error {
		n++
		err := c.etcd(c.names[0], func(ctx context.Context, client *clientv3.Client) error {
			_, err := client.Put(ctx, fmt.Sprintf("%s/%d", prefix, n), strings.Repeat("x", 256<<10))
			return err
		})
		if err != nil {
			return err
		}
		if _, err := os.Stat(fmt.Sprintf("/proc/%d", former)); err == nil {
			return fmt.Errorf("process %d runs after %d writes", former, n)
		}
		return nil
	})
	p.mu.Lock()
	defer p.mu.Unlock()
	if !strings.Contains(p.log.String(), "no space left on device") {
		c.t.Errorf("the log of %s does not say that no space is left", p.name)
	}
}

// staysAway watches that a member whose etcd cannot start stays who it is: in etcd's list, in the record and on its volume.
func (c *cluster) staysAway(p *pod, id uint64) {
	c.t.Helper()
	druid, begun := leases.NewWatcher(), time.Now()
	c.eventually("its Lease ends", func() error {
		lease, err := c.lease(p.name)
		if err != nil {
			return err
		}
		is := druid.Observe(lease, time.Now())
		if now, err := c.memberID(c.names[0], p.name); err != nil || now != id {
			c.t.Fatalf("etcd lists %s with ID %x (%v), want %x", p.name, now, err, id)
		}
		record, _, err := c.store.Record(c.t.Context())
		if err != nil || record.Replacing != nil {
			c.t.Fatalf("the slot is taken: %+v, %v", record.Replacing, err)
		}
		if strays := p.strays(); len(strays) != 1 || strays[0] != "ballast" {
			c.t.Fatalf("on the volume of %s is %v, want nothing in quarantine", p.name, strays)
		}
		if past := time.Since(begun); is != leases.Stale || past < staysFor {
			return fmt.Errorf("the Lease is %s after %s", is, past)
		}
		return nil
	})
	status, err := p.status()
	c.t.Logf("after %s, the agent reports %+v (%v)", time.Since(begun).Round(time.Second), status, err)
}
