package restore

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/etcd-druid/druid/backup/chain"
	"github.com/etcd-druid/druid/backup/snapshot"
	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/backup/store/s3"
	"github.com/etcd-druid/druid/test/bucket"
)

// A full that is read over several connections is the same one, whatever becomes of some of them; and what is damaged is found.
func TestAFullIsReadOverSeveralConnectionsThatBreak(t *testing.T) {
	t.Parallel()
	s := newSource(t, newest, 9)
	for i := range 12 {
		value := make([]byte, 1<<20)
		_, _ = rand.Read(value) // it never fails
		s.put(fmt.Sprint("large-", i), string(value))
	}
	f := s.named(s.full().Key)
	server := bucket.Start(t)
	proxy := server.Before(t)
	credentials := t.TempDir()
	for name, value := range map[string]string{"accessKeyID": bucket.AccessKey, "secretAccessKey": bucket.SecretKey} {
		write(t, filepath.Join(credentials, name), value)
	}
	far, err := s3.Open(t.Context(), store.S3{
		Bucket: server.Make(t, "restores", false), Region: bucket.Region, Endpoint: proxy.Endpoint, PathStyle: true, CredentialsDir: credentials,
	})
	if err != nil {
		t.Fatal(err)
	}
	keep := func(content []byte) {
		if _, err := far.Put(t.Context(), f.Key, bytes.NewReader(content), store.PutOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	content := s.content(f.Key)
	keep(content)
	run := func() (Result, string, error) {
		g := newTarget(t)
		cfg := g.config(s, chain.Plan{Full: f}, newest)
		cfg.Store = far
		got, err := Run(t.Context(), cfg)
		return got, g.dir, err
	}
	faults := []bucket.Fault{bucket.CutAnswer(1000), bucket.Answer(http.StatusServiceUnavailable, "SlowDown"), bucket.Reset}
	broken, ends, requests := len(faults), map[string]bool{}, 0
	proxy.Break(func(op string, r *http.Request) bucket.Fault {
		if op != "GetObject" {
			return nil
		}
		_, end, _ := strings.Cut(r.Header.Get("Range"), "-")
		ends[end] = true // what is left of a part has its end
		if requests++; len(faults) == 0 {
			return nil
		}
		f := faults[0]
		faults = faults[1:]
		return f
	})
	got, dir, err := run()
	if err != nil || got.Revision != s.revision() {
		t.Fatalf("restored %+v, %v", got, err)
	}
	proxy.Break(nil)
	if len(ends) < 1+4 || requests < len(ends)+broken || len(faults) > 0 {
		t.Errorf("%d requests for the trailer and the parts that end at %v, want one more for each of %d that broke", requests, ends, broken)
	}
	if info, err := os.Stat(filepath.Join(dir, "member", "snap", "db")); err != nil || info.Size() != got.Size {
		t.Errorf("the database has %v, %v", info, err)
	}
	keep(flip(content, len(content)/2))
	if _, _, err := run(); err == nil {
		t.Error("a full with a bit turned over was restored")
	} else if damaged, ok := errors.AsType[*snapshot.DamagedError](err); !ok || damaged.Object != f.Key {
		t.Errorf("a full with a bit turned over: %v", err)
	}
}
