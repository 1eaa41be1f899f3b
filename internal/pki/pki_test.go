package pki

import (
	"bytes"
	"crypto/x509"
	"errors"
	"slices"
	"testing"
	"time"
)

var now = time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)

func authority(t *testing.T, name string, lifetime time.Duration) (Authority, Pair) {
	t.Helper()
	pair, err := NewAuthority(name, now, lifetime)
	if err != nil {
		t.Fatal(err)
	}
	a, err := ParseAuthority(pair, now)
	if err != nil {
		t.Fatal(err)
	}
	return a, pair
}

func issue(t *testing.T, a Authority, r Request) Pair {
	t.Helper()
	pair, err := a.Issue(r, now)
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

var complete = Request{CommonName: "c", DNSNames: []string{"*.c-peer.ns.svc"}, Server: true, Client: true, Lifetime: time.Hour}

func TestCheckNamesWhatIsWrong(t *testing.T) {
	ours, _ := authority(t, "ours", 24*time.Hour)
	theirs, _ := authority(t, "theirs", 24*time.Hour)
	good, other, foreign := issue(t, ours, complete), issue(t, ours, complete), issue(t, theirs, complete)
	serverOnly := complete
	serverOnly.Client = false
	needs := Needs{Server: true, Client: true, Names: []string{"c-abcde.c-peer.ns.svc"}}
	for _, c := range []struct {
		name  string
		pair  Pair
		needs Needs
		at    time.Time
		want  error
	}{
		{"a good pair", good, needs, now, nil},
		{"no certificate", Pair{nil, good.Key}, needs, now, ErrMissing},
		{"no key", Pair{good.Certificate, nil}, needs, now, ErrMissing},
		{"a certificate that is not PEM", Pair{[]byte("certificate"), good.Key}, needs, now, ErrNotPEM},
		{"a key that is not PEM", Pair{good.Certificate, []byte("key")}, needs, now, ErrNotPEM},
		{"a torn certificate", Pair{good.Certificate[:len(good.Certificate)/2], good.Key}, needs, now, ErrNotPEM},
		{"the key of another certificate", Pair{good.Certificate, other.Key}, needs, now, ErrKeyMismatch},
		{"too early", good, needs, now.Add(-2 * time.Hour), ErrNotYetValid},
		{"too late", good, needs, now.Add(2 * time.Hour), ErrExpired},
		{"the issuer is not trusted", foreign, needs, now, ErrIssuer},
		{"not for clients", issue(t, ours, serverOnly), needs, now, ErrUsage},
		{"only needed for servers", issue(t, ours, serverOnly), Needs{Server: true}, now, nil},
		{"not for this name", good, Needs{Names: []string{"other.ns.svc"}}, now, ErrName},
	} {
		t.Run(c.name, func(t *testing.T) {
			checked, err := Check(c.pair, []*x509.Certificate{ours.Certificate}, c.needs, c.at)
			if !errors.Is(err, c.want) || (err == nil) != (checked.Certificate != nil) || err == nil && !checked.Root.Equal(ours.Certificate) {
				t.Errorf("Check returned %v, want %v", err, c.want)
			}
			if err != nil && bytes.Contains([]byte(err.Error()), []byte("PRIVATE KEY")) {
				t.Errorf("the error shows a key: %v", err)
			}
		})
	}
}

func TestCheckAcceptsBothAuthoritiesOfABundle(t *testing.T) {
	first, a := authority(t, "first", 24*time.Hour)
	second, b := authority(t, "second", 24*time.Hour)
	both, err := Bundle(append(a.Certificate, b.Certificate...))
	if err != nil || len(both) != 2 {
		t.Fatalf("Bundle returned %d authorities and %v, want 2", len(both), err)
	}
	for _, signer := range []Authority{first, second} {
		if _, err := Check(issue(t, signer, complete), both, Needs{Server: true}, now); err != nil {
			t.Errorf("signed by %s: %v", signer.Certificate.Subject, err)
		}
	}
	if Fingerprint(both[0]) == Fingerprint(both[1]) || len(Fingerprint(both[0])) != 32 {
		t.Errorf("fingerprints are %s and %s", Fingerprint(both[0]), Fingerprint(both[1]))
	}
}

// etcd parses every block of the file as a certificate, and does not start with another one.
func TestEncodeLeavesOutWhatIsNoCertificate(t *testing.T) {
	_, pair := authority(t, "ours", 24*time.Hour)
	mixed := slices.Concat([]byte("# our authority\n"), pair.Key, pair.Certificate)
	authorities, err := Bundle(mixed)
	if err != nil || !bytes.Equal(Encode(authorities), pair.Certificate) {
		t.Errorf("the bundle is written as %s (%v)", Encode(authorities), err)
	}
}

func TestBundleRefusesWhatIsNoAuthority(t *testing.T) {
	ours, _ := authority(t, "ours", 24*time.Hour)
	for name, c := range map[string]struct {
		raw  []byte
		want error
	}{
		"nothing":       {nil, ErrMissing},
		"not PEM":       {[]byte("ca"), ErrNotPEM},
		"a certificate": {issue(t, ours, complete).Certificate, ErrNotAuthority},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Bundle(c.raw); !errors.Is(err, c.want) {
				t.Errorf("Bundle returned %v, want %v", err, c.want)
			}
		})
	}
}

// TestCertificateValidOnLateClock: a certificate is valid where the clock is late.
func TestCertificateValidOnLateClock(t *testing.T) {
	for lifetime, late := range map[time.Duration]time.Duration{
		10 * time.Minute: time.Hour, 24 * time.Hour: time.Hour, 90 * 24 * time.Hour: 24 * time.Hour, 17520 * time.Hour: 24 * time.Hour,
	} {
		a, pair := authority(t, "ours", lifetime)
		r := complete
		r.Lifetime = lifetime
		leaf, err := Leaf(issue(t, a, r))
		if err != nil {
			t.Fatal(err)
		}
		for name, c := range map[string]*x509.Certificate{"authority": a.Certificate, "certificate": leaf} {
			if got := now.Sub(c.NotBefore); got != late {
				t.Errorf("the %s of %s begins %s before now, want %s", name, lifetime, got, late)
			}
		}
		if _, err := ParseAuthority(pair, now.Add(-late)); err != nil {
			t.Errorf("the authority of %s on a machine that is %s late: %v", lifetime, late, err)
		}
	}
}

func TestACertificateEndsWithItsAuthority(t *testing.T) {
	ours, pair := authority(t, "ours", 30*time.Minute)
	leaf, err := Check(issue(t, ours, complete), []*x509.Certificate{ours.Certificate}, Needs{}, now)
	if err != nil {
		t.Fatal(err)
	}
	if !leaf.Certificate.NotAfter.Equal(ours.Certificate.NotAfter) || !leaf.NotAfter.Equal(ours.Certificate.NotAfter) {
		t.Errorf("the certificate ends at %s, its authority at %s", leaf.Certificate.NotAfter, ours.Certificate.NotAfter)
	}
	if _, err := ParseAuthority(pair, now.Add(time.Hour)); !errors.Is(err, ErrExpired) {
		t.Errorf("ParseAuthority of an expired authority returned %v", err)
	}
	if _, err := ParseAuthority(issue(t, ours, complete), now); !errors.Is(err, ErrNotAuthority) {
		t.Errorf("ParseAuthority of a certificate that may not sign returned %v", err)
	}
}

// Whatever a Secret contains, it is either good in every respect or refused with an error that shows no key.
func FuzzCheck(f *testing.F) {
	pair, err := NewAuthority("ours", now, 24*time.Hour)
	if err != nil {
		f.Fatal(err)
	}
	ours, err := ParseAuthority(pair, now)
	if err != nil {
		f.Fatal(err)
	}
	good, err := ours.Issue(complete, now)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good.Certificate, good.Key, pair.Certificate)
	f.Add(good.Certificate, pair.Key, pair.Certificate)
	f.Add(append(bytes.Clone(good.Certificate), pair.Certificate...), good.Key, good.Certificate)
	f.Add([]byte("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"), []byte("-----BEGIN PRIVATE KEY-----\n"), []byte{})
	f.Fuzz(func(t *testing.T, certificate, key, bundle []byte) {
		authorities, err := Bundle(bundle)
		if err != nil {
			return
		}
		checked, err := Check(Pair{certificate, key}, authorities, Needs{Server: true, Client: true, Names: []string{"c.c-peer.ns.svc"}}, now)
		leaf := checked.Certificate
		if (err == nil) != (leaf != nil) {
			t.Fatalf("Check returned %v and %v", leaf, err)
		}
		if err != nil {
			if bytes.Contains([]byte(err.Error()), []byte("PRIVATE KEY")) {
				t.Errorf("the error shows a key: %v", err)
			}
			return
		}
		if Valid(leaf, now) != nil || leaf.VerifyHostname("c.c-peer.ns.svc") != nil {
			t.Errorf("a bad certificate was accepted: %v", leaf.Subject)
		}
	})
}
