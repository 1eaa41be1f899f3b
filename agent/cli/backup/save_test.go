package backup

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/test/bucket"
	"github.com/etcd-druid/druid/test/member"
)

// saves runs `backup save` or `backup drop` as the Pod of an EtcdSnapshot does, and returns the result that druid reads.
func saves(t *testing.T, verb string, c store.Config, args ...string) (leases.SnapshotAnswer, int) {
	t.Helper()
	raw, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	result := filepath.Join(t.TempDir(), "termination-log")
	args = append([]string{
		verb, "--store=" + string(raw), "--prefix=" + demo, "--request=uid", "--result=" + result, "--wait-for-secrets=1s",
	}, args...)
	if verb == "save" {
		args = append(args, "--lineage="+string(first))
	}
	_, code, failure := run(t, args...)
	written, err := os.ReadFile(result)
	if err != nil {
		t.Fatalf("exit code %d, %s, and no result: %v", code, failure, err)
	}
	a, ok := leases.ParseResult(string(written), "uid")
	if !ok {
		t.Fatalf("the result cannot be read: %s", written)
	}
	return a, code
}

func TestSaveReportsItsResult(t *testing.T) {
	m := member.Start(t, "3.6", member.Options{})
	for i := range 50 {
		if _, err := m.Client.Put(t.Context(), fmt.Sprintf("key-%d", i), "v"); err != nil {
			t.Fatal(err)
		}
	}
	server := bucket.Start(t)
	there := func(change func(*store.S3)) store.Config {
		s3 := &store.S3{
			Bucket: "save", Prefix: "a", Region: bucket.Region, Endpoint: server.Endpoint, PathStyle: true,
			CredentialsDir: credentials(t, bucket.AccessKey, bucket.SecretKey),
		}
		if change != nil {
			change(s3)
		}
		return store.Config{S3: s3}
	}
	server.Make(t, "save", false)
	server.User(t, "other", "other-secret")
	at := "--endpoint=" + m.Client.Endpoints()[0]

	a, code := saves(t, "save", there(nil), at)
	if code != 0 || a.Phase != leases.SnapshotSucceeded || !strings.HasPrefix(a.URI, "s3://save/a/"+demo+"/"+string(first)+"/full/") ||
		a.Revision < 51 || a.SHA256 == "" {
		t.Fatalf("exit code %d, %+v", code, a)
	}
	list := []string{"--store", "s3://save/a?pathStyle=true&region=" + bucket.Region + "&endpoint=" + server.Endpoint, "--credentials",
		there(nil).S3.CredentialsDir, "--prefix", demo}
	contains(t, ok(t, append([]string{"check"}, list...)...), "1 object: 1 intact")
	if a, code := saves(t, "drop", there(nil), "--key="+a.Object); code != 0 || a.Phase != leases.SnapshotSucceeded {
		t.Errorf("exit code %d, %+v", code, a)
	}

	missing := t.TempDir()
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, demo[:2]), nil, 0o600); err != nil { // a file where a directory is to be
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		store store.Config
		args  []string
		says  []string
	}{
		"a Secret that is missing": {there(func(s *store.S3) { s.CredentialsDir = missing }), []string{"--secret=" + missing + "=s3-credentials"},
			[]string{"Secret s3-credentials does not exist"}},
		"a Secret with other entries": {there(func(s *store.S3) {
			s.CredentialsDir = missing + "-other"
			if err := os.MkdirAll(s.CredentialsDir, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(s.CredentialsDir, "password"), []byte("planted"), 0o600); err != nil {
				t.Fatal(err)
			}
		}), []string{"--secret=" + missing + "-other=s3-credentials"}, []string{"Secret s3-credentials", "accessKeyID"}},
		"a wrong key": {there(func(s *store.S3) { s.CredentialsDir = credentials(t, bucket.AccessKey, "x") }), nil,
			[]string{"the secret access key does not match"}},
		"a user without rights":    {there(func(s *store.S3) { s.CredentialsDir = credentials(t, "other", "other-secret") }), nil, []string{"access denied", "save"}},
		"no bucket":                {there(func(s *store.S3) { s.Bucket = "nowhere" }), nil, []string{"nowhere", "create the bucket"}},
		"a volume without a place": {store.Config{Directory: &store.Directory{Path: full}}, nil, []string{full}},
		"no volume":                {store.Config{Directory: &store.Directory{Path: "/no/such"}}, nil, []string{"/no/such"}},
		"certificates are missing": {there(nil), []string{"--tls-dir=" + missing}, []string{"ca.crt does not exist"}},
		"no etcd":                  {there(nil), []string{"--endpoint=http://127.0.0.1:1", "--timeout=3s"}, []string{"not done within 3s", "127.0.0.1:1"}},
		"another cluster":          {there(func(s *store.S3) { s.Prefix = "b" }), []string{"--cluster-id=abc"}, []string{"nothing was saved"}},
	} {
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			a, code := saves(t, "save", c.store, append([]string{at}, c.args...)...)
			if code != 1 || a.Phase != leases.SnapshotFailed || a.Object != "" {
				t.Errorf("exit code %d, %+v", code, a)
			}
			contains(t, a.Error, c.says...)
			if strings.Contains(a.Error, "planted") {
				t.Error("it reports the content of a Secret")
			}
			t.Logf("after %s: %s", time.Since(began).Round(time.Millisecond), a.Error)
		})
	}
}
