package crash_test

import (
	"crypto/tls"
	"testing"

	"github.com/etcd-druid/druid/agent/config"
)

// Members that require no certificate of clients serve those that use TLS, and the agents do all their work. Without TLS, and with an
// authority that did not sign the certificate of the members, there is no connection.
func TestMembersServeClientsWithoutCertificates(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	s := c.secureAll(config.TLSServer)
	backups := t.TempDir()
	c.snapshotLeases()
	c.configureAll(backups, nil, 1)
	c.form()
	if len(c.tls.Certificates) > 0 {
		t.Fatal("the clients of the test show a certificate")
	}
	c.served("without a certificate")
	s.refuses("plain text", nil)
	s.refuses("another authority", &tls.Config{MinVersion: tls.VersionTLS12})
	s.renewed()
	c.works(backups)
	c.served("after it")
}
