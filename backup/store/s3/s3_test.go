package s3

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/backup/store/storetest"
	"github.com/etcd-druid/druid/test/bucket"
)

func TestMain(m *testing.M) { os.Exit(bucket.Main(m)) }

// minPart is the smallest that S3 takes, but for the last.
const minPart = 5 << 20

// quick has small pages and short waits. Its stall is still long for a busy machine: where a test waits for it, it is
// made shorter.
var quick = tuning{attempts: 6, backoff: 20 * time.Millisecond, stall: time.Minute, landing: time.Minute, release: time.Minute, part: minPart, page: 5, connections: 4}

func TestConformance(t *testing.T) {
	t.Parallel()
	server := bucket.Start(t)
	for name, c := range map[string]struct {
		versioned bool
		change    func(*store.S3)
	}{
		"plain":                            {change: func(c *store.S3) { c.Prefix = "some/prefix" }},
		"versioned, checksums as required": {versioned: true, change: func(c *store.S3) { c.Checksum = store.ChecksumWhenRequired }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := server.Make(t, "conformance-"+strings.Fields(strings.ReplaceAll(name, ",", ""))[0], c.versioned)
			config := configOf(t, server.Endpoint, in)
			c.change(&config)
			storetest.Run(t, storetest.Subject{
				Part:      minPart,
				Open:      func(t *testing.T) store.Store { return opened(t, config, quick) },
				Leftovers: func(t *testing.T) int { return server.Uploads(t, in) },
				Abandon:   func(t *testing.T, key string) { abandon(t, server, in, *opened(t, config, quick).name(key)) },
			})
		})
	}
}

func abandon(t *testing.T, server *bucket.Server, in, name string) {
	t.Helper()
	upload := &s3.CreateMultipartUploadInput{Bucket: aws.String(in), Key: aws.String(name)}
	if _, err := server.Client().CreateMultipartUpload(t.Context(), upload); err != nil {
		t.Fatal(err)
	}
}

// configOf is a bucket behind an endpoint, with the administrator's credentials in a directory.
func configOf(t testing.TB, endpoint, in string) store.S3 {
	t.Helper()
	dir := t.TempDir()
	writeCredentials(t, dir, bucket.AccessKey, bucket.SecretKey)
	return store.S3{Bucket: in, Region: bucket.Region, Endpoint: endpoint, PathStyle: true, CredentialsDir: dir}
}

func writeCredentials(t testing.TB, dir, access, secret string) {
	t.Helper()
	err := errors.Join(os.WriteFile(filepath.Join(dir, "accessKeyID"), []byte(access), 0o600),
		os.WriteFile(filepath.Join(dir, "secretAccessKey"), []byte(secret+"\n"), 0o600))
	if err != nil {
		t.Fatal(err)
	}
}

func opened(t *testing.T, c store.S3, tune tuning) *Store {
	t.Helper()
	s, err := open(t.Context(), c, tune)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
