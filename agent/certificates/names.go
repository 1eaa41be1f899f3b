package certificates

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// fileNamed exists while etcd was started with a certificate for connecting to peers that has subject alternative names.
const fileNamed = "named"

// errNamed is returned for a certificate that running peers would refuse.
var errNamed = errors.New("it has subject alternative names, which the running etcd of a member compares with the address of the peer; " +
	"use a certificate without them in the Secret of secretRef.clientName")

// named says whether etcd would compare the names of the certificate with the address that a peer connects from
// (etcd: client/pkg/transport, checkCertSAN). It asks for the name of that address if the certificate has DNS names. Most networks of Pods
// have none.
func named(c *x509.Certificate) bool { return len(c.DNSNames) > 0 || len(c.IPAddresses) > 0 }

// SkipPeerNames says whether the etcd that starts now must not compare the names of peers with their addresses. It must not if its own
// certificate for connecting to peers has names: the other members have the same names. Then every certificate of the
// authority with the extended key usage client auth is that of a peer. The caller has called Begin.
func (c *Certificates) SkipPeerNames() bool {
	if c.peer == nil {
		return false
	}
	c.peer.mu.Lock()
	defer c.peer.mu.Unlock()
	return c.peer.staged != nil && named(c.peer.staged.client.Leaf)
}

// markNamed remembers, for later processes of the agent, whether etcd is started with a certificate that has names.
func (p *plane) markNamed() error {
	if p.name != PlanePeer {
		return nil
	}
	path := filepath.Join(p.dir, fileNamed)
	if !named(p.staged.client.Leaf) {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("stage the certificates: %w", err)
		}
		return nil
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		return fmt.Errorf("stage the certificates: %w", err)
	}
	return nil
}

// acceptNames returns an error for a certificate for connecting to peers that the running etcds would refuse. Those were started like
// the own one. Before that has started in this Pod, the members report how theirs were started.
func (p *plane) acceptNames(client *x509.Certificate, running bool) error {
	switch {
	case p.name != PlanePeer || !named(client):
		return nil
	case !running && p.othersCompare:
		return errNamed
	case !running:
		return nil
	}
	if _, err := os.Stat(filepath.Join(p.dir, fileNamed)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return errNamed
}

// NamesDepend says whether the running etcds of the other members decide if this new Pod can use its certificate for connecting to peers.
// They do if it has names, and no etcd was started in this Pod.
func (c *Certificates) NamesDepend() bool {
	if c.peer == nil {
		return false
	}
	c.peer.mu.Lock()
	defer c.peer.mu.Unlock()
	return !c.peer.started() && (c.peer.othersCompare || c.peer.staged != nil && named(c.peer.staged.client.Leaf))
}

// OthersCompareNames notes whether the running etcds of the other members compare the names of peers with their addresses. If they do, a
// new Pod does not use a certificate with names: they would refuse it.
func (c *Certificates) OthersCompareNames(compare bool) {
	if c.peer != nil && c.peer.noteOthers(compare) && c.Checked != nil {
		c.Checked()
	}
}

func (p *plane) noteOthers(compare bool) (changed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.othersCompare == compare {
		return false
	}
	p.othersCompare = compare
	if p.staged != nil && !p.started() && p.acceptNames(p.staged.client.Leaf, false) != nil {
		p.staged, p.problem = nil, fmt.Errorf("client certificate: %w", errNamed)
	}
	return true
}

// started says whether an etcd was started in this Pod. The caller holds the lock.
func (p *plane) started() bool {
	_, err := os.Stat(filepath.Join(p.dir, fileTrust))
	return !errors.Is(err, fs.ErrNotExist)
}

// comparesNames says whether the etcd that was started in this Pod compares the names of peers with their addresses.
// The caller holds the lock.
func (p *plane) comparesNames() bool {
	_, err := os.Stat(filepath.Join(p.dir, fileNamed))
	return p.name == PlanePeer && p.started() && errors.Is(err, fs.ErrNotExist)
}
