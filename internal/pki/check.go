package pki

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// What can be wrong with a certificate. The text says what the user can do.
var (
	ErrMissing      = errors.New("is missing; add it")
	ErrNotPEM       = errors.New("is not PEM of the expected type; replace it")
	ErrKeyMismatch  = errors.New("the private key does not belong to the certificate; replace both together")
	ErrNotYetValid  = errors.New("the certificate is not valid yet; wait, or replace it")
	ErrExpired      = errors.New("the certificate has expired; replace it")
	ErrNotAuthority = errors.New("is not a certificate authority; replace it by the certificate of the issuer")
	ErrIssuer       = errors.New("the certificate is not signed by a certificate authority in ca.crt; add its issuer to ca.crt, or replace the certificate")
	ErrUsage        = errors.New("the certificate lacks an extended key usage; issue one that has it")
	ErrName         = errors.New("the certificate is not valid for a name that is needed; add it to the subject alternative names")
)

// Needs is what a certificate must be good for.
type Needs struct {
	// Server and Client are the sides of a connection.
	Server, Client bool
	// Names are DNS names that the certificate must cover.
	Names []string
}

// Bundle parses the certificate authorities in PEM. An empty or unreadable bundle is an error.
func Bundle(raw []byte) ([]*x509.Certificate, error) {
	authorities, err := certificates(raw)
	if err != nil {
		return nil, fmt.Errorf("ca.crt %w", err)
	}
	for _, authority := range authorities {
		if !authority.IsCA {
			return nil, fmt.Errorf("ca.crt %w (%s)", ErrNotAuthority, authority.Subject)
		}
	}
	return authorities, nil
}

// BundleFingerprint identifies a set of authorities: half as long as the fingerprint of one, and without their order.
func BundleFingerprint(authorities []*x509.Certificate) string {
	if len(authorities) == 0 {
		return ""
	}
	var all []string
	for _, authority := range authorities {
		all = append(all, Fingerprint(authority))
	}
	slices.Sort(all)
	sum := sha256.Sum256([]byte(strings.Join(slices.Compact(all), ",")))
	return hex.EncodeToString(sum[:8])
}

// Pool returns the pool of the authorities, against which connections are verified.
func Pool(authorities []*x509.Certificate) *x509.CertPool {
	pool := x509.NewCertPool()
	for _, authority := range authorities {
		pool.AddCert(authority)
	}
	return pool
}

// Checked is a pair that is good.
type Checked struct {
	Certificate *x509.Certificate
	// Root is the authority of the bundle that its chain ends with.
	Root *x509.Certificate
	// NotAfter is the first end of a certificate of the chain.
	NotAfter time.Time
}

// Check returns what is known of the pair, or what is wrong with it at now: see the errors of this package. Certificates
// behind the first one in the PEM are intermediates.
func Check(pair Pair, authorities []*x509.Certificate, needs Needs, now time.Time) (Checked, error) {
	leaf, _, err := parsePair(pair)
	if err != nil {
		return Checked{}, err
	}
	if err := Valid(leaf, now); err != nil {
		return Checked{}, err
	}
	checked, err := chainOf(pair, leaf, authorities, now)
	if err != nil {
		return Checked{}, err
	}
	if missing := missingUsages(leaf, needs); missing != "" {
		return Checked{}, fmt.Errorf("%w: %s", ErrUsage, missing)
	}
	if err := issuersAllow(pair, leaf, authorities, needs, now); err != nil {
		return Checked{}, err
	}
	for _, name := range needs.Names {
		if leaf.VerifyHostname(name) != nil {
			return Checked{}, fmt.Errorf("%w: %s", ErrName, name)
		}
	}
	return checked, nil
}

// Leaf returns the certificate of the pair if the key belongs to it. It checks nothing else.
func Leaf(pair Pair) (*x509.Certificate, error) {
	leaf, _, err := parsePair(pair)
	return leaf, err
}

// chainOf follows the certificate to an authority. Of several chains it takes the one that is valid for longest.
func chainOf(pair Pair, leaf *x509.Certificate, authorities []*x509.Certificate, now time.Time) (Checked, error) {
	presented, err := certificates(pair.Certificate)
	if err != nil {
		return Checked{}, fmt.Errorf("tls.crt %w", err)
	}
	chains, err := leaf.Verify(x509.VerifyOptions{
		Roots: Pool(authorities), Intermediates: Pool(presented[1:]), CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
	})
	if err != nil {
		return Checked{}, fmt.Errorf("%w (issuer %s)", issuerProblem(leaf, slices.Concat(presented[1:], authorities), now), leaf.Issuer)
	}
	best := Checked{Certificate: leaf}
	for _, chain := range chains {
		end := leaf.NotAfter
		for _, c := range chain {
			if c.NotAfter.Before(end) {
				end = c.NotAfter
			}
		}
		if end.After(best.NotAfter) {
			best.NotAfter, best.Root = end, chain[len(chain)-1]
		}
	}
	return best, nil
}

// Encode returns the certificates as PEM, and nothing else that was between them.
func Encode(all []*x509.Certificate) []byte {
	var raw []byte
	for _, c := range all {
		raw = append(raw, pem.EncodeToMemory(&pem.Block{Type: blockCertificate, Bytes: c.Raw})...)
	}
	return raw
}

func missingUsages(leaf *x509.Certificate, needs Needs) string {
	has := map[x509.ExtKeyUsage]bool{}
	for _, usage := range leaf.ExtKeyUsage {
		has[usage] = true
	}
	if has[x509.ExtKeyUsageAny] {
		return ""
	}
	var missing []string
	if needs.Server && !has[x509.ExtKeyUsageServerAuth] {
		missing = append(missing, "server auth")
	}
	if needs.Client && !has[x509.ExtKeyUsageClientAuth] {
		missing = append(missing, "client auth")
	}
	return strings.Join(missing, ", ")
}

// Valid returns nil if now is between the dates of the certificate.
func Valid(certificate *x509.Certificate, now time.Time) error {
	switch {
	case now.Before(certificate.NotBefore):
		return fmt.Errorf("%w (valid from %s)", ErrNotYetValid, certificate.NotBefore.UTC().Format(time.RFC3339))
	case now.After(certificate.NotAfter):
		return fmt.Errorf("%w (valid until %s)", ErrExpired, certificate.NotAfter.UTC().Format(time.RFC3339))
	default:
		return nil
	}
}

// parsePair reads the first certificate and its key. It says which part is missing or unreadable, and never what is in it.
func parsePair(pair Pair) (leaf *x509.Certificate, key any, err error) {
	chain, err := certificates(pair.Certificate)
	if err != nil {
		return nil, nil, fmt.Errorf("tls.crt %w", err)
	}
	if len(pair.Key) == 0 {
		return nil, nil, fmt.Errorf("tls.key %w", ErrMissing)
	}
	if block, _ := pem.Decode(pair.Key); block == nil {
		return nil, nil, fmt.Errorf("tls.key %w", ErrNotPEM)
	}
	both, err := tls.X509KeyPair(pair.Certificate, pair.Key)
	if err != nil {
		return nil, nil, ErrKeyMismatch
	}
	return chain[0], both.PrivateKey, nil
}

// certificates parses all certificates in PEM, at least one.
func certificates(raw []byte) (all []*x509.Certificate, err error) {
	if len(raw) == 0 {
		return nil, ErrMissing
	}
	for block, rest := pem.Decode(raw); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != blockCertificate {
			continue
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, ErrNotPEM
		}
		all = append(all, certificate)
	}
	if len(all) == 0 {
		return nil, ErrNotPEM
	}
	return all, nil
}
