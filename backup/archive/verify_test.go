package archive

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
