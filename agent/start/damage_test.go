package start

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/agent/launch"
	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/backup/delta"
	"github.com/etcd-druid/druid/backup/restore"
	"github.com/etcd-druid/druid/backup/snapshot"
	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/backup/store/dir"
	"github.com/etcd-druid/druid/leases"
)

// TestOnlySingleObjectDamageAvoided: only damage of one object of the plan is planned around.
func TestOnlySingleObjectDamageAvoided(t *testing.T) {
	plan := catalog.Plan{Full: catalog.Full{Key: "c/full/1"}, Deltas: []catalog.Delta{{Key: "c/delta/2"}, {Key: "c/delta/3"}}}
	words := func(key string, is error) error { return fmt.Errorf("get %s in directory /x: %w: see there", key, is) }
	for name, tc := range map[string]struct {
		plan catalog.Plan
		err  error
		want string
	}{
		"a damaged full":                       {plan, &snapshot.DamagedError{Object: "c/full/1"}, "c/full/1"},
		"a damaged delta":                      {plan, &delta.DamagedError{Object: "c/delta/3"}, "c/delta/3"},
		"damage of what is not in it":          {plan, &snapshot.DamagedError{Object: "c/full/9"}, ""},
		"a full under another name":            {plan, words("c/full/1", restore.ErrSwapped), "c/full/1"},
		"a delta under another name":           {plan, words("c/delta/2", restore.ErrSwapped), "c/delta/2"},
		"bytes that the store knows better":    {plan, words("c/delta/2", store.ErrDamaged), "c/delta/2"},
		"damage of nothing that is named":      {plan, store.ErrDamaged, ""},
		"damage of one of two":                 {plan, words("c/delta/2 after c/delta/3", store.ErrDamaged), ""},
		"damage of a file":                     {catalog.Plan{}, &snapshot.FileError{Object: "a.db"}, ""},
		"damage of a file, as a store reports": {catalog.Plan{}, words("a.db", store.ErrDamaged), ""},
		"two histories":                        {plan, words("c/delta/2", restore.ErrFork), ""},
		"what ends early":                      {plan, words("c/delta/3", restore.ErrShort), ""},
		"a hole":                               {plan, &restore.GapError{After: "c/delta/2", Before: "c/delta/3"}, ""},
		"what is gone":                         {plan, words("c/full/1", store.ErrAbsent), ""},
		"what may not be read":                 {plan, words("c/full/1", store.ErrForbidden), ""},
		"what changed while it was read":       {plan, words("c/full/1", store.ErrChanged), ""},
		"a key that is missing":                {plan, words("c/full/1", store.ErrNoKey), ""},
		"a store that does not answer":         {plan, words("c/full/1", context.DeadlineExceeded), ""},
		"a connection that broke":              {plan, words("c/full/1", errors.New("connection reset")), ""},
		"a full that is too new":               {plan, words("c/full/1", restore.ErrTooNew), ""},
		"a later etcd's":                       {plan, words("c/full/1", restore.ErrVersion), ""},
		"a disk that is full":                  {plan, words("c/full/1", restore.ErrSpace), ""},
	} {
		if got, found := damagedIn(tc.plan, fmt.Errorf("restore: %w", tc.err)); got != tc.want || found != (tc.want != "") {
			t.Errorf("%s: got %q, %t", name, got, found)
		}
	}
}

// What a store holds: fulls of revisions 3, 7 and 9, and deltas 4 to 7 and 8 to 9.
var (
	noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	f3   = catalog.FullKey("ns/c", oldLineage, 3, noon)
	d4   = catalog.DeltaKey("ns/c", oldLineage, 4, 7, noon.Add(time.Minute))
	f7   = catalog.FullKey("ns/c", oldLineage, 7, noon.Add(time.Minute))
	d8   = catalog.DeltaKey("ns/c", oldLineage, 8, 9, noon.Add(time.Hour))
	f9   = catalog.FullKey("ns/c", oldLineage, 9, noon.Add(time.Hour))
)

// ordered is the agent of a cluster that restores them.
func ordered(t *testing.T, order config.Restore) *Bootstrapper {
	t.Helper()
	order.Store, order.Prefix = storeJSON(t.TempDir()), "ns/c"
	b := alone(t)
	b.openStore = func(_ context.Context, c store.Config) (store.Store, error) { return dir.Open(*c.Directory) }
	s, err := b.storeOf(t.Context(), order.Store)
	must(t, err)
	for _, key := range []string{f3, d4, f7, d8, f9} {
		_, err := s.Put(t.Context(), key, strings.NewReader("x"), store.PutOptions{})
		must(t, err)
	}
	b.cfg.Restore, err = order.Encode()
	must(t, err)
	return b
}

// looks returns what the agent observes in the store.
func (b *Bootstrapper) looks(t *testing.T) observation {
	t.Helper()
	b.storeAnswer = storeAnswer{}
	o := observation{details: map[string]string{}}
	b.observeBackup(t.Context(), &o)
	return o
}

// finds lets the agent observe, and fails the restore of its plan because of a damaged object.
func (b *Bootstrapper) finds(t *testing.T, damaged string) {
	t.Helper()
	o := b.looks(t)
	if o.Backup != BackupPresent || !slices.Contains(objectsOf(o.storeAnswer.plan), damaged) {
		t.Fatalf("%s is in no plan: %s, %+v, %v", damaged, o.Backup, o.storeAnswer.plan, o.details)
	}
	var bad error = &snapshot.DamagedError{Object: damaged, Reason: "bad"}
	if strings.Contains(damaged, "/delta/") {
		bad = &delta.DamagedError{Object: damaged, Reason: "bad"}
	}
	b.restores.failed(o.storeAnswer.plan, o.storeAnswer.file, fmt.Errorf("restore: %w", bad), time.Now())
}

// TestDamageAvoidedIfNothingLost: damage is planned around where nothing is lost.
func TestDamageAvoidedIfNothingLost(t *testing.T) {
	moment := noon.Add(30 * time.Minute)
	for name, tc := range map[string]struct {
		order config.Restore
		// damaged are found one after another. left are the objects of the plan after that, none if user action is
		// needed.
		damaged, left []string
		// says is part of the reported reason, or of the last note of the plan.
		says []string
	}{
		"nothing":         {config.Restore{}, nil, []string{f9}, nil},
		"the newest full": {config.Restore{}, []string{f9}, []string{f7, d8}, []string{"after revision 9, if there are any, are not restored"}},
		"two fulls":       {config.Restore{}, []string{f9, f7}, []string{f3, d4, d8}, []string{"after revision 9, if there are any, are not restored"}},
		"every full": {config.Restore{}, []string{f9, f7, f3}, nil,
			[]string{"the backups cannot reach the requested state", "no full backup below", f7, "--without " + f3}},
		"the newest full and its delta": {config.Restore{}, []string{f9, d8}, nil, []string{"reach revision 7 of lineage", "instead of revision 9", d8}},
		"the full before a revision":    {config.Restore{Revision: 9}, []string{f7}, []string{f3, d4, d8}, []string{f7 + " is left out: "}},
		"the fulls before a revision":   {config.Restore{Revision: 9}, []string{f7, f3}, []string{f9}, []string{f7 + " is left out: "}},
		"the delta to a revision":       {config.Restore{Revision: 8}, []string{d8}, nil, []string{"the backups cannot reach the requested state"}},
		"the full of a moment":          {config.Restore{Time: &moment}, []string{f7}, []string{f3, d4, d8}, []string{f7 + " is left out: "}},
		"the delta of a moment":         {config.Restore{Time: &moment}, []string{d8}, nil, []string{"the backups cannot reach the requested state"}},
		"the full that is named":        {config.Restore{Name: path.Base(f9)}, []string{f9}, nil, []string{"the backups cannot reach the requested state"}},
		"the delta that is named":       {config.Restore{Name: path.Base(d8)}, []string{d8}, nil, []string{"the backups cannot reach the requested state"}},
		"the full before a named delta": {config.Restore{Name: path.Base(d8)}, []string{f7}, []string{f3, d4, d8}, []string{f7 + " is left out: "}},
	} {
		t.Run(name, func(t *testing.T) {
			b := ordered(t, tc.order)
			for _, key := range tc.damaged {
				b.finds(t, key)
			}
			o := b.looks(t)
			want, said := BackupPresent, strings.Join(o.storeAnswer.plan.Notes, "\n")
			if tc.left == nil {
				want, said = BackupUnusable, o.details["backup"]
				tc.says = append(tc.says, tc.damaged[0], "spec.bootstrap.restore.to", "--without "+tc.damaged[0])
			} else if slices.Sort(tc.damaged); !slices.Equal(o.storeAnswer.around, tc.damaged) {
				t.Errorf("left out are %v", o.storeAnswer.around)
			}
			if got := objectsOf(o.storeAnswer.plan); o.Backup != want || !slices.Equal(got, tc.left) {
				t.Errorf("got %s by %v, want %s by %v: %s", o.Backup, got, want, tc.left, o.details)
			}
			for _, says := range tc.says {
				if !strings.Contains(said, says) {
					t.Errorf("it says %q, want %q in it", said, says)
				}
			}
		})
	}
}

// TestBlockingDamageReadAgain: damage is looked at again where it is in the way.
func TestBlockingDamageReadAgain(t *testing.T) {
	b := ordered(t, config.Restore{Name: path.Base(f9)})
	b.finds(t, f9)
	if o := b.looks(t); o.Backup != BackupUnusable {
		t.Errorf("a moment later it is %s", o.Backup)
	}
	b.restores.at = b.restores.at.Add(-spoiledFor)
	b.finds(t, f9) // a good copy might have been there
	if o := b.looks(t); o.Backup != BackupUnusable || len(b.restores.damaged) != 1 {
		t.Errorf("damaged again it is %s by %v", o.Backup, b.restores.damaged)
	}
	around := ordered(t, config.Restore{})
	around.finds(t, f9)
	around.restores.at = around.restores.at.Add(-spoiledFor)
	if o := around.looks(t); o.storeAnswer.plan.Full.Key != f7 {
		t.Errorf("what it can do without is %s minutes later", o.storeAnswer.plan.Full.Key)
	}
}

// TestAllDamageReadAgainIfNoPlanLeft: all damage is looked at again where no way around is left.
// All objects are checked again. Any of them might have been repaired, and a plan without them can be impossible
// although no single object is the cause.
func TestAllDamageReadAgainIfNoPlanLeft(t *testing.T) {
	for name, vain := range map[string]func(*testing.T, *Bootstrapper){
		"every full is damaged": func(t *testing.T, b *Bootstrapper) { b.finds(t, f7); b.finds(t, f3) },
		"two histories": func(t *testing.T, b *Bootstrapper) {
			b.restores.failed(b.looks(t).storeAnswer.plan, store.Object{}, fmt.Errorf("%s: %w", d8, restore.ErrFork), time.Now())
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := ordered(t, config.Restore{})
			b.finds(t, f9)
			vain(t, b)
			if o := b.looks(t); o.Backup != BackupUnusable {
				t.Errorf("a moment later it is %s by %v", o.Backup, objectsOf(o.storeAnswer.plan))
			}
			b.restores.at = b.restores.at.Add(-spoiledFor)
			if o := b.looks(t); o.Backup != BackupPresent || o.storeAnswer.plan.Full.Key != f9 {
				t.Errorf("minutes later it is %s by %v", o.Backup, objectsOf(o.storeAnswer.plan))
			}
			b.finds(t, f9)
			if o := b.looks(t); o.Backup != BackupPresent || o.storeAnswer.plan.Full.Key != f7 {
				t.Errorf("then it is %s by %v", o.Backup, objectsOf(o.storeAnswer.plan))
			}
		})
	}
}

// TestDataObjectionsRemembered: what spoke against the data is not forgotten.
func TestDataObjectionsRemembered(t *testing.T) {
	lease := leases.Member{ID: 0xa, ClusterID: 0xc, VolumeUID: "vol", PodUID: "pod", Floor: leases.Raft{Term: 3, Committed: 50}}
	with := func(change func(*leases.Member)) ownLease { m := lease; change(&m); return ownLease{member: m} }
	formed := func(id uint64) recordState {
		return recordState{record: leases.Record{Phase: leases.PhaseFormed, ClusterID: id, Epoch: 2, FormedEpoch: 2}}
	}
	lost := errors.New("timeout")
	unread, unreadRecord := ownLease{err: lost}, recordState{err: lost}
	behind := with(func(m *leases.Member) { m.Floor.Committed = 51 })
	for name, tc := range map[string]struct {
		ownBefore, own       ownLease
		recordBefore, record recordState
		rule, says           string
	}{
		"nothing was read":         {unread, unread, unreadRecord, unreadRecord, "resume-majority", ""},
		"nothing spoke against it": {with(func(*leases.Member) {}), unread, formed(0xc), unreadRecord, "resume-majority", ""},
		"it went back in time":     {behind, unread, unreadRecord, unreadRecord, "lease-unread", "timeout"},
		"it is another volume's":   {with(func(m *leases.Member) { m.VolumeUID = "x" }), unread, unreadRecord, unreadRecord, "lease-unread", "timeout"},
		"another Pod bears the name": {with(func(m *leases.Member) { m.PodUID = "x" }), unread, unreadRecord, unreadRecord, "superseded",
			"names the Pod with UID x"},
		"it is of a group that was lost":       {unread, unread, formed(0xd), unreadRecord, "lease-unread", "timeout"},
		"it went back, and that is taken back": {behind, with(func(*leases.Member) {}), unreadRecord, unreadRecord, "resume-majority", ""},
		"it was lost, and that is taken back":  {unread, unread, formed(0xd), formed(0xc), "resume-majority", ""},
		"it went back, by a Lease of no Pod": {with(func(m *leases.Member) { m.Floor.Committed = 51 }),
			with(func(m *leases.Member) { m.PodUID, m.Floor.Committed = "", 51 }), unreadRecord, unreadRecord, "lease-unread", "has not written"},
	} {
		var h lastKnown
		h.hear(tc.ownBefore, tc.recordBefore)
		h.hear(tc.own, tc.record)
		f, details := classify(us, ourData, tc.own, tc.record)
		h.against(us, ourData, &f, func(fact, detail string) { details[fact] = detail })
		o := observation{Facts: f, details: details}
		if d := Decide(f); d.Rule != tc.rule || !strings.Contains(o.reason(d), tc.says) {
			t.Errorf("%s: got %s (%s), want %s (%s)", name, d.Rule, o.reason(d), tc.rule, tc.says)
		}
	}
}

// TestStaleVolumeStaysSoWithoutLease: a volume that went back in time stays so while the Lease cannot be read.
// A Lease was read a moment ago and cannot be read now. The volume is still stale.
func TestStaleVolumeStaysSoWithoutLease(t *testing.T) {
	noOne, err := leases.NewClient(&rest.Config{Host: "http://127.0.0.1:1"}, "default")
	must(t, err)
	b := alone(t)
	b.cfg.PodUID = us.PodUID
	b.store = leases.NewStore(noOne, "c")
	volume := ourData
	b.inspects = &volume
	b.lease = ownLease{member: leases.Member{ID: 0xa, ClusterID: 0xc, VolumeUID: "vol", PodUID: "pod", Floor: leases.Raft{Term: 3, Committed: 51}}}
	b.leaseAt = time.Now().Add(time.Hour) // however long the test takes
	for _, fresh := range []bool{false, true} {
		o := b.observe(t.Context(), launch.Report{}, fresh)
		if o.Data != Stale || (o.own.err != nil) != fresh || Decide(o.Facts).Mode != ModeWait {
			t.Errorf("read again: %t (%v): the data is %s, and so %+v", fresh, o.own.err, o.Data, Decide(o.Facts))
		}
	}
}
