package backup

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
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

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Backups are encrypted from the first to the last step, with a change of the key in between.
func TestEncryptedBackupsOfARealEtcd(t *testing.T) {
	path, keys := t.TempDir(), backups.Keys(t, "a", "b")
	s, err := open.Open(t.Context(), store.Config{Directory: &store.Directory{Path: path}, ClientEncryption: &store.ClientEncryption{KeysDir: keys}})
	if err != nil {
		t.Fatal(err)
	}
	rotated := rotating{s, func() { backups.UseKey(t, keys, "b") }}
	c := backups.Make(t, rotated, demo, catalog.Formation{Lineage: first, ClusterID: "c", Created: time.Now()})
	h := c.Histories[0]
	onDisk(t, path, keys)

	at := []string{"--store", "dir://" + path, "--prefix", demo}
	with := append(slices.Clone(at), "--encryption-keys", keys)
	in := func(command string, flags []string, args ...string) []string {
		return append(append([]string{command}, flags...), args...)
	}
	contains(t, ok(t, in("list", at)...), "  2      3  ", "6-21")
	contains(t, ok(t, in("plan", at)...), "full   16", "2 objects")
	out, code, failure := run(t, in("check", at)...)
	if code != 1 || !strings.Contains(out, "it is encrypted, but no keys are configured") || strings.Contains(out, "broken    ") {
		t.Errorf("without keys: exit code %d, %q\n%s", code, failure, out)
	}
	contains(t, ok(t, in("check", with)...), "5 objects: 5 intact, 0 broken, 0 not read")
	contains(t, ok(t, in("verify", with, "--scratch", t.TempDir())...), "verified: at revision 21 it has 7 keys")
	t.Run("restore", func(t *testing.T) { testRestore(t, h, with) })
	t.Run("copy", func(t *testing.T) { testEncryptedCopy(t, in, with) })

	t.Run("each swap is found", func(t *testing.T) { testEachSwapIsFound(t, path, with, in) })

	lost := t.TempDir()
	copied(t, filepath.Join(keys, "b"), filepath.Join(lost, "b"))
	out, code, _ = run(t, in("check", append(slices.Clone(at), "--encryption-keys", lost))...)
	if want := h.Fulls[0].Key; code != 1 || !strings.Contains(out, want) || !strings.Contains(out, "none of the 1 identities in "+lost) {
		t.Errorf("an identity that was lost: exit code %d\n%s", code, out)
	}
	contains(t, out, "0 broken")
	out, code, _ = run(t, in("verify", append(slices.Clone(at), "--encryption-keys", lost), "--scratch", t.TempDir(), "--revision", "14", "-o", "json")...)
	if code != 1 || !strings.Contains(out, "restore the identity") || !strings.Contains(out, `"Unknown"`) {
		t.Errorf("an identity that was lost: exit code %d\n%s", code, out)
	}
}

func copied(t *testing.T, from, to string) {
	t.Helper()
	content, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	write(t, to, string(content))
}

// An encrypted object is not bound to its name, so each backup must show by its content that it is not what its name says.
func testEachSwapIsFound(t *testing.T, path string, with []string, in func(string, []string, ...string) []string) {
	objects := encryptedObjects(t, path)
	for _, replaced := range objects {
		original, err := os.ReadFile(replaced)
		if err != nil {
			t.Fatal(err)
		}
		for _, other := range objects {
			if other == replaced {
				continue
			}
			copied(t, other, replaced)
			key := strings.TrimSuffix(strings.TrimPrefix(replaced, path+"/"), ".age")
			if out, code, _ := run(t, in("check", with)...); code != 2 || !strings.Contains(out, "1 broken") || !brokenLine(out, key) {
				t.Errorf("%s in place of %s: exit code %d\n%s", filepath.Base(other), key, code, out)
			}
		}
		write(t, replaced, string(original))
	}
	contains(t, ok(t, in("check", with)...), "5 intact")
}

// brokenLine says whether check called the object broken.
func brokenLine(out, key string) bool {
	return slices.ContainsFunc(strings.Split(out, "\n"), func(line string) bool {
		return strings.HasPrefix(line, "broken") && strings.Contains(line, key)
	})
}

// encryptedObjects are the files of all encrypted objects of a store.
func encryptedObjects(t *testing.T, path string) (all []string) {
	t.Helper()
	err := filepath.WalkDir(path, func(name string, _ os.DirEntry, err error) error {
		if strings.HasSuffix(name, ".age") {
			all = append(all, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 5 {
		t.Fatalf("%d encrypted objects, want 5: %v", len(all), all)
	}
	return all
}

// onDisk checks that no object has readable content, and that age itself decrypts each with one of the identities.
func onDisk(t *testing.T, path, keys string) {
	t.Helper()
	by := map[string]int{}
	for _, name := range encryptedObjects(t, path) {
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, word := range []string{"key-", "druidful", "DRUIDDLT", string(first)} {
			if bytes.Contains(content, []byte(word)) {
				t.Errorf("%s holds %q", name, word)
			}
		}
		for _, id := range []string{"a", "b"} {
			plain, err := exec.CommandContext(t.Context(), "go", "tool", "-modfile=../../../tools/go.mod", "age", "-d", "-i", filepath.Join(keys, id), name).Output()
			if err == nil && len(plain) > 0 {
				by[id]++
			}
		}
	}
	if by["a"] == 0 || by["b"] == 0 || by["a"]+by["b"] != 5 {
		t.Errorf("age decrypted %v, want each of five objects with a or b", by)
	}
}

func testEncryptedCopy(t *testing.T, in func(string, []string, ...string) []string, with []string) {
	url, _ := directory(t)
	if _, code, failure := run(t, in("copy", with, "--to", url)...); code != 1 || !strings.Contains(failure, "--to-encryption-keys none") {
		t.Errorf("a plain copy without a request: exit code %d, %q", code, failure)
	}
	other := backups.Keys(t, "c")
	contains(t, ok(t, in("copy", with, "--to", url, "--to-encryption-keys", other)...), "6 objects in")
	contains(t, ok(t, in("copy", with, "--to", url, "--to-encryption-keys", other)...), "present", "6 objects in")
	contains(t, ok(t, "check", "--store", url, "--prefix", demo, "--encryption-keys", other), "5 objects: 5 intact")
	plain, _ := directory(t)
	ok(t, in("copy", with, "--to", plain, "--to-encryption-keys", "none")...)
	contains(t, ok(t, "check", "--store", plain, "--prefix", demo), "5 objects: 5 intact")
}
