package encrypt

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"filippo.io/age"

	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/backup/store/dir"
	"github.com/etcd-druid/druid/backup/store/storetest"
)

// object is a key as backups have them.
const object = "default/demo/00000001-abcd/full/00000000000000ff-1700000000000.snap.zst"

// place is a directory with a store, and one with keys.
type place struct{ path, keys string }

func newPlace(t testing.TB) place {
	t.Helper()
	p := place{t.TempDir(), t.TempDir()}
	p.generate(t, "a")
	p.set(t, "current", []byte("a\n"))
	return p
}

// generate writes a new identity under the name of an entry, as age-keygen prints it.
func (p place) generate(t testing.TB, name string) {
	t.Helper()
	identity, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	p.set(t, name, fmt.Appendf(nil, "# created: 2026-11-24T03:00:00Z\n# public key: %s\n%s\n", identity.Recipient(), identity))
}

// set writes an entry of the Secret.
func (p place) set(t testing.TB, name string, content []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(p.keys, name), content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// open returns the store with or without its keys.
func (p place) open(t testing.TB, encrypting bool) *Store {
	t.Helper()
	inner, err := dir.Open(store.Directory{Path: p.path})
	if err != nil {
		t.Fatal(err)
	}
	if !encrypting {
		return Around(inner, nil)
	}
	return Around(inner, &store.ClientEncryption{KeysDir: p.keys})
}

// raw returns the encrypted bytes of object.
func (p place) raw(t testing.TB) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(p.path, object+".age"))
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func (p place) write(t testing.TB, key string, content []byte) {
	t.Helper()
	name := filepath.Join(p.path, key)
	if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, content, 0o600)); err != nil {
		t.Fatal(err)
	}
}

func put(t testing.TB, s store.Store, key string, size int64) []byte {
	t.Helper()
	content, err := io.ReadAll(storetest.Content(key, size))
	if err != nil {
		t.Fatal(err)
	}
	o, err := s.Put(t.Context(), key, bytes.NewReader(content), store.PutOptions{IfAbsent: true})
	if err != nil {
		t.Fatal(err)
	}
	if o.Key != key || o.Size != size {
		t.Errorf("put returned %+v, want %s of %d bytes", o, key, size)
	}
	return content
}

func get(t testing.TB, s store.Store, key string, offset, length int64) ([]byte, error) {
	t.Helper()
	r, err := s.Get(t.Context(), key, offset, length)
	if err != nil {
		return nil, err
	}
	content, err := io.ReadAll(r)
	return content, errors.Join(err, r.Close())
}

func list(t testing.TB, s store.Store, prefix string) []store.Object {
	t.Helper()
	var all []store.Object
	for o, err := range s.List(t.Context(), prefix) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, o)
	}
	return all
}
