package agent

import (
	"context"
	"encoding/json"
	"log/slog"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

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
		if d.report != step.report {
			t.Errorf("step %d: what is known is %+v, want the last report", i, d.report)
		}
	}
}

// oneLease is a member Lease that keeps the disk report that was written last.
type oneLease struct {
	leases.Client
	disk   string
	writes int
}

func (l *oneLease) Get(context.Context, string, metav1.GetOptions) (*coordinationv1.Lease, error) {
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		ResourceVersion: "1", Annotations: map[string]string{leases.AnnotationPodUID: "pod", "etcd.druid.dev/disk": l.disk},
	}}, nil
}

func (l *oneLease) Patch(ctx context.Context, name string, _ types.PatchType, raw []byte, _ metav1.PatchOptions, _ ...string) (*coordinationv1.Lease, error) {
	var patch coordinationv1.Lease
	if err := json.Unmarshal(raw, &patch); err != nil {
		return nil, err
	}
	l.disk = patch.Annotations["etcd.druid.dev/disk"]
	l.writes++
	return l.Get(ctx, name, metav1.GetOptions{})
}

// A volume that the user enlarged is reported again without another change of the disk, because druid may have refused a recovery without
// room. Small changes are no reason for a write.
func TestMoreFreeSpaceIsReported(t *testing.T) {
	lease := &oneLease{}
	d := newDiskReport(leases.NewStore(lease, "demo"), "demo-0", "pod", slog.New(slog.DiscardHandler))
	for i, step := range []struct {
		free   int64
		writes int
	}{
		{1 << 30, 1}, {1 << 30, 1}, {1<<30 + freeStep - 1, 1}, {1<<30 + freeStep, 2}, {1<<30 + 1, 2}, {1 << 30, 3},
	} {
		d.set(&leases.DiskReport{Pod: "pod", Volume: "volume", State: leases.DiskCorrupt, Kind: "torn-wal", Free: step.free})
		if err := d.write(t.Context()); err != nil || lease.writes != step.writes {
			t.Errorf("step %d: %d writes and %v, want %d; the Lease has %s", i, lease.writes, err, step.writes, lease.disk)
		}
	}
}
