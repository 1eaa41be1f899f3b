package verify

import (
	"encoding/binary"
	"flag"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"google.golang.org/protobuf/proto"

	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/backup/restore"
	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/test/history"
	"github.com/etcd-druid/druid/test/member"
)

var (
	equalityEvents = flag.Int("history.events", 2000, "events of the history that is restored to many points")
	equalityPoints = flag.Int("history.points", 20, "points that it is restored to, revisions and times by turns")
	equalitySeed   = flag.Uint64("history.seed", 1, "seed of the history and of the points")
)

// crowd is the maximum number of changes in one transaction, so that a million events take minutes.
const crowd = 100

// A history with all kinds of changes is restored to many points. At each point it must equal the original etcd, by
// etcd's own hash and by a complete range. No etcd is started on the restores; backup/restore does that at few points.
func TestEachPointOfAHistoryIsRestoredAsItWas(t *testing.T) {
	t.Parallel()
	m, s, random := member.Start(t, "3.6", member.Options{Args: []string{"--max-txn-ops=1000", "--quota-backend-bytes=8589934592"}}), newStore(t),
		rand.New(rand.NewPCG(*equalitySeed, 50))
	place := history.Place{Store: s, Prefix: prefix, Lineage: lineage}
	place.Formation(t, "uid")
	crowds(t, m.Client, random, *equalityEvents/4)
	full := place.Full(t, m.Client)
	save := place.Record(t, m.Client, full.Revision)
	last, began := full.Revision, []begun{}
	for range 6 {
		began = append(began, crowds(t, m.Client, random, *equalityEvents/8)...)
		last = save()
	}
	c, ended := read(t, s), time.Now()
	for i := range *equalityPoints {
		target, name := catalog.Target{Revision: full.Revision + random.Int64N(last-full.Revision+1)}, ""
		if name = fmt.Sprint("revision ", target.Revision); i%2 == 1 {
			target = catalog.Target{Time: full.Taken.Add(time.Second/1000 + time.Duration(random.Int64N(int64(ended.Sub(full.Taken)))))}
			name = target.Time.Format("time 15:04:05.000000")
		}
		t.Run(name, func(t *testing.T) {
			revision := isAsItWas(t, m, c, s, target)
			for _, b := range began {
				if !target.Time.IsZero() && b.at.Truncate(time.Millisecond).After(target.Time) && b.revision <= revision {
					t.Fatalf("it has revision %d, which was asked for at %s", b.revision, b.at)
				}
			}
		})
	}
}

// begun is when a change was requested, and the revision that it got. Delta backups have a resolution of milliseconds.
type begun struct {
	at       time.Time
	revision int64
}

// crowds makes slightly more than n events: transactions of many puts and deletions, and the changes of traffic.
func crowds(t *testing.T, c *clientv3.Client, random *rand.Rand, n int) (all []begun) {
	t.Helper()
	lease, err := c.Grant(t.Context(), 3600)
	if err != nil {
		t.Fatal(err)
	}
	for n > 0 {
		traffic(t, c, random, 5)
		var ops []clientv3.Op
		for i := range 1 + random.IntN(crowd) {
			key := fmt.Sprintf("%02d/%d", i, random.IntN(2000))
			switch random.IntN(8) {
			case 0:
				ops = append(ops, clientv3.OpDelete(key))
			case 1:
				ops = append(ops, clientv3.OpPut(key, "", clientv3.WithLease(lease.ID)))
			case 2:
				ops = append(ops, clientv3.OpPut(key+"\x00\xff", strings.Repeat("x", random.IntN(3000))))
			default:
				ops = append(ops, clientv3.OpPut(key, fmt.Sprint(random.Uint64())))
			}
		}
		at := time.Now()
		done, err := c.Txn(t.Context()).Then(ops...).Commit()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, begun{at, done.Header.Revision})
		n -= 5 + len(ops)
	}
	return all
}

// isAsItWas restores and compares with the original etcd. It returns the revision.
func isAsItWas(t *testing.T, m *member.Member, c catalog.Catalog, s store.Store, target catalog.Target) int64 {
	t.Helper()
	p, err := c.Plan(target)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "db")
	got, err := restore.Database(t.Context(), restore.Config{Store: s, Plan: p, EtcdVersion: anyVersion}, path)
	if err != nil {
		t.Fatal(err)
	}
	defer os.Remove(path) // by hand they are large, and many
	if target.Revision > 0 && got.Revision != target.Revision {
		t.Errorf("restored to revision %d", got.Revision)
	}
	db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true, Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	hash, err := m.Client.HashKV(t.Context(), m.Endpoint, got.Revision)
	if err != nil {
		t.Fatal(err)
	}
	if state, err := StateAt(t.Context(), db, got.Revision, hash.CompactRevision); err != nil || state.HashKV != hash.Hash {
		t.Errorf("at revision %d it has %+v, %v; and etcd had HashKV %d", got.Revision, state, err, hash.Hash)
	}
	if ours, theirs := held(t, db), served(t, m.Client, got.Revision); ours != theirs {
		t.Errorf("at revision %d it holds %+v, and etcd had %+v", got.Revision, ours, theirs)
	}
	return got.Revision
}

// contents are the keys that are alive, and a checksum over their data that does not depend on the order.
type contents struct {
	keys int
	sum  uint64
}

func sumOf(t *testing.T, kv *mvccpb.KeyValue) uint64 {
	t.Helper()
	text, err := proto.MarshalOptions{Deterministic: true}.Marshal(kv)
	if err != nil {
		t.Fatal(err)
	}
	h := fnv.New64a()
	_, _ = h.Write(text)
	return h.Sum64()
}

// held returns the contents of a database.
func held(t *testing.T, db *bolt.DB) (c contents) {
	t.Helper()
	alive := map[string]uint64{}
	err := db.View(func(tx *bolt.Tx) error {
		return each(t.Context(), tx.Bucket(schema.Key.Name()), math.MaxInt64, func(_, _ int64, deletes bool, _, value []byte) error {
			var kv mvccpb.KeyValue
			if err := proto.Unmarshal(value, &kv); err != nil {
				return err
			}
			if alive[string(kv.Key)] = sumOf(t, &kv); deletes {
				delete(alive, string(kv.Key))
			}
			return nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, sum := range alive {
		c.keys, c.sum = c.keys+1, c.sum+sum
	}
	return c
}

// served returns what an etcd answers to range requests.
func served(t *testing.T, client *clientv3.Client, revision int64) (c contents) {
	t.Helper()
	for from := "\x00"; ; {
		page, err := client.Get(t.Context(), from, clientv3.WithFromKey(), clientv3.WithRev(revision), clientv3.WithLimit(10_000))
		if err != nil {
			t.Fatal(err)
		}
		for _, kv := range page.Kvs {
			c.keys, c.sum = c.keys+1, c.sum+sumOf(t, kv)
			from = string(kv.Key) + "\x00"
		}
		if !page.More {
			return c
		}
	}
}

// The leases of a database are in no hash. If a full backup lacks one of them, an etcd on it would end when a client
// changes its key.
func TestALeaseThatTheFullLacksIsFound(t *testing.T) {
	t.Parallel()
	m, s := member.Start(t, "3.6", member.Options{}), newStore(t)
	place := history.Place{Store: s, Prefix: prefix, Lineage: lineage, CheckpointEvery: time.Nanosecond}
	place.Formation(t, "uid")
	grant := func() clientv3.LeaseID {
		lease, err := m.Client.Grant(t.Context(), 3600)
		if err != nil {
			t.Fatal(err)
		}
		return lease.ID
	}
	put := func(key string, o ...clientv3.OpOption) {
		if _, err := m.Client.Put(t.Context(), key, "value", o...); err != nil {
			t.Fatal(err)
		}
	}
	held := grant()
	put("held", clientv3.WithLease(held))
	full := place.Full(t, m.Client)
	// This key is detached from its lease later. No key needs that lease, and it is not restored.
	put("changed", clientv3.WithLease(grant()))
	at := place.Delta(t, m.Client, full.Revision)
	put("changed")
	place.Delta(t, m.Client, at)

	p, err := read(t, s).Plan(catalog.Target{})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "db")
	got, err := restore.Database(t.Context(), restore.Config{Store: s, Plan: p, EtcdVersion: anyVersion}, path)
	if err != nil {
		t.Fatal(err)
	}
	db, err := bolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	compared := func() Result {
		contents, err := contentsOf(db)
		if err != nil {
			t.Fatal(err)
		}
		return comparison{db: db, plan: p, checkpoints: got.Checkpoints[:1], contents: contents}.judge(t.Context())
	}
	if r := compared(); r.Verdict != Verified || !slices.Equal(r.Compared, all) ||
		!strings.Contains(strings.Join(r.NotCompared, ""), "1 leases are restored, and there were 2") {
		t.Errorf("got %+v", r)
	}
	err = db.Update(func(tx *bolt.Tx) error {
		return tx.Bucket(schema.Lease.Name()).Delete(binary.BigEndian.AppendUint64(nil, uint64(held)))
	})
	if err != nil {
		t.Fatal(err)
	}
	if r := compared(); r.Verdict != Broken || r.Object != full.Key || !strings.Contains(r.Reason, "but not the lease") ||
		slices.Contains(r.Compared, "leases of keys") {
		t.Errorf("without lease %x: got %+v", held, r)
	}
	if got.Checkpoints[0].Alive = nil; !strings.Contains(strings.Join(compared().NotCompared, ""), "leases: the checkpoint does not report") {
		t.Errorf("where the delta does not report: got %+v", compared())
	}
}
