package bootstrap

import (
	"log/slog"
	"testing"

	"github.com/etcd-druid/druid/leases"
)

func TestTheSlotOfALaterPodIsNotGivenBack(t *testing.T) {
	c := newCluster(t, "3.7.3", "c-a")
	record, version := c.record()
	record.Phase, record.ClusterID, record.FormedEpoch = leases.PhaseFormed, 1, 1
	record.Replacing = &leases.Replacing{Member: "c-a", PodUID: "pod-later", MemberID: leases.FormatID(2)}
	if _, err := c.store.UpdateRecord(t.Context(), version, record); err != nil {
		t.Fatal(err)
	}
	m := c.members["c-a"]
	later := m.cfg.PodUID
	m.cfg.PodUID = "pod-former"
	s := &settler{b: m.boot(), log: slog.New(slog.DiscardHandler)}
	if done, err := s.slotFree(t.Context()); err != nil || !done {
		t.Errorf("done %t, %v", done, err)
	}
	if now, _ := c.record(); now.Replacing == nil {
		t.Error("the agent of a former Pod gave back the slot of the Pod that came after it")
	}
	m.cfg.PodUID = later
	s = &settler{b: m.boot(), log: slog.New(slog.DiscardHandler)}
	if done, err := s.slotFree(t.Context()); err != nil || !done {
		t.Errorf("done %t, %v", done, err)
	}
	if now, _ := c.record(); now.Replacing != nil {
		t.Error("the agent of the Pod that the Lease names did not give back its slot")
	}
}
