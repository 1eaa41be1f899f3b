package survivor

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/coreos/go-semver/semver"
	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/auth"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3alarm"
	etcdapply "go.etcd.io/etcd/server/v3/etcdserver/apply"
	"go.etcd.io/etcd/server/v3/etcdserver/cindex"
	"go.etcd.io/etcd/server/v3/lease"
	"go.etcd.io/etcd/server/v3/storage/backend"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/etcd-druid/druid/agent/datadir"
	"github.com/etcd-druid/druid/internal/loop"
)

const (
	// uncommitted is how many bytes of entries a transaction has at most: etcd keeps them in memory until it ends.
	uncommitted = 4 << 20
	// batchLimit is the same in changes, and etcd's default.
	batchLimit = 10_000
	// never is the interval in which etcd would commit in a goroutine of its own.
	never = 365 * 24 * time.Hour
	// compactBatch and compactPause let a compaction run at full speed, because no client waits.
	compactBatch = 10_000
	compactPause = time.Microsecond
	// authCost is for hashing passwords. The log has only hashed ones.
	authCost = 4
)

// apply brings the database at path to the end of the log. etcd's code panics, ends the process, or stops a goroutine
// that holds locks, when the disk is full or data is not what it expects. So it runs in a goroutine of its own, and
// all of these become the returned error. The caller must not use the database
// then, but remove it.
func apply(ctx context.Context, path string, tail *datadir.Tail, minTTL int64) (uint64, error) {
	failed := newFailure()
	a := &applier{failed: failed, log: zap.NewNop().WithOptions(zap.WithFatalHook(failed)), minTTL: minTTL}
	var g errgroup.Group
	g.Go(func() error {
		failed.guard(func() error { return a.run(ctx, path, tail) })
		return failed.get()
	})
	if err := errors.Join(g.Wait(), failed.get()); err != nil {
		return 0, errors.Join(fmt.Errorf("apply the log, at entry %d: %w", a.index, err), a.abandon())
	}
	return a.applied, nil
}

// failure is the first failure of etcd's code.
type failure struct {
	once sync.Once
	err  error
	is   chan struct{}
}

func newFailure() *failure { return &failure{is: make(chan struct{})} }

func (f *failure) set(err error) {
	f.once.Do(func() {
		f.err = err
		close(f.is)
	})
}

func (f *failure) get() error {
	select {
	case <-f.is:
		return f.err
	default:
		return nil
	}
}

// OnWrite takes a log line with which etcd would end the process, and stops the goroutine instead.
func (f *failure) OnWrite(e *zapcore.CheckedEntry, fields []zapcore.Field) {
	err := fmt.Errorf("%w: %s", ErrRequest, e.Message)
	for _, field := range fields {
		if cause, ok := field.Interface.(error); ok {
			err = fmt.Errorf("%s: %w", e.Message, cause)
		}
	}
	f.set(err)
	runtime.Goexit()
}

// guard records an error, a panic, and a fault of a page that is not there.
func (f *failure) guard(work func() error) {
	if err := loop.RecoverFault(work, func(panicked any) error { return fmt.Errorf("%w: %v", ErrRequest, panicked) }); err != nil {
		f.set(err)
	}
}

// applier applies the entries of a log to a database, as the etcd that wrote them would.
type applier struct {
	failed *failure
	log    *zap.Logger
	minTTL int64

	be      backend.Backend
	lessor  lease.Lessor
	kv      mvcc.WatchableKV
	users   auth.AuthStore
	uber    etcdapply.UberApplier
	pending int
	// index is that of the entry that is being applied, 0 before the first, and applied counts them.
	index, applied uint64
}

func (a *applier) run(ctx context.Context, path string, tail *datadir.Tail) error {
	version, err := clusterVersion(path)
	if err != nil {
		return err
	}
	a.be = backend.New(backend.BackendConfig{
		Path: path, BatchInterval: never, BatchLimit: batchLimit, BackendFreelistType: bolt.FreelistMapType, MmapSize: backend.InitialMmapSize,
		Logger: a.log, UnsafeNoFsync: true, Timeout: time.Second,
	})
	// The order is etcd's: keys are attached to leases when they are loaded.
	a.lessor = lease.NewLessor(a.log, a.be, version, lease.LessorConfig{MinLeaseTTL: a.minTTL})
	a.kv = mvcc.New(a.log, a.be, a.lessor, mvcc.StoreConfig{CompactionBatchLimit: compactBatch, CompactionSleepInterval: compactPause})
	tokens, err := auth.NewTokenProvider(a.log, "", nil, 0)
	if err != nil {
		return err
	}
	a.users = auth.NewAuthStore(a.log, schema.NewAuthBackend(a.log, a.be), tokens, authCost)
	alarms, err := v3alarm.NewAlarmStore(a.log, schema.NewAlarmBackend(a.log, a.be))
	if err != nil {
		return err
	}
	a.uber = etcdapply.NewUberApplier(etcdapply.ApplierOptions{
		Logger: a.log, KV: a.kv, AlarmStore: alarms, AuthStore: a.users, Lessor: a.lessor, Cluster: membership.NewCluster(a.log), RaftStatus: noRaft{},
		SnapshotServer: noRaft{}, ConsistentIndex: cindex.NewConsistentIndex(a.be), TxnModeWriteWithSharedBuffer: true, Backend: a.be,
		// Entries over the quota are in the log only if etcd applied them. So no quota.
		QuotaBackendBytesCfg: -1, WarningApplyDuration: never,
	})
	if err := tail.Each(ctx, func(e *raftpb.Entry) error { return a.entry(ctx, e) }); err != nil {
		return err
	}
	a.be.ForceCommit()
	return a.close()
}

// close ends all goroutines of etcd's code, and then closes the file. A compaction in one of them ends with its present
// batch.
func (a *applier) close() error {
	var errs []error
	if a.lessor != nil {
		a.lessor.Stop()
	}
	if a.kv != nil {
		errs = append(errs, a.kv.Close())
	}
	if a.users != nil {
		errs = append(errs, a.users.Close())
	}
	if a.be != nil {
		errs = append(errs, a.be.Close())
	}
	return errors.Join(errs...)
}

// closeWait is how long close can take after a failure. A batch of a compaction takes less than a second.
const closeWait = 10 * time.Second

// abandon closes the database after a failure. The caller removes the file. It must not make it shorter: while a
// goroutine of etcd's code reads the file, a page that is not there ends the process. A goroutine that stopped can hold
// a lock, so that the file stays open.
func (a *applier) abandon() error {
	closed, wait := make(chan struct{}), time.NewTimer(closeWait)
	defer wait.Stop()
	var g errgroup.Group // it is not waited for, because it can be blocked until the process ends
	g.Go(func() error {
		defer close(closed)
		a.failed.guard(a.close)
		return nil
	})
	select {
	case <-closed:
		return nil
	case <-wait.C:
		return fmt.Errorf("close the copy of the database: not done after %v: restart the agent to free its space", closeWait)
	}
}

func (a *applier) entry(ctx context.Context, e *raftpb.Entry) error {
	a.index = e.GetIndex()
	a.applied++
	// Changes of members are skipped: the new raft group has other ones. An empty entry is a leader's first.
	if e.GetType() != raftpb.EntryNormal || len(e.Data) == 0 || isV2(e.Data) {
		return nil
	}
	var r etcdserverpb.InternalRaftRequest
	if err := proto.Unmarshal(e.Data, &r); err != nil {
		return fmt.Errorf("%w: decode entry %d: %w", ErrRequest, e.GetIndex(), err)
	}
	if !changesData(&r) {
		return nil
	}
	result := a.uber.Apply(&etcdapply.InternalRaftRequestWrapper{InternalRaftRequest: &r, SkipRangeExecution: r.Txn != nil}, membership.ApplyBoth)
	if result != nil && result.Physc != nil && result.Err == nil {
		select {
		case <-result.Physc:
		case <-a.failed.is:
			return a.failed.get()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if a.pending += len(e.Data); a.pending >= uncommitted {
		a.pending = 0
		a.be.ForceCommit()
	}
	return a.failed.get()
}

// changesData reports whether a request is about the content of the database. The others read, or are about members
// and versions, which the new raft group has of its own.
func changesData(r *etcdserverpb.InternalRaftRequest) bool {
	reads := r.Range != nil || r.AuthUserGet != nil || r.AuthRoleGet != nil || r.AuthStatus != nil
	return !reads && r.ClusterVersionSet == nil && r.ClusterMemberAttrSet == nil && r.DowngradeInfoSet == nil && r.DowngradeVersionTest == nil
}

// v2Field is the number of the field that only requests to the v2 store have: their method, which is always set, or
// the request itself, in later messages.
const v2Field = 2

// isV2 reports whether an entry of etcd 3.5 is a request to the v2 store, which has only members and versions. The
// bytes of one are also a valid message of another type.
func isV2(data []byte) bool {
	for len(data) > 0 {
		field, kind, n := protowire.ConsumeField(data)
		if n < 0 {
			return false
		}
		if field == v2Field && kind == protowire.BytesType {
			return true
		}
		data = data[n:]
	}
	return false
}

// versionStub is the cluster version, which decides what etcd writes about a lease.
type versionStub struct{ version *semver.Version }

func (s versionStub) Version() *semver.Version { return s.version }

func clusterVersion(path string) (s versionStub, err error) {
	db, err := bolt.Open(path, 0, &bolt.Options{ReadOnly: true, Timeout: time.Second, NoStatistics: true})
	if err != nil {
		return s, fmt.Errorf("open the copy of the database: %w", err)
	}
	err = db.View(func(tx *bolt.Tx) error {
		bucket := tx.Bucket(schema.Cluster.Name())
		if bucket == nil {
			return nil
		}
		if raw := bucket.Get(schema.ClusterClusterVersionKeyName); raw != nil {
			s.version, err = semver.NewVersion(string(raw))
		}
		return err
	})
	return s, errors.Join(err, db.Close())
}

// noRaft is the state of raft in the answers to requests, which no client gets.
type noRaft struct{}

func (noRaft) MemberID() types.ID     { return 0 }
func (noRaft) Leader() types.ID       { return 0 }
func (noRaft) CommittedIndex() uint64 { return 0 }
func (noRaft) AppliedIndex() uint64   { return 0 }
func (noRaft) Term() uint64           { return 0 }
func (noRaft) ForceSnapshot()         {}
