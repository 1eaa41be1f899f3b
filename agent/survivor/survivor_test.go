package survivor

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/etcd-druid/druid/agent/datadir"
	"github.com/etcd-druid/druid/backup/restore"
	"github.com/etcd-druid/druid/test/member"
)

func walStart(r datadir.Report) *walpb.Snapshot {
	if r.Snapshot.Index == 0 {
		return &walpb.Snapshot{}
	}
	return &walpb.Snapshot{Index: &r.Snapshot.Index, Term: &r.Snapshot.Term}
}

// fingerprint has the content of all files below dir.
func fingerprint(t *testing.T, dir string) map[string][32]byte {
	t.Helper()
	sums := map[string][32]byte{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		raw, err := os.ReadFile(path)
		sums[path] = sha256.Sum256(raw)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return sums
}

// crashed is a volume with a real etcd's data: it wrote, and was killed while its log had a long tail.
func crashed(t *testing.T) *member.Member {
	t.Helper()
	m := member.Start(t, "3.7", member.Options{Token: "t", Args: lazy})
	traffic(t.Context(), t, m.Client, 600)
	// etcd writes its database when a lease is revoked, and its storage version after that.
	m.AwaitStorageVersion(t)
	lease, err := m.Client.Grant(t.Context(), 600)
	if err == nil {
		_, err = m.Client.Revoke(t.Context(), lease.ID)
	}
	if err != nil {
		t.Fatal(err)
	}
	for i := range 200 { // these are in the log alone
		if _, err := m.Client.Put(t.Context(), fmt.Sprint("last-", i), strings.Repeat("v", 1000)); err != nil {
			t.Fatal(err)
		}
	}
	m.Kill(t)
	return m
}

// flipIn inverts 64 bytes of a file after the given part of its size.
func flipIn(t *testing.T, path string, part float64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() // written
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	at, next := int64(part*float64(info.Size())), make([]byte, 4096)
	if _, err := f.ReadAt(next, at); err != nil {
		t.Fatal(err)
	}
	// A record whose length is damaged can look like one that was not written to its end. So the damage is in a value.
	if in := bytes.Index(next, bytes.Repeat([]byte("v"), 64)); in >= 0 {
		at, next = at+int64(in), next[in:]
	}
	b := next[:64]
	for i := range b {
		b[i] ^= 0xff
	}
	if _, err := f.WriteAt(b, at); err != nil {
		t.Fatal(err)
	}
}

// spoil overwrites all pages of a database but the two meta pages.
func spoil(t *testing.T, path string) {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := 2 * os.Getpagesize(); i < len(raw); i++ {
		raw[i] = 0xff
	}
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
}

func logOf(m *member.Member) string {
	return filepath.Join(m.Dir, "member", "wal", "0000000000000000-0000000000000000.wal")
}

// used is the part of the log file that has records.
func used(t *testing.T, m *member.Member) float64 {
	t.Helper()
	raw, err := os.ReadFile(logOf(m))
	if err != nil {
		t.Fatal(err)
	}
	return float64(len(bytes.TrimRight(raw, "\x00"))) / float64(len(raw))
}

func TestUnusableDataIsRefused(t *testing.T) {
	tests := map[string]struct {
		damage  func(t *testing.T, m *member.Member)
		change  func(*Config)
		want    error
		message string
	}{
		"an empty volume": {
			damage: func(t *testing.T, m *member.Member) { remove(t, m.Dir) }, want: ErrNoData, message: "choose another member, or a backup",
		},
		"no database": {
			damage: func(t *testing.T, m *member.Member) { remove(t, filepath.Join(m.Dir, "member", "snap", "db")) }, want: ErrNoData, message: "missing-db",
		},
		"a damaged page": {
			damage: func(t *testing.T, m *member.Member) { spoil(t, filepath.Join(m.Dir, "member", "snap", "db")) }, want: ErrNoData, message: "bad-page",
		},
		"a damaged log": {
			damage: func(t *testing.T, m *member.Member) { flipIn(t, logOf(m), used(t, m)/2) }, want: ErrDamagedLog, message: "acknowledged writes can be lost",
		},
		"a log that is gone": {
			damage: func(t *testing.T, m *member.Member) { remove(t, logOf(m)) }, want: ErrDamagedLog, message: "missing-wal-file",
		},
		"an older etcd": {change: func(c *Config) { c.EtcdVersion = "3.6" }, want: restore.ErrVersion, message: "use etcd 3.7"},
		"a peer URL that is none": {
			change: func(c *Config) { c.PeerURL = "nowhere" }, message: "nowhere",
		},
		"no token": {change: func(c *Config) { c.Token = "" }, message: "token"},
	}
	m := crashed(t)
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			own := &member.Member{Dir: filepath.Join(t.TempDir(), "data")}
			if err := os.CopyFS(own.Dir, os.DirFS(m.Dir)); err != nil {
				t.Fatal(err)
			}
			if tc.damage != nil {
				tc.damage(t, own)
			}
			c := config(t, own, "3.7")
			if tc.change != nil {
				tc.change(&c)
			}
			before := fingerprint(t, c.Volume)
			_, err := Run(t.Context(), c)
			if err == nil || !errors.Is(err, tc.want) && tc.want != nil || !strings.Contains(err.Error(), tc.message) || !strings.Contains(err.Error(), c.Name) {
				t.Errorf("%v; want %v with %q", err, tc.want, tc.message)
			}
			if !maps.Equal(before, fingerprint(t, c.Volume)) {
				t.Error("the volume changed")
			}
		})
	}
}

// An operator can accept the loss of what a damaged log does not show as committed. A torn tail loses nothing.
func TestADamagedLogIsAppliedUpToItsCommit(t *testing.T) {
	m := crashed(t)
	whole, err := datadir.Inspect(t.Context(), volumeOf(m), datadir.Options{Full: true})
	if err != nil {
		t.Fatal(err)
	}
	end := used(t, m)
	for name, tc := range map[string]struct {
		damage  func(t *testing.T, m *member.Member)
		damaged bool
		last    func(uint64) bool
	}{
		"near its end": {
			damage: func(t *testing.T, m *member.Member) { flipIn(t, logOf(m), 0.9*end) }, damaged: true,
			last: func(n uint64) bool { return n > whole.ConsistentIndex && n < whole.Last.Index },
		},
		"it is gone": {
			damage: func(t *testing.T, m *member.Member) { remove(t, logOf(m)) }, damaged: true,
			last: func(n uint64) bool { return n == whole.ConsistentIndex },
		},
		"a torn tail": {
			damage: func(t *testing.T, m *member.Member) {
				info, err := os.Stat(logOf(m))
				if err != nil {
					t.Fatal(err)
				}
				if err := os.Truncate(logOf(m), int64(end*float64(info.Size()))-3); err != nil {
					t.Fatal(err)
				}
			},
			last: func(n uint64) bool { return n >= whole.Last.Index-1 },
		},
	} {
		t.Run(name, func(t *testing.T) {
			own := &member.Member{Dir: filepath.Join(t.TempDir(), "data")}
			if err := os.CopyFS(own.Dir, os.DirFS(m.Dir)); err != nil {
				t.Fatal(err)
			}
			tc.damage(t, own)
			c := config(t, own, "3.7")
			c.Damaged = tc.damaged
			result, err := Run(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			if !tc.last(result.Last.Index) || (result.Damage != "") != tc.damaged {
				t.Errorf("%+v; the database had %d, the log %d", result, whole.ConsistentIndex, whole.Last.Index)
			}
			if _, err := startRestored(t, c, "3.7").Client.Put(t.Context(), "new", "write"); err != nil {
				t.Error(err)
			}
		})
	}
}

// Users, roles and permissions come from the log too, and a request that etcd refused is refused again.
func TestAuthenticationIsKept(t *testing.T) {
	m := member.Start(t, "3.7", member.Options{Token: "t", Args: lazy})
	ctx, c := t.Context(), m.Client
	_, err := c.RoleAdd(ctx, "writer")
	_, role := c.RoleGrantPermission(ctx, "writer", "a", "b", clientv3.PermissionType(clientv3.PermReadWrite))
	errs := []error{err, role}
	for _, user := range []string{"root", "alice"} {
		_, add := c.UserAdd(ctx, user, "secret")
		_, grant := c.UserGrantRole(ctx, user, map[string]string{"root": "root", "alice": "writer"}[user])
		errs = append(errs, add, grant)
	}
	_, enable := c.AuthEnable(ctx)
	if err := errors.Join(append(errs, enable)...); err != nil {
		t.Fatal(err)
	}
	alice, err := clientv3.New(clientv3.Config{Endpoints: []string{m.Endpoint}, Username: "alice", Password: "secret", Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer alice.Close() // its etcd ends
	_, own := alice.Put(ctx, "a", "hers")
	if _, foreign := alice.Put(ctx, "x", "not hers"); own != nil || foreign == nil {
		t.Fatalf("alice puts a: %v, puts x: %v", own, foreign)
	}
	m.Kill(t)
	cfg := config(t, m, "3.7")
	if _, err := Run(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	restored := member.Start(t, "3.7", member.Options{
		Dir: filepath.Join(cfg.Volume, "data.restored"), PeerURL: cfg.PeerURL, Args: []string{"--listen-peer-urls=http://127.0.0.1:0"}, User: "root",
		Password: "secret",
	})
	alice, err = clientv3.New(clientv3.Config{Endpoints: []string{restored.Endpoint}, Username: "alice", Password: "secret", Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer alice.Close() // its etcd ends
	if got, err := alice.Get(ctx, "a"); err != nil || got.Count != 1 {
		t.Errorf("%v, %v; want the write of alice", got, err)
	}
	if _, err := alice.Get(ctx, "x"); err == nil {
		t.Error("alice can read a key without a permission")
	}
}

// etcd ends its process or panics where it cannot continue. The agent must not.
func TestFailuresOfEtcdsCodeAreErrors(t *testing.T) {
	t.Run("a request that it does not know", func(t *testing.T) {
		m := crashed(t)
		report, err := datadir.Inspect(t.Context(), volumeOf(m), datadir.Options{})
		if err != nil {
			t.Fatal(err)
		}
		unknown := protowire.AppendTag(protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 7), 9999, protowire.BytesType)
		appendEntry(t, m, report, protowire.AppendBytes(unknown, []byte("new")))
		_, err = Run(t.Context(), config(t, m, "3.7"))
		if !errors.Is(err, ErrRequest) || !strings.Contains(err.Error(), fmt.Sprint("at entry ", report.Last.Index+1)) {
			t.Errorf("%v; want %v that names the entry %d", err, ErrRequest, report.Last.Index+1)
		}
		if _, err := os.Stat(filepath.Join(volumeOf(m), "data.restored")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%v; want no new data directory", err)
		}
	})
	t.Run("a log line that ends the process", func(t *testing.T) {
		f := newFailure()
		log := zap.NewNop().WithOptions(zap.WithFatalHook(f))
		done := make(chan struct{})
		go func() {
			defer close(done)
			f.guard(func() error {
				log.Fatal("failed to commit tx", zap.Error(syscall.ENOSPC)) //nolint:revive // the test shows that it does not end the process
				return nil
			})
		}()
		<-done
		if err := f.get(); !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "commit tx") {
			t.Errorf("%v; want the error of the disk", err)
		}
	})
	t.Run("no time is left", func(t *testing.T) {
		m := crashed(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := Run(ctx, config(t, m, "3.7")); !errors.Is(err, context.Canceled) {
			t.Errorf("%v; want the end of the context", err)
		}
	})
}

func appendEntry(t *testing.T, m *member.Member, r datadir.Report, data []byte) {
	t.Helper()
	log, err := wal.Open(zap.NewNop(), filepath.Join(m.Dir, "member", "wal"), walStart(r))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := log.ReadAll(); err != nil {
		t.Fatal(err)
	}
	entry := &raftpb.Entry{Term: &r.Last.Term, Index: new(r.Last.Index + 1), Data: data}
	if err := errors.Join(log.Save(&raftpb.HardState{}, []*raftpb.Entry{entry}), log.Close()); err != nil {
		t.Fatal(err)
	}
}

// A request to the v2 store, which etcd 3.5 still writes about its members, is also a valid request of another kind.
func TestRequestsToTheV2StoreAreRecognised(t *testing.T) {
	v2 := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 7) // ID
	for i, text := range []string{"SYNC", "", ""} {                                    // method, path, value
		v2 = protowire.AppendString(protowire.AppendTag(v2, protowire.Number(i+2), protowire.BytesType), text)
	}
	put, err := proto.Marshal(&etcdserverpb.InternalRaftRequest{Header: &etcdserverpb.RequestHeader{ID: 7}, Put: &etcdserverpb.PutRequest{Key: []byte("a")}})
	if err != nil {
		t.Fatal(err)
	}
	if !isV2(v2) || isV2(put) {
		t.Errorf("v2 request %v, put %v; want true, false", isV2(v2), isV2(put))
	}
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
}

// endsInCompaction ends when entry waits for a compaction, which is the only place that asks for Done.
type endsInCompaction struct {
	context.Context //nolint:containedctx // the rest of a context
	done            chan struct{}
	once            sync.Once
}

func (c *endsInCompaction) Done() <-chan struct{} {
	c.once.Do(func() { close(c.done) })
	return c.done
}

func (c *endsInCompaction) Err() error {
	select {
	case <-c.done:
		return context.Canceled
	default:
		return nil
	}
}

// A compaction runs in a goroutine of etcd's code. It must not read the database after apply returned: the caller
// removes the file, and a fault there ends the agent.
func TestACancelledCompactionEnds(t *testing.T) {
	m := member.Start(t, "3.7", member.Options{Token: "t", Args: lazy})
	const puts, perTxn = 60_000, 120
	var revision int64
	for n := 0; n < puts; n += perTxn {
		ops := make([]clientv3.Op, perTxn)
		for i := range ops {
			ops[i] = clientv3.OpPut(fmt.Sprint("key-", n+i), strings.Repeat("v", 200))
		}
		answer, err := m.Client.Txn(t.Context()).Then(ops...).Commit()
		if err != nil {
			t.Fatal(err)
		}
		revision = answer.Header.Revision
	}
	m.Kill(t)
	c := config(t, m, "3.7")
	report, err := datadir.Inspect(t.Context(), c.Volume, datadir.Options{})
	if err != nil {
		t.Fatal(err)
	}
	// etcd writes its database after a compaction, so that its own is never in the end of the log.
	request := &etcdserverpb.InternalRaftRequest{Header: &etcdserverpb.RequestHeader{ID: 7},
		Compaction: &etcdserverpb.CompactionRequest{Revision: revision, Physical: true}}
	raw, err := proto.Marshal(request)
	if err != nil {
		t.Fatal(err)
	}
	appendEntry(t, m, report, raw)
	source, err := open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "db")
	if err := copyFile(t.Context(), source.report.DB, path); err != nil {
		t.Fatal(err)
	}
	ctx := &endsInCompaction{Context: t.Context(), done: make(chan struct{})}
	if _, err := apply(ctx, path, source.tail, 2); !errors.Is(err, context.Canceled) {
		t.Errorf("%v; want the end of the context", err)
	}
	// A goroutine says that it ended just before it does.
	still := ""
	for late := time.Now().Add(10 * time.Second); time.Now().Before(late); runtime.Gosched() {
		buf := make([]byte, 1<<20)
		stacks := string(buf[:runtime.Stack(buf, true)])
		all := []string{"mvcc.(*store)", "schedule.(*fifo)", "lease.(*lessor)", "backend.(*backend)"}
		i := slices.IndexFunc(all, func(running string) bool { return strings.Contains(stacks, running) })
		if i < 0 {
			return
		}
		still = all[i]
	}
	t.Errorf("a goroutine of %s still runs", still)
}
