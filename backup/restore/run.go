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

// Run makes the data directory for the plan. On an error there is none, and Run removes the workspace next to it. If
// the process dies, the workspace remains, and the next Run recognizes and removes it.
func Run(ctx context.Context, c Config) (Result, error) {
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
	return inWorkspace(ctx, &c, cluster, self, trailer.Size, func(path string) (Result, error) {
		return build(ctx, &c, trailer, path, cluster)
	})
}

// inWorkspace calls database, which makes a database of at least size bytes for cluster, and puts it into a data directory.
func inWorkspace(ctx context.Context, c *Config, cluster *membership.RaftCluster, self *membership.Member, size int64,
	database func(path string) (Result, error),
) (result Result, err error) {
	w, err := enter(c)
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
	if err := checkSpace(w.path, c, size, logSpace); err != nil {
		return Result{}, err
	}
	path := filepath.Join(w.data(), "member", "snap", "db")
	if err := os.MkdirAll(filepath.Dir(path), dirMode); err != nil {
		return Result{}, fmt.Errorf("restore: %w", err)
	}
	if result, err = database(path); err != nil {
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

// Database makes only the database of the plan, at path, which must not exist. Members, the index of the log and all
// else are as in the full backup, so that the database equals what the cluster itself would have sent. Of c, it uses
// Store, Plan, EtcdVersion and Progress. On an error nothing remains at path.
func Database(ctx context.Context, c Config, path string) (result Result, err error) {
	c.Bump, c.ClearAlarms, c.Auth, c.File = 0, false, KeepAuth, store.Object{}
	trailer, err := precheck(ctx, &c)
	if err != nil {
		return Result{}, err
	}
	if err := checkSpace(filepath.Dir(path), &c, trailer.Size, 0); err != nil {
		return Result{}, err
	}
	if _, err := os.Lstat(path); err == nil {
		return Result{}, fmt.Errorf("restore: %s already exists and was not changed: %w", path, fs.ErrExist)
	}
	if result, err = build(ctx, &c, trailer, path, nil); err != nil {
		if gone := os.Remove(path); !errors.Is(gone, fs.ErrNotExist) {
			err = errors.Join(err, gone)
		}
		return Result{}, err
	}
	return result, nil
}

// build fetches the full backup, brings it to the target and, if cluster is set, writes the new cluster into it.
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

// change brings the fetched database to the target, with its complete history.
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
	if b.result.Size, err = finish(db); err != nil {
		return Result{}, fmt.Errorf("restore: %w", err)
	}
	return b.result, nil
}

// deltaBytes returns the size of the delta backups of a plan in the store.
func deltaBytes(p catalog.Plan) (sum int64) {
	for _, d := range p.Deltas {
		sum += d.Size
	}
	return sum
}

// builder is the state of a restore after the full backup was fetched.
type builder struct {
	c *Config
	// db is the fetched database. If it is only read, writer has another one. inPlace reports that it is changed.
	db      *bolt.DB
	inPlace bool
	trailer snapshot.Trailer
	reader  *reader
	writer  *writer
	result  Result
}

// begin finds the last revision of the full backup, and removes newer records than the target if necessary.
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
		return fmt.Errorf("restore: %s: %w: it ends at revision %d, but its trailer says one of %d to %d", subject, ErrSwapped,
			s.revision, b.trailer.Revision, b.trailer.Upper)
	}
	if target > 0 && s.revision > target {
		if target < s.compacted {
			return fmt.Errorf("restore: %s: %w: it ends at revision %d and was compacted at %d, so it no longer has revision %d",
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

// reached rejects a state before the planned one.
func (b *builder) reached() error {
	j, p := b.reader.joint, b.c.Plan
	b.result.Revision, b.result.Bumped = j.revision, j.revision+b.c.Bump
	b.result.Checkpoints = b.reader.checkpoints
	b.result.Events, b.result.Deltas = b.writer.progress.Events, b.writer.progress.Deltas
	// A plan by time may end with delta backups that are too new to be applied.
	if !p.Until.IsZero() || j.revision >= p.Reach {
		return nil
	}
	return fmt.Errorf("restore: %w: %s ends at revision %d, but the plan needs revision %d", ErrShort, j.object, j.revision, p.Reach)
}

// finish writes everything except the keys, in one transaction.
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
		if b.c.Auth == AdmitAgent {
			if err := admitAgent(tx); err != nil {
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
	// ErrNotEmpty: the data directory is not empty. It was not changed.
	ErrNotEmpty = errors.New("data directory is not empty")
	// ErrBusy: another restore into the same data directory is running.
	ErrBusy = errors.New("another restore is running")
	// ErrForeign: the path of the workspace has something that no restore made. It was not changed.
	ErrForeign = errors.New("not made by a restore")
	// ErrSpace: the disk is too small.
	ErrSpace = errors.New("not enough space")
	// ErrSpaceAlongside is an ErrSpace that is known only after everything was read: what is alive does not fit next
	// to the fetched full backup.
	ErrSpaceAlongside = fmt.Errorf("%w next to the full that was fetched", ErrSpace)
	// ErrVersion: the etcd that will run on the data cannot read it.
	ErrVersion = errors.New("etcd version")
	// ErrQuota: the database is larger than the quota of the etcd that will run on it.
	ErrQuota = errors.New("quota")
	// ErrAuth: the data has authentication enabled.
	ErrAuth = errors.New("authentication is on")
	// ErrTooNew: the full backup holds more than the target, and the excess cannot be removed. Plan again without it,
	// to use an older one.
	ErrTooNew = errors.New("the full backup is too new for the target")
	// ErrShort: the objects end before the planned revision.
	ErrShort = errors.New("backup ends early")
	// ErrSwapped: an object does not match its name.
	ErrSwapped = errors.New("the object does not match its name")
	// ErrFork: two objects have different histories of one lineage.
	ErrFork = errors.New("fork within a lineage")
)

// GapError means that no object of the plan has revisions From to To.
type GapError struct {
	From, To int64
	// After and Before are the keys of the objects on both sides of the gap.
	After, Before string
}

func (e *GapError) Error() string {
	return fmt.Sprintf("revisions %d to %d are missing between %s and %s", e.From, e.To, e.After, e.Before)
}
