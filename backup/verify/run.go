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
	"golang.org/x/sys/unix"

	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/backup/delta"
	"github.com/etcd-druid/druid/backup/restore"
	"github.com/etcd-druid/druid/backup/snapshot"
	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/internal/loop"
)

const (
	scratchPrefix = "druid-proof-"
	// anyVersion lets a restore take the format of each 3.x: no etcd will run on it.
	anyVersion = "3.999"
)

// Config says what is verified, and where.
type Config struct {
	Store   store.Store
	Catalog catalog.Catalog
	// Target is what is restored; zero is the latest state.
	Target catalog.Target
	// Scratch is a directory that exists, with room for the database. All that is made in it is gone in the end.
	Scratch string
	// Rate limits how much of the store is read, in bytes per second; 0: it does not.
	Rate int64
	// Reserve is which part of the scratch directory's file system stays free at the least, in percent; 0: nothing more is
	// asked for than what is needed.
	Reserve int64
	// Ask asks a member of the cluster what it holds at a revision, where no delta reports anything to compare with. May be nil.
	Ask func(ctx context.Context, revision int64) (delta.Checkpoint, error)
	// Progress is reported how far the restore is. It may be nil, and must not block.
	Progress func(restore.Progress)
}

// Run restores the newest backups, or those that lead to the target, and compares. Whatever goes wrong is in its Result.
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
		return Result{Verdict: Unknown, Reason: fmt.Sprintf("no scratch directory: %v", err)}
	}
	r := c.restoreInto(ctx, filepath.Join(dir, "db"))
	if err := os.RemoveAll(dir); err != nil && r.Verdict == IsVerified {
		r.Reason = fmt.Sprintf("the scratch directory is left: %v", err)
	}
	return r
}

// restoreInto restores and compares. It takes older fulls for as long as those that were planned hold more than the target.
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

// room refuses what would fill a disk that others write to as well. Of what deltas take in the database no one knows more
// than that a record rarely takes eight times what it takes compressed.
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
	var fs unix.Statfs_t
	if err := unix.Statfs(c.Scratch, &fs); err != nil {
		return fmt.Errorf("free space of %s: %w", c.Scratch, err)
	}
	block := uint64(fs.Bsize)
	free, stays := int64(fs.Bavail*block), int64(fs.Blocks*block)/100*c.Reserve
	if free-need < stays {
		return fmt.Errorf("%w at %s: about %d MiB are needed, and %d MiB are free, of which %d stay for others", restore.ErrSpace, c.Scratch,
			need>>20, free>>20, stays>>20)
	}
	return nil
}

// compare compares a database with the newest checkpoint that it can be compared with.
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
	r := comparison{db: db, plan: p, checkpoints: got.Checkpoints, contents: contents}.judge(ctx)
	if r.Checkpoint == nil && c.Ask != nil {
		if point, err := c.Ask(ctx, got.Revision); err != nil {
			r.Reason += fmt.Sprintf("; and no member reports: %v", err)
		} else {
			r = comparison{db: db, plan: p, checkpoints: []restore.Checkpoint{{Checkpoint: point}}, contents: contents}.judge(ctx)
		}
	}
	r.Contents = contents
	_ = db.Close() // nothing was written
	return r
}

// Clean drops what a process that died left in a scratch directory. No one else may be using it.
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

// Verdict is what is known of backups.
type Verdict string

const (
	// Proven: all was read and restored, and at a revision it holds what etcd said that it held.
	IsVerified Verdict = "Proven"
	// Broken: what is in the store does not lead to a state that the cluster had. Only new backups repair that.
	Broken Verdict = "Broken"
	// Unknown: it was not found out. That says nothing of the backups.
	Unknown Verdict = "Unknown"
)

// Result of a verification.
type Result struct {
	Verdict Verdict `json:"verdict"`
	// Reason says in words why it is not Proven.
	Reason string `json:"reason,omitempty"`
	// Object is the key of what is broken. Where a comparison failed it is the oldest that can be to blame: Suspects are all.
	Object   string   `json:"object,omitempty"`
	Suspects []string `json:"suspects,omitempty"`
	// Full that it began with, and the last revision that was restored; 0: none was.
	Full     string `json:"full,omitempty"`
	Revision int64  `json:"revision,omitempty"`
	// Checkpoint that was compared, and the key of the delta that it is from; nil: there was none to compare with.
	Checkpoint *Checkpoint `json:"checkpoint,omitempty"`
	// Compared is what was compared with the checkpoint and is equal, NotCompared what was not, and why.
	Compared    []string `json:"compared,omitempty"`
	NotCompared []string `json:"notCompared,omitempty"`
	// HashKV that was found at the checkpoint's revision, and Keys that were alive.
	HashKV uint32 `json:"hashKV,omitempty"`
	Keys   int64  `json:"keys,omitempty"`
	Contents
	// Size of the database in bytes, and Took is the time that all took.
	Size int64         `json:"size,omitempty"`
	Took time.Duration `json:"took"`
}

// Checkpoint is what etcd said of itself.
type Checkpoint struct {
	Object          string `json:"object"`
	Revision        int64  `json:"revision"`
	CompactRevision int64  `json:"compactRevision"`
	HashKV          uint32 `json:"hashKV"`
	MemberID        uint64 `json:"memberID"`
	delta.Alongside
}

// judge reports what is broken from what was not found out, and which object it is.
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

// named is the last object of the plan that an error names; all of those that judge calls broken name one.
func named(err error, p catalog.Plan) string {
	for _, d := range slices.Backward(p.Deltas) {
		if strings.Contains(err.Error(), d.Key) {
			return d.Key
		}
	}
	return p.Full.Key
}

// slow is a store that is read and written at a limited rate, in bytes per second, by all together.
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

// Connections are those of the store: the rate is of all of them together.
func (s slowStore) Connections() int { return store.Connections(s.Store) }

type slowReader struct {
	io.ReadCloser
	ctx   context.Context //nolint:containedctx // a Read has none, and must not outlast its Get's
	limit *limiter
}

// Version is that of what is read.
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

// limiter is the time until which what was read so far should have taken.
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
