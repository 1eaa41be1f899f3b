package start

import (
	"fmt"
	"strings"
	"testing"

	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/test/machine"
)

const (
	// narrowDisk has room for the log of etcd, which takes two files of 64 MiB, but not for a second data directory. wideDisk has.
	narrowDisk, wideDisk = 224 << 20, 512 << 20
)

// TestSurvivorWithoutSpaceSaysSo: a member without space for the data of the new raft group reports that.
// Its disk report and its agent say why the order cannot be carried out. When the volume has grown, the same order is carried out, and no
// acknowledged write is lost.
func TestSurvivorWithoutSpaceSaysSo(t *testing.T) {
	t.Parallel()
	const writes = 20
	c := newCluster(t, "3.6.16", "c-a", "c-b", "c-c")
	chosen := c.members["c-a"]
	machine.SmallDisk(t, chosen.cfg.VolumePath, narrowDisk)
	t.Cleanup(chosen.crash) // before its disk is gone
	for _, m := range c.members {
		m.start()
	}
	c.voters("c-a", "c-b", "c-c")
	revision := c.writes("c-a", writes)
	for _, m := range c.members {
		m.kill()
	}
	for name, m := range c.members {
		if m.crash(); name != "c-a" {
			m.wipe()
		}
	}
	for _, m := range c.members {
		m.start()
	}
	order := c.orders(survivorOrder(revision), "c-a", "c-b", "c-c")
	c.executes(order)
	c.eventually("the disk report names a failure", func() error {
		if report := chosen.holds(); report == nil || report.Order != order.Name() || report.Failed != leases.FailedSpace {
			return fmt.Errorf("it is %+v", report)
		}
		return nil
	})
	if said := chosen.reported(func(p Published) bool { return strings.Contains(p.Reason, "not enough space") }); len(said) == 0 {
		t.Errorf("the agent does not say why: %+v", chosen.last())
	}
	must(t, machine.GrowDisk(chosen.cfg.VolumePath, wideDisk))
	c.formedAgain()
	c.voters("c-a", "c-b", "c-c")
	c.has("c-b", writes)
}
