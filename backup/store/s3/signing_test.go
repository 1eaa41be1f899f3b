package s3

import (
	"net/http"
	"strings"
	"testing"

	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/backup/store/storetest"
	"github.com/etcd-druid/druid/test/bucket"
)

// Google Cloud Storage changes Accept-Encoding before it verifies the signature. The proxy here does the same in front of a server
// that verifies signatures; it also refuses the first request of each operation, so that retries are signed too.
func TestRequestsOutliveAChangeOfAcceptEncoding(t *testing.T) {
	t.Parallel()
	server := bucket.Start(t)
	for _, checksum := range []store.Checksum{store.ChecksumWhenSupported, store.ChecksumWhenRequired} {
		proxy := server.Before(t)
		name := "accept-encoding-" + strings.ToLower(string(checksum))
		config := configOf(t, proxy.Endpoint, server.Make(t, name, false))
		config.Checksum = checksum
		s := opened(t, config, quick)
		seen := map[string]bool{}
		proxy.Break(func(op string, r *http.Request) bucket.Fault {
			if by := r.Header.Get("Authorization"); !strings.HasPrefix(by, "AWS4-HMAC-SHA256 ") || strings.Contains(by, "accept-encoding") {
				t.Errorf("%s is signed as %q, want a signature without accept-encoding", op, by)
			}
			if got := r.Header.Values("Accept-Encoding"); len(got) != 1 || got[0] != "identity" {
				t.Errorf("%s accepts the encodings %q, want identity, for a range is one of the object's own bytes", op, got)
			}
			r.Header.Set("Accept-Encoding", "identity,gzip(gfe)")
			if !seen[op] {
				seen[op] = true
				return bucket.Answer(http.StatusServiceUnavailable, "SlowDown")
			}
			return nil
		})
		for key, size := range map[string]int64{"small": small, "large": large} {
			if _, err := s.Put(t.Context(), key, storetest.Content(key, size), store.PutOptions{IfAbsent: true}); err != nil {
				t.Errorf("put %s: %v", key, err)
				continue
			}
			same(t, s, key, key, size)
		}
		for o, err := range s.List(t.Context(), "") {
			if err != nil {
				t.Errorf("list: %+v, %v", o, err)
			}
		}
		if err := s.Delete(t.Context(), "small"); err != nil {
			t.Errorf("delete: %v", err)
		}
	}
}
