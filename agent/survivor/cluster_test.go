package survivor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"

	"github.com/etcd-druid/druid/agent/datadir"
	"github.com/etcd-druid/druid/backup/restore"
	"github.com/etcd-druid/druid/backup/verify"
	"github.com/etcd-druid/druid/test/member"
)

// maxWait is the timeout for what takes seconds on an idle machine.
const maxWait = 2 * time.Minute

// lazy makes etcd write its database rarely, so that its log has a long tail.
var lazy = []string{"--backend-batch-interval=1h", "--backend-batch-limit=100000"}

// volumeOf is the volume of a member: test/member calls the data directory as the agent does.
func volumeOf(m *member.Member) string { return filepath.Dir(m.Dir) }

func config(t *testing.T, m *member.Member, minor string) Config {
	t.Helper()
	return Config{
		Volume: volumeOf(m), EtcdVersion: minor, Name: member.Name, PeerURL: "http://127.0.0.1:1", Token: "recovered", MinLeaseTTL: 2,
	}
}

// chain is a key that one client counts up by compare-and-swap.
type chain struct {
	key          string
	acknowledged int
}

// chains writes until ctx ends, through one client for each chain, and returns what was acknowledged.
func chains(ctx context.Context, t *testing.T, members []*member.Member) []chain {
	t.Helper()
	var wg sync.WaitGroup
	all := make([]chain, 12)
	for i := range all {
		all[i].key = fmt.Sprintf("chain-%02d", i)
		client := members[i%len(members)].Client
		wg.Go(func() {
			revision := int64(0)
			for n := 1; ctx.Err() == nil; n++ {
				put := clientv3.OpPut(all[i].key, fmt.Sprint(n))
				answer, err := client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(all[i].key), "=", revision)).Then(put).Commit()
				if err != nil || !answer.Succeeded {
					return // whether it was written is unknown, so the chain ends
				}
				revision, all[i].acknowledged = answer.Header.Revision, n
			}
		})
	}
	wg.Wait()
	return all
}

// traffic makes all kinds of changes.
func traffic(ctx context.Context, t *testing.T, c *clientv3.Client, n int) {
	t.Helper()
	random := rand.New(rand.NewPCG(1, 2))
	long, err := c.Grant(ctx, 7200)
	if err != nil {
		t.Error(err)
		return
	}
	for i := range n {
		key := fmt.Sprintf("key-%03d", random.IntN(200))
		var err error
		switch i % 10 {
		case 0:
			_, err = c.Delete(ctx, key)
		case 1:
			_, err = c.Put(ctx, key, "leased", clientv3.WithLease(long.ID))
		case 2:
			var short *clientv3.LeaseGrantResponse
			if short, err = c.Grant(ctx, 3600); err == nil {
				_, err = c.Put(ctx, key, "revoked", clientv3.WithLease(short.ID))
				_, revoked := c.Revoke(ctx, short.ID)
				err = errors.Join(err, revoked)
			}
		case 3:
			_, err = c.Txn(ctx).If(clientv3.Compare(clientv3.Version(key), ">", 1)).
				Then(clientv3.OpDelete("key-0", clientv3.WithPrefix()), clientv3.OpGet("key-1", clientv3.WithPrefix())).
				Else(clientv3.OpPut(key, "else"), clientv3.OpTxn(nil, []clientv3.Op{clientv3.OpPut("nested", key)}, nil)).Commit()
		case 4:
			if i%250 == 104 {
				var at *clientv3.PutResponse
				if at, err = c.Put(ctx, "compacted", key); err == nil {
					_, err = c.Compact(ctx, at.Header.Revision-20)
				}
			}
		default:
			_, err = c.Put(ctx, key, string(bytes.Repeat([]byte{byte(i)}, random.IntN(2000))))
		}
		if err != nil {
			if ctx.Err() == nil {
				t.Error(err)
			}
			return
		}
	}
}

// killed runs a cluster under chains and traffic, and kills all its members at a random moment.
func killed(t *testing.T, minor string) ([]*member.Member, []chain) {
	t.Helper()
	members := member.StartCluster(t, minor, 3, lazy...)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var written []chain
	var wg sync.WaitGroup
	wg.Go(func() { traffic(t.Context(), t, members[0].Client, 600) })
	wg.Wait()
	wg.Go(func() { written = chains(ctx, t, members) })
	wg.Go(func() {
		timer := time.NewTimer(time.Second + rand.N(time.Second))
		defer timer.Stop()
		<-timer.C
		for _, m := range members {
			wg.Go(func() { m.Kill(t) })
		}
	})
	timer := time.NewTimer(3 * time.Second)
	defer timer.Stop()
	<-timer.C
	cancel()
	wg.Wait()
	return members, written
}

// best is the member whose log ends last.
func best(t *testing.T, members []*member.Member, minor string) (*member.Member, datadir.Report) {
	t.Helper()
	reports := map[*member.Member]datadir.Report{}
	for _, m := range members {
		r, err := datadir.Inspect(t.Context(), volumeOf(m), datadir.Options{EtcdVersion: minor, Full: true})
		if err != nil || r.State != datadir.Intact {
			t.Fatalf("%v, %s, %v; want intact data", r, r.Detail, err)
		}
		t.Logf("member %x: applied %d, committed %d, last %+v", r.MemberID, r.ConsistentIndex, r.Commit, r.Last)
		reports[m] = r
	}
	m := slices.MaxFunc(slices.Collect(maps.Keys(reports)), func(a, b *member.Member) int {
		if reports[a].Last.Less(reports[b].Last) {
			return -1
		}
		return 1
	})
	return m, reports[m]
}

// oracle commits the complete log on a copy of the data, and lets an etcd of the same minor apply it.
func oracle(t *testing.T, m *member.Member, r datadir.Report, minor string) *member.Member {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	if err := os.CopyFS(dir, os.DirFS(m.Dir)); err != nil {
		t.Fatal(err)
	}
	log, err := wal.Open(zap.NewNop(), filepath.Join(dir, "member", "wal"), walStart(r))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := log.ReadAll(); err != nil {
		t.Fatal(err)
	}
	err = errors.Join(log.Save(&raftpb.HardState{Term: &r.Term, Vote: &r.Vote, Commit: &r.Last.Index}, nil), log.Close())
	if err != nil {
		t.Fatal(err)
	}
	return member.Start(t, minor, member.Options{Dir: dir, Args: []string{"--force-new-cluster"}})
}

// applied is the database of the survivor with its log applied, before it gets new members and another revision.
func applied(t *testing.T, c Config) string {
	t.Helper()
	s, err := open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "db")
	if _, err := s.write(t.Context(), path, c.MinLeaseTTL); err != nil {
		t.Fatal(err)
	}
	return path
}

// All members are killed under load. The survivor's data has what etcd itself makes of its log, and each write that
// was acknowledged.
func TestNoAcknowledgedWriteIsLost(t *testing.T) {
	for _, minor := range member.Minors {
		t.Run(minor, func(t *testing.T) {
			t.Parallel()
			members, written := killed(t, minor)
			m, report := best(t, members, minor)
			if report.Last.Index <= report.ConsistentIndex {
				t.Errorf("the log ends at %d, and the database has applied %d; want a log with a tail", report.Last.Index, report.ConsistentIndex)
			}
			c := config(t, m, minor)
			own := oracle(t, m, report, minor)
			compareHash(t, own, applied(t, c))

			before := fingerprint(t, m.Dir)
			c.Seen = 5_000_000
			result, err := Run(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			if result.Last != report.Last || result.Damage != "" || result.Bumped != c.Seen+restore.DefaultBump {
				t.Errorf("%+v; want the end of the log %+v, and a revision above %d", result, report.Last, c.Seen)
			}
			if after := fingerprint(t, m.Dir); !maps.Equal(before, after) {
				t.Error("the data of the survivor changed")
			}
			restored := startRestored(t, c, minor)
			compareKeys(t, own, restored, result.Bumped)
			for _, w := range written {
				got, err := restored.Client.Get(t.Context(), w.key)
				n := 0
				if err == nil && len(got.Kvs) == 1 {
					_, err = fmt.Sscan(string(got.Kvs[0].Value), &n)
				}
				if err != nil || n < w.acknowledged || n > w.acknowledged+1 {
					t.Errorf("%s is %d (%v), want the acknowledged %d or the next", w.key, n, err, w.acknowledged)
				}
			}
		})
	}
}

// startRestored runs an etcd on the new data directory.
func startRestored(t *testing.T, c Config, minor string) *member.Member {
	t.Helper()
	return member.Start(t, minor, member.Options{Dir: filepath.Join(c.Volume, "data.restored"), PeerURL: c.PeerURL,
		Args: []string{"--listen-peer-urls=http://127.0.0.1:0"}})
}

// compareHash compares the database at path with what etcd reports.
func compareHash(t *testing.T, own *member.Member, path string) {
	t.Helper()
	want, err := own.Client.HashKV(t.Context(), own.Endpoint, 0)
	if err != nil {
		t.Fatal(err)
	}
	db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true, Timeout: maxWait})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close() // only read
	got, err := verify.StateAt(t.Context(), db, want.Header.Revision, want.CompactRevision)
	if err != nil || got.HashKV != want.Hash {
		t.Errorf("hash %x (%v), etcd has %x at revision %d, compacted at %d", got.HashKV, err, want.Hash, want.Header.Revision, want.CompactRevision)
	}
}

// compareKeys compares all keys and leases of two etcds.
func compareKeys(t *testing.T, own, restored *member.Member, bumped int64) {
	t.Helper()
	want, wrong := own.Client.Get(t.Context(), "\x00", clientv3.WithFromKey())
	got, err := restored.Client.Get(t.Context(), "\x00", clientv3.WithFromKey())
	if err := errors.Join(err, wrong); err != nil {
		t.Fatal(err)
	}
	if got.Header.Revision < bumped || len(got.Kvs) != len(want.Kvs) || len(got.Kvs) == 0 {
		t.Fatalf("%d keys at revision %d, want %d keys at revision %d or later", len(got.Kvs), got.Header.Revision, len(want.Kvs), bumped)
	}
	for i, kv := range want.Kvs {
		if kv.String() != got.Kvs[i].String() {
			t.Errorf("%v, want %v", got.Kvs[i], kv)
		}
		if kv.Lease == 0 {
			continue
		}
		ttl, err := restored.Client.TimeToLive(t.Context(), clientv3.LeaseID(kv.Lease), clientv3.WithAttachedKeys())
		if err != nil || ttl.GrantedTTL < 3600 || !slices.ContainsFunc(ttl.Keys, func(k []byte) bool { return bytes.Equal(k, kv.Key) }) {
			t.Errorf("lease %x of key %s: %+v, %v", kv.Lease, kv.Key, ttl, err)
		}
	}
	if _, err := restored.Client.Get(t.Context(), "x", clientv3.WithRev(want.Header.Revision)); err == nil {
		t.Error("an old revision can be read, want it compacted")
	}
	list, err := restored.Client.MemberList(t.Context())
	if err != nil || len(list.Members) != 1 || list.Members[0].Name != member.Name {
		t.Errorf("members %v, %v; want the survivor alone", list, err)
	}
}
