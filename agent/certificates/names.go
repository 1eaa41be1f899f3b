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
// the own one.
func (p *plane) acceptNames(client *x509.Certificate, running bool) error {
	if p.name != PlanePeer || !running || !named(client) {
		return nil
	}
	if _, err := os.Stat(filepath.Join(p.dir, fileNamed)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return errNamed
}
