package survivor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/etcd-druid/druid/agent/datadir"
	"github.com/etcd-druid/druid/agent/datadir/volume"
	"github.com/etcd-druid/druid/backup/restore"
)

// Config describes the member of the new raft group. The caller holds the lock of the volume.
type Config struct {
	// Volume has the data of the survivor. The new data directory is made in volume.RestoredPath.
	Volume string
	// EtcdVersion is the version of the etcd that will run on the data, as major.minor or longer.
	EtcdVersion string
	// Name of the member, its peer URL and the token are as in the flags of etcd. Never use a token twice.
	Name, PeerURL, Token string
	// Seen is the latest known revision. The revision of the new group is restore.DefaultBump above it,
	// so that no client has seen a later one.
	Seen int64
	// Damaged allows a log that is damaged. What the log certainly had committed is applied, and the rest is lost.
	Damaged bool
	// MinLeaseTTL is the shortest time to live of a lease in seconds. etcd computes it from its election timeout.
	MinLeaseTTL int64
	// Progress receives the progress. It may be nil and must not block.
	Progress func(restore.Progress)
}

// Result is the new data directory.
type Result struct {
	restore.Result
	// Applied is how many entries of the log were applied, and Last is the last of them, or what the database had
	// applied before.
	Applied uint64
	Last    datadir.Position
	// Damage describes the damage of the log, if there was any.
	Damage string
}

var (
	// ErrNoData: the volume has no database of which every page is good.
	ErrNoData = errors.New("no usable database")
	// ErrDamagedLog: the log is damaged, and Config.Damaged is not set.
	ErrDamagedLog = errors.New("the log is damaged")
	// ErrRequest: the log has a request that this version of the agent cannot apply.
	ErrRequest = errors.New("request cannot be applied")
)

// Run makes the data directory. It changes nothing in the data of the survivor. On an error there is no new data
// directory. If the process dies, the next Run removes what it left.
func Run(ctx context.Context, c Config) (Result, error) {
	source, err := open(ctx, c)
	if err != nil {
		return Result{}, fmt.Errorf("build data from the disk of %s: %w", c.Name, err)
	}
	target := restore.Config{
		DataDir: volume.RestoredPath(c.Volume), Name: c.Name, PeerURLs: []string{c.PeerURL}, InitialCluster: c.Name + "=" + c.PeerURL,
		Token: c.Token, EtcdVersion: c.EtcdVersion, Bump: restore.DefaultBump, ClearAlarms: true, Progress: c.Progress,
	}
	result := Result{Damage: source.tail.Damage, Last: datadir.Position{Index: source.report.ConsistentIndex}}
	// An entry takes about as much space in the database, and bbolt copies the pages that it changes.
	size := source.report.DBSize + 2*source.tail.Bytes
	result.Result, err = restore.Given(ctx, target, size, c.Seen, func(ctx context.Context, path string) (err error) {
		result.Applied, err = source.write(ctx, path, c.MinLeaseTTL)
		return err
	})
	if err != nil {
		return Result{}, fmt.Errorf("build data from the disk of %s: %w", c.Name, err)
	}
	if result.Applied > 0 {
		result.Last = source.tail.Last
	}
	return result, nil
}

// source is the database of the survivor, and the entries of its log that the database does not have.
type source struct {
	report datadir.Report
	tail   *datadir.Tail
}

func open(ctx context.Context, c Config) (*source, error) {
	report, err := datadir.Inspect(ctx, c.Volume, datadir.Options{EtcdVersion: c.EtcdVersion, Full: true})
	switch {
	case err != nil:
		return nil, err
	case report.State == datadir.NewerSchema:
		return nil, fmt.Errorf("%w: the database has the format of etcd %s, which etcd %s cannot read: use etcd %s or later",
			restore.ErrVersion, report.StorageVersion, c.EtcdVersion, report.StorageVersion)
	case !report.Whole:
		return nil, fmt.Errorf("%w: the data is %v: %s: choose another member, or a backup", ErrNoData, report, report.Detail)
	}
	s := &source{report: report}
	if s.tail, err = datadir.ReadTail(ctx, c.Volume, report.ConsistentIndex); err != nil {
		return nil, err
	}
	if report.State == datadir.Corrupt && s.tail.Damage == "" {
		s.tail.Damage = report.String() + ": " + report.Detail
	}
	if s.tail.Damage != "" && !c.Damaged {
		return nil, fmt.Errorf("%w: %s: acknowledged writes can be lost", ErrDamagedLog, s.tail.Damage)
	}
	return s, nil
}

// copyChunk is how much is copied between two checks whether the context ended.
const copyChunk = 64 << 20

// write makes the database at path.
func (s *source) write(ctx context.Context, path string, minTTL int64) (applied uint64, err error) {
	if err := copyFile(ctx, s.report.DB, path); err != nil {
		return 0, err
	}
	if s.tail.Last.Index == 0 {
		return 0, nil
	}
	return apply(ctx, path, s.tail, minTTL)
}

func copyFile(ctx context.Context, from, to string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return fmt.Errorf("copy the database: %w", err)
	}
	defer in.Close() // only read
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("copy the database: %w", err)
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	for {
		switch _, err := io.CopyN(out, in, copyChunk); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("copy the database: %w", err)
		case ctx.Err() != nil:
			return context.Cause(ctx)
		}
	}
}
