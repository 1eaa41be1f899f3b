package datadir

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"
)

// logRecord is one write to a log: entries of a term from an index on, a snapshot, or a commit index.
type logRecord struct {
	term, first, last uint64
	snapshot, commit  uint64
}

func entries(term, first, last uint64) logRecord {
	return logRecord{term: term, first: first, last: last}
}

func committed(term, index uint64) logRecord { return logRecord{term: term, commit: index} }

func snapshotAt(term, index uint64) logRecord { return logRecord{term: term, snapshot: index} }

// writeLog writes a real log on a new volume.
func writeLog(t *testing.T, records ...logRecord) string {
	t.Helper()
	dir := t.TempDir()
	metadata, err := proto.Marshal(&etcdserverpb.Metadata{NodeID: new(uint64(1)), ClusterID: new(uint64(2))})
	must(t, err)
	w, err := wal.Create(zap.NewNop(), filepath.Join(dir, "data", "member", "wal"), metadata)
	must(t, err)
	for _, r := range records {
		switch {
		case r.snapshot > 0:
			must(t, w.SaveSnapshot(&walpb.Snapshot{Index: &r.snapshot, Term: &r.term, ConfState: &raftpb.ConfState{Voters: []uint64{1}}}))
		case r.commit > 0:
			must(t, w.Save(&raftpb.HardState{Term: &r.term, Commit: &r.commit}, nil))
		default:
			var all []*raftpb.Entry
			for i := r.first; i <= r.last; i++ {
				all = append(all, &raftpb.Entry{Term: &r.term, Index: new(i), Data: []byte("some data")})
			}
			must(t, w.Save(&raftpb.HardState{}, all))
		}
	}
	must(t, w.Close())
	return dir
}

// The tail is what raft would have in its log: an entry that was replaced is never in it, and an uncommitted one is.
func TestTailHasTheLastVersionOfEachEntry(t *testing.T) {
	tests := map[string]struct {
		log    []logRecord
		above  uint64
		want   []Position // the first position of each term, then the last position
		bytes  int64
		damage string
	}{
		"committed and uncommitted entries": {
			log: []logRecord{entries(1, 1, 9), committed(1, 5)}, above: 4, want: []Position{{1, 5}, {1, 9}},
		},
		"nothing above": {log: []logRecord{entries(1, 1, 9), committed(1, 9)}, above: 9},
		"a new leader replaced entries": {
			log: []logRecord{entries(1, 1, 9), committed(1, 5), entries(3, 7, 8), committed(3, 8)}, above: 5, want: []Position{{1, 6}, {3, 7}, {3, 8}},
		},
		"replaced twice, with a shorter end": {
			log: []logRecord{entries(1, 1, 9), entries(2, 4, 8), entries(3, 6, 6), committed(3, 3)}, above: 2, want: []Position{{1, 3}, {2, 4}, {3, 6}, {3, 6}},
		},
		"a snapshot of its own": {
			log: []logRecord{entries(1, 1, 9), committed(1, 7), snapshotAt(1, 6)}, above: 6, want: []Position{{1, 7}, {1, 9}},
		},
		"a snapshot of the leader that the end does not lead to": {
			log: []logRecord{entries(1, 1, 9), committed(1, 3), snapshotAt(2, 6), committed(2, 6)}, above: 6,
		},
		"a snapshot of the leader, and entries after it": {
			log: []logRecord{entries(1, 1, 9), committed(1, 3), snapshotAt(2, 6), committed(2, 6), entries(2, 7, 8)}, above: 6,
			want: []Position{{2, 7}, {2, 8}},
		},
		"a snapshot of the leader that was never used": {
			log: []logRecord{entries(1, 1, 9), committed(1, 3), snapshotAt(2, 6)}, above: 3, want: []Position{{1, 4}, {1, 9}},
		},
		"a gap above the database": {
			log: []logRecord{entries(1, 1, 3), committed(1, 3), snapshotAt(1, 8), entries(1, 9, 12)}, above: 3, damage: "entry 4 is missing",
		},
		"an end below what was committed": {
			log: []logRecord{entries(1, 1, 3), committed(1, 5)}, above: 2, want: []Position{{1, 3}, {1, 3}}, damage: "index 5 was committed",
		},
		"a database above the log": {
			log: []logRecord{entries(1, 1, 3), committed(1, 3)}, above: 7,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			dir := writeLog(t, tc.log...)
			tail, err := ReadTail(t.Context(), dir, tc.above)
			must(t, err)
			var got []Position
			var last Position
			must(t, tail.Each(t.Context(), func(e *raftpb.Entry) error {
				p := Position{Term: e.GetTerm(), Index: e.GetIndex()}
				if last.Index != 0 && p.Index != last.Index+1 || last.Index == 0 && p.Index != tc.above+1 {
					t.Errorf("entry %d follows entry %d", p.Index, last.Index)
				}
				if len(got) == 0 || got[len(got)-1].Term != p.Term {
					got = append(got, p)
				}
				last = p
				return nil
			}))
			if last.Index > 0 {
				got = append(got, last)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if tail.Last != last || (tail.Damage == "") != (tc.damage == "") || !strings.Contains(tail.Damage, tc.damage) {
				t.Errorf("last %+v, damage %q; want %+v, %q", tail.Last, tail.Damage, last, tc.damage)
			}
			if n := int64(len("some data")) * int64(last.Index-min(last.Index, tc.above)); tail.Bytes < n {
				t.Errorf("at most %d bytes, want at least %d", tail.Bytes, n)
			}
		})
	}
}

// What a damaged log certainly had committed is read. What follows may have been replaced by what cannot be read.
func TestTailOfADamagedLogEndsAtTheCommit(t *testing.T) {
	for name, offset := range map[string]func(ends []int64) int64{
		"a byte of the last entry is flipped":   func(ends []int64) int64 { return ends[len(ends)-2] - 10 },
		"the length of the last entry is wrong": func(ends []int64) int64 { return ends[len(ends)-3] + 4 },
	} {
		t.Run(name, func(t *testing.T) {
			dir := writeLog(t, entries(1, 1, 6), committed(1, 4), entries(1, 7, 9), committed(1, 9))
			path := walPaths(t, dir)[0]
			flip(t, path, offset(recordEnds(t, path)))
			tail, err := ReadTail(t.Context(), dir, 2)
			must(t, err)
			if tail.Last != (Position{Term: 1, Index: 4}) || !strings.Contains(tail.Damage, string(BadWALRecord)) {
				t.Errorf("%+v; want the entries up to the commit 4, and the damage", tail)
			}
			var got []uint64
			must(t, tail.Each(t.Context(), func(e *raftpb.Entry) error { got = append(got, e.GetIndex()); return nil }))
			if !slices.Equal(got, []uint64{3, 4}) {
				t.Errorf("entries %v, want 3 and 4", got)
			}
		})
	}
}

func TestTailPassesErrorsOn(t *testing.T) {
	dir := writeLog(t, entries(1, 1, 9), committed(1, 9))
	tail, err := ReadTail(t.Context(), dir, 2)
	must(t, err)
	own := errors.New("own")
	if err := tail.Each(t.Context(), func(*raftpb.Entry) error { return own }); !errors.Is(err, own) {
		t.Errorf("%v, want the error of the function", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := ReadTail(ctx, dir, 2); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want the end of the context", err)
	}
	path := walPaths(t, dir)[0]
	must(t, errors.Join(os.Remove(path), os.Mkdir(path, 0o700)))
	if tail, err := ReadTail(t.Context(), dir, 2); err == nil {
		t.Errorf("%+v; want the error of the disk", tail)
	}
}

// A log that was read whole can end earlier when it is read again, because the disk fails. That is an error, and not a shorter tail.
func TestTailThatBecameShorterIsAnError(t *testing.T) {
	for name, test := range map[string]struct {
		above uint64
		flips bool
		fails bool
	}{
		"as it was": {2, false, false}, "damaged since": {2, true, true}, "damaged, and nothing above": {9, true, false},
	} {
		dir := writeLog(t, entries(1, 1, 9), committed(1, 9))
		tail, err := ReadTail(t.Context(), dir, test.above)
		must(t, err)
		if test.flips {
			path := walPaths(t, dir)[0]
			ends := recordEnds(t, path)
			flip(t, path, ends[len(ends)-4]-10)
		}
		if err := tail.Each(t.Context(), func(*raftpb.Entry) error { return nil }); (err != nil) != test.fails ||
			test.fails && !strings.Contains(err.Error(), "up to index 9, and now it can be read only up to index ") {
			t.Errorf("%s: %v; want an error %t", name, err, test.fails)
		}
	}
}

// Only the log of this data is damaged, so its database can still be used.
func TestCorruptDataCanHaveAWholeDatabase(t *testing.T) {
	tests := map[string]struct {
		damage damageFunc
		whole  bool
	}{
		"a damaged log":      {flipWAL(0), true},
		"a missing log file": {removeWAL(1), true},
		"a damaged page":     {flipAt(someLeaf, 20), false},
		"no database":        {remove("snap/db"), false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			dir := servedVolume(t)
			tc.damage(t, dir)
			r, err := Inspect(t.Context(), dir, Options{EtcdVersion: "3.7.3", Full: true})
			must(t, err)
			if r.State != Corrupt || r.Whole != tc.whole || (r.DB == dbPath(dir)) != tc.whole || (r.ConsistentIndex > 0) != tc.whole && tc.whole {
				t.Errorf("%v, %+v; want corrupt data with a whole database: %v", r, r, tc.whole)
			}
		})
	}
}
