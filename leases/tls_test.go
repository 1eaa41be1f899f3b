package leases

import (
	"strings"
	"testing"
	"time"
)

func TestTLSIsReadAsItWasWritten(t *testing.T) {
	at := time.Date(2027, 2, 22, 12, 0, 0, 0, time.UTC)
	want := TLS{}.With("client", TLSPlane{Trusted: "a,b", NotAfter: at.In(time.FixedZone("east", 3600)), Problem: "tls.key is missing; add it"}).With("peer",
		TLSPlane{NotAfter: at, ComparesNames: true})
	if got := ParseTLS(want.format()); got != want {
		t.Errorf("%+v was read from %s, want %+v", got, want.format(), want)
	}
	if text := (TLS{}).format(); text != "" {
		t.Errorf("a member without TLS reports %s", text)
	}
	long := TLS{}.With("peer", TLSPlane{Problem: strings.Repeat("é", 500)})
	if text := long.format(); len(text) > 400 {
		t.Errorf("a long problem takes %d bytes", len(text))
	}
}

// TestCertificatesKeepLeaseRenewed: certificates never keep a Lease from being renewed.
// Whatever the certificates are, the Lease is renewed.
func TestCertificatesKeepLeaseRenewed(t *testing.T) {
	plane := TLSPlane{Trusted: strings.Repeat("f,", 4000), Issuer: strings.Repeat("f", 32), Problem: strings.Repeat("x", 500)}
	patch := MemberPatch{Member: Member{ID: 1, Role: RoleLeader, Rule: "resume", Reason: strings.Repeat("y", 500), TLS: TLS{Client: plane, Peer: plane}}}
	encoded, err := patch.encode()
	if err != nil {
		t.Fatal(err)
	}
	if _, kept := encoded.Metadata.Annotations[annotationTLS]; kept || encoded.Spec == nil {
		t.Errorf("the patch is %+v", encoded)
	}
	fingerprints := strings.Repeat(strings.Repeat("f", 32)+",", MaxTLSTrusted)
	plane.Trusted = fingerprints[:len(fingerprints)-1]
	plane.Running, plane.Staged = strings.Repeat("f", 16), strings.Repeat("e", 16)
	named := plane
	named.ComparesNames = true
	patch.Member.TLS = TLS{}.With("client", plane).With("peer", named)
	if encoded, err = patch.encode(); err != nil {
		t.Fatal(err)
	}
	if _, kept := encoded.Metadata.Annotations[annotationTLS]; !kept {
		t.Error("as much as an agent reports does not fit into the patch")
	}
}

// FuzzTLS: whatever the annotation says, it can be read, and is written within its bound.
func FuzzTLS(f *testing.F) {
	f.Add(`{"client":{"trusted":"a","notAfter":"2027-02-22T12:00:00Z"},"peer":{"problem":"x"}}`)
	f.Add(`{"client":null}`)
	f.Add(`[]`)
	f.Fuzz(func(t *testing.T, s string) {
		read := ParseTLS(s)
		text := read.format()
		if again := ParseTLS(text); text != "" && again.format() != text {
			t.Errorf("%q is written as %q and then as %q", s, text, again.format())
		}
	})
}
