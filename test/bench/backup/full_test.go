package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/etcd-druid/druid/agent/transport"
	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/backup/snapshot"
	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/test/bucket"
)

const (
	prefix  = "bench/cluster"
	lineage = catalog.Lineage("00000001-00112233445566aa")
)

// place is a new bucket.
func place(tb testing.TB, name string) store.Config {
	tb.Helper()
	server := bucket.Start(tb)
	return store.Config{S3: &store.S3{
		Bucket: server.Make(tb, fmt.Sprintf("%s-%d", name, time.Now().UnixNano()), false), Region: bucket.Region, Endpoint: server.Endpoint, PathStyle: true,
	}}
}

// measureFull takes a full, and does each of its parts alone: read etcd's stream, compress as much, send as much as comes
// out.
func measureFull(tb testing.TB, s size) *line {
	tb.Helper()
	m := run(tb, prepare(tb, s).base)
	t := task{Kind: "full", Endpoint: m.Endpoint, Store: place(tb, "full"), Prefix: prefix, Lineage: lineage, Path: backend(m.Dir)}
	// The first reader of a copy warms the cache for all others.
	t.Kind = "stream"
	perform(tb, t)
	t.Kind = "full"
	full := perform(tb, t)
	t.Kind = "stream"
	stream := perform(tb, t)
	t.Kind, t.Bytes = "compress", int64(full.More["db"])
	compress := perform(tb, t)
	t.Kind, t.Key, t.Bytes = "upload", "upload-alone", int64(full.More["object"])
	upload := perform(tb, t)
	m.Stop(tb)

	l := &line{name: "full"}
	l.add("wall_s", full.Wall)
	l.add("cpu_s", full.CPU)
	l.add("rss_mib", full.Resident/mib)
	l.add("rss_anon_mib", full.AnonymousPeak/mib)
	l.add("temp_disk_bytes", full.Written)
	l.add("db_bytes", full.More["db"])
	l.add("object_bytes", full.More["object"])
	slowest, name := 0.0, ""
	for _, limit := range []struct {
		name string
		usage
	}{{"stream", stream}, {"zstd", compress}, {"upload", upload}} {
		l.add(limit.name+"_wall_s", limit.Wall)
		l.add(limit.name+"_cpu_s", limit.CPU)
		if limit.Wall > slowest {
			slowest, name = limit.Wall, limit.name
		}
	}
	l.say("slowest_limit", name)
	l.add("wall_over_slowest", full.Wall/slowest)
	l.say("incumbent_cpu_s", "33.4")
	l.add("load", load(tb))
	return l
}

func takeFull(ctx context.Context, t task) (map[string]float64, error) {
	c, err := transport.Transport{}.Etcd(ctx, t.Endpoint)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	s, err := t.store(ctx)
	if err != nil {
		return nil, err
	}
	r, err := snapshot.Take(ctx, snapshot.Config{
		Client: c, Store: s, Lineage: string(t.Lineage),
		Key: func(revision int64, at time.Time) string { return catalog.FullKey(t.Prefix, t.Lineage, revision, at) },
	})
	return map[string]float64{"db": float64(r.Size), "object": float64(r.ObjectSize), "revision": float64(r.Revision)}, err
}

// readStream is the least that a full of a running etcd costs.
func readStream(ctx context.Context, t task) (map[string]float64, error) {
	c, err := transport.Transport{}.Etcd(ctx, t.Endpoint)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	r, err := c.SnapshotWithVersion(ctx)
	if err != nil {
		return nil, err
	}
	n, err := io.Copy(io.Discard, r.Snapshot)
	return map[string]float64{"bytes": float64(n)}, errors.Join(err, r.Snapshot.Close())
}

// compressOnly compresses the database, as a full is, from the page cache to nowhere.
func compressOnly(_ context.Context, t task) (map[string]float64, error) {
	f, err := os.Open(t.Path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	encoder, err := zstd.NewWriter(io.Discard, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(1<<20),
		zstd.WithLowerEncoderMem(true))
	if err != nil {
		return nil, err
	}
	n, err := io.CopyBuffer(struct{ io.Writer }{encoder}, io.LimitReader(f, t.Bytes), make([]byte, 64<<10))
	return map[string]float64{"bytes": float64(n)}, errors.Join(err, encoder.Close())
}

// uploadOnly sends bytes that cost nothing to make.
func uploadOnly(ctx context.Context, t task) (map[string]float64, error) {
	s, err := t.store(ctx)
	if err != nil {
		return nil, err
	}
	o, err := s.Put(ctx, t.Key, io.LimitReader(zeros{}, t.Bytes), store.PutOptions{IfAbsent: true})
	return map[string]float64{"bytes": float64(o.Size)}, err
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }
