package restore

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/etcd-druid/druid/backup/boltcheck"
	"github.com/etcd-druid/druid/backup/snapshot"
)

// checkPages looks at every page of the database that was fetched. bbolt walks all of them when it opens one that has no list of the free
// ones, in a goroutine of its own, and there ends the process at a damaged one. The checksum held, so it was damaged when it was saved.
func checkPages(ctx context.Context, c *Config, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	defer f.Close() // only read
	err = boltcheck.File(ctx, f)
	damage, ok := errors.AsType[*boltcheck.DamagedError](err)
	switch {
	case ok && c.File.Key != "":
		err = &snapshot.FileError{Object: c.File.Key, Reason: fmt.Sprintf(
			"holds a database that was damaged when it was saved: %s; save another one, of another member", damage.Reason)}
	case ok:
		err = &snapshot.DamagedError{Object: c.Plan.Full.Key, Reason: "its database was damaged when it was taken: " + damage.Reason}
	case err != nil:
		err = fmt.Errorf("%s: %w", c.Subject(), err)
	}
	if err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	return nil
}
