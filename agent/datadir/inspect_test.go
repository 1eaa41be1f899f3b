package datadir

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"go.etcd.io/etcd/server/v3/storage/schema"
)

func TestDamageIsNamed(t *testing.T) {
	tests := map[string]struct {
		etcd   string // the version to be started, 3.7.3 unless said
		damage func(t *testing.T, dir string)
		quick  bool // the quick look finds it as well
		want   State
		kind   Kind
	}{
		"as etcd left it":                          {damage: func(*testing.T, string) {}, quick: true, want: Intact},
		"as etcd left it, for the minor before":    {etcd: "3.6.12", damage: setStorageVersion("3.6.0"), quick: true, want: Intact},
		"a schema of the minor after":              {etcd: "3.6.12", damage: setStorageVersion("3.7.0"), quick: true, want: NewerSchema},
		"a schema that no etcd writes":             {damage: setStorageVersion("strange"), quick: true, want: NewerSchema},
		"a member directory without a log":         {damage: remove("wal"), quick: true, want: Empty},
		"a log directory without files":            {damage: emptyDir("wal"), quick: true, want: Corrupt, kind: MissingWALFile},
		"the log's second file is gone":            {damage: removeWAL(1), quick: true, want: Corrupt, kind: MissingWALFile},
		"the log's oldest files are purged":        {damage: removeWAL(0), quick: true, want: Intact},
		"the files below a snapshot are gone":      {damage: removeWALBelowSnapshot, quick: true, want: Corrupt, kind: MissingWALFile},
		"the log's last file is gone":              {damage: removeWAL(-1), quick: true, want: Corrupt, kind: ConsistentIndexAhead},
		"the log is cut in its last record":        {damage: tearTail, quick: true, want: Intact},
		"the log is cut in the middle":             {damage: cutWAL(-2, 2), quick: true, want: Corrupt, kind: BadWALRecord},
		"a file of the log is cut in a record":     {damage: cutRecord(1), quick: true, want: Corrupt, kind: TornWAL},
		"the last file of the log is cut short":    {damage: cutTail, quick: true, want: Corrupt, kind: ConsistentIndexAhead},
		"a byte of a record is flipped":            {damage: flipWAL(1), quick: true, want: Corrupt, kind: BadWALRecord},
		"a byte of the last file is flipped":       {damage: flipWAL(-1), quick: true, want: Corrupt, kind: BadWALRecord},
		"the length of a record is flipped":        {damage: flipLength, quick: true, want: Corrupt, kind: BadWALRecord},
		"the db is gone":                           {damage: remove("snap/db"), quick: true, want: Corrupt, kind: MissingDB},
		"the db is empty":                          {damage: truncate(0), quick: true, want: Corrupt, kind: TruncatedDB},
		"the db is cut within its first page":      {damage: truncate(100), quick: true, want: Corrupt, kind: TruncatedDB},
		"the db is cut within its first meta page": {damage: truncate(50), quick: true, want: Corrupt, kind: BadMeta},
		"the db is cut in half":                    {damage: truncateHalf, quick: true, want: Corrupt, kind: TruncatedDB},
		"one meta page is flipped":                 {damage: flipMeta(1), quick: true, want: Intact},
		"both meta pages are flipped":              {damage: flipMeta(2), quick: true, want: Corrupt, kind: BadMeta},
		"the root page is overwritten":             {damage: overwritePage(rootPage), quick: true, want: Corrupt, kind: BadPage},
		"the page of etcd's marks is flipped":      {damage: flipHeader(bucketRoot(schema.Meta.Name())), quick: true, want: Corrupt, kind: BadPage},
		"etcd's marks are beyond the file":         {damage: strayMarks, quick: true, want: Corrupt, kind: BadPage},
		"a branch refers beyond the file":          {damage: strayChild, want: Corrupt, kind: BadPage},
		"a key of a branch is flipped":             {damage: flipBranchKey, want: Corrupt, kind: BadPage},
		"a leaf's header is flipped":               {damage: flipHeader(someLeaf), want: Corrupt, kind: BadPage},
		"a leaf's page number is flipped":          {damage: flipID(someLeaf), want: Corrupt, kind: BadPage},
		"a leaf's overflow is flipped":             {damage: flipOverflow(someLeaf), want: Corrupt, kind: BadPage},
		"a leaf's element is flipped":              {damage: flipElement(someLeaf), want: Corrupt, kind: BadPage},
		"a leaf is overwritten with zeros":         {damage: overwritePage(someLeaf), want: Corrupt, kind: BadPage},
		"the value of a key is overwritten":        {damage: overwriteValue, want: Corrupt, kind: BadPage},
		"the consistent index has a wrong size":    {damage: setMeta(schema.MetaConsistentIndexKeyName, []byte{1}), quick: true, want: Corrupt, kind: BadBackend},
		"the bucket of keys is gone":               {damage: dropKeys, quick: true, want: Corrupt, kind: BadBackend},
		"the backend is behind the snapshot": {damage: setMeta(schema.MetaConsistentIndexKeyName, binary.BigEndian.AppendUint64(nil, 5)),
			quick: true, want: Corrupt, kind: MissingSnapshotFile},
		"no .snap file, a whole log, 3.6": {etcd: "3.6.12", damage: all(setStorageVersion("3.6.0"), removeSnaps), quick: true, want: Intact},
		"no .snap file, a purged log, 3.6": {etcd: "3.6.12", damage: all(setStorageVersion("3.6.0"), removeSnaps, removeWAL(0)), quick: true,
			want: Corrupt, kind: MissingSnapshotFile},
		"no .snap file, a purged log, 3.7":       {damage: all(removeSnaps, removeWAL(0)), quick: true, want: Intact},
		"newest .snap file torn, older one, 3.6": {etcd: "3.6.12", damage: all(setStorageVersion("3.6.0"), tearNewestSnap), quick: true, want: Intact},
		"every .snap file torn, purged log, 3.6": {etcd: "3.6.12", damage: all(setStorageVersion("3.6.0"), tearSnaps, removeWAL(0)), quick: true,
			want: Corrupt, kind: MissingSnapshotFile},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			dir := servedVolume(t)
			tc.damage(t, dir)
			before := fingerprint(t, dir)
			etcd := "3.7.3"
			if tc.etcd != "" {
				etcd = tc.etcd
			}
			for _, full := range []bool{false, true} {
				r, err := Inspect(t.Context(), dir, Options{EtcdVersion: etcd, Full: full})
				if err != nil {
					t.Fatalf("full %v: %v", full, err)
				}
				want, kind := tc.want, tc.kind
				if !full && !tc.quick {
					want, kind = Intact, ""
				}
				if r.State != want || r.Kind != kind {
					t.Errorf("full %v: %v, %s; want %v (%s)", full, r, r.Detail, want, kind)
				}
				if (r.Kind == "") != (r.Detail == "") {
					t.Errorf("full %v: kind %q with detail %q", full, r.Kind, r.Detail)
				}
			}
			if diff := cmp.Diff(before, fingerprint(t, dir)); diff != "" {
				t.Errorf("the inspection changed the volume (-before +after):\n%s", diff)
			}
		})
	}
}

func TestReportReportsWhatEtcdKnew(t *testing.T) {
	dir := t.TempDir()
	e := startEtcd(t, dir)
	c := v3client.New(e.Server)
	put(t, c, 250, 10)
	stable(t, c)
	status, err := c.Status(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	e.Close()
	for _, full := range []bool{false, true} {
		got, err := Inspect(t.Context(), dir, Options{EtcdVersion: "3.7.3", Full: full})
		if err != nil {
			t.Fatal(err)
		}
		if got.Took <= 0 || got.DBSize == 0 || got.Vote != status.Header.MemberId || got.Commit == 0 || got.Snapshot.Index < 200 {
			t.Errorf("implausible report %+v", got)
		}
		want := Report{
			State: Intact, Full: full,
			ClusterID: status.Header.ClusterId, MemberID: status.Header.MemberId,
			Term: status.RaftTerm, Last: Position{Term: status.RaftTerm, Index: status.RaftIndex},
			ConsistentIndex: status.RaftIndex, StorageVersion: "3.7.0",
		}
		got.Took, got.DBSize, got.Vote, got.Commit, got.Snapshot = 0, 0, 0, 0, Position{}
		want.DB, want.Whole = dbPath(dir), full
		// etcd writes its cluster version by itself some time after the start. So the committed and applied indexes in
		// the status are lower bounds.
		if got.ConsistentIndex >= status.RaftAppliedIndex && got.ConsistentIndex <= got.Last.Index && got.Last.Index >= want.Last.Index {
			got.Last.Index, got.ConsistentIndex = want.Last.Index, want.ConsistentIndex
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("full %v (-want +got):\n%s", full, diff)
		}
	}
}

// A real etcd starts on data that Inspect calls intact, and repairs a tail that Inspect calls torn.
func TestEtcdStartsOnWhatIsIntact(t *testing.T) {
	tests := map[string]struct {
		damage func(*testing.T, string)
		torn   bool
	}{
		"a torn tail":          {tearTail, true},
		"one meta page lost":   {flipMeta(1), false},
		"no .snap file":        {all(removeSnaps, removeWAL(0)), false},
		"as it was left":       {func(*testing.T, string) {}, false},
		"a record half zeroed": {zeroTail, true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			dir := servedVolume(t)
			tc.damage(t, dir)
			r, err := Inspect(t.Context(), dir, Options{EtcdVersion: "3.7.3", Full: true})
			if err != nil || r.State != Intact || r.TornTail != tc.torn {
				t.Fatalf("%v, %s, torn tail %v, %v; want intact, torn tail %v", r, r.Detail, r.TornTail, err, tc.torn)
			}
			e := startEtcd(t, dir)
			defer e.Close()
			got, err := v3client.New(e.Server).Get(t.Context(), "key-001999")
			if err != nil || got.Count != 1 {
				t.Errorf("get after start: %v, %v", got, err)
			}
		})
	}
}

// A backend that a leader sent with a snapshot is stored next to the older one until etcd starts. Inspect must use the
// new one.
func TestBackendOfASnapshotIsTheOneInspected(t *testing.T) {
	dir := servedVolume(t)
	r, err := Inspect(t.Context(), dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	snapDB := filepath.Join(filepath.Dir(dbPath(dir)), fmt.Sprintf("%016x.snap.db", r.Snapshot.Index))
	raw, err := os.ReadFile(dbPath(dir))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(snapDB, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	setMeta(schema.MetaConsistentIndexKeyName, binary.BigEndian.AppendUint64(nil, 5))(t, dir)
	if got, err := Inspect(t.Context(), dir, Options{Full: true}); err != nil || got.State != Intact || got.ConsistentIndex != r.ConsistentIndex {
		t.Errorf("%+v, %v; want intact with the consistent index %d", got, err, r.ConsistentIndex)
	}
	m := metaOf(t, dir)
	if err := os.Truncate(snapDB, int64(m.End*m.PageSize/2)); err != nil {
		t.Fatal(err)
	}
	if got, err := Inspect(t.Context(), dir, Options{}); err != nil || got.Kind != TruncatedDB {
		t.Errorf("%v, %v; want a truncated db", got, err)
	}
}

func TestEmptyVolume(t *testing.T) {
	tests := map[string]struct {
		prepare func(t *testing.T, dir string)
		want    Report
	}{
		"nothing at all":             {func(*testing.T, string) {}, Report{State: Empty}},
		"a data directory":           {mkdir("data"), Report{State: Empty}},
		"a backend without a log":    {mkdir("data/member/snap"), Report{State: Empty, Leftover: true}},
		"a log that was never ready": {mkdir("data/member/wal.tmp"), Report{State: Empty, Leftover: true}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			tc.prepare(t, dir)
			got, err := Inspect(t.Context(), dir, Options{Full: true})
			if err != nil {
				t.Fatal(err)
			}
			got.Took = 0
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestWhatCannotBeFoundOutIsAnError(t *testing.T) {
	t.Run("another process has the backend open", func(t *testing.T) {
		dir := servedVolume(t)
		db, err := bolt.Open(dbPath(dir), 0o600, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close() // only held
		if r, err := Inspect(t.Context(), dir, Options{}); !errors.Is(err, bolterrors.ErrTimeout) {
			t.Errorf("%v, %v; want a time-out", r, err)
		}
	})
	t.Run("the disk does not answer", func(t *testing.T) {
		dir := servedVolume(t)
		path := walPaths(t, dir)[0]
		// A directory in place of a file returns a read error for every user, root included.
		if err := errors.Join(os.Remove(path), os.Mkdir(path, 0o700)); err != nil {
			t.Fatal(err)
		}
		var disk *fs.PathError
		if r, err := Inspect(t.Context(), dir, Options{}); !errors.As(err, &disk) {
			t.Errorf("%v, %v; want the disk's answer", r, err)
		}
	})
	t.Run("no time is left", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if r, err := Inspect(ctx, servedVolume(t), Options{}); !errors.Is(err, context.Canceled) {
			t.Errorf("%v, %v; want the end of the context", r, err)
		}
	})
	t.Run("the version is nonsense", func(t *testing.T) {
		if r, err := Inspect(t.Context(), servedVolume(t), Options{EtcdVersion: "latest"}); err == nil || !strings.Contains(err.Error(), "latest") {
			t.Errorf("%v, %v; want an error that names the version", r, err)
		}
	})
}

func TestLogIsHeldAgainstTheBackend(t *testing.T) {
	tests := map[string]struct {
		first, gaplessFrom, last, commit uint64
		start, applied                   uint64
		want                             Kind
	}{
		"a new log":                                 {},
		"a log from its beginning":                  {gaplessFrom: 1, last: 9, commit: 9, applied: 9},
		"entries above what was committed":          {gaplessFrom: 1, last: 9, commit: 5, applied: 5},
		"applied beyond the commit on disk":         {gaplessFrom: 1, last: 9, commit: 5, applied: 9},
		"a snapshot of the leader above all":        {gaplessFrom: 1, last: 9, commit: 20, start: 20, applied: 20},
		"a log that goes on after a snapshot":       {first: 15, gaplessFrom: 21, last: 30, commit: 30, start: 20, applied: 30},
		"a log that begins before its snapshot":     {first: 15, gaplessFrom: 16, last: 30, commit: 30, start: 20, applied: 30},
		"files that begin above the snapshot":       {first: 15, gaplessFrom: 16, last: 30, commit: 30, start: 14, applied: 30, want: MissingWALFile},
		"entries that begin above the snapshot":     {first: 15, gaplessFrom: 22, last: 30, commit: 30, start: 20, applied: 30, want: TornWAL},
		"a commit that the log does not reach":      {gaplessFrom: 1, last: 9, commit: 10, applied: 9, want: TornWAL},
		"a backend that the log does not reach":     {gaplessFrom: 1, last: 9, commit: 9, applied: 10, want: ConsistentIndexAhead},
		"a backend beyond the snapshot of a leader": {gaplessFrom: 1, last: 9, commit: 20, start: 20, applied: 21, want: ConsistentIndexAhead},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			l := &raftLog{firstFile: tc.first, gaplessFrom: tc.gaplessFrom, last: Position{Term: 2, Index: tc.last}, entries: tc.last > 0}
			l.state.Commit = &tc.commit
			err := l.check(Position{Term: 2, Index: tc.start}, tc.applied)
			if found, ok := errors.AsType[*damage](err); ok {
				if found.kind != tc.want {
					t.Errorf("%v, want %q", err, tc.want)
				}
			} else if err != nil || tc.want != "" {
				t.Errorf("%v, want %q", err, tc.want)
			}
		})
	}
}
