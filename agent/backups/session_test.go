package backups

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/backup/store/open"
	"github.com/etcd-druid/druid/backup/store/storetest"
)

// threeFulls is a group of one member, and a store with three full backups of which retention keeps two.
func threeFulls(t *testing.T) (*group, *config.Backup, store.Store) {
	t.Helper()
	g := newGroup(t, 1)
	c := directory(t.TempDir())
	c.Retention = config.Retention{Count: 1}
	files := opened(t, c)
	for revision := range int64(3) {
		mustPut(t, files, catalog.FullKey(prefix, lineage, revision+1, time.Now()), "full")
	}
	return g, c, files
}

// TestNoDeletionDuringCorruptAlarm: nothing is deleted while the alarm of corruption stands.
func TestNoDeletionDuringCorruptAlarm(t *testing.T) {
	t.Parallel()
	g, c, files := threeFulls(t)
	_, _, agentOf := snapshotLeases(t) // which report what is known of the backups
	s, err := agentOf(g, 0).begin(t.Context(), *c, g.self(0))
	if err != nil {
		t.Fatal(err)
	}
	alarm := func(action etcdserverpb.AlarmRequest_AlarmAction) {
		t.Helper()
		_, err := g.members[0].Server.Alarm(t.Context(), &etcdserverpb.AlarmRequest{
			Action: action, MemberID: g.self(0).MemberID, Alarm: etcdserverpb.AlarmType_CORRUPT,
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	alarm(etcdserverpb.AlarmRequest_ACTIVATE)
	if err := s.retain(t.Context()); !errors.Is(err, errCorrupt) {
		t.Errorf("got %v, want errCorrupt", err)
	}
	if n := len(history(t, files).Fulls); n != 3 {
		t.Errorf("%d fulls are left of 3", n)
	}
	alarm(etcdserverpb.AlarmRequest_DEACTIVATE)
	if err := s.retain(t.Context()); err != nil {
		t.Error(err)
	}
	if n := len(history(t, files).Fulls); n != 2 {
		t.Errorf("%d fulls are left, want the one that counts and the one before it", n)
	}
}

// look runs one look of a session without a loop, and returns its result.
func look(t *testing.T, s *session) error {
	t.Helper()
	if s.client == nil {
		client, done, err := s.Dial(t.Context(), s.Local)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { done(nil) })
		s.client = client
	}
	err := s.look(t.Context())
	s.resolvePending()
	return err
}

// TestUnreadableRecordStopsDeletion: a record that cannot be read stops deletion alone.
func TestUnreadableRecordStopsDeletion(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 1)
	c := directory(t.TempDir())
	client, files := g.client(0), opened(t, c)
	mustPut(t, files, catalog.BootstrapKey(prefix, lineage), "{")
	a := g.newAgent(0, nil, "default")
	a.Configure(c)
	a.start()
	savedUpTo(t, files, put(t, client, 5))
	eventually(t, "it is reported while all is saved", func() error {
		s, _ := a.at()
		if s == nil {
			return errors.New("no session")
		}
		p, _ := s.reporter.deltaPatch(time.Now())
		if !strings.Contains(p.Backup.Error, catalog.BootstrapKey(prefix, lineage)) || !s.whole.Load() || s.sound.Load() {
			return fmt.Errorf("whole %t, sound %t, reported %q", s.whole.Load(), s.sound.Load(), p.Backup.Error)
		}
		return nil
	})
	if _, err := a.Snapshot(t.Context(), kindDelta); err != nil {
		t.Errorf("a delta on demand: %v", err)
	}
}

// archived is a bucket in which a rule moved a record to an archive: the record is listed, but reading it fails.
type archived struct{ store.Store }

const archivedLineage = catalog.Lineage("00000000-old")

func (s archived) Get(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	if key == catalog.BootstrapKey(prefix, archivedLineage) {
		return nil, fmt.Errorf("get %s: 403 InvalidObjectState: %w", key, store.ErrForbidden)
	}
	return s.Store.Get(ctx, key, offset, length)
}

// TestRefusedLineageStopsDeletion: a record of another lineage that is refused stops deletion alone.
func TestRefusedLineageStopsDeletion(t *testing.T) {
	g := newGroup(t, 1)
	c := directory(t.TempDir())
	files := opened(t, c)
	if err := catalog.WriteBootstrap(t.Context(), files, prefix, catalog.Formation{Lineage: archivedLineage, Created: time.Now()}); err != nil {
		t.Fatal(err)
	}
	a := g.newAgent(0, nil, "default")
	a.Open = func(ctx context.Context, c store.Config) (store.Store, error) {
		s, err := open.Open(ctx, c)
		return archived{s}, err
	}
	a.Configure(c)
	a.start()
	savedUpTo(t, files, put(t, g.client(0), 5))
	eventually(t, "the record is named while all is saved", func() error {
		s, _ := a.at()
		if s == nil {
			return errors.New("no session")
		}
		p, _ := s.reporter.deltaPatch(time.Now())
		if !strings.Contains(p.Backup.Error, string(archivedLineage)) || !s.whole.Load() || s.sound.Load() {
			return fmt.Errorf("whole %t, sound %t, the Lease says %q", s.whole.Load(), s.sound.Load(), p.Backup.Error)
		}
		if _, _, err := s.survey(t.Context()); err == nil || !strings.Contains(err.Error(), "nothing is deleted") {
			return fmt.Errorf("retention looks at a place that it does not know: %w", err)
		}
		return nil
	})
	if _, err := catalog.Read(t.Context(), archived{files}, prefix); !errors.Is(err, store.ErrForbidden) {
		t.Errorf("a restore is planned next to a lineage that cannot be read: %v", err)
	}
}

func TestWhichHistoryIsNewerThanOurs(t *testing.T) {
	t.Parallel()
	const ours = catalog.Lineage("00000003-ours")
	saved := []catalog.Full{{Revision: 1}}
	history := func(l, parent catalog.Lineage, fulls []catalog.Full) catalog.History {
		return catalog.History{Lineage: l, Fulls: fulls, Formation: &catalog.Formation{Lineage: l, Parent: parent}}
	}
	for name, test := range map[string]struct {
		parent    catalog.Lineage
		histories []catalog.History
		want      catalog.Lineage
	}{
		"no-one":                                   {},
		"ours":                                     {histories: []catalog.History{history(ours, "", saved)}},
		"a predecessor that was deleted":           {histories: []catalog.History{history("00000002-a", "", saved)}},
		"a higher epoch":                           {histories: []catalog.History{history("00000004-a", "", saved)}, want: "00000004-a"},
		"a child of ours":                          {histories: []catalog.History{history("00000004-a", ours, saved)}, want: "00000004-a"},
		"the same epoch":                           {histories: []catalog.History{history("00000003-a", "", saved)}, want: "00000003-a"},
		"nothing reports whose, and a delta":       {histories: []catalog.History{{Lineage: "00000004-a", Deltas: []catalog.Delta{{To: 1}}}}, want: "00000004-a"},
		"an attempt that saved nothing":            {histories: []catalog.History{history("00000004-a", "", nil)}},
		"our parent, as our record reports":        {histories: []catalog.History{history(ours, "00000004-a", saved), history("00000004-a", "", saved)}},
		"our parent, as the identity file reports": {parent: "00000004-a", histories: []catalog.History{history("00000004-a", "", saved)}},
		"our grandparent": {parent: "00000004-a",
			histories: []catalog.History{history("00000004-a", "00000005-b", nil), history("00000005-b", "", saved)}},
		"a sibling": {parent: "00000001-a",
			histories: []catalog.History{history("00000001-a", "", saved), history("00000003-b", "00000001-a", saved)}, want: "00000003-b"},
		"ancestors that say to be each other": {parent: "00000004-a",
			histories: []catalog.History{history("00000004-a", "00000005-b", saved), history("00000005-b", "00000004-a", saved)}},
	} {
		t.Run(name, func(t *testing.T) {
			got, found := superseding(catalog.Catalog{Histories: test.histories}, Identity{Lineage: ours, Parent: test.parent})
			if got != test.want || found != (test.want != "") {
				t.Errorf("got %q, %t; want %q", got, found, test.want)
			}
		})
	}
}

// TestSupersededClusterDeletesNothing: a superseded cluster deletes nothing until it is alone.
func TestSupersededClusterDeletesNothing(t *testing.T) {
	t.Parallel()
	const other = catalog.Lineage("00000002-beef")
	g := newGroup(t, 1)
	c := directory(t.TempDir())
	c.Retention = config.Retention{Count: 1}
	files := opened(t, c)
	for revision := range int64(3) {
		mustPut(t, files, catalog.FullKey(prefix, other, revision+1, time.Now()), "full")
	}
	put(t, g.client(0), 5)
	a := g.newAgent(0, nil, "default")
	s, err := a.begin(t.Context(), *c, g.self(0))
	if err != nil {
		t.Fatal(err)
	}
	if err := look(t, s); err != nil || s.catalogState != CatalogEmpty || s.doubt == nil || s.sound.Load() {
		t.Errorf("%v; catalog %s, sound %t", err, s.catalogState, s.sound.Load())
	}
	if err := s.retain(t.Context()); err == nil || !strings.Contains(err.Error(), string(other)) {
		t.Errorf("retention: %v", err)
	}
	s.observe(t.Context())
	for _, patch := range []patcher{s.reporter.fullPatch, s.reporter.deltaPatch} {
		if p, _ := patch(time.Now()); !strings.Contains(p.Backup.Error, string(other)) {
			t.Errorf("reported is %q", p.Backup.Error)
		}
	}
	listed, err := catalog.Read(t.Context(), files, prefix)
	h, _ := listed.History(other)
	if err != nil || len(h.Fulls) != 3 {
		t.Errorf("something was deleted: %+v (%v)", listed, err)
	}
	for _, f := range h.Fulls {
		if err := files.Delete(t.Context(), f.Key); err != nil {
			t.Fatal(err)
		}
	}
	if err := look(t, s); err != nil || s.catalogState != CatalogEmpty || s.doubt != nil {
		t.Errorf("alone: %v; catalog %s, doubt %v", err, s.catalogState, s.doubt)
	}
}

// TestLateBootstrapRecordNamesParent: a bootstrap that is recorded late names its parent.
func TestLateBootstrapRecordNamesParent(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 1)
	c := directory(t.TempDir())
	self := g.self(0)
	self.Parent, self.Fork, self.Forked = "00000001-dead", 7, time.Now().Add(-time.Hour).UTC().Truncate(time.Second)
	s, err := g.newAgent(0, nil, "default").begin(t.Context(), *c, self)
	if err != nil {
		t.Fatal(err)
	}
	if err := look(t, s); err != nil {
		t.Fatal(err)
	}
	if b := history(t, opened(t, c)).Formation; b == nil || b.Parent != self.Parent || b.Fork != self.Fork || b.Reason != "restore" ||
		!b.Created.Equal(self.Forked) {
		t.Errorf("recorded is %+v", b)
	}
}

// TestLeaseNamesSupersedingLineage: the Lease names the lineage that supersedes ours.
// The same place has backups of a predecessor with a higher epoch, which a restore of the latest state would use. The
// Lease reports that, saving continues, and the report ends when they are deleted.
func TestLeaseNamesSupersedingLineage(t *testing.T) {
	t.Parallel()
	const other = catalog.Lineage("0000ffff-old")
	g := newGroup(t, 1)
	c := directory(t.TempDir())
	files := opened(t, c)
	key := catalog.FullKey(prefix, other, 7, time.Now())
	mustPut(t, files, key, "full")
	a := g.newAgent(0, nil, "default")
	a.Configure(c)
	a.start()
	savedUpTo(t, files, put(t, g.client(0), 5))
	says := func(want catalog.Lineage) {
		t.Helper()
		eventually(t, fmt.Sprintf("superseded by %q", want), func() error {
			s, _ := a.at()
			if s == nil {
				return errors.New("no session")
			}
			if p, _ := s.reporter.fullPatch(time.Now()); p.Backup.SupersededBy != string(want) {
				return fmt.Errorf("the Lease names %q, with error %q", p.Backup.SupersededBy, p.Backup.Error)
			}
			return nil
		})
	}
	says(other)
	if err := files.Delete(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	a.Configure(nil)
	eventually(t, "the session ends", func() error {
		if s, _ := a.at(); s != nil {
			return errors.New("there is one")
		}
		return nil
	})
	a.Configure(c)
	says("")
}

func TestAListingMayTakeLongAndMayNotHang(t *testing.T) {
	for name, test := range map[string]struct {
		slow     storetest.Slow
		took     time.Duration
		reported string
	}{
		"objects come slowly":   {storetest.Slow{Pace: store.MaxWait - time.Second}, 10 * (store.MaxWait - time.Second), ""},
		"objects come no more":  {storetest.Slow{Pace: time.Second, Hangs: 4}, 4*time.Second + store.MaxWait, "the store sent no data for 2m0s"},
		"the first never comes": {storetest.Slow{Pace: store.MaxWait + time.Second}, store.MaxWait, "the store sent no data for 2m0s"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				test.slow.Store = opened(t, directory(t.TempDir()))
				for i := range int64(10) {
					mustPut(t, test.slow.Store, catalog.FullKey(prefix, lineage, 1+i, time.Now()), "x")
				}
				began := time.Now()
				c, _, err := catalogOf(t.Context(), test.slow, prefix)
				if took := time.Since(began); took != test.took {
					t.Errorf("it took %s, want %s", took, test.took)
				}
				if test.reported == "" && (err != nil || len(c.Histories[0].Fulls) != 10) {
					t.Errorf("listed %+v, %v", c, err)
				}
				if test.reported != "" && (err == nil || !strings.Contains(err.Error(), test.reported)) {
					t.Errorf("reported %v, want %q", err, test.reported)
				}
			})
		})
	}
}
