package s3

import (
	"crypto/rand"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/backup/store/storetest"
	"github.com/etcd-druid/druid/test/bucket"
	"github.com/etcd-druid/druid/test/machine"
)

// numbered answers as AWS does: with an ID of the request and of the host, which differ in each answer.
func numbered(status int, body string) bucket.Fault {
	return func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
		_, _ = io.Copy(io.Discard, r.Body)
		id, host := rand.Text(), rand.Text()
		w.Header().Set("X-Amz-Request-Id", id)
		w.Header().Set("X-Amz-Id-2", host)
		w.WriteHeader(status)
		fmt.Fprint(w, strings.NewReplacer("ID", id, "HOST", host).Replace(body))
	}
}

// TestBriefOfTwoAttempts: two attempts to put an object fail equally. Their errors differ, and their brief texts do not.
func TestBriefOfTwoAttempts(t *testing.T) {
	server := bucket.Start(t)
	in := server.Make(t, "brief", false)
	const denied = "<Error><Code>AccessDenied</Code><Message>Access Denied</Message><RequestId>ID</RequestId><HostId>HOST</HostId></Error>"
	all := func(f bucket.Fault) func(string, *http.Request) bucket.Fault {
		return func(string, *http.Request) bucket.Fault { return f }
	}
	for name, c := range map[string]struct {
		fault func(string, *http.Request) bucket.Fault
		size  int64
		// identity says that a token service gives the credentials.
		identity bool
		says     []string
	}{
		"denied":         {all(numbered(http.StatusForbidden, denied)), small, false, []string{"the store responded 403 AccessDenied (Access Denied)", "allow s3:"}},
		"not the answer": {all(numbered(http.StatusBadGateway, "<html>ID")), small, false, []string{"the store responded 502", "XML syntax error"}},
		"no server":      {nil, small, false, []string{": Put http://127.0.0.1:", ": dial tcp: connect: connection refused"}},
		"denied at a part": {on("UploadPart", numbered(http.StatusForbidden, denied)), large, false,
			[]string{"the store responded 403 AccessDenied (Access Denied)"}},
		"no identity": {all(numbered(http.StatusForbidden,
			"<ErrorResponse><Error><Code>InvalidIdentityToken</Code><Message>expired</Message></Error><RequestId>ID</RequestId></ErrorResponse>")),
			small, true, []string{"their service responded 403 InvalidIdentityToken (expired)", "give the service account"}},
	} {
		t.Run(name, func(t *testing.T) {
			proxy := server.Before(t)
			endpoint := proxy.Endpoint
			if c.fault == nil {
				endpoint = "http://" + machine.Address(t)
			}
			config := configOf(t, endpoint, in)
			if c.identity {
				token := filepath.Join(t.TempDir(), "token")
				if err := os.WriteFile(token, []byte("token"), 0o600); err != nil {
					t.Fatal(err)
				}
				t.Setenv("AWS_ROLE_ARN", "arn:aws:iam::1:role/backups")
				t.Setenv("AWS_WEB_IDENTITY_TOKEN_FILE", token)
				t.Setenv("AWS_ENDPOINT_URL_STS", proxy.Endpoint)
				t.Setenv("AWS_MAX_ATTEMPTS", "1")
				config.CredentialsDir = ""
			}
			s := opened(t, config, quick)
			proxy.Break(c.fault)
			var whole, brief [2]string
			for i := range whole {
				err := second(s.Put(t.Context(), fmt.Sprintf("ns/full/%d", i), storetest.Content("a", c.size), store.PutOptions{}))
				if err == nil {
					t.Fatal("the put succeeded")
				}
				whole[i], brief[i] = err.Error(), store.Brief(err)
			}
			if whole[0] == whole[1] || brief[0] != brief[1] {
				t.Errorf("want different errors, and one brief text:\n%s\n%s\n%s\n%s", whole[0], whole[1], brief[0], brief[1])
			}
			for _, text := range append(c.says, "put ns/full/… in bucket "+in+" at "+endpoint+": ") {
				if !strings.Contains(brief[0], text) {
					t.Errorf("%s\nwant %q in it; the whole is\n%s", brief[0], text, whole[0])
				}
			}
		})
	}
}
