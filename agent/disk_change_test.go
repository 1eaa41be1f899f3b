package agent

import (
	"log/slog"
	"testing"

	"github.com/etcd-druid/druid/leases"
)

// Each change of what is known of the disk is one reason to read and write the Lease. What says that etcd runs is one each time, because a
// report can reach the Lease after it was withdrawn.
func TestOnlyAChangeOfTheDiskIsWritten(t *testing.T) {
	d := newDiskReport(nil, "demo-0", "pod", slog.New(slog.DiscardHandler))
	empty := leases.DiskReport{Pod: "pod", State: leases.DiskEmpty, Free: 1}
	less := empty
	less.Free = 2
	other := empty
	other.Pod = "other"
	for i, step := range []struct {
		report  *leases.DiskReport
		changed bool
	}{{nil, true}, {nil, true}, {&empty, true}, {&less, false}, {&other, true}, {&other, false}, {nil, true}} {
		d.set(step.report)
		changed := false
		select {
		case <-d.wake:
			changed = true
		default:
		}
		if changed != step.changed {
			t.Errorf("step %d: a write is %v, want %v", i, changed, step.changed)
		}
	}
}
