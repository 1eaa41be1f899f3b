package catalog

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/backup/store/dir"
	"github.com/etcd-druid/druid/backup/store/storetest"
)

func newStore(t *testing.T) store.Store {
	t.Helper()
	s, err := dir.Open(store.Directory{Path: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func put(t *testing.T, s store.Store, key, content string) {
	t.Helper()
	if _, err := s.Put(t.Context(), key, strings.NewReader(content), store.PutOptions{IfAbsent: true}); err != nil {
		t.Fatal(err)
	}
}

func TestReadMakesACatalogOfOneListing(t *testing.T) {
	for _, p := range []string{prefix, ""} {
		s := newStore(t)
		formation := Formation{Version: 1, Lineage: second, Parent: first, Fork: 20, Reason: "restore", ClusterID: "c", ClusterUID: "u",
			EtcdVersion: "3.6.16", Created: at(30)}
		if err := WriteBootstrap(t.Context(), s, p, formation); err != nil {
			t.Fatal(err)
		}
		f, d := FullKey(p, first, 17, noon), DeltaKey(p, first, 18, 20, at(1))
		put(t, s, f, "full")
		put(t, s, d, "delta!")
		unknownObject, outside := join(p, string(first)+"/full/readme.txt"), join(p, "notes/readme.txt")
		put(t, s, unknownObject, "")
		put(t, s, outside, "")
		put(t, s, join(p, string(third)+"/lineage.json"), "{")
		if p != "" {
			put(t, s, prefix+"2/"+string(first)+"/full/x", "another cluster's, whose name begins alike")
		}
		got, err := Read(t.Context(), s, p)
		if err != nil {
			t.Fatal(err)
		}
		if problem := got.Histories[2].BootstrapProblem; !strings.Contains(problem, join(p, string(third)+"/lineage.json")) {
			t.Errorf("got %q, want the record named", problem)
		}
		got.Histories[2].BootstrapProblem = ""
		if age := time.Since(got.Newest); age < 0 || age > time.Hour {
			t.Errorf("the newest object is from %v, and was just put", got.Newest)
		}
		got.Newest = time.Time{}
		diff(t, got, Catalog{Prefix: p, UnknownObjects: []string{outside}, Histories: []History{
			{
				Lineage: first, BootstrapProblem: "there is no " + BootstrapKey(p, first), UnknownObjects: []string{unknownObject},
				Fulls:  []Full{{Lineage: first, Key: f, Revision: 17, At: noon, Size: 4}},
				Deltas: []Delta{{Lineage: first, Key: d, From: 18, To: 20, At: at(1), Size: 6}},
			},
			{Lineage: second, Formation: &formation},
			{Lineage: third},
		}})
	}
}

// TestObjectAgeByStoreClock: an object is at least as old as the store reports.
// A single object from a clock that was ahead neither ends each restore by time at that object nor stops retention of
// older objects. The clock of the store may differ by what S3 allows.
func TestObjectAgeByStoreClock(t *testing.T) {
	path := t.TempDir()
	s, err := dir.Open(store.Directory{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	day := func(n int) time.Time { return begin.AddDate(0, 0, n) }
	save := func(key string, when time.Time) string {
		t.Helper()
		put(t, s, key, "content")
		if err := os.Chtimes(filepath.Join(path, key), when, when); err != nil {
			t.Fatal(err)
		}
		return key
	}
	var poisoned, poisonedFull string
	for n := range 10 {
		rev := int64(1 + 10*n)
		taken, closed := day(n), day(n).Add(12*time.Hour)
		switch n {
		case 2:
			closed = time.Date(2038, 1, 19, 3, 14, 7, 0, time.UTC)
		case 4:
			taken = day(8)
		}
		f := save(FullKey(prefix, first, rev, taken), day(n))
		d := save(DeltaKey(prefix, first, rev+1, rev+10, closed), day(n).Add(12*time.Hour-clockSkew))
		switch n {
		case 2:
			poisoned = d
		case 4:
			poisonedFull = f
		}
	}
	c, err := Read(t.Context(), s, prefix)
	if err != nil {
		t.Fatal(err)
	}
	for target, want := range map[time.Time]int64{
		day(1).Add(time.Hour): 21, day(2).Add(20 * time.Hour): 41, day(5).Add(time.Hour): 61, day(9).Add(time.Hour): 101,
	} {
		if p, err := c.Plan(Target{Time: target}); err != nil || p.Reach != want {
			t.Errorf("to %s: reaches revision %d, %v, want %d", target, p.Reach, err, want)
		}
	}
	p, err := c.Plan(Target{Time: day(2).Add(20 * time.Hour)})
	if err != nil || !strings.Contains(strings.Join(p.Notes, " "), "the name of "+poisoned+" gives the time 2038-01-19") {
		t.Errorf("the plan's notes are %q, %v, want the delta of 2038 named", p.Notes, err)
	}
	gone := map[string]bool{}
	for _, v := range c.Retain(first, Policy{KeepAll: 48 * time.Hour}, Evidence{}, day(10)) {
		gone[v.Key] = !v.Keep
	}
	if !gone[poisoned] || !gone[poisonedFull] {
		t.Errorf("objects of a clock that was ahead stay for longer than the others: %v", gone)
	}
	for _, h := range c.Histories {
		for i, d := range h.Deltas {
			if want := day(i).Add(12 * time.Hour); i != 2 && !d.At.Equal(want) {
				t.Errorf("delta %d is of %s, want %s, within what clocks may differ by", i, d.At, want)
			}
		}
	}
}

// The record of a lineage that a clock ahead wrote hides no writes: a time after the fork belongs to the new lineage. Where the store does
// not know better, the first object of the lineage does.
func TestBootstrapAgeByStoreClock(t *testing.T) {
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	hour := func(n int) time.Time { return begin.Add(time.Duration(n) * time.Hour) }
	for name, test := range map[string]struct {
		created, modified time.Time
		target            time.Time
		want              Lineage // empty: no backup has that state
		reach             int64
	}{
		"before the fork":                                     {hour(10), hour(10), hour(9), first, 20},
		"after the fork":                                      {hour(10), hour(10), hour(12), second, 40},
		"a clock that was ahead":                              {hour(14), hour(10), hour(12), second, 40},
		"a clock that was ahead, and before":                  {hour(14), hour(10), hour(9), first, 20},
		"a clock that was ahead, and before the first backup": {hour(14), hour(10), hour(10).Add(30 * time.Minute), "", 0},
		"a copy of the store":                                 {hour(14), hour(99), hour(12), second, 40},
		"a copy of the store, and before":                     {hour(14), hour(99), hour(9), first, 20},
		"a record that was written late":                      {hour(10), hour(13), hour(12), second, 40},
		"a store that does not know the time":                 {hour(14), time.Unix(0, 0), hour(12), second, 40},
	} {
		path := t.TempDir()
		s, err := dir.Open(store.Directory{Path: path})
		if err != nil {
			t.Fatal(err)
		}
		save := func(key string, when time.Time) {
			t.Helper()
			put(t, s, key, "content")
			if err := os.Chtimes(filepath.Join(path, key), when, when); err != nil {
				t.Fatal(err)
			}
		}
		for _, f := range []Formation{{Lineage: first, Created: begin}, {Lineage: second, Parent: first, Fork: 20, Created: test.created}} {
			if err := WriteBootstrap(t.Context(), s, prefix, f); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chtimes(filepath.Join(path, BootstrapKey(prefix, second)), test.modified, test.modified); err != nil {
			t.Fatal(err)
		}
		save(FullKey(prefix, first, 10, begin), begin)
		save(DeltaKey(prefix, first, 11, 20, hour(9)), hour(9))
		save(FullKey(prefix, second, 30, hour(11)), hour(11))
		save(DeltaKey(prefix, second, 31, 40, hour(12)), hour(12))
		c, err := Read(t.Context(), s, prefix)
		if err != nil {
			t.Fatal(err)
		}
		p, err := c.Plan(Target{Time: test.target})
		if p.Full.Lineage != test.want || p.Reach != test.reach || errors.Is(err, ErrOutside) != (test.want == "") {
			t.Errorf("%s: to revision %d of lineage %s, %v; want %d of %s", name, p.Reach, p.Full.Lineage, err, test.reach, test.want)
		}
	}
}

// Files to which an archiver gave the time 0 are not older than their names say. Otherwise retention would delete
// them, and a restore by time would include too much.
func TestATimeThatNoStoreHasIsNotKnown(t *testing.T) {
	said := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, modified := range []time.Time{{}, time.Unix(0, 0), said.Add(-clockSkew), said, said.AddDate(1, 0, 0)} {
		if at := notAfter(said, modified); !at.Equal(said) {
			t.Errorf("modified at %s: %s, want %s", modified, at, said)
		}
	}
	if at, modified := notAfter(said, said.Add(-time.Hour)), said.Add(-time.Hour); !at.Equal(modified) {
		t.Errorf("modified an hour before: %s, want %s", at, modified)
	}
}

// failing is a store that does not respond.
type failing struct {
	store.Store
	get error
}

func (f failing) Get(context.Context, string, int64, int64) (io.ReadCloser, error) { return nil, f.get }

func TestReadTakesNoErrorForAnAnswer(t *testing.T) {
	s := newStore(t)
	if err := WriteBootstrap(t.Context(), s, prefix, Formation{Lineage: first}); err != nil {
		t.Fatal(err)
	}
	if c, err := Read(t.Context(), failing{s, store.ErrForbidden}, prefix); !errors.Is(err, store.ErrForbidden) {
		t.Errorf("a record that may not be read gives %+v, %v", c, err)
	}
	// It was deleted after the listing.
	c, err := Read(t.Context(), failing{s, store.ErrAbsent}, prefix)
	if err != nil || c.Histories[0].Formation != nil || c.Histories[0].BootstrapProblem == "" {
		t.Errorf("a record that is gone gives %+v, %v", c, err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if c, err := Read(ended, s, prefix); !errors.Is(err, context.Canceled) {
		t.Errorf("a listing that ends gives %+v, %v", c, err)
	}
}

func TestAReadIsGivenUpOnlyWhenNothingComes(t *testing.T) {
	const maxWait, pace = time.Minute, 50 * time.Second
	lineages := []Lineage{first, second}
	for name, test := range map[string]struct {
		hangs int
		want  time.Duration
	}{
		"a store that is slow": {0, 6 * pace}, // two records and two fulls are listed, and the records read
		"a store that hangs":   {3, 3*pace + maxWait},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStore(t)
				for _, l := range lineages {
					if err := WriteBootstrap(t.Context(), s, prefix, Formation{Lineage: l}); err != nil {
						t.Fatal(err)
					}
					put(t, s, FullKey(prefix, l, 1, at(1)), "x")
				}
				ctx, cancel := store.Patient(t.Context(), maxWait)
				defer cancel()
				began := time.Now()
				c, err := Read(ctx, storetest.Slow{Store: s, Pace: pace, Hangs: test.hangs}, prefix)
				if took := time.Since(began); took != test.want {
					t.Errorf("it took %s, want %s", took, test.want)
				}
				if test.hangs == 0 && (err != nil || len(c.Histories) != len(lineages) || c.Histories[1].Formation == nil) {
					t.Errorf("read %+v, %v", c, err)
				}
				if test.hangs > 0 && (err == nil || !strings.Contains(err.Error(), "the store sent no data for 1m0s")) {
					t.Errorf("read %+v, %v", c, err)
				}
			})
		})
	}
}
