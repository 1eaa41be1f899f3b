package dir

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"

	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/backup/store/storetest"
)

func TestConformance(t *testing.T) {
	path := t.TempDir()
	storetest.Run(t, storetest.Subject{
		Part:      1 << 20,
		Open:      func(t *testing.T) store.Store { return open(t, path) },
		Leftovers: func(t *testing.T) int { return len(temporaries(t, path)) },
		Abandon: func(t *testing.T, key string) {
			t.Helper()
			name := filepath.Join(path, filepath.Dir(key), temporaryName(filepath.Base(key)))
			if err := errors.Join(os.MkdirAll(filepath.Dir(name), dirMode), os.WriteFile(name, []byte("half"), fileMode)); err != nil {
				t.Fatal(err)
			}
		},
	})
}

func open(t *testing.T, path string) *Store {
	t.Helper()
	s, err := Open(store.Directory{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func temporaries(t *testing.T, path string) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(path, func(name string, _ fs.DirEntry, err error) error {
		if strings.HasPrefix(filepath.Base(name), temporary) {
			found = append(found, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestADirectoryThatIsNotThereIsNoBucket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "later")
	if _, err := Open(store.Directory{Path: path}); !errors.Is(err, store.ErrNoBucket) || !strings.Contains(err.Error(), "mount") {
		t.Errorf("open: %v, want ErrNoBucket and what to do", err)
	}
	if err := os.Mkdir(path, dirMode); err != nil {
		t.Fatal(err)
	}
	s := open(t, path)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	// An unmounted directory must not look like an empty one.
	_, putErr := s.Put(t.Context(), "a", strings.NewReader("a"), store.PutOptions{})
	_, getErr := s.Get(t.Context(), "a", 0, -1)
	_, sweepErr := s.Sweep(t.Context(), "", 0)
	errs := map[string]error{"put": putErr, "get": getErr, "delete": s.Delete(t.Context(), "a"), "sweep": sweepErr}
	for _, err := range s.List(t.Context(), "") {
		errs["list"] = err
	}
	for _, call := range []string{"put", "get", "delete", "sweep", "list"} {
		if !errors.Is(errs[call], store.ErrNoBucket) || store.CauseOf(errs[call]) != store.CauseNotFound {
			t.Errorf("%s: %v, want ErrNoBucket", call, errs[call])
		}
	}
}

func TestCauseOfAFailedCall(t *testing.T) {
	s := open(t, t.TempDir())
	for err, want := range map[error]store.Cause{
		syscall.EROFS: store.CauseUnauthorized, syscall.EACCES: store.CauseUnauthorized, syscall.EPERM: store.CauseUnauthorized,
		syscall.ENOSPC: store.CauseFull, syscall.EDQUOT: store.CauseFull, syscall.EIO: "", syscall.ENOENT: "",
	} {
		if got := store.CauseOf(s.failed("get", "a", err)); got != want {
			t.Errorf("%v: got %q, want %q", err, got, want)
		}
	}
}

func TestNothingLeavesTheDirectory(t *testing.T) {
	outside, path := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(outside, "secret"), []byte("secret"), fileMode); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(path, "link")); err != nil {
		t.Fatal(err)
	}
	s := open(t, path)
	if r, err := s.Get(t.Context(), "link/secret", 0, -1); err == nil {
		r.Close()
		t.Error("read through a link that leads outside")
	}
	if _, err := s.Put(t.Context(), "link/new", strings.NewReader("x"), store.PutOptions{}); err == nil {
		t.Error("wrote through a link that leads outside")
	}
	if err := s.Delete(t.Context(), "link/secret"); err == nil {
		t.Error("deleted through a link that leads outside")
	}
	for o, err := range s.List(t.Context(), "") {
		t.Errorf("listed %+v, %v through a link", o, err)
	}
	if found, err := os.ReadDir(outside); err != nil || len(found) != 1 {
		t.Errorf("outside are %v, %v; want the secret alone", found, err)
	}
}

// TestForeignFilesNotListedOrTouched: foreign files are neither listed nor touched.
func TestForeignFilesNotListedOrTouched(t *testing.T) {
	path := t.TempDir()
	for _, name := range []string{"lost+found/x", ".snapshot/a", "a b", "full/.put-", "full/.nfs000"} {
		file := filepath.Join(path, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), dirMode), os.WriteFile(file, nil, fileMode)); err != nil {
			t.Fatal(err)
		}
	}
	s := open(t, path)
	if _, err := s.Put(t.Context(), "full/a", strings.NewReader("x"), store.PutOptions{IfAbsent: true}); err != nil {
		t.Fatal(err)
	}
	var keys []string
	for o, err := range s.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, o.Key)
	}
	if len(keys) != 1 || keys[0] != "full/a" {
		t.Errorf("listed %v, want full/a alone", keys)
	}
	if n, err := s.Sweep(t.Context(), "", -1); n != 0 || err != nil {
		t.Errorf("swept %d foreign files, %v", n, err)
	}
}

func TestOnlyTheOwnerReadsBackups(t *testing.T) {
	path := t.TempDir()
	if _, err := open(t, path).Put(t.Context(), "a/b", strings.NewReader("x"), store.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]fs.FileMode{"a": fs.ModeDir | dirMode, "a/b": fileMode} {
		if info, err := os.Stat(filepath.Join(path, name)); err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v; want %v", name, info.Mode(), err, want)
		}
	}
}

func TestNoKeyIsAnotherKeysDirectory(t *testing.T) {
	s := open(t, t.TempDir())
	for _, key := range []string{"object", "directory/object"} {
		if _, err := s.Put(t.Context(), key, strings.NewReader("x"), store.PutOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, key := range []string{"object/below", "directory"} {
		if _, err := s.Put(t.Context(), key, strings.NewReader("x"), store.PutOptions{}); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("put %s: %v, want ErrInvalid", key, err)
		}
	}
}

func TestAFailedPutLeavesTheOldObject(t *testing.T) {
	path := t.TempDir()
	s := open(t, path)
	if _, err := s.Put(t.Context(), "a", strings.NewReader("old"), store.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	// An error of the reader says nothing about the store.
	for _, broken := range []error{errors.New("broken"), fs.ErrNotExist, fs.ErrPermission} {
		_, err := s.Put(t.Context(), "a", iotest.ErrReader(broken), store.PutOptions{})
		if !errors.Is(err, broken) || errors.Is(err, store.ErrAbsent) || errors.Is(err, store.ErrForbidden) {
			t.Errorf("put: %v, want the reader's error alone", err)
		}
	}
	if content, err := os.ReadFile(filepath.Join(path, "a")); err != nil || string(content) != "old" {
		t.Errorf("the object is %q, %v; want the old one", content, err)
	}
	if left := temporaries(t, path); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
