package crash_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/internal/pki"
)

// schemes interrupt the agent of a member whose new Pod has another scheme for peers than the member list.
var schemes = map[string]scenario{
	"peers that turn TLS on or off": {members: 3, eve: func(c *cluster) *pod {
		c.addPeerCertificates()
		p := c.follower()
		p.powerOff()
		p.config.PeerPlaintext = !p.config.PeerPlaintext
		p.certify()
		p.startLaunch()
		return p
	}, aftermath: func(c *cluster, p *pod) {
		c.heals()
		want := "https://"
		if p.config.PeerPlaintext {
			want = "http://"
		}
		c.eventually("the member list has the new scheme", func() error {
			view, err := c.view(c.other(p))
			if m, ok := view.Find(p.name, ""); !ok || len(m.PeerURLs) != 1 || !strings.HasPrefix(m.PeerURLs[0], want) {
				return fmt.Errorf("%s is listed as %+v, want %s: %w", p.name, m, want, err)
			}
			return nil
		})
	}},
}

// addPeerCertificates gives each member a Pod with certificates, in which peers still connect in plain text.
func (c *cluster) addPeerCertificates() {
	c.t.Helper()
	if c.pods[c.names[0]].config.PeerTLS != config.TLSOff {
		return
	}
	pair, err := pki.NewAuthority("peers", time.Now(), time.Hour)
	c.must(err)
	authority, err := pki.ParseAuthority(pair, time.Now())
	c.must(err)
	for _, name := range c.names {
		p := c.pods[name]
		p.powerOff()
		dir := filepath.Dir(p.certificate)
		p.config.PeerTLS, p.config.PeerPlaintext = config.TLSMutual, true
		p.config.TLSSource, p.config.TLSDir = filepath.Join(dir, "secrets"), filepath.Join(dir, "tls")
		server, err := authority.Issue(pki.Request{
			CommonName: "peer", Server: true, Client: true, Lifetime: time.Hour, IPs: []net.IP{net.ParseIP(p.config.ListenHost)},
		}, time.Now())
		c.must(err)
		client, err := authority.Issue(pki.Request{CommonName: "peer", Client: true, Lifetime: time.Hour}, time.Now())
		c.must(err)
		mount := filepath.Join(p.config.TLSSource, "peer")
		c.must(os.MkdirAll(mount, 0o700))
		for file, raw := range map[string][]byte{
			"ca.crt": pair.Certificate, "tls.crt": server.Certificate, "tls.key": server.Key, "client.crt": client.Certificate, "client.key": client.Key,
		} {
			c.must(os.WriteFile(filepath.Join(mount, file), raw, 0o600))
		}
		p.certify()
		p.startLaunch()
		p.startAgent("")
		c.heals()
	}
}
