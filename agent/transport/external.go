package transport

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// External says how to dial the members of a joined cluster that druid does not run. They have other certificates than
// the members that druid runs, or none.
type External struct {
	// Owns says whether druid runs the member at host.
	Owns func(host string) bool
	// Client returns the settings for the client port. nil is plain text.
	Client func() (*tls.Config, error)
	// Peer returns the settings for the peer port of the member at host. nil where peers do not use TLS.
	Peer func(host string) *tls.Config
}

// byHost decides with each connection how the client port is dialed. The embedded credentials are for the members that
// druid runs.
type byHost struct {
	credentials.TransportCredentials
	external External
}

func newByHost(own *tls.Config, plaintext bool, external External) byHost {
	switch {
	case own == nil:
		return byHost{insecure.NewCredentials(), external}
	case plaintext:
		return byHost{newEither(own), external}
	default:
		return byHost{credentials.NewTLS(own), external}
	}
}

// ClientHandshake never connects in plain text to an external member for which there are settings.
func (b byHost) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	switch {
	case b.external.Owns(hostOf(authority)):
		return b.TransportCredentials.ClientHandshake(ctx, authority, raw)
	case b.external.Client == nil:
		return insecure.NewCredentials().ClientHandshake(ctx, authority, raw)
	}
	settings, err := b.external.Client()
	if err != nil {
		return nil, nil, fmt.Errorf("connect to the joined cluster: %w", err)
	}
	return credentials.NewTLS(settings).ClientHandshake(ctx, authority, raw)
}

// Clone is part of the interface, which gRPC uses.
func (b byHost) Clone() credentials.TransportCredentials {
	return byHost{b.TransportCredentials.Clone(), b.external}
}

func hostOf(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	return host
}

// dialPeer connects to a peer port with TLS.
func (t Transport) dialPeer(ctx context.Context, network, address string) (net.Conn, error) {
	settings := t.Peer
	if host := hostOf(address); !t.External.Owns(host) && t.External.Peer != nil {
		settings = t.External.Peer(host)
	}
	dialer := &tls.Dialer{NetDialer: &net.Dialer{Timeout: dialTimeout}, Config: settings}
	return dialer.DialContext(ctx, network, address)
}
