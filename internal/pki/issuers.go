package pki

import (
	"crypto/x509"
	"errors"
	"fmt"
	"time"
)

// What can be wrong with those who signed a certificate.
var (
	ErrIssuerExpired = errors.New("the certificate authority that signed the certificate has expired; replace ca.crt and the certificate")
	ErrIssuerUsage   = errors.New("a certificate authority in the chain of the certificate does not allow an extended key usage; " +
		"use a certificate authority without extended key usages")
)

// issuerProblem says why no chain of the certificate ends with an authority: the one that signed it has expired, or is not there.
func issuerProblem(leaf *x509.Certificate, issuers []*x509.Certificate, now time.Time) error {
	for _, issuer := range issuers {
		if now.After(issuer.NotAfter) && leaf.CheckSignatureFrom(issuer) == nil {
			return ErrIssuerExpired
		}
	}
	return ErrIssuer
}

// issuersAllow returns an error if a usage that the certificate has is not allowed by those who signed it. Both sides of a connection
// check this (RFC 5280, 4.2.1.12 leaves it to them; Go does in Certificate.Verify).
func issuersAllow(pair Pair, leaf *x509.Certificate, authorities []*x509.Certificate, needs Needs, now time.Time) error {
	presented, err := certificates(pair.Certificate)
	if err != nil {
		return fmt.Errorf("tls.crt %w", err)
	}
	for _, side := range []struct {
		needed bool
		usage  x509.ExtKeyUsage
		name   string
	}{{needs.Server, x509.ExtKeyUsageServerAuth, "server auth"}, {needs.Client, x509.ExtKeyUsageClientAuth, "client auth"}} {
		if !side.needed {
			continue
		}
		if _, err := leaf.Verify(x509.VerifyOptions{
			Roots: Pool(authorities), Intermediates: Pool(presented[1:]), CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{side.usage},
		}); err != nil {
			return fmt.Errorf("%w: %s", ErrIssuerUsage, side.name)
		}
	}
	return nil
}
