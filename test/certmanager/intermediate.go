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
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// NewRoot makes a root.
func NewRoot(tb testing.TB) *Root {
	tb.Helper()
	return sign(tb, "root", nil)
}

// MakeIssuerBelow makes an Issuer in a namespace whose authority a root signed, or replaces that authority.
func MakeIssuerBelow(tb testing.TB, c client.Client, namespace, name string, root *Root) {
	tb.Helper()
	intermediate := sign(tb, name, root)
	key, err := x509.MarshalPKCS8PrivateKey(intermediate.key)
	if err != nil {
		tb.Fatal(err)
	}
	makeIssuer(tb, c, namespace, name, pki.Pair{
		Certificate: pki.Encode([]*x509.Certificate{intermediate.certificate, root.certificate}),
		Key:         pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}),
	})
}

func sign(tb testing.TB, name string, issuer *Root) *Root {
	tb.Helper()
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		tb.Fatal(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true,
	}
	made := &Root{certificate: template, key: key}
	if issuer == nil {
		issuer = made
	}
	der, err := x509.CreateCertificate(rand.Reader, template, issuer.certificate, &key.PublicKey, issuer.key)
	if err != nil {
		tb.Fatal(err)
	}
	if made.certificate, err = x509.ParseCertificate(der); err != nil {
		tb.Fatal(err)
	}
	return made
}
