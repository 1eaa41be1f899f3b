package verify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/test/backups"
)

func putBytes(t *testing.T, s store.Store, key string, content []byte) {
	t.Helper()
	write(t, s, key, bytes.NewReader(content))
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

func readAt(t *testing.T, s store.Store, p string) catalog.Catalog {
	t.Helper()
	c, err := catalog.Read(t.Context(), s, p)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func check(t *testing.T, s store.Store) map[string]Finding {
	t.Helper()
	found := map[string]Finding{}
	err := Check(t.Context(), s, read(t, s), func(f Finding) error {
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
			putBytes(t, into, key, get(t, s, key))
		}
		return into
	}, c
}

func TestCheckNamesWhatIsBroken(t *testing.T) {
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
		damage func(t *testing.T, s store.Store)
		broken map[string]string // part of the reason, by key
	}{
		"nothing": {damage: func(*testing.T, store.Store) {}},
		"a bit of a full": {
			func(t *testing.T, s store.Store) { putBytes(t, s, h.Fulls[0].Key, flipped(get(t, s, h.Fulls[0].Key))) }, map[string]string{h.Fulls[0].Key: h.Fulls[0].Key},
		},
		"a bit of a delta": {
			func(t *testing.T, s store.Store) {
				putBytes(t, s, h.Deltas[1].Key, flipped(get(t, s, h.Deltas[1].Key)))
			}, map[string]string{h.Deltas[1].Key: h.Deltas[1].Key},
		},
		"ends that are cut off": {
			func(t *testing.T, s store.Store) {
				for _, key := range []string{h.Fulls[1].Key, h.Deltas[2].Key} {
					b := get(t, s, key)
					putBytes(t, s, key, b[:len(b)-1])
				}
			}, map[string]string{h.Fulls[1].Key: h.Fulls[1].Key, h.Deltas[2].Key: h.Deltas[2].Key},
		},
		"nothing in them": {
			func(t *testing.T, s store.Store) {
				putBytes(t, s, h.Fulls[1].Key, nil)
				putBytes(t, s, h.Deltas[2].Key, nil)
			}, map[string]string{h.Fulls[1].Key: h.Fulls[1].Key, h.Deltas[2].Key: h.Deltas[2].Key},
		},
		"fulls that were swapped": {
			func(t *testing.T, s store.Store) {
				a, b := get(t, s, h.Fulls[0].Key), get(t, s, h.Fulls[1].Key)
				putBytes(t, s, h.Fulls[0].Key, b)
				putBytes(t, s, h.Fulls[1].Key, a)
			}, map[string]string{h.Fulls[0].Key: fmt.Sprintf("at revision %d", h.Fulls[1].Revision), h.Fulls[1].Key: "swapped"},
		},
		"deltas that were swapped": {
			func(t *testing.T, s store.Store) {
				a, b := get(t, s, h.Deltas[0].Key), get(t, s, h.Deltas[1].Key)
				putBytes(t, s, h.Deltas[0].Key, b)
				putBytes(t, s, h.Deltas[1].Key, a)
			}, map[string]string{h.Deltas[0].Key: h.Deltas[0].Key, h.Deltas[1].Key: h.Deltas[1].Key},
		},
		"objects of another lineage": {
			func(t *testing.T, s store.Store) {
				for _, key := range []string{h.Fulls[0].Key, h.Deltas[0].Key} {
					putBytes(t, s, strings.Replace(key, string(lineage), "00000002-bb", 1), get(t, s, key))
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
			test.damage(t, s)
			for key, f := range check(t, s) {
				reason, broken := test.broken[key]
				if want := map[bool]ObjectState{true: ObjectBroken, false: ObjectIntact}[broken]; f.State != want || !strings.Contains(f.Reason, reason) {
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
		err := Check(t.Context(), broken, c, func(f Finding) error {
			if want := map[bool]ObjectState{true: ObjectUnknown, false: ObjectIntact}[f.Key == broken.key]; f.State != want {
				t.Errorf("%s is %s (%s), want %s", f.Key, f.State, f.Reason, want)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		broken.err = store.ErrDamaged
		_ = Check(t.Context(), broken, c, func(f Finding) error {
			if f.Key == broken.key && f.State != ObjectBroken {
				t.Errorf("what the store calls damaged is %s", f.State)
			}
			return nil
		})
	})
	t.Run("a connection that broke in an error that wraps io.EOF is no end", func(t *testing.T) {
		for _, key := range []string{h.Fulls[1].Key, h.Deltas[1].Key} {
			err := Check(t.Context(), severed{fresh(t), key}, c, func(f Finding) error {
				if want := map[bool]ObjectState{true: ObjectUnknown, false: ObjectIntact}[f.Key == key]; f.State != want {
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
		putBytes(t, s, forked.Key, get(t, other, forked.Key))
		f := check(t, s)[forked.Key]
		if f.State != ObjectBroken || !strings.Contains(f.Reason, h.Deltas[0].Key) || !strings.Contains(f.Reason, "the history forked within lineage") {
			t.Errorf("%s is %s (%s), want it broken and both named", forked.Key, f.State, f.Reason)
		}
	})
	t.Run("copies", func(t *testing.T) { testCopy(t, fresh(t), c) })
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
