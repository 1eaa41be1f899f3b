package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"syscall"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// secured returns the endpoints with the scheme https, each once. A member that serves TLS and plain text advertises both.
func secured(endpoints []string) []string {
	var all []string
	for _, endpoint := range endpoints {
		if host, plain := strings.CutPrefix(endpoint, "http://"); plain {
			endpoint = "https://" + host
		}
		if !slices.Contains(all, endpoint) {
			all = append(all, endpoint)
		}
	}
	return all
}

// either connects with TLS, and in plain text to a server that does not speak TLS. It follows what each server does at that moment,
// so nothing has to be known about it.
type either struct {
	credentials.TransportCredentials
}

// lineFeed as an application protocol, which no server selects, makes the first message of a TLS client contain a line feed. The
// plain listener of etcd waits for one before it rejects what is not HTTP (soheilhy/cmux, HTTP1).
const lineFeed = "\n"

func newEither(settings *tls.Config) either {
	settings = settings.Clone()
	settings.NextProtos = []string{"h2", lineFeed}
	return either{credentials.NewTLS(settings)}
}

// ClientHandshake implements credentials.TransportCredentials.
func (e either) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := e.TransportCredentials.ClientHandshake(ctx, authority, raw)
	if err == nil || !speaksNoTLS(err) {
		return conn, info, err
	}
	address := raw.RemoteAddr()
	again, dialErr := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, address.Network(), address.String())
	if dialErr != nil {
		return nil, nil, fmt.Errorf("connect in plain text to %s, which does not speak TLS: %w", address, dialErr)
	}
	return insecure.NewCredentials().ClientHandshake(ctx, authority, again)
}

// Clone implements credentials.TransportCredentials.
func (e either) Clone() credentials.TransportCredentials {
	return either{e.TransportCredentials.Clone()}
}

// speaksNoTLS says whether the server answered otherwise than TLS does, or closed the connection. A server that ends does so too. The
// connection in plain text then fails as well, and the next attempt begins with TLS.
func speaksNoTLS(err error) bool {
	var header tls.RecordHeaderError
	return errors.As(err, &header) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET)
}
