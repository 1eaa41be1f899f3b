package start

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/etcd-druid/druid/agent/certificates"
	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/agent/transport"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

// External returns how to dial the members of a joined cluster that druid does not run, or nil if they are dialed like
// those that druid runs. certs are the certificates of this Pod.
func External(cfg config.Config, certs *certificates.Certificates) *transport.External {
	if cfg.Join == "" || cfg.JoinTLS == "" && cfg.ClientTLS == config.TLSOff && cfg.PeerTLS == config.TLSOff {
		return nil
	}
	domain := strings.TrimPrefix(PeerHost(cfg, ""), ".")
	external := &transport.External{Owns: func(host string) bool {
		return host == "localhost" || host == cfg.ListenHost || strings.HasSuffix(host, "."+domain)
	}}
	if cfg.PeerTLS != config.TLSOff {
		external.Peer = certs.PeerAt
	}
	if cfg.JoinTLS != "" {
		external.Client = func() (*tls.Config, error) { return certificates.External(cfg.JoinTLS) }
	}
	return external
}

// peerAccepts returns why a member whose peers use TLS cannot be reached with the certificates of this Pod. That member
// also verifies the certificate of this Pod.
func (b *Bootstrapper) peerAccepts(ctx context.Context, m membership.Member) error {
	client := b.transport.HTTPClient()
	defer client.CloseIdleConnections()
	for _, url := range m.PeerURLs {
		if !isSecure(url) || !b.cfg.PeersSecure() {
			continue
		}
		if _, err := peerList(ctx, client, url); err != nil {
			return err
		}
	}
	return nil
}

// answerTime is how long a member may take to reject a client certificate. With TLS 1.3 it does so after the handshake,
// and it says nothing if it accepts the certificate.
const answerTime = 500 * time.Millisecond

// rejection returns why a connection with TLS to one of the endpoints of the joined cluster fails, or nil if none does.
// gRPC repeats such a connection until its time is over, and then reports only the time.
func (b *Bootstrapper) rejection(ctx context.Context, endpoints []string) error {
	if b.cfg.JoinTLS == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, endpointTimeout)
	defer cancel()
	for _, endpoint := range endpoints {
		if err := rejectionAt(ctx, b.cfg.JoinTLS, endpoint); err != nil {
			return fmt.Errorf("connect to %s: %w", endpoint, err)
		}
	}
	return nil
}

func rejectionAt(ctx context.Context, secret, endpoint string) error {
	settings, err := certificates.External(secret)
	if err != nil {
		return err
	}
	dialer := &tls.Dialer{Config: settings}
	conn, err := dialer.DialContext(ctx, "tcp", strings.TrimPrefix(endpoint, leases.SchemeSecure+"://"))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetReadDeadline(time.Now().Add(answerTime)); err != nil {
		return fmt.Errorf("limit the time for an answer: %w", err)
	}
	if _, err = conn.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
		return nil
	}
	return err
}

func isPlain(url string) bool { return !isSecure(url) }

// schemeProblem returns why the members that druid runs and m cannot connect to each other, or an empty string.
func schemeProblem(cfg *config.Config, m membership.Member) string {
	secure, plain := slices.ContainsFunc(m.ClientURLs, isSecure), slices.ContainsFunc(m.ClientURLs, isPlain)
	switch urls := strings.Join(m.ClientURLs, " and "); {
	case secure && !plain && cfg.JoinTLS == "":
		return "it advertises " + urls + " to clients; create the EtcdCluster again, with spec.bootstrap.join.tls and https endpoints"
	case plain && !secure && cfg.JoinTLS != "":
		return "it advertises " + urls + " to clients, but spec.bootstrap.join.tls allows only https; " +
			"correct the --advertise-client-urls of that member, or create the EtcdCluster again without spec.bootstrap.join.tls"
	}
	for _, url := range m.PeerURLs {
		switch secure := isSecure(url); {
		case secure && !cfg.PeersSecure():
			return fmt.Sprintf("its peers connect to %s with TLS; create the EtcdCluster again, "+
				"with a spec.tls.peer.secretRef whose certificates the members of that cluster trust", url)
		case !secure && cfg.PeersSecure():
			return fmt.Sprintf("its peers connect to %s in plain text; create the EtcdCluster again without spec.tls.peer, "+
				"and add it when the external members are removed", url)
		}
	}
	return ""
}
