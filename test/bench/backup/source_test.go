package backup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/etcd-druid/druid/test/member"
	"github.com/etcd-druid/druid/test/rig/binaries"
)

// layout changes with what is written into a source.
const layout = 1

// etcd as it runs here: no database of a measurement reaches the quota.
var options = member.Options{Token: "bench", Args: []string{"--quota-backend-bytes=8589934592"}}

// source is the data of an etcd at two times, in the cache.
type source struct {
	// base holds the keys, after the events too.
	base, after string
}

// prepare makes the data that is measured with, where an earlier run did not.
func prepare(tb testing.TB, s size) source {
	tb.Helper()
	repo, err := binaries.RepoDir()
	if err != nil {
		tb.Fatal(err)
	}
	version, err := binaries.EtcdVersion(repo, minor)
	if err != nil {
		tb.Fatal(err)
	}
	dir := tb.TempDir() // little data is made again each time
	if s.keys >= 100_000 {
		cache, err := binaries.CacheDir()
		if err != nil {
			tb.Fatal(err)
		}
		dir = filepath.Join(cache, "bench-backup", fmt.Sprintf("%d-%s-%d", s.keys, version, layout))
	}
	made := source{base: filepath.Join(dir, "base"), after: filepath.Join(dir, "after")}
	if _, err := os.Stat(made.after); err == nil {
		return made
	}
	tb.Logf("making a database of %d keys and %d events in %s", s.keys, s.events(), dir)
	work := dir + ".new"
	if err := errors.Join(os.RemoveAll(work), os.RemoveAll(dir), os.MkdirAll(work, 0o700)); err != nil {
		tb.Fatal(err)
	}
	fresh := source{base: filepath.Join(work, "base"), after: filepath.Join(work, "after")}
	o := options
	o.Dir = fresh.base
	m := member.Start(tb, minor, o)
	fill(tb, m.Client, s)
	m.Stop(tb)
	o.Dir = copied(tb, fresh.base, fresh.after)
	m = member.Start(tb, minor, o)
	tb.Logf("%.0f events per second", traffic(tb, m.Client, s, s.events(), 0, 0))
	m.Stop(tb)
	if err := os.Rename(work, dir); err != nil {
		tb.Fatal(err)
	}
	return made
}

// run starts etcd on a copy of its data.
func run(tb testing.TB, data string) *member.Member {
	tb.Helper()
	o := options
	o.Dir = copied(tb, data, filepath.Join(tb.TempDir(), "data"))
	return member.Start(tb, minor, o)
}

func copied(tb testing.TB, from, to string) string {
	tb.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		tb.Fatalf("copy a database: %v", err)
	}
	return to
}

// backend is the database in a data directory.
func backend(data string) string { return filepath.Join(data, "member", "snap", "db") }

func sizeOf(tb testing.TB, path string) int64 {
	tb.Helper()
	info, err := os.Stat(path)
	if err != nil {
		tb.Fatal(err)
	}
	return info.Size()
}
