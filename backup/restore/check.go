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

// logSpace is the size of the log of etcd: a segment of 64 MB, and the next one, which etcd allocates in advance.
const logSpace = 2 * 64 << 20

// precheck reads the end of the full backup and rejects what can be rejected before anything is written.
func precheck(ctx context.Context, c *Config) (snapshot.Trailer, error) {
	full := c.Plan.Full
	t, err := snapshot.ReadTrailer(ctx, c.Store, full.Key, full.Size)
	if err != nil {
		return t, fmt.Errorf("restore: %w", err)
	}
	if t.Lineage != string(full.Lineage) || t.Revision != full.Revision {
		return t, fmt.Errorf("restore: full backup %s: %w: its trailer says lineage %s and revision %d, its name %s and %d",
			full.Key, ErrSwapped, t.Lineage, t.Revision, full.Lineage, full.Revision)
	}
	// The name has milliseconds. If the clock of the writer was ahead, the plan has the time of the store.
	taken := t.Taken
	if !full.At.IsZero() && full.At.Before(taken) {
		taken = full.At
	}
	if u := c.Plan.Until; !u.IsZero() && taken.UnixMilli() > u.UnixMilli() {
		return t, fmt.Errorf("restore: full backup %s: %w: it was taken at %s, after %s", full.Key, ErrTooNew, taken.Format(timeFormat), u.Format(timeFormat))
	}
	if err := checkVersion(t, c.EtcdVersion); err != nil {
		return t, fmt.Errorf("restore: full backup %s: %w", full.Key, err)
	}
	return t, nil
}

// look rejects what can be rejected before anything is written, and returns what the plan or the file says about
// itself.
func look(ctx context.Context, c *Config) (snapshot.Trailer, error) {
	if c.File.Key == "" {
		return precheck(ctx, c)
	}
	f, err := CheckFile(ctx, *c)
	// Which revisions it holds is known only after it was fetched.
	return snapshot.Trailer{Size: f.Size, Upper: math.MaxInt64}, err
}

// CheckFile checks whether c.File can be restored. It reads a few pages. It returns a snapshot.FileError, ErrVersion,
// ErrQuota or ErrAuth if the file cannot be restored. Of c, it also uses Store, EtcdVersion, Quota and Auth.
// Only reading the complete file shows whether it is intact.
func CheckFile(ctx context.Context, c Config) (snapshot.File, error) {
	f, err := snapshot.LookAtFile(ctx, c.Store, c.File.Key, c.File.Size)
	if err != nil {
		return f, fmt.Errorf("restore: %w", err)
	}
	err = checkFormat(f, &c)
	if c.Quota > 0 && f.Size > c.Quota {
		err = errors.Join(err, fmt.Errorf("%w: its database has %d MiB, but the quota of etcd is %d MiB: defragment the source etcd and save the snapshot "+
			"again, or increase etcd.quotaBackendBytes", ErrQuota, f.Size>>20, c.Quota>>20))
	}
	if err != nil {
		return f, fmt.Errorf("restore: %s: %w", c.Subject(), err)
	}
	return f, nil
}

// checkFormat compares the format and the authentication of a database with what the etcd that will run on it
// supports.
func checkFormat(f snapshot.File, c *Config) error {
	for _, version := range []string{f.StorageVersion, f.ClusterVersion} {
		if version == "" || version == undecided {
			continue
		}
		if err := compareVersions(version, c.EtcdVersion); err != nil {
			return err
		}
		if minor, err := minorOf(version); err == nil && (minor[0] != oldest[0] || minor[1] < oldest[1]) {
			return fmt.Errorf("%w: the data has the format of etcd %d.%d: restore it with etcdutl %d.%d, start etcd %d.%d on it, and save a snapshot of that etcd",
				ErrVersion, minor[0], minor[1], oldest[0], oldest[1], oldest[0], oldest[1])
		}
	}
	if f.Auth && c.Auth == RefuseAuth {
		return fmt.Errorf("%w in the data, and without spec.auth the agents could not run it: create the EtcdCluster with spec.auth.enabled, "+
			"spec.tls.client and spec.tls.peer, or "+
			"disable authentication in the source (etcdctl auth disable) and save another backup", ErrAuth)
	}
	return nil
}

// undecided is the cluster version with which etcd starts, until all members have reported theirs
// (server/etcdserver/version.MinClusterVersion).
const undecided = "3.0.0"

// oldest is the oldest minor whose databases can be restored.
var oldest = [2]int{3, 5}

// checkContent checks the content of the database.
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

// checkVersion compares the minor of the database format with that of the etcd that will run on it. etcd upgrades an
// older database by itself and exits on a newer one.
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
		return fmt.Errorf("%w: the data has the format of etcd %d.%d, which etcd %d.%d cannot read: use etcd %d.%d or later",
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

// Need returns the minimum of bytes that Database writes for the plan. It requests the size from the full backup.
func Need(ctx context.Context, s store.Store, p catalog.Plan) (int64, error) {
	t, err := snapshot.ReadTrailer(ctx, s, p.Full.Key, p.Full.Size)
	if err != nil {
		return 0, fmt.Errorf("restore: %w", err)
	}
	return need(p, t.Size, 0), nil
}

// CheckPlan checks whether c.Plan can be restored, as far as the end of its full backup says, and returns what Need returns. It returns
// ErrTooNew, ErrVersion or ErrSwapped if not. Of c, it uses Store, Plan and EtcdVersion. Only reading all objects shows whether they are
// intact.
func CheckPlan(ctx context.Context, c Config) (int64, error) {
	t, err := precheck(ctx, &c)
	if err != nil {
		return 0, err
	}
	return need(c.Plan, t.Size, 0), nil
}

// need is the minimum that is written with the history: records take at least as much space in the database as
// compressed.
func need(p catalog.Plan, size, log int64) int64 {
	return size + log + deltaBytes(p)
}

// freeAt returns the free bytes.
func freeAt(path string) (int64, error) {
	free, _, err := Space(path)
	if err != nil {
		return 0, fmt.Errorf("restore: free space of %s: %w", path, err)
	}
	return free, nil
}

// checkSpace compares the free space at path with the minimum that is needed, as far as that is known before anything
// is read.
func checkSpace(path string, c *Config, size, log int64) error {
	need := need(c.Plan, size, log)
	if c.Bump > 0 {
		need = size + log // it is possible that no key of the deltas is alive
	}
	free, err := freeAt(path)
	if err != nil {
		return err
	}
	if free < need {
		return fmt.Errorf("restore: %w at %s: %d MiB are free, but at least %d MiB are needed (database %d MiB, delta backups %d MiB, log %d MiB)", ErrSpace, path,
			free>>20, need>>20, size>>20, (need-size-log)>>20, log>>20)
	}
	return nil
}

// leafHeader is what bbolt adds to each record.
const leafHeader = 16

// checkAlive compares the size of what is alive, which is known now, with the quota and with the free space next to
// the fetched database.
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
		return fmt.Errorf("restore: %w at %s: %d MiB are free, but at least %d MiB are needed (%d live keys with %d MiB, "+
			"log %d MiB): restore to a larger volume", ErrSpaceAlongside, path, free>>20, need>>20, l.alive, size>>20, logSpace>>20)
	}
	return nil
}

// checkQuota compares a restored database with the quota of the etcd that will run on it.
func checkQuota(c *Config, size int64) error {
	if c.Quota <= 0 || size <= c.Quota {
		return nil
	}
	what := "its live keys take"
	if c.Bump == 0 {
		what = "with its history it takes"
	}
	return fmt.Errorf("restore: %s: %w: %s at least %d MiB, but the quota of etcd is %d MiB: increase etcd.quotaBackendBytes, or restore an "+
		"earlier state", c.Subject(), ErrQuota, what, (size+1<<20-1)>>20, c.Quota>>20)
}

// IsFull says whether a volume is too small, or a quota of its file system is used up.
func IsFull(err error) bool {
	return errors.Is(err, ErrSpace) || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// spaceError returns an ErrSpace for a disk that is full.
func spaceError(err error) error {
	if IsFull(err) && !errors.Is(err, ErrSpace) {
		return fmt.Errorf("%w: %w: restore to a larger volume", ErrSpace, err)
	}
	return err
}

// checkPages checks every page of the fetched database. bbolt walks all pages when it opens a database without a list
// of free pages, in a goroutine of its own, and a damaged page then ends the process. The checksum matched, so such a
// page was already damaged when the backup was taken.
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
			"has a database that was already damaged when the snapshot was saved: %s; save a snapshot of another member", damage.Reason)}
	case ok:
		err = &snapshot.DamagedError{Object: c.Plan.Full.Key, Reason: "its database was already damaged when the backup was taken: " + damage.Reason}
	case err != nil:
		err = fmt.Errorf("%s: %w", c.Subject(), err)
	}
	if err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	return nil
}

// clearSpaceAlarms removes the alarms NOSPACE. It keeps alarms that it does not understand.
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
			return fmt.Errorf("remove an alarm: %w", err)
		}
	}
	return nil
}
