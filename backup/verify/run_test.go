package verify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/backup/delta"
	"github.com/etcd-druid/druid/backup/restore"
	"github.com/etcd-druid/druid/backup/snapshot"
	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/backup/store/dir"
	"github.com/etcd-druid/druid/test/backups"
)

const (
	prefix  = "ns/demo"
	lineage = catalog.Lineage("00000001-aa")
)

// all is everything that is compared, if everything is reported and nothing without a revision changed.
var all = []string{"hashKV", "keys", "users and roles", "leases of keys"}

func newStore(tb testing.TB) store.Store {
	tb.Helper()
	s, err := dir.Open(store.Directory{Path: tb.TempDir()})
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func get(tb testing.TB, s store.Store, key string) []byte {
	tb.Helper()
	r, err := s.Get(tb.Context(), key, 0, -1)
	if err != nil {
		tb.Fatal(err)
	}
	b, err := io.ReadAll(r)
	if err := errors.Join(err, r.Close()); err != nil {
		tb.Fatal(err)
	}
	return b
}

func write(tb testing.TB, s store.Store, key string, content io.Reader) {
	tb.Helper()
	if _, err := s.Put(tb.Context(), key, content, store.PutOptions{}); err != nil {
		tb.Fatal(err)
	}
}

func read(tb testing.TB, s store.Store) catalog.Catalog {
	tb.Helper()
	c, err := catalog.Read(tb.Context(), s, prefix)
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

// verifyBackups verifies, and checks that nothing is left in the scratch directory.
func verifyBackups(tb testing.TB, s store.Store, target catalog.Target) Result {
	tb.Helper()
	scratch := tb.TempDir()
	r := Run(tb.Context(), Config{Store: s, Catalog: read(tb, s), Target: target, Scratch: scratch})
	if left, err := os.ReadDir(scratch); err != nil || len(left) > 0 {
		tb.Errorf("the scratch directory has %v, %v", left, err)
	}
	return r
}

// reframe writes a delta backup again with the real writer, after a change in it.
func reframe(tb testing.TB, s store.Store, d catalog.Delta, change func(revision int64, value []byte), checkpoint func(*delta.Checkpoint) *delta.Checkpoint) {
	tb.Helper()
	r, err := delta.NewReader(bytes.NewReader(get(tb, s, d.Key)), delta.Expected{Object: d.Key})
	if err != nil {
		tb.Fatal(err)
	}
	defer r.Close()
	w, err := delta.NewWriter(r.Header())
	if err != nil {
		tb.Fatal(err)
	}
	for {
		records, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			tb.Fatal(err)
		}
		for _, record := range records {
			value := bytes.Clone(record.Value)
			change(record.Revision, value)
			if err := w.Append(record.Key, value, record.At); err != nil {
				tb.Fatal(err)
			}
		}
	}
	finished, err := w.Finish(r.Header().Closed, r.Leases(), checkpoint(r.Checkpoint()))
	if err != nil {
		tb.Fatal(err)
	}
	write(tb, s, d.Key, finished.Reader())
}

// TestVerificationNamesDefects: what is wrong with backups is found and named.
func TestVerificationNamesDefects(t *testing.T) {
	made := newStore(t)
	c := backups.Make(t, made, prefix, catalog.Formation{Lineage: lineage, ClusterID: "c", Created: time.Now()})
	h := c.Histories[0]
	flip := func(t *testing.T, s store.Store, key string) {
		t.Helper()
		b := get(t, s, key)
		b[len(b)/2] ^= 4
		write(t, s, key, bytes.NewReader(b))
	}
	asIs := func(c *delta.Checkpoint) *delta.Checkpoint { return c }
	// lie changes a value in the middle of a delta backup. No checksum and no digest shows it.
	lie := func(t *testing.T, s store.Store, d catalog.Delta) {
		t.Helper()
		reframe(t, s, d, func(revision int64, value []byte) {
			if revision == d.From+1 {
				value[len(value)-1] ^= 1
			}
		}, asIs)
	}
	// inform lets the newest checkpoint report something else.
	inform := func(change func(*delta.Alongside)) func(*testing.T, store.Store) {
		return func(t *testing.T, s store.Store) {
			t.Helper()
			reframe(t, s, h.Deltas[2], func(int64, []byte) {}, func(c *delta.Checkpoint) *delta.Checkpoint {
				change(&c.Alongside)
				return c
			})
		}
	}
	fromFirst := catalog.Target{Without: []string{h.Fulls[1].Key}}
	tests := map[string]struct {
		damage  func(t *testing.T, s store.Store)
		target  catalog.Target
		verdict Verdict
		object  string
		reason  string
		not     string // compared
	}{
		"nothing":                       {verdict: Verified},
		"nothing, from an older full":   {target: fromFirst, verdict: Verified},
		"nothing, up to a revision":     {target: catalog.Target{Revision: 14}, verdict: Verified},
		"no checkpoint before a target": {target: catalog.Target{Name: h.Fulls[0].Key}, verdict: Unknown, reason: "no checkpoint"},
		"another number of keys": {
			damage: inform(func(b *delta.Alongside) { *b.Keys++ }), verdict: Broken, object: h.Deltas[2].Key, reason: "the backup has 7 keys, and member",
		},
		"users of a later change than the member had": {
			damage: inform(func(b *delta.Alongside) { b.Auth.Revision = 0 }), verdict: Broken, object: h.Fulls[1].Key, reason: "or " + h.Deltas[2].Key,
		},
		"users that changed later": {
			damage: inform(func(b *delta.Alongside) { b.Auth.Revision += 2 }), verdict: Verified,
			not: "users and roles: they are restored as of the full backup, at change 1",
		},
		"users that were enabled later": {damage: inform(func(b *delta.Alongside) { b.Auth.Enabled = true }), verdict: Verified, not: "enabled after the full"},
		"a checkpoint of an older agent": {
			damage: inform(func(b *delta.Alongside) { *b = delta.Alongside{} }), verdict: Verified, not: "keys: the checkpoint does not report",
		},
		"no checkpoint at all": {
			damage: func(t *testing.T, s store.Store) {
				for _, d := range h.Deltas {
					reframe(t, s, d, func(int64, []byte) {}, func(*delta.Checkpoint) *delta.Checkpoint { return nil })
				}
			}, verdict: Unknown, reason: "no checkpoint",
		},
		"a value that was not written": {
			damage: func(t *testing.T, s store.Store) { lie(t, s, h.Deltas[1]) }, target: fromFirst, verdict: Broken, object: h.Deltas[1].Key, reason: "at revision 16",
		},
		"a value that was not written, at the end": {
			damage: func(t *testing.T, s store.Store) { lie(t, s, h.Deltas[2]) }, target: fromFirst, verdict: Broken, object: h.Deltas[2].Key, reason: "at revision 21",
		},
		"a value that was not written, before any checkpoint": {
			damage: func(t *testing.T, s store.Store) { lie(t, s, h.Deltas[0]) }, target: fromFirst, verdict: Broken, object: h.Fulls[0].Key, reason: h.Deltas[0].Key,
		},
		"a bit of the full": {
			damage: func(t *testing.T, s store.Store) { flip(t, s, h.Fulls[1].Key) }, verdict: Broken, object: h.Fulls[1].Key, reason: h.Fulls[1].Key,
		},
		"a bit of a delta": {
			damage: func(t *testing.T, s store.Store) { flip(t, s, h.Deltas[1].Key) }, target: fromFirst, verdict: Broken, object: h.Deltas[1].Key,
			reason: h.Deltas[1].Key,
		},
		"deltas that were swapped": {
			damage: func(t *testing.T, s store.Store) {
				a, b := get(t, s, h.Deltas[0].Key), get(t, s, h.Deltas[1].Key)
				write(t, s, h.Deltas[0].Key, bytes.NewReader(b))
				write(t, s, h.Deltas[1].Key, bytes.NewReader(a))
			}, target: fromFirst, verdict: Broken, object: h.Deltas[0].Key, reason: h.Deltas[0].Key,
		},
		"a delta that is gone": {
			damage: func(t *testing.T, s store.Store) {
				if err := s.Delete(t.Context(), h.Deltas[1].Key); err != nil {
					t.Fatal(err)
				}
			}, target: fromFirst, verdict: Broken, object: h.Deltas[2].Key, reason: "12 to 16",
		},
		"everything is gone": {
			damage: func(t *testing.T, s store.Store) {
				for _, f := range h.Fulls {
					if err := s.Delete(t.Context(), f.Key); err != nil {
						t.Fatal(err)
					}
				}
			}, verdict: Unknown, reason: "nothing to restore",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := newStore(t)
			for o, err := range made.List(t.Context(), "") {
				if err != nil {
					t.Fatal(err)
				}
				write(t, s, o.Key, bytes.NewReader(get(t, made, o.Key)))
			}
			if test.damage != nil {
				test.damage(t, s)
			}
			r := verifyBackups(t, s, test.target)
			if r.Verdict != test.verdict || r.Object != test.object || !strings.Contains(r.Reason, test.reason) || (r.Verdict == Verified) != (r.Reason == "") {
				t.Errorf("got %+v, want %s of %q, for %q", r, test.verdict, test.object, test.reason)
			}
			if !strings.Contains(strings.Join(r.NotCompared, "\n"), test.not) || r.Verdict == Verified && test.not == "" && !slices.Equal(r.Compared, all) {
				t.Errorf("compared are %q, and not %q, want all but %q", r.Compared, r.NotCompared, test.not)
			}
			if p := r.Checkpoint; r.Verdict == Verified && (p == nil || p.HashKV != r.HashKV || r.Keys == 0 || p.Revision > r.Revision) {
				t.Errorf("proven is %+v with %+v", r, p)
			}
		})
	}
	t.Run("a store that does not answer, and an end that was asked for, say nothing", func(t *testing.T) {
		for _, key := range []string{h.Fulls[1].Key, h.Deltas[2].Key} {
			s := unreadable{made, key, errors.New("503 busy")}
			if r := verifyBackups(t, s, catalog.Target{}); r.Verdict != Unknown || !strings.Contains(r.Reason, "503") || r.Object != "" {
				t.Errorf("got %+v", r)
			}
			s.err = fmt.Errorf("%w: %s", store.ErrDamaged, key)
			if r := verifyBackups(t, s, catalog.Target{}); r.Verdict != Broken || r.Object != key {
				t.Errorf("what the store calls damaged: got %+v", r)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if r := Run(ctx, Config{Store: made, Catalog: c, Scratch: t.TempDir(), Rate: 1}); r.Verdict != Unknown {
			t.Errorf("got %+v", r)
		}
	})
}

// The member whose database is the full backup had an error in it, which the hashes in the delta backups of that member have too. Only the
// hash of a member that belongs to the majority shows it.
func TestOnlyTrustedMembersAreCompared(t *testing.T) {
	s := newStore(t)
	c := backups.Make(t, s, prefix, catalog.Formation{Lineage: lineage, ClusterID: "c", Created: time.Now()})
	itself := verifyBackups(t, s, catalog.Target{})
	if itself.Verdict != Verified {
		t.Fatalf("without a rule, the backups are %+v", itself)
	}
	const trusted = 1
	of := func(id uint64, hash uint32) func(context.Context, int64) (delta.Checkpoint, error) {
		return func(_ context.Context, revision int64) (delta.Checkpoint, error) {
			return delta.Checkpoint{Revision: revision, CompactRevision: itself.Checkpoint.CompactRevision, HashKV: hash, MemberID: id}, nil
		}
	}
	for name, test := range map[string]struct {
		trusts uint64
		ask    func(context.Context, int64) (delta.Checkpoint, error)
		want   Verdict
		reason string
	}{
		"that member is among the majority":        {trusts: itself.Checkpoint.MemberID, want: Verified},
		"no trusted member has a hash":             {trusts: trusted, want: Unknown, reason: "no checkpoint"},
		"only another member has a hash":           {trusts: trusted, ask: of(2, 0), want: Unknown, reason: "is not that of a majority"},
		"a trusted member has the same data":       {trusts: trusted, ask: of(trusted, itself.HashKV), want: Verified},
		"a trusted member does not have the error": {trusts: trusted, ask: of(trusted, itself.HashKV+1), want: Broken, reason: "at revision"},
	} {
		r := Run(t.Context(), Config{
			Store: s, Catalog: c, Scratch: t.TempDir(), Ask: test.ask, Trusted: func(id uint64) bool { return id == test.trusts },
		})
		if r.Verdict != test.want || !strings.Contains(r.Reason, test.reason) || test.want == Broken && r.Object != r.Full {
			t.Errorf("%s: %+v, want %s", name, r, test.want)
		}
	}
}

// unreadable fails to return one object.
type unreadable struct {
	store.Store
	key string
	err error
}

func (s unreadable) Get(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	if key == s.key {
		return nil, fmt.Errorf("get %s: %w", key, s.err)
	}
	return s.Store.Get(ctx, key, offset, length)
}

func TestWhatIsKnownOfAnError(t *testing.T) {
	p := catalog.Plan{Full: catalog.Full{Key: "full"}, Deltas: []catalog.Delta{{Key: "one"}, {Key: "two"}}}
	for name, test := range map[string]struct {
		err     error
		verdict Verdict
		object  string
	}{
		"a damaged full":           {&snapshot.DamagedError{Object: "full"}, Broken, "full"},
		"a damaged delta":          {&delta.DamagedError{Object: "two"}, Broken, "two"},
		"a hole in a restore":      {&restore.GapError{After: "one", Before: "two"}, Broken, "two"},
		"a hole in a plan":         {&catalog.GapError{Before: "one", After: "two"}, Broken, "two"},
		"a fork":                   {fmt.Errorf("%w: full and one", restore.ErrFork), Broken, "one"},
		"another object":           {fmt.Errorf("full: %w", restore.ErrSwapped), Broken, "full"},
		"an early end":             {fmt.Errorf("%w: two", restore.ErrShort), Broken, "two"},
		"the store's own sum":      {fmt.Errorf("one: %w", store.ErrDamaged), Broken, "one"},
		"nothing there":            {catalog.ErrEmpty, Unknown, ""},
		"an object that was swept": {fmt.Errorf("one: %w", store.ErrAbsent), Unknown, ""},
		"no room":                  {restore.ErrSpace, Unknown, ""},
		"no access":                {store.ErrForbidden, Unknown, ""},
		"no key":                   {fmt.Errorf("one: %w", store.ErrNoKey), Unknown, ""},
		"a newer format":           {fmt.Errorf("one: %w", store.ErrNewer), Unknown, ""},
		"an unknown format":        {restore.ErrVersion, Unknown, ""},
		"the end":                  {context.Canceled, Unknown, ""},
		"anything":                 {errors.New("one"), Unknown, ""},
	} {
		for _, err := range []error{test.err, fmt.Errorf("restore: %w", test.err)} {
			if v, object := judge(err, p); v != test.verdict || object != test.object {
				t.Errorf("%s: %s of %q, want %s of %q", name, v, object, test.verdict, test.object)
			}
		}
	}
}
