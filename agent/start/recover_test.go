package start

import (
	"testing"

	"github.com/etcd-druid/druid/agent/datadir"
	"github.com/etcd-druid/druid/leases"
)

// Only a raft group that this member formed from its disk has all of the data that it replaces.
func TestWhatARecoveryReplacesOnAVolume(t *testing.T) {
	for name, test := range map[string]struct {
		done   *leases.Recovered
		reason string
	}{
		"formed from the own disk":       {&leases.Recovered{Epoch: 2, Mode: leases.RecoverSurvivor, Member: "c-a"}, datadir.ReasonSurvivor},
		"restored from a backup":         {&leases.Recovered{Epoch: 2, Mode: leases.RecoverBackup, Member: "c-a"}, datadir.ReasonSuperseded},
		"restored in place":              {&leases.Recovered{Epoch: 2, Mode: leases.RecoverRestore, Member: "c-a"}, datadir.ReasonSuperseded},
		"formed from another disk":       {&leases.Recovered{Epoch: 2, Mode: leases.RecoverSurvivor, Member: "c-b"}, datadir.ReasonSuperseded},
		"an earlier recovery":            {&leases.Recovered{Epoch: 1, Mode: leases.RecoverSurvivor, Member: "c-a"}, datadir.ReasonSuperseded},
		"a record that druid made again": {nil, datadir.ReasonSuperseded},
	} {
		o := &observation{}
		o.record.record.Recovered, o.volume.built = test.done, datadir.IdentityFile{Epoch: 2, Lineage: "00000002-bb"}
		got := replacedContent("c-a", o)
		if formed := got.FormedInto == "00000002-bb"; got.Reason != test.reason || formed != (test.reason == datadir.ReasonSurvivor) {
			t.Errorf("%s: %+v, want %s", name, got, test.reason)
		}
	}
}
