package restore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"google.golang.org/protobuf/proto"

	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/backup/snapshot"
	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/internal/boltdb"
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
	// The name has milliseconds. Where the clock of who took it was ahead, the plan has the store's time.
	taken := t.Taken
	if !full.At.IsZero() && full.At.Before(taken) {
		taken = full.At
	}
	if u := c.Plan.Until; !u.IsZero() && taken.UnixMilli() > u.UnixMilli() {
		return t, fmt.Errorf("restore: full %s: %w: it was taken at %s, after %s", full.Key, ErrTooNew, taken.Format(timeFormat), u.Format(timeFormat))
	}
	if err := checkVersion(t, c.EtcdVersion); err != nil {
		return t, fmt.Errorf("restore: full %s: %w", full.Key, err)
	}
	return t, nil
}

// look refuses what can be refused before anything is written, and reports what the plan or the file says of itself.
func look(ctx context.Context, c *Config) (snapshot.Trailer, error) {
	if c.File.Key == "" {
		return precheck(ctx, c)
	}
	f, err := CheckFile(ctx, *c)
	// Which revisions it holds shows when it is there.
	return snapshot.Trailer{Size: f.Size, Upper: math.MaxInt64}, err
}

// CheckFile reads of c.File what reports whether it can be restored: a few pages. What cannot is a snapshot.FileError, ErrVersion, ErrQuota or
// ErrAuth. Of c also Store, EtcdVersion, Quota and RefuseAuth count. That the file is whole is only known when all of it was read.
func CheckFile(ctx context.Context, c Config) (snapshot.File, error) {
	f, err := snapshot.LookAtFile(ctx, c.Store, c.File.Key, c.File.Size)
	if err != nil {
		return f, fmt.Errorf("restore: %w", err)
	}
	err = checkFormat(f, &c)
	if c.Quota > 0 && f.Size > c.Quota {
		err = errors.Join(err, fmt.Errorf("%w: its database has %d MiB, and etcd's quota is %d MiB: defragment the etcd that it is of and save it "+
			"again, or restore it where etcd.quotaBackendBytes is larger", ErrQuota, f.Size>>20, c.Quota>>20))
	}
	if err != nil {
		return f, fmt.Errorf("restore: %s: %w", c.Subject(), err)
	}
	return f, nil
}

// checkFormat compares what a database says of its format, and of authentication, with what is to run on it.
func checkFormat(f snapshot.File, c *Config) error {
	for _, version := range []string{f.StorageVersion, f.ClusterVersion} {
		if version == "" || version == undecided {
			continue
		}
		if err := compareVersions(version, c.EtcdVersion); err != nil {
			return err
		}
		if minor, err := minorOf(version); err == nil && (minor[0] != oldest[0] || minor[1] < oldest[1]) {
			return fmt.Errorf("%w: the data has the format of %d.%d: restore it with etcdutl of %d.%d, start etcd %d.%d on it, and save a snapshot of that",
				ErrVersion, minor[0], minor[1], oldest[0], oldest[1], oldest[0], oldest[1])
		}
	}
	if f.Auth && c.RefuseAuth {
		return fmt.Errorf("%w in it, and the agents have no user, so they could not serve it: turn it off (etcdctl auth disable) and save it again; or "+
			"restore it without a cluster (agent backup restore), start an etcd on that, turn it off there, and save that", ErrAuth)
	}
	return nil
}

// undecided is the cluster version that etcd starts with, and keeps until all members have reported theirs
// (server/etcdserver/version.MinClusterVersion).
const undecided = "3.0.0"

// oldest minor whose databases are restored.
var oldest = [2]int{3, 5}

// checkContent looks into the database itself.
func checkContent(tx *bolt.Tx, c *Config) error {
	value := func(bucket schemaBucket, key []byte) string {
		if b := tx.Bucket(bucket.Name()); b != nil {
			return string(b.Get(key))
		}
		return ""
	}
	return checkFormat(snapshot.File{
		StorageVersion: value(schema.Meta, schema.MetaStorageVersionName),
		ClusterVersion: value(schema.Cluster, schema.ClusterClusterVersionKeyName),
		Auth:           value(schema.Auth, schema.AuthEnabledKeyName) == "\x01",
	}, c)
}

type schemaBucket interface{ Name() []byte }

const timeFormat = "2006-01-02T15:04:05.000Z07:00"

// checkVersion compares the minor whose format the database has with that of the etcd that is to read it. etcd brings an
// older database up to date by itself, and ends at once on a newer one.
func checkVersion(t snapshot.Trailer, target string) error {
	source := t.StorageVersion // reported by etcd 3.6 and later
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
func Need(ctx context.Context, s store.Store, p catalog.Plan) (int64, error) {
	t, err := snapshot.ReadTrailer(ctx, s, p.Full.Key, p.Full.Size)
	if err != nil {
		return 0, fmt.Errorf("restore: %w", err)
	}
	return need(p, t.Size, 0), nil
}

// need is the least that will be written with the history: records take at least the room in the database that they take compressed.
func need(p catalog.Plan, size, log int64) int64 {
	return size + log + deltaBytes(p)
}

// freeAt is how many bytes are free.
func freeAt(path string) (int64, error) {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(path, &fs); err != nil {
		return 0, fmt.Errorf("restore: free space of %s: %w", path, err)
	}
	return int64(fs.Bavail * uint64(fs.Bsize)), nil
}

// checkSpace compares what is free at path with what is needed at the least, as far as that is known before anything is read.
func checkSpace(path string, c *Config, size, log int64) error {
	need := need(c.Plan, size, log)
	if c.Bump > 0 {
		need = size + log // of the deltas nothing may be alive
	}
	free, err := freeAt(path)
	if err != nil {
		return err
	}
	if free < need {
		return fmt.Errorf("restore: %w at %s: %d MiB are free, at least %d MiB are needed (database %d, deltas %d, log %d)", ErrSpace, path,
			free>>20, need>>20, size>>20, (need-size-log)>>20, log>>20)
	}
	return nil
}

// leafHeader is what bbolt adds to each record.
const leafHeader = 16

// checkAlive compares what is alive, and known now, with the quota and with what is free next to the full.
func checkAlive(c *Config, path string, l *lasts) error {
	size := l.content + leafHeader*l.alive
	if err := checkQuota(c, size); err != nil {
		return err
	}
	free, err := freeAt(filepath.Dir(path))
	if err != nil {
		return err
	}
	if need := size + logSpace; free < need {
		return fmt.Errorf("restore: %w at %s: %d MiB are free, and at least %d MiB are needed (%d keys that are alive %d, "+
			"log %d): restore to a larger volume", ErrSpaceAlongside, path, free>>20, need>>20, l.alive, size>>20, logSpace>>20)
	}
	return nil
}

// checkQuota compares a database that is restored with the quota of the etcd that will run on it.
func checkQuota(c *Config, size int64) error {
	if c.Quota <= 0 || size <= c.Quota {
		return nil
	}
	what := "what is alive in it takes"
	if c.Bump == 0 {
		what = "with its history it takes"
	}
	return fmt.Errorf("restore: %s: %w: %s at least %d MiB, and etcd's quota is %d MiB: restore it where etcd.quotaBackendBytes is larger, or restore an "+
		"earlier state", c.Subject(), ErrQuota, what, (size+1<<20-1)>>20, c.Quota>>20)
}

// spaceError names a disk that is full.
func spaceError(err error) error {
	if errors.Is(err, syscall.ENOSPC) {
		return fmt.Errorf("%w: %w: restore to a larger volume", ErrSpace, err)
	}
	return err
}

// checkPages looks at every page of the database that was fetched. bbolt walks all of them when it opens one that has no list of the free
// ones, in a goroutine of its own, and there ends the process at a damaged one. The checksum held, so it was damaged when it was saved.
func checkPages(ctx context.Context, c *Config, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	defer f.Close() // only read
	err = boltdb.Check(ctx, f)
	damage, ok := errors.AsType[*boltdb.DamagedError](err)
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

// clearSpaceAlarms drops the alarms NOSPACE, and none that it does not understand.
func clearSpaceAlarms(tx *bolt.Tx) error {
	bucket := tx.Bucket(schema.Alarm.Name())
	if bucket == nil {
		return nil
	}
	var space [][]byte
	err := bucket.ForEach(func(key, _ []byte) error {
		var alarm etcdserverpb.AlarmMember
		if proto.Unmarshal(key, &alarm) == nil && alarm.Alarm == etcdserverpb.AlarmType_NOSPACE {
			space = append(space, key)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read the alarms: %w", err)
	}
	for _, key := range space {
		if err := bucket.Delete(key); err != nil {
			return fmt.Errorf("drop an alarm: %w", err)
		}
	}
	return nil
}
