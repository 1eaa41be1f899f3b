package restore

import (
	"context"
	"fmt"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
)

// Given makes the data directory from a database that write makes at path, of about size bytes. It is for a database
// that does not come from a store. The database keeps its history; etcd drops it when it starts. The new revision is
// c.Bump above the later one of the database's and seen, the latest known one. Of c, it does not use Store, Plan
// and File. As with Run, there is no data directory on an error.
func Given(ctx context.Context, c Config, size, seen int64, write func(ctx context.Context, path string) error) (Result, error) {
	if err := c.validateTarget(); err != nil {
		return Result{}, err
	}
	cluster, self, err := newCluster(&c)
	if err != nil {
		return Result{}, err
	}
	return inWorkspace(ctx, &c, cluster, self, size, func(path string) (Result, error) {
		if err := write(ctx, path); err != nil {
			return Result{}, err
		}
		return convert(&c, path, seen, cluster)
	})
}

// convert writes the new cluster into a complete database.
func convert(c *Config, path string, seen int64, cluster *membership.RaftCluster) (result Result, err error) {
	c.report(Progress{Phase: Finishing})
	var db *bolt.DB
	err = guarded(func() (err error) {
		db, err = openDatabase(path, 0, 0)
		return err
	})
	if err != nil {
		return Result{}, fmt.Errorf("restore: %w", err)
	}
	err = guarded(func() error {
		return db.Update(func(tx *bolt.Tx) error {
			s, err := readState(tx)
			if err != nil {
				return err
			}
			if err := checkContent(tx, c); err != nil {
				return err
			}
			result.Revision, result.Bumped = s.revision, max(s.revision, seen)+c.Bump
			if c.Bump > 0 {
				if err := bump(tx, result.Bumped); err != nil {
					return err
				}
			}
			if c.ClearAlarms {
				if err := clearSpaceAlarms(tx); err != nil {
					return err
				}
			}
			return replaceMembers(tx, cluster)
		})
	})
	size, closed := finish(db)
	if err == nil {
		err = closed
	}
	if err != nil {
		return Result{}, fmt.Errorf("restore: finish the database: %w", spaceError(err))
	}
	result.Size = size
	return result, nil
}
