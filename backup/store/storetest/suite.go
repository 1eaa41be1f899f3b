package storetest

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/etcd-druid/druid/backup/store"
)

// Subject is a store under test.
type Subject struct {
	// Open returns another view of the one empty store, as another process would have it.
	Open func(t *testing.T) store.Store
	// Leftovers counts what unfinished puts left behind.
	Leftovers func(t *testing.T) int
	// Abandon leaves behind what a Put into key does whose process is killed.
	Abandon func(t *testing.T, key string)
	// Part is how many bytes the store sends at once; sizes around it and its multiples are tried.
	Part int64
}

// timeout of each case; they take seconds on an idle machine.
const timeout = 5 * time.Minute

// Run runs the suite.
func Run(t *testing.T, subject Subject) {
	t.Helper()
	for _, c := range []struct {
		name string
		run  func(t *testing.T, s fixture)
	}{
		{"what was put is read back, whatever its size", putAndGet},
		{"ranges are exact and end with the object", ranges},
		{"what is not there is absent, and deleting it is no error", absent},
		{"IfAbsent refuses and changes nothing", ifAbsent},
		{"without IfAbsent an object is replaced", replace},
		{"of many creators exactly one wins", race},
		{"a reader that fails leaves nothing", failingReader},
		{"a context that ends leaves nothing", cancelled},
		{"an object is not visible before it is whole", invisible},
		{"a listing is in order and ends at its prefix", list},
		{"a listing can be left early", leave},
		{"what is no key is refused", invalid},
		{"what a killed process left is swept, and nothing else", sweep},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			defer cancel()
			c.run(t, fixture{Subject: subject, ctx: ctx, store: subject.Open(t)})
		})
	}
}

// fixture is what a case works with.
type fixture struct {
	Subject
	ctx   context.Context // of one test
	store store.Store
}

func (f fixture) put(t *testing.T, key string, size int64) store.Object {
	t.Helper()
	o, err := f.store.Put(f.ctx, key, Content(key, size), store.PutOptions{})
	if err != nil {
		t.Fatalf("put %s: %v", key, err)
	}
	return o
}

func (f fixture) list(t *testing.T, prefix string) []store.Object {
	t.Helper()
	var all []store.Object
	for o, err := range f.store.List(f.ctx, prefix) {
		if err != nil {
			t.Fatalf("list %s: %v", prefix, err)
		}
		all = append(all, o)
	}
	return all
}

// holds fails the test unless the object is there with the content of its seed.
func (f fixture) holds(t *testing.T, key, seed string, size int64) {
	t.Helper()
	r, err := f.store.Get(f.ctx, key, 0, -1)
	if err != nil {
		t.Fatalf("get %s: %v", key, err)
	}
	defer r.Close()
	if err := Same(r, Content(seed, size)); err != nil {
		t.Errorf("get %s: %v", key, err)
	}
}

// isGone fails the test if anything of key is visible, or was left behind.
func (f fixture) isGone(t *testing.T, key string) {
	t.Helper()
	if listed := f.list(t, key); len(listed) > 0 {
		t.Errorf("%s is listed: %+v", key, listed)
	}
	if r, err := f.store.Get(f.ctx, key, 0, -1); !errors.Is(err, store.ErrAbsent) {
		t.Errorf("get %s: %v, want ErrAbsent", key, err)
		if err == nil {
			r.Close()
		}
	}
	if n := f.Leftovers(t); n != 0 {
		t.Errorf("%d unfinished puts are left", n)
	}
}

func readAll(r io.ReadCloser) ([]byte, error) {
	b, err := io.ReadAll(r)
	return b, errors.Join(err, r.Close())
}
