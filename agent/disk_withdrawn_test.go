package agent

import (
	"testing"

	"github.com/etcd-druid/druid/leases"
)

// TestReportIsWithdrawnAgain: what says that etcd runs is written each time, because a report can reach the Lease late. An equal report is not.
func TestReportIsWithdrawnAgain(t *testing.T) {
	d := newDiskReport(nil, "c-a", "pod", nil)
	for _, step := range []struct {
		report *leases.DiskReport
		writes bool
	}{
		{nil, true},
		{nil, true},
		{&leases.DiskReport{State: leases.DiskEmpty}, true},
		{&leases.DiskReport{State: leases.DiskEmpty}, false},
		{nil, true},
	} {
		d.set(step.report)
		writes := false
		select {
		case <-d.wake:
			writes = true
		default:
		}
		if writes != step.writes {
			t.Errorf("the report %+v is written: %t, want %t", step.report, writes, step.writes)
		}
	}
}
