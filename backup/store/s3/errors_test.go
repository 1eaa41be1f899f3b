package s3

import (
	"crypto/x509"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/backup/store/storetest"
	"github.com/etcd-druid/druid/test/bucket"
	"github.com/etcd-druid/druid/test/machine"
)

func TestEveryCauseCanBeFound(t *testing.T) {
	for i, c := range causes {
		a := answerError{status: c.status, message: c.text}
		for _, a.code = range append(slices.Clone(c.codes), "")[:max(len(c.codes), 1)] {
			if found := slices.IndexFunc(causes, func(c cause) bool { return c.covers(a) }); found != i {
				t.Errorf("%+v is covered by cause %d, want %d", a, found, i)
			}
		}
		archived := slices.Contains(c.codes, "InvalidObjectState")
		if denied := errors.Is(c.is, store.ErrForbidden) && !archived; denied != (c.kind == store.CauseUnauthorized) {
			t.Errorf("cause %d is %v and %q", i, c.is, c.kind)
		}
		if c.advice == "" && !errors.Is(c.is, store.ErrAbsent) {
			t.Errorf("cause %d does not say what to do", i)
		}
	}
}

// TestUntrustedEndpointIsReachable: an endpoint that is not trusted is not unreachable.
func TestUntrustedEndpointIsReachable(t *testing.T) {
	for _, c := range []struct {
		err  error
		want store.Cause
	}{
		{errors.New("connection refused"), store.CauseUnreachable},
		{x509.UnknownAuthorityError{}, ""},
		{x509.HostnameError{}, ""},
	} {
		if got := unanswered(answerError{err: &url.Error{Op: "Get", URL: "https://store", Err: c.err}}); got != c.want {
			t.Errorf("%T: got %q, want %q", c.err, got, c.want)
		}
	}
}

// calls makes each call of the interface once and returns their errors.
func calls(t *testing.T, s *Store) map[string]error {
	t.Helper()
	errs := map[string]error{
		"put":       second(s.Put(t.Context(), "a", storetest.Content("a", small), store.PutOptions{})),
		"multipart": second(s.Put(t.Context(), "b", storetest.Content("b", large), store.PutOptions{IfAbsent: true})),
		"delete":    s.Delete(t.Context(), "a"),
		"sweep":     second(s.Sweep(t.Context(), "", 0)),
		"list":      nil,
		"get":       nil,
	}
	if r, err := s.Get(t.Context(), "a", 0, -1); err != nil {
		errs["get"] = err
	} else {
		r.Close()
	}
	for _, err := range s.List(t.Context(), "") {
		errs["list"] = err
	}
	return errs
}

// TestErrorsNameFailureAndAdvice: errors name what failed and report what to do.
func TestErrorsNameFailureAndAdvice(t *testing.T) {
	t.Parallel()
	server := bucket.Start(t)
	in := server.Make(t, "sentences", false)
	server.User(t, "other", "other-secret")
	gone := "http://" + machine.Address(t)
	for name, c := range map[string]struct {
		change func(t *testing.T, c *store.S3)
		is     error
		kind   store.Cause
		says   []string
	}{
		"no bucket": {func(_ *testing.T, c *store.S3) { c.Bucket = "nowhere" }, store.ErrNoBucket, store.CauseNotFound,
			[]string{"bucket nowhere", "create the bucket"}},
		"unknown access key": {func(t *testing.T, c *store.S3) { writeCredentials(t, c.CredentialsDir, "no-one", "x") },
			store.ErrForbidden, store.CauseUnauthorized, []string{in, "does not know the access key"}},
		"wrong secret": {func(t *testing.T, c *store.S3) { writeCredentials(t, c.CredentialsDir, bucket.AccessKey, "wrong") },
			store.ErrForbidden, store.CauseUnauthorized, []string{in, "does not match the access key ID"}},
		"no right": {func(t *testing.T, c *store.S3) { writeCredentials(t, c.CredentialsDir, "other", "other-secret") },
			store.ErrForbidden, store.CauseUnauthorized, []string{in, "s3:PutObject|PutObject"}},
		"wrong region": {func(_ *testing.T, c *store.S3) { c.Region = "eu-nowhere-7" }, nil, "", []string{in, "another region", "s3.region"}},
		"no server":    {func(_ *testing.T, c *store.S3) { c.Endpoint = gone }, nil, store.CauseUnreachable, []string{in, gone, "refused"}},
		"no such host": {func(_ *testing.T, c *store.S3) { c.Endpoint = "http://store.invalid" }, nil, store.CauseUnreachable,
			[]string{in, "store.invalid", "no such host"}},
		"no secret": {func(t *testing.T, c *store.S3) { c.CredentialsDir = t.TempDir() }, nil, store.CauseUnauthorized,
			[]string{in, "accessKeyID", "mount the Secret"}},
		"empty secret": {func(t *testing.T, c *store.S3) { writeCredentials(t, c.CredentialsDir, "a", "") }, nil, store.CauseUnauthorized,
			[]string{in, "is empty", "correct it"}},
		"no such file": {func(_ *testing.T, c *store.S3) { c.CredentialsDir, c.CredentialsFile = "", "/nowhere/credentials" }, nil,
			store.CauseUnauthorized, []string{in, "/nowhere/credentials"}},
		"no lock there": {func(_ *testing.T, c *store.S3) { c.ObjectLock = &store.ObjectLock{Mode: store.LockGovernance, Days: 1} },
			store.ErrUnconfirmed, "", []string{in, "no object lock"}},
	} {
		t.Run(name, func(t *testing.T) {
			config := configOf(t, server.Endpoint, in)
			c.change(t, &config)
			s := opened(t, config, quick)
			for call, err := range calls(t, s) {
				if headOnly := name != "no bucket" && name != "no lock there" && (call == "delete" || call == "multipart"); headOnly {
					continue // a HEAD has no body that could report more than the status
				}
				if name == "no lock there" && call != "put" && call != "multipart" {
					continue
				}
				if err == nil || c.is != nil && !errors.Is(err, c.is) {
					t.Errorf("%s: %v, want %v", call, err, c.is)
					continue
				}
				if got := store.CauseOf(err); got != c.kind {
					t.Errorf("%s: %v has the cause %q, want %q", call, err, got, c.kind)
				}
				for _, text := range c.says {
					if !slices.ContainsFunc(strings.Split(text, "|"), func(s string) bool { return strings.Contains(err.Error(), s) }) {
						t.Errorf("%s: %v\nwant it to say %q", call, err, text)
					}
				}
				if c.is == nil && slices.ContainsFunc(sentinels, func(is error) bool { return errors.Is(err, is) }) {
					t.Errorf("%s: %v pretends to know the outcome", call, err)
				}
			}
		})
	}
}

var sentinels = []error{store.ErrAbsent, store.ErrExists, store.ErrForbidden, store.ErrNoBucket, store.ErrLocked, store.ErrUnconfirmed,
	store.ErrDamaged, store.ErrChanged}

// TestAnswersTheServerCannotGive: answers that the server cannot be made to give.
func TestAnswersTheServerCannotGive(t *testing.T) {
	server := bucket.Start(t)
	proxy := server.Before(t)
	s := opened(t, configOf(t, proxy.Endpoint, server.Make(t, "reported-answers", false)), quick)
	for code, c := range map[string]struct {
		status int
		is     error
		kind   store.Cause
		says   string
	}{
		"ExpiredToken":         {http.StatusForbidden, store.ErrForbidden, store.CauseUnauthorized, "update the Secret"},
		"RequestTimeTooSkewed": {http.StatusForbidden, store.ErrForbidden, store.CauseUnauthorized, "clocks"},
		"PermanentRedirect":    {http.StatusMovedPermanently, nil, "", "s3.region"},
		"BadDigest":            {http.StatusBadRequest, nil, "", "bytes changed"},
		"NotImplemented":       {http.StatusNotImplemented, nil, "", "WhenRequired"},
		"SlowDown":             {http.StatusServiceUnavailable, nil, store.CauseThrottled, "busy"},
		"ServiceUnavailable":   {http.StatusServiceUnavailable, nil, store.CauseUnreachable, "busy or down"},
		"QuotaExceeded":        {http.StatusForbidden, nil, store.CauseFull, "increase its quota"},
	} {
		proxy.Break(func(string, *http.Request) bucket.Fault { return bucket.Answer(c.status, code) })
		err := second(s.Put(t.Context(), "a", storetest.Content("a", small), store.PutOptions{}))
		if err == nil || c.is != nil && !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), code) {
			t.Errorf("%s: %v, want %v and %q", code, err, c.is, c.says)
		}
		if got := store.CauseOf(err); got != c.kind {
			t.Errorf("%s: %v has the cause %q, want %q", code, err, got, c.kind)
		}
	}
}

func TestALockedObjectStays(t *testing.T) {
	server := bucket.Start(t)
	in := server.Make(t, "locked", true)
	config := configOf(t, server.Endpoint, in)
	unlocked := opened(t, config, quick)
	client := server.Client()
	for mode, checksum := range map[store.LockMode]store.Checksum{
		store.LockGovernance: store.ChecksumWhenSupported, store.LockCompliance: store.ChecksumWhenRequired,
	} {
		config.ObjectLock, config.Checksum = &store.ObjectLock{Mode: mode, Days: 1}, checksum
		s := opened(t, config, quick)
		for key, size := range map[string]int64{"small/" + string(mode): small, "large/" + string(mode): large} {
			if _, err := s.Put(t.Context(), key, storetest.Content(key, size), store.PutOptions{IfAbsent: true}); err != nil {
				t.Fatal(err)
			}
			for name, s := range map[string]*Store{"with": s, "without": unlocked} {
				if err := s.Delete(t.Context(), key); !errors.Is(err, store.ErrLocked) || !strings.Contains(err.Error(), "until") {
					t.Errorf("delete %s %s a lock in the configuration: %v, want ErrLocked", key, name, err)
				}
			}
			same(t, s, key, key, size)
			head, err := client.HeadObject(t.Context(), &s3.HeadObjectInput{Bucket: aws.String(in), Key: aws.String(key)})
			if err != nil {
				t.Fatal(err)
			}
			_, err = client.DeleteObject(t.Context(), &s3.DeleteObjectInput{Bucket: aws.String(in), Key: aws.String(key), VersionId: head.VersionId})
			if err == nil {
				t.Errorf("the store itself deletes the locked version of %s", key)
			}
		}
	}
	if _, err := unlocked.Put(t.Context(), "held", storetest.Content("held", small), store.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	_, err := client.PutObjectLegalHold(t.Context(), &s3.PutObjectLegalHoldInput{
		Bucket: aws.String(in), Key: aws.String("held"), LegalHold: &types.ObjectLockLegalHold{Status: types.ObjectLockLegalHoldStatusOn},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := unlocked.Delete(t.Context(), "held"); !errors.Is(err, store.ErrLocked) {
		t.Errorf("delete under a legal hold: %v, want ErrLocked", err)
	}
}
