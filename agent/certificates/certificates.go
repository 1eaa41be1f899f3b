package certificates

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/internal/pki"
)

const (
	// checkInterval between two checks of the mounted Secrets. The kubelet needs up to a minute to update them.
	checkInterval = 5 * time.Second
	// fullInterval is the longest time without a complete check: certificates expire without any change.
	fullInterval = 10 * time.Minute
	// linkMounted is the link that the kubelet replaces when a mounted Secret changes.
	linkMounted = "..data"
)

// Certificates of a member. A member without TLS has none, and then nothing has an effect.
type Certificates struct {
	client, peer *plane
	planes       []*plane
	source       string
	log          *slog.Logger
	// Checked is called after every check that found a change, and after Begin; it must not block. It may be nil.
	Checked func()

	// seen is the link at the last complete check, and full when that was. Only Run uses them.
	seen string
	full time.Time
}

// New returns the certificates that the configuration names. It reads nothing.
func New(c config.Config, peerHost string, log *slog.Logger) *Certificates {
	all := &Certificates{source: c.TLSSource, log: log}
	add := func(mode config.TLSMode, name, host string) *plane {
		if mode == config.TLSOff {
			return nil
		}
		p := &plane{
			name: name, source: filepath.Join(c.TLSSource, name), dir: filepath.Join(c.TLSDir, name),
			mutual: mode == config.TLSMutual, host: host, now: time.Now,
			known: func() (known, error) {
				r, err := config.ReadReloadable(c.ConfigPath)
				return known{r.Issuers.Of(name), slices.Contains(strings.Split(r.Issuers.Provided, ","), name)}, err
			},
		}
		all.planes = append(all.planes, p)
		return p
	}
	all.client = add(c.ClientTLS, PlaneClient, c.ClientService+"."+c.Namespace+".svc")
	all.peer = add(c.PeerTLS, PlanePeer, peerHost)
	return all
}

// The planes. Their files are in directories of these names.
const (
	PlaneClient = "client"
	PlanePeer   = "peer"
)

// Client returns the settings for dialing the client port of members, or nil without TLS.
func (c *Certificates) Client() *tls.Config { return c.client.orNil() }

// Peer returns the settings for dialing the peer port of members, or nil without TLS.
func (c *Certificates) Peer() *tls.Config { return c.peer.orNil() }

// PeerAt returns the settings for dialing the peer port of a member that druid does not run, and whose certificate covers
// host. It needs TLS of peers.
func (c *Certificates) PeerAt(host string) *tls.Config { return c.peer.configFor(host) }

// Identity identifies the certificates with which the client port of members is dialed now: the authorities and the pair.
// It is empty without TLS, and while there are none.
func (c *Certificates) Identity() string {
	if c.client == nil {
		return ""
	}
	s, err := c.client.current()
	if err != nil {
		return ""
	}
	return s.generation
}

func (p *plane) orNil() *tls.Config {
	if p == nil {
		return nil
	}
	return p.config()
}

// Load checks the mounted Secrets once.
func (c *Certificates) Load(ctx context.Context) {
	changed := false
	for _, p := range c.planes {
		if !p.load() {
			continue
		}
		changed = true
		if s := p.state(); s.Problem != "" {
			c.log.ErrorContext(ctx, "certificates not usable, keeping the previous ones", "plane", p.name, "err", s.Problem)
		} else {
			c.log.InfoContext(ctx, "certificates staged", "plane", p.name, "notAfter", s.NotAfter)
		}
	}
	if changed && c.Checked != nil {
		c.Checked()
	}
}

// Run checks the mounted Secrets now and after each change, until ctx ends.
func (c *Certificates) Run(ctx context.Context) error {
	ticker := time.NewTicker(checkInterval)
	defer ticker.Stop()
	for {
		if c.due() {
			c.Load(ctx)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// due says whether something can have changed since the last complete check.
func (c *Certificates) due() bool {
	if len(c.planes) == 0 {
		return false
	}
	link, err := os.Readlink(filepath.Join(c.source, linkMounted))
	if err == nil && link == c.seen && time.Since(c.full) < fullInterval && c.good() {
		return false
	}
	c.seen, c.full = link, time.Now()
	return true
}

func (c *Certificates) good() bool {
	for _, p := range c.planes {
		if s := p.state(); s.Problem != "" {
			return false
		}
	}
	return true
}

// Ready returns nil if etcd can start with the certificates that are in place, and otherwise what is wrong.
func (c *Certificates) Ready() error {
	var errs []error
	for _, p := range c.planes {
		errs = append(errs, p.ready())
	}
	return errors.Join(errs...)
}

// Begin fixes the certificate authorities for an etcd that is about to start: from then on, only certificates that
// they signed are put in place. An error says why etcd must not start.
func (c *Certificates) Begin() error {
	var errs []error
	for _, p := range c.planes {
		errs = append(errs, p.begin())
	}
	if len(c.planes) > 0 && c.Checked != nil {
		c.Checked()
	}
	return errors.Join(errs...)
}

// State of one plane, for the member Lease.
type State struct {
	Plane string
	// Trusted are the fingerprints of the authorities that the running etcd was started with.
	Trusted []string
	// Running identifies all of these authorities, and Staged those that etcd gets when it is started again.
	Running, Staged string
	// Issuer is the fingerprint of the authority of the server certificate in effect, empty if there is none.
	Issuer string
	// NotAfter is the first end of the certificates in effect, their authority included. Lifetime is that of the server
	// certificate. Both are zero if there is none.
	NotAfter time.Time
	Lifetime time.Duration
	// ComparesNames says that the running etcd compares the names in the certificate of a peer with the address of the peer.
	ComparesNames bool
	// Problem is what is wrong with the mounted Secrets, empty if nothing is.
	Problem string
}

// States returns the state of each plane with TLS.
func (c *Certificates) States() []State {
	states := make([]State, len(c.planes))
	for i, p := range c.planes {
		states[i] = p.state()
	}
	return states
}

func (p *plane) state() State {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := State{Plane: p.name, ComparesNames: p.comparesNames(), Problem: text(p.problem)}
	if p.staged != nil {
		s.Issuer, s.NotAfter, s.Lifetime = p.staged.issuer, p.staged.notAfter, p.staged.leaf.NotAfter.Sub(p.staged.leaf.NotBefore)
		s.Staged = p.staged.trust
	}
	if trust, err := p.trust(); err == nil {
		s.Running = pki.BundleFingerprint(trust)
		for _, authority := range trust {
			s.Trusted = append(s.Trusted, pki.Fingerprint(authority))
		}
	}
	return s
}

// Args returns the flags of etcd for its certificates.
func Args(c config.Config) []string {
	var args []string
	path := func(plane, file string) string { return filepath.Join(c.TLSDir, plane, file) }
	current := func(plane, file string) string { return path(plane, filepath.Join(linkCurrent, file)) }
	if c.ClientTLS != config.TLSOff {
		args = append(args,
			"--cert-file="+current(PlaneClient, fileServer),
			"--key-file="+current(PlaneClient, fileServerKey))
	}
	if c.ClientTLS == config.TLSMutual {
		args = append(args, "--client-cert-auth=true", "--trusted-ca-file="+path(PlaneClient, fileTrust))
	}
	if c.PeerTLS == config.TLSMutual {
		args = append(args,
			"--peer-cert-file="+current(PlanePeer, fileServer),
			"--peer-key-file="+current(PlanePeer, fileServerKey),
			// Peers check the names of a client certificate against the address that it comes from. One without names is not
			// checked (etcd: client/pkg/transport, checkCertSAN).
			"--peer-client-cert-file="+current(PlanePeer, fileClient),
			"--peer-client-key-file="+current(PlanePeer, fileClientKey),
			"--peer-client-cert-auth=true",
			"--peer-trusted-ca-file="+path(PlanePeer, fileTrust))
	}
	return args
}
