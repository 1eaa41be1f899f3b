package e2e

import (
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/test/e2e/harness"
	"github.com/etcd-druid/druid/test/e2e/stories"
	"github.com/etcd-druid/druid/test/rig/lab"
)

func TestWhatCannotBeIsRefusedWithASentence(t *testing.T) {
	stories.Begin(t)
	for name, test := range map[string]struct {
		change harness.Option
		want   string
	}{
		"an even number of replicas": {harness.Replicas(2), "survives no more failures"},
		"a negative number":          {harness.Replicas(-1), "greater than or equal to 0"},
		"storage of no size": {
			func(c *v1alpha1.EtcdCluster) { c.Spec.Storage.Size = resource.MustParse("0") }, "greater than zero",
		},
		"a version that does not exist": {harness.Version("4.0.0"), "spec.version"},
		"a version that is no version":  {harness.Version("latest"), "spec.version"},
		"a version that loses data":     {harness.Version("3.5.2"), "3.5"},
		"a name of 60 characters":       {harness.Named(strings.Repeat("n", 60)), "at most 50 characters"},
		"a name with a dot":             {harness.Named("a.b"), "must not contain dots"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := rig.Client.Create(t.Context(), harness.Definition("default", test.change))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want a refusal that says %q", err, test.want)
			}
		})
	}
}

// TestBootstrapProblemsRepaired: problems of a bootstrap are reported and can be repaired.
func TestBootstrapProblemsRepaired(t *testing.T) {
	stories.Begin(t)

	t.Run("a storage class that does not exist", func(t *testing.T) {
		t.Parallel()
		c := rig.Apply(t, harness.Replicas(1), harness.StorageClass("no-such-class"))
		c.AwaitCondition(t, healWithin, "Degraded", "True", "no-such-class")
		c.AwaitCondition(t, healWithin, "Ready", "False", "Forming")
	})

	t.Run("an image that cannot be pulled", func(t *testing.T) {
		t.Parallel()
		c := rig.Apply(t, harness.Replicas(1), harness.Image("registry.invalid/etcd"))
		c.AwaitCondition(t, healWithin, "Degraded", "True", "registry.invalid/etcd")
		c.AwaitCondition(t, healWithin, "Ready", "False", "Forming")
	})

	t.Run("a Lease of someone else under the name of ours", func(t *testing.T) {
		t.Parallel()
		namespace := rig.MakeNamespace(t)
		foreign := &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: leases.RecordName("etcd")},
		}
		if err := rig.Client.Create(t.Context(), foreign); err != nil {
			t.Fatal(err)
		}
		c := rig.ApplyIn(t, namespace, harness.Replicas(1))
		c.AwaitCondition(t, healWithin, "Degraded", "True", foreign.Name)
		now, err := c.Lease(t.Context(), foreign.Name)
		if err != nil {
			t.Fatal(err)
		}
		if now.ResourceVersion != foreign.ResourceVersion {
			t.Errorf("the foreign Lease was changed: %+v", now)
		}
		c.Delete(t, now, now.Name)
		c.Agree(t, 1, formWithin)
		c.AwaitCondition(t, healWithin, "Degraded", "False")
	})

	t.Run("an image that cannot be pulled until the deadline has passed", func(t *testing.T) {
		t.Parallel()
		c := rig.Apply(t, harness.Replicas(1), harness.Image("registry.invalid/etcd"), func(c *v1alpha1.EtcdCluster) { c.Spec.ProgressDeadlineSeconds = 30 })
		c.AwaitCondition(t, healWithin, "Progressing", "False", v1alpha1.ReasonBootstrapFailed, "registry.invalid/etcd")
		reportsAs(t, c, corev1.EventTypeWarning, v1alpha1.ReasonBootstrapFailed, "did not form before the deadline")
		// As docs/how-to/run/edit.md says: correct the cause, and then extend the deadline.
		c.Edit(t, `{"spec":{"image":null,"progressDeadlineSeconds":null}}`)
		c.AwaitCondition(t, healWithin, "Progressing", "False", v1alpha1.ReasonBootstrapFailed, "is not accepted")
		until := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
		kubectl(t, "", "patch", "etcdcluster", c.Name, "--namespace="+c.Namespace, "--subresource=status", "--type=merge",
			`--patch={"status":{"progressDeadline":"`+until+`"}}`)
		c.Agree(t, 1, formWithin)
		c.AwaitCondition(t, healWithin, "Progressing", "False", v1alpha1.ReasonReconciled)
	})
}

// TestWrongVolumeRefusedWithoutLoss: a volume that is not the member's is refused and nothing is lost.
func TestWrongVolumeRefusedWithoutLoss(t *testing.T) {
	stories.Begin(t)
	ours := rig.Apply(t, harness.StorageClass(lab.NetworkClass))
	theirs := rig.Apply(t, harness.Replicas(1))
	view := ours.Agree(t, 3, formWithin)
	theirs.Agree(t, 1, formWithin)
	w := harness.Write(t, ours.Etcd(t))
	w.AwaitWrites(t, 50, time.Minute)
	member := view.Follower()

	t.Run("another cluster's data", func(t *testing.T) {
		hold := ours.HoldDown(t, member)
		volume := ours.VolumeOf(t, member)
		own := volume.Copy(t)
		heldDown := theirs.HoldDown(t, theirs.MemberNames(t)[0])
		volume.SetTo(t, theirs.VolumeOf(t, theirs.MemberNames(t)[0]))
		former := string(ours.MustPod(t, member).UID)
		hold.Release(t)
		awaitSuccessor(t, ours, member, former)
		waits(t, ours, member)
		ours.AwaitCondition(t, healWithin, "Degraded", "True", member)
		ours.AwaitCondition(t, healWithin, "Ready", "True")
		if !volume.Has(t, "data/member/wal/*.wal") {
			harness.Unsafe(t, "the other cluster's data are gone from the volume")
		}
		hold = ours.HoldDown(t, member)
		volume.SetTo(t, own)
		hold.Release(t)
		heldDown.Release(t)
		same(t, view, ours.Agree(t, 3, healWithin))
		ours.AwaitCondition(t, healWithin, "Degraded", "False")
		theirs.Agree(t, 1, healWithin)
	})

	t.Run("a volume that our user may not write to", func(t *testing.T) {
		hold := ours.HoldDown(t, member)
		volume := ours.VolumeOf(t, member)
		volume.Refuse(t)
		former := string(ours.MustPod(t, member).UID)
		hold.Release(t)
		awaitSuccessor(t, ours, member, former)
		ours.AwaitCondition(t, healWithin, "Degraded", "True", member)
		ours.AwaitCondition(t, healWithin, "Ready", "True")
		volume.Accept(t)
		same(t, view, ours.Agree(t, 3, healWithin))
		ours.AwaitCondition(t, healWithin, "Degraded", "False")
	})

	w.Stop(t, ours.Etcd(t))
}

// A cluster that runs on nodes whose emptyDirs are mounted noexec cannot start the agent from there.
func TestNoexecAgentVolumeIsReported(t *testing.T) {
	stories.Begin(t)
	const unpullable = "registry.invalid/etcd"
	c := rig.Apply(t, harness.Replicas(1), harness.Image(unpullable))
	member := c.MemberNames(t)[0]
	// The etcd container cannot start yet, so that there is time to remount the volume below it.
	c.AwaitCondition(t, healWithin, "Degraded", "True", unpullable)
	c.MountAgentVolumeNoexec(t, member)
	c.SetImage(t, member, harness.ContainerEtcd, "gcr.io/etcd-development/etcd:v"+rig.EtcdVersion(t, "3.6"))
	c.AwaitCondition(t, healWithin, "Degraded", "True", member, "exec")
	if pod := c.MustPod(t, member); pod.Status.Phase == corev1.PodFailed {
		t.Errorf("the Pod failed for good")
	}
}
