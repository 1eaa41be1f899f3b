package certificates

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/etcd-druid/druid/internal/pki"
)

// plane is one of the two kinds of connections of a member: those of clients and those of peers.
type plane struct {
	name string
	// source has the mounted Secrets, dir what etcd and the agent read.
	source, dir string
	// mutual says that etcd demands a certificate of those who connect.
	mutual bool
	// host is a DNS name that the certificate of every member covers.
	host  string
	now   func() time.Time
	known func() (known, error)

	mu      sync.Mutex
	staged  *staged
	problem error
	// othersCompare says that the running etcds of the other members compare the names of peers with their addresses.
	othersCompare bool
}

// known are the fingerprints of the authorities of certificates that each member of the formed cluster trusts, none if that is not
// known.
type known struct {
	issuers []string
	// provided says that a user provides the certificates. Then they can change before the members trust them, and a running member
	// accepts them only if each member does.
	provided bool
}

// staged is what is in effect, parsed.
type staged struct {
	generation string
	leaf       *x509.Certificate
	// issuer is the fingerprint of the authority that the chain of leaf ends with. notAfter is the first end of a
	// certificate that is in use.
	issuer   string
	notAfter time.Time
	// trust identifies the authorities.
	trust string
	pool  *x509.CertPool
	// server is the pair of the member, client that of its agent.
	server, client tls.Certificate
	content        content
}

// load checks the mounted Secrets and puts them in place if they are good. Otherwise what was in place stays. It
// reports whether anything changed.
func (p *plane) load() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	before, was := p.staged, text(p.problem)
	if p.staged == nil {
		p.recall()
	}
	p.problem = p.stage()
	return p.staged != before || text(p.problem) != was
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// recall continues with what an earlier process of this agent put in place.
func (p *plane) recall() {
	c, err := readContent(filepath.Join(p.dir, linkCurrent))
	if err != nil {
		return
	}
	if s, err := p.check(c); err == nil {
		p.staged = s
	}
}

func (p *plane) stage() error {
	c, err := readContent(p.source)
	if err != nil {
		return err
	}
	s, err := p.check(c)
	if err != nil || p.staged != nil && p.staged.generation == s.generation {
		return err
	}
	if err := s.content.place(p.dir); err != nil {
		return err
	}
	p.staged = s
	return nil
}

// check parses the content, or says what is wrong with it.
func (p *plane) check(c content) (*staged, error) {
	authorities, err := pki.Bundle(c.authorities)
	if err != nil {
		return nil, err
	}
	// etcd does not start if the file has anything else.
	c.authorities = pki.Encode(authorities)
	now := p.now()
	server, err := pki.Check(c.server, authorities, pki.Needs{Server: true, Client: p.mutual, Names: []string{p.host}}, now)
	if err != nil {
		return nil, fmt.Errorf("server certificate: %w", err)
	}
	client, err := pki.Check(c.client, authorities, pki.Needs{Client: p.mutual}, now)
	if err != nil {
		return nil, fmt.Errorf("client certificate: %w", err)
	}
	if err := p.accept(c, server, client, now); err != nil {
		return nil, err
	}
	own, err := tls.X509KeyPair(c.server.Certificate, c.server.Key)
	if err != nil {
		return nil, fmt.Errorf("server certificate: %w", pki.ErrKeyMismatch)
	}
	pair, err := tls.X509KeyPair(c.client.Certificate, c.client.Key)
	if err != nil {
		return nil, fmt.Errorf("client certificate: %w", pki.ErrKeyMismatch)
	}
	s := &staged{
		generation: c.generation(), leaf: server.Certificate, issuer: pki.Fingerprint(server.Root), notAfter: server.NotAfter,
		trust: pki.BundleFingerprint(authorities), pool: pki.Pool(authorities), server: own, client: pair, content: c,
	}
	if client.NotAfter.Before(s.notAfter) {
		s.notAfter = client.NotAfter
	}
	return s, nil
}

// accept returns an error for certificates of an authority that the members do not trust. While this Pod has started an
// etcd, it trusts the authorities that it was started with. druid's configuration says which authorities the other members
// of a formed cluster trust. A certificate of a new authority that an old one has signed too ends with the new one in ca.crt, and with
// the old one for those who run: they trust it.
func (p *plane) accept(c content, server, client pki.Checked, now time.Time) error {
	trust, err := p.trust()
	if err != nil {
		return err
	}
	known, err := p.known()
	if err != nil {
		return fmt.Errorf("read the authorities that the members trust: %w", err)
	}
	if trust != nil && !known.provided {
		known.issuers = nil // druid issues them only when each member trusts them
	}
	for _, pair := range []struct {
		name    string
		pair    pki.Pair
		checked pki.Checked
	}{{"server", c.server, server}, {"client", c.client, client}} {
		roots := []string{pki.Fingerprint(pair.checked.Root)}
		if trust != nil {
			running, err := pki.Check(pair.pair, trust, pki.Needs{}, now)
			if err != nil {
				return fmt.Errorf("%s certificate: %w: %w", pair.name, errOtherAuthority, err)
			}
			roots = append(roots, pki.Fingerprint(running.Root))
		}
		if len(known.issuers) > 0 && !slices.ContainsFunc(roots, func(root string) bool { return slices.Contains(known.issuers, root) }) {
			return fmt.Errorf("%s certificate: %w (issuer %s)", pair.name, errOtherAuthority, pair.checked.Root.Subject)
		}
	}
	if err := p.acceptNames(client.Certificate, trust != nil); err != nil {
		return fmt.Errorf("client certificate: %w", err)
	}
	return nil
}

// errOtherAuthority is returned for a certificate that would cut the member off from the others.
var errOtherAuthority = errors.New("its authority is unknown to the running etcd of a member, which reads ca.crt only when it starts; " +
	"use a certificate of the previous authority until all members trust the new one")

// trust returns the authorities that etcd was last started with, or nil if it was not started in this Pod.
func (p *plane) trust() ([]*x509.Certificate, error) {
	raw, err := os.ReadFile(filepath.Join(p.dir, fileTrust))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read the authorities of the running etcd: %w", err)
	}
	return pki.Bundle(raw)
}

// begin fixes the authorities for an etcd that is about to start. It returns why etcd must not start, if so.
func (p *plane) begin() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.staged == nil {
		return p.missing()
	}
	raw, err := os.ReadFile(filepath.Join(p.dir, linkCurrent, fileAuthorities))
	if err != nil {
		return fmt.Errorf("read the staged authorities: %w", err)
	}
	// First: with the authorities and without the mark, a later process of the agent would refuse a certificate with names.
	if err := p.markNamed(); err != nil {
		return err
	}
	next := filepath.Join(p.dir, fileTrust+".next")
	if err := os.WriteFile(next, raw, 0o600); err != nil {
		return fmt.Errorf("stage the authorities: %w", err)
	}
	if err := os.Rename(next, filepath.Join(p.dir, fileTrust)); err != nil {
		return fmt.Errorf("stage the authorities: %w", err)
	}
	return nil
}

// ready returns why etcd cannot start, or nil. The caller holds no lock.
func (p *plane) ready() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.staged != nil {
		return nil
	}
	return p.missing()
}

func (p *plane) missing() error {
	problem := p.problem
	if problem == nil {
		problem = errors.New("the Secrets have not been read yet")
	}
	return fmt.Errorf("%s certificates: %w", p.name, problem)
}

// config returns the settings for dialing members of this plane. They follow each change of the certificates.
func (p *plane) config() *tls.Config { return p.configFor(p.host) }

// configFor returns the settings for dialing a member whose certificate covers host.
func (p *plane) configFor(host string) *tls.Config {
	trusted := func() (*x509.CertPool, error) {
		s, err := p.current()
		if err != nil {
			return nil, err
		}
		return s.pool, nil
	}
	return dialing(host, p.now, trusted, func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		s, err := p.current()
		if err != nil {
			return nil, err
		}
		return &s.client, nil
	})
}

func (p *plane) current() (*staged, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.staged == nil {
		return nil, p.missing()
	}
	return p.staged, nil
}

func verify(state tls.ConnectionState, pool *x509.CertPool, host string, now time.Time) error {
	if len(state.PeerCertificates) == 0 {
		return errors.New("the member presented no certificate")
	}
	intermediates := x509.NewCertPool()
	for _, certificate := range state.PeerCertificates[1:] {
		intermediates.AddCert(certificate)
	}
	_, err := state.PeerCertificates[0].Verify(x509.VerifyOptions{
		Roots: pool, Intermediates: intermediates, DNSName: host, CurrentTime: now,
	})
	if err != nil {
		return fmt.Errorf("verify the certificate of the member: %w", err)
	}
	return nil
}
