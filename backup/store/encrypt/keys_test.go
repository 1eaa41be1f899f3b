package encrypt

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/etcd-druid/druid/backup/store"
)

func TestKeysAreRotatedWithoutOpeningTheStoreAgain(t *testing.T) {
	p := newPlace(t)
	s := p.open(t, true)
	first := put(t, s, "x/full/first", 1000)
	p.set(t, "b", base64Of(bytes.Repeat([]byte("b"), keySize)))
	p.set(t, "current", []byte("b"))
	second := put(t, s, "x/full/second", 1000)
	for key, want := range map[string][]byte{"x/full/first": first, "x/full/second": second} {
		if got, err := get(t, s, key, 0, -1); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes, %v", key, len(got), err)
		}
	}
	if err := os.Remove(filepath.Join(p.keys, "a")); err != nil {
		t.Fatal(err)
	}
	for _, from := range []int64{0, 10} {
		if _, err := get(t, s, "x/full/first", from, -1); !errors.Is(err, store.ErrNoKey) || errors.Is(err, store.ErrDamaged) || !says(err, "x/full/first", "key a", p.keys, "put that key back") {
			t.Errorf("a key that was lost: %v; want ErrNoKey, the object, the key and what to do", err)
		}
	}
	if got, err := get(t, s, "x/full/second", 0, -1); err != nil || !bytes.Equal(got, second) {
		t.Errorf("what the lost key did not seal: %d bytes, %v", len(got), err)
	}
}

func TestAnotherKeyOfTheSameNameIsReportedToBe(t *testing.T) {
	p := newPlace(t)
	s := p.open(t, true)
	put(t, s, object, 1000)
	p.set(t, "a", bytes.Repeat([]byte("x"), keySize))
	for _, from := range []int64{0, 10} {
		if _, err := get(t, s, object, from, -1); !errors.Is(err, store.ErrNoKey) || errors.Is(err, store.ErrDamaged) || !says(err, object, "key a", "is another", "put the old bytes back") {
			t.Errorf("got %v, want ErrNoKey and that the key is another", err)
		}
	}
}

// Without a usable key nothing is put, and the content is not even read.
func TestNothingIsPutWithoutAKey(t *testing.T) {
	raw := bytes.Repeat([]byte("k"), keySize)
	for name, c := range map[string]struct {
		entries map[string][]byte
		says    string
	}{
		"no Secret":                        {nil, "has no entry current"},
		"no current key":                   {map[string][]byte{"a": raw}, "has no entry current"},
		"a current key that is not there":  {map[string][]byte{"a": raw, "current": []byte("b")}, "has no entry b"},
		"a current key of no name":         {map[string][]byte{"current": []byte("../a")}, "is not the name of an entry"},
		"a current key that is an ID":      {map[string][]byte{"current": []byte("current")}, "is not the name of an entry"},
		"an empty name":                    {map[string][]byte{"current": []byte("\n")}, "is not the name of an entry"},
		"a name that fits no header":       {map[string][]byte{"current": bytes.Repeat([]byte("a"), 65)}, "is not the name of an entry"},
		"a key that is too short":          {map[string][]byte{"a": raw[1:], "current": []byte("a")}, "want 32 bytes"},
		"a key with a newline":             {map[string][]byte{"a": append(bytes.Clone(raw), '\n'), "current": []byte("a")}, "want 32 bytes"},
		"a key in base64 that is too long": {map[string][]byte{"a": base64Of(append(bytes.Clone(raw), 'k')), "current": []byte("a")}, "want 32 bytes"},
		"an empty key":                     {map[string][]byte{"a": nil, "current": []byte("a")}, "want 32 bytes"},
		"a key of a megabyte":              {map[string][]byte{"a": make([]byte, 1<<20), "current": []byte("a")}, "more than 4096 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			p := place{t.TempDir(), t.TempDir()}
			for name, content := range c.entries {
				p.set(t, name, content)
			}
			_, err := p.open(t, true).Put(t.Context(), object, unread{t}, store.PutOptions{IfAbsent: true})
			if !errors.Is(err, store.ErrNoKey) || !says(err, object, c.says, "nothing is stored") {
				t.Errorf("got %v, want ErrNoKey that says %q", err, c.says)
			}
			if found := list(t, p.open(t, false), ""); len(found) > 0 {
				t.Errorf("stored: %+v", found)
			}
		})
	}
}

func TestASecretThatIsNotMountedIsReportedToBe(t *testing.T) {
	p := newPlace(t)
	put(t, p.open(t, true), object, 10)
	p.keys += "/nowhere"
	s := p.open(t, true)
	_, putErr := s.Put(t.Context(), "x/full/b", unread{t}, store.PutOptions{IfAbsent: true})
	_, getErr := get(t, s, object, 0, -1)
	for _, err := range []error{putErr, getErr} {
		if !errors.Is(err, store.ErrNoKey) || !says(err, p.keys, "mount the Secret", "replaced") {
			t.Errorf("got %v, want ErrNoKey and what to do", err)
		}
	}
}

// unread is content that must not be read.
type unread struct{ t *testing.T }

func (u unread) Read([]byte) (int, error) {
	u.t.Error("the content was read")
	return 0, errors.New("read")
}

// The kubelet replaces all entries of a Secret atomically, by a link to another directory.
func TestAMountedSecretIsReadAsTheKubeletWritesIt(t *testing.T) {
	p := place{t.TempDir(), t.TempDir()}
	for _, version := range []string{"..1", "..2"} {
		if err := os.Mkdir(filepath.Join(p.keys, version), 0o700); err != nil {
			t.Fatal(err)
		}
		p.set(t, version+"/current", []byte("a"))
		p.set(t, version+"/a", bytes.Repeat([]byte(version[2:]), keySize))
	}
	link := func(version string) {
		next := filepath.Join(p.keys, "..next")
		if err := errors.Join(os.Symlink(version, next), os.Rename(next, filepath.Join(p.keys, "..data"))); err != nil {
			t.Fatal(err)
		}
	}
	s := p.open(t, true)
	link("..1")
	put(t, s, object, 10)
	link("..2")
	if _, err := get(t, s, object, 0, -1); !errors.Is(err, store.ErrNoKey) {
		t.Errorf("the entry was replaced: %v, want ErrNoKey", err)
	}
	link("..1")
	if got, err := get(t, s, object, 0, -1); err != nil || len(got) != 10 {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

// Derived keys are part of the format. They must not change with a library.
func TestDerivedKeysAreThoseOfTheFormat(t *testing.T) {
	k := key{"a", bytes.Repeat([]byte("a"), keySize)}
	check, err := k.check()
	if err != nil {
		t.Fatal(err)
	}
	salt := bytes.Repeat([]byte{7}, saltSize)
	args := []string{version, "a" + strings.Repeat("=", 63), check, hashOf(object)}
	_, seal, err := k.wrapper(salt, args)
	if err != nil {
		t.Fatal(err)
	}
	wrapped := seal([]byte("0123456789abcdef"))
	const wantCheck, wantWrapped = "0f7d016dcd12440a", "wHTIzKiwOt9Y8qBfSh8QE/ZE+5iMnhwn4G9fkImFdl8="
	if got := base64Of(wrapped); check != wantCheck || strings.TrimSpace(string(got)) != wantWrapped {
		t.Errorf("check %s and file key %s, want %s and %s", check, got, wantCheck, wantWrapped)
	}
}
