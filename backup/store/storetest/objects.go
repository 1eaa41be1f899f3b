package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sync/errgroup"

	"github.com/etcd-druid/druid/backup/store"
)

// creators race for one key. There are fewer with objects of more than one part, which have many bytes.
const (
	creators      = 16
	largeCreators = 6
)

func putAndGet(t *testing.T, f fixture) {
	for _, size := range []int64{0, 1, f.Part, f.Part + 1, 2*f.Part + 4711} {
		key := "sizes/" + strconv.FormatInt(size, 10)
		put := f.put(t, key, size)
		if put.Key != key || put.Size != size || put.Modified.IsZero() {
			t.Errorf("put %s returned %+v", key, put)
		}
		f.holds(t, key, key, size)
		listed := f.list(t, key)
		if len(listed) != 1 || listed[0].Key != key || listed[0].Size != size || listed[0].Modified.IsZero() {
			t.Errorf("%s is listed as %+v, want it once with %d bytes and a time", key, listed, size)
		}
		if err := f.store.Delete(f.ctx, key); err != nil {
			t.Errorf("delete %s: %v", key, err)
		}
		f.isGone(t, key)
	}
}

func ranges(t *testing.T, f fixture) {
	const size = 1000
	f.put(t, "ranges/a", size)
	whole, err := io.ReadAll(Content("ranges/a", size))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ offset, length int64 }{
		{0, 0}, {0, 1}, {0, size}, {0, size + 1}, {1, -1}, {1, 10}, {500, 0}, {999, 1}, {999, -1}, {999, 7}, {1000, -1}, {1000, 0}, {1000, 5},
		{5000, -1}, {0, math.MaxInt64}, {10, math.MaxInt64},
	} {
		r, err := f.store.Get(f.ctx, "ranges/a", c.offset, c.length)
		if err != nil {
			t.Errorf("get %+v: %v", c, err)
			continue
		}
		got, err := readAll(r)
		from, to := min(c.offset, size), int64(size)
		if c.length >= 0 {
			to = from + min(size-from, c.length)
		}
		if err != nil || !bytes.Equal(got, whole[from:to]) {
			t.Errorf("get %+v: %d bytes, %v; want bytes %d to %d", c, len(got), err, from, to)
		}
	}
	if _, err := f.store.Get(f.ctx, "ranges/a", -1, 1); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("get from offset -1: %v, want ErrInvalid", err)
	}
}

func absent(t *testing.T, f fixture) {
	f.put(t, "there/a.b", 10)
	for _, key := range []string{"nowhere", "nowhere/at/all", "there/a", "there", "there/a.b.c"} {
		for _, length := range []int64{-1, 0, 5} {
			if _, err := f.store.Get(f.ctx, key, 0, length); !errors.Is(err, store.ErrAbsent) {
				t.Errorf("get %d bytes of %s: %v, want ErrAbsent", length, key, err)
			}
		}
		if err := f.store.Delete(f.ctx, key); err != nil {
			t.Errorf("delete %s: %v", key, err)
		}
	}
	if listed := f.list(t, "nowhere/"); len(listed) > 0 {
		t.Errorf("nowhere/ has %+v", listed)
	}
	f.holds(t, "there/a.b", "there/a.b", 10)
}

func ifAbsent(t *testing.T, f fixture) {
	for _, size := range []int64{100, f.Part + 100} {
		key := "once/" + strconv.FormatInt(size, 10)
		for i, seed := range []string{key, "other"} {
			_, err := f.store.Put(f.ctx, key, Content(seed, size), store.PutOptions{IfAbsent: true})
			if first := i == 0; first && err != nil || !first && !errors.Is(err, store.ErrExists) {
				t.Errorf("put %s, time %d: %v", key, i+1, err)
			}
		}
		f.holds(t, key, key, size)
		if n := f.Leftovers(t); n != 0 {
			t.Errorf("%d unfinished puts are left", n)
		}
	}
}

func replace(t *testing.T, f fixture) {
	f.put(t, "again", 5000)
	if _, err := f.store.Put(f.ctx, "again", Content("new", 300), store.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	f.holds(t, "again", "new", 300)
	if listed := f.list(t, "again"); len(listed) != 1 || listed[0].Size != 300 {
		t.Errorf("listed: %+v, want it once with 300 bytes", listed)
	}
}

func race(t *testing.T, f fixture) {
	for size, n := range map[int64]int{1000: creators, f.Part + 1000: largeCreators} {
		key := "race/" + strconv.FormatInt(size, 10)
		results := make([]error, n)
		var all errgroup.Group
		for i := range n {
			s := f.Open(t)
			all.Go(func() error {
				_, results[i] = s.Put(f.ctx, key, Content(key+strconv.Itoa(i), size), store.PutOptions{IfAbsent: true})
				return nil
			})
		}
		if err := all.Wait(); err != nil {
			t.Fatal(err)
		}
		winner := -1
		for i, err := range results {
			switch {
			case err == nil && winner >= 0:
				t.Errorf("%s: %d and %d both succeeded", key, winner, i)
			case err == nil:
				winner = i
			case !errors.Is(err, store.ErrExists):
				t.Errorf("%s: creator %d: %v, want ErrExists", key, i, err)
			}
		}
		if winner < 0 {
			t.Fatalf("%s: no creator succeeded", key)
		}
		f.holds(t, key, key+strconv.Itoa(winner), size)
		if n := f.Leftovers(t); n != 0 {
			t.Errorf("%d unfinished puts are left", n)
		}
	}
}

func failingReader(t *testing.T, f fixture) {
	// An error that wraps io.EOF is not an end of file.
	for _, broken := range []error{fmt.Errorf("receive: %w", io.EOF), io.ErrUnexpectedEOF} {
		failingWith(t, f, broken, 0, 100, f.Part)
	}
	failingWith(t, f, errors.New("the snapshot broke off"), 0, 100, f.Part, 2*f.Part+5)
}

func failingWith(t *testing.T, f fixture, broken error, sizes ...int64) {
	t.Helper()
	for _, size := range sizes {
		key := "torn/" + strconv.FormatInt(size, 10)
		r := io.MultiReader(Content(key, size), failing{broken})
		if _, err := f.store.Put(f.ctx, key, r, store.PutOptions{IfAbsent: size%2 == 0}); !errors.Is(err, broken) {
			t.Errorf("put %s: %v, want the reader's error", key, err)
		}
		f.isGone(t, key)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// call runs f once, when it is read, and then ends.
type call struct{ f func() }

func (c call) Read([]byte) (int, error) {
	c.f()
	return 0, io.EOF
}

func cancelled(t *testing.T, f fixture) {
	for _, size := range []int64{100, f.Part + 5} {
		key := "cancelled/" + strconv.FormatInt(size, 10)
		ctx, cancel := context.WithCancelCause(f.ctx)
		r := io.MultiReader(Content(key, size), call{func() { cancel(errors.New("no leader any more")) }}, Content(key, size))
		if _, err := f.store.Put(ctx, key, r, store.PutOptions{}); err == nil {
			t.Errorf("put %s under a context that ended: no error", key)
		}
		f.isGone(t, key)
		if _, err := f.store.Put(ctx, key, Content(key, 1), store.PutOptions{}); err == nil {
			t.Errorf("put %s under an ended context: no error", key)
		}
		f.isGone(t, key)
	}
}

func invisible(t *testing.T, f fixture) {
	size := f.Part + 99
	key := "slow/object"
	other := f.Open(t)
	look := call{func() {
		for o, err := range other.List(f.ctx, "slow/") {
			t.Errorf("visible before it was complete: %+v, %v", o, err)
		}
		if _, err := other.Get(f.ctx, key, 0, -1); !errors.Is(err, store.ErrAbsent) {
			t.Errorf("get before it was complete: %v, want ErrAbsent", err)
		}
		if n, err := other.Sweep(f.ctx, "", time.Hour); n != 0 || err != nil {
			t.Errorf("swept %d running puts, %v", n, err)
		}
	}}
	if _, err := f.store.Put(f.ctx, key, io.MultiReader(Content(key, size), look), store.PutOptions{IfAbsent: true}); err != nil {
		t.Fatalf("put: %v", err)
	}
	f.holds(t, key, key, size)
}

func invalid(t *testing.T, f fixture) {
	for _, key := range []string{"", "/", "/a", "a/", "a//b", "..", "../a", "a/../b", "a/..", ".", "./a", ".hidden", "a/.hidden", "a b", "a\x00b",
		"ä", "a\\b", "a%2fb", "a?b", long(1000)} {
		for name, err := range map[string]error{
			"put":    second(f.store.Put(f.ctx, key, Content(key, 10), store.PutOptions{})),
			"get":    second(f.store.Get(f.ctx, key, 0, -1)),
			"delete": f.store.Delete(f.ctx, key),
		} {
			if !errors.Is(err, store.ErrInvalid) {
				t.Errorf("%s %q: %v, want ErrInvalid", name, key, err)
			}
		}
	}
	for _, prefix := range []string{"/", "..", "../", "a//", ".hidden"} {
		for o, err := range f.store.List(f.ctx, prefix) {
			if !errors.Is(err, store.ErrInvalid) {
				t.Errorf("list %q: %+v, %v, want ErrInvalid", prefix, o, err)
			}
		}
		if _, err := f.store.Sweep(f.ctx, prefix, 0); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("sweep %q: %v, want ErrInvalid", prefix, err)
		}
	}
}

func long(n int) string { return fmt.Sprintf("%0*d", n, 1) }

func second[T any](_ T, err error) error { return err }

// listed has keys that are easily sorted wrongly: in ASCII, '-' and '.' come before '/', capital letters before small
// ones, and '_' between.
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
		t.Errorf("a listing of %d objects reported no progress", len(listed))
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
	// A negative age also sweeps what began in this second.
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
