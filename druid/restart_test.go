package druid

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
)

// stuckCluster is one of three members that formed, and a druid that has just begun to look.
func stuckCluster(t *testing.T, members int32) (*clocked, []string) {
	t.Helper()
	s := newStage(t)
	s.node(s.nodeName(), true)
	stop := s.startDruid()
	names := s.whole(members)
	stop()
	return s.clocked(), names
}

// TestNotReadyPodRestartsWithBackOff: a Pod that stays not ready is restarted with back-off.
func TestNotReadyPodRestartsWithBackOff(t *testing.T) {
	c, names := stuckCluster(t, 3)
	affected := names[1]
	before := c.uids(names, &corev1.PersistentVolumeClaim{})
	c.kubelet(affected, false)
	c.pass()
	c.after(4 * time.Minute)
	if c.terminates(affected) || c.repairing(affected) != (leases.Repairing{}) {
		t.Fatalf("restarted within the grace period: %+v", c.repairing(affected))
	}

	// The announcement comes first, and a druid that takes over finishes, without counting again.
	c.at = c.at.Add(2 * time.Minute)
	if err := c.reconcile(c.Reconciler); err != nil {
		t.Fatal(err)
	}
	pods := c.uids(names, &corev1.Pod{})
	if want := (leases.Repairing{Restarts: 1, PodUID: string(pods[affected])}); c.repairing(affected) != want || c.terminates(affected) {
		t.Fatalf("announced is %+v, want %+v; deleted %t, want the announcement first", c.repairing(affected), want, c.terminates(affected))
	}
	successor := c.stage.clocked()
	successor.after(4 * time.Minute)
	if successor.terminates(affected) {
		t.Fatal("a druid that just started judged by the clock of another")
	}
	successor.after(2 * time.Minute)
	if !successor.terminates(affected) || successor.repairing(affected).Restarts != 1 {
		t.Fatalf("the announced restart was not finished: %+v", successor.repairing(affected))
	}
	c = successor

	c.end(affected)
	c.pass()
	c.kubelet(affected, false)
	c.pass()
	c.after(8 * time.Minute)
	if c.terminates(affected) {
		t.Fatal("the second restart came as soon as the first")
	}
	condition := c.degraded(t)
	if condition.Reason != v1alpha1.ReasonMemberStuck || !strings.Contains(condition.Message, affected) ||
		!strings.Contains(condition.Message, "1 restart in a row") {
		t.Errorf("condition is %s: %s", condition.Reason, condition.Message)
	}
	c.after(4 * time.Minute)
	if !c.terminates(affected) || c.repairing(affected).Restarts != 2 {
		t.Errorf("the second restart did not come: %+v", c.repairing(affected))
	}
	if all := strings.Join(c.reported(), "\n"); !strings.Contains(all, v1alpha1.EventPodRestarted) || !strings.Contains(all, "Restarts in a row: 2") {
		t.Errorf("events are\n%s", all)
	}

	// Well for long: forgotten.
	c.end(affected)
	c.pass()
	c.kubelet(affected, true)
	c.pass()
	c.after(19 * time.Minute)
	if c.repairing(affected).Restarts != 2 {
		t.Errorf("forgotten too early: %+v", c.repairing(affected))
	}
	c.after(2 * time.Minute)
	if c.repairing(affected) != (leases.Repairing{}) {
		t.Errorf("still marked: %+v", c.repairing(affected))
	}
	if after := c.uids(names, &corev1.PersistentVolumeClaim{}); after[affected] != before[affected] {
		t.Error("a restart cost the member its volume")
	}
}

func (c *clocked) degraded(t *testing.T) metav1.Condition {
	t.Helper()
	var cluster v1alpha1.EtcdCluster
	if err := c.fetch("demo", &cluster); err != nil {
		t.Fatal(err)
	}
	return *meta.FindStatusCondition(cluster.Status.Conditions, v1alpha1.ConditionDegraded)
}

// TestNoRestartThatRepairsNothing: what a restart would not repair is left alone.
func TestNoRestartThatRepairsNothing(t *testing.T) {
	t.Parallel()
	const long = 20 * time.Minute
	tests := map[string]struct {
		members   int32
		trouble   func(*clocked, []string)
		meanwhile func(*clocked, []string)
	}{
		"the others are no quorum": {members: 3, trouble: func(c *clocked, names []string) { c.kubelet(names[2], false) }},
		"the only member":          {members: 1},
		"the agent says what it waits for": {members: 3, trouble: func(c *clocked, names []string) {
			c.says(names[0], leases.Prefix+"rule", "mismatched-data")
			c.says(names[0], leases.Prefix+"reason", "the data on the volume does not belong to this member")
		}},
		"another member is being replaced": {members: 3, trouble: func(c *clocked, names []string) {
			c.editRecord(func(r *leases.Record) {
				r.Replacing = &leases.Replacing{Member: names[1], PodUID: string(c.uids(names, &corev1.Pod{})[names[1]]), MemberID: "2"}
			})
		}},
		"another member is on its way out": {members: 3, trouble: func(c *clocked, names []string) {
			c.editRecord(func(r *leases.Record) { r.PendingRemoval = &leases.PendingRemoval{Member: names[1], Mark: "abcde"} })
			claimed, err := leases.RemovalRequest{
				State: leases.RemovalBegun, Mark: "abcde", By: "pod", ClusterID: leases.FormatID(clusterID),
			}.Encode()
			if err != nil {
				c.Fatal(err)
			}
			c.says(names[1], leases.AnnotationRemoval, claimed)
		}},
		"an image cannot be pulled": {members: 3, trouble: func(c *clocked, names []string) {
			var pod corev1.Pod
			if err := c.fetch(names[0], &pod); err != nil {
				c.Fatal(err)
			}
			pod.Status.ContainerStatuses[0].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}}
			if err := c.Status().Update(c.Context(), &pod); err != nil {
				c.Fatal(err)
			}
		}},
		"a learner that gets on": {
			members: 3,
			trouble: func(c *clocked, names []string) { c.agent("demo", names[0], 9, leases.RoleLearner) },
			meanwhile: func(c *clocked, names []string) {
				c.says(names[0], leases.Prefix+"raft", leases.Raft{Term: 2, Committed: uint64(c.at.Unix())}.String())
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c, names := stuckCluster(t, test.members)
			c.kubelet(names[0], false)
			if test.trouble != nil {
				test.trouble(c, names)
			}
			for range 5 {
				if test.meanwhile != nil {
					test.meanwhile(c, names)
				}
				c.after(long / 5)
			}
			for _, name := range names {
				if c.terminates(name) || c.repairing(name) != (leases.Repairing{}) {
					t.Errorf("Pod %s was restarted: %+v", name, c.repairing(name))
				}
			}
		})
	}
}

// editRecord changes the record, as an agent would.
func (s *stage) editRecord(change func(*leases.Record)) {
	s.Helper()
	record, version, err := s.store("demo").Record(s.Context())
	if err != nil {
		s.Fatal(err)
	}
	change(&record)
	if _, err := s.store("demo").UpdateRecord(s.Context(), version, record); err != nil {
		s.Fatal(err)
	}
}

func TestOneMemberAtATimeIsRestarted(t *testing.T) {
	c, names := stuckCluster(t, 5)
	for _, name := range names[:2] {
		c.kubelet(name, false)
	}
	c.pass()
	gone := func() (found []string) {
		for _, name := range names {
			if c.terminates(name) {
				found = append(found, name)
			}
		}
		return found
	}
	c.after(6 * time.Minute)
	if got := gone(); len(got) != 1 {
		t.Fatalf("%v were deleted, want one", got)
	}
	first := gone()[0]
	c.end(first)
	c.pass()
	c.kubelet(first, false)
	c.pass()
	c.after(8 * time.Minute)
	if got := gone(); len(got) != 0 {
		t.Errorf("%v were deleted while %s had time left to become ready", got, first)
	}
	c.after(4 * time.Minute)
	if got := gone(); len(got) != 1 || got[0] == first {
		t.Errorf("%v were deleted, want the one that was not restarted yet", got)
	}
}

func TestSilentMemberIsUnknownAndThenNotReady(t *testing.T) {
	c, names := stuckCluster(t, 3)
	renew := func(but int) {
		for i, name := range names {
			if i != but {
				c.agent("demo", name, uint64(i+1), leases.RoleMember)
			}
		}
		c.pass()
	}
	member := func() v1alpha1.MemberStatus {
		var cluster v1alpha1.EtcdCluster
		if err := c.fetch("demo", &cluster); err != nil {
			t.Fatal(err)
		}
		return cluster.Status.Members[0]
	}
	renew(-1)
	if _, err := c.store("demo").PatchMember(t.Context(), names[0], leases.MemberPatch{Duration: 45 * time.Second}); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		after  time.Duration
		status v1alpha1.MemberState
		reason string
	}{
		{0, v1alpha1.MemberReady, v1alpha1.ReasonLeaseSucceeded},
		{44 * time.Second, v1alpha1.MemberReady, v1alpha1.ReasonLeaseSucceeded},
		{2 * time.Second, v1alpha1.MemberUnknown, v1alpha1.ReasonLeaseExpired},
		{58 * time.Second, v1alpha1.MemberUnknown, v1alpha1.ReasonLeaseExpired},
		{2 * time.Second, v1alpha1.MemberNotReady, v1alpha1.ReasonUnknownGracePeriodExceeded},
		{20 * time.Minute, v1alpha1.MemberNotReady, v1alpha1.ReasonUnknownGracePeriodExceeded},
	} {
		c.at = c.at.Add(step.after)
		renew(0)
		if m := member(); m.Status != step.status || m.Reason != step.reason {
			t.Errorf("%s later it is %s %s, want %s %s", step.after, m.Status, m.Reason, step.status, step.reason)
		}
	}
	if c.terminates(names[0]) || c.repairing(names[0]) != (leases.Repairing{}) {
		t.Error("a serving etcd was restarted because its agent is silent")
	}
	c.agent("demo", names[0], 1, leases.RoleMember)
	c.pass()
	if m := member(); m.Status != v1alpha1.MemberReady {
		t.Errorf("it renews again and is %s %s", m.Status, m.Reason)
	}
}
