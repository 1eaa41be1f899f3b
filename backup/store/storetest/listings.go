package storetest

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/etcd-druid/druid/backup/store"
)

// listed has the traps of order: in ASCII '-' and '.' come before '/', capitals before small letters, '_' between.
var listed = []string{
	"l/A", "l/Z/a", "l/_", "l/a-b/c", "l/a.b", "l/a/b", "l/a/b-c", "l/a/c/d", "l/ab", "l/b/00", "l/b/01", "l/b/10", "l/b0", "l/z",
	"l/full/0000000000000001-1700000000000.snap.zst", "l/full/0000000000000010-1700000000000.snap.zst", "m/a",
}

func list(t *testing.T, f fixture) {
	for _, key := range listed {
		f.put(t, key, 3)
	}
	for _, prefix := range []string{"l/", "l", "l/a", "l/a/", "l/a/b", "l/a-", "l/b/", "l/b/0", "l/full/", "l/full/0000000000000001", "l/nothing", "l/z/", "m/"} {
		want := slices.DeleteFunc(slices.Clone(listed), func(key string) bool { return !strings.HasPrefix(key, prefix) })
		slices.Sort(want)
		var got []string
		for _, o := range f.list(t, prefix) {
			got = append(got, o.Key)
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("list %q (-want +got):\n%s", prefix, diff)
		}
	}
	moved := 0
	for _, err := range f.store.List(store.OnProgress(f.ctx, func() { moved++ }), "l/") {
		if err != nil {
			t.Fatal(err)
		}
	}
	if moved == 0 {
		t.Errorf("a listing of %d objects reported no one that it gets on", len(listed))
	}
	if all := f.list(t, ""); len(all) < len(listed) {
		t.Errorf("the empty prefix lists %d objects, want at least %d", len(all), len(listed))
	}
}

func leave(t *testing.T, f fixture) {
	for _, key := range listed {
		f.put(t, key, 3)
	}
	var got []string
	for o, err := range f.store.List(f.ctx, "l/") {
		if err != nil {
			t.Fatal(err)
		}
		if got = append(got, o.Key); len(got) == 2 {
			break
		}
	}
	if want := []string{"l/A", "l/Z/a"}; !slices.Equal(got, want) {
		t.Errorf("the first two are %v, want %v", got, want)
	}
}

func sweep(t *testing.T, f fixture) {
	f.put(t, "swept/whole", 10)
	f.Abandon(t, "swept/full/a")
	f.Abandon(t, "kept/full/a")
	if n, err := f.store.Sweep(f.ctx, "swept/", time.Hour); n != 0 || err != nil {
		t.Errorf("what began just now was swept: %d, %v", n, err)
	}
	if n := f.Leftovers(t); n != 2 {
		t.Fatalf("%d puts were abandoned, want 2", n)
	}
	// A negative age sweeps what began in this very second, too.
	if n, err := f.store.Sweep(f.ctx, "swept/fu", -time.Hour); n != 1 || err != nil {
		t.Errorf("swept %d, %v; want 1", n, err)
	}
	if n, err := f.store.Sweep(f.ctx, "swept/", -time.Hour); n != 0 || err != nil {
		t.Errorf("swept %d again, %v", n, err)
	}
	if n, err := f.store.Sweep(f.ctx, "", -time.Hour); n != 1 || err != nil {
		t.Errorf("swept %d of all, %v; want 1", n, err)
	}
	if n := f.Leftovers(t); n != 0 {
		t.Errorf("%d are left", n)
	}
	f.holds(t, "swept/whole", "swept/whole", 10)
	if _, err := f.store.Get(f.ctx, "swept/full/a", 0, -1); !errors.Is(err, store.ErrAbsent) {
		t.Errorf("an abandoned put is visible: %v", err)
	}
}
