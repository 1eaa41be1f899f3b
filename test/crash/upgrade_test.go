package crash_test

import (
	"context"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

// What was announced to etcd stands there: each point has a cluster of its own.
var upgrades = map[string]scenario{
	"a downgrade": {members: 1, newborn: true, eve: func(c *cluster) *pod {
		p := seed(c)
		c.form()
		p.killAgent()
		c.orderUpgrade(leases.UpgradeOrder{Nonce: "back", Version: "3.5.99", Downgrade: "3.5"})
		return p
	}, aftermath: func(c *cluster, _ *pod) {
		c.compared("back")
		c.announced("3.5.0")
	}},
	"a downgrade taken back": {members: 1, newborn: true, eve: func(c *cluster) *pod {
		p := seed(c)
		c.form()
		p.killAgent()
		c.eventually("announce a downgrade", func() error {
			return c.etcd(p.name, func(ctx context.Context, client *clientv3.Client) error {
				return membership.EnableDowngrade(ctx, client, "3.5")
			})
		})
		c.orderUpgrade(leases.UpgradeOrder{Nonce: "on", Version: c.programs.version})
		return p
	}, aftermath: func(c *cluster, _ *pod) {
		c.compared("on")
		c.announced("")
	}},
}

// orderUpgrade writes the order on the record as druid does.
func (c *cluster) orderUpgrade(order leases.UpgradeOrder) {
	c.t.Helper()
	value, err := order.Encode()
	c.must(err)
	c.annotate(leases.RecordName(clusterName), leases.AnnotationUpgradeOrder, value)
}

// compared waits until the order is answered.
func (c *cluster) compared(nonce string) {
	c.t.Helper()
	c.eventually("order "+nonce+" is answered", func() error {
		record, _, err := c.store.Record(c.t.Context())
		if a := record.Upgrade.Answer; err == nil && (a.Nonce != nonce || a.Verdict != leases.UpgradeAgree) {
			err = fmt.Errorf("the answer is %+v", a)
		}
		return err
	})
}

// announced waits until etcd knows of this downgrade, empty for none.
func (c *cluster) announced(want string) {
	c.t.Helper()
	c.eventually("the downgrade that etcd knows of", func() error {
		return c.etcd(c.names[0], func(ctx context.Context, client *clientv3.Client) error {
			status, err := membership.ReadStatus(ctx, client, c.endpoint(c.names[0]))
			if err == nil && status.Downgrade != want {
				err = errors.New("it is to " + status.Downgrade)
			}
			return err
		})
	})
}
