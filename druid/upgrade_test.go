package druid

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/manifests"
)

// compares answers an open order to compare the members, as the leader's agent does.
func (s *stage) compares(verdict leases.UpgradeVerdict, why string) {
	s.Helper()
	record, version, err := s.store("demo").Record(s.Context())
	if err != nil || !record.Upgrade.Open() {
		return
	}
	// A record that was written meanwhile is answered the next time.
	_, _ = s.store("demo").AnswerUpgrade(s.Context(), version, leases.UpgradeAnswer{
		Nonce: record.Upgrade.Order.Nonce, Verdict: verdict, Members: len(record.Members), Why: why,
	})
}

// runsVersion is what the member's agent reports after its Pod came back.
func (c *clocked) runsVersion(names []string, i int, version string) {
	c.Helper()
	c.renew(names, i)
	now := time.Now()
	c.eventually("report the version of "+names[i], func() error {
		_, err := c.store("demo").PatchMember(c.Context(), names[i], leases.MemberPatch{
			Member: leases.Member{Version: version}, RenewTime: &now, Duration: time.Hour,
		})
		return err
	})
}

// etcdImage of the member's Pod.
func (c *clocked) etcdImage(name string) string {
	c.Helper()
	var pod corev1.Pod
	if err := c.fetch(name, &pod); err != nil {
		c.Fatal(err)
	}
	i := slices.IndexFunc(pod.Spec.Containers, func(container corev1.Container) bool { return container.Name == manifests.ContainerEtcd })
	return pod.Spec.Containers[i].Image
}

// progresses holds the condition Progressing to a reason and some words.
func (c *clocked) progresses(reason string, words ...string) {
	c.Helper()
	p := c.progressing()
	missing := func(word string) bool { return !strings.Contains(p.Message, word) }
	if p.Reason != reason || slices.ContainsFunc(words, missing) {
		c.Errorf("condition is %s %q, want %s %q", p.Reason, p.Message, reason, words)
	}
}

// TestUpgradeNeedsBackupAndEquality: the version changes after a verified backup, and only while the members are equal.
func TestUpgradeNeedsBackupAndEquality(t *testing.T) {
	c, names := renewed(t)
	c.patchCluster(backupsOn)
	c.pass()
	c.saves(full, time.Hour)
	c.saves(delta, time.Hour)
	c.patchCluster(`{"spec":{"version":"3.7.4"}}`)
	c.pass()
	c.after(stable)
	var list v1alpha1.EtcdSnapshotList
	if err := c.List(t.Context(), &list); err != nil {
		t.Fatal(err)
	}
	mine := slices.DeleteFunc(list.Items, func(s v1alpha1.EtcdSnapshot) bool { return s.Namespace != c.namespace })
	if len(mine) != 1 || !mine[0].Spec.Verify || mine[0].Spec.Type != v1alpha1.SnapshotFull || mine[0].Spec.ClusterRef.Name != "demo" {
		t.Fatalf("%+v were created, want one verified full", mine)
	}
	save := &mine[0]
	c.progresses(v1alpha1.ReasonUpgrading, "0 of 3", "EtcdSnapshot "+save.Name)
	if got := c.going(names); len(got) != 0 {
		t.Fatalf("%v were deleted before there is a backup", got)
	}
	was := c.etcdImage(names[2])
	if err := c.Delete(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: names[2]}}); err != nil {
		t.Fatal(err)
	}
	c.replace(names[2])
	if is := c.etcdImage(names[2]); is != was {
		t.Errorf("the Pod that was evicted comes with %s before there is a backup, want %s", is, was)
	}
	c.kubelet(names[2], true)
	c.renew(names, 2)

	save.Status.Phase, save.Status.Message = v1alpha1.SnapshotFailed, "the bucket is gone"
	if err := c.Status().Update(t.Context(), save); err != nil {
		t.Fatal(err)
	}
	c.pass()
	c.progresses(v1alpha1.ReasonUpgradeBlocked, save.Name, "the bucket is gone", "delete the EtcdSnapshot")
	if err := c.Delete(t.Context(), save); err != nil {
		t.Fatal(err)
	}
	c.pass()
	if err := c.fetch(save.Name, save); err != nil {
		t.Fatalf("no other one is made: %v", err)
	}
	save.Status.Phase = v1alpha1.SnapshotSucceeded
	if err := c.Status().Update(t.Context(), save); err != nil {
		t.Fatal(err)
	}

	for i, name := range []string{names[1], names[2], names[0]} {
		c.pass()
		c.after(stable)
		if got := c.going(names); len(got) != 0 {
			t.Fatalf("%v were deleted before the members were compared", got)
		}
		if i == 1 {
			c.compares(leases.UpgradeUnknown, "a compaction is in progress")
			c.pass()
			c.progresses(v1alpha1.ReasonUpgrading, "1 of 3 members runs etcd 3.7.4", "a compaction is in progress")
		}
		c.compares(leases.UpgradeAgree, "")
		c.pass()
		if got := c.going(names); len(got) != 1 || got[0] != name {
			t.Fatalf("%v were deleted, want %s; condition %+v", got, name, c.progressing())
		}
		c.replace(name)
		c.kubelet(name, true)
		c.runsVersion(names, slices.Index(names, name), "3.7.4")
	}
	c.pass()
	c.after(stable)
	c.progresses(v1alpha1.ReasonUpgrading, "3 of 3 members run etcd 3.7.4", "the members are compared")
	c.compares(leases.UpgradeDiffer, "at revision 9")
	c.pass()
	c.progresses(v1alpha1.ReasonUpgradeBlocked, "at revision 9", "until you change the spec")
	c.patchCluster(`{"spec":{"priorityClassName":"system-cluster-critical"}}`)
	c.pass()
	c.after(stable)
	if got := c.going(names); len(got) != 0 {
		t.Fatalf("%v were deleted although the members may differ", got)
	}
	c.compares(leases.UpgradeAgree, "")
	c.pass()
	if record, _, err := c.store("demo").Record(t.Context()); err != nil || record.Upgrade != (leases.Upgrade{}) {
		t.Errorf("on the record stands %+v, %v", record.Upgrade, err)
	}
	if got := c.going(names); len(got) != 1 {
		t.Errorf("%v were deleted by the edit that follows", got)
	}
}

// TestLostPodKeepsVersionUntilTurn: a lost Pod comes back as it was until the first of another minor may go.
func TestLostPodKeepsVersionUntilTurn(t *testing.T) {
	c, names := renewed(t)
	ready := func(i int, version string) {
		c.kubelet(names[i], true)
		c.runsVersion(names, i, version)
	}
	for i := range names {
		c.runsVersion(names, i, "3.6.16")
	}
	c.patchCluster(`{"spec":{"version":"3.7.4"}}`)
	c.pass()
	comes := func(name, version string) {
		t.Helper()
		c.replace(name)
		if is := c.etcdImage(name); !strings.HasSuffix(is, ":v"+version) {
			t.Fatalf("the Pod comes with %s, want %s", is, version)
		}
	}
	lost := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: names[2]}}
	if err := c.Delete(t.Context(), lost); err != nil {
		t.Fatal(err)
	}
	comes(names[2], "3.6.16")
	ready(2, "3.6.16")

	// One in which no etcd runs is made again once, for it is of another image, and not again.
	c.pulls(names[1])
	c.pass()
	c.after(stable)
	c.isGoing("when no etcd ran in it", names, names[1])
	comes(names[1], "3.6.16")
	c.pulls(names[1])
	c.pass()
	c.after(stable)
	c.isGoing("when it would come back as it is", names)
	ready(1, "3.6.16")
	c.pass()
	c.after(stable)
	c.compares(leases.UpgradeAgree, "")
	c.pass()
	c.isGoing("when the members were equal", names, names[1])
	comes(names[1], "3.7.4")
	ready(1, "3.7.4")
	c.pass()

	// Another member runs the minor, so that the gates of the first one were passed.
	lost.Name = names[2]
	if err := c.Delete(t.Context(), lost); err != nil {
		t.Fatal(err)
	}
	comes(names[2], "3.7.4")
}

// An edit that the change of version itself waits for goes first, one Pod after another, with the etcd that each of them ran.
func TestEditAppliedBeforeVersion(t *testing.T) {
	c, names := renewed(t)
	for i := range names {
		c.runsVersion(names, i, "3.6.16")
	}
	c.patchCluster(`{"spec":{"version":"3.7.4","etcd":{"snapshotCount":10000}}}`)
	c.pass()
	c.after(stable)
	c.compares(leases.UpgradeUnknown, "member demo-a does not answer")
	c.pass()
	c.after(stable)
	if got := c.going(names); len(got) != 0 {
		t.Fatalf("%v were deleted while it is not known what the version waits for", got)
	}
	const hindrance = "spec.etcd.snapshotCount is too large"
	for _, name := range []string{names[1], names[2], names[0]} {
		c.pass()
		c.after(stable)
		c.compares(leases.UpgradeAwaitsEdit, hindrance)
		c.pass()
		if got := c.going(names); len(got) != 1 || got[0] != name {
			t.Fatalf("%v were deleted, want %s; condition %+v", got, name, c.progressing())
		}
		pod := c.replace(name)
		if image := c.etcdImage(name); !strings.Contains(image, "3.6.16") {
			t.Errorf("%s comes back with %s", name, image)
		}
		if !strings.Contains(fmt.Sprint(pod.Spec), "--snapshot-count=10000") {
			t.Errorf("%s comes back without the edit", name)
		}
		c.kubelet(name, true)
		c.runsVersion(names, slices.Index(names, name), "3.6.16")
	}
	// Then there is nothing left to replace for it, and the version waits on.
	c.pass()
	c.after(stable)
	c.compares(leases.UpgradeAwaitsEdit, hindrance)
	c.pass()
	c.after(stable)
	if got := c.going(names); len(got) != 0 {
		t.Fatalf("%v were deleted although the members were not compared", got)
	}
	c.progresses(v1alpha1.ReasonUpgradeBlocked, "0 of 3", hindrance)
	c.compares(leases.UpgradeAgree, "")
	c.pass()
	if got := c.going(names); len(got) != 1 || got[0] != names[1] {
		t.Fatalf("%v were deleted, want %s; condition %+v", got, names[1], c.progressing())
	}
	c.replace(names[1])
	if image := c.etcdImage(names[1]); !strings.Contains(image, "3.7.4") {
		t.Errorf("%s comes back with %s", names[1], image)
	}
}

// snapshotCount is the flag of the agent in the member's Pod.
func (c *clocked) snapshotCount(name string) string {
	c.Helper()
	var pod corev1.Pod
	if err := c.fetch(name, &pod); err != nil {
		c.Fatal(err)
	}
	for _, container := range slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers) {
		if container.Name != manifests.ContainerAgent {
			continue
		}
		for _, arg := range slices.Concat(container.Command, container.Args) {
			if value, ok := strings.CutPrefix(arg, "--snapshot-count="); ok {
				return value
			}
		}
	}
	return ""
}

// TestSnapshotCountAppliedBeforeVersion: a smaller snapshot count reaches the Pods before the version. A count that is
// too large for a change of version is lowered while the edit of the version stands, and at once: each Pod gets it as
// the version that it runs, and only then the version.
func TestSnapshotCountAppliedBeforeVersion(t *testing.T) {
	const why = "a member has 200000"
	c, names := renewed(t)
	for i := range names {
		c.runsVersion(names, i, "3.6.16")
	}
	c.patchCluster(`{"spec":{"version":"3.6.16"}}`)
	for _, i := range []int{1, 2, 0} {
		c.pass()
		c.after(stable)
		c.isGoing("for an image of the version that all run", names, names[i])
		c.replace(names[i])
		c.kubelet(names[i], true)
		c.runsVersion(names, i, "3.6.16")
	}
	c.pass()
	c.after(stable)
	c.patchCluster(`{"spec":{"version":"3.7.4"}}`)
	c.pass()
	c.after(stable)
	c.compares(leases.UpgradeAwaitsEdit, why)
	c.pass()
	c.progresses(v1alpha1.ReasonUpgradeBlocked, why)
	c.isGoing("while the count is too large", names)

	c.patchCluster(`{"spec":{"etcd":{"snapshotCount":10000}}}`)
	c.pass()
	var cluster v1alpha1.EtcdCluster
	if err := c.fetch("demo", &cluster); err != nil || cluster.Status.ObservedGeneration != cluster.Generation {
		t.Fatalf("generation %d of the spec is adopted, want %d: %v", cluster.Status.ObservedGeneration, cluster.Generation, err)
	}
	// The Pod of an eviction comes with it, and says nothing of the others.
	if err := c.Delete(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: names[2]}}); err != nil {
		t.Fatal(err)
	}
	c.pass()
	comes := func(i int, version string) {
		t.Helper()
		c.replace(names[i])
		if is, count := c.etcdImage(names[i]), c.snapshotCount(names[i]); !strings.HasSuffix(is, ":v"+version) || count != "10000" {
			t.Fatalf("the Pod of %s comes with %s and snapshot count %q, want %s and 10000", names[i], is, count, version)
		}
		c.kubelet(names[i], true)
		c.runsVersion(names, i, version)
		c.pass()
		c.after(stable)
	}
	comes(2, "3.6.16")
	for _, i := range []int{1, 0} {
		c.isGoing("before the members were asked", names)
		c.compares(leases.UpgradeAwaitsEdit, why)
		c.pass()
		c.isGoing("with the count of before", names, names[i])
		comes(i, "3.6.16")
	}
	c.isGoing("before the members were compared", names)
	c.compares(leases.UpgradeAgree, "")
	c.pass()
	c.isGoing("when they were equal", names, names[1])
	comes(1, "3.7.4")
}
