package certificates

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"github.com/etcd-druid/druid/internal/pki"
)

// Dial returns the settings for dialing the client port of members with the files in dir, for a process that serves
// nothing itself. Each connection reads the files again. host is a DNS name that the certificate of every member covers.
func Dial(dir, host string) *tls.Config {
	read := func() (content, []*x509.Certificate, error) {
		c, err := readContent(dir)
		if err != nil {
			return c, nil, err
		}
		authorities, err := pki.Bundle(c.authorities)
		if err != nil {
			return c, nil, fmt.Errorf("certificates in %s: %w", dir, err)
		}
		return c, authorities, nil
	}
	trusted := func() (*x509.CertPool, error) {
		_, authorities, err := read()
		if err != nil {
			return nil, err
		}
		return pki.Pool(authorities), nil
	}
	return dialing(host, time.Now, trusted, func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		c, authorities, err := read()
		if err != nil {
			return nil, err
		}
		if _, err := pki.Check(c.client, authorities, pki.Needs{Client: true}, time.Now()); err != nil {
			return nil, fmt.Errorf("client certificate in %s: %w", dir, err)
		}
		pair, err := tls.X509KeyPair(c.client.Certificate, c.client.Key)
		if err != nil {
			return nil, errors.Join(pki.ErrKeyMismatch, err)
		}
		return &pair, nil
	})
}

// dialing returns the settings for dialing a member whose certificate covers host. The pool of a tls.Config never changes, and the
// trusted authorities do. So VerifyConnection makes the checks of TLS against those that are there now.
func dialing(host string, now func() time.Time, trusted func() (*x509.CertPool, error),
	own func(*tls.CertificateRequestInfo) (*tls.Certificate, error),
) *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		InsecureSkipVerify: true, //nolint:gosec // VerifyConnection verifies the certificate and its name
		VerifyConnection: func(state tls.ConnectionState) error {
			pool, err := trusted()
			if err != nil {
				return err
			}
			return verify(state, pool, host, now())
		},
		GetClientCertificate: own,
	}
}

// ExternalIdentity identifies the content of the files in dir, for External. It is empty while they cannot be read.
func ExternalIdentity(dir string) string {
	c, err := readContent(dir)
	if err != nil {
		return ""
	}
	return c.generation()
}

// External returns the settings for dialing the client port of members that druid does not run, with the files in dir:
// their authorities, and a client certificate unless there is none. It reads the files now.
func External(dir string) (*tls.Config, error) {
	c, err := readContent(dir)
	if err != nil {
		return nil, err
	}
	authorities, err := pki.Bundle(c.authorities)
	if err != nil {
		return nil, fmt.Errorf("certificates for the joined cluster: %w", err)
	}
	settings := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pki.Pool(authorities)}
	if len(c.client.Certificate) == 0 && len(c.client.Key) == 0 {
		return settings, nil
	}
	pair, err := tls.X509KeyPair(c.client.Certificate, c.client.Key)
	switch {
	case err != nil:
		return nil, fmt.Errorf("client certificate for the joined cluster: %w", errors.Join(pki.ErrKeyMismatch, err))
	case time.Now().After(pair.Leaf.NotAfter):
		return nil, fmt.Errorf("client certificate for the joined cluster: expired on %s; renew tls.crt", pair.Leaf.NotAfter.Format(time.RFC3339))
	}
	settings.Certificates = []tls.Certificate{pair}
	return settings, nil
}
