package storetest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"iter"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/etcd-druid/druid/backup/store"
)

// Subject is a store under test.
type Subject struct {
	// Open returns another instance of the same empty store, as another process would have it.
	Open func(t *testing.T) store.Store
	// Leftovers counts the remains of unfinished puts.
	Leftovers func(t *testing.T) int
	// Abandon leaves behind what remains if a process is killed during a Put into key.
	Abandon func(t *testing.T, key string)
	// Part is how many bytes the store sends at once. The suite tests sizes around it and its multiples.
	Part int64
}

// timeout of each case. A case takes seconds on an idle machine.
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

// fixture is the environment of a case.
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

// holds fails the test unless the object exists with the content of its seed.
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

// isGone fails the test if anything of key is visible or was left behind.
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

// block is the distance in bytes at which the content repeats the offset.
const block = 64 << 10

// Content streams size bytes that are determined by the seed: a repeated block of noise that begins with its number,
// so that no two positions look equal. It uses no memory, independent of the size.
func Content(seed string, size int64) io.Reader {
	h := fnv.New64a()
	_, _ = h.Write([]byte(seed))
	c := &content{mix: h.Sum64(), size: size}
	noise := rand.New(rand.NewPCG(c.mix, block))
	for i := 0; i < block; i += 8 {
		binary.LittleEndian.PutUint64(c.block[i:], noise.Uint64())
	}
	return c
}

type content struct {
	mix      uint64
	at, size int64
	block    [block]byte
}

func (c *content) Read(p []byte) (int, error) {
	if c.at >= c.size {
		return 0, io.EOF
	}
	p = p[:min(int64(len(p)), c.size-c.at)]
	for rest := p; len(rest) > 0; {
		binary.LittleEndian.PutUint64(c.block[:], c.mix^uint64(c.at/block))
		n := copy(rest, c.block[c.at%block:])
		rest = rest[n:]
		c.at += int64(n)
	}
	return len(p), nil
}

// Same compares two streams to their ends and reports the first difference. An error that only wraps io.EOF is not an
// end of file.
func Same(got, want io.Reader) error {
	a, b := make([]byte, block), make([]byte, block)
	for at := int64(0); ; {
		n, ended, err := read(got, a)
		if err != nil {
			return fmt.Errorf("read byte %d: %w", at+int64(n), err)
		}
		m, shouldEnd, err := read(want, b)
		if err != nil {
			return fmt.Errorf("the wanted content: %w", err)
		}
		if !bytes.Equal(a[:n], b[:m]) {
			i := 0
			for i < min(n, m) && a[i] == b[i] {
				i++
			}
			return fmt.Errorf("the content differs from byte %d on, got %d bytes more and want %d", at+int64(i), n-i, m-i)
		}
		if ended || shouldEnd {
			return nil
		}
		at += int64(n)
	}
}

// read fills p as far as possible. An error is that of the reader.
func read(r io.Reader, p []byte) (n int, ended bool, err error) {
	for n < len(p) {
		k, err := r.Read(p[n:])
		n += k
		if err == io.EOF {
			return n, n < len(p), nil // a full p may come with the end: it comes again
		}
		if err != nil {
			return n, false, err
		}
	}
	return n, false, nil
}

// Slow is a Store that delivers each object of a listing, and each object, only after a Pace. If Hangs is not 0, a
// listing delivers nothing after that many objects until its context ends, as a bucket behind a dead load balancer
// does.
type Slow struct {
	store.Store
	Pace  time.Duration
	Hangs int
}

// List is that of the Store, slowed down.
func (s Slow) List(ctx context.Context, prefix string) iter.Seq2[store.Object, error] {
	return func(yield func(store.Object, error) bool) {
		listed := 0
		for o, err := range s.Store.List(ctx, prefix) {
			if listed++; s.Hangs > 0 && listed > s.Hangs {
				<-ctx.Done()
			}
			if waited := wait(ctx, s.Pace); waited != nil {
				yield(store.Object{}, waited)
				return
			}
			store.Progressed(ctx)
			if !yield(o, err) {
				return
			}
		}
	}
}

// Get is that of the Store, slowed down.
func (s Slow) Get(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	if err := wait(ctx, s.Pace); err != nil {
		return nil, err
	}
	return s.Store.Get(ctx, key, offset, length)
}

func wait(ctx context.Context, d time.Duration) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
