package e2e

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/manifests"
	"github.com/etcd-druid/druid/test/e2e/harness"
	"github.com/etcd-druid/druid/test/e2e/stories"
)

// switchWithin bounds two rolling updates of three members, and a heal.
const switchWithin = 6 * time.Minute

// TLS is turned on for clients and peers of a running cluster, then off for clients alone and for peers alone, and on again for each alone, under
// a writer that uses plain text because spec.tls.client.plaintext allows it. A member loses its disk while peers change. No write is lost.
func TestTLSIsTurnedOnAndOffUnderAWriter(t *testing.T) {
	stories.Begin(t)
	c := rig.Apply(t)
	c.AwaitMembers(t, 3, formWithin)
	w, s := harness.Load(t, c.EtcdService(t)), c.Sample(t)
	w.AwaitWrites(t, 200, scaleWithin)
	w.Gap()
	turn := func(name, patch string, client, peer v1alpha1.TLSStage, meanwhile func()) {
		t.Helper()
		before := time.Now()
		c.Edit(t, patch)
		if meanwhile != nil {
			meanwhile()
		}
		awaitTLS(t, c, client, peer)
		c.AwaitMembers(t, 3, healWithin)
		t.Logf("%s: %s, longest time without a write %s", name, time.Since(before).Round(time.Second), w.Gap())
		servedOn(t, w)
	}
	const both, on, off = v1alpha1.TLSStageBoth, v1alpha1.TLSStageOn, v1alpha1.TLSStageOff
	const clients, peers = `"client":{"auto":{},"plaintext":"Allow"}`, `"peer":{"auto":{}}`
	turn("both on", `{"spec":{"tls":{`+clients+`,`+peers+`}}}`, both, on, func() {
		lost := awaitFirst(t, c, "has peers with TLS", func(tls leases.TLS) bool { return tls.Peer.Scheme == "https" })
		c.VolumeOf(t, lost).Wipe(t)
		c.Kill(t, lost, harness.Etcd)
	})
	if h := c.HandshakesFor(t, c.MemberNames(t), 3*time.Second); h.Made == 0 || h.Missed > 0 {
		t.Errorf("%s: %v", h, h.Why)
	}
	turn("clients off", `{"spec":{"tls":{"client":null}}}`, off, on, nil)
	turn("peers off", `{"spec":{"tls":null}}`, off, off, nil)
	turn("clients on again", `{"spec":{"tls":{`+clients+`}}}`, both, off, nil)
	turn("peers on again", `{"spec":{"tls":{`+peers+`}}}`, both, on, nil)
	s.Stop(t)
	w.Stop(t, c.Etcd(t))
}

// awaitFirst waits until the etcd of a member serves, and its Lease reports TLS as described. druid changes no other member before this one was
// ready for some seconds, so a story can take its disk now.
func awaitFirst(t *testing.T, c *harness.Cluster, what string, as func(leases.TLS) bool) (first string) {
	t.Helper()
	etcd := c.Etcd(t)
	harness.Eventually(t, switchWithin, "the first member "+what, func(ctx context.Context) error {
		for _, first = range c.MemberNames(t) {
			if m, err := c.Member(ctx, first); err != nil || as(m.TLS) {
				return errors.Join(err, c.Answers(ctx, etcd, first))
			}
		}
		return errors.New("none")
	})
	return first
}

// awaitTLS waits until every Pod uses TLS in these ways, and every etcd listens to its peers so.
func awaitTLS(t *testing.T, c *harness.Cluster, client, peer v1alpha1.TLSStage) {
	t.Helper()
	harness.Eventually(t, switchWithin, fmt.Sprintf("clients %s, peers %s", client, peer), func(ctx context.Context) error {
		for _, name := range c.MemberNames(t) {
			pod, err := c.Pod(ctx, name)
			if err != nil {
				return err
			}
			if got := manifests.PodTLS(pod, manifests.PlaneClient); got != client {
				return fmt.Errorf("%s serves clients with %s", name, got)
			}
			if got := manifests.PodTLS(pod, manifests.PlanePeer); got != peer {
				return fmt.Errorf("%s has peers with %s", name, got)
			}
			m, err := c.Member(ctx, name)
			if err != nil {
				return err
			}
			want := map[v1alpha1.TLSStage]string{v1alpha1.TLSStageBoth: "http", v1alpha1.TLSStageOn: "https"}[peer]
			if got := m.TLS.Peer.Scheme; got != want && peer != v1alpha1.TLSStageOff { // the Lease of a Pod without TLS keeps the last report
				return fmt.Errorf("%s listens to peers with %q, want %q", name, got, want)
			}
			if m.Role == leases.RoleLearner {
				return fmt.Errorf("%s is a learner", name)
			}
		}
		cluster, err := c.Get(ctx)
		if err != nil {
			return err
		}
		if off := client == v1alpha1.TLSStageOff && peer == v1alpha1.TLSStageOff; off != (cluster.Status.TLS == nil) {
			return fmt.Errorf("status.tls is %+v", cluster.Status.TLS)
		}
		return nil
	})
}
