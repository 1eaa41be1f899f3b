package bootstrap

import (
	"errors"
	"testing"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/agent/datadir"
	"github.com/etcd-druid/druid/leases"
)

var (
	us      = config.Config{ClusterUID: "uid", Member: "c-a", PodUID: "pod"}
	ourData = volumeState{
		report: datadir.Report{State: datadir.Intact, ClusterID: 0xc, MemberID: 0xa, Term: 3, Last: datadir.Position{Term: 3, Index: 50}},
		stamp: datadir.Stamp{
			Cluster: "uid", Member: "c-a", ClusterID: 0xc, MemberID: 0xa, Epoch: 1, Lineage: leases.LineageOf(1, "n"), VolumeUID: "vol",
		},
	}
)

func TestDataIsOursOnlyIfNothingSpeaksAgainstIt(t *testing.T) {
	with := func(change func(*volumeState)) volumeState { v := ourData; change(&v); return v }
	lease := leases.Member{ID: 0xa, ClusterID: 0xc, VolumeUID: "vol", Floor: leases.Raft{Term: 3, Committed: 50}}
	behind := lease
	behind.Floor.Committed = 51
	older := lease
	older.Floor.Term = 4
	former := behind
	former.ID = 0xb
	later := former
	later.Floor.Term = 4
	just := later
	just.Floor, just.Raft.Term = leases.Raft{}, 4
	elsewhere := later
	elsewhere.ClusterID = 0xd
	tests := map[string]struct {
		volume volumeState
		own    ownLease
		want   Data
	}{
		"as the Lease knows it":                {ourData, ownLease{member: lease}, Intact},
		"Lease out of reach":                   {ourData, ownLease{err: errors.New("timeout")}, Intact},
		"log ends below the floor":             {ourData, ownLease{member: behind}, Stale},
		"term below the floor":                 {ourData, ownLease{member: older}, Stale},
		"floor of a former ID of ours":         {ourData, ownLease{member: former}, Intact},
		"term below the floor of another ID":   {ourData, ownLease{member: later}, Stale},
		"term below what another ID reached":   {ourData, ownLease{member: just}, Stale},
		"an ID that no leader has sent to":     {with(func(v *volumeState) { v.report.Term = 0 }), ownLease{member: later}, Intact},
		"floor of another group":               {ourData, ownLease{member: elsewhere}, Intact},
		"another volume":                       {ourData, ownLease{member: leases.Member{VolumeUID: "other"}}, Stale},
		"another EtcdCluster":                  {with(func(v *volumeState) { v.stamp.Cluster = "x" }), ownLease{}, Foreign},
		"another member":                       {with(func(v *volumeState) { v.stamp.Member = "c-b" }), ownLease{}, Foreign},
		"log of another cluster than stamped":  {with(func(v *volumeState) { v.report.ClusterID = 1 }), ownLease{}, Foreign},
		"log of another member than stamped":   {with(func(v *volumeState) { v.report.MemberID = 1 }), ownLease{}, Foreign},
		"no stamp":                             {with(func(v *volumeState) { v.stampErr = datadir.ErrNoStamp }), ownLease{}, Foreign},
		"stamp that cannot be understood":      {with(func(v *volumeState) { v.stampErr = datadir.ErrBadStamp }), ownLease{}, Foreign},
		"stamp that the disk does not give":    {with(func(v *volumeState) { v.stampErr = errors.New("EIO") }), ownLease{}, DataUnread},
		"disk does not answer":                 {with(func(v *volumeState) { v.err = errors.New("EIO") }), ownLease{}, DataUnread},
		"damaged":                              {with(func(v *volumeState) { v.report.State = datadir.Corrupt }), ownLease{}, Corrupt},
		"damaged and another's":                {with(func(v *volumeState) { v.report.State, v.stamp.Cluster = datadir.Corrupt, "x" }), ownLease{}, Foreign},
		"of a newer etcd":                      {with(func(v *volumeState) { v.report.State = datadir.NewerSchema }), ownLease{}, Newer},
		"empty, whatever the stamp says":       {with(func(v *volumeState) { v.report.State, v.stamp.Cluster = datadir.Empty, "x" }), ownLease{}, Empty},
		"empty, on a volume that is another's": {with(func(v *volumeState) { v.report.State = datadir.Empty }), ownLease{member: leases.Member{VolumeUID: "other"}}, Empty},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got, detail := classifyData(us, tc.volume, tc.own); got != tc.want {
				t.Errorf("got %s (%s), want %s", got, detail, tc.want)
			}
		})
	}
}

func TestEpochAndBootstrapOfOurData(t *testing.T) {
	forming := func(nonce, seed string) leases.Record {
		return leases.Record{Phase: leases.PhaseForming, Epoch: 1, Nonce: nonce, Seed: seed}
	}
	formed := func(id uint64, epoch uint32) leases.Record {
		return leases.Record{Phase: leases.PhaseFormed, ClusterID: id, Epoch: epoch, FormedEpoch: epoch}
	}
	tests := map[string]struct {
		record    recordState
		formed    bool
		epoch     Epoch
		formation formation
	}{
		"record out of reach":                      {recordState{err: errors.New("timeout")}, false, EpochUnknown, bootstrapUnknown},
		"our attempt":                              {recordState{record: forming("n", "c-a")}, false, Current, bootstrapOurs},
		"another attempt":                          {recordState{record: forming("m", "c-a")}, false, Fenced, bootstrapLost},
		"a record that forgot our claim":           {recordState{record: forming("", "c-a")}, false, EpochUnknown, bootstrapOurs},
		"a seed elsewhere":                         {recordState{record: forming("", "c-b")}, false, Fenced, bootstrapLost},
		"a record that forgot that it was formed":  {recordState{record: forming("m", "c-b")}, true, EpochUnknown, bootstrapLost},
		"formed as our group":                      {recordState{record: formed(0xc, 1)}, false, Current, bootstrapRecorded},
		"formed as another's":                      {recordState{record: formed(0xd, 1)}, false, Fenced, bootstrapLost},
		"formed again since":                       {recordState{record: formed(0xd, 2)}, true, Fenced, bootstrapLost},
		"formed, and the cluster ID is not known":  {recordState{record: formed(0, 1)}, true, EpochUnknown, bootstrapUnknown},
		"a record of an older epoch than our data": {recordState{record: formed(0xd, 0)}, true, EpochUnknown, bootstrapLost},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			v := ourData
			v.stamp.Formed = tc.formed
			if got := classifyEpoch(us, v, tc.record); got != tc.epoch {
				t.Errorf("epoch is %s, want %s", got, tc.epoch)
			}
			// Settle asks this only of data that is not Formed.
			if got := classifyBootstrap(tc.record, v.stamp, us.Member); got != tc.formation {
				t.Errorf("bootstrap is %d, want %d", got, tc.formation)
			}
		})
	}
}

func TestRecordIsCompletedOnlyFromItsOwnCluster(t *testing.T) {
	stamp := ourData.stamp
	stamp.MaxLearners, stamp.Formed, stamp.Epoch, stamp.Lineage = 16, true, 2, leases.LineageOf(2, "n")
	base := leases.Record{Phase: leases.PhaseFormed, ClusterID: 0xc, Epoch: 2, FormedEpoch: 2}
	tests := map[string]struct {
		change func(*leases.Record)
		want   bool
	}{
		"fields are missing":     {func(*leases.Record) {}, true},
		"the epoch is too low":   {func(r *leases.Record) { r.Epoch, r.FormedEpoch = 1, 1 }, true},
		"another cluster ID":     {func(r *leases.Record) { r.ClusterID = 0xd }, false},
		"no cluster ID":          {func(r *leases.Record) { r.ClusterID = 0 }, false},
		"a later epoch":          {func(r *leases.Record) { r.Epoch = 3 }, false},
		"not formed":             {func(r *leases.Record) { r.Phase = leases.PhaseForming }, false},
		"nothing is missing":     {func(r *leases.Record) { r.Nonce, r.Lineage, r.MaxLearners = "n", stamp.Lineage, 16 }, false},
		"only the limit missing": {func(r *leases.Record) { r.Nonce, r.Lineage = "n", stamp.Lineage }, true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			record := base
			tc.change(&record)
			got, changed := complete(record, stamp)
			if changed != tc.want {
				t.Fatalf("changed is %t, want %t", changed, tc.want)
			}
			if changed && (!isComplete(got) || got.Epoch != 2 || got.Nonce != "n") {
				t.Errorf("it is completed to %+v", got)
			}
		})
	}
}
