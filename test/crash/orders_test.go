package crash_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/etcd-druid/druid/internal/loop"
	"github.com/etcd-druid/druid/leases"
)

var orders = map[string]scenario{
	"a recovery order": {members: 1, newborn: true, eve: func(c *cluster) *pod {
		c.form()
		return c.ordered(leases.RecoverSurvivor, executed)
	}, aftermath: recovered(2)},
	"a recovery order for a backup": {members: 1, newborn: true, eve: func(c *cluster) *pod {
		c.form()
		p := seed(c)
		p.backUp(c.t.TempDir())
		p.savesOn()
		return c.ordered(leases.RecoverBackup, executed)
	}, aftermath: recovered(2)},
	"a restore in place": {members: 1, newborn: true, eve: func(c *cluster) *pod {
		c.form()
		p := seed(c)
		p.backUp(c.t.TempDir())
		p.savesOn()
		return c.ordered(leases.RecoverRestore, executed)
	}, aftermath: recovered(2)},
	"a recovery order that is released": {members: 1, newborn: true, eve: func(c *cluster) *pod {
		c.form()
		return c.ordered(leases.RecoverSurvivor, func(r leases.Record, _ leases.DiskReport) (leases.Record, error) { return r.Release(r.Recovery.Name()) })
	}, aftermath: recovered(1)},
	"a request for a restore": {members: 1, newborn: true, leads: true, eve: func(c *cluster) *pod {
		c.form()
		p := seed(c)
		p.backUp(c.t.TempDir())
		p.savesOn()
		p.killAgent()
		c.eventually("request the plan of a restore", func() error {
			_, version, err := c.store.Record(c.t.Context())
			if err != nil {
				return err
			}
			return c.store.RequestRestorePlan(c.t.Context(), version, leases.RestoreRequest{Nonce: "first"})
		})
		return p
	}, aftermath: func(c *cluster, _ *pod) {
		c.eventually("the plan is on the record", func() error {
			record, _, err := c.store.Record(c.t.Context())
			if err == nil && !record.Restore.Plan.Final() {
				err = fmt.Errorf("the plan is %+v", record.Restore.Plan)
			}
			return err
		})
	}},
}

// executed is the record in which the prepared order is executed.
func executed(r leases.Record, report leases.DiskReport) (leases.Record, error) {
	order := *r.Recovery
	order.Report, order.Lineage, order.Revision = report.Digest(), r.Lineage, 1
	return r.Execute(order)
}

// recovered checks that the cluster has its data, in the raft group of an epoch.
func recovered(epoch uint32) func(*cluster, *pod) {
	return func(c *cluster, _ *pod) {
		c.eventually("the order is carried out", func() error {
			record, _, err := c.store.Record(c.t.Context())
			if err == nil && (record.Phase != leases.PhaseFormed || record.FormedEpoch != epoch || epoch == 1 && record.Released == 0) {
				err = errors.New("the record is not formed")
			}
			return err
		})
		c.heals()
		c.keeps("formed", "yes")
	}
}

// ordered is a cluster that lost its quorum, and whose record has an order. The test does what druid would do as soon as the
// order is acknowledged.
func (c *cluster) ordered(mode leases.RecoveryMode, next func(leases.Record, leases.DiskReport) (leases.Record, error)) *pod {
	c.t.Helper()
	p := seed(c)
	p.powerOff()
	c.eventually("order a recovery", func() error {
		record, version, err := c.store.Record(c.t.Context())
		if err != nil {
			return err
		}
		order := leases.Recovery{Epoch: 2, Nonce: "0123", Mode: mode, Chosen: p.name, Known: 1000}
		if order.Restores() {
			order.Target, order.Request, order.Lineage, order.Revision = &leases.RestoreTarget{}, "4567", record.Lineage, 1
		}
		record, err = record.Prepare(order)
		if err != nil {
			return err
		}
		_, err = c.store.UpdateRecord(c.t.Context(), version, record)
		return err
	})
	done := make(chan error, 1)
	c.t.Cleanup(func() {
		if err := <-done; err != nil && c.t.Failed() {
			c.t.Logf("the order does not go on: %v", err)
		}
	})
	go func() {
		last := errors.New("no attempt")
		for last != nil && loop.Sleep(c.t.Context(), 100*time.Millisecond) {
			if err := c.goesOn(p, next); err == nil || c.t.Context().Err() == nil {
				last = err
			}
		}
		done <- last
	}()
	p.startLaunch()
	return p
}

// goesOn writes the next stage once p acknowledged the first one. It returns nil when that is done.
func (c *cluster) goesOn(p *pod, next func(leases.Record, leases.DiskReport) (leases.Record, error)) error {
	record, version, err := c.store.Record(c.t.Context())
	if err != nil || record.Order() == nil || record.Order().Stage != leases.StagePrepare {
		return err
	}
	lease, err := c.store.Member(c.t.Context(), p.name)
	if err != nil {
		return err
	}
	if lease.Disk == nil || lease.Disk.Order != record.Recovery.Name() {
		return fmt.Errorf("%s claims %+v, want one that acknowledges order %s", p.name, lease.Disk, record.Recovery.Name())
	}
	if record, err = next(record, *lease.Disk); err != nil {
		return err
	}
	_, err = c.store.UpdateRecord(c.t.Context(), version, record)
	return err
}
