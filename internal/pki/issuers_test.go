package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"slices"
	"testing"
	"time"
)

// signer is an authority that is made in ways that NewAuthority does not offer.
type signer struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func (s signer) pem() []byte { return Encode([]*x509.Certificate{s.certificate}) }

// newSigner makes an authority that parent signs, or that signs itself.
func newSigner(t *testing.T, name string, parent *signer, end time.Time, usages ...x509.ExtKeyUsage) *signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: now.Add(-48 * time.Hour), NotAfter: end, IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign, ExtKeyUsage: usages,
	}
	by := &signer{template, key}
	if parent != nil {
		by = parent
	}
	return &signer{parsed(t, template, by, key), key}
}

func parsed(t *testing.T, template *x509.Certificate, by *signer, key *ecdsa.PrivateKey) *x509.Certificate {
	t.Helper()
	raw, err := x509.CreateCertificate(rand.Reader, template, by.certificate, &key.PublicKey, by.key)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(raw)
	if err != nil {
		t.Fatal(err)
	}
	return certificate
}

// leaf is a certificate for both sides that is valid for two hours around now, with the chain behind it.
func (s *signer) leaf(t *testing.T, chain ...*signer) Pair {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	certificate := parsed(t, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "leaf"}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, s, key)
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	all := Encode([]*x509.Certificate{certificate})
	for _, c := range chain {
		all = slices.Concat(all, c.pem())
	}
	return Pair{Certificate: all, Key: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw})}
}

func TestCheckFollowsTheChain(t *testing.T) {
	late := now.Add(24 * time.Hour)
	root := newSigner(t, "root", nil, late)
	between := newSigner(t, "between", root, late)
	ended := newSigner(t, "root", nil, now.Add(-time.Minute))
	endedBetween := newSigner(t, "between", root, now.Add(-time.Minute))
	servers := newSigner(t, "servers", root, late, x509.ExtKeyUsageServerAuth)
	serversRoot := newSigner(t, "servers", nil, late, x509.ExtKeyUsageServerAuth)
	other := newSigner(t, "root", nil, late) // with the name of the real one
	both := Needs{Server: true, Client: true}
	for name, c := range map[string]struct {
		pair  Pair
		root  *signer
		needs Needs
		want  error
	}{
		"of the authority":                         {root.leaf(t), root, both, nil},
		"with an intermediate":                     {between.leaf(t, between), root, both, nil},
		"the intermediate is the authority":        {between.leaf(t), between, both, nil},
		"without its intermediate":                 {between.leaf(t), root, both, ErrIssuer},
		"another authority of the same name":       {root.leaf(t), other, both, ErrIssuer},
		"the authority has expired":                {ended.leaf(t), ended, both, ErrIssuerExpired},
		"the intermediate has expired":             {endedBetween.leaf(t, endedBetween), root, both, ErrIssuerExpired},
		"an intermediate for servers":              {servers.leaf(t, servers), root, both, ErrIssuerUsage},
		"an intermediate for servers, of a server": {servers.leaf(t, servers), root, Needs{Server: true}, nil},
		"an authority for servers":                 {serversRoot.leaf(t), serversRoot, both, ErrIssuerUsage},
		"an authority that is an end certificate":  {root.leaf(t), &signer{certificate: parse(t, root.leaf(t))}, both, ErrIssuer},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Check(c.pair, []*x509.Certificate{c.root.certificate}, c.needs, now); !errors.Is(err, c.want) {
				t.Errorf("Check returned %v, want %v", err, c.want)
			}
		})
	}
}

func parse(t *testing.T, pair Pair) *x509.Certificate {
	t.Helper()
	leaf, err := Leaf(pair)
	if err != nil {
		t.Fatal(err)
	}
	return leaf
}
