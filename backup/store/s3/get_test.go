package s3

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/backup/store/storetest"
	"github.com/etcd-druid/druid/test/bucket"
)

func TestADownloadIsTakenUpWhereItBroke(t *testing.T) {
	t.Parallel()
	server := bucket.Start(t)
	proxy := server.Before(t)
	s := opened(t, configOf(t, proxy.Endpoint, server.Make(t, "broken-downloads", false)), hasty())
	for key, size := range map[string]int64{"small": small, "large": large} {
		if _, err := s.Put(t.Context(), key, storetest.Content(key, size), store.PutOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	always := 1 << 30
	for name, c := range map[string]struct {
		key           string
		offset, count int64
		times         int
		fault         bucket.Fault
	}{
		"cut every two megabytes":   {"large", 0, large, always, bucket.CutAnswer(2 << 20)},
		"cut once, in the middle":   {"large", 0, large, 1, bucket.CutAnswer(large / 2)},
		"cut before the first byte": {"large", 0, large, 3, bucket.CutAnswer(0)},
		"cut before the last byte":  {"large", 0, large, 1, bucket.CutAnswer(large - 1)},
		"reset at first":            {"small", 0, small, 3, bucket.Reset},
		"busy at first":             {"small", 0, small, 3, bucket.Answer(http.StatusServiceUnavailable, "SlowDown")},
		"hung at first":             {"small", 0, small, 1, bucket.Hang},
		"hung in the middle":        {"large", 0, large, 1, bucket.HangAnswer(large / 2)},
		"a range, cut":              {"large", minPart - 2<<20, 2<<20 + 500, always, bucket.CutAnswer(1 << 19)},
		"slow":                      {"small", 0, small, always, bucket.Slow(100, 10*time.Millisecond)},
	} {
		t.Run(name, func(t *testing.T) {
			proxy.Break(bucket.First(c.times, "GetObject", c.fault))
			defer proxy.Break(nil)
			r, err := s.Get(t.Context(), c.key, c.offset, c.count)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			want := storetest.Content(c.key, c.offset+c.count)
			if _, err := io.CopyN(io.Discard, want, c.offset); err != nil {
				t.Fatal(err)
			}
			if err := storetest.Same(r, want); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestADownloadGivesUpInTheEnd(t *testing.T) {
	server := bucket.Start(t)
	proxy := server.Before(t)
	s := opened(t, configOf(t, proxy.Endpoint, server.Make(t, "given-up", false)), quick)
	if _, err := s.Put(t.Context(), "a", storetest.Content("a", small), store.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	served := 0
	proxy.Break(func(string, *http.Request) bucket.Fault {
		if served++; served == 1 {
			return bucket.CutAnswer(small / 2)
		}
		return bucket.CutAnswer(0)
	})
	r, err := s.Get(t.Context(), "a", 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	got, err := io.ReadAll(r)
	if err == nil || len(got) != small/2 || !strings.Contains(err.Error(), "byte 500") || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("read %d bytes, %v; want half and an error that says where it broke", len(got), err)
	}
}

// TestReplacedObjectNotReadMixed: an object that is replaced is not read half and half.
func TestReplacedObjectNotReadMixed(t *testing.T) {
	server := bucket.Start(t)
	proxy := server.Before(t)
	s := opened(t, configOf(t, proxy.Endpoint, server.Make(t, "replaced", false)), quick)
	for name, replace := range map[string]func() error{
		"replaced": func() error {
			return second(s.Put(t.Context(), "a", storetest.Content("new", small), store.PutOptions{}))
		},
		"deleted": func() error { return s.Delete(t.Context(), "a") },
	} {
		if _, err := s.Put(t.Context(), "a", storetest.Content("a", small), store.PutOptions{}); err != nil {
			t.Fatal(err)
		}
		proxy.Break(bucket.First(1, "GetObject", bucket.CutAnswer(10)))
		r, err := s.Get(t.Context(), "a", 0, -1)
		if err != nil {
			t.Fatal(err)
		}
		if err := replace(); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(r); !errors.Is(err, store.ErrChanged) || len(got) > 10 {
			t.Errorf("%s: read %d bytes, %v; want ErrChanged", name, len(got), err)
		}
		r.Close()
	}
}

func TestFlippedBitsAreFound(t *testing.T) {
	t.Parallel()
	server := bucket.Start(t)
	proxy := server.Before(t)
	s := opened(t, configOf(t, proxy.Endpoint, server.Make(t, "flipped", false)), quick)
	for key, size := range map[string]int64{"small": small, "large": large, "one-part": minPart} {
		if _, err := s.Put(t.Context(), key, storetest.Content(key, size), store.PutOptions{}); err != nil {
			t.Fatal(err)
		}
		for _, at := range []int64{0, size / 2, size - 1} {
			proxy.Break(on("GetObject", bucket.Edit(func(body []byte) { body[at] ^= 1 })))
			r, err := s.Get(t.Context(), key, 0, -1)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.Copy(io.Discard, r); !errors.Is(err, store.ErrDamaged) || !strings.Contains(err.Error(), key) {
				t.Errorf("%s, byte %d: %v, want ErrDamaged", key, at, err)
			}
			r.Close()
		}
		// The checksum continues over a connection that broke.
		proxy.Break(bucket.First(1, "GetObject", bucket.CutAnswer(int(size/3))))
		same(t, s, key, key, size)
		proxy.Break(nil)
	}
}

func TestAListingIsWholeOrAnError(t *testing.T) {
	server := bucket.Start(t)
	proxy := server.Before(t)
	s := opened(t, configOf(t, proxy.Endpoint, server.Make(t, "listings", false)), quick)
	const objects = 12 // three pages
	for i := range objects {
		if _, err := s.Put(t.Context(), "l/"+string(rune('a'+i)), bytes.NewReader(nil), store.PutOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		fault bucket.Fault
		fails bool
	}{
		"busy for a while": {bucket.Answer(http.StatusServiceUnavailable, "SlowDown"), false},
		"reset":            {bucket.Reset, false},
		"answer lost":      {bucket.LoseAnswer, false},
		"denied":           {bucket.Answer(http.StatusForbidden, "AccessDenied"), true},
		"cut":              {bucket.CutAnswer(300), true},
	} {
		proxy.Break(nil)
		page := 0
		proxy.Break(func(string, *http.Request) bucket.Fault { page++; return when(page == 2, c.fault) })
		n, failed := 0, error(nil)
		for _, err := range s.List(t.Context(), "l/") {
			if err != nil {
				failed = err
				break
			}
			n++
		}
		if failed == nil && n != objects || failed != nil && (!c.fails || n != int(quick.page)) {
			t.Errorf("%s: %d objects, %v; want all, or an error after the first page", name, n, failed)
		}
		if c.fails && failed == nil && name == "denied" {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestListingWithoutMarkerIsError: a listing that reports more objects without a marker is an error.
// The paginators of the SDK take such a page for the end, or follow it permanently.
func TestListingWithoutMarkerIsError(t *testing.T) {
	server := bucket.Start(t)
	proxy := server.Before(t)
	in := server.Make(t, "tokens", false)
	s := opened(t, configOf(t, proxy.Endpoint, in), quick)
	for i := range 3 * quick.page {
		name := "l/" + string(rune('a'+i))
		if _, err := s.Put(t.Context(), name, bytes.NewReader(nil), store.PutOptions{}); err != nil {
			t.Fatal(err)
		}
		abandon(t, server, in, name)
	}
	list := func(ctx context.Context) error {
		for _, err := range s.List(ctx, "l/") {
			if err != nil {
				return err
			}
		}
		return nil
	}
	sweep := func(ctx context.Context) error { return second(s.Sweep(ctx, "", time.Hour)) }
	hide := func(token string, from int) func([]byte) {
		page := 0
		return func(body []byte) {
			if page++; page < from {
				return
			}
			for i := bytes.Index(body, []byte(token)); i >= 0; i = bytes.Index(body, []byte(token)) {
				body[i] = 'X' // an unknown byte
			}
		}
	}
	repeat := func(token string) func([]byte) {
		var first []byte
		return func(body []byte) {
			if i := bytes.Index(body, []byte(token)); i >= 0 {
				found, _, _ := bytes.Cut(body[i:], []byte("</"))
				if first == nil {
					first = bytes.Clone(found)
				}
				copy(found, first)
			}
		}
	}
	for name, c := range map[string]struct {
		operation string
		edit      func(body []byte)
		call      func(ctx context.Context) error
	}{
		"objects without a token later":          {"ListObjectsV2", hide("NextContinuationToken>", 2), list},
		"objects without a token":                {"ListObjectsV2", hide("NextContinuationToken>", 1), list},
		"objects with one token again and again": {"ListObjectsV2", repeat("NextContinuationToken>"), list},
		"uploads without a marker":               {"ListMultipartUploads", hide("NextKeyMarker>", 1), sweep}, // this server gives no second page of them
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			proxy.Break(on(c.operation, bucket.Edit(c.edit)))
			if err := c.call(ctx); err == nil || !strings.Contains(err.Error(), "reports more objects, but no next page") {
				t.Errorf("%v, want an error that says so", err)
			}
		})
	}
}

func TestAListingOutOfOrderIsNotBelieved(t *testing.T) {
	server := bucket.Start(t)
	proxy := server.Before(t)
	s := opened(t, configOf(t, proxy.Endpoint, server.Make(t, "order", false)), quick)
	for _, key := range []string{"l/a", "l/c", "l/d"} {
		if _, err := s.Put(t.Context(), key, bytes.NewReader(nil), store.PutOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, other := range []string{"l/b", "l/c"} {
		proxy.Break(on("ListObjectsV2", bucket.Edit(func(body []byte) {
			copy(body[bytes.Index(body, []byte("l/d")):], other)
		})))
		var keys []string
		var failed error
		for o, err := range s.List(t.Context(), "l/") {
			keys, failed = append(keys, o.Key), err
		}
		if failed == nil || !strings.Contains(failed.Error(), "order") {
			t.Errorf("listed %v, %v; want an error that speaks of the order", keys, failed)
		}
	}
}
