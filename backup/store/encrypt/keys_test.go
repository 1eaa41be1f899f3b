package encrypt

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"filippo.io/age"

	"github.com/etcd-druid/druid/backup/store"
)

// TestKeysRotatedWithoutReopen: keys are rotated without opening the store again.
func TestKeysRotatedWithoutReopen(t *testing.T) {
	p := newPlace(t)
	s := p.open(t, true)
	first := put(t, s, "x/full/first", 1000)
	p.generate(t, "b")
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
		if _, err := get(t, s, "x/full/first", from, -1); !errors.Is(err, store.ErrNoKey) || errors.Is(err, store.ErrDamaged) ||
			!says(err, "x/full/first", "none of the 1 identities in "+p.keys, "restore the identity") {
			t.Errorf("a key that was lost: %v; want ErrNoKey, the object, the key and what to do", err)
		}
	}
	if got, err := get(t, s, "x/full/second", 0, -1); err != nil || !bytes.Equal(got, second) {
		t.Errorf("what the lost key did not encrypt: %d bytes, %v", len(got), err)
	}
}

func TestAnIdentityThatWasReplacedIsMissing(t *testing.T) {
	p := newPlace(t)
	s := p.open(t, true)
	content := put(t, s, object, 1000)
	old, err := os.ReadFile(filepath.Join(p.keys, "a"))
	if err != nil {
		t.Fatal(err)
	}
	p.generate(t, "a")
	for _, from := range []int64{0, 10} {
		if _, err := get(t, s, object, from, -1); !errors.Is(err, store.ErrNoKey) || errors.Is(err, store.ErrDamaged) ||
			!says(err, object, "none of the 1 identities") {
			t.Errorf("got %v, want ErrNoKey", err)
		}
	}
	p.set(t, "of-2025", old)
	if got, err := get(t, s, object, 0, -1); err != nil || !bytes.Equal(got, content) {
		t.Errorf("the identity is back under another name: %d bytes, %v", len(got), err)
	}
}

// An entry that holds no identity takes nothing from the others, and is named where none of them fits.
func TestAnEntryThatIsNoIdentityIsNamed(t *testing.T) {
	p := newPlace(t)
	s := p.open(t, true)
	content := put(t, s, object, 1000)
	p.set(t, "README", []byte("AGE-SECRET-KEY-1 of the team"))
	if got, err := get(t, s, object, 0, -1); err != nil || !bytes.Equal(got, content) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	p.generate(t, "a")
	_, err := get(t, s, object, 0, -1)
	if !errors.Is(err, store.ErrNoKey) || !says(err, "entry README: want one identity") || says(err, "of the team") {
		t.Errorf("got %v, want ErrNoKey that names the entry and not its content", err)
	}
}

// Without a usable key nothing is put, and the content is not even read.
func TestNothingIsPutWithoutAKey(t *testing.T) {
	identity := func() []byte {
		i, err := age.GenerateX25519Identity()
		if err != nil {
			t.Fatal(err)
		}
		return []byte(i.String())
	}
	one := identity()
	recipient := "age1wz50zklfxf2a3nsv5vu3tk8rp0fth6z2kmr9ltggz7afg0xxj44qn3m8qg"
	for name, c := range map[string]struct {
		entries map[string][]byte
		says    string
	}{
		"no Secret":                            {nil, "has no entry current"},
		"no current identity":                  {map[string][]byte{"a": one}, "has no entry current"},
		"a current identity that is not there": {map[string][]byte{"a": one, "current": []byte("b")}, "has no entry b"},
		"a current entry of no name":           {map[string][]byte{"current": []byte("../a")}, "does not have the name of an entry"},
		"a current entry that names itself":    {map[string][]byte{"current": []byte("current")}, "does not have the name of an entry"},
		"an empty name":                        {map[string][]byte{"current": []byte("\n")}, "does not have the name of an entry"},
		"a name that no entry can have":        {map[string][]byte{"current": bytes.Repeat([]byte("a"), 254)}, "does not have the name of an entry"},
		"an identity that is cut":              {map[string][]byte{"a": one[:len(one)-1], "current": []byte("a")}, "want one identity"},
		"two identities":                       {map[string][]byte{"a": slices.Concat(one, []byte("\n"), identity()), "current": []byte("a")}, "want one identity"},
		"a recipient":                          {map[string][]byte{"a": []byte(recipient), "current": []byte("a")}, "want one identity"},
		"32 random bytes":                      {map[string][]byte{"a": bytes.Repeat([]byte("k"), 32), "current": []byte("a")}, "want one identity"},
		"an empty entry":                       {map[string][]byte{"a": nil, "current": []byte("a")}, "want one identity"},
		"an entry of a megabyte":               {map[string][]byte{"a": make([]byte, 1<<20), "current": []byte("a")}, "at most 4096 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			p := place{t.TempDir(), t.TempDir()}
			for name, content := range c.entries {
				p.set(t, name, content)
			}
			_, err := p.open(t, true).Put(t.Context(), object, unread{t}, store.PutOptions{IfAbsent: true})
			if !errors.Is(err, store.ErrNoKey) || !says(err, object, c.says, "nothing was stored") {
				t.Errorf("got %v, want ErrNoKey that says %q", err, c.says)
			}
			if found := list(t, p.open(t, false), ""); len(found) > 0 {
				t.Errorf("stored: %+v", found)
			}
		})
	}
}

func TestASecretThatIsNotMountedIsReported(t *testing.T) {
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

// TestMountedSecretReadAsWritten: a mounted Secret is read as the kubelet writes it.
// The kubelet replaces all entries of a Secret atomically, by a link to another directory.
func TestMountedSecretReadAsWritten(t *testing.T) {
	p := place{t.TempDir(), t.TempDir()}
	for _, version := range []string{"..1", "..2"} {
		if err := os.Mkdir(filepath.Join(p.keys, version), 0o700); err != nil {
			t.Fatal(err)
		}
		p.set(t, version+"/current", []byte("a"))
		p.generate(t, version+"/a")
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
