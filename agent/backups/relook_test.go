package backups

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/etcd-druid/druid/backup/chain"
)

// seesAgain is an agent that looks at the store often while it saves.
func seesAgain(t *testing.T) (g *group, a *neighbour) {
	t.Helper()
	g = newGroup(t, 1)
	a = g.newAgent(0, nil, "default")
	a.relook = 200 * time.Millisecond
	return g, a
}

func TestBackupsThatVanishAreMissedWhileTheRecorderRuns(t *testing.T) {
	t.Parallel()
	g, a := seesAgain(t)
	c := directory(t.TempDir())
	a.Configure(c)
	a.start()
	client, files := g.client(0), opened(t, c)
	savedUpTo(t, files, put(t, client, 5))
	eventually(t, "the chain is whole", func() error {
		if s, _ := a.at(); !s.whole.Load() {
			return errors.New("not yet")
		}
		return nil
	})
	for _, f := range history(t, files).Fulls {
		if err := files.Delete(t.Context(), f.Key); err != nil {
			t.Fatal(err)
		}
	}
	last := put(t, client, 5)
	savedUpTo(t, files, last)
	proven(t, files, client, last)
	// A hole behind the newest full.
	last = put(t, client, 5)
	savedUpTo(t, files, last)
	h := history(t, files)
	before := len(h.Fulls)
	newest := h.Fulls[before-1]
	for _, d := range h.Deltas {
		if d.To > newest.Revision {
			if err := files.Delete(t.Context(), d.Key); err != nil {
				t.Fatal(err)
			}
		}
	}
	savedUpTo(t, files, last)
	if h := history(t, files); len(h.Fulls) <= before || a.fired("broken") == 0 {
		t.Errorf("%d fulls, %d before; rule broken fired %v times", len(h.Fulls), before, a.fired("broken"))
	}
	last = put(t, client, 5)
	savedUpTo(t, files, last)
	proven(t, files, client, last)
	restored(t, files, client, last)
}

func TestWhoComesIntoOurPlaceIsReportedAndNothingIsDeletedAnyMore(t *testing.T) {
	t.Parallel()
	g, a := seesAgain(t)
	c := directory(t.TempDir())
	a.Configure(c)
	a.start()
	client, files := g.client(0), opened(t, c)
	savedUpTo(t, files, put(t, client, 5))
	mustPut(t, files, chain.FullKey(prefix, "00000002-beef", 9, time.Now()), "full")
	eventually(t, "it reports, and saves on", func() error {
		s, _ := a.at()
		s.orders.mu.Lock()
		recording := s.orders.recorder != nil
		s.orders.mu.Unlock()
		p, _ := s.inform.fullPatch(time.Now())
		if !recording || s.sound.Load() || !strings.Contains(p.Backup.Error, "00000002-beef") {
			return fmt.Errorf("recording %t, sound %t, reported %q", recording, s.sound.Load(), p.Backup.Error)
		}
		return nil
	})
}

func TestWhatAReviewMakesOfTheChain(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 1)
	c := directory(t.TempDir())
	client, files := g.client(0), opened(t, c)
	last := put(t, client, 10)
	full := chain.FullKey(prefix, lineage, last-5, time.Now())
	mustPut(t, files, full, "full")
	s, err := g.newAgent(0, nil, "default").begin(t.Context(), *c, g.self(0))
	if err != nil {
		t.Fatal(err)
	}
	if err := look(t, s); err != nil || s.chain != ChainWhole {
		t.Fatalf("%v; chain %s", err, s.chain)
	}
	if _, err := client.Compact(t.Context(), last); err != nil { // the recorder has what follows
		t.Fatal(err)
	}
	review := func(saved int64, want Chain) {
		t.Helper()
		s.chain = ChainWhole
		if err := s.review(t.Context(), saved); err != nil || s.chain != want {
			t.Errorf("up to %d was saved: %v; chain %s, want %s", saved, err, s.chain, want)
		}
	}
	review(last-5, ChainWhole)
	review(last-4, ChainBroken)
	mustPut(t, files, chain.FullKey(prefix, lineage, last+1000, time.Now()), "full")
	review(last-5, ChainAhead)
	s.chain = ChainBehind // a full is on its way, and no look makes the chain whole before it
	if err := s.review(t.Context(), 0); err != nil || s.chain != ChainAhead {
		t.Errorf("far behind and ahead at once: %v; chain %s", err, s.chain)
	}
	for _, f := range history(t, files).Fulls {
		if err := files.Delete(t.Context(), f.Key); err != nil {
			t.Fatal(err)
		}
	}
	review(last-5, ChainEmpty)
}
