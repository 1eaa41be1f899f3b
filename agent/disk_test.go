package agent_test

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/etcd-druid/druid/leases"
)

// A member that cannot start says what its disk holds. While etcd runs, its Lease says nothing about the disk.
func TestADiskIsDescribedWhileEtcdDoesNotRun(t *testing.T) {
	p := newPod(t, quick())
	record := p.lease(leases.RecordName("demo"))
	api := p.admin.CoordinationV1().Leases(p.namespace)
	p.must(api.Delete(t.Context(), record.Name, metav1.DeleteOptions{}))
	p.startAgent()
	disk := func(want func(*leases.DiskReport) bool) func() error {
		return func() error {
			m, err := leases.DecodeMember(p.lease(member))
			if err == nil && !want(m.Disk) {
				err = fmt.Errorf("the Lease has %+v", m.Disk)
			}
			return err
		}
	}
	empty := disk(func(c *leases.DiskReport) bool {
		return c != nil && c.State == leases.DiskEmpty && c.Pod == "pod-uid" && c.Volume == "volume-uid" && c.Free > 0
	})
	p.eventually("the Lease says that the disk is empty", empty)
	_, err := api.Patch(t.Context(), member, types.MergePatchType, []byte(`{"metadata":{"annotations":{"etcd.druid.dev/disk":null}}}`), metav1.PatchOptions{})
	p.must(err)
	p.eventually("the agent writes again what a user deleted", empty)
	record.ResourceVersion = ""
	_, err = api.Create(t.Context(), record, metav1.CreateOptions{})
	p.must(err)
	p.formed()
	p.eventually("the Lease says nothing about the disk", disk(func(c *leases.DiskReport) bool { return c == nil }))
}
