package harness

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcd-druid/druid/test/member"
)

// A cache follows an etcd to the data of an earlier snapshot, whose earlier revisions are marked as compacted.
func TestCacheListsAgainAfterARestore(t *testing.T) {
	const minor = "3.6"
	m := member.Start(t, minor, member.Options{})
	etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{m.Endpoint}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = etcd.Close() })
	put := func(key, value string) {
		t.Helper()
		if _, err := etcd.Put(t.Context(), key, value); err != nil {
			t.Fatal(err)
		}
	}
	put("a", "1")
	put("b", "1")
	saved := save(t, m)
	cache := StartCache(t, "of a test", etcd)
	put("a", "2")
	put("c", "1")
	if _, err := etcd.Delete(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	cache.AwaitLists(t, 1)
	cache.Equals(t, etcd)
	span := cache.Spans()[0]
	if before, _ := span.At(span.Last() - 1); len(before) != 3 || before["a"].Value.Value != "2" {
		t.Errorf("before the deletion, the cache had %+v", before)
	}

	m.Kill(t)
	m = restart(t, minor, saved)
	etcd.SetEndpoints(m.Endpoint)
	put("d", "1")
	cache.AwaitLists(t, 2)
	cache.Equals(t, m.Client)
	if keys, _ := cache.state(); len(keys) != 3 || keys["a"].Value.Value != "1" {
		t.Errorf("after the restore, the cache has %+v", keys)
	}
}

// save is etcdctl snapshot save.
func save(t *testing.T, m *member.Member) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "snapshot.db")
	stream, err := m.Client.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	content, err := io.ReadAll(stream)
	if err == nil {
		err = os.WriteFile(path, content, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// restart starts an etcd on a snapshot, with a higher revision.
func restart(t *testing.T, minor, saved string) *member.Member {
	t.Helper()
	const peer = "http://localhost:2380" // the default of etcdutl
	dir := filepath.Join(t.TempDir(), "data")
	out, err := exec.CommandContext(t.Context(), member.Program(t, "etcdutl", minor), "snapshot", "restore", saved, "--data-dir", dir,
		"--name", member.Name, "--initial-cluster", member.Name+"="+peer, "--bump-revision", "1000000000", "--mark-compacted").CombinedOutput()
	if err != nil {
		t.Fatalf("etcdutl snapshot restore: %v\n%s", err, out)
	}
	return member.Start(t, minor, member.Options{Dir: dir})
}
