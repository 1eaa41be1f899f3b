package binaries

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPinnedVersionsMatchToolModules: pinned versions are those of the tool modules.
func TestPinnedVersionsMatchToolModules(t *testing.T) {
	t.Parallel()
	repo, err := RepoDir()
	if err != nil {
		t.Fatal(err)
	}
	for _, minor := range EtcdMinors {
		v, err := EtcdVersion(repo, minor)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(v, "v"+minor+".") {
			t.Errorf("etcd %s is pinned to %s", minor, v)
		}
	}
	if _, err := EtcdVersion(repo, "2.3"); err == nil {
		t.Error("etcd 2.3 has a version, want an error that lists the minors")
	}
}

func TestKeyFollowsContent(t *testing.T) {
	t.Parallel()
	repo := t.TempDir()
	b := Builder{Repo: repo, Cache: t.TempDir()}
	dir := filepath.Join(repo, "tools", "pause")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	key := func(content string) string {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		k, err := b.key(tool{name: "pause", module: "pause"})
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	first := key("package main")
	if again := key("package main"); again != first {
		t.Errorf("equal sources have the keys %s and %s", first, again)
	}
	if other := key("package main // changed"); other == first {
		t.Errorf("changed sources keep the key %s", first)
	}
}
