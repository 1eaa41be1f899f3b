package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/manifests"
	"github.com/etcd-druid/druid/test/e2e/harness"
	"github.com/etcd-druid/druid/test/e2e/stories"
	"github.com/etcd-druid/druid/test/rig/lab"
)

// clientHold is the time that druid gives clients: within it two kube-apiservers restart, and the kubelets write the new certificates.
const clientHold = 100 * time.Second

// forKubernetes gives the cluster TLS and authentication. kube-apiserver has a certificate and a user of its own.
func forKubernetes(c *v1alpha1.EtcdCluster) {
	harness.Replacing(caLifetime, clientHold)(c)
	c.Spec.TLS.Client.Clients = []v1alpha1.TLSClient{{Name: "kubernetes", CommonName: "kube-apiserver"}}
	root := []string{"root"}
	c.Spec.Auth = &v1alpha1.AuthSpec{Enabled: true, Users: []v1alpha1.AuthUser{
		{Name: "kube-apiserver", CertificateCN: "kube-apiserver", Roles: root}, {Name: "client", CertificateCN: "client", Roles: root},
	}}
}

// TestKubernetesAPIServersServed: Kubernetes API servers are served through all changes.
// Two kube-apiservers keep their objects in a cluster with TLS and authentication. All the while that members are lost, drained, added,
// removed and upgraded, and the certificate authority is replaced, no request fails and the watch misses nothing.
func TestKubernetesAPIServersServed(t *testing.T) {
	stories.Begin(t)
	c := rig.Apply(t, harness.StorageClass(lab.NetworkClass), harness.Version(rig.EtcdVersion(t, "3.6")), forKubernetes)
	view := c.AwaitMembers(t, 3, formWithin)
	c.AwaitCondition(t, formWithin, "AuthReady", "True")
	servers := c.StartAPIServers(t, manifests.ClientServiceName(c.Name)+"-kubernetes", 2)
	objects := harness.CreateObjects(t, servers.Client(t))
	step := func(name string, act func(t *testing.T)) {
		t.Run(name, func(t *testing.T) {
			createdBefore, failedBefore := objects.Note()
			act(t)
			created, failed := objects.Note()
			t.Logf("%d objects were created, %d requests failed", created-createdBefore, failed-failedBefore)
		})
	}
	step("a follower loses its disk", func(t *testing.T) {
		lost := view.Follower()
		c.VolumeOf(t, lost).Wipe(t)
		objects.Cut(func() { c.Kill(t, lost, harness.Etcd) })
		view = joinsAgain(t, c, view, lost)
	})
	step("the node of the leader is drained", func(t *testing.T) {
		cluster, err := c.Get(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		node := c.MustPod(t, view.Leader()).Spec.NodeName
		t.Cleanup(func() { uncordon(t, []string{node}) })
		if err := drain(t.Context(), cluster, node); err != nil {
			t.Fatal(err)
		}
		uncordon(t, []string{node})
		view = c.AwaitMembers(t, 3, scaleWithin)
	})
	step("members are added and removed", func(t *testing.T) {
		c.ScaleTo(t, 5, scaleWithin)
		c.ScaleTo(t, 3, scaleWithin)
	})
	step("etcd is upgraded", func(t *testing.T) {
		version := rig.EtcdVersion(t, "3.7")
		c.Edit(t, fmt.Sprintf(`{"spec":{"version":%q}}`, version))
		c.AwaitCondition(t, upgradeWithin, v1alpha1.ConditionProgressing, "True", v1alpha1.ReasonUpgrading, version)
		c.AwaitCondition(t, upgradeWithin, v1alpha1.ConditionProgressing, "False", v1alpha1.ReasonReconciled)
	})
	step("the certificate authorities are replaced", func(t *testing.T) {
		before := authoritiesOf(t, c)
		c.Edit(t, fmt.Sprintf(`{"metadata":{"annotations":{%q:"client,peer"}}}`, v1alpha1.RotateCAAnnotation))
		// As the guide says: kube-apiserver reads its certificate again by itself, and the authorities only when it starts.
		harness.Eventually(t, rotateWithin, "druid waits for clients", func(ctx context.Context) error {
			return inPhase(ctx, c, v1alpha1.TLSWaitingForClients)
		})
		servers.Restart(t)
		awaitReplaced(t, c, before, rotateWithin)
	})
	created, slowest, failed := objects.Stop(t)
	t.Logf("%d objects were created, the slowest in %s; %d requests failed: %v", created, slowest.Round(time.Millisecond), len(failed), failed)
	if len(failed) > 0 || created < 500 {
		t.Errorf("%d requests failed, and %d objects were created", len(failed), created)
	}
}

// inPhase returns an error unless the client plane is in the phase, and the Secrets of all clients have what the phase needs.
func inPhase(ctx context.Context, c *harness.Cluster, phase v1alpha1.TLSPhase) error {
	cluster, err := c.Get(ctx)
	if err != nil {
		return err
	}
	s := cluster.Status.TLS.Client
	if s.Phase != phase || s.DistributedAt == nil {
		return fmt.Errorf("it is %s, distributed at %v: %s", s.Phase, s.DistributedAt, s.Message)
	}
	return nil
}
