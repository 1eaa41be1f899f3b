package verify

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/backup/delta"
	"github.com/etcd-druid/druid/backup/restore"
	"github.com/etcd-druid/druid/backup/snapshot"
	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/internal/loop"
)

const (
	scratchPrefix = "druid-verify-"
	// anyVersion lets a restore accept the format of every 3.x version, because no etcd will run on the result.
	anyVersion = "3.999"
)

// Config says what is verified, and where.
type Config struct {
	Store   store.Store
	Catalog catalog.Catalog
	// Target is the state to restore. The zero value is the latest state.
	Target catalog.Target
	// Scratch is an existing directory with space for the database. At the end, everything created in it is deleted.
	Scratch string
	// Rate limits the reads from the store, in bytes per second. 0 means no limit.
	Rate int64
	// Reserve is the minimum part of the scratch directory's file system that stays free, in percent. 0 means that
	// only the required space is checked.
	Reserve int64
	// Ask asks a member of the cluster for its checkpoint at a revision, if no delta backup has one. It can be nil.
	Ask func(ctx context.Context, revision int64) (delta.Checkpoint, error)
	// Trusted says whether the data of the member is that of a majority of all voters. Checkpoints of other members are not compared: their
	// data can have the same error as their full backups. nil trusts every member.
	Trusted func(memberID uint64) bool
	// Progress receives the progress of the restore. It can be nil, and must not block.
	Progress func(restore.Progress)
}

// Run restores the newest backups, or those that lead to the target, and compares them. Errors are in its Result.
func Run(ctx context.Context, c Config) Result {
	began := time.Now()
	if c.Rate > 0 {
		c.Store = slow(c.Store, c.Rate)
	}
	r := c.run(ctx)
	r.Took = time.Since(began)
	return r
}

func (c Config) run(ctx context.Context) Result {
	dir, err := os.MkdirTemp(c.Scratch, scratchPrefix)
	if err != nil {
		return Result{Verdict: Unknown, Reason: fmt.Sprintf("no scratch directory could be created: %v", err)}
	}
	r := c.restoreInto(ctx, filepath.Join(dir, "db"))
	if err := os.RemoveAll(dir); err != nil && r.Verdict == Verified {
		r.Reason = fmt.Sprintf("the scratch directory could not be deleted: %v", err)
	}
	return r
}

// restoreInto restores and compares. While the planned full backup has more than the target, it tries an older one.
func (c Config) restoreInto(ctx context.Context, path string) Result {
	for t := c.Target; ; {
		p, err := c.Catalog.Plan(t)
		if err != nil {
			return failed(err, p)
		}
		if err := c.room(ctx, p); err != nil {
			return failed(err, p)
		}
		got, err := restore.Database(ctx, restore.Config{Store: c.Store, Plan: p, EtcdVersion: anyVersion, Progress: c.Progress}, path)
		if errors.Is(err, restore.ErrTooNew) {
			t = t.Except(p.Full.Key)
			continue
		}
		if err != nil {
			return failed(err, p)
		}
		r := c.compare(ctx, path, p, got)
		r.Full, r.Revision, r.Size = p.Full.Key, got.Revision, got.Size
		return r
	}
}

func failed(err error, p catalog.Plan) Result {
	r := Result{Reason: err.Error(), Full: p.Full.Key}
	r.Verdict, r.Object = judge(err, p)
	return r
}

// room fails if the restore would fill a disk that others use too. The size of delta backups in the database is only
// estimated: a record rarely takes more than eight times its compressed size.
func (c Config) room(ctx context.Context, p catalog.Plan) error {
	if c.Reserve == 0 {
		return nil
	}
	need, err := restore.Need(ctx, c.Store, p)
	if err != nil {
		return err
	}
	for _, d := range p.Deltas {
		need += 7 * d.Size
	}
	free, total, err := restore.Space(c.Scratch)
	if err != nil {
		return fmt.Errorf("free space of %s: %w", c.Scratch, err)
	}
	stays := total / 100 * c.Reserve
	if free-need < stays {
		return fmt.Errorf("%w at %s: the restore needs about %d MiB, %d MiB are free, and %d MiB must stay free; free space there", restore.ErrSpace, c.Scratch,
			need>>20, free>>20, stays>>20)
	}
	return nil
}

// compare compares a database with the newest checkpoint that can be compared.
func (c Config) compare(ctx context.Context, path string, p catalog.Plan, got restore.Result) Result {
	db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true, Timeout: time.Second})
	if err != nil {
		return Result{Verdict: Unknown, Reason: fmt.Sprintf("the restored database cannot be opened: %v", err)}
	}
	contents, err := contentsOf(db)
	if err != nil {
		_ = db.Close() // nothing was written
		return Result{Verdict: Unknown, Reason: err.Error()}
	}
	r := comparison{db: db, plan: p, checkpoints: c.trusted(got.Checkpoints), contents: contents}.judge(ctx)
	if r.Checkpoint == nil && c.Ask != nil {
		if point, err := c.Ask(ctx, got.Revision); err != nil {
			r.Reason += fmt.Sprintf("; and no member returned a hash: %v", err)
		} else if c.Trusted != nil && !c.Trusted(point.MemberID) {
			r.Reason += fmt.Sprintf("; and the data of member %x, which returned a hash, is not that of a majority", point.MemberID)
		} else {
			r = comparison{db: db, plan: p, checkpoints: []restore.Checkpoint{{Checkpoint: point}}, contents: contents}.judge(ctx)
		}
	}
	r.Contents = contents
	_ = db.Close() // nothing was written
	return r
}

// trusted returns the checkpoints of trusted members.
func (c Config) trusted(all []restore.Checkpoint) []restore.Checkpoint {
	if c.Trusted == nil {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), func(point restore.Checkpoint) bool { return !c.Trusted(point.MemberID) })
}

// Clean removes what a crashed process left in a scratch directory. No other process may use the directory.
func Clean(scratch string) error {
	left, err := filepath.Glob(filepath.Join(scratch, scratchPrefix+"*"))
	for _, dir := range left {
		err = errors.Join(err, os.RemoveAll(dir))
	}
	if err != nil {
		return fmt.Errorf("clean the scratch directory: %w", err)
	}
	return nil
}

// Verdict is what is known about backups.
type Verdict string

const (
	// Verified: everything was read and restored, and at a revision it equals what etcd reported.
	Verified Verdict = "Verified"
	// Broken: the content of the store does not lead to a state that the cluster had. Only new backups resolve that.
	Broken Verdict = "Broken"
	// Unknown: the verification has no result, which says nothing about the backups.
	Unknown Verdict = "Unknown"
)

// Result of a verification.
type Result struct {
	Verdict Verdict `json:"verdict"`
	// Reason says why the verdict is not Verified.
	Reason string `json:"reason,omitempty"`
	// Object is the key of the invalid object. If a comparison failed, it is the oldest object that can be the cause,
	// and Suspects has all of them.
	Object   string   `json:"object,omitempty"`
	Suspects []string `json:"suspects,omitempty"`
	// Full is the full backup that was restored first, and the last restored revision, 0 for none.
	Full     string `json:"full,omitempty"`
	Revision int64  `json:"revision,omitempty"`
	// Checkpoint that was compared, and the key of its delta backup. It is nil if there was none.
	Checkpoint *Checkpoint `json:"checkpoint,omitempty"`
	// Compared lists what was compared with the checkpoint and is equal. NotCompared lists what was not compared, and
	// why.
	Compared    []string `json:"compared,omitempty"`
	NotCompared []string `json:"notCompared,omitempty"`
	// HashKV at the checkpoint's revision, and the number of keys that were alive.
	HashKV uint32 `json:"hashKV,omitempty"`
	Keys   int64  `json:"keys,omitempty"`
	Contents
	// Size of the database in bytes. Took is the total time.
	Size int64         `json:"size,omitempty"`
	Took time.Duration `json:"took"`
}

// Checkpoint is what etcd reported about itself.
type Checkpoint struct {
	Object          string `json:"object"`
	Revision        int64  `json:"revision"`
	CompactRevision int64  `json:"compactRevision"`
	HashKV          uint32 `json:"hashKV"`
	MemberID        uint64 `json:"memberID"`
	delta.Alongside
}

// judge separates what is invalid from what has no result, and names the object.
func judge(err error, p catalog.Plan) (Verdict, string) {
	if full, ok := errors.AsType[*snapshot.DamagedError](err); ok {
		return Broken, full.Object
	}
	if part, ok := errors.AsType[*delta.DamagedError](err); ok {
		return Broken, part.Object
	}
	if gap, ok := errors.AsType[*restore.GapError](err); ok {
		return Broken, gap.Before
	}
	if gap, ok := errors.AsType[*catalog.GapError](err); ok {
		return Broken, gap.After
	}
	for _, is := range []error{restore.ErrFork, restore.ErrSwapped, restore.ErrShort, store.ErrDamaged} {
		if errors.Is(err, is) {
			return Broken, named(err, p)
		}
	}
	return Unknown, ""
}

// named returns the last object of the plan that an error names. Every error that judge calls Broken names one.
func named(err error, p catalog.Plan) string {
	for _, d := range slices.Backward(p.Deltas) {
		if strings.Contains(err.Error(), d.Key) {
			return d.Key
		}
	}
	return p.Full.Key
}

// slow limits the reads and writes of a store to a total rate in bytes per second.
func slow(s store.Store, rate int64) store.Store {
	return slowStore{s, &limiter{rate: rate}}
}

type slowStore struct {
	store.Store
	limit *limiter
}

func (s slowStore) Get(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	r, err := s.Store.Get(ctx, key, offset, length)
	if err != nil {
		return nil, err
	}
	return &slowReader{r, ctx, s.limit}, nil
}

func (s slowStore) Put(ctx context.Context, key string, r io.Reader, o store.PutOptions) (store.Object, error) {
	return s.Store.Put(ctx, key, &slowReader{io.NopCloser(r), ctx, s.limit}, o)
}

// Connections returns those of the store, because all connections share the rate.
func (s slowStore) Connections() int { return store.Connections(s.Store) }

type slowReader struct {
	io.ReadCloser
	ctx   context.Context //nolint:containedctx // a Read has none, and must not outlast its Get's
	limit *limiter
}

// Version returns the version of the object that is read.
func (r *slowReader) Version() string {
	if v, ok := r.ReadCloser.(store.Versioned); ok {
		return v.Version()
	}
	return ""
}

func (r *slowReader) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	if waited := r.limit.wait(r.ctx, n); waited != nil && err == nil {
		err = waited
	}
	return n, err
}

// limiter has the time until which the reads so far should have taken.
type limiter struct {
	rate int64
	mu   sync.Mutex
	free time.Time
}

func (l *limiter) wait(ctx context.Context, n int) error {
	l.mu.Lock()
	now := time.Now()
	if l.free.Before(now) {
		l.free = now
	}
	l.free = l.free.Add(time.Duration(int64(n) * int64(time.Second) / l.rate))
	left := l.free.Sub(now)
	l.mu.Unlock()
	if !loop.Sleep(ctx, left) {
		return context.Cause(ctx)
	}
	return nil
}
