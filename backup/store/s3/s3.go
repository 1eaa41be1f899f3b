package s3

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/ratelimit"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/etcd-druid/druid/backup/store"
)

// Store is a backup store in a bucket.
type Store struct {
	c          store.S3
	t          tuning
	client     *s3.Client
	encryption *encryption
	checksum   bool
	locks      atomic.Bool // the bucket confirmed that it can lock objects
}

var (
	_ store.Store   = (*Store)(nil)
	_ store.Distant = (*Store)(nil)
)

// tuning is what tests make smaller.
type tuning struct {
	// attempts of a request, and how often in a row a download may break without having gained a byte.
	attempts int
	// backoff is the longest wait between attempts; each is a random part of 1 s, 2 s, 4 s, … up to it.
	backoff time.Duration
	// stall is how long a connection may move no byte in either direction.
	stall time.Duration
	// inFlight is how long what is on its way may take to arrive once no one wants the object any more.
	inFlight time.Duration
	// release is how long an aborted upload may take to be cleaned up after its context ended.
	release time.Duration
	// part is how many bytes are sent at once.
	part int
	// page is how many keys a listing asks for at once.
	page int32
	// connections is over how many at once a long object is read.
	connections int
}

// Six attempts wait up to a minute in all, which outlasts S3's own recommendations for 503; a stall of a minute is that of
// the SDKs for Java and Python. A page of 1000 is S3's largest. Eight connections are half of those that are kept. A part
// of 8 MiB lands in five seconds at 14 Mbit/s.
var defaults = tuning{attempts: 6, backoff: 20 * time.Second,
	stall: time.Minute, inFlight: 5 * time.Second, release: 30 * time.Second, part: store.PartSize, page: 1000, connections: 8}

// Open returns the store in a bucket. It reads the files that c names, to fail early, and sends nothing: a bucket that is
// away is no reason not to start.
func Open(ctx context.Context, c store.S3) (*Store, error) { return open(ctx, c, defaults) }

func open(ctx context.Context, c store.S3, t tuning) (*Store, error) {
	if err := (store.Config{S3: &c}).Validate(); err != nil {
		return nil, err
	}
	s := &Store{c: c, t: t, checksum: c.Checksum != store.ChecksumWhenRequired}
	var err error
	if s.encryption, err = loadEncryption(c.Encryption); err != nil {
		return nil, err
	}
	client, err := httpClient(c.CABundle, t.stall)
	if err != nil {
		return nil, err
	}
	options := []func(*awsconfig.LoadOptions) error{awsconfig.WithRegion(c.Region)}
	if p := fileCredentials(c); p != nil {
		options = append(options, awsconfig.WithCredentialsProvider(p))
	}
	loaded, err := awsconfig.LoadDefaultConfig(ctx, options...)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", s, err)
	}
	s.client = s3.NewFromConfig(loaded, func(o *s3.Options) {
		o.HTTPClient = client
		o.UsePathStyle = c.PathStyle
		o.Retryer = s.retryer()
		o.HTTPSignerV4 = signer{o.HTTPSignerV4}
		if c.Endpoint != "" {
			o.BaseEndpoint = aws.String(c.Endpoint)
		}
		if p := fileCredentials(c); p != nil {
			o.Credentials = p // without the cache that the configuration puts before it
		}
		// What is sent and verified is decided here, call by call: the SDK's own would send trailers, which other stores
		// refuse, and would take a broken checksum for a broken connection.
		o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
		o.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
		o.DisableLogOutputChecksumValidationSkipped = true
	})
	return s, nil
}

// retryer waits by itself for each request. The SDK's bucket of tokens would, after an outage, refuse the retries of the
// requests that find the store back.
func (s *Store) retryer() aws.Retryer {
	return retry.NewStandard(func(o *retry.StandardOptions) {
		o.MaxAttempts = s.t.attempts
		o.MaxBackoff = s.t.backoff
		o.Backoff = retry.NewExponentialJitterBackoff(s.t.backoff)
		o.RateLimiter = ratelimit.None
		// Two conditional puts at once: S3 asks to try again.
		o.Retryables = append(o.Retryables, retry.RetryableErrorCode{Codes: map[string]struct{}{"ConditionalRequestConflict": {}}})
	})
}

// Connections is over how many at once a long object is read.
func (s *Store) Connections() int { return s.t.connections }

// String names the store as its errors do.
func (s *Store) String() string {
	where := s.c.Endpoint
	if where == "" {
		where = "AWS region " + s.c.Region
	}
	return fmt.Sprintf("bucket %s at %s", s.c.Bucket, where)
}

func (s *Store) bucket() *string { return aws.String(s.c.Bucket) }

// name is what a key, or a prefix of keys, is called in the bucket.
func (s *Store) name(key string) *string {
	if s.c.Prefix == "" {
		return aws.String(key)
	}
	return aws.String(s.c.Prefix + "/" + key)
}

// key is the reverse of name; not ok are objects that no Put here made.
func (s *Store) key(name *string) (string, bool) {
	key := aws.ToString(name)
	if s.c.Prefix != "" {
		var ok bool
		if key, ok = strings.CutPrefix(key, s.c.Prefix+"/"); !ok {
			return "", false
		}
	}
	return key, store.CheckKey(key) == nil
}

const (
	// dialTimeout and keepIdle are net/http's own defaults for a dial and an idle connection.
	dialTimeout = 30 * time.Second
	keepIdle    = 90 * time.Second
	// idleConnections suit one upload, a parallel restore, and what runs next to them.
	idleConnections = 16
)

// httpClient speaks HTTP/1.1 over connections that break when they stall: a store behind a dead load balancer must cost one
// attempt and not the backup. A bundle of certificates is read at each new connection, so that it can be rotated.
func httpClient(bundle string, stall time.Duration) (*http.Client, error) {
	pool, err := roots(bundle)
	if err != nil {
		return nil, err
	}
	dialer := &net.Dialer{Timeout: dialTimeout}
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dialer.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &stallConn{Conn: c, stall: stall}, nil
	}
	return &http.Client{
		Transport: &http.Transport{
			Proxy:       http.ProxyFromEnvironment,
			DialContext: dial,
			DialTLSContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				return dialTLS(ctx, dial, network, address, bundle)
			},
			// Used behind a proxy alone, which leaves net/http to speak TLS.
			TLSClientConfig:     &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool},
			MaxIdleConnsPerHost: idleConnections,
			IdleConnTimeout:     keepIdle,
			DisableCompression:  true,
		},
		// A redirect is to another region, and must be signed for it: a sentence says so.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, nil
}

type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

func dialTLS(ctx context.Context, dial dialFunc, network, address, bundle string) (net.Conn, error) {
	pool, err := roots(bundle)
	if err != nil {
		return nil, err
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	raw, err := dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	c := tls.Client(raw, &tls.Config{MinVersion: tls.VersionTLS12, ServerName: host, RootCAs: pool})
	if err := c.HandshakeContext(ctx); err != nil {
		raw.Close()
		return nil, err
	}
	return c, nil
}

// roots reads the bundle; nil are the system's.
func roots(bundle string) (*x509.CertPool, error) {
	if bundle == "" {
		return nil, nil
	}
	pem, err := os.ReadFile(bundle)
	if err != nil {
		return nil, fmt.Errorf("%w: s3.caBundle: %w", store.ErrInvalid, err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%w: s3.caBundle %s holds no certificate in PEM", store.ErrInvalid, bundle)
	}
	return pool, nil
}

// stallConn fails when for a time no byte went in either direction. A write also moves on the deadline of the read that
// already waits for its answer.
type stallConn struct {
	net.Conn
	stall time.Duration
}

func (c *stallConn) Read(p []byte) (int, error) {
	if err := c.Conn.SetDeadline(time.Now().Add(c.stall)); err != nil {
		return 0, err
	}
	return c.Conn.Read(p)
}

func (c *stallConn) Write(p []byte) (int, error) {
	if err := c.Conn.SetDeadline(time.Now().Add(c.stall)); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

// acceptEncoding is a header that Google Cloud Storage changes before it verifies the signature, as any proxy may: where it is
// signed, every request is refused.
const acceptEncoding = "Accept-Encoding"

// signer signs each attempt of a request as the SDK does, except for acceptEncoding, which is sent unsigned.
type signer struct{ s3.HTTPSignerV4 }

func (s signer) SignHTTP(ctx context.Context, c aws.Credentials, r *http.Request, payloadHash, service, region string, at time.Time, o ...func(*v4.SignerOptions)) error {
	sent := r.Header.Values(acceptEncoding)
	r.Header.Del(acceptEncoding)
	err := s.HTTPSignerV4.SignHTTP(ctx, c, r, payloadHash, service, region, at, o...)
	if len(sent) > 0 {
		r.Header[acceptEncoding] = sent
	}
	return err
}
