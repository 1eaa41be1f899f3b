package e2e

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/manifests"
	"github.com/etcd-druid/druid/test/e2e/harness"
	"github.com/etcd-druid/druid/test/e2e/stories"
)

const (
	// caLifetime is so short that the status shows its end within the hour, and so long that two rolling updates fit into it.
	caLifetime = 30 * time.Minute
	// trustHold is enough for the clients of the test, which read their Secret for each connection.
	trustHold = 15 * time.Second
	// leastCALifetime and leavesOfMinutes are about the shortest that the API accepts. Two thirds pass before druid begins to replace the authorities
	// by itself, and a twelfth is the longest wait for clients.
	leastCALifetime, leavesOfMinutes, longestHold = 10 * time.Minute, 3 * time.Minute, 50 * time.Second
	// rotateWithin is the time for two rolling updates of three members next to other work.
	rotateWithin = 15 * time.Minute
)

// Both certificate authorities are replaced, first because a user requests it and then because a third of their lifetime is left,
// under a writer and while clients connect all the time. When the first member trusts the next authority too, the cluster scales: to five, while
// a member loses its disk, and then back to three. No connection of a client fails, and no write is lost.
func TestAuthoritiesAreReplacedUnderAWriter(t *testing.T) {
	stories.Begin(t)
	c := rig.Apply(t, harness.Replacing(caLifetime, trustHold))
	view := c.AwaitMembers(t, 3, formWithin)
	c.AwaitCondition(t, formWithin, "CertificatesReady", "True", "CertificatesValid")
	members := c.MemberNames(t)
	w, s := harness.Load(t, c.EtcdService(t)), c.Sample(t)
	w.AwaitWrites(t, 200, scaleWithin)
	w.Gap()
	h := c.Handshake(t, members)
	longer := 4 * caLifetime
	for _, request := range []struct {
		name, patch string
		replicas    int
	}{
		{"at once", fmt.Sprintf(`{"metadata":{"annotations":{%q:"at once"}}}`, v1alpha1.RotateCAAnnotation), 5},
		{"when a third of the lifetime is left",
			fmt.Sprintf(`{"spec":{"tls":{"client":{"auto":{"caLifetime":%q}},"peer":{"auto":{"caLifetime":%q}}}}}`, longer, longer), 3},
	} {
		t.Run(request.name, func(t *testing.T) {
			before, began := authoritiesOf(t, c), time.Now()
			c.Edit(t, request.patch)
			first := awaitFirst(t, c, "trusts two authorities", func(tls leases.TLS) bool { return strings.Contains(tls.Client.Trusted, ",") })
			grows := request.replicas > 3
			if grows {
				c.VolumeOf(t, first).Wipe(t)
				c.Kill(t, first, harness.Etcd)
			}
			c.Scale(t, int32(request.replicas))
			phases := awaitReplaced(t, c, before, rotateWithin)
			t.Logf("both authorities were replaced in %s: %v", time.Since(began).Round(time.Second), phases)
			t.Logf("longest time without a write: %s", w.Gap())
			after := c.AwaitMembers(t, request.replicas, scaleWithin)
			if id := view.IDs()[first]; grows && after.IDs()[first] == id {
				t.Errorf("%s lost its disk, and still has ID %s", first, id)
			}
		})
		if t.Failed() {
			break
		}
	}
	clientsWereServed(t, h, 0)
	cluster, err := c.Get(t.Context())
	if err != nil || cluster.Status.TLS.Client.Trusted[0].Generation != 3 || cluster.Status.TLS.Peer.Trusted[0].Generation != 3 {
		t.Errorf("the request was handled more than once, although the annotation stays: %+v (%v)", cluster.Status.TLS, err)
	}
	t.Run("who has a certificate of another authority does not get in", func(t *testing.T) { outsidersStayOut(t, c, c.MemberNames(t)[0]) })
	servedOn(t, w)
	s.Stop(t)
	w.Stop(t, c.Etcd(t))
	c.ShowsNoSecret(t, nil, manifests.ConnectionName(c.Name)+"/tls.key")
}

// bothTrusted is the metric of druid while both planes of a cluster trust two authorities.
var bothTrusted = regexp.MustCompile(`(?m)^etcd_druid_certificate_authorities\{phase="(TrustingBoth|WaitingForClients)"\} [1-9]`)

// TestAuthoritiesAreReplacedByTime: both authorities are replaced without a request, while druid is upgraded.
// Both certificate authorities live so short that druid replaces them while the story runs, under a writer and while clients connect all the
// time. When the first member trusts both, the agent of the leader is killed, and druid and all agents are upgraded. The wait for clients goes
// on. No connection of a client fails, and no write is lost.
func TestAuthoritiesAreReplacedByTime(t *testing.T) {
	stories.Begin(t)
	tagNextDruid(t)
	c := rig.Apply(t, harness.Replacing(leastCALifetime, longestHold), func(cluster *v1alpha1.EtcdCluster) {
		leaf := &metav1.Duration{Duration: leavesOfMinutes}
		cluster.Spec.TLS.Client.Auto.LeafLifetime, cluster.Spec.TLS.Peer.Auto.LeafLifetime = leaf, leaf
	})
	view := c.AwaitMembers(t, 3, formWithin)
	c.AwaitCondition(t, formWithin, "CertificatesReady", "True", "CertificatesValid")
	before := authoritiesOf(t, c)
	w, s := harness.Load(t, c.EtcdService(t)), c.Sample(t)
	w.AwaitWrites(t, 200, scaleWithin)
	w.Gap()
	h := c.Handshake(t, c.MemberNames(t))
	c.AwaitCondition(t, leastCALifetime, "CertificatesReady", "True", "druid replaces the client authority", "druid replaces the peer authority")
	began := time.Now()
	first := awaitFirst(t, c, "trusts two authorities", func(tls leases.TLS) bool { return strings.Contains(tls.Client.Trusted, ",") })
	since := waitsSince(t, c, before[0])
	rig.AwaitDruidMetric(t, time.Minute, bothTrusted)
	c.Kill(t, view.Leader(), harness.Agent)
	anotherDruidLeads(t, nextDruid)
	t.Logf("%s was the first to trust two, and another druid led after %s", first, time.Since(began).Round(time.Second))
	if again := waitsSince(t, c, before[0]); again != "" && again != since {
		t.Errorf("the wait for clients began at %s, and with another druid at %s", since, again)
	}
	awaitNextSigns(t, c, before[0])
	phases := awaitReplaced(t, c, before, rotateWithin)
	t.Logf("both authorities were replaced in %s: %v", time.Since(began).Round(time.Second), phases)
	t.Logf("longest time without a write: %s", w.Gap())
	same(t, view, c.AwaitMembers(t, 3, scaleWithin))
	for member := range view.Members {
		if image := c.MustPod(t, member).Spec.InitContainers[1].Image; image != nextDruid {
			t.Errorf("the agent of %s is of image %s", member, image)
		}
	}
	clientsWereServed(t, h, 3*len(view.Members))
	cluster, err := c.Get(t.Context())
	if err != nil || cluster.Status.TLS.Client.LastHandledRotateCA != "" || cluster.Annotations[v1alpha1.RotateCAAnnotation] != "" {
		t.Errorf("a request replaced the authorities: %+v (%v)", cluster.Status.TLS, err)
	}
	servedOn(t, w)
	s.Stop(t)
	w.Stop(t, c.Etcd(t))
}

// waitsSince is since when clients have what they need to trust the authority after this one. It is empty if another one signs.
func waitsSince(t *testing.T, c *harness.Cluster, signing string) (since string) {
	t.Helper()
	harness.Eventually(t, scaleWithin, "clients have the next authority", func(ctx context.Context) error {
		cluster, err := c.Get(ctx)
		if err != nil || cluster.Status.TLS.Client.Authority != signing {
			return err
		}
		if cluster.Status.TLS.Client.DistributedAt == nil {
			return errors.New("not all of their Secrets have it")
		}
		since = cluster.Status.TLS.Client.DistributedAt.String()
		t.Logf("clients have the next authority since %s, and %v are counted", since, cluster.Status.TLS.Client.HeldFor)
		return nil
	})
	return since
}

// awaitNextSigns waits until another authority signs for clients, and logs how much of the lifetime of the old one is left then.
func awaitNextSigns(t *testing.T, c *harness.Cluster, before string) {
	t.Helper()
	var old v1alpha1.TLSAuthority
	harness.Eventually(t, rotateWithin, "the next authority signs", func(ctx context.Context) error {
		cluster, err := c.Get(ctx)
		if err != nil {
			return err
		}
		old = cluster.Status.TLS.Client.Trusted[0]
		if s := cluster.Status.TLS.Client; s.Authority == before {
			err = fmt.Errorf("phase %s, message %q", s.Phase, s.Message)
		}
		return err
	})
	t.Logf("the next authority signs %s before the end of %s", time.Until(old.NotAfter.Time).Round(time.Second), old.Fingerprint)
}

func authoritiesOf(t *testing.T, c *harness.Cluster) [2]string {
	t.Helper()
	cluster, err := c.Get(t.Context())
	if err != nil || cluster.Status.TLS == nil || cluster.Status.TLS.Client == nil || cluster.Status.TLS.Peer == nil {
		t.Fatalf("status.tls is %v (%v)", cluster.Status.TLS, err)
	}
	return [2]string{cluster.Status.TLS.Client.Authority, cluster.Status.TLS.Peer.Authority}
}

// awaitReplaced waits until both planes use one other authority alone, and returns the phases of the client plane on the way.
func awaitReplaced(t *testing.T, c *harness.Cluster, before [2]string, within time.Duration) (phases []v1alpha1.TLSPhase) {
	t.Helper()
	harness.Eventually(t, within, "both authorities are replaced", func(ctx context.Context) error {
		cluster, err := c.Get(ctx)
		if err != nil {
			return err
		}
		for i, s := range []*v1alpha1.TLSPlaneStatus{cluster.Status.TLS.Client, cluster.Status.TLS.Peer} {
			if i == 0 && (len(phases) == 0 || phases[len(phases)-1] != s.Phase) {
				phases = append(phases, s.Phase)
			}
			if s.Phase != v1alpha1.TLSStable || s.Authority == before[i] || len(s.Trusted) != 1 {
				err = fmt.Errorf("phase %s, %d authorities are trusted, message %q", s.Phase, len(s.Trusted), s.Message)
			}
		}
		return err
	})
	return phases
}
