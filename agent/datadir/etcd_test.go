package datadir

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"go.etcd.io/etcd/server/v3/storage/wal"

	"github.com/etcd-druid/druid/agent/datadir/volume"
	"github.com/etcd-druid/druid/test/machine"
)

// maxWait is the timeout for an etcd that needs a second on an idle machine.
const maxWait = 2 * time.Minute

// startEtcd runs a real etcd on the volume dir. Small snapshot and log sizes produce several files of each.
func startEtcd(tb testing.TB, dir string) *embed.Etcd {
	tb.Helper()
	cfg := embed.NewConfig()
	cfg.Dir = volume.DataPath(dir)
	cfg.Name = "demo-abcde"
	client, peer := url.URL{Scheme: "http", Host: machine.Address(tb)}, url.URL{Scheme: "http", Host: machine.Address(tb)}
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	cfg.InitialCluster = cfg.Name + "=" + peer.String()
	cfg.SnapshotCount, cfg.SnapshotCatchUpEntries = 100, 50
	// etcd purges files in the background every 30 s. On a slow machine, the tests would find other files than on a
	// fast one.
	cfg.MaxSnapFiles, cfg.MaxWalFiles = 0, 0
	cfg.LogLevel = "error"
	e, err := embed.StartEtcd(cfg)
	if err != nil {
		tb.Fatalf("start etcd: %v", err)
	}
	select {
	case <-e.Server.ReadyNotify():
	case err := <-e.Err():
		tb.Fatalf("start etcd: %v", err)
	case <-time.After(maxWait):
		tb.Fatalf("start etcd: not ready within %s", maxWait)
	}
	return e
}

// stable waits until etcd has written its storage version, which is the last thing that it writes by itself after a
// start.
func stable(tb testing.TB, c *clientv3.Client) {
	tb.Helper()
	for poll, late := time.Tick(10*time.Millisecond), time.After(maxWait); ; {
		status, err := c.Status(tb.Context(), "")
		if err == nil && status.StorageVersion != "" {
			return
		}
		select {
		case <-poll:
		case <-late:
			tb.Fatalf("etcd has no storage version after %s: %v, %v", maxWait, status, err)
		}
	}
}

func put(tb testing.TB, c *clientv3.Client, n int, size int) {
	tb.Helper()
	for i := range n {
		if _, err := c.Put(tb.Context(), fmt.Sprintf("key-%06d", i), strings.Repeat("v", size)); err != nil {
			tb.Fatalf("put: %v", err)
		}
	}
}

// served is a volume on which etcd ran and exited. It is created once.
var served = sync.OnceValues(func() (string, error) { return os.MkdirTemp("", "datadir-test-*") })

var serve sync.Once

func TestMain(m *testing.M) {
	wal.SegmentSizeBytes = 256 << 10
	code := m.Run()
	if dir, err := served(); err == nil {
		_ = os.RemoveAll(dir)
	}
	os.Exit(code)
}

// servedVolume returns a copy of a volume on which a real etcd served some thousand writes and was stopped.
func servedVolume(tb testing.TB) string {
	tb.Helper()
	origin, err := served()
	if err != nil {
		tb.Fatal(err)
	}
	serve.Do(func() {
		e := startEtcd(tb, origin)
		c := v3client.New(e.Server)
		put(tb, c, 2000, 300)
		put(tb, c, 20, 20000) // values that overflow their page
		stable(tb, c)
		if _, err := c.Compact(tb.Context(), 500); err != nil {
			tb.Fatal(err)
		}
		_ = c.Close()
		e.Close()
	})
	dir := tb.TempDir()
	if err := os.CopyFS(dir, os.DirFS(origin)); err != nil {
		tb.Fatal(err)
	}
	return dir
}

func dbPath(dir string) string { return filepath.Join(dir, "data", "member", "snap", "db") }

func walPaths(tb testing.TB, dir string) []string {
	tb.Helper()
	files, err := walFiles(filepath.Join(dir, "data", "member", "wal"))
	if err != nil {
		tb.Fatal(err)
	}
	var paths []string
	for _, f := range files {
		paths = append(paths, filepath.Join(dir, "data", "member", "wal", f.name))
	}
	return paths
}
