package start

import (
	"testing"

	"github.com/etcd-druid/druid/agent/datadir"
	"github.com/etcd-druid/druid/leases"
)

// Data that a later raft group replaced can be the only copy of writes, whatever else is known about it.
func TestWhyDataGoesToQuarantine(t *testing.T) {
	const otherwise = "other-id"
	for _, data := range []Data{Empty, Intact, Stale, Corrupt, Foreign, Newer, DataUnread, Differing} {
		for _, epoch := range []Epoch{EpochUnknown, Current, Fenced, Prepared} {
			for _, formed := range []bool{false, true} {
				o := &observation{}
				o.Data, o.Epoch, o.volume.identityFile.Formed = data, epoch, formed
				want := data.String()
				switch {
				case data == Differing:
					want = datadir.ReasonDiffers
				case epoch == Fenced && formed:
					want = datadir.ReasonSuperseded
				case data == Intact:
					want = otherwise
				}
				if got := o.quarantineReason(otherwise); got != want {
					t.Errorf("%s data, epoch %s, formed %t: %q, want %q", data, epoch, formed, got, want)
				}
			}
		}
	}
}

// Only a raft group that this member formed from its disk has all of the data that it replaces. A damaged log can hold more.
func TestWhatARecoveryReplacesOnAVolume(t *testing.T) {
	for name, test := range map[string]struct {
		done   *leases.Recovered
		reason string
		formed bool
	}{
		"formed from the own disk":       {&leases.Recovered{Epoch: 2, Mode: leases.RecoverSurvivor, Member: "c-a"}, datadir.ReasonSurvivor, true},
		"restored from a backup":         {&leases.Recovered{Epoch: 2, Mode: leases.RecoverBackup, Member: "c-a"}, datadir.ReasonSuperseded, false},
		"restored in place":              {&leases.Recovered{Epoch: 2, Mode: leases.RecoverRestore, Member: "c-a"}, datadir.ReasonSuperseded, false},
		"formed from another disk":       {&leases.Recovered{Epoch: 2, Mode: leases.RecoverSurvivor, Member: "c-b"}, datadir.ReasonSuperseded, false},
		"an earlier recovery":            {&leases.Recovered{Epoch: 1, Mode: leases.RecoverSurvivor, Member: "c-a"}, datadir.ReasonSuperseded, false},
		"a record that druid made again": {nil, datadir.ReasonSuperseded, false},
	} {
		for state, intact := range map[datadir.State]bool{datadir.Intact: true, datadir.Corrupt: false} {
			o := &observation{}
			o.record.record.Recovered, o.volume.built = test.done, datadir.IdentityFile{Epoch: 2, Lineage: "00000002-bb"}
			o.volume.report.State = state
			got, lineage := replacedContent("c-a", o), ""
			if test.formed && intact {
				lineage = "00000002-bb"
			}
			if got.Reason != test.reason || got.FormedInto != lineage || got.Intact != intact {
				t.Errorf("%s, %s: %+v, want %s, formed into %q", name, state, got, test.reason, lineage)
			}
		}
	}
}
