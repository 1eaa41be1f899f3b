package start

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/agent/datadir"
	"github.com/etcd-druid/druid/agent/datadir/volume"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
)

// Before etcd runs, old data may go only if the data of the record's raft group is somewhere: a quorum answers, or this volume has it.
func TestWhatIsKnownBeforeRoomIsMade(t *testing.T) {
	ours, other := datadir.IdentityFile{ClusterID: 7, Epoch: 1}, datadir.IdentityFile{ClusterID: 6, Epoch: 1}
	formed := leases.Record{Phase: leases.PhaseFormed, ClusterID: 7, FormedEpoch: 1}
	ordered := func(mode leases.RecoveryMode) leases.Record {
		r := formed
		r.Phase, r.Recovery = leases.PhaseRecovering, &leases.Recovery{Mode: mode, Epoch: 2, Nonce: "bb"}
		return r
	}
	for name, test := range map[string]struct {
		mode       Mode
		record     leases.Record
		data       Data
		own, built datadir.IdentityFile
		quorum     uint64
		want       rules.Answer
	}{
		"etcd resumes":                            {mode: ModeResume, record: formed, data: Intact, own: ours, want: rules.Yes},
		"data of another raft group":              {mode: ModeResume, record: formed, data: Intact, own: other, want: rules.No},
		"damaged data, without a quorum":          {mode: ModeRejoin, record: formed, data: Corrupt, own: ours, want: rules.No},
		"a member joins":                          {mode: ModeJoin, record: formed, data: Empty, quorum: 7, want: rules.Yes},
		"a quorum of another raft group":          {mode: ModeJoin, record: formed, data: Empty, quorum: 6, want: rules.No},
		"an empty volume":                         {mode: ModeNew, record: formed, data: Empty, want: rules.No},
		"an order is acknowledged":                {mode: ModePrepare, record: ordered(leases.RecoverBackup), data: Intact, own: ours, want: rules.Yes},
		"the same without data":                   {mode: ModePrepare, record: ordered(leases.RecoverBackup), data: Empty, want: rules.No},
		"damaged data acknowledges an order":      {mode: ModePrepare, record: ordered(leases.RecoverSurvivor), data: Corrupt, own: ours, want: rules.Yes},
		"the same for a backup":                   {mode: ModePrepare, record: ordered(leases.RecoverBackup), data: Corrupt, own: ours, want: rules.No},
		"the source of a recovery":                {mode: ModeRecover, record: ordered(leases.RecoverSurvivor), data: Corrupt, own: ours, want: rules.Yes},
		"damaged data before an order":            {mode: ModeRecover, record: formed, data: Corrupt, own: ours, want: rules.Yes},
		"the same of another raft group":          {mode: ModeRecover, record: formed, data: Corrupt, own: other, want: rules.No},
		"a backup next to damaged data":           {mode: ModeRecover, record: ordered(leases.RecoverBackup), data: Corrupt, own: ours, want: rules.No},
		"a backup on an empty volume":             {mode: ModeRecover, record: ordered(leases.RecoverBackup), data: Empty, want: rules.No},
		"a restore while others answer":           {mode: ModePrepare, record: ordered(leases.RecoverRestore), data: Empty, quorum: 7, want: rules.No},
		"data that a recovery made":               {mode: ModePlace, record: formed, data: Intact, own: other, built: ours, want: rules.Yes},
		"data that a recovery made of an attempt": {mode: ModePlace, record: formed, data: Intact, own: ours, built: other, want: rules.No},
		"a cluster that was never formed":         {mode: ModeNew, record: leases.Record{Phase: leases.PhaseForming}, data: Empty, want: rules.No},
	} {
		o := &observation{}
		o.Data, o.Listed, o.record.record, o.volume.identityFile, o.volume.built = test.data, NoQuorum, test.record, test.own, test.built
		if test.quorum != 0 {
			o.Listed, o.view.ClusterID = Unlisted, test.quorum
		}
		if f := roomFacts(test.mode, o); f.Current != test.want || f.Full != rules.Yes || f.Voter != rules.Unknown || f.Quorum != rules.Unknown {
			t.Errorf("%s: %+v, want current %s", name, f, test.want)
		}
	}
}

// The disk report counts the space that the agent frees before it forms the raft group again, and nothing else.
func TestRoomOfARecoveryIncludesExpired(t *testing.T) {
	const week = 7 * 24 * time.Hour
	now, dir := time.Now(), t.TempDir()
	for name, moved := range map[string]time.Time{
		"data.quarantine-0001-survivor": now.Add(-week), "data.quarantine-0002-superseded": now.Add(time.Hour - week), "data.quarantine-0003-stale": now.Add(-week),
	} {
		path := filepath.Join(dir, name)
		must(t, os.MkdirAll(filepath.Join(path, "member", "snap"), 0o700))
		must(t, os.WriteFile(filepath.Join(path, "member", "snap", "db"), make([]byte, 1<<20), 0o600))
		_, reason, _ := strings.Cut(strings.TrimPrefix(name, volume.QuarantinePrefix), "-")
		content, err := json.Marshal(datadir.Content{Reason: reason, Moved: moved})
		must(t, err)
		must(t, os.WriteFile(filepath.Join(path, volume.QuarantineFile), content, 0o600))
	}
	ours, formed := datadir.IdentityFile{ClusterID: 7, Epoch: 1}, leases.Record{Phase: leases.PhaseFormed, ClusterID: 7, FormedEpoch: 1}
	undecided, restores := formed, formed
	undecided.Undecided = leases.Undecided{Revision: 5, Hashes: "c-a:1"}
	restores.Phase, restores.Recovery = leases.PhaseRecovering, &leases.Recovery{Mode: leases.RecoverBackup, Epoch: 2, Nonce: "bb"}
	expired := datadir.SpaceOf(dir, "data.quarantine-0001-survivor")
	if expired < 1<<20 || expired > 2<<20 {
		t.Fatalf("a file of 1 MiB takes %d bytes", expired)
	}
	must(t, os.Mkdir(filepath.Join(dir, ".pruned-data.quarantine-0000-stale"), 0o700))
	must(t, os.WriteFile(filepath.Join(dir, ".pruned-data.quarantine-0000-stale", "db"), make([]byte, 1<<20), 0o600))
	left := datadir.SpaceOf(dir, ".pruned-data.quarantine-0000-stale")
	if left < 1<<20 {
		t.Fatalf("what an attempt left takes %d bytes", left)
	}
	for name, test := range map[string]struct {
		record recordState
		data   Data
		server bool
		want   int64
	}{
		"intact data":                   {recordState{record: formed}, Intact, true, expired + left},
		"a damaged log":                 {recordState{record: formed}, Corrupt, true, expired + left},
		"an order to restore a backup":  {recordState{record: restores}, Intact, true, expired + left},
		"the same next to damaged data": {recordState{record: restores}, Corrupt, true, left},
		"members that differ":           {recordState{record: undecided}, Intact, true, left},
		"one clock":                     {recordState{record: formed}, Intact, false, left},
		"an empty volume":               {recordState{record: formed}, Empty, true, left},
		"a record that cannot be read":  {recordState{record: formed, err: errUnheard}, Intact, true, 0},
	} {
		b := &Bootstrapper{cfg: config.Config{VolumePath: dir}, serverTime: func() (time.Time, bool) { return now, true }}
		if !test.server {
			b.serverTime = nil
		}
		o := &observation{record: test.record}
		o.Data, o.Listed, o.volume.identityFile = test.data, NoQuorum, ours
		if got := b.reclaimable(o); got != test.want {
			t.Errorf("%s: %d bytes, want %d", name, got, test.want)
		}
	}
}

// What makes or receives a database needs room for it. A smaller step needs room for a file of the log.
func TestHowMuchRoomAStepNeeds(t *testing.T) {
	dir := t.TempDir()
	for name, size := range map[string]int{"data": 1 << 10, "data.quarantine-0001-survivor": 1 << 20, "data.quarantine-0002-stale": 0} {
		path := filepath.Join(dir, name, "member", "snap")
		must(t, os.MkdirAll(path, 0o700))
		must(t, os.WriteFile(filepath.Join(path, "db"), make([]byte, size), 0o600))
	}
	all, err := datadir.AllQuarantined(dir)
	must(t, err)
	for mode, want := range map[Mode]int64{
		ModeResume: startRoom, ModePrepare: startRoom, ModePlace: startRoom, ModeRejoin: startRoom, ModeJoin: 1<<20 + datadir.LogRoom,
		ModeRecover: 1<<20 + datadir.LogRoom, ModeRestore: 1<<20 + datadir.LogRoom,
	} {
		if got := roomFor(mode, datadir.LargestDatabase(dir, all)); got != want {
			t.Errorf("%s needs %d bytes, want %d", mode, got, want)
		}
	}
	b, order := &Bootstrapper{}, &leases.Recovery{Epoch: 2, Nonce: "bb"}
	if b.lacksSpace(order) || b.lacksSpace(nil) {
		t.Error("no attempt failed")
	}
	b.unrestorable = permanentFailure{order: order.Name(), failure: leases.FailedSpace}
	if !b.lacksSpace(order) || b.lacksSpace(&leases.Recovery{Epoch: 3, Nonce: "bb"}) {
		t.Error("the failure is not that of the order")
	}
}
