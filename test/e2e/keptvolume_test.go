package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/manifests"
	"github.com/etcd-druid/druid/test/e2e/harness"
	"github.com/etcd-druid/druid/test/e2e/stories"
)

// A member is replaced under a writer, as the page about kept volumes says. Its volume stays with its data, and an etcd in the Pod of the
// page has each write from before the request. Then the volume is discarded. In a scale-down, only the volume that the user names stays.
func TestVolumeOfReplacedMemberKept(t *testing.T) {
	stories.Begin(t)
	c := rig.Apply(t, harness.Named(demo), func(c *v1alpha1.EtcdCluster) { c.Spec.Storage.Size = resource.MustParse("16Gi") })
	view := c.AwaitMembers(t, 3, formWithin)
	etcd := c.EtcdService(t)
	w, s := harness.Write(t, etcd), c.Sample(t)
	w.AwaitWrites(t, 100, scaleWithin)
	x := keptVolume{cluster: c, member: view.Leader(), uid: string(claimOf(t, c, view.Leader()).UID), written: w.Written()}
	volume := claimOf(t, c, x.member).Spec.VolumeName
	p := openPage(t, "how-to/run/keep-volume.md", c)
	p.replaced["demo-lgmkl"] = x.member
	p.before["kubectl annotate etcdcluster demo etcd.druid.dev/keep-volume-"] = func() { view = x.leaves(t, etcd, view) }
	p.excerpt = x.isCreated
	p.before["kubectl delete pod inspect"] = func() { x.isRead(t) }
	p.follow(t)
	x.isGone(t, volume)
	servedOn(t, w)
	x.staysInScaleDown(t, view)
	s.Stop(t)
	w.Stop(t, c.Etcd(t))
}

// keptVolume is the volume of a member that is replaced.
type keptVolume struct {
	cluster     *harness.Cluster
	member, uid string
	// written are the writes that were acknowledged before the replacement was requested.
	written map[string]int64
	// sum is the checksum of the volume when the member had left.
	sum string
}

// leaves waits until the member has left, and checks that its volume stays for nothing but the user.
func (x *keptVolume) leaves(t *testing.T, etcd *clientv3.Client, before harness.View) harness.View {
	t.Helper()
	awaitDeparture(t, x.cluster, etcd, x.member, 3)
	after := x.cluster.AwaitMembers(t, 3, scaleWithin)
	stayed(t, before, after, 2)
	x.cluster.AwaitCondition(t, scaleWithin, v1alpha1.ConditionProgressing, "False", v1alpha1.ReasonReconciled)
	isKept(t, x.cluster, x.member, x.uid)
	return after
}

// isKept checks that the claim of a removed member is the former one, that nothing connects it with a member, and that it has the data.
func isKept(t *testing.T, c *harness.Cluster, member, uid string) {
	t.Helper()
	reportsAs(t, c, corev1.EventTypeNormal, v1alpha1.EventPVCRetained, member)
	claim := claimOf(t, c, member)
	if string(claim.UID) != uid || claim.DeletionTimestamp != nil || len(claim.OwnerReferences) > 0 || claim.Labels[leases.LabelCluster] != c.Name {
		t.Errorf("the claim is %+v, want the one with UID %s, without owner, and with the name of the cluster", claim.ObjectMeta, uid)
	}
	for _, label := range []string{leases.LabelMember, leases.LabelComponent, manifests.LabelClusterUID} {
		if value, has := claim.Labels[label]; has {
			t.Errorf("the claim has label %s with value %q", label, value)
		}
	}
	if !c.VolumeOf(t, member).Has(t, "data/member/snap/db") {
		harness.Unsafe(t, "the volume of %s does not have its data", member)
	}
}

// inspect is the Pod of the page, in which an etcd has the data of a removed member.
const inspect = "inspect"

// image is what a reader replaces in the Pod of the page: the version of etcd.
var image = regexp.MustCompile(`image: \S+`)

// isCreated creates the Pod of the page.
func (x *keptVolume) isCreated(t *testing.T, text string) {
	t.Helper()
	c := x.cluster
	containers := c.MustPod(t, c.MemberNames(t)[0]).Spec.Containers
	etcd := containers[slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == harness.ContainerEtcd })]
	if strings.Count(text, "demo-lgmkl") != 1 {
		t.Fatalf("the Pod does not name the volume once:\n%s", text)
	}
	pod := &corev1.Pod{}
	text = image.ReplaceAllString(strings.ReplaceAll(text, "demo-lgmkl", x.member), "image: "+etcd.Image)
	if err := yaml.UnmarshalStrict([]byte(text), pod); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	pod.Namespace = c.Namespace
	x.sum = c.VolumeOf(t, x.member).Fingerprint(t)
	if err := rig.Client.Create(t.Context(), pod); err != nil {
		t.Fatalf("create Pod %s: %v", inspect, err)
	}
}

// isRead checks that the etcd in the Pod has what was acknowledged before the request, with the revisions.
func (x *keptVolume) isRead(t *testing.T) {
	t.Helper()
	out, err := rig.Lab.Kubectl(t.Context(), "exec", "--namespace", x.cluster.Namespace, inspect, "--", "etcdctl", "get", "", "--prefix", "-w", "json")
	var found struct {
		Kvs []struct {
			Key         []byte `json:"key"`
			ModRevision int64  `json:"mod_revision"`
		} `json:"kvs"`
	}
	if err == nil {
		err = json.Unmarshal([]byte(out), &found)
	}
	if err != nil {
		t.Fatalf("read the keys in Pod %s: %v", inspect, err)
	}
	held := map[string]int64{}
	for _, kv := range found.Kvs {
		held[string(kv.Key)] = kv.ModRevision
	}
	for key, revision := range x.written {
		if held[key] != revision {
			harness.Unsafe(t, "the kept volume has %s with revision %d, want %d", key, held[key], revision)
		}
	}
	t.Logf("the volume has %d keys; %d were acknowledged before the request", len(held), len(x.written))
	if now := x.cluster.VolumeOf(t, x.member).Fingerprint(t); now != x.sum {
		t.Errorf("the Pod changed the volume of %s", x.member)
	}
}

// isGone waits until the discarded volume is gone.
func (x *keptVolume) isGone(t *testing.T, volume string) {
	t.Helper()
	c := x.cluster
	harness.Eventually(t, scaleWithin, "the end of PersistentVolumeClaim "+x.member, func(ctx context.Context) error {
		if err := c.Gone(ctx, &corev1.PersistentVolumeClaim{}, x.member, x.uid); err != nil {
			return err
		}
		err := rig.Client.Get(ctx, client.ObjectKey{Name: volume}, &corev1.PersistentVolume{})
		if err == nil {
			return fmt.Errorf("PersistentVolume %s is there", volume)
		}
		return client.IgnoreNotFound(err)
	})
	pluginOf{c}.prints(t, 0, []string{"kept-volumes", c.Name}, "druid kept no volume")
}

// staysInScaleDown names the volume of one of two members that leave.
func (x *keptVolume) staysInScaleDown(t *testing.T, view harness.View) {
	t.Helper()
	c, named, other := x.cluster, view.Follower(), view.Leader()
	uid, goes := string(claimOf(t, c, named).UID), string(claimOf(t, c, other).UID)
	annotate(t, c, v1alpha1.LeaveFirstAnnotation, named+","+other)
	annotate(t, c, v1alpha1.KeepVolumeAnnotation, named)
	stayed(t, view, c.ScaleTo(t, 1, scaleWithin), 1)
	isKept(t, c, named, uid)
	harness.Eventually(t, scaleWithin, "the end of PersistentVolumeClaim "+other, func(ctx context.Context) error {
		return c.Gone(ctx, &corev1.PersistentVolumeClaim{}, other, goes)
	})
	pluginOf{c}.prints(t, 0, []string{"kept-volumes", c.Name, "--discard", named}, "You deleted PersistentVolumeClaim "+c.Namespace+"/"+named)
	harness.Eventually(t, scaleWithin, "the end of PersistentVolumeClaim "+named, func(ctx context.Context) error {
		return c.Gone(ctx, &corev1.PersistentVolumeClaim{}, named, uid)
	})
}
