package s3

import (
	"crypto/md5"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/backup/store/storetest"
	"github.com/etcd-druid/druid/test/bucket"
)

func TestCredentialsAreRotatedWithoutARestart(t *testing.T) {
	server := bucket.Start(t)
	in := server.Make(t, "rotated", false)
	for name, c := range map[string]struct {
		place func(t *testing.T, c *store.S3) (write func(access, secret string))
	}{
		"files of a Secret": {func(t *testing.T, c *store.S3) func(string, string) {
			t.Helper()
			return func(access, secret string) { writeCredentials(t, c.CredentialsDir, access, secret) }
		}},
		"a Secret as the kubelet mounts it": {func(t *testing.T, c *store.S3) func(string, string) {
			t.Helper()
			c.CredentialsDir = t.TempDir()
			n := 0
			return func(access, secret string) {
				n++
				data, link := fmt.Sprintf("..%d", n), filepath.Join(c.CredentialsDir, "..new")
				err := errors.Join(os.Mkdir(filepath.Join(c.CredentialsDir, data), 0o700),
					os.WriteFile(filepath.Join(c.CredentialsDir, data, "AWS_ACCESS_KEY_ID"), []byte(access), 0o600),
					os.WriteFile(filepath.Join(c.CredentialsDir, data, "AWS_SECRET_ACCESS_KEY"), []byte(secret), 0o600),
					os.Symlink(data, link), os.Rename(link, filepath.Join(c.CredentialsDir, "..data")))
				if err != nil {
					t.Fatal(err)
				}
			}
		}},
		"a file": {func(t *testing.T, c *store.S3) func(string, string) {
			t.Helper()
			c.CredentialsFile, c.CredentialsDir = filepath.Join(c.CredentialsDir, "credentials"), ""
			return func(access, secret string) {
				content := "[default]\naws_access_key_id = " + access + "\naws_secret_access_key = " + secret + "\n"
				if err := os.WriteFile(c.CredentialsFile, []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			config := configOf(t, server.Endpoint, in)
			write := c.place(t, &config)
			s := opened(t, config, quick)
			for i, key := range [][2]string{
				{"revoked", bucket.SecretKey}, {bucket.AccessKey, bucket.SecretKey}, {"revoked", bucket.SecretKey},
				{bucket.AccessKey, "wrong"}, {bucket.AccessKey, bucket.SecretKey}, {bucket.AccessKey, "wrong"},
			} {
				write(key[0], key[1])
				err := second(s.Put(t.Context(), "a", storetest.Content("a", small), store.PutOptions{}))
				if works := key == [2]string{bucket.AccessKey, bucket.SecretKey}; works != (err == nil) || err != nil && !errors.Is(err, store.ErrForbidden) {
					t.Errorf("time %d, as %v: %v", i+1, key, err)
				}
			}
		})
	}
}

// TestAmbientIdentityByDefault: an ambient identity is used where none is named.
func TestAmbientIdentityByDefault(t *testing.T) {
	server := bucket.Start(t)
	config := configOf(t, server.Endpoint, server.Make(t, "ambient", false))
	config.CredentialsDir = ""
	t.Setenv("AWS_ACCESS_KEY_ID", bucket.AccessKey)
	t.Setenv("AWS_SECRET_ACCESS_KEY", bucket.SecretKey)
	s := opened(t, config, quick)
	if _, err := s.Put(t.Context(), "a", storetest.Content("a", small), store.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	same(t, s, "a", "a", small)
}

// TestTokenRefusalHidesBucket: a token service that refuses reports nothing of the bucket.
func TestTokenRefusalHidesBucket(t *testing.T) {
	server := bucket.Start(t)
	tokens := server.Before(t)
	tokens.Break(func(string, *http.Request) bucket.Fault { return bucket.Answer(http.StatusForbidden, "AccessDenied") })
	config := configOf(t, server.Endpoint, server.Make(t, "identity", false))
	config.CredentialsDir = ""
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("token"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("AWS_ROLE_ARN", "arn:aws:iam::1:role/backups")
	t.Setenv("AWS_WEB_IDENTITY_TOKEN_FILE", token)
	t.Setenv("AWS_ENDPOINT_URL_STS", tokens.Endpoint)
	_, err := opened(t, config, quick).Put(t.Context(), "a", storetest.Content("a", small), store.PutOptions{})
	if err == nil || errors.Is(err, store.ErrForbidden) || !strings.Contains(err.Error(), "service account") {
		t.Errorf("put: %v, want it to speak of the identity and not of the bucket", err)
	}
}

func TestTheBundleIsTrustedAndReadAgain(t *testing.T) {
	server := bucket.Start(t)
	proxy, certificate := server.BeforeTLS(t)
	config := configOf(t, proxy.Endpoint, server.Make(t, "bundle", false))
	put := func(s *Store) error {
		return second(s.Put(t.Context(), "a", storetest.Content("a", large), store.PutOptions{}))
	}
	if err := put(opened(t, config, quick)); err == nil || !strings.Contains(err.Error(), "s3.caBundle") {
		t.Errorf("put without the bundle: %v, want it to say s3.caBundle", err)
	}
	config.CABundle = filepath.Join(t.TempDir(), "ca.crt")
	if _, err := open(t.Context(), config, quick); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("open without the file: %v, want ErrInvalid", err)
	}
	write := func(content []byte) {
		t.Helper()
		if err := os.WriteFile(config.CABundle, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write([]byte("no certificate"))
	if _, err := open(t.Context(), config, quick); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("open with a file without certificates: %v, want ErrInvalid", err)
	}
	_, other := server.BeforeTLS(t)
	write(other)
	s := opened(t, config, quick)
	write(certificate)
	if err := put(s); err != nil {
		t.Errorf("put after the bundle was rotated: %v", err)
	}
	same(t, s, "a", "a", large)
}

// TestUnconfirmedEncryptionRefused: nothing is stored unless encryption is confirmed.
func TestUnconfirmedEncryptionRefused(t *testing.T) {
	t.Parallel()
	server := bucket.Start(t)
	in := server.Make(t, "encrypted", false)
	proxy, certificate := server.BeforeTLS(t)
	dir := t.TempDir()
	key := []byte("0123456789abcdef0123456789abcdef")
	sum := md5.Sum(key)
	err := errors.Join(os.WriteFile(filepath.Join(dir, "ca.crt"), certificate, 0o600), os.WriteFile(filepath.Join(dir, "key"), key, 0o600))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		encryption store.Encryption
		good, bad  map[string]string
		request    map[string]string
	}{
		"AES256": {store.Encryption{Mode: store.EncryptionAES256}, map[string]string{"X-Amz-Server-Side-Encryption": "AES256"},
			map[string]string{"X-Amz-Server-Side-Encryption": "aws:kms"}, map[string]string{"X-Amz-Server-Side-Encryption": "AES256"}},
		"KMS": {store.Encryption{Mode: store.EncryptionKMS, KMSKeyID: "1234"},
			map[string]string{"X-Amz-Server-Side-Encryption": "aws:kms", "X-Amz-Server-Side-Encryption-Aws-Kms-Key-Id": "arn:aws:kms:r:1:key/1234"},
			map[string]string{"X-Amz-Server-Side-Encryption": "aws:kms", "X-Amz-Server-Side-Encryption-Aws-Kms-Key-Id": "arn:aws:kms:r:1:key/99"},
			map[string]string{"X-Amz-Server-Side-Encryption-Aws-Kms-Key-Id": "1234"}},
		"CustomerKey": {store.Encryption{Mode: store.EncryptionCustomerKey, KeyFile: filepath.Join(dir, "key")},
			map[string]string{"X-Amz-Server-Side-Encryption-Customer-Key-Md5": base64.StdEncoding.EncodeToString(sum[:])},
			map[string]string{"X-Amz-Server-Side-Encryption-Customer-Key-Md5": "AAAAAAAAAAAAAAAAAAAAAA=="},
			map[string]string{"X-Amz-Server-Side-Encryption-Customer-Key": base64.StdEncoding.EncodeToString(key)}},
	} {
		t.Run(name, func(t *testing.T) {
			config := configOf(t, proxy.Endpoint, in)
			config.Prefix, config.CABundle, config.Encryption = name, filepath.Join(dir, "ca.crt"), &c.encryption
			s := opened(t, config, quick)
			for _, said := range []map[string]string{{}, c.bad} {
				proxy.Break(on("CreateMultipartUpload", bucket.Headers(said)))
				for _, size := range []int64{small, large} {
					err := second(s.Put(t.Context(), "a", storetest.Content("a", size), store.PutOptions{}))
					if !errors.Is(err, store.ErrUnconfirmed) {
						t.Errorf("the store says %v: %v, want ErrUnconfirmed", said, err)
					}
				}
			}
			proxy.Break(nil)
			for o, err := range s.List(t.Context(), "") {
				t.Errorf("listed: %+v, %v", o, err)
			}
			if n, err := s.Sweep(t.Context(), "", -time.Hour); n != 0 || err != nil {
				t.Errorf("%d uploads were left, %v", n, err)
			}
			asked := false
			proxy.Break(func(op string, r *http.Request) bucket.Fault {
				for k, v := range c.request {
					asked = asked || r.Header.Get(k) == v
				}
				return when(op == "CreateMultipartUpload", bucket.Headers(c.good))
			})
			for _, size := range []int64{0, small, large} {
				if _, err := s.Put(t.Context(), "a", storetest.Content("a", size), store.PutOptions{}); err != nil {
					t.Errorf("put %d bytes: %v", size, err)
				}
				same(t, s, "a", "a", size)
			}
			if !asked {
				t.Errorf("no request had %v", c.request)
			}
			proxy.Break(nil)
		})
	}
}

func TestACustomerKeyIs32BytesOrThoseInBase64(t *testing.T) {
	dir := t.TempDir()
	raw := strings.Repeat("k", 32)
	for content, ok := range map[string]bool{
		raw: true, base64.StdEncoding.EncodeToString([]byte(raw)) + "\n": true, raw[1:]: false, "": false, base64.StdEncoding.EncodeToString([]byte("short")): false,
	} {
		file := filepath.Join(dir, "key")
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		key, err := readCustomerKey(file)
		if ok && string(key) != raw || !ok && (!errors.Is(err, store.ErrInvalid) || content != "" && strings.Contains(err.Error(), content)) {
			t.Errorf("%q: %q, %v", content, key, err)
		}
	}
}

// TestKMSKeyComparison: KMS keys are compared by what can be compared.
func TestKMSKeyComparison(t *testing.T) {
	const arn = "arn:aws:kms:eu-west-1:1:key/abc"
	for _, c := range []struct {
		asked, answered string
		same            bool
	}{
		{"abc", arn, true}, {arn, arn, true}, {arn, "abc", true}, {"abc", "abc", true}, {"abd", arn, false}, {arn, "", false},
		{"alias/backups", arn, true}, {"alias/backups", "", false}, {"bc", arn, false},
	} {
		if got := sameKMSKey(c.asked, c.answered); got != c.same {
			t.Errorf("asked for %s, answered %s: %v", c.asked, c.answered, got)
		}
	}
}
