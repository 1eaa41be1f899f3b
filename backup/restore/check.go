package restore

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"syscall"

	"github.com/etcd-druid/druid/backup/chain"
	"github.com/etcd-druid/druid/backup/snapshot"
	"github.com/etcd-druid/druid/backup/store"
)

// logSpace is what etcd's log takes: a segment of 64 MB, and the next one, which is made in advance.
const logSpace = 2 * 64 << 20

// precheck reads the end of the full and refuses what can be refused before anything is written.
func precheck(ctx context.Context, c *Config) (snapshot.Trailer, error) {
	full := c.Plan.Full
	t, err := snapshot.ReadTrailer(ctx, c.Store, full.Key, full.Size)
	if err != nil {
		return t, fmt.Errorf("restore: %w", err)
	}
	if t.Lineage != string(full.Lineage) || t.Revision != full.Revision {
		return t, fmt.Errorf("restore: full %s: %w: it says to be of lineage %s and revision %d, its name of %s and %d",
			full.Key, ErrSwapped, t.Lineage, t.Revision, full.Lineage, full.Revision)
	}
	if t.Synthesized.Origin != full.Origin {
		return t, fmt.Errorf("restore: full %s: %w: it says to descend from revision %d (0: etcd sent it), its name from %d", full.Key, ErrSwapped,
			t.Synthesized.Origin, full.Origin)
	}
	// The name has milliseconds.
	if u := c.Plan.Until; !u.IsZero() && t.Taken.UnixMilli() > u.UnixMilli() {
		return t, fmt.Errorf("restore: full %s: %w: it was taken at %s, after %s", full.Key, ErrTooNew, t.Taken.Format(timeFormat), u.Format(timeFormat))
	}
	if err := checkVersion(t, c.EtcdVersion); err != nil {
		return t, fmt.Errorf("restore: full %s: %w", full.Key, err)
	}
	return t, nil
}

const timeFormat = "2006-01-02T15:04:05.000Z07:00"

// checkVersion compares the minor whose format the database has with that of the etcd that is to read it. etcd brings an
// older database up to date by itself, and ends at once on a newer one.
func checkVersion(t snapshot.Trailer, target string) error {
	source := t.StorageVersion // told by etcd 3.6 and later
	if source == "" {
		source = t.EtcdVersion
	}
	return compareVersions(source, target)
}

func compareVersions(source, target string) error {
	s, err := minorOf(source)
	if err != nil {
		return fmt.Errorf("%w of the snapshot: %w", ErrVersion, err)
	}
	want, err := minorOf(target)
	if err != nil {
		return fmt.Errorf("%w to restore for: %w", ErrVersion, err)
	}
	if s[0] != want[0] || s[1] > want[1] {
		return fmt.Errorf("%w: the data has the format of %d.%d, which etcd %d.%d cannot read: run etcd %d.%d or later on it",
			ErrVersion, s[0], s[1], want[0], want[1], s[0], s[1])
	}
	return nil
}

func minorOf(version string) ([2]int, error) {
	parts := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
	if len(parts) < 2 {
		return [2]int{}, fmt.Errorf("%q: want major.minor", version)
	}
	major, err := strconv.Atoi(parts[0])
	if err != nil {
		return [2]int{}, fmt.Errorf("%q: want major.minor", version)
	}
	minor, err := strconv.Atoi(parts[1])
	if err != nil {
		return [2]int{}, fmt.Errorf("%q: want major.minor", version)
	}
	return [2]int{major, minor}, nil
}

// Need is how many bytes Database writes for the plan at the least: the full is asked for its size.
func Need(ctx context.Context, s store.Store, p chain.Plan) (int64, error) {
	t, err := snapshot.ReadTrailer(ctx, s, p.Full.Key, p.Full.Size)
	if err != nil {
		return 0, fmt.Errorf("restore: %w", err)
	}
	return need(p, t.Size, 0), nil
}

// need is the least that will be written: records take at least the room in the database that they take compressed.
func need(p chain.Plan, size, log int64) int64 {
	return size + log + deltaBytes(p)
}

// checkSpace compares what is free at path with what is needed.
func checkSpace(path string, c *Config, size, log int64) error {
	need := need(c.Plan, size, log)
	var fs syscall.Statfs_t
	if err := syscall.Statfs(path, &fs); err != nil {
		return fmt.Errorf("restore: free space of %s: %w", path, err)
	}
	if free := int64(fs.Bavail) * fs.Bsize; free < need {
		return fmt.Errorf("restore: %w at %s: %d MiB are free, at least %d MiB are needed (database %d, deltas %d, log %d)", ErrSpace, path,
			free>>20, need>>20, size>>20, (need-size-log)>>20, log>>20)
	}
	return nil
}
