package harness

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/pki"
	"github.com/etcd-druid/druid/manifests"
)

// TLS secures both planes with certificates that druid issues for the lifetime.
func TLS(lifetime time.Duration) Option {
	return func(c *v1alpha1.EtcdCluster) {
		auto := &v1alpha1.AutoTLS{LeafLifetime: &metav1.Duration{Duration: lifetime}}
		c.Spec.TLS = &v1alpha1.TLSSpec{Client: &v1alpha1.ClientTLS{Auto: auto, Mode: v1alpha1.TLSMutual}, Peer: &v1alpha1.PeerTLS{Auto: auto}}
	}
}

// connection reads the Secret for clients of a cluster again for each handshake, as a client that follows the docs does. While the API
// server is away it uses what it read last.
type connection struct {
	cluster *Cluster

	mu   sync.Mutex
	last *tls.Certificate
	pool *x509.CertPool
}

// tlsSettings returns the TLS settings of a client of the cluster, or nil if the cluster has no TLS.
func (c *Cluster) tlsSettings() (*tls.Config, error) {
	if !c.secure {
		return nil, nil
	}
	return c.connection.settings()
}

// settings are those of a client that uses TLS.
func (n *connection) settings() (*tls.Config, error) { return n.trusting(n.trusted) }

// trusting are those of a client that trusts the authorities that the function returns.
func (n *connection) trusting(trusted func() *x509.CertPool) (*tls.Config, error) {
	c := n.cluster
	if err := n.read(context.Background()); err != nil && n.certificate() == nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		// gRPC takes the name to verify from the endpoint, which here is the name of a Pod or an address of the rig.
		InsecureSkipVerify: true, //nolint:gosec // VerifyConnection verifies the certificate and its name
		VerifyConnection: func(state tls.ConnectionState) error {
			between := x509.NewCertPool()
			for _, certificate := range state.PeerCertificates[1:] {
				between.AddCert(certificate)
			}
			options := x509.VerifyOptions{Roots: trusted(), Intermediates: between, DNSName: manifests.ClientServiceName(c.Name) + "." + c.Namespace + ".svc"}
			_, err := state.PeerCertificates[0].Verify(options)
			return err
		},
		GetClientCertificate: func(request *tls.CertificateRequestInfo) (*tls.Certificate, error) {
			if err := n.read(request.Context()); err != nil && n.certificate() == nil {
				return nil, err
			}
			return n.certificate(), nil
		},
	}, nil
}

func (n *connection) trusted() *x509.CertPool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.pool
}

func (n *connection) certificate() *tls.Certificate {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.last
}

// read waits for the Secret up to a second, or longer if nothing was read before.
func (n *connection) read(ctx context.Context) error {
	wait := time.Second
	if n.certificate() == nil {
		wait = 30 * time.Second
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	certificate, pool, err := n.cluster.Connection(ctx, manifests.ConnectionName(n.cluster.Name))
	if err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.last, n.pool = certificate, pool
	return nil
}

// Connection reads a Secret for clients: the certificate to show, and the authorities to trust.
func (c *Cluster) Connection(ctx context.Context, name string) (*tls.Certificate, *x509.CertPool, error) {
	var secret corev1.Secret
	if err := c.Rig.Client.Get(ctx, Key(c.Namespace, name), &secret); err != nil {
		return nil, nil, fmt.Errorf("read Secret %s for clients of %s: %w", name, c, err)
	}
	certificate, err := tls.X509KeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
	if err != nil {
		return nil, nil, fmt.Errorf("secret %s for clients of %s: %w", name, c, err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(secret.Data[manifests.KeyAuthorities]) {
		return nil, nil, fmt.Errorf("secret %s for clients of %s has no authority", name, c)
	}
	return &certificate, pool, nil
}

// Enter connects to a member with the pair, or without a certificate, and returns why that fails.
func (c *Cluster) Enter(ctx context.Context, member string, pair *pki.Pair) error {
	settings, err := c.tlsSettings()
	if err != nil {
		return err
	}
	settings.GetClientCertificate = nil
	if pair != nil {
		certificate, err := tls.X509KeyPair(pair.Certificate, pair.Key)
		if err != nil {
			return err
		}
		settings.Certificates = []tls.Certificate{certificate}
	}
	return c.handshake(ctx, member, settings)
}

// TrustedBy connects to a member and verifies its certificate with these authorities alone.
func (c *Cluster) TrustedBy(ctx context.Context, member string, authorities *x509.CertPool) error {
	settings, err := c.connection.trusting(func() *x509.CertPool { return authorities })
	if err != nil {
		return err
	}
	return c.handshake(ctx, member, settings)
}

// EnterPlain connects to a member in plain text, and returns why that fails.
func (c *Cluster) EnterPlain(ctx context.Context, member string) error {
	etcd, err := clientv3.New(clientv3.Config{
		Endpoints: []string{Endpoint(member)}, Logger: zap.NewNop(), DialOptions: []grpc.DialOption{grpc.WithContextDialer(c.dialer.dial)},
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	_, err = etcd.Get(ctx, "key")
	return errors.Join(err, etcd.Close())
}

// Replacing is TLS whose certificate authorities live for lifetime, and whose clients have the time of hold in a replacement.
func Replacing(lifetime, hold time.Duration) Option {
	return func(c *v1alpha1.EtcdCluster) {
		auto := &v1alpha1.AutoTLS{CALifetime: &metav1.Duration{Duration: lifetime}}
		c.Spec.TLS = &v1alpha1.TLSSpec{
			Client: &v1alpha1.ClientTLS{Auto: auto, Mode: v1alpha1.TLSMutual, TrustHold: &metav1.Duration{Duration: hold}}, Peer: &v1alpha1.PeerTLS{Auto: auto},
		}
	}
}

// handshake opens a connection and waits for the first byte of etcd: with TLS 1.3 the server refuses a client's certificate after the
// client takes the handshake for complete.
func (c *Cluster) handshake(ctx context.Context, member string, settings *tls.Config) (err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	raw, err := c.dialer.dial(ctx, net.JoinHostPort(member, strconv.Itoa(config.ClientPort)))
	if err != nil {
		return err
	}
	settings = settings.Clone()
	settings.NextProtos = []string{"h2"}
	conn := tls.Client(raw, settings)
	defer func() { err = errors.Join(err, raw.Close()) }()
	if err := conn.HandshakeContext(ctx); err != nil {
		return fmt.Errorf("handshake: %w", err)
	}
	if err := raw.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return err
	}
	// The preface of HTTP/2 with empty settings, which etcd answers.
	if _, err := conn.Write([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")); err != nil {
		return fmt.Errorf("first byte: %w", err)
	}
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		return fmt.Errorf("first byte: %w", err)
	}
	return nil
}
