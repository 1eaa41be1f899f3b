package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/agent/datadir/volume"
	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/test/e2e/harness"
	"github.com/etcd-druid/druid/test/e2e/stories"
)

// goneWithin is more than a Pod's grace period of 60 s: who needs all of it is killed, and that must show elsewhere.
const goneWithin = 2 * time.Minute

// TestDeletionWithoutDruidAndNode: a cluster is deleted without druid and with a node off.
// This story powers a node off and stops druid, so it runs alone.
func TestDeletionWithoutDruidAndNode(t *testing.T) {
	stories.Begin(t)
	c := rig.Apply(t, claimsGo)
	view := c.Agree(t, 3, formWithin)
	down, away := view.Follower(), view.Leader()
	node := c.MustPod(t, away).Spec.NodeName
	rig.StopDruid(t)
	c.Delete(t, &corev1.Pod{}, down) // it is not created again
	if err := rig.Lab.StopNode(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	powerOn := sync.OnceFunc(func() { startNode(t, node) })
	t.Cleanup(powerOn)
	deleteCluster(t, c, metav1.DeletePropagationBackground)

	// The Pods of that node, and what they mount, wait for its kubelet: Kubernetes cannot know that they do not run.
	var stuck []string
	for _, member := range podsOn(t, c, node) {
		stuck = append(stuck, "Pod/"+member, harness.Claim+"/"+member)
	}
	c.AwaitLeft(t, goneWithin, stuck...)
	powerOn()
	c.AwaitLeft(t, goneWithin)
	rig.StartDruid(t)
}

func TestClusterIsDeletedWhileItForms(t *testing.T) {
	stories.Begin(t)
	c := rig.Apply(t, claimsGo)
	harness.Eventually(t, formWithin, "a first Pod on a node", func(ctx context.Context) error {
		record, err := c.Record(ctx)
		if err != nil {
			return err
		}
		for _, member := range record.Members {
			if pod, err := c.Pod(ctx, member); err == nil && pod.Spec.NodeName != "" {
				return nil
			}
		}
		return errors.New("none yet")
	})
	deleteCluster(t, c, metav1.DeletePropagationForeground)
	c.AwaitLeft(t, goneWithin)
	awaitEnd(t, c)
}

// TestDeletedClusterLeavesVolumes: a deleted cluster leaves its volumes and a new one is another.
func TestDeletedClusterLeavesVolumes(t *testing.T) {
	stories.Begin(t)
	c := rig.Apply(t, harness.Replicas(1))
	before := c.Agree(t, 1, formWithin)
	w := harness.Write(t, c.Etcd(t))
	w.AwaitWrites(t, 50, time.Minute)
	first := c.MemberNames(t)[0]
	c.Scale(t, 3)
	harness.Eventually(t, formWithin, "joiners on their way", func(ctx context.Context) error {
		record, err := c.Record(ctx)
		if err == nil && len(record.Members) != 3 {
			err = fmt.Errorf("members are %v", record.Members)
		}
		return err
	})
	deleteCluster(t, c, metav1.DeletePropagationBackground)
	awaitEnd(t, c)

	var claims []string
	harness.Eventually(t, goneWithin, "nothing but claims left of "+c.String(), func(ctx context.Context) (err error) {
		claims, err = c.Belongings(ctx)
		if i := slices.IndexFunc(claims, func(o string) bool { return !strings.HasPrefix(o, harness.Claim+"/") }); i >= 0 {
			return fmt.Errorf("%s is still there", claims[i])
		}
		return err
	})
	data := c.VolumeOf(t, first)
	if exit, err := volume.ReadExit(data.Dir); err != nil || !exit.Clean {
		t.Errorf("etcd of %s did not end in good order: %+v %v", first, exit, err)
	}
	sum := data.Fingerprint(t)

	if err := rig.Client.Create(t.Context(), harness.Definition(c.Namespace, harness.Replicas(1))); err != nil {
		t.Fatal(err)
	}
	c = rig.Attach(c.Namespace, c.Name)
	after := c.Agree(t, 1, formWithin)
	if after.ClusterID == before.ClusterID {
		harness.Unsafe(t, "the new cluster has the ID of the old one, %s", after.ClusterID)
	}
	if again := c.MemberNames(t)[0]; slices.Contains(claims, harness.Claim+"/"+again) {
		t.Errorf("the new member has the name and the volume of an old one, %s", again)
	}
	if response, err := c.Etcd(t).Get(t.Context(), "/", clientv3.WithPrefix()); err != nil || len(response.Kvs) != 0 {
		t.Errorf("the new cluster holds %d keys, want none (%v)", len(response.Kvs), err)
	}
	announces(t, c, v1alpha1.EventRetainedVolumesFound, first)
	if now := data.Fingerprint(t); now != sum {
		harness.Unsafe(t, "the volume of %s changed after its cluster was deleted", first)
	}
}

func TestNamespaceIsDeletedUnderAWriter(t *testing.T) {
	stories.Begin(t)
	c := rig.Apply(t)
	c.Agree(t, 3, formWithin)
	w := harness.Write(t, c.EtcdService(t))
	w.AwaitWrites(t, 50, time.Minute)
	ended := c.FollowLogs(t, harness.ContainerAgent)
	begun := time.Now()
	c.Destroy(t)
	text := ended()
	if n := strings.Count(text, "agent ended"); n != 3 {
		t.Errorf("%d agents ended in good order, want 3:\n%s", n, text)
	}
	for _, word := range []string{"member removal started", "superfluous member detected", `"mode":"New"`} {
		if strings.Contains(text, word) {
			t.Errorf("an agent logged %q while its cluster went:\n%s", word, text)
		}
	}
	// Once the API server has refused an object in the namespace, druid tries again every 30 seconds, whatever ends meanwhile.
	asked := rig.Since(t, begun, harness.DruidNamespace, "druid").In(c.Namespace).Writes()
	if len(asked) > 50 {
		t.Errorf("druid wrote %d times into a namespace that went:\n%s", len(asked), asked)
	}
	t.Logf("druid wrote %d times into the namespace while it went, %d writes of etcd were acknowledged", len(asked), w.Acked())
}

// claimsGo lets the claims go with the cluster.
func claimsGo(c *v1alpha1.EtcdCluster) {
	c.Spec.Storage.PersistentVolumeClaimRetentionPolicy.WhenDeleted = v1alpha1.DeletePersistentVolumeClaim
}

func deleteCluster(t *testing.T, c *harness.Cluster, propagation metav1.DeletionPropagation) {
	t.Helper()
	c.Delete(t, &v1alpha1.EtcdCluster{}, c.Name, client.PropagationPolicy(propagation))
}

// awaitEnd waits until the EtcdCluster is gone.
func awaitEnd(t *testing.T, c *harness.Cluster) {
	t.Helper()
	harness.Eventually(t, goneWithin, "the end of EtcdCluster "+c.String(), func(ctx context.Context) error {
		_, err := c.Get(ctx)
		if err == nil {
			return errors.New("it is still there")
		}
		return client.IgnoreNotFound(err)
	})
}

// podsOn are the cluster's members on a node.
func podsOn(t *testing.T, c *harness.Cluster, node string) []string {
	t.Helper()
	var pods corev1.PodList
	err := c.Rig.Client.List(t.Context(), &pods, client.InNamespace(c.Namespace))
	if err != nil {
		t.Fatal(err)
	}
	var members []string
	for _, pod := range pods.Items {
		if pod.Spec.NodeName == node {
			members = append(members, pod.Name)
		}
	}
	return members
}

// announces waits for a Warning about the cluster that names a word.
func announces(t *testing.T, c *harness.Cluster, reason, word string) {
	t.Helper()
	reportsAs(t, c, corev1.EventTypeWarning, reason, word)
}

func reportsAs(t *testing.T, c *harness.Cluster, kind, reason, word string) {
	t.Helper()
	harness.Eventually(t, time.Minute, "Event "+reason, func(ctx context.Context) error {
		var events corev1.EventList
		if err := c.Rig.Client.List(ctx, &events, client.InNamespace(c.Namespace)); err != nil {
			return err
		}
		for _, e := range events.Items {
			if e.Reason == reason && e.Type == kind && strings.Contains(e.Message, word) {
				return nil
			}
		}
		return fmt.Errorf("none of %d Events", len(events.Items))
	})
}
