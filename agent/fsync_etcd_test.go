package agent_test

import (
	"fmt"
	"slices"
	"strconv"
	"testing"

	"github.com/etcd-druid/druid/leases"
)

// A real etcd, whose metrics its agent reads. How fast the disk of the machine is does not matter.
func TestTheLeaseSaysHowFastTheDiskIs(t *testing.T) {
	p := newPod(t, quick())
	p.startAgent()
	p.formed()
	client := p.etcd()
	n := 0
	p.eventually("there is a verdict", func() error {
		for range 20 {
			if _, err := client.Put(t.Context(), "key", strconv.Itoa(n)); err != nil {
				return err
			}
			n++
		}
		m, err := leases.DecodeMember(p.lease(member))
		if err == nil && !m.Fsync.Known() {
			err = fmt.Errorf("none after %d writes", n)
		}
		return err
	})
	m, err := leases.DecodeMember(p.lease(member))
	p.must(err)
	speeds := []leases.DiskSpeed{leases.SpeedOK, leases.SpeedSlow, leases.SpeedVerySlow}
	if !slices.Contains(speeds, m.Fsync.Speed) || m.Fsync.P99 <= 0 || n < 100 {
		t.Errorf("after %d writes the Lease says %+v", n, m.Fsync)
	}
	t.Logf("%+v", m.Fsync)
}
