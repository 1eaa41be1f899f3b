package bootstrap

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

// versions of etcd of which the rig builds the newest patches.
var versions = []string{"3.5.35", "3.6.16", "3.7.3"}

func TestThreeMembersFormOneCluster(t *testing.T) {
	t.Parallel()
	for _, version := range versions {
		t.Run("etcd "+version[:3], func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, version, "c-a", "c-b", "c-c")
			began := time.Now()
			for _, m := range c.members {
				m.start()
			}
			ids := c.voters("c-a", "c-b", "c-c")
			t.Logf("three voters after %s", time.Since(began))
			record, _ := c.record()
			if record.Phase != leases.PhaseFormed || record.FormedEpoch != 1 {
				t.Errorf("the record says %+v", record)
			}
			memberID, clusterID, err := membership.ExpectedIDs("c-a", "http://"+c.members["c-a"].cfg.ListenHost+":2380",
				record.Token(c.ns, "c", "uid-c"))
			if err != nil || ids["c-a"] != memberID || record.ClusterID != clusterID {
				t.Errorf("etcd gave %x, expected %x in cluster %x, err %v; the record says %x", ids["c-a"], memberID, clusterID, err, record.ClusterID)
			}
			if deeds := slices.Compact(c.members["c-a"].deeds()); !slices.Equal(deeds, []string{"first-boot"}) {
				t.Errorf("the seed decided by %v", deeds)
			}
			for _, name := range []string{"c-b", "c-c"} {
				if rules := c.members[name].rules(); slices.Contains(rules, "first-boot") || !slices.Contains(rules, "join") {
					t.Errorf("%s decided by %v", name, rules)
				}
			}
			if limit := record.MaxLearners; (version[:3] == "3.5") != (limit == leases.MaxLearners35) {
				t.Errorf("max-learners is %d", limit)
			}
		})
	}
}

func (c *cluster) put(name, key, value string) {
	c.t.Helper()
	client := c.client(name)
	defer func() { _ = client.Close() }()
	c.eventually("write "+key, func() error {
		ctx, cancel := context.WithTimeout(c.t.Context(), 15*time.Second)
		defer cancel()
		_, err := client.Put(ctx, key, value)
		return err
	})
}

func (c *cluster) get(name, key string) string {
	c.t.Helper()
	client := c.client(name)
	defer func() { _ = client.Close() }()
	var value string
	c.eventually("read "+key, func() error {
		ctx, cancel := context.WithTimeout(c.t.Context(), 15*time.Second)
		defer cancel()
		resp, err := client.Get(ctx, key, clientv3.WithSerializable())
		if err != nil || len(resp.Kvs) == 0 {
			return fmt.Errorf("%v, err %w", resp, err)
		}
		value = string(resp.Kvs[0].Value)
		return nil
	})
	return value
}

// settled waits until nothing is left of a replacement.
func (c *cluster) settled(name string) {
	c.t.Helper()
	c.eventually(name+" gives the slot back", func() error {
		if record, _ := c.record(); record.Replacing != nil {
			return fmt.Errorf("the slot holds %+v", record.Replacing)
		}
		return nil
	})
}
