package backups

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/backup/snapshot"
	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/backup/store/open"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/test/rulestest"
)

// TestBrokenFullReplacedForAllFacts: a broken full is replaced at a rest for all facts.
func TestBrokenFullReplacedForAllFacts(t *testing.T) {
	cases := rulestest.Check(t, replaceRules, func(f ReplaceFacts, d rules.Decision[Replacement]) string {
		got := d.Verdict
		switch {
		case (got == NoReplacement) != (f.Broken == rules.No):
			return "replaces what is not broken, or leaves what is"
		case got == ReplaceNow && f.Repeated == rules.Yes && f.Rested == rules.No:
			return "a full without a pause"
		case got == MoveLeader && (f.Repeated == rules.No || f.Few == rules.No):
			return "leadership moves too early, or again"
		}
		return ""
	})
	rulestest.Section(t, "../../docs/reference/decisions.md", "replace", "Replacement of a broken full backup: agent/backups.replaceRules",
		"It is `found broken` of the table of what is backed up. The pause is 10 minutes after the second full of a leader, and doubles up to 6 hours.",
		replaceRules, cases)
}

// TestFullsCountedSinceVerified: full backups are counted since the last verified one.
func TestFullsCountedSinceVerified(t *testing.T) {
	r := replacing{fulls: keysOf([]catalog.Full{{Key: "a"}, {Key: "b"}, {Key: "c"}})}
	for verified, want := range map[string]int{"": 3, "a": 2, "c": 0, "gone": 3} {
		if got := r.unverified(verified); got != want {
			t.Errorf("%d full backups since %q, want %d", got, verified, want)
		}
	}
}

// TestTwoBrokenFullsMoveLeadership: leadership moves after two broken full backups that follow a verified one.
// The verdict about the first full backup can arrive after the second one was taken.
func TestTwoBrokenFullsMoveLeadership(t *testing.T) {
	s := &session{
		reporter:  &reporter{verified: leases.Verification{Verdict: leases.VerdictBroken, Full: "c", VerifiedFull: "a"}},
		newest:    catalog.Full{Key: "c"},
		replacing: replacing{fulls: []string{"a", "b", "c"}, taken: attempts{failures: 1}},
	}
	if got := s.replacement(time.Now()); got != MoveLeader {
		t.Errorf("got %s, want %s", got, MoveLeader)
	}
}

// The data of a leader was found to differ after its full backup, and it does not lead any more. The next leader does not continue that
// backup: it takes another one, unless a verification found the first one to be intact.
func TestFullOfDifferingMemberReplaced(t *testing.T) {
	for name, test := range map[string]struct {
		verified bool
		fulls    int
	}{"never verified": {false, 2}, "verified": {true, 1}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, _, agentOf := snapshotLeases(t)
			g := newGroup(t, 2)
			c := directory(t.TempDir())
			s := opened(t, c)
			former := agentOf(g, g.leader())
			former.Configure(c)
			stop := former.start()
			savedUpTo(t, s, put(t, g.client(g.leader()), 20))
			stop()
			by := g.self(g.leader()).MemberID
			if test.verified {
				full := history(t, s).Fulls[0].Key
				v := leases.Verification{Verdict: leases.VerdictVerified, At: time.Now(), Full: full, VerifiedFull: full, Lineage: string(lineage)}
				if err := former.Leases.ReportVerification(t.Context(), v); err != nil {
					t.Fatal(err)
				}
			}
			g.move()
			later := agentOf(g, g.leader())
			later.Differed = func() []uint64 { return []uint64{7, by} }
			later.Configure(c)
			later.start()
			savedUpTo(t, s, put(t, g.client(g.leader()), 20))
			eventually(t, "the backups are complete", func() error {
				fulls := history(t, s).Fulls
				if later.fired("saved") == 0 || len(fulls) < test.fulls {
					return fmt.Errorf("%d fulls", len(fulls))
				}
				return nil
			})
			fulls := history(t, s).Fulls
			trailer, err := snapshot.ReadTrailer(t.Context(), s, fulls[len(fulls)-1].Key, fulls[len(fulls)-1].Size)
			if err != nil || len(fulls) != test.fulls || (uint64(trailer.MemberID) == by) != test.verified {
				t.Errorf("%d fulls, the last one by %x (%v), want %d", len(fulls), uint64(trailer.MemberID), err, test.fulls)
			}
		})
	}
}

// rotten damages each full backup on its way into the store, as a member with a damaged database page does. If a limit
// is set, the store accepts no more after it.
type rotten struct {
	store.Store

	puts  *atomic.Int64
	takes int64
}

var errTakesNone = errors.New("the store takes no more")

func (s rotten) Put(ctx context.Context, key string, r io.Reader, o store.PutOptions) (store.Object, error) {
	if strings.Contains(key, "/full/") {
		if n := s.puts.Add(1); s.takes > 0 && n > s.takes {
			return store.Object{}, errTakesNone
		}
		r = &flipped{r: r}
	}
	return s.Store.Put(ctx, key, r, o)
}

type flipped struct {
	r    io.Reader
	done bool
}

func (f *flipped) Read(p []byte) (int, error) {
	n, err := f.r.Read(p)
	if !f.done && n > 600 {
		p[500] ^= 1
		f.done = true
	}
	return n, err
}

// rottenAgent takes invalid full backups and counts how often it moves leadership.
func rottenAgent(t *testing.T, takes int64) (a *neighbour, c *config.Backup, puts *atomic.Int64, handed chan struct{}) {
	t.Helper()
	_, _, agentOf := snapshotLeases(t)
	g := newGroup(t, 1)
	c = directory(t.TempDir())
	c.Verify = config.Verify{Schedule: "0 3 * * *"}
	a = agentOf(g, 0)
	handed, puts = make(chan struct{}, 10), &atomic.Int64{}
	a.MoveLeader = func(context.Context) { handed <- struct{}{} }
	a.Scratch, a.verificationLook, a.verificationReserve = t.TempDir(), 100*time.Millisecond, 0
	a.Open = func(ctx context.Context, c store.Config) (store.Store, error) {
		s, err := open.Open(ctx, c)
		return rotten{s, puts, takes}, err
	}
	a.Configure(c)
	put(t, g.client(0), 20)
	background(t, a.VerifyBackups)
	a.start()
	return a, c, puts, handed
}

// TestFailedFullHandsNothingOn: a full backup that failed hands nothing on to the next one.
// A store that accepts no full backup says nothing about the member: leadership stays, and the backup is retried like
// any other.
func TestFailedFullHandsNothingOn(t *testing.T) {
	a, _, puts, handed := rottenAgent(t, 1)
	eventually(t, "the full is tried again", func() error {
		if n := puts.Load(); n < 4 {
			return fmt.Errorf("%d attempts", n)
		}
		return nil
	})
	if n := a.fired("found-broken"); n < 2 || len(handed) != 0 {
		t.Errorf("%v replacements were begun, and leadership was handed on %d times", n, len(handed))
	}
}

// A member whose full backups are all invalid takes two, and then moves leadership.
func TestFullsThatAreAllBrokenAreFew(t *testing.T) {
	a, c, _, handed := rottenAgent(t, 0)
	s := opened(t, c)
	eventually(t, "leadership is handed on", func() error {
		if len(handed) == 0 {
			return errors.New("not yet")
		}
		return nil
	})
	eventually(t, "the leader rests", func() error {
		if a.fired("saved") == 0 {
			return errors.New("it does not")
		}
		return nil
	})
	if n := len(history(t, s).Fulls); n != 2 || a.fired("found-broken") != 1 || len(handed) != 1 {
		t.Errorf("%d fulls, %v of them for a broken one, handed on %d times", n, a.fired("found-broken"), len(handed))
	}
}
