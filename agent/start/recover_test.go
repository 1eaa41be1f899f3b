package start

import (
	"context"
	"log/slog"
	"testing"

	"github.com/etcd-druid/druid/agent/datadir"
	"github.com/etcd-druid/druid/backup/restore"
	"github.com/etcd-druid/druid/leases"
)

// Data that a later raft group replaced can be the only copy of writes, whatever else is known about it.
func TestWhyDataGoesToQuarantine(t *testing.T) {
	const otherwise = "other-id"
	for _, data := range []Data{Empty, Intact, Stale, Corrupt, Foreign, Newer, DataUnread, Differing} {
		for _, epoch := range []Epoch{EpochUnknown, Current, Fenced, Prepared} {
			for bits := range 8 {
				formed, later, same := bits&1 != 0, bits&2 != 0, bits&4 != 0
				o := &observation{}
				o.Data, o.Epoch, o.volume.identityFile = data, epoch, datadir.IdentityFile{Formed: formed, ClusterID: 0xc, Epoch: 2}
				o.record.record = leases.Record{Phase: leases.PhaseFormed, ClusterID: 0xd, Epoch: 2, FormedEpoch: 2}
				if later {
					o.volume.identityFile.Epoch = 3
				}
				if same {
					o.record.record.ClusterID = 0xc
				}
				want := data.String()
				switch {
				case data == Differing:
					want = datadir.ReasonDiffers
				case (epoch == Fenced || later && !same) && formed:
					want = datadir.ReasonSuperseded
				case data == Intact:
					want = otherwise
				}
				if got := o.quarantineReason(otherwise); got != want {
					t.Errorf("%s data, epoch %s, formed %t, later %t, same raft group %t: %q, want %q", data, epoch, formed, later, same, got, want)
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

// A failure stays in the disk report while later attempts fail at the same point or before it. It ends when one gets further, also if that
// one has not ended yet.
func TestFailureEndsWhenAnAttemptGetsOn(t *testing.T) {
	at := func(phase restore.Phase, bytes, deltas, events int64) restore.Progress {
		return restore.Progress{Phase: phase, Bytes: bytes, DeltaBytes: deltas, Events: events}
	}
	half := at(restore.Surveying, 100, 5, 7)
	for name, test := range map[string]struct {
		failed [2]restore.Progress
		now    restore.Progress
		ends   bool
	}{
		"nothing is known yet":                 {[2]restore.Progress{{}, {}}, restore.Progress{}, false},
		"both failed at once":                  {[2]restore.Progress{{}, {}}, at(restore.Fetching, 1, 0, 0), true},
		"the backup is fetched again":          {[2]restore.Progress{half, half}, at(restore.Fetching, 100, 0, 0), false},
		"the same point":                       {[2]restore.Progress{half, half}, half, false},
		"one event more":                       {[2]restore.Progress{half, half}, at(restore.Surveying, 100, 5, 8), true},
		"one delta backup more":                {[2]restore.Progress{half, half}, at(restore.Surveying, 100, 6, 0), true},
		"a larger database":                    {[2]restore.Progress{half, half}, at(restore.Surveying, 101, 0, 0), true},
		"the next phase":                       {[2]restore.Progress{half, half}, at(restore.Writing, 1, 0, 0), true},
		"the last phase":                       {[2]restore.Progress{half, half}, at(restore.Finishing, 0, 0, 0), true},
		"further than the last, not the first": {[2]restore.Progress{half, at(restore.Fetching, 3, 0, 0)}, at(restore.Fetching, 9, 0, 0), false},
		"further than the first, not the last": {[2]restore.Progress{at(restore.Fetching, 3, 0, 0), half}, at(restore.Fetching, 9, 0, 0), false},
	} {
		var reported *leases.DiskReport
		b := &Bootstrapper{log: slog.New(slog.DiscardHandler), held: func(r *leases.DiskReport) { reported = r }}
		order := &leases.Recovery{Mode: leases.RecoverBackup, Epoch: 2, Nonce: "bb"}
		o := &observation{report: &leases.DiskReport{Order: order.Name()}}
		for _, failed := range test.failed {
			b.progress(t.Context(), func(string) {})(failed)
			b.attempted(t.Context(), o, order, restore.ErrSpace)
		}
		if reported.Failed != leases.FailedSpace {
			t.Fatalf("%s: two attempts failed, and the report is %+v", name, reported)
		}
		b.progress(t.Context(), func(string) {})(test.now)
		if b.reportFurther(o); (reported.Failed == "") != test.ends {
			t.Errorf("%s: the report is %+v, want an end %t", name, reported, test.ends)
		}
	}
}

// An error that can pass says nothing about a failure for which the attempt did not get far enough.
func TestPassingErrorKeepsALaterFailure(t *testing.T) {
	for name, test := range map[string]struct {
		at   restore.Progress
		want leases.RestoreFailure
	}{
		"before the failure": {restore.Progress{Phase: restore.Fetching, Bytes: 1}, leases.FailedSpace},
		"at the failure":     {restore.Progress{Phase: restore.Writing}, ""},
		"after the failure":  {restore.Progress{Phase: restore.Finishing}, ""},
	} {
		var reported *leases.DiskReport
		b := &Bootstrapper{log: slog.New(slog.DiscardHandler), held: func(r *leases.DiskReport) { reported = r }}
		order := &leases.Recovery{Mode: leases.RecoverBackup, Epoch: 2, Nonce: "bb"}
		o := &observation{report: &leases.DiskReport{Order: order.Name()}}
		for range attemptsAlike {
			b.progress(t.Context(), func(string) {})(restore.Progress{Phase: restore.Writing})
			b.attempted(t.Context(), o, order, restore.ErrSpace)
		}
		b.progress(t.Context(), func(string) {})(test.at)
		if b.attempted(t.Context(), o, order, context.DeadlineExceeded); reported.Failed != test.want {
			t.Errorf("%s: the report is %+v, want failure %q", name, reported, test.want)
		}
	}
}
