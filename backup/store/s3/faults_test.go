package s3

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/backup/store/storetest"
	"github.com/etcd-druid/druid/test/bucket"
)

// hasty gives up stalled connections early. It retries often enough for a busy machine, whose own stalls may break
// connections too.
func hasty() tuning {
	t := quick
	t.stall, t.attempts = 5*time.Second, 10
	return t
}

const (
	small = 1000
	large = minPart + 1000
)

func TestAPutSurvivesWhatABadNetworkDoes(t *testing.T) {
	t.Parallel()
	server := bucket.Start(t)
	in := server.Make(t, "bad-network", false)
	busy, lost, cut := bucket.Answer(http.StatusServiceUnavailable, "SlowDown"), bucket.LoseAnswer, bucket.CutRequest(minPart/2)
	for name, c := range map[string]struct {
		size  int64
		times int
		op    string
		fault bucket.Fault
		left  int // uploads that only Sweep can find
	}{
		"put: the store is busy":             {small, 3, "PutObject", busy, 0},
		"put: connections are reset":         {small, 3, "PutObject", bucket.Reset, 0},
		"put: the request is cut":            {small, 2, "PutObject", bucket.CutRequest(small / 2), 0},
		"put: the answer is lost":            {small, 2, "PutObject", lost, 0},
		"put: the store hangs":               {small, 1, "PutObject", bucket.Hang, 0},
		"multipart: the store is busy":       {large, 3, "UploadPart", busy, 0},
		"multipart: a part is cut":           {large, 2, "UploadPart", cut, 0},
		"multipart: a part's answer is lost": {large, 2, "UploadPart", lost, 0},
		"multipart: the store hangs":         {large, 1, "UploadPart", bucket.Hang, 0},
		"beginning: connections are reset":   {large, 3, "CreateMultipartUpload", bucket.Reset, 0},
		"beginning: the answer is lost":      {large, 1, "CreateMultipartUpload", lost, 1},
		"completing: the store is busy":      {large, 3, "CompleteMultipartUpload", busy, 0},
		"completing: connections are reset":  {large, 3, "CompleteMultipartUpload", bucket.Reset, 0},
		"completing: the answer is lost":     {large, 1, "CompleteMultipartUpload", lost, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy := server.Before(t)
			key := strings.NewReplacer(" ", "-", ":", "", "'", "").Replace(name)
			config := configOf(t, proxy.Endpoint, in)
			config.Prefix = key
			tune := quick
			if strings.HasSuffix(name, "hangs") {
				tune = hasty()
			}
			s := opened(t, config, tune)
			for _, options := range []store.PutOptions{{IfAbsent: true}, {}}[:1+small/c.size] {
				proxy.Break(bucket.First(c.times, c.op, c.fault))
				before := proxy.Seen(c.op)
				put, err := s.Put(t.Context(), key, storetest.Content(name, c.size), options)
				if err != nil || put.Size != c.size || put.Modified.IsZero() {
					t.Fatalf("put %+v: %+v, %v", options, put, err)
				}
				if n := proxy.Seen(c.op) - before; n <= c.times {
					t.Errorf("%s was asked for %d times, want more than the %d that failed", c.op, n, c.times)
				}
				proxy.Break(nil)
				same(t, s, key, name, c.size)
				if n, err := s.Sweep(t.Context(), "", -time.Hour); n != c.left || err != nil {
					t.Errorf("swept %d uploads, %v; want %d", n, err, c.left)
				}
			}
		})
	}
}

func same(t *testing.T, s *Store, key, seed string, size int64) {
	t.Helper()
	r, err := s.Get(t.Context(), key, 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := storetest.Same(r, storetest.Content(seed, size)); err != nil {
		t.Errorf("get %s: %v", key, err)
	}
}

func TestAPutThatFailsLeavesNothing(t *testing.T) {
	t.Parallel()
	server := bucket.Start(t)
	in := server.Make(t, "failed-puts", false)
	down, denied := bucket.Answer(http.StatusServiceUnavailable, "ServiceUnavailable"), bucket.Answer(http.StatusForbidden, "AccessDenied")
	for name, c := range map[string]struct {
		size  int64
		fault func(op string, r *http.Request) bucket.Fault
		is    error
		left  int
	}{
		"denied": {small, on("PutObject", denied), store.ErrForbidden, 0},
		"down":   {small, on("PutObject", down), nil, 0},
		"denied at the last part": {large, func(_ string, r *http.Request) bucket.Fault {
			return when(r.URL.Query().Get("partNumber") == "2", denied)
		}, store.ErrForbidden, 0},
		"down at the parts":  {large, on("UploadPart", down), nil, 0},
		"denied at the end":  {large, on("CompleteMultipartUpload", denied), store.ErrForbidden, 0},
		"down at the end":    {large, on("CompleteMultipartUpload", bucket.Reset), nil, 0},
		"down, and for good": {large, func(op string, _ *http.Request) bucket.Fault { return when(op != "CreateMultipartUpload", down) }, nil, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy := server.Before(t)
			key := strings.NewReplacer(" ", "-", ",", "").Replace(name)
			config := configOf(t, proxy.Endpoint, in)
			config.Prefix = key
			s := opened(t, config, quick)
			proxy.Break(c.fault)
			_, err := s.Put(t.Context(), key, storetest.Content(name, c.size), store.PutOptions{})
			if err == nil || c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("put: %v, want %v", err, c.is)
			}
			proxy.Break(nil)
			for o, err := range s.List(t.Context(), key) {
				t.Errorf("listed: %+v, %v", o, err)
			}
			if n, err := s.Sweep(t.Context(), "", -time.Hour); n != c.left || err != nil {
				t.Errorf("swept %d, %v; want %d", n, err, c.left)
			}
		})
	}
}

func on(operation string, f bucket.Fault) func(string, *http.Request) bucket.Fault {
	return func(op string, _ *http.Request) bucket.Fault { return when(op == operation, f) }
}

func when(yes bool, f bucket.Fault) bucket.Fault {
	if yes {
		return f
	}
	return nil
}

func TestAnUnknownOutcomeIsReportedAsUnknown(t *testing.T) {
	server := bucket.Start(t)
	proxy := server.Before(t)
	s := opened(t, configOf(t, proxy.Endpoint, server.Make(t, "unknown-outcome", false)), quick)
	proxy.Break(func(op string, _ *http.Request) bucket.Fault {
		if op == "PutObject" {
			return bucket.LoseAnswer
		}
		return bucket.Reset
	})
	_, err := s.Put(t.Context(), "a", storetest.Content("a", small), store.PutOptions{IfAbsent: true})
	if err == nil || errors.Is(err, store.ErrExists) || !strings.Contains(err.Error(), "unknown") {
		t.Errorf("put: %v, want an error that calls the outcome unknown", err)
	}
	proxy.Break(nil)
	same(t, s, "a", "a", small)
}

func second[T any](_ T, err error) error { return err }

func TestConformanceBehindABadNetwork(t *testing.T) {
	t.Parallel()
	server := bucket.Start(t)
	in := server.Make(t, "conformance-bad-network", false)
	proxy := server.Before(t)
	faults := []bucket.Fault{bucket.Answer(http.StatusServiceUnavailable, "SlowDown"), bucket.Reset, bucket.LoseAnswer, bucket.CutRequest(10)}
	const every = 5
	n := 0
	proxy.Break(func(op string, _ *http.Request) bucket.Fault {
		n++
		f := when(n%every == 0, faults[n/every%len(faults)])
		if op == "CreateMultipartUpload" {
			return nil // a lost answer leaves an upload that only Sweep finds: it has its own test
		}
		return f
	})
	config := configOf(t, proxy.Endpoint, in)
	patient := quick
	patient.attempts = 10
	storetest.Run(t, storetest.Subject{
		Part:      minPart,
		Open:      func(t *testing.T) store.Store { return opened(t, config, patient) },
		Leftovers: func(t *testing.T) int { return server.Uploads(t, in) },
		Abandon:   func(t *testing.T, key string) { abandon(t, server, in, key) },
	})
}
