package crash_test

import (
	"context"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcd-druid/druid/agent/datadir"
	"github.com/etcd-druid/druid/leases"
)

// heals waits until the cluster is as it must be, whatever happened: one raft group under the record's ID, in which
// exactly the desired members vote, no slot taken, nothing left on a volume, and everybody's Lease and identity file in agreement.
// It returns the group's ID.
func (c *cluster) heals() (clusterID uint64) {
	c.t.Helper()
	c.eventually("the cluster heals", func() error {
		record, _, err := c.store.Record(c.t.Context())
		switch {
		case err != nil:
			return err
		case record.Phase != leases.PhaseFormed || record.ClusterID == 0 || record.FormedEpoch != record.Epoch:
			return fmt.Errorf("the record is %s, cluster %x, epoch %d of %d", record.Phase, record.ClusterID, record.FormedEpoch, record.Epoch)
		case record.Replacing != nil:
			return fmt.Errorf("the slot is taken: %+v", *record.Replacing)
		}
		clusterID = record.ClusterID
		for _, name := range c.names {
			if err := errors.Join(c.votes(name, record), c.agrees(name, record)); err != nil {
				return err
			}
		}
		return nil
	})
	return clusterID
}

// votes says whether the member lists exactly the desired members, all of them voters of the record's group.
func (c *cluster) votes(name string, record leases.Record) error {
	view, err := c.view(name)
	if err != nil {
		return err
	}
	if view.ClusterID != record.ClusterID || len(view.Members) != len(c.names) || len(view.Voters()) != len(c.names) {
		return fmt.Errorf("%s, in cluster %x, lists %+v", name, view.ClusterID, view.Members)
	}
	for _, wanted := range c.names {
		if m, ok := view.Find(wanted, ""); !ok || !m.Started() {
			return fmt.Errorf("%s lists no started %s: %+v", name, wanted, view.Members)
		}
	}
	return nil
}

// agrees says whether the member's Lease and its volume report the member that its etcd is.
func (c *cluster) agrees(name string, record leases.Record) error {
	lease, err := c.store.Member(c.t.Context(), name)
	if err != nil {
		return err
	}
	identityFile, err := datadir.ReadIdentityFile(c.pods[name].config.VolumePath)
	if err != nil {
		return err
	}
	view, err := c.view(name)
	if err != nil {
		return err
	}
	member, _ := view.Find(name, "")
	switch {
	case lease.ID != member.ID || lease.ClusterID != record.ClusterID || lease.Lineage != record.Lineage:
		return fmt.Errorf("the Lease of %s says %x in %x of %s, etcd %x", name, lease.ID, lease.ClusterID, lease.Lineage, member.ID)
	case uint64(identityFile.MemberID) != member.ID || uint64(identityFile.ClusterID) != record.ClusterID || !identityFile.Formed:
		return fmt.Errorf("the identity file of %s says %+v, etcd %x", name, identityFile, member.ID)
	}
	if strays := c.pods[name].strays(); len(strays) > 0 {
		return fmt.Errorf("on the volume of %s is %v", name, strays)
	}
	return nil
}

// keeps checks that every member still serves what was acknowledged.
func (c *cluster) keeps(key, value string) {
	c.t.Helper()
	for _, name := range c.names {
		c.eventually("read "+key+" from "+name, func() error {
			return c.etcd(name, func(ctx context.Context, client *clientv3.Client) error {
				got, err := client.Get(ctx, key)
				if err == nil && (len(got.Kvs) != 1 || string(got.Kvs[0].Value) != value) {
					c.t.Errorf("%s has %v under %s, want %s", name, got.Kvs, key, value)
				}
				return err
			})
		})
	}
}
