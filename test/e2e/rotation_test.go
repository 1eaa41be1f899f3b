package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

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
