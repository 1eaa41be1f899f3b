package certmanager

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/internal/pki"
)

// Root is a certificate authority that signs other authorities.
type Root struct {
	Certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// NewRoot makes a root.
func NewRoot(tb testing.TB, name string) *Root {
	tb.Helper()
	return sign(tb, name, nil)
}

// SignedBy returns the root as another one signs it: with the same name and key.
func (r *Root) SignedBy(tb testing.TB, signer *Root) *Root {
	tb.Helper()
	return &Root{Certificate: signed(tb, r.Certificate.Subject.CommonName, r.key, signer), key: r.key}
}

// MakeIssuerBelow makes an Issuer in a namespace whose authority a root signed, or replaces that authority.
func MakeIssuerBelow(tb testing.TB, c client.Client, namespace, name string, root *Root) {
	tb.Helper()
	MakeIssuerOf(tb, c, namespace, name, sign(tb, name, root), root)
}

// MakeIssuerOf makes an Issuer in a namespace that signs with the authority, or replaces its authority. Its Secret also has the certificates
// of those that signed the authority, the root last. Without them, the authority counts as a root.
func MakeIssuerOf(tb testing.TB, c client.Client, namespace, name string, authority *Root, signers ...*Root) {
	tb.Helper()
	key, err := x509.MarshalPKCS8PrivateKey(authority.key)
	if err != nil {
		tb.Fatal(err)
	}
	chain := []*x509.Certificate{authority.Certificate}
	for _, signer := range signers {
		chain = append(chain, signer.Certificate)
	}
	makeIssuer(tb, c, namespace, name, pki.Pair{
		Certificate: pki.Encode(chain), Key: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}),
	})
}

func sign(tb testing.TB, name string, issuer *Root) *Root {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	return &Root{Certificate: signed(tb, name, key, issuer), key: key}
}

// signed returns the certificate of an authority with the name and the key, which signs itself without an issuer.
func signed(tb testing.TB, name string, key *ecdsa.PrivateKey, issuer *Root) *x509.Certificate {
	tb.Helper()
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		tb.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true,
	}
	if issuer == nil {
		issuer = &Root{Certificate: template, key: key}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, issuer.Certificate, &key.PublicKey, issuer.key)
	if err != nil {
		tb.Fatal(err)
	}
	made, err := x509.ParseCertificate(der)
	if err != nil {
		tb.Fatal(err)
	}
	return made
}
