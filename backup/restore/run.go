package restore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"

	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/backup/delta"
	"github.com/etcd-druid/druid/backup/snapshot"
	"github.com/etcd-druid/druid/backup/store"
)

// Run makes the data directory that the plan leads to. On an error there is none, and the workspace next to it is gone; a
// process that dies leaves a workspace, which the next Run recognises and drops.
func Run(ctx context.Context, c Config) (result Result, err error) {
	if err := c.validate(); err != nil {
		return Result{}, err
	}
	cluster, self, err := newCluster(&c)
	if err != nil {
		return Result{}, err
	}
	trailer, err := look(ctx, &c)
	if err != nil {
		return Result{}, err
	}
	w, err := enter(&c)
	if err != nil {
		return Result{}, err
	}
	defer func() {
		if left := w.leave(); err == nil {
			err = left
		} else {
			err = errors.Join(err, left)
		}
	}()
	if err := checkSpace(w.path, &c, trailer.Size, logSpace); err != nil {
		return Result{}, err
	}
	path := filepath.Join(w.data(), "member", "snap", "db")
	if err := os.MkdirAll(filepath.Dir(path), dirMode); err != nil {
		return Result{}, fmt.Errorf("restore: %w", err)
	}
	if result, err = build(ctx, &c, trailer, path, cluster); err != nil {
		return Result{}, err
	}
	result.ClusterID, result.MemberID = uint64(cluster.ID()), uint64(self.ID)
	if err := writeLog(w.data(), cluster, self); err != nil {
		return Result{}, fmt.Errorf("restore: %w", err)
	}
	if err := context.Cause(ctx); err != nil {
		return Result{}, fmt.Errorf("restore: %w", err)
	}
	return result, w.publish()
}

// Database makes the database alone that the plan leads to, at path, which must not exist: with the members, the index of
// the log and all else as the full has it, so that it is what the cluster itself would have sent. Of c, Store, Plan,
// EtcdVersion and Progress count. On an error nothing is left at path.
func Database(ctx context.Context, c Config, path string) (result Result, err error) {
	c.Bump, c.ClearAlarms, c.File = 0, false, store.Object{}
	trailer, err := precheck(ctx, &c)
	if err != nil {
		return Result{}, err
	}
	if err := checkSpace(filepath.Dir(path), &c, trailer.Size, 0); err != nil {
		return Result{}, err
	}
	if _, err := os.Lstat(path); err == nil {
		return Result{}, fmt.Errorf("restore: %s is there already, and stays as it is: %w", path, fs.ErrExist)
	}
	if result, err = build(ctx, &c, trailer, path, nil); err != nil {
		if gone := os.Remove(path); !errors.Is(gone, fs.ErrNotExist) {
			err = errors.Join(err, gone)
		}
		return Result{}, err
	}
	return result, nil
}

// build fetches the full, brings it to the target and gives it to the new cluster, where there is one.
func build(ctx context.Context, c *Config, t snapshot.Trailer, path string, cluster *membership.RaftCluster) (Result, error) {
	if c.Bump > 0 {
		if err := fetch(ctx, c, t, path+fetchedSuffix); err != nil {
			return Result{}, err
		}
		return condense(ctx, c, t, path, cluster)
	}
	if err := fetch(ctx, c, t, path); err != nil {
		return Result{}, err
	}
	return change(ctx, c, t, path, cluster)
}

// change brings the fetched database to the target, with all of its history.
func change(ctx context.Context, c *Config, t snapshot.Trailer, path string, cluster *membership.RaftCluster) (result Result, err error) {
	if err := checkPages(ctx, c, path); err != nil {
		return Result{}, err
	}
	var db *bolt.DB
	err = guarded(func() (err error) {
		db, err = openDatabase(path, t.Size, deltaBytes(c.Plan))
		return err
	})
	if err != nil {
		return Result{}, fmt.Errorf("restore: %s: %w", c.Subject(), err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, db.Close())
		}
	}()
	b := &builder{c: c, db: db, inPlace: true, trailer: t}
	if err := guarded(b.begin); err != nil {
		return Result{}, err
	}
	if err := apply(ctx, c, b.reader, b.writer.run); err != nil {
		return Result{}, err
	}
	if err := b.reached(); err != nil {
		return Result{}, err
	}
	if err := guarded(func() error { return b.finish(cluster) }); err != nil {
		return Result{}, err
	}
	c.report(b.writer.progress)
	if b.result.Size, err = seal(db); err != nil {
		return Result{}, fmt.Errorf("restore: %w", err)
	}
	return b.result, nil
}

// deltaBytes are what the deltas of a plan take in the store.
func deltaBytes(p catalog.Plan) (sum int64) {
	for _, d := range p.Deltas {
		sum += d.Size
	}
	return sum
}

// builder is the state of a restore once the full is on disk.
type builder struct {
	c *Config
	// db is what was fetched. Where that is only read, writer has another one; inPlace says that it is changed.
	db      *bolt.DB
	inPlace bool
	trailer snapshot.Trailer
	reader  *reader
	writer  *writer
	result  Result
}

// begin finds out where the full ends, and cuts it back to the target where it must.
func (b *builder) begin() error {
	subject, target := b.c.Subject(), b.c.Plan.Revision
	key, _ := b.c.origin()
	var s state
	var leases *tracker
	err := b.db.View(func(tx *bolt.Tx) (err error) {
		if s, err = readState(tx); err != nil {
			return err
		}
		if err := checkContent(tx, b.c); err != nil {
			return err
		}
		leases, err = newTracker(tx)
		return err
	})
	if err != nil {
		return fmt.Errorf("restore: %s: %w", subject, err)
	}
	if s.revision < b.trailer.Revision || s.revision > b.trailer.Upper {
		return fmt.Errorf("restore: %s: %w: it ends at revision %d, and says to end at one of %d to %d", subject, ErrSwapped,
			s.revision, b.trailer.Revision, b.trailer.Upper)
	}
	if target > 0 && s.revision > target {
		if target < s.compacted {
			return fmt.Errorf("restore: %s: %w: it ends at revision %d and is compacted at %d, so that revision %d is no longer in it",
				subject, ErrTooNew, s.revision, s.compacted, target)
		}
		if b.inPlace { // else it is passed over
			if b.result.Trimmed, err = trim(b.db, target, leases); err != nil {
				return fmt.Errorf("restore: %s: %w", subject, err)
			}
		}
		s = state{revision: target}
	}
	b.reader = &reader{c: b.c, clusterID: uint64(b.trailer.ClusterID), leases: map[int64]delta.Lease{}, joint: joint{
		target: target, until: b.c.Plan.Until, revision: s.revision, digest: s.digest, object: key,
	}}
	phase := Applying
	if !b.inPlace {
		phase = Surveying
	}
	b.writer = &writer{c: b.c, db: b.db, leases: leases, progress: Progress{
		Phase: phase, Bytes: b.trailer.Size, TotalDeltas: len(b.c.Plan.Deltas), TotalDeltaBytes: deltaBytes(b.c.Plan), Revision: s.revision,
	}}
	b.c.report(b.writer.progress)
	return nil
}

// reached refuses a state before the one that was planned.
func (b *builder) reached() error {
	j, p := b.reader.joint, b.c.Plan
	b.result.Revision, b.result.Bumped = j.revision, j.revision+b.c.Bump
	b.result.Checkpoints = b.reader.checkpoints
	b.result.Events, b.result.Deltas = b.writer.progress.Events, b.writer.progress.Deltas
	// By time, the last deltas may have nothing that is old enough.
	if !p.Until.IsZero() || j.revision >= p.Reach {
		return nil
	}
	return fmt.Errorf("restore: %w: %s ends at revision %d, revision %d was planned", ErrShort, j.object, j.revision, p.Reach)
}

// finish writes all but the keys, in one transaction.
func (b *builder) finish(cluster *membership.RaftCluster) error {
	b.writer.progress.Phase = Finishing
	err := b.writer.db.Update(func(tx *bolt.Tx) (err error) {
		if b.result.Leases, b.result.Guessed, err = b.writer.leases.add(tx, b.reader.leases); err != nil {
			return err
		}
		if b.c.Bump > 0 {
			if err := bump(tx, b.result.Bumped); err != nil {
				return err
			}
		}
		if b.c.ClearAlarms {
			if err := clearSpaceAlarms(tx); err != nil {
				return err
			}
		}
		if cluster == nil {
			return nil
		}
		return replaceMembers(tx, cluster)
	})
	if err != nil {
		return fmt.Errorf("restore: finish the database: %w", spaceError(err))
	}
	return nil
}

var (
	// ErrNotEmpty: there is something in the data directory. It was not touched.
	ErrNotEmpty = errors.New("data directory is not empty")
	// ErrBusy: another restore into the same data directory is running.
	ErrBusy = errors.New("another restore is running")
	// ErrForeign: where this restore would write stands what no restore made. It was not touched.
	ErrForeign = errors.New("not made by a restore")
	// ErrSpace: the disk is too small.
	ErrSpace = errors.New("not enough space")
	// ErrSpaceAlongside is an ErrSpace that only shows when all was read: what is alive does not fit next to the full that was fetched.
	ErrSpaceAlongside = fmt.Errorf("%w next to the full that was fetched", ErrSpace)
	// ErrVersion: the etcd that is to run on the data cannot read it.
	ErrVersion = errors.New("etcd version")
	// ErrQuota: the database is larger than the quota of the etcd that is to run on it.
	ErrQuota = errors.New("quota")
	// ErrAuth: authentication is on in the data.
	ErrAuth = errors.New("authentication is on")
	// ErrTooNew: the full already holds more than the target, and cannot be cut back to it. An older full must be taken:
	// plan again without this one.
	ErrTooNew = errors.New("full is too new for the target")
	// ErrShort: the objects end before what was planned.
	ErrShort = errors.New("backup ends early")
	// ErrSwapped: an object is not the one that its name promises.
	ErrSwapped = errors.New("another object stands under this name")
	// ErrFork: two objects report different histories of one lineage.
	ErrFork = errors.New("fork inside lineage")
)

// GapError says that revisions From to To are in no object of the plan.
type GapError struct {
	From, To int64
	// After and Before are the keys of the objects on both sides of the hole.
	After, Before string
}

func (e *GapError) Error() string {
	return fmt.Sprintf("revisions %d to %d are missing between %s and %s", e.From, e.To, e.After, e.Before)
}
