package e2e

import (
	"bytes"
	"context"
	"crypto/x509"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/pki"
	"github.com/etcd-druid/druid/manifests"
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
	root := certmanager.NewRoot(t, "root")
	certmanager.MakeIssuerBelow(t, rig.Client, namespace, issuerName, root)
	certmanager.Start(t, rig.Lab.KubeconfigPath())
	c := rig.ApplyIn(t, namespace, issued)
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
		certmanager.MakeIssuerBelow(t, rig.Client, namespace, issuerName, certmanager.NewRoot(t, "another root"))
		c.AwaitCondition(t, scaleWithin, "CertificatesReady", "False", "CertificatesRejected", "unknown to the running etcd")
		c.AwaitReady(t, 3, healWithin)
	})
}

// issued lets the issuer sign the certificates of both planes, and cert-manager renew them twice a minute.
func issued(cluster *v1alpha1.EtcdCluster) {
	source := &v1alpha1.CertManagerTLS{
		IssuerRef: v1alpha1.CertManagerIssuer{Name: issuerName}, LeafLifetime: &metav1.Duration{Duration: issuedFor},
		RenewBefore: &metav1.Duration{Duration: issuedFor - renewedAfter},
	}
	cluster.Spec.TLS = &v1alpha1.TLSSpec{
		Client: &v1alpha1.ClientTLS{CertManager: source, Mode: v1alpha1.TLSMutual}, Peer: &v1alpha1.PeerTLS{CertManager: source},
	}
}

// The root of an issuer is replaced by one that it signed, in three edits of the Secret of the issuer, as the guide says, under a writer and
// while clients connect all the time. No connection of a client fails, and no write is lost.
func TestIssuerRootReplaced(t *testing.T) {
	stories.Begin(t)
	namespace := rig.MakeNamespace(t)
	certmanager.Install(t, rig.Client)
	before, after := certmanager.NewRoot(t, "before"), certmanager.NewRoot(t, "after")
	cross := after.SignedBy(t, before)
	certmanager.MakeIssuerBelow(t, rig.Client, namespace, issuerName, before)
	certmanager.Start(t, rig.Lab.KubeconfigPath())
	c := rig.ApplyIn(t, namespace, issued)
	c.AwaitMembers(t, 3, formWithin)
	c.AwaitCondition(t, formWithin, "CertificatesReady", "True", "CertificatesValid")
	edit := func(authority, root *certmanager.Root, signers ...*certmanager.Root) func() {
		return func() {
			certmanager.MakeIssuerOf(t, rig.Client, namespace, issuerName, authority, signers...)
			awaitIssued(t, c, authority, root)
		}
	}
	old, signed, next := pki.Fingerprint(before.Certificate), pki.Fingerprint(cross.Certificate), pki.Fingerprint(after.Certificate)
	replacesAuthority(t, c, tornPairs, []trustEdit{
		{"the old root signs the new one", edit(cross, before, before), old, old, 1},
		{"the new root is trusted as the old one signed it", edit(cross, cross), signed, signed, 1},
		{"the new root signs itself", edit(after, after), next, next, 1},
	})
}

// awaitIssued waits until the Secrets of all Certificates of the cluster have a certificate that the authority signed, and the root alone in
// ca.crt.
func awaitIssued(t *testing.T, c *harness.Cluster, authority, root *certmanager.Root) {
	t.Helper()
	harness.Eventually(t, renewedAfter+scaleWithin, "all Certificates are renewed", func(ctx context.Context) error {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(manifests.CertificateKind.GroupVersion().WithKind("CertificateList"))
		if err := rig.Client.List(ctx, list, client.InNamespace(c.Namespace)); err != nil {
			return err
		}
		if len(list.Items) < 5 {
			return fmt.Errorf("there are %d Certificates, want those of members, agents, peers and clients", len(list.Items))
		}
		for _, item := range list.Items {
			name, _, _ := unstructured.NestedString(item.Object, "spec", "secretName")
			var secret corev1.Secret
			if err := rig.Client.Get(ctx, harness.Key(c.Namespace, name), &secret); err != nil {
				return err
			}
			leaf, err := pki.Leaf(pki.Pair{Certificate: secret.Data[corev1.TLSCertKey], Key: secret.Data[corev1.TLSPrivateKeyKey]})
			if err != nil {
				return err
			}
			if err := leaf.CheckSignatureFrom(authority.Certificate); err != nil {
				return fmt.Errorf("Secret %s: %w", name, err)
			}
			if !bytes.Equal(secret.Data[manifests.KeyAuthorities], pki.Encode([]*x509.Certificate{root.Certificate})) {
				return fmt.Errorf("Secret %s has other authorities in ca.crt", name)
			}
		}
		return nil
	})
}
