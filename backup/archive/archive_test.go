package archive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/backup/store/dir"
	"github.com/etcd-druid/druid/test/backups"
)

const (
	prefix  = "ns/demo"
	lineage = catalog.Lineage("00000001-aa")
)

func newStore(t *testing.T) store.Store {
	t.Helper()
	s, err := dir.Open(store.Directory{Path: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func write(t *testing.T, s store.Store, key string, content []byte) {
	t.Helper()
	if _, err := s.Put(t.Context(), key, bytes.NewReader(content), store.PutOptions{}); err != nil {
		t.Fatal(err)
	}
}

func get(t *testing.T, s store.Store, key string) []byte {
	t.Helper()
	r, err := s.Get(t.Context(), key, 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func keys(t *testing.T, s store.Store) []string {
	t.Helper()
	var keys []string
	for o, err := range s.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, o.Key)
	}
	return keys
}

func read(t *testing.T, s store.Store, p string) catalog.Catalog {
	t.Helper()
	c, err := catalog.Read(t.Context(), s, p)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func verify(t *testing.T, s store.Store) map[string]Finding {
	t.Helper()
	found := map[string]Finding{}
	err := Verify(t.Context(), s, read(t, s, prefix), func(f Finding) error {
		found[f.Key] = f
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// ofRealEtcd returns a store with the backups of a real etcd, and a function that copies it for each test that damages
// them.
func ofRealEtcd(t *testing.T) (fresh func(t *testing.T) store.Store, c catalog.Catalog) {
	t.Helper()
	s := newStore(t)
	c = backups.Make(t, s, prefix, catalog.Formation{Lineage: lineage, ClusterID: "c", Created: time.Now()})
	return func(t *testing.T) store.Store {
		t.Helper()
		into := newStore(t)
		for _, key := range keys(t, s) {
			write(t, into, key, get(t, s, key))
		}
		return into
	}, c
}

func TestVerifyNamesWhatIsBroken(t *testing.T) {
	fresh, c := ofRealEtcd(t)
	h := c.Histories[0]
	if len(h.Fulls) != 2 || len(h.Deltas) != 3 {
		t.Fatalf("there are %+v, want two fulls and three deltas", h)
	}
	flipped := func(b []byte) []byte {
		b = bytes.Clone(b)
		b[len(b)/2] ^= 4
		return b
	}
	tests := map[string]struct {
		damageKind func(t *testing.T, s store.Store)
		broken     map[string]string // part of the reason, by key
	}{
		"nothing": {damageKind: func(*testing.T, store.Store) {}},
		"a bit of a full": {
			func(t *testing.T, s store.Store) { write(t, s, h.Fulls[0].Key, flipped(get(t, s, h.Fulls[0].Key))) }, map[string]string{h.Fulls[0].Key: h.Fulls[0].Key},
		},
		"a bit of a delta": {
			func(t *testing.T, s store.Store) { write(t, s, h.Deltas[1].Key, flipped(get(t, s, h.Deltas[1].Key))) }, map[string]string{h.Deltas[1].Key: h.Deltas[1].Key},
		},
		"ends that are cut off": {
			func(t *testing.T, s store.Store) {
				for _, key := range []string{h.Fulls[1].Key, h.Deltas[2].Key} {
					b := get(t, s, key)
					write(t, s, key, b[:len(b)-1])
				}
			}, map[string]string{h.Fulls[1].Key: h.Fulls[1].Key, h.Deltas[2].Key: h.Deltas[2].Key},
		},
		"nothing in them": {
			func(t *testing.T, s store.Store) {
				write(t, s, h.Fulls[1].Key, nil)
				write(t, s, h.Deltas[2].Key, nil)
			}, map[string]string{h.Fulls[1].Key: h.Fulls[1].Key, h.Deltas[2].Key: h.Deltas[2].Key},
		},
		"fulls that were swapped": {
			func(t *testing.T, s store.Store) {
				a, b := get(t, s, h.Fulls[0].Key), get(t, s, h.Fulls[1].Key)
				write(t, s, h.Fulls[0].Key, b)
				write(t, s, h.Fulls[1].Key, a)
			}, map[string]string{h.Fulls[0].Key: fmt.Sprintf("at revision %d", h.Fulls[1].Revision), h.Fulls[1].Key: "swapped"},
		},
		"deltas that were swapped": {
			func(t *testing.T, s store.Store) {
				a, b := get(t, s, h.Deltas[0].Key), get(t, s, h.Deltas[1].Key)
				write(t, s, h.Deltas[0].Key, b)
				write(t, s, h.Deltas[1].Key, a)
			}, map[string]string{h.Deltas[0].Key: h.Deltas[0].Key, h.Deltas[1].Key: h.Deltas[1].Key},
		},
		"objects of another lineage": {
			func(t *testing.T, s store.Store) {
				for _, key := range []string{h.Fulls[0].Key, h.Deltas[0].Key} {
					write(t, s, strings.Replace(key, string(lineage), "00000002-bb", 1), get(t, s, key))
				}
			}, map[string]string{
				strings.Replace(h.Fulls[0].Key, string(lineage), "00000002-bb", 1):  `lineage "00000001-aa"`,
				strings.Replace(h.Deltas[0].Key, string(lineage), "00000002-bb", 1): `lineage "00000001-aa"`,
				catalog.BootstrapKey(prefix, "00000002-bb"):                         "there is no",
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := fresh(t)
			test.damageKind(t, s)
			for key, f := range verify(t, s) {
				reason, broken := test.broken[key]
				if want := map[bool]State{true: Broken, false: Intact}[broken]; f.State != want || !strings.Contains(f.Reason, reason) {
					t.Errorf("%s is %s (%s), want %s with %q", key, f.State, f.Reason, want, reason)
				}
				delete(test.broken, key)
			}
			if len(test.broken) > 0 {
				t.Errorf("no progress was reported for %v", test.broken)
			}
		})
	}
	t.Run("a store that does not answer says nothing of the object", func(t *testing.T) {
		s := fresh(t)
		broken := unreadable{s, h.Fulls[1].Key, errors.New("503 busy")}
		err := Verify(t.Context(), broken, c, func(f Finding) error {
			if want := map[bool]State{true: Unknown, false: Intact}[f.Key == broken.key]; f.State != want {
				t.Errorf("%s is %s (%s), want %s", f.Key, f.State, f.Reason, want)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		broken.err = store.ErrDamaged
		_ = Verify(t.Context(), broken, c, func(f Finding) error {
			if f.Key == broken.key && f.State != Broken {
				t.Errorf("what the store calls damaged is %s", f.State)
			}
			return nil
		})
	})
	t.Run("a connection that broke in an error that wraps io.EOF is no end", func(t *testing.T) {
		for _, key := range []string{h.Fulls[1].Key, h.Deltas[1].Key} {
			err := Verify(t.Context(), severed{fresh(t), key}, c, func(f Finding) error {
				if want := map[bool]State{true: Unknown, false: Intact}[f.Key == key]; f.State != want {
					t.Errorf("%s is %s (%s), want %s", f.Key, f.State, f.Reason, want)
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		}
	})
	t.Run("a history that forked", func(t *testing.T) {
		s, other := fresh(t), newStore(t)
		made := backups.Make(t, other, prefix, catalog.Formation{Lineage: lineage, ClusterID: "d", Created: time.Now()})
		for _, d := range h.Deltas[1:] {
			if err := s.Delete(t.Context(), d.Key); err != nil {
				t.Fatal(err)
			}
		}
		forked := made.Histories[0].Deltas[1]
		write(t, s, forked.Key, get(t, other, forked.Key))
		f := verify(t, s)[forked.Key]
		if f.State != Broken || !strings.Contains(f.Reason, h.Deltas[0].Key) || !strings.Contains(f.Reason, "the history forked within lineage") {
			t.Errorf("%s is %s (%s), want it broken and both named", forked.Key, f.State, f.Reason)
		}
	})
	t.Run("copies", func(t *testing.T) { testCopy(t, fresh(t), c) })
}

type unreadable struct {
	store.Store
	key string
	err error
}

func (u unreadable) Get(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	if key == u.key {
		return nil, fmt.Errorf("get %s: %w", key, u.err)
	}
	return u.Store.Get(ctx, key, offset, length)
}

// severed delivers half of the object of one key, then fails as net/http does.
type severed struct {
	store.Store
	key string
}

func (s severed) Get(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	r, err := s.Store.Get(ctx, key, offset, length)
	if err != nil || key != s.key {
		return r, err
	}
	content, err := io.ReadAll(r)
	broken := iotest.ErrReader(fmt.Errorf("Get %q: %w", key, io.EOF))
	return io.NopCloser(io.MultiReader(bytes.NewReader(content[:len(content)/2]), broken)), errors.Join(err, r.Close())
}

// lossy changes what is stored.
type lossy struct{ store.Store }

func (l lossy) Put(ctx context.Context, key string, r io.Reader, o store.PutOptions) (store.Object, error) {
	return l.Store.Put(ctx, key, io.MultiReader(r, strings.NewReader("x")), o)
}

func testCopy(t *testing.T, from store.Store, c catalog.Catalog) {
	write(t, from, prefix+"/notes.txt", []byte("an unknown member"))
	source := Place{from, prefix}
	copyTo := func(to Place, stopAfter int) (copied []Copied, err error) {
		err = Copy(t.Context(), source, to, c, func(c Copied) error {
			if copied = append(copied, c); len(copied) == stopAfter {
				return io.ErrClosedPipe
			}
			return nil
		})
		return copied, err
	}
	to := Place{newStore(t), "elsewhere"}
	const all = 6 // the bootstrap, two fulls and three deltas
	for n := 1; n <= all; n++ {
		torn := Place{newStore(t), "torn"}
		if _, err := copyTo(torn, n); !errors.Is(err, io.ErrClosedPipe) {
			t.Fatal(err)
		}
		if h := read(t, torn.Store, "torn").Histories[0]; n > 1 && len(h.Ranges()) != 1 {
			t.Errorf("a copy that ended after %d objects has the ranges %v, want one", n, h.Ranges())
		}
	}
	if _, err := copyTo(to, 3); !errors.Is(err, io.ErrClosedPipe) {
		t.Fatal(err)
	}
	copied, err := copyTo(to, 0)
	if err != nil {
		t.Fatal(err)
	}
	var present []bool
	for _, c := range copied {
		present = append(present, c.Present)
	}
	if d := cmp.Diff(present, []bool{true, true, true, false, false, false}); d != "" {
		t.Errorf("(-got +want)\n%s", d)
	}
	var want []string
	for _, key := range keys(t, from) {
		if target := strings.Replace(key, prefix, "elsewhere", 1); target != "elsewhere/notes.txt" {
			want = append(want, target)
			if !bytes.Equal(get(t, to.Store, target), get(t, from, key)) {
				t.Errorf("%s differs", target)
			}
		}
	}
	if d := cmp.Diff(keys(t, to.Store), want); d != "" {
		t.Errorf("(-got +want)\n%s", d)
	}

	// The target has another object of this name.
	other := slices.Max(want)
	write(t, to.Store, other, []byte("something else"))
	if _, err := copyTo(to, 0); !errors.Is(err, ErrDiffers) || !strings.Contains(err.Error(), other) {
		t.Errorf("got %v, want ErrDiffers that names %s", err, other)
	}
	if string(get(t, to.Store, other)) != "something else" {
		t.Error("what was there was replaced")
	}
	if _, err := copyTo(Place{lossy{newStore(t)}, ""}, 0); !errors.Is(err, store.ErrDamaged) {
		t.Errorf("a store that changes what is put: %v, want ErrDamaged", err)
	}
}

// locking denies the deletion of some objects.
type locking struct {
	store.Store
	locked  string
	deleted *[]string
	fails   string
}

func (l locking) Delete(ctx context.Context, key string) error {
	switch key {
	case l.locked:
		return fmt.Errorf("delete %s: %w", key, store.ErrLocked)
	case l.fails:
		return fmt.Errorf("delete %s: %w", key, store.ErrForbidden)
	}
	*l.deleted = append(*l.deleted, key)
	return l.Store.Delete(ctx, key)
}

func TestCollectDeletesTheOldestFirst(t *testing.T) {
	var all []string
	s := newStore(t)
	for i := range int64(5) {
		at := time.UnixMilli(1000 * i)
		all = append(all, catalog.FullKey(prefix, lineage, 1+10*i, at), catalog.DeltaKey(prefix, lineage, 2+10*i, 11+10*i, at))
	}
	for _, key := range all {
		write(t, s, key, []byte("x"))
	}
	write(t, s, prefix+"/"+string(lineage)+"/full/notes.txt", nil)
	var deleted, reported []string
	l := locking{Store: s, locked: all[2], fails: all[5], deleted: &deleted}
	collect := func() error {
		return Collect(t.Context(), l, prefix, "", catalog.Policy{Count: 2}, catalog.Evidence{}, time.Now(), func(c Collected) error {
			if c.Locked != (c.Key == l.locked) {
				t.Errorf("%s is locked: %t", c.Key, c.Locked)
			}
			reported = append(reported, c.Key)
			return nil
		})
	}
	if err := collect(); !errors.Is(err, store.ErrForbidden) {
		t.Errorf("got %v, want ErrForbidden", err)
	}
	if d := cmp.Diff(deleted, []string{all[0], all[1], all[3], all[4]}); d != "" {
		t.Errorf("(-got +want)\n%s", d)
	}
	l.fails, deleted, reported = "", nil, nil
	if err := collect(); err != nil {
		t.Error(err)
	}
	if d := cmp.Diff(deleted, []string{all[5]}); d != "" {
		t.Errorf("(-got +want)\n%s", d)
	}
	if d := cmp.Diff(reported, []string{all[2], all[5]}); d != "" {
		t.Errorf("(-got +want)\n%s", d)
	}
	if d := cmp.Diff(keys(t, s), []string{all[7], all[9], all[2], all[6], all[8], prefix + "/" + string(lineage) + "/full/notes.txt"}); d != "" {
		t.Errorf("(-got +want)\n%s", d)
	}
	if err := Collect(t.Context(), s, prefix, "", catalog.Policy{Count: -1}, catalog.Evidence{}, time.Now(), nil); err == nil {
		t.Error("a policy that makes no sense is taken")
	}
}
