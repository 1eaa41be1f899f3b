package delta

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/test/member"
)

// Every record of every delta backup equals what the database of etcd has, for each version of etcd.
func TestDeltasHoldWhatTheDatabaseHolds(t *testing.T) {
	for _, minor := range member.Minors {
		t.Run(minor, func(t *testing.T) {
			t.Parallel()
			m, s := member.Start(t, minor, member.Options{}), directory(t)
			f := newTraffic(t, m)
			long, short := f.grant(600), f.grant(1)
			f.run(100)
			// When the watch catches up, it delivers fragments. Some end within a revision, and each of these
			// revisions is larger than a delta backup.
			for i := range 6 {
				var ops []clientv3.Op
				for j := range 3 {
					ops = append(ops, clientv3.OpPut(fmt.Sprintf("large/%d/%d", i, j), strings.Repeat("x", 400<<10)))
				}
				if _, err := m.Client.Txn(t.Context()).Then(ops...).Commit(); err != nil {
					t.Fatal(err)
				}
			}
			f.put("largest", strings.Repeat("y", 1500<<10))
			r := record(t, m, s, 2, func(c *Config) {
				c.MaxBytes, c.CheckpointEvery = 100<<10, time.Nanosecond
			})
			f.leases = f.leases[:1]
			f.run(200)
			saved := r.flush()
			f.run(50)
			again := r.flush()
			r.stop()
			if again <= saved {
				t.Errorf("flushed up to %d, and then up to %d", saved, again)
			}
			all := objects(t, s)
			holds(t, m, 2, all)
			if to := all[len(all)-1].To; to < again {
				t.Errorf("the deltas end at %d, flushed were %d", to, again)
			}
			if len(all) < 3 {
				t.Errorf("%d deltas, want several: they are small", len(all))
			}
			checkHeaders(t, m, all)
			checkLeases(t, all, int64(long), int64(short))
			checkCheckpoints(t, m, all)
		})
	}
}

func checkHeaders(t *testing.T, m *member.Member, all []object) {
	t.Helper()
	status, err := m.Client.Status(t.Context(), m.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	var at time.Time
	for _, o := range all {
		if o.MemberID != status.Header.MemberId || o.Lineage != lineage ||
			!strings.HasPrefix(o.key, strings.TrimSuffix(keyOf(o.From, o.To, time.UnixMilli(1)), "1.delta.zst")) {
			t.Errorf("%s has header %+v", o.key, o.Header)
		}
		if o.Opened.After(o.Closed) || o.Opened.Before(at) {
			t.Errorf("%s is from %s to %s, and the one before was opened at %s", o.key, o.Opened, o.Closed, at)
		}
		for _, r := range o.records {
			if r.At.Before(at) || r.At.After(o.Closed) {
				t.Fatalf("revision %d came at %s, after %s, in a delta that was closed at %s", r.Revision, r.At, at, o.Closed)
			}
			at = r.At
		}
	}
}

// Each delta backup records all leases that its puts reference. One with a checkpoint records all leases that are
// alive, which only verification needs.
func checkLeases(t *testing.T, all []object, long, short int64) {
	t.Helper()
	seen := 0
	for _, o := range all {
		if o.leases.Known != (o.checkpoint != nil) || !o.leases.Known && len(o.leases.Alive) > 0 {
			t.Errorf("%s has checkpoint %v, and reports which leases are alive: %t", o.key, o.checkpoint, o.leases.Known)
		}
		reported := map[int64]Lease{}
		for _, l := range o.leases.Records {
			reported[l.ID] = l
		}
		for _, r := range o.records {
			id := leaseOf(t, r)
			if id == 0 {
				continue
			}
			seen++
			l, ok := reported[id]
			switch {
			case !ok:
				t.Fatalf("%s does not report lease %x, which revision %d references", o.key, id, r.Revision)
			case id == long && (l.TTL != 600 || l.Remaining < 1 || l.Remaining > 600):
				t.Fatalf("%s reports lease %x that it is %+v", o.key, id, l)
			case id == short && l.TTL != 1 && l.TTL != 0 && l.TTL != 2: // etcd grants at least its election timeout
				t.Fatalf("%s reports lease %x that it is %+v", o.key, id, l)
			}
		}
	}
	if seen == 0 {
		t.Error("no record references a lease")
	}
}

func checkCheckpoints(t *testing.T, m *member.Member, all []object) {
	t.Helper()
	for _, o := range all {
		if o.checkpoint == nil {
			t.Errorf("%s has no checkpoint", o.key)
			continue
		}
		hash, err := m.Client.HashKV(t.Context(), m.Endpoint, o.To)
		if err != nil {
			t.Fatal(err)
		}
		keys, err := m.Client.Get(t.Context(), "\x00", clientv3.WithFromKey(), clientv3.WithRev(o.To), clientv3.WithCountOnly())
		if err != nil {
			t.Fatal(err)
		}
		want := &Checkpoint{Revision: o.To, CompactRevision: hash.CompactRevision, HashKV: hash.Hash, MemberID: hash.Header.MemberId}
		want.Keys, want.Leases = &keys.Count, o.checkpoint.Leases // of leases etcd reports none of the past
		want.Auth = &Auth{Revision: 1}
		diff(t, want, o.checkpoint)
		if n := o.checkpoint.Leases; n == nil || *n == 0 {
			t.Errorf("%s reports no leases", o.key)
		}
	}
}

// An idle cluster is known to be saved and uploads nothing.
func TestAnIdleClusterUploadsNothing(t *testing.T) {
	t.Parallel()
	m, s := member.Start(t, "3.6", member.Options{}), directory(t)
	begin := time.Now()
	r := record(t, m, s, 2)
	first := r.await("a time up to which all is saved", func(s Status) bool { return !s.SavedAt.IsZero() })
	if first.SavedAt.Before(begin) || first.Saved != 1 || !first.Oldest.IsZero() {
		t.Errorf("an idle cluster is %+v", first)
	}
	r.await("a later one", func(s Status) bool { return s.SavedAt.After(first.SavedAt) })
	f := newTraffic(t, m)
	revision := f.put("a", "b")
	second := r.await("the put", func(s Status) bool { return s.Saved == revision })
	r.await("a later time", func(s Status) bool { return s.SavedAt.After(second.SavedAt) && s.Saved == revision })
	if all := objects(t, s); len(all) != 1 {
		t.Errorf("one put made %d deltas", len(all))
	}
	unsaved := false
	for _, s := range r.all() {
		unsaved = unsaved || s.Saved < revision && s.Oldest.After(begin)
		if s.Saved < revision && s.SavedAt.After(second.Object.Header.Closed) {
			t.Errorf("before the put was saved, all was known to be: %+v", s)
		}
	}
	if !unsaved {
		t.Error("the put was not reported before it was saved")
	}
}

// After a compaction at C, revision C may be incomplete, and C+1 is complete.
func TestRecordersBeginAboveTheCompaction(t *testing.T) {
	t.Parallel()
	m := member.Start(t, "3.6", member.Options{})
	f := newTraffic(t, m)
	for range 20 {
		f.put("a", "b")
	}
	if _, err := m.Client.Compact(t.Context(), 10, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		from   int64
		err    error
		before bool
	}{
		"long gone":              {from: 5, err: ErrCompacted},
		"the compaction's":       {from: 10, err: ErrCompacted},
		"the first one there is": {from: 11},
		"the one behind":         {from: 12, before: true},
		"the newest":             {from: 21, before: true},
		"the next":               {from: 22, before: true},
		"one of the future":      {from: 1000, err: ErrAhead},
	} {
		t.Run(name, func(t *testing.T) {
			s := directory(t)
			r := record(t, m, s, c.from)
			if c.err != nil {
				r.ends(c.err)
				return
			}
			last := f.put("a", "b")
			r.flush()
			r.stop()
			all := objects(t, s)
			holds(t, m, c.from, all)
			var want Digest
			if c.before {
				want = digestOf(database(t, m, c.from-1), c.from-1)
			}
			if all[0].Before != want || all[len(all)-1].To != last {
				t.Errorf("the revision before is %s, want %s; the last is %d, want %d", all[0].Before, want, all[len(all)-1].To, last)
			}
		})
	}
}

// A recorder that continues where another one ended finds out at the first change whether etcd still has that history.
func TestAForkIsNoticedBeforeAnythingIsSaved(t *testing.T) {
	t.Parallel()
	m, s := member.Start(t, "3.7", member.Options{}), directory(t)
	f := newTraffic(t, m)
	first := record(t, m, s, 2)
	f.run(50)
	saved := first.flush()
	first.stop()
	all := objects(t, s)
	last := all[len(all)-1]
	if last.To != saved || last.Last.IsZero() {
		t.Fatalf("the store ends with %+v, want revision %d", last.Header, saved)
	}
	f.run(10)
	record(t, m, s, saved+1, func(c *Config) { c.Before = Digest{1} }).ends(ErrFork)
	if now := objects(t, s); len(now) != len(all) {
		t.Errorf("%d deltas, and after a fork %d", len(all), len(now))
	}
	next := record(t, m, s, saved+1, func(c *Config) { c.Before = last.Last })
	next.flush()
	next.stop()
	same(t, database(t, m, 2), joined(t, 2, objects(t, s)))
}

// A delta backup of a newer format is not damaged as far as this reader can know, whatever it contains.
func TestDeltaOfNewerFormatIsNoDamage(t *testing.T) {
	newer := func(text string, version uint32) []byte {
		b := appendFrame(nil, headerFixed+len(text), magicHeader)
		b = append(binary.LittleEndian.AppendUint32(b, version), text...)
		b = binary.LittleEndian.AppendUint32(b, checksum(b[frameHeader:]))
		return append(b, "blocks of another kind"...)
	}
	_, _, err := read(bytes.NewReader(newer("no JSON", Version+1)), Expected{Object: "x"})
	if _, damaged := errors.AsType[*DamagedError](err); damaged || !errors.Is(err, store.ErrNewer) || !strings.HasPrefix(err.Error(), "delta backup x ") {
		t.Errorf("got %v, want ErrNewer that names the delta", err)
	}
	_, _, err = read(bytes.NewReader(newer("{}", 0)), Expected{Object: "x"})
	if _, damaged := errors.AsType[*DamagedError](err); !damaged {
		t.Errorf("a version that never was: got %v, want a DamagedError", err)
	}
}
