package crash_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcd-druid/druid/membership"
)

// A member that was just defragmented is left alone for an hour: each point has a cluster of its own.
var defrags = map[string]scenario{
	"fragmented databases": {members: 3, newborn: true, leads: true, eve: func(c *cluster) *pod {
		c.form()
		p := c.leaderAlone()
		c.fragment()
		return p
	}, aftermath: func(c *cluster, p *pod) {
		c.startOtherAgents()
		i := slices.IndexFunc(c.names, func(name string) bool { return name != p.name })
		c.defragmented(c.names[i])
		c.keeps("large", "")
	}},
	"a fragmented leader": {members: 3, newborn: true, leads: true, eve: func(c *cluster) *pod {
		c.form()
		p := c.leaderAlone()
		c.fragment()
		for _, name := range c.names {
			if name == p.name {
				continue
			}
			c.eventually("defragment "+name, func() error {
				return c.etcd(name, func(ctx context.Context, client *clientv3.Client) error {
					return membership.Defragment(ctx, client, c.endpoint(name))
				})
			})
		}
		return p
	}, aftermath: func(c *cluster, p *pod) {
		c.startOtherAgents()
		c.defragmented(p.name)
	}},
	"a full database": {members: 1, newborn: true, eve: func(c *cluster) *pod {
		p := seed(c)
		p.config.QuotaBackendBytes = 8 << 20
		p.certify()
		c.form()
		p.killAgent()
		c.fill()
		return p
	}, aftermath: func(c *cluster, _ *pod) {
		c.put("large", "") // which is refused until the alarm is disarmed
	}},
}

// fill writes until etcd refuses it, over the same keys, so that all but the last is history.
func (c *cluster) fill() {
	c.t.Helper()
	// A value fits into a page, so what a commit leaves behind the next one uses, and nearly all of the file is in use.
	var puts []clientv3.Op
	for i := range 128 {
		puts = append(puts, clientv3.OpPut(fmt.Sprintf("large/%03d", i), strings.Repeat("x", 1000)))
	}
	c.eventually("etcd refuses writes", func() error {
		return c.etcd(c.names[0], func(ctx context.Context, client *clientv3.Client) error {
			for {
				switch _, err := client.Txn(ctx).Then(puts...).Commit(); {
				case errors.Is(err, rpctypes.ErrNoSpace):
					return nil
				case err != nil:
					return err
				}
			}
		})
	})
}

// fragment writes and compacts until every member's database is mostly free.
func (c *cluster) fragment() {
	c.t.Helper()
	for range 8 {
		c.put("large", strings.Repeat("x", 1<<20))
	}
	c.put("large", "")
	c.eventually("compact", func() error {
		return c.etcd(c.names[0], func(ctx context.Context, client *clientv3.Client) error {
			got, err := client.Get(ctx, "large")
			if err == nil {
				_, err = client.Compact(ctx, got.Header.Revision, clientv3.WithCompactPhysical())
			}
			return err
		})
	})
	for _, name := range c.names {
		c.eventually(name+" is fragmented", func() error {
			c.put("large", "") // what was freed is counted at the next commit
			fragmented, err := c.isFragmented(name)
			if err == nil && !fragmented {
				err = errors.New("not yet")
			}
			return err
		})
	}
}

// defragmented waits until the member's database is not fragmented any more.
func (c *cluster) defragmented(name string) {
	c.t.Helper()
	c.eventually(name+" is defragmented", func() error {
		fragmented, err := c.isFragmented(name)
		if err == nil && fragmented {
			err = errors.New("it is fragmented")
		}
		return err
	})
}

func (c *cluster) isFragmented(name string) (fragmented bool, err error) {
	d := quick().Defragmentation
	thresholds := membership.Thresholds{FreePercent: d.MinFreePercent, FreeBytes: d.MinFreeBytes}
	err = c.etcd(name, func(ctx context.Context, client *clientv3.Client) error {
		status, err := membership.ReadStatus(ctx, client, c.endpoint(name))
		if err != nil {
			return fmt.Errorf("sizes of %s: %w", name, err)
		}
		fragmented = thresholds.Fragmented(membership.Space{Size: status.DBSize, InUse: status.DBSizeInUse})
		return nil
	})
	return fragmented, err
}
