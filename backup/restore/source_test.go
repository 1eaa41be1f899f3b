package restore

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/backup/delta"
	"github.com/etcd-druid/druid/backup/snapshot"
	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/backup/store/dir"
	"github.com/etcd-druid/druid/test/member"
)

const (
	prefix  = "ns/c"
	lineage = catalog.Lineage("00000001-0011223344556677")
	// maxWait for something that takes milliseconds on an idle machine.
	maxWait = 2 * time.Minute
)

// source is a real etcd, all that its watch reported, and a store with backups of it.
type source struct {
	tb     testing.TB
	m      *member.Member
	store  *dir.Store
	random *rand.Rand

	mu      sync.Mutex
	records []delta.Record
	leases  map[int64]delta.Lease

	// granted are leases that live as long as the source unless they are revoked. dying are those that expire soon.
	granted, dying []clientv3.LeaseID
	// clusterID that deltas are made for, where it is not the source's own.
	clusterID uint64
	lineage   catalog.Lineage
}

func directory(tb testing.TB) *dir.Store {
	tb.Helper()
	s, err := dir.Open(store.Directory{Path: tb.TempDir()})
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func newSource(tb testing.TB, minor string, seed uint64, args ...string) *source {
	tb.Helper()
	s := &source{
		tb: tb, m: member.Start(tb, minor, member.Options{Token: "source", Args: append(args, "--max-request-bytes=4194304")}), store: directory(tb),
		random: rand.New(rand.NewPCG(seed, 1)), leases: map[int64]delta.Lease{}, lineage: lineage,
	}
	s.follow(2)
	return s
}

// follow records all changes from a revision on.
func (s *source) follow(from int64) {
	ctx, cancel := context.WithCancel(s.tb.Context())
	watch := s.m.Client.Watch(clientv3.WithRequireLeader(ctx), "", clientv3.WithPrefix(), clientv3.WithRev(from), clientv3.WithFragment())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for response := range watch {
			s.record(response)
		}
	}()
	s.tb.Cleanup(func() { cancel(); <-done })
}

// record turns events into the records of the etcd database.
func (s *source) record(response clientv3.WatchResponse) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range response.Events {
		r := delta.Record{Revision: e.Kv.ModRevision, At: time.UnixMilli(time.Now().UnixMilli())}
		sub := int64(0)
		if last := len(s.records) - 1; last >= 0 && s.records[last].Revision == r.Revision {
			sub, r.At = int64(binary.BigEndian.Uint64(s.records[last].Key[9:17]))+1, s.records[last].At
		}
		kv := e.Kv
		if e.Type == mvccpb.DELETE {
			kv = &mvccpb.KeyValue{Key: e.Kv.Key}
		}
		value, err := proto.Marshal(kv)
		if err != nil {
			s.tb.Error(err)
			return
		}
		r.Key, r.Value = delta.AppendKey(nil, r.Revision, sub, e.Type == mvccpb.DELETE), value
		s.records = append(s.records, r)
		if _, known := s.leases[kv.Lease]; kv.Lease != 0 && !known {
			s.leases[kv.Lease] = s.ask(kv.Lease)
		}
	}
}

// ask does what the recorder does about a lease: the lease may be gone before the response.
func (s *source) ask(id int64) delta.Lease {
	l := delta.Lease{ID: id, At: time.Now()}
	if reported, err := s.m.Client.TimeToLive(s.tb.Context(), clientv3.LeaseID(id)); err == nil && reported.TTL > 0 {
		l.TTL, l.Remaining = reported.GrantedTTL, reported.TTL
	}
	return l
}

// revision returns the current revision of the source, after the watch has delivered it.
func (s *source) revision() int64 {
	s.tb.Helper()
	now := s.get("\x00", clientv3.WithCountOnly()).Header.Revision
	s.await("the watch to reach the revision", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return now == 1 || len(s.records) > 0 && s.records[len(s.records)-1].Revision >= now
	})
	return now
}

func (s *source) await(what string, done func() bool) {
	s.tb.Helper()
	for poll, late := time.Tick(10*time.Millisecond), time.After(maxWait); !done(); {
		select {
		case <-poll:
		case <-late:
			s.tb.Fatalf("waited %s for %s", maxWait, what)
		}
	}
}

func (s *source) get(key string, o ...clientv3.OpOption) *clientv3.GetResponse {
	s.tb.Helper()
	got, err := s.m.Client.Get(s.tb.Context(), key, o...)
	if err != nil {
		s.tb.Fatal(err)
	}
	return got
}

// full takes a full backup.
func (s *source) full() snapshot.Result {
	s.tb.Helper()
	got, err := snapshot.Take(s.tb.Context(), snapshot.Config{
		Client: s.m.Client, Store: s.store, Lineage: string(s.lineage),
		Key: func(revision int64, at time.Time) string { return catalog.FullKey(prefix, s.lineage, revision, at) },
	})
	if err != nil {
		s.tb.Fatal(err)
	}
	return got
}

// between returns the records of a range of revisions.
func (s *source) between(from, to int64) []delta.Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []delta.Record
	for _, r := range s.records {
		if r.Revision >= from && r.Revision <= to {
			found = append(found, r)
		}
	}
	return found
}

// delta saves the revisions from to to as a delta backup.
func (s *source) delta(from, to int64) catalog.Delta {
	s.tb.Helper()
	return s.deltaOf(s.between(from, to), digestAt(s.between(from-1, from-1)))
}

func digestAt(records []delta.Record) delta.Digest {
	var d delta.Digester
	for _, r := range records {
		d.Add(r.Key, r.Value)
	}
	return d.Sum()
}

func (s *source) deltaOf(records []delta.Record, before delta.Digest) catalog.Delta {
	s.tb.Helper()
	status, err := s.m.Client.Status(s.tb.Context(), s.m.Endpoint)
	if err != nil {
		s.tb.Fatal(err)
	}
	w, err := delta.NewWriter(delta.Header{
		Lineage: string(s.lineage), ClusterID: cmp.Or(s.clusterID, status.Header.ClusterId), MemberID: status.Header.MemberId, Before: before,
	})
	if err != nil {
		s.tb.Fatal(err)
	}
	for _, r := range records {
		if err := w.Append(r.Key, r.Value, r.At); err != nil {
			s.tb.Fatal(err)
		}
	}
	s.mu.Lock()
	leases := delta.Leases{Records: slices.Collect(maps.Values(s.leases))}
	s.mu.Unlock()
	last := records[len(records)-1]
	finished, err := w.Finish(last.At, leases, nil)
	if err != nil {
		s.tb.Fatal(err)
	}
	from, to := records[0].Revision, last.Revision
	o, err := s.store.Put(s.tb.Context(), catalog.DeltaKey(prefix, s.lineage, from, to, last.At), finished.Reader(), store.PutOptions{IfAbsent: true})
	if err != nil {
		s.tb.Fatal(err)
	}
	return catalog.Delta{Lineage: s.lineage, Key: o.Key, From: from, To: to, At: last.At, Size: o.Size}
}

// deltas cuts the revisions from to to into delta backups, some of which overlap.
func (s *source) deltas(from, to int64) {
	s.tb.Helper()
	for from <= to {
		end := min(from+s.random.Int64N((to-from)/2+20), to)
		s.delta(max(from-s.random.Int64N(3)*s.random.Int64N(5), 2), end)
		from = end + 1
	}
}

func (s *source) catalog() catalog.Catalog {
	s.tb.Helper()
	c, err := catalog.Read(s.tb.Context(), s.store, prefix)
	if err != nil {
		s.tb.Fatal(err)
	}
	return c
}

func (s *source) plan(t catalog.Target) catalog.Plan {
	s.tb.Helper()
	p, err := s.catalog().Plan(t)
	if err != nil {
		s.tb.Fatal(err)
	}
	return p
}

// state returns the key space at a revision, in one line, computed only from the records.
func (s *source) state(revision int64) string {
	alive := map[string][]byte{}
	for _, r := range s.between(1, revision) {
		key, _, err := keyAndLease(r.Value)
		if err != nil {
			s.tb.Fatal(err)
		}
		if r.IsDelete() {
			delete(alive, string(key))
		} else {
			alive[string(key)] = r.Value
		}
	}
	sum := sha256.New()
	for _, key := range slices.Sorted(maps.Keys(alive)) {
		sum.Write(alive[key])
	}
	return fmt.Sprintf("%d keys %s", len(alive), hex.EncodeToString(sum.Sum(nil)))
}

// stateOf returns the same from a range request to an etcd.
func stateOf(tb testing.TB, m *member.Member, revision int64) string {
	tb.Helper()
	got, err := m.Client.Get(tb.Context(), "\x00", clientv3.WithFromKey(), clientv3.WithRev(revision))
	if err != nil {
		tb.Fatal(err)
	}
	sum := sha256.New()
	for _, kv := range got.Kvs {
		value, err := proto.Marshal(kv)
		if err != nil {
			tb.Fatal(err)
		}
		sum.Write(value)
	}
	return fmt.Sprintf("%d keys %s", len(got.Kvs), hex.EncodeToString(sum.Sum(nil)))
}

func TestWhatIsWrittenOfADatabase(t *testing.T) {
	t.Parallel()
	torn := errors.New("torn")
	for name, test := range map[string]struct {
		comes int // bytes, before it breaks with err
		says  int64
		err   error
		want  string
		left  int64
	}{
		"nothing":              {},
		"as long as it says":   {comes: 2*chunk + 1, says: 2*chunk + 1, left: 2*chunk + 1},
		"longer by a byte":     {comes: 2*chunk + 1, says: 2 * chunk, want: "longer than the 2097152 bytes", left: 2 * chunk},
		"much longer":          {comes: 9 * chunk, says: chunk, want: "longer than the 1048576 bytes", left: chunk},
		"broken in the middle": {comes: chunk + 1, says: 2 * chunk, err: torn, want: "torn", left: chunk + 1},
		"broken at the start":  {says: 2 * chunk, err: torn, want: "torn"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, err := os.Create(filepath.Join(t.TempDir(), "db"))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			var stream io.Reader = bytes.NewReader(make([]byte, test.comes))
			if test.err != nil {
				stream = io.MultiReader(stream, iotest.ErrReader(test.err))
			}
			ahead := snapshot.NewReadAhead(chunk, chunks)
			go ahead.Run(t.Context(), stream)
			err = (&Config{}).write(f, ahead, test.says)
			if (err != nil) != (test.want != "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("it ends with %v, want %q", err, test.want)
			}
			info, err := f.Stat()
			if err != nil {
				t.Fatal(err)
			}
			if info.Size() != test.left {
				t.Errorf("%d bytes are written, want %d", info.Size(), test.left)
			}
		})
	}
}
