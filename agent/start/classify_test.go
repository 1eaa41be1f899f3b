package start

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/agent/datadir"
	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/backup/delta"
	"github.com/etcd-druid/druid/backup/restore"
	"github.com/etcd-druid/druid/backup/snapshot"
	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/backup/store/dir"
	"github.com/etcd-druid/druid/leases"
)

var (
	us      = config.Config{ClusterUID: "uid", Member: "c-a", PodUID: "pod"}
	ourData = volumeState{
		report: datadir.Report{State: datadir.Intact, ClusterID: 0xc, MemberID: 0xa, Term: 3, Last: datadir.Position{Term: 3, Index: 50}},
		identityFile: datadir.IdentityFile{
			Cluster: "uid", Member: "c-a", ClusterID: 0xc, MemberID: 0xa, Epoch: 1, Lineage: leases.LineageOf(1, "n"), VolumeUID: "vol",
		},
	}
)

// TestDataOursUnlessContradicted: data is ours only if nothing speaks against it.
func TestDataOursUnlessContradicted(t *testing.T) {
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
		"as the Lease knows it":                            {ourData, ownLease{member: lease}, Intact},
		"Lease out of reach":                               {ourData, ownLease{err: errors.New("timeout")}, Intact},
		"log ends below the floor":                         {ourData, ownLease{member: behind}, Stale},
		"term below the floor":                             {ourData, ownLease{member: older}, Stale},
		"floor of a former ID of ours":                     {ourData, ownLease{member: former}, Intact},
		"term below the floor of another ID":               {ourData, ownLease{member: later}, Stale},
		"term below what another ID reached":               {ourData, ownLease{member: just}, Stale},
		"an ID that no leader has sent to":                 {with(func(v *volumeState) { v.report.Term = 0 }), ownLease{member: later}, Intact},
		"floor of another group":                           {ourData, ownLease{member: elsewhere}, Intact},
		"another volume":                                   {ourData, ownLease{member: leases.Member{VolumeUID: "other"}}, Stale},
		"another EtcdCluster":                              {with(func(v *volumeState) { v.identityFile.Cluster = "x" }), ownLease{}, Foreign},
		"another member":                                   {with(func(v *volumeState) { v.identityFile.Member = "c-b" }), ownLease{}, Foreign},
		"log of another cluster than in the identity file": {with(func(v *volumeState) { v.report.ClusterID = 1 }), ownLease{}, Foreign},
		"log of another member than in the identity file":  {with(func(v *volumeState) { v.report.MemberID = 1 }), ownLease{}, Foreign},
		"no identity file":                                 {with(func(v *volumeState) { v.identityFileErr = datadir.ErrNoIdentityFile }), ownLease{}, Foreign},
		"identity file that cannot be understood":          {with(func(v *volumeState) { v.identityFileErr = datadir.ErrBadIdentityFile }), ownLease{}, Foreign},
		"identity file that the disk does not give":        {with(func(v *volumeState) { v.identityFileErr = errors.New("EIO") }), ownLease{}, DataUnread},
		"disk does not answer":                             {with(func(v *volumeState) { v.err = errors.New("EIO") }), ownLease{}, DataUnread},
		"damaged":                                          {with(func(v *volumeState) { v.report.State = datadir.Corrupt }), ownLease{}, Corrupt},
		"damaged and another's": {with(func(v *volumeState) { v.report.State, v.identityFile.Cluster = datadir.Corrupt, "x" }),
			ownLease{}, Foreign},
		"of a newer etcd": {with(func(v *volumeState) { v.report.State = datadir.NewerSchema }), ownLease{}, Newer},
		"empty, whatever the identity file says": {with(func(v *volumeState) { v.report.State, v.identityFile.Cluster = datadir.Empty, "x" }),
			ownLease{}, Empty},
		"empty, on a volume that is another's": {with(func(v *volumeState) { v.report.State = datadir.Empty }),
			ownLease{member: leases.Member{VolumeUID: "other"}}, Empty},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got, detail := classifyData(us, tc.volume, tc.own); got != tc.want {
				t.Errorf("got %s (%s), want %s", got, detail, tc.want)
			}
		})
	}
}

// The volume went back to an earlier raft group of the member. Its Lease says so, also if the record is absent, out of reach, or an earlier
// copy. Data of the same raft group, of a later one, or of one that no Lease reports is not fenced by that.
func TestLeaseOfALaterRaftGroupFences(t *testing.T) {
	record := func(id uint64, epoch uint32) recordState {
		return recordState{record: leases.Record{Phase: leases.PhaseFormed, ClusterID: id, Epoch: epoch, FormedEpoch: epoch}}
	}
	lease := func(id uint64, epoch uint32) ownLease {
		return ownLease{member: leases.Member{ClusterID: id, Epoch: epoch}}
	}
	absent, unread := recordState{err: leases.ErrAbsent}, recordState{err: errors.New("timeout")}
	v := ourData
	v.identityFile.Epoch, v.identityFile.ClusterID = 2, 0xc
	for name, test := range map[string]struct {
		own    ownLease
		record recordState
		want   Epoch
	}{
		"a later raft group, an absent record":              {lease(0xd, 3), absent, Fenced},
		"a later raft group, a record that is not read":     {lease(0xd, 3), unread, Fenced},
		"a later raft group, an earlier copy of the record": {lease(0xd, 3), record(0xc, 2), Fenced},
		"the same raft group":                               {lease(0xc, 2), absent, EpochUnknown},
		"the same raft group, the record too":               {lease(0xc, 2), record(0xc, 2), Current},
		"the same raft group with another epoch":            {lease(0xc, 3), record(0xc, 2), Current},
		"an earlier raft group: it joined since":            {lease(0xb, 1), record(0xc, 2), Current},
		"never ran":                                         {lease(0, 0), record(0xc, 2), Current},
		"no Lease":                                          {ownLease{err: leases.ErrAbsent}, record(0xc, 2), Current},
	} {
		if got := classifyEpoch(us, v, test.own, test.record); got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
	empty := v
	empty.report.State = datadir.Empty
	if got := classifyEpoch(us, empty, lease(0xd, 3), record(0xd, 3)); got != EpochUnknown {
		t.Errorf("an empty volume: %s", got)
	}
	later := leases.Member{ClusterID: 0xd, Epoch: 3}
	f := Facts{Lease: LeaseUnread, Record: RecordUnread, Epoch: EpochUnknown}
	if (lastKnown{own: &later}).against(us, v, &f, func(string, string) {}); f.Epoch != Fenced {
		t.Errorf("a Lease that was read a moment ago: %s", f.Epoch)
	}
	copied := record(0xc, 2).record
	f = Facts{Lease: Fresh, Record: RecordUnread, Epoch: Fenced}
	if (lastKnown{own: &later, record: &copied}).against(us, v, &f, func(string, string) {}); f.Epoch != Fenced {
		t.Errorf("an earlier copy of the record that was read a moment ago: %s", f.Epoch)
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
		formation Formation
	}{
		"record out of reach":                      {recordState{err: errors.New("timeout")}, false, EpochUnknown, BootstrapUnknown},
		"our attempt":                              {recordState{record: forming("n", "c-a")}, false, Current, BootstrapOurs},
		"another attempt":                          {recordState{record: forming("m", "c-a")}, false, Fenced, BootstrapLost},
		"a record that forgot our claim":           {recordState{record: forming("", "c-a")}, false, EpochUnknown, BootstrapOurs},
		"a seed elsewhere":                         {recordState{record: forming("", "c-b")}, false, Fenced, BootstrapLost},
		"a record that forgot that it was formed":  {recordState{record: forming("m", "c-b")}, true, EpochUnknown, BootstrapLost},
		"formed as our group":                      {recordState{record: formed(0xc, 1)}, false, Current, BootstrapRecorded},
		"formed as another's":                      {recordState{record: formed(0xd, 1)}, false, Fenced, BootstrapLost},
		"formed again since":                       {recordState{record: formed(0xd, 2)}, true, Fenced, BootstrapLost},
		"formed, and the cluster ID is not known":  {recordState{record: formed(0, 1)}, true, EpochUnknown, BootstrapUnknown},
		"a record of an older epoch than our data": {recordState{record: formed(0xd, 0)}, true, EpochUnknown, BootstrapLost},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			v := ourData
			v.identityFile.Formed = tc.formed
			if got := classifyEpoch(us, v, ownLease{member: leases.Member{ClusterID: 0xc, Epoch: 1}}, tc.record); got != tc.epoch {
				t.Errorf("epoch is %s, want %s", got, tc.epoch)
			}
			// FinishStart asks this only of data that is not Formed.
			if got := classifyBootstrap(tc.record, v.identityFile, us.Member); got != tc.formation {
				t.Errorf("bootstrap is %d, want %d", got, tc.formation)
			}
		})
	}
}

// TestRecordCompletedOnlyByOwnCluster: a record is completed only from its own cluster.
func TestRecordCompletedOnlyByOwnCluster(t *testing.T) {
	identityFile := ourData.identityFile
	identityFile.MaxLearners, identityFile.Formed, identityFile.Epoch, identityFile.Lineage = 16, true, 2, leases.LineageOf(2, "n")
	base := leases.Record{Phase: leases.PhaseFormed, ClusterID: 0xc, Epoch: 2, FormedEpoch: 2}
	tests := map[string]struct {
		change func(*leases.Record)
		want   bool
	}{
		"fields are missing":     {func(*leases.Record) {}, true},
		"the epochs are missing": {func(r *leases.Record) { r.Epoch, r.FormedEpoch = 0, 0 }, true},
		"another epoch is there": {func(r *leases.Record) {
			r.Epoch, r.FormedEpoch, r.Nonce, r.Lineage, r.MaxLearners = 1, 1, "m", leases.LineageOf(1, "m"), 8
		}, false},
		"another cluster ID":     {func(r *leases.Record) { r.ClusterID = 0xd }, false},
		"no cluster ID":          {func(r *leases.Record) { r.ClusterID = 0 }, false},
		"a later epoch":          {func(r *leases.Record) { r.Epoch = 3 }, false},
		"not formed":             {func(r *leases.Record) { r.Phase = leases.PhaseForming }, false},
		"nothing is missing":     {func(r *leases.Record) { r.Nonce, r.Lineage, r.MaxLearners = "n", identityFile.Lineage, 16 }, false},
		"only the limit missing": {func(r *leases.Record) { r.Nonce, r.Lineage = "n", identityFile.Lineage }, true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			record := base
			tc.change(&record)
			got, changed := Completed(record, identityFile)
			if changed != tc.want {
				t.Fatalf("changed is %t, want %t", changed, tc.want)
			}
			if changed && (!isComplete(got) || got.Epoch != 2 || got.FormedEpoch != 2 || got.Nonce != "n") {
				t.Errorf("it is completed to %+v", got)
			}
		})
	}
	t.Run("what is there stays", func(t *testing.T) {
		other := base
		other.Epoch, other.FormedEpoch, other.Nonce, other.Lineage = 1, 1, "m", leases.LineageOf(1, "m")
		want := other
		want.MaxLearners = 16
		if got, changed := Completed(other, identityFile); !changed || !cmp.Equal(got, want) {
			t.Errorf("the record is completed to %+v, want only the limit", got)
		}
	})
}

func TestLineagesOfOnePlaceNeverShareAnEpoch(t *testing.T) {
	for name, tc := range map[string]struct {
		there []catalog.Lineage
		want  uint32
		fails bool
	}{
		"nothing is there":           {nil, 1, false},
		"one is there":               {[]catalog.Lineage{"00000001-a"}, 2, false},
		"the order does not matter":  {[]catalog.Lineage{"0000001f-a", "00000003-b"}, 0x20, false},
		"nothing follows the last":   {[]catalog.Lineage{"ffffffff-a"}, 0, true},
		"the one before the last is": {[]catalog.Lineage{"fffffffe-a"}, 0xffffffff, false},
	} {
		var c catalog.Catalog
		for _, l := range tc.there {
			c.Histories = append(c.Histories, catalog.History{Lineage: l})
		}
		if got, err := epochAbove(c); got != tc.want || (err != nil) != tc.fails {
			t.Errorf("%s: got %d, %v", name, got, err)
		}
	}
}

// TestOnlyOwnLineageForbidsBootstrap: only a lineage of this very cluster forbids its bootstrap.
func TestOnlyOwnLineageForbidsBootstrap(t *testing.T) {
	ours, others := &catalog.Formation{ClusterUID: "us"}, &catalog.Formation{ClusterUID: "them"}
	full := []catalog.Full{{Revision: 1}}
	deltas := []catalog.Delta{{From: 1, To: 2}}
	for name, tc := range map[string]struct {
		history            catalog.History
		unordered, ordered bool // want an error without an order, and with one
	}{
		"ours, and saved":                       {catalog.History{Formation: ours, Fulls: full}, true, true},
		"ours, and changes of it saved":         {catalog.History{Formation: ours, Deltas: deltas}, true, true},
		"ours, and nothing saved":               {catalog.History{Formation: ours}, true, false},
		"another's, and saved":                  {catalog.History{Formation: others, Fulls: full}, false, false},
		"an unknown history, and saved":         {catalog.History{Fulls: full}, true, false},
		"an unknown history, and nothing saved": {catalog.History{}, false, false},
	} {
		c := catalog.Catalog{Histories: []catalog.History{{Formation: others}, tc.history}}
		if err := formedBefore(c, "us", false); (err != nil) != tc.unordered {
			t.Errorf("%s: without an order: %v", name, err)
		}
		if err := formedBefore(c, "us", true); (err != nil) != tc.ordered {
			t.Errorf("%s: with an order: %v", name, err)
		}
	}
}

func TestABackupIsToBlameOnlyForWhatItIs(t *testing.T) {
	for want, errs := range map[bool][]error{
		true: {
			restore.ErrSwapped, restore.ErrShort, restore.ErrFork, restore.ErrVersion, store.ErrNewer, &restore.GapError{},
			&snapshot.DamagedError{}, &delta.DamagedError{}, store.ErrDamaged,
		},
		false: {restore.ErrSpace, restore.ErrBusy, restore.ErrTooNew, store.ErrAbsent, store.ErrForbidden, store.ErrNoKey, context.DeadlineExceeded},
	} {
		for _, err := range errs {
			if got := isUnusable(fmt.Errorf("restore: %w", err)); got != want {
				t.Errorf("%v: %t, want %t", err, got, want)
			}
		}
	}
}

// TestFailedPlanRestsBeforeRetry: a plan that failed is not tried again for a while.
func TestFailedPlanRestsBeforeRetry(t *testing.T) {
	broken := &snapshot.DamagedError{Object: "full/a", Reason: "bad"}
	plan, other := catalog.Plan{Full: catalog.Full{Key: "full/a"}}, catalog.Plan{Full: catalog.Full{Key: "full/b"}}
	recalled := func(r restores, plan catalog.Plan) Backup {
		answer := storeAnswer{fact: BackupPresent, plan: plan}
		r.recall(&answer, restore.RefuseAuth)
		return answer.fact
	}
	var r restores
	r.failed(plan, store.Object{}, errors.New("connection reset"), time.Now())
	if got := recalled(r, plan); got != BackupPresent {
		t.Errorf("the way to the store was broken: %s", got)
	}
	r.failed(plan, store.Object{}, broken, time.Now())
	if got := recalled(r, plan); got != BackupUnusable {
		t.Errorf("the object is broken: %s", got)
	}
	file := store.Object{Key: "a.db", Size: 7}
	r.failed(catalog.Plan{}, file, &snapshot.FileError{Object: "a.db", Reason: "is damaged"}, time.Now())
	for answer, want := range map[store.Object]Backup{file: BackupUnusable, {Key: "a.db", Size: 8}: BackupPresent} {
		found := storeAnswer{fact: BackupPresent, file: answer}
		if r.recall(&found, restore.RefuseAuth); found.fact != want {
			t.Errorf("file %+v is %s, want %s", answer, found.fact, want)
		}
	}
	r.failed(plan, store.Object{}, broken, time.Now())
	if got := recalled(r, other); got != BackupPresent {
		t.Errorf("the plan is another: %s", got)
	}
	r.failed(plan, store.Object{}, broken, time.Now().Add(-spoiledFor))
	if got := recalled(r, plan); got != BackupPresent {
		t.Errorf("it is long ago: %s", got)
	}
}

// TestOversizedFullPlannedWithout: a full that holds too much is planned without.
func TestOversizedFullPlannedWithout(t *testing.T) {
	path := t.TempDir()
	s, err := dir.Open(store.Directory{Path: path})
	must(t, err)
	at := time.Now().Add(-time.Hour)
	for _, key := range []string{
		catalog.FullKey("ns/c", oldLineage, 3, at), catalog.DeltaKey("ns/c", oldLineage, 4, 9, at), catalog.FullKey("ns/c", oldLineage, 7, at),
	} {
		_, err := s.Put(t.Context(), key, strings.NewReader("x"), store.PutOptions{})
		must(t, err)
	}
	text, err := config.Restore{Store: storeJSON(path), Prefix: "ns/c", Revision: 9}.Encode()
	must(t, err)
	b := alone(t)
	b.cfg.Restore = text
	b.openStore = func(_ context.Context, c store.Config) (store.Store, error) { return dir.Open(*c.Directory) }
	o := observation{details: map[string]string{}}
	b.observeBackup(t.Context(), &o)
	if o.Backup != BackupPresent || o.Order != OrderRestore || o.storeAnswer.plan.Full.Revision != 7 {
		t.Fatalf("planned %+v", o.storeAnswer)
	}
	tooNew := fmt.Errorf("restore: %w", restore.ErrTooNew)
	if err := b.restoreFailed(t.Context(), &o, func(words string) { t.Errorf("reported %q", words) }, tooNew); !errors.Is(err, tooNew) {
		t.Error(err)
	}
	b.observeBackup(t.Context(), &o)
	if o.Backup != BackupPresent || o.storeAnswer.plan.Full.Revision != 3 || len(o.storeAnswer.plan.Deltas) != 1 {
		t.Errorf("planned %+v", o.storeAnswer)
	}
}

func TestWhatCannotBeReadFormsNothing(t *testing.T) {
	there, err := config.Restore{Prefix: "ns/c"}.Encode()
	must(t, err)
	for name, tc := range map[string]struct {
		restore, file string
		says          string
	}{
		"an order of a later agent":           {`{"prefix":"p","later":1}`, "", "--restore"},
		"an order that waits for its store":   {there, "", "the configuration file does not contain one yet"},
		"a configuration that is no YAML":     {"", "{", "configuration file"},
		"a configuration out of its range":    {"", "logLevel: loud", "logLevel"},
		"an order, and no YAML":               {there, "{", "configuration file"},
		"a store that this agent knows not":   {"", savedConfig(t, `{"tape":{}}`), "tape"},
		"a directory that is not mounted yet": {"", savedConfig(t, `{"directory":{"path":"/does/not/exist"}}`), "/does/not/exist"},
	} {
		t.Run(name, func(t *testing.T) {
			b := alone(t)
			b.cfg.Restore, b.cfg.ConfigPath = tc.restore, writtenConfig(t, tc.file)
			b.openStore = func(_ context.Context, c store.Config) (store.Store, error) { return dir.Open(*c.Directory) }
			answer := b.askStores(t.Context())
			if answer.fact != StoreUnreachable || (answer.order == OrderRestore) != (tc.restore != "") || !strings.Contains(answer.detail, tc.says) {
				t.Errorf("got %s, %s: %s", answer.fact, answer.order, answer.detail)
			}
		})
	}
	b := alone(t)
	if answer := b.askStores(t.Context()); answer.fact != NoBackup || answer.order != NoOrder {
		t.Errorf("without file and flag: %+v", answer)
	}
}

func TestALineageReportsWhereItForked(t *testing.T) {
	at := time.Now()
	identityFile := datadir.IdentityFile{Cluster: "uid", ClusterID: 0xc, Lineage: "00000005-a", Parent: string(oldLineage), Fork: 7}
	want := catalog.Formation{
		Lineage: "00000005-a", Parent: oldLineage, Fork: 7, Reason: "restore", ClusterID: "c", ClusterUID: "uid",
		EtcdVersion: "3.6.16", Created: at,
	}
	if got := formationOf(identityFile, "3.6.16", at); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	identityFile.Forked, want.Created = at.Add(-time.Hour), at.Add(-time.Hour)
	if got := formationOf(identityFile, "3.6.16", at); got != want {
		t.Errorf("with the time of the fork: got %+v, want %+v", got, want)
	}
}
