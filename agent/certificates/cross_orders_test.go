package certificates

import (
	"crypto/tls"
	"testing"

	"github.com/etcd-druid/druid/internal/pki"
	etcd "github.com/etcd-druid/druid/test/member"
)

// The three edits by which a user replaces the root of an issuer of cert-manager, on real etcds: the old root signs the
// new one, which then takes its place, and at last signs itself. Only ca.crt of one authority is there at any time.
// Clients of the edit before and of this one are served at each restart. Without the first edit, a member is lost.
func TestRootReplacedByOneItSigned(t *testing.T) {
	// How certificates are verified depends on Go and not on the minor.
	for _, minor := range etcd.Minors[len(etcd.Minors)-1:] {
		t.Run(minor, func(t *testing.T) {
			t.Parallel()
			t.Run("in order", func(t *testing.T) {
				r, cross := crossRing(t, minor)
				first, signed, crossed := r.consumer(r.old, r.old), r.chained(cross, r.old), r.chained(cross, cross)
				served := func(step string, consumers ...*tls.Config) {
					for _, consumer := range consumers {
						r.allServe(step, consumer)
					}
				}
				for _, i := range all {
					r.issue(i, r.new, cross)
					served("the old root signs the new one", first, signed)
				}
				for _, i := range all {
					r.trust(i, cross)
					r.restart(i)
					r.shown.Store(&signed.Certificates[0])
					served("the signed one is the root", signed, crossed)
				}
				alone := r.consumer(r.new, r.new)
				for _, i := range all {
					r.issue(i, r.new)
					served("certificates of the root that signs itself", crossed, alone)
				}
				for _, i := range all {
					r.trust(i, r.new)
					r.restart(i)
					served("the root that signs itself", crossed, alone)
				}
			})
			t.Run("a member gets the certificate of the second edit at once", func(t *testing.T) {
				r, cross := crossRing(t, minor)
				r.issue(0, r.new, cross)
				r.trust(0, cross)
				r.restart(0)
				r.isLost(0, func() {
					for _, i := range all {
						r.issue(i, r.new, cross)
					}
					signed := r.chained(cross, r.old)
					r.shown.Store(&signed.Certificates[0])
				})
			})
		})
	}
}

// crossRing starts three members, and returns the new authority as the old one signs it.
func crossRing(t *testing.T, minor string) (r *ring, cross pki.Pair) {
	t.Helper()
	old := newAuthority(t, "old")
	r = &ring{T: t, old: signedBy(t, old, old), new: newAuthority(t, "new")} // an authority of pki signs no other one
	r.start(minor)
	return r, signedBy(t, r.new, r.old)
}

// chained is a client whose certificate comes with that of cross, which signed it.
func (r *ring) chained(cross, trusted pki.Pair) *tls.Config {
	r.Helper()
	c := r.consumer(r.new, trusted)
	signer, err := pki.Bundle(cross.Certificate)
	if err != nil {
		r.Fatal(err)
	}
	c.Certificates[0].Certificate = append(c.Certificates[0].Certificate, signer[0].Raw)
	return c
}
