package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"time"
)

const (
	// minBackdate is how long before now a certificate begins to be valid, so that a machine whose clock is late accepts it. Let's Encrypt
	// has an hour (boulder, backdate), and Kubernetes five minutes (pkg/controller/certificates/signer).
	minBackdate = time.Hour
	// maxBackdate is more than a clock that runs in another time zone is late: at most 14 hours.
	maxBackdate = 24 * time.Hour
	// backdatePart of a lifetime is so little that the age of a certificate is right. The default of 90 days has a day.
	backdatePart = 90
)

// beginOf is when a certificate begins to be valid that is issued at now.
func beginOf(now time.Time, lifetime time.Duration) time.Time {
	return now.Add(-min(max(lifetime/backdatePart, minBackdate), maxBackdate))
}

// The types of PEM blocks.
const (
	blockCertificate = "CERTIFICATE"
	blockKey         = "PRIVATE KEY"
)

// Pair is a certificate and its private key, both as PEM. The key is PKCS #8.
type Pair struct {
	Certificate, Key []byte
}

// Authority is a certificate authority that can sign.
type Authority struct {
	Certificate *x509.Certificate
	key         any
}

// NewAuthority makes a self-signed certificate authority called name, of at most 64 characters (RFC 5280, ub-common-name),
// that is valid until now plus lifetime. It signs no other authorities.
func NewAuthority(name string, now time.Time, lifetime time.Duration) (Pair, error) {
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, NotBefore: beginOf(now, lifetime), NotAfter: now.Add(lifetime),
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign, BasicConstraintsValid: true, IsCA: true, MaxPathLenZero: true,
	}
	pair, err := sign(template, nil)
	if err != nil {
		return Pair{}, fmt.Errorf("make certificate authority %s: %w", name, err)
	}
	return pair, nil
}

// ParseAuthority reads a certificate authority. The error says what is wrong with it at now.
func ParseAuthority(pair Pair, now time.Time) (Authority, error) {
	certificate, key, err := parsePair(pair)
	if err != nil {
		return Authority{}, err
	}
	if !certificate.IsCA {
		return Authority{}, ErrNotAuthority
	}
	return Authority{certificate, key}, Valid(certificate, now)
}

// Request is what a certificate is issued for.
type Request struct {
	CommonName    string
	Organizations []string
	DNSNames      []string
	IPs           []net.IP
	// Server and Client say for which side of a connection the certificate is valid.
	Server, Client bool
	// Lifetime from now on. A certificate never outlives its authority.
	Lifetime time.Duration
}

// Issue makes a new key and signs its certificate.
func (a Authority) Issue(r Request, now time.Time) (Pair, error) {
	template := &x509.Certificate{
		Subject:  pkix.Name{CommonName: r.CommonName, Organization: r.Organizations},
		DNSNames: r.DNSNames, IPAddresses: r.IPs, NotBefore: beginOf(now, r.Lifetime), NotAfter: now.Add(r.Lifetime),
		KeyUsage: x509.KeyUsageDigitalSignature, BasicConstraintsValid: true,
	}
	if r.Server {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	if r.Client {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageClientAuth)
	}
	if template.NotAfter.After(a.Certificate.NotAfter) {
		template.NotAfter = a.Certificate.NotAfter
	}
	pair, err := sign(template, &a)
	if err != nil {
		return Pair{}, fmt.Errorf("issue the certificate of %s: %w", r.CommonName, err)
	}
	return pair, nil
}

// sign makes a key and a certificate by the template. Without an issuer, the certificate signs itself.
func sign(template *x509.Certificate, issuer *Authority) (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, err
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127)); err != nil {
		return Pair{}, err
	}
	parent, signer := template, any(key)
	if issuer != nil {
		parent, signer = issuer.Certificate, issuer.key
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return Pair{}, err
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return Pair{}, err
	}
	return Pair{
		Certificate: pem.EncodeToMemory(&pem.Block{Type: blockCertificate, Bytes: certificate}),
		Key:         pem.EncodeToMemory(&pem.Block{Type: blockKey, Bytes: encoded}),
	}, nil
}

// Fingerprint returns the first half of the SHA-256 of a certificate, hex. It distinguishes certificate authorities.
func Fingerprint(certificate *x509.Certificate) string {
	sum := sha256.Sum256(certificate.Raw)
	return hex.EncodeToString(sum[:len(sum)/2])
}
