package verify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/backup/store"
)

// lossy changes what is stored.
type lossy struct{ store.Store }

func (l lossy) Put(ctx context.Context, key string, r io.Reader, o store.PutOptions) (store.Object, error) {
	return l.Store.Put(ctx, key, io.MultiReader(r, strings.NewReader("x")), o)
}

func testCopy(t *testing.T, from store.Store, c catalog.Catalog) {
	putBytes(t, from, prefix+"/notes.txt", []byte("an unknown member"))
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
		if h := readAt(t, torn.Store, "torn").Histories[0]; n > 1 && len(h.Ranges()) != 1 {
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
	putBytes(t, to.Store, other, []byte("something else"))
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
		putBytes(t, s, key, []byte("x"))
	}
	putBytes(t, s, prefix+"/"+string(lineage)+"/full/notes.txt", nil)
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
