package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/pki"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/manifests"
	"github.com/etcd-druid/druid/test/e2e/harness"
	"github.com/etcd-druid/druid/test/e2e/stories"
)

// A user replaces the authority of the certificates in three edits of the Secrets, as the guide says, under a writer
// and while clients connect all the time. No connection of a client fails, and no write is lost.
func TestUserAuthorityReplaced(t *testing.T) {
	stories.Begin(t)
	namespace := rig.MakeNamespace(t)
	before, after := newUser(t, namespace), newUser(t, namespace)
	both := append(append([]byte{}, before.pair.Certificate...), after.pair.Certificate...)
	put := func(u *user, trusted []byte) {
		for name, request := range map[string]pki.Request{"clients": u.server, "peers": u.server, manifests.ConnectionName("etcd"): u.client} {
			data := u.data(request)
			data[manifests.KeyAuthorities] = trusted
			u.put(name, data)
		}
	}
	put(before, before.pair.Certificate)
	c := rig.ApplyIn(t, namespace, func(cluster *v1alpha1.EtcdCluster) {
		cluster.Spec.TLS = &v1alpha1.TLSSpec{
			Client: &v1alpha1.ClientTLS{SecretRef: &v1alpha1.TLSSecretRef{Name: "clients"}, Mode: v1alpha1.TLSMutual},
			Peer:   &v1alpha1.PeerTLS{SecretRef: &v1alpha1.TLSSecretRef{Name: "peers", ClientName: manifests.ConnectionName("etcd")}},
		}
	})
	c.AwaitMembers(t, 3, formWithin)
	edit := func(u *user, trusted []byte) func() {
		return func() {
			put(u, trusted)
			u.nudge(c, c.MemberNames(t))
		}
	}
	old, next := fingerprintOf(t, before), fingerprintOf(t, after)
	replacesAuthority(t, c, 0, []trustEdit{
		{"members trust both", edit(before, both), old + "," + next, old, 2},
		{"the new authority signs", edit(after, both), old + "," + next, next, 2},
		{"members trust the new one alone", edit(after, after.pair.Certificate), next, next, 1},
	})
}

// trustEdit is one edit in the replacement of an authority. Afterwards all members run with the authorities runs, a certificate of issuer is in
// use, and the status has as many issuers.
type trustEdit struct {
	name         string
	make         func()
	runs, issuer string
	issuers      int
}

// replacesAuthority makes the edits one after the other under a writer and while clients connect all the time. At most so many attempts at one
// member may meet the moment at which etcd reads a new certificate and key.
func replacesAuthority(t *testing.T, c *harness.Cluster, refused int, edits []trustEdit) {
	t.Helper()
	members := c.MemberNames(t)
	w, s := harness.Load(t, c.EtcdService(t)), c.Sample(t)
	w.AwaitWrites(t, 200, scaleWithin)
	w.Gap()
	h, began := c.Handshake(t, members), time.Now()
	for _, edit := range edits {
		t.Run(edit.name, func(t *testing.T) {
			edit.make()
			awaitTrust(t, c, members, edit.runs, edit.issuer, edit.issuers)
			c.AwaitMembers(t, 3, scaleWithin)
			t.Logf("longest time without a write: %s", w.Gap())
		})
		if t.Failed() {
			break
		}
	}
	t.Logf("the authority was replaced in %s", time.Since(began).Round(time.Second))
	clientsWereServed(t, h, refused)
	servedOn(t, w)
	s.Stop(t)
	w.Stop(t, c.Etcd(t))
}

func fingerprintOf(t *testing.T, u *user) string {
	t.Helper()
	all, err := pki.Bundle(u.data(u.server)[manifests.KeyAuthorities])
	if err != nil {
		t.Fatal(err)
	}
	return pki.Fingerprint(all[0])
}

// awaitTrust waits until every member runs with the authorities, uses a certificate of issuer, and the status lists as many issuers.
func awaitTrust(t *testing.T, c *harness.Cluster, members []string, runs, issuer string, issuers int) {
	t.Helper()
	harness.Eventually(t, rotateWithin, "all members use it", func(ctx context.Context) error {
		cluster, err := c.Get(ctx)
		if err != nil {
			return err
		}
		if n, m := len(cluster.Status.TLS.Client.Issuers), len(cluster.Status.TLS.Peer.Issuers); n != issuers || m != issuers {
			return fmt.Errorf("the status has %d and %d issuers, want %d", n, m, issuers)
		}
		for _, name := range members {
			m, err := c.Member(ctx, name)
			if err != nil {
				return err
			}
			for _, p := range []leases.TLSPlane{m.TLS.Client, m.TLS.Peer} {
				if p.Trusted != runs || p.Issuer != issuer || p.Problem != "" {
					return fmt.Errorf("%s has %+v", name, p)
				}
			}
		}
		return nil
	})
}
