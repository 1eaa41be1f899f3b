package backup

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/backup/store/open"
	"github.com/etcd-druid/druid/test/backups"
)

// rotating changes the key before the first delta backup is written.
type rotating struct {
	store.Store
	rotate func()
}

func (r rotating) Put(ctx context.Context, key string, content io.Reader, o store.PutOptions) (store.Object, error) {
	if strings.Contains(key, "/delta/") {
		r.rotate()
	}
	return r.Store.Put(ctx, key, content, o)
}

// secret is a directory with keys, the first of which is in use. Each key is 32 times its name.
func secret(t *testing.T, ids ...string) string {
	t.Helper()
	path := t.TempDir()
	for _, id := range ids {
		write(t, filepath.Join(path, id), strings.Repeat(id, 32))
	}
	write(t, filepath.Join(path, "current"), ids[0])
	return path
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Backups are encrypted from the first to the last step, with a change of the key in between.
func TestEncryptedBackupsOfARealEtcd(t *testing.T) {
	path, keys := t.TempDir(), secret(t, "a", "b")
	s, err := open.Open(t.Context(), store.Config{Directory: &store.Directory{Path: path}, Sealing: &store.Sealing{KeysDir: keys}})
	if err != nil {
		t.Fatal(err)
	}
	rotated := rotating{s, func() { write(t, filepath.Join(keys, "current"), "b") }}
	c := backups.Make(t, rotated, demo, catalog.Formation{Lineage: first, ClusterID: "c", Created: time.Now()})
	h := c.Histories[0]
	onDisk(t, path)

	at := []string{"--store", "dir://" + path, "--prefix", demo}
	with := append(slices.Clone(at), "--encryption-keys", keys)
	in := func(command string, flags []string, args ...string) []string {
		return append(append([]string{command}, flags...), args...)
	}
	contains(t, ok(t, in("list", at)...), "  2      3  ", "6-21")
	contains(t, ok(t, in("plan", at)...), "full   16", "2 objects")
	out, code, failure := run(t, in("check", at)...)
	if code != 1 || !strings.Contains(out, "sealed with key a, and no keys are configured") || strings.Contains(out, "broken    ") {
		t.Errorf("without keys: exit code %d, %q\n%s", code, failure, out)
	}
	contains(t, ok(t, in("check", with)...), "5 objects: 5 intact, 0 broken, 0 not read")
	contains(t, ok(t, in("verify", with, "--scratch", t.TempDir())...), "verified: at revision 21 it has 7 keys")
	t.Run("restore", func(t *testing.T) { testRestore(t, h, with) })
	t.Run("copy", func(t *testing.T) { testEncryptedCopy(t, in, with) })

	lost := secret(t, "b")
	out, code, _ = run(t, in("check", append(slices.Clone(at), "--encryption-keys", lost))...)
	if want := h.Fulls[0].Key; code != 1 || !strings.Contains(out, want) || !strings.Contains(out, "has no entry a: put that key back") {
		t.Errorf("a key that was lost: exit code %d\n%s", code, out)
	}
	contains(t, out, "0 broken")
	write(t, filepath.Join(lost, "a"), strings.Repeat("x", 32))
	out, code, _ = run(t, in("verify", append(slices.Clone(at), "--encryption-keys", lost), "--scratch", t.TempDir(), "--revision", "14", "-o", "json")...)
	if code != 1 || !strings.Contains(out, "sealed with key a") || !strings.Contains(out, "is another") || !strings.Contains(out, `"Unknown"`) {
		t.Errorf("another key of the same name: exit code %d\n%s", code, out)
	}
}

// onDisk checks that no object except the bootstrap record has readable content.
func onDisk(t *testing.T, path string) {
	t.Helper()
	ids := map[string]int{}
	err := filepath.WalkDir(path, func(name string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		content, err := os.ReadFile(name)
		if err != nil || filepath.Base(name) == "lineage.json" {
			return err
		}
		header, rest, _ := bytes.Cut(content, []byte("\n--- "))
		_, id, _ := bytes.Cut(header, []byte("-> etcd-druid 1 "))
		id, _, _ = bytes.Cut(id, []byte("="))
		ids[string(id)]++
		for _, word := range []string{"key-", "druidful", "DRUIDDLT", string(first)} {
			if bytes.Contains(rest, []byte(word)) {
				t.Errorf("%s holds %q", name, word)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if ids["a"] == 0 || ids["b"] == 0 || ids["a"]+ids["b"] != 5 {
		t.Errorf("keys of the objects are %v, want five objects of a and b", ids)
	}
}

func testEncryptedCopy(t *testing.T, in func(string, []string, ...string) []string, with []string) {
	url, _ := directory(t)
	if _, code, failure := run(t, in("copy", with, "--to", url)...); code != 1 || !strings.Contains(failure, "--to-encryption-keys none") {
		t.Errorf("a copy in plain that no one asked for: exit code %d, %q", code, failure)
	}
	other := secret(t, "c")
	contains(t, ok(t, in("copy", with, "--to", url, "--to-encryption-keys", other)...), "6 objects in")
	contains(t, ok(t, in("copy", with, "--to", url, "--to-encryption-keys", other)...), "present", "6 objects in")
	contains(t, ok(t, "check", "--store", url, "--prefix", demo, "--encryption-keys", other), "5 objects: 5 intact")
	plain, _ := directory(t)
	ok(t, in("copy", with, "--to", plain, "--to-encryption-keys", "none")...)
	contains(t, ok(t, "check", "--store", plain, "--prefix", demo), "5 objects: 5 intact")
}
