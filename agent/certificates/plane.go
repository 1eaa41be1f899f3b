package certificates

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
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
	host string
	now  func() time.Time

	mu      sync.Mutex
	staged  *staged
	problem error
}

// staged is what is in effect, parsed.
type staged struct {
	generation string
	leaf       *x509.Certificate
	pool       *x509.CertPool
	client     tls.Certificate
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
	if p.staged != nil && p.staged.generation == c.generation() {
		return pki.Valid(p.staged.leaf, p.now())
	}
	s, err := p.check(c)
	if err != nil {
		return err
	}
	if err := c.place(p.dir); err != nil {
		return err
	}
	p.staged = s
	return nil
}

// check parses the content, or says what is wrong with it. While etcd runs, it also checks the pairs against the
// authorities that etcd was started with, because etcd and its peers know no others.
func (p *plane) check(c content) (*staged, error) {
	authorities, err := pki.Bundle(c.authorities)
	if err != nil {
		return nil, err
	}
	now := p.now()
	leaf, err := pki.Check(c.server, authorities, pki.Needs{Server: true, Client: p.mutual, Names: []string{p.host}}, now)
	if err != nil {
		return nil, fmt.Errorf("server certificate: %w", err)
	}
	if _, err := pki.Check(c.client, authorities, pki.Needs{Client: p.mutual}, now); err != nil {
		return nil, fmt.Errorf("client certificate: %w", err)
	}
	trust, err := p.trust()
	if err != nil {
		return nil, err
	}
	if trust != nil {
		for name, pair := range map[string]pki.Pair{"server": c.server, "client": c.client} {
			if _, err := pki.Check(pair, trust, pki.Needs{}, now); err != nil {
				return nil, fmt.Errorf("%s certificate: its issuer is unknown to the running etcd, which reads ca.crt only when it starts; "+
					"use a certificate of the present issuer: %w", name, err)
			}
		}
	}
	client, err := tls.X509KeyPair(c.client.Certificate, c.client.Key)
	if err != nil {
		return nil, fmt.Errorf("client certificate: %w", pki.ErrKeyMismatch)
	}
	return &staged{generation: c.generation(), leaf: leaf, pool: pki.Pool(authorities), client: client}, nil
}

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
func (p *plane) config() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		// The pool of a tls.Config never changes, and that of a member does. VerifyConnection makes the same checks
		// against the present one.
		InsecureSkipVerify: true, //nolint:gosec // VerifyConnection verifies the certificate and its name
		VerifyConnection: func(state tls.ConnectionState) error {
			s, err := p.current()
			if err != nil {
				return err
			}
			return verify(state, s.pool, p.host, p.now())
		},
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			s, err := p.current()
			if err != nil {
				return nil, err
			}
			return &s.client, nil
		},
	}
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
