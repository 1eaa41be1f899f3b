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

// tuning has the values that tests reduce.
type tuning struct {
	// attempts of a request. Also the number of consecutive failures of a download without a new byte.
	attempts int
	// backoff is the longest wait between attempts. Each wait is a random part of 1 s, 2 s, 4 s, … up to it.
	backoff time.Duration
	// stall is how long a connection may move no byte in either direction.
	stall time.Duration
	// inFlight is how long requests may take to arrive after the Put was cancelled.
	inFlight time.Duration
	// release is how long the cleanup of an aborted upload may take after its context ended.
	release time.Duration
	// part is how many bytes are sent at once.
	part int
	// page is how many keys a listing requests at once.
	page int32
	// connections is how many concurrent connections read a long object.
	connections int
}

// defaults: six attempts wait up to a minute in total, which exceeds the recommendations of S3 for 503. A stall of one
// minute is that of the SDKs for Java and Python. 1000 is the largest page of S3. Eight connections are half of the
// idle connections. A part of 8 MiB takes five seconds at 14 Mbit/s.
var defaults = tuning{attempts: 6, backoff: 20 * time.Second,
	stall: time.Minute, inFlight: 5 * time.Second, release: 30 * time.Second, part: store.PartSize, page: 1000, connections: 8}

// Open returns the store in a bucket. It reads the files that c names, to fail early. It sends no request, because an
// unavailable bucket must not prevent the start.
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
		o.HTTPSignerV4 = signer{}
		if c.Endpoint != "" {
			o.BaseEndpoint = aws.String(c.Endpoint)
		}
		if p := fileCredentials(c); p != nil {
			o.Credentials = p // without the cache that the configuration puts before it
		}
		// This package decides for each call what to send and verify. The SDK would send trailers, which other stores
		// reject, and would take a wrong checksum for a broken connection.
		o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
		o.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
		o.DisableLogOutputChecksumValidationSkipped = true
	})
	return s, nil
}

// retryer waits for each request independently. The token bucket of the SDK would reject retries after an outage, when
// the store is available again.
func (s *Store) retryer() aws.Retryer {
	return retry.NewStandard(func(o *retry.StandardOptions) {
		o.MaxAttempts = s.t.attempts
		o.MaxBackoff = s.t.backoff
		o.Backoff = retry.NewExponentialJitterBackoff(s.t.backoff)
		o.RateLimiter = ratelimit.None
		// For two concurrent conditional puts, S3 requests a retry.
		o.Retryables = append(o.Retryables, retry.RetryableErrorCode{Codes: map[string]struct{}{"ConditionalRequestConflict": {}}})
	})
}

// Connections returns how many concurrent connections read a long object.
func (s *Store) Connections() int { return s.t.connections }

// String names the store as in its errors.
func (s *Store) String() string {
	where := s.c.Endpoint
	if where == "" {
		where = "AWS region " + s.c.Region
	}
	return fmt.Sprintf("bucket %s at %s", s.c.Bucket, where)
}

func (s *Store) bucket() *string { return aws.String(s.c.Bucket) }

// name returns the name of a key, or of a prefix of keys, in the bucket.
func (s *Store) name(key string) *string {
	if s.c.Prefix == "" {
		return aws.String(key)
	}
	return aws.String(s.c.Prefix + "/" + key)
}

// key is the reverse of name. It is not ok for objects that druid did not put.
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
	// dialTimeout and keepIdle are the defaults of net/http for a dial and an idle connection.
	dialTimeout = 30 * time.Second
	keepIdle    = 90 * time.Second
	// idleConnections are enough for one upload, a concurrent restore, and other calls at the same time.
	idleConnections = 16
)

// httpClient uses HTTP/1.1 over connections that fail when they stall: a store behind a dead load balancer must cost
// one attempt and not the backup. It reads a bundle of certificates for each new connection, so that the bundle can be
// rotated.
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
			// Used only behind a proxy, where net/http makes the TLS connection.
			TLSClientConfig:     &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool},
			MaxIdleConnsPerHost: idleConnections,
			IdleConnTimeout:     keepIdle,
			DisableCompression:  true,
		},
		// A redirect leads to another region and would need another signature. The error says what to configure.
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

// roots reads the bundle. nil means the certificates of the system.
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
		return nil, fmt.Errorf("%w: s3.caBundle %s has no PEM certificate", store.ErrInvalid, bundle)
	}
	return pool, nil
}

// stallConn fails when no byte passes in either direction for a time. A write also extends the deadline of the read
// that already waits for its response.
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

// acceptEncoding is a header that Google Cloud Storage changes before it verifies the signature, as any proxy may. If
// it is signed, every request is rejected.
const acceptEncoding = "Accept-Encoding"

// signer signs each attempt of a request as the SDK does, except for acceptEncoding, which it sends unsigned. It keeps nothing that it
// derived from a secret: the signer of the SDK keeps that for an access key ID until the next day, so that a corrected secret has no effect.
type signer struct{}

func (signer) SignHTTP(ctx context.Context, c aws.Credentials, r *http.Request, payloadHash, service, region string, at time.Time,
	o ...func(*v4.SignerOptions)) error {
	sent := r.Header.Values(acceptEncoding)
	r.Header.Del(acceptEncoding)
	once := v4.NewSigner(func(options *v4.SignerOptions) { options.DisableURIPathEscaping = true }) // as the client of the SDK makes it
	err := once.SignHTTP(ctx, c, r, payloadHash, service, region, at, o...)
	if len(sent) > 0 {
		r.Header[acceptEncoding] = sent
	}
	return err
}
