package e2e

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/test/certmanager"
	"github.com/etcd-druid/druid/test/e2e/harness"
	"github.com/etcd-druid/druid/test/e2e/stories"
)

// cert-manager accepts no lifetime below an hour, so it renews an hour's certificate after half a minute.
const (
	issuedFor    = time.Hour
	renewedAfter = 30 * time.Second
	issuerName   = "etcd"
	// tornPairs bounds the attempts at one member that meet the moment between etcd's reads of a new certificate and of its key, for
	// minutes in which 3 members get a certificate twice a minute: one of a hundred renewals meets it.
	tornPairs = 5
)

// cert-manager issues the certificates of both planes, and renews them under a writer, also with another intermediate certificate. Nothing
// restarts for it. A member that lost its disk heals. When the issuer gets another root, the members keep what they have.
func TestCertManagerRenewsUnderAWriter(t *testing.T) {
	stories.Begin(t)
	namespace := rig.MakeNamespace(t)
	certmanager.Install(t, rig.Client)
	root := certmanager.NewRoot(t)
	certmanager.MakeIssuerBelow(t, rig.Client, namespace, issuerName, root)
	certmanager.Start(t, rig.Lab.KubeconfigPath())
	c := rig.ApplyIn(t, namespace, func(cluster *v1alpha1.EtcdCluster) {
		source := &v1alpha1.CertManagerTLS{
			IssuerRef: v1alpha1.CertManagerIssuer{Name: issuerName}, LeafLifetime: &metav1.Duration{Duration: issuedFor},
			RenewBefore: &metav1.Duration{Duration: issuedFor - renewedAfter},
		}
		cluster.Spec.TLS = &v1alpha1.TLSSpec{
			Client: &v1alpha1.ClientTLS{CertManager: source, Mode: v1alpha1.TLSMutual}, Peer: &v1alpha1.PeerTLS{CertManager: source},
		}
	})
	view := c.AwaitMembers(t, 3, formWithin)
	c.AwaitCondition(t, formWithin, "CertificatesReady", "True", "CertificatesValid")
	members := c.MemberNames(t)
	w, s := harness.Load(t, c.EtcdService(t)), c.Sample(t)
	w.AwaitWrites(t, 200, scaleWithin)
	w.Gap()
	t.Run("who has no certificate does not get in", func(t *testing.T) { outsidersStayOut(t, c, members[0]) })
	restarts, h := restartsOf(t, c, members), c.Handshake(t, members)
	for _, renewal := range []struct {
		name  string
		begin func()
	}{
		{"the certificates are renewed", func() {}},
		{"the issuer gets another intermediate certificate of the same root", func() {
			certmanager.MakeIssuerBelow(t, rig.Client, namespace, issuerName, root)
		}},
	} {
		t.Run(renewal.name, func(t *testing.T) {
			renewal.begin()
			for range 2 { // the first can be on its way already
				awaitRenewed(t, c, renewedAfter+scaleWithin, expiries(t, c, members))
			}
			c.AwaitCondition(t, scaleWithin, "CertificatesReady", "True", "CertificatesValid")
		})
	}
	clientsWereServed(t, h, tornPairs)
	if after := restartsOf(t, c, members); !slices.Equal(after, restarts) {
		t.Errorf("containers were restarted: %v, before %v", after, restarts)
	}
	t.Run("a member that lost its disk heals", func(t *testing.T) { healsOnAnEmptyDisk(t, c, view) })
	servedOn(t, w)
	t.Logf("longest time without a write: %s", w.Gap())
	s.Stop(t)
	w.Stop(t, c.Etcd(t))
	t.Run("the issuer gets another root", func(t *testing.T) {
		certmanager.MakeIssuerBelow(t, rig.Client, namespace, issuerName, certmanager.NewRoot(t))
		c.AwaitCondition(t, scaleWithin, "CertificatesReady", "False", "CertificatesRejected", "unknown to the running etcd")
		c.AwaitReady(t, 3, healWithin)
	})
}
