package transport

import (
	"context"
	"crypto/tls"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/etcd-druid/druid/internal/pki"
	"github.com/etcd-druid/druid/test/member"
)

// TestExternalMembersDialedSeparately: external members are dialed in their own way.
// Two etcds run, one in plain text and one that demands certificates. Whether one is dialed with TLS depends only on who
// runs it.
func TestExternalMembersDialedSeparately(t *testing.T) {
	authority, err := pki.NewAuthority("external", time.Now(), time.Hour)
	must(t, err)
	signer, err := pki.ParseAuthority(authority, time.Now())
	must(t, err)
	pair, err := signer.Issue(pki.Request{
		CommonName: "etcd", Server: true, Client: true, Lifetime: time.Hour, IPs: []net.IP{net.IPv4(127, 0, 0, 1)},
	}, time.Now())
	must(t, err)
	dir := t.TempDir()
	file := func(name string, raw []byte) string {
		path := filepath.Join(dir, name)
		must(t, os.WriteFile(path, raw, 0o600))
		return path
	}
	certificate, err := tls.X509KeyPair(pair.Certificate, pair.Key)
	must(t, err)
	authorities, err := pki.Bundle(authority.Certificate)
	must(t, err)
	settings := &tls.Config{RootCAs: pki.Pool(authorities), Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
	secure := member.Start(t, member.Minors[1], member.Options{Token: "secure", TLS: settings, Args: []string{
		"--client-cert-auth", "--trusted-ca-file=" + file("ca.crt", authority.Certificate),
		"--cert-file=" + file("tls.crt", pair.Certificate), "--key-file=" + file("tls.key", pair.Key),
	}})
	plain := member.Start(t, member.Minors[1], member.Options{Token: "plain"})

	all, none := func(string) bool { return true }, func(string) bool { return false }
	external := func() (*tls.Config, error) { return settings, nil }
	for name, test := range map[string]struct {
		transport Transport
		endpoint  string
		fails     bool
	}{
		"own members in plain text":               {Transport{External: &External{Owns: all, Client: external}}, plain.Endpoint, false},
		"own members with TLS":                    {Transport{Client: settings, External: &External{Owns: all}}, secure.Endpoint, false},
		"own members with TLS, and both answered": {Transport{Client: settings, Plaintext: true, External: &External{Owns: all}}, plain.Endpoint, false},
		"external ones with TLS":                  {Transport{External: &External{Owns: none, Client: external}}, secure.Endpoint, false},
		"external ones in plain text":             {Transport{Client: settings, External: &External{Owns: none}}, plain.Endpoint, false},
		"external ones never without their TLS": {Transport{Client: settings, Plaintext: true, External: &External{Owns: none, Client: external}},
			plain.Endpoint, true},
		"own members never as external ones": {Transport{Client: settings, External: &External{Owns: all, Client: external}}, plain.Endpoint, true},
		"a name that stands for own members alone": {Transport{External: &External{Owns: func(host string) bool { return host == "127.0.0.1" }}},
			plain.Endpoint, false},
	} {
		t.Run(name, func(t *testing.T) {
			client, err := test.transport.Etcd(t.Context(), test.endpoint)
			must(t, err)
			defer func() { _ = client.Close() }()
			limit := 2 * time.Minute
			if test.fails {
				limit = 3 * time.Second
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			if _, err = client.Status(ctx, test.endpoint); (err != nil) != test.fails {
				t.Errorf("status of %s: %v", strings.SplitN(test.endpoint, ":", 2)[0], err)
			}
		})
	}
}
