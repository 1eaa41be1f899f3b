package certificates

import (
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/etcd-druid/druid/internal/pki"
)

// signedBy returns the certificate of an authority as another authority signs it: same name and key.
func signedBy(t *testing.T, authority, signer pki.Pair) pki.Pair {
	t.Helper()
	certificate := func(pair pki.Pair) *x509.Certificate {
		all, err := pki.Bundle(pair.Certificate)
		if err != nil {
			t.Fatal(err)
		}
		return all[0]
	}
	block, _ := pem.Decode(signer.Key)
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	made := certificate(authority)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: made.Subject, NotBefore: made.NotBefore, NotAfter: made.NotAfter,
		KeyUsage: x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true,
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, certificate(signer), made.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return pki.Pair{Certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw}), Key: authority.Key}
}

// The old authority has signed the new one, and the certificates come with that signature. A running member trusts them, so it uses them
// although ca.crt has the new authority alone. A new Pod does so once a member reports that authority.
func TestCrossSignedAuthorityUsedAtOnce(t *testing.T) {
	for _, plane := range []string{PlaneClient, PlanePeer} {
		t.Run(plane, func(t *testing.T) {
			s := newSwap(t, plane)
			s.old = signedBy(t, s.old, s.old) // an authority of pki signs no other one
			s.oldPrint = fingerprint(t, s.old)
			s.known(s.oldPrint)
			s.newPod()
			s.give(s.of(s.old))
			if err := s.certs.Begin(); err != nil {
				t.Fatal(err)
			}
			cross := signedBy(t, s.new, s.old)
			crossPrint := fingerprint(t, cross)
			withChain := func(ca []byte) source {
				c := s.of(s.new)
				c.ca = ca
				c.server.Certificate = slices.Concat(c.server.Certificate, cross.Certificate)
				c.client.Certificate = slices.Concat(c.client.Certificate, cross.Certificate)
				return c
			}
			s.give(withChain(s.old.Certificate))
			s.keeps("") // another intermediate certificate of the same authority
			s.give(withChain(cross.Certificate))
			if state := s.certs.States()[0]; state.Problem != "" || state.Issuer != crossPrint || state.Staged == state.Running ||
				strings.Join(state.Trusted, ",") != s.oldPrint {
				t.Fatalf("the member has %+v, want certificates of %s, and a restart", state, crossPrint)
			}
			s.give(s.of(s.new))
			if state := s.certs.States()[0]; state.Issuer != crossPrint || !strings.Contains(state.Problem, "unknown to the running etcd of a member") {
				t.Errorf("a certificate without the signature of the old authority is used before etcd trusts the new one: %+v", state)
			}

			next := withChain(cross.Certificate)
			s.newPod()
			s.give(next)
			if err := s.certs.Ready(); err == nil {
				t.Error("a new Pod starts with an authority that no member reports")
			}
			s.known(crossPrint, s.oldPrint)
			s.certs.Load(t.Context())
			if err := s.certs.Begin(); err != nil {
				t.Fatal(err)
			}
			s.give(s.of(s.new)) // signed by itself, with the same key
			if state := s.certs.States()[0]; state.Problem != "" || state.Issuer != s.newPrint || state.Staged == state.Running {
				t.Errorf("the member has %+v, want certificates of %s, and a restart", state, s.newPrint)
			}
		})
	}
}
