package druid

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/manifests"
)

func (s *stage) budgetIs(want int32) error {
	var budget policyv1.PodDisruptionBudget
	if err := s.fetch(manifests.DisruptionBudgetName("demo"), &budget); err != nil {
		return err
	}
	if budget.Spec.MinAvailable.IntVal != want {
		return fmt.Errorf("minAvailable is %s, want %d", budget.Spec.MinAvailable, want)
	}
	return nil
}

// TestScaleDownStepsThroughAnyDruid: a scale-down goes on step by step through any druid.
// Each druid takes one step of the way; the next finds everything in the Leases.
func TestScaleDownStepsThroughAnyDruid(t *testing.T) {
	s := newStage(t)
	stop := s.startDruid()
	names := s.whole(3)
	s.routes(names...)
	restart := func() {
		stop()
		stop = s.startDruid()
		// No member is live before it saw a renewal.
		s.beat = func() { s.renew(names) }
	}

	s.scale("demo", 1)
	first := s.slot()
	if first.Member == names[0] || first.Mark == "" {
		t.Errorf("slot is %+v, want a follower's with a mark, and %s leads", first, names[0])
	}
	s.eventually("take its clients away", func() error {
		var pod corev1.Pod
		err := s.fetch(first.Member, &pod)
		if err == nil && (pod.Labels[manifests.LabelServing] != "" || pod.Labels[manifests.LabelVoter] == "") {
			err = fmt.Errorf("Pod bears %v, want it to vote and not to serve", pod.Labels)
		}
		return err
	})
	s.minAvailable(3)
	s.reported(v1alpha1.EventScalingDown, first.Member) // an Event that is not written yet ends with its druid
	restart()
	s.looks(2)
	if mark := s.mark(first.Member); mark != (leases.RemovalRequest{}) {
		t.Errorf("it is marked %+v while clients are still sent to it", mark)
	}
	s.leaving(first.Member, v1alpha1.DrainingClients)
	s.routes(names[0])
	if got := s.requested(); got != first {
		t.Errorf("slot is %+v, want it still to be %+v", got, first)
	}
	restart()
	s.answer(first.Member, removing)
	s.leaving(first.Member, v1alpha1.LeaveRemoving)
	condition := s.condition("demo", v1alpha1.ConditionProgressing, metav1.ConditionTrue, v1alpha1.ReasonScalingDown)
	if want := fmt.Sprintf("3 members, 1 requested: removing member %s, the leader's agent removes it.", first.Member); condition.Message != want {
		t.Errorf("message is %q, want %q", condition.Message, want)
	}
	restart()
	s.answer(first.Member, done)
	s.struck(first.Member)
	s.reported(v1alpha1.EventMemberRemoved, first.Member)
	for _, next := range []func(string){s.podGoes, s.claimGoes} {
		restart()
		if err := s.fetch(first.Member, &coordinationv1.Lease{}); err != nil {
			t.Errorf("the Lease that says it may go went first: %v", err)
		}
		next(first.Member)
	}
	restart()
	s.swept(first.Member)
	if diff := cmp.Diff([]string{"pods", "persistentvolumeclaims", "leases"}, s.deletions(first.Member)); diff != "" {
		t.Errorf("deleted (-want +got):\n%s", diff)
	}

	second := s.requested()
	if second.Member == names[0] || second.Mark == first.Mark {
		t.Errorf("slot is %+v, want another follower's with a mark of its own", second)
	}
	s.answer(second.Member, done)
	s.struck(second.Member)
	s.swept(second.Member)
	s.condition("demo", v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonReconciled)
	s.minAvailable(1)
	if got := s.members("demo", 1); got[0] != names[0] {
		t.Errorf("%v is left, want the leader %s", got, names[0])
	}
}

func TestOnlyTheAnswerToItsOwnRequestCounts(t *testing.T) {
	t.Parallel()
	tests := map[string]func(*leases.RemovalRequest){
		"another raft group": func(r *leases.RemovalRequest) { done(r); r.ClusterID = "1" },
		"another request":    func(r *leases.RemovalRequest) { done(r); r.Mark = "other" },
	}
	for name, answer := range tests {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			s.startDruid()
			names := s.whole(3)
			s.scale("demo", 1)
			member := s.requested().Member
			s.answer(member, answer)
			if again := s.requested().Member; again != member {
				t.Errorf("%s is asked, want %s to be asked again", again, member)
			}
			if got := s.members("demo", 3); !cmp.Equal(got, names) {
				t.Errorf("members are %v, want %v", got, names)
			}
			if deletes := s.calls.matching("DELETE", ""); len(deletes) != 0 {
				t.Errorf("druid deleted %v", deletes)
			}
			s.answer(member, done)
			s.struck(member)
		})
	}
}

// TestUnreadableLeaseStopsOnlyDrain: an unreadable Lease or mark stops the drain and nothing else.
func TestUnreadableLeaseStopsOnlyDrain(t *testing.T) {
	t.Parallel()
	tests := map[string]func(*coordinationv1.Lease){
		"the mark":  func(l *coordinationv1.Lease) { l.Annotations[leases.AnnotationRemoval] = `{"state":"gone"}` },
		"the Lease": func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = new("nonsense") },
	}
	for name, spoil := range tests {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			s.startDruid()
			names := s.whole(3)
			s.scale("demo", 1)
			slot := s.requested()
			s.eventually("spoil it", func() error {
				var lease coordinationv1.Lease
				if err := s.fetch(slot.Member, &lease); err != nil {
					return err
				}
				spoil(&lease)
				return s.Update(t.Context(), &lease)
			})
			condition := s.condition("demo", v1alpha1.ConditionDegraded, metav1.ConditionTrue, v1alpha1.ReasonLeaseUnreadable)
			if !strings.Contains(condition.Message, slot.Member) {
				t.Errorf("message %q does not name %s", condition.Message, slot.Member)
			}
			s.scale("demo", 3)
			s.condition("demo", v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonReconciled)
			if record, err := s.record("demo"); err != nil || record.PendingRemoval == nil || !cmp.Equal(record.Members, names) {
				t.Errorf("record is %+v, %v; want slot and names as they were", record, err)
			}
			// The Lease is made again, and says nothing: a removal that is not requested any more ends.
			s.deleteLease(slot.Member)
			s.eventually("free the slot", func() error {
				record, err := s.record("demo")
				if err == nil && record.PendingRemoval != nil {
					err = fmt.Errorf("slot is %+v", record.PendingRemoval)
				}
				return err
			})
			if deletes := s.calls.matching("DELETE", ""); len(deletes) != 0 {
				t.Errorf("druid deleted %v", deletes)
			}
		})
	}
}

func TestJoinersThatNeverJoinedAreWithdrawn(t *testing.T) {
	s := newStage(t)
	s.startDruid()
	names := s.whole(3)
	s.scale("demo", 5)
	s.members("demo", 5)
	s.scale("demo", 3)
	for range 2 {
		member := s.requested().Member
		for _, name := range names {
			if name == member {
				t.Fatalf("%s is to go, which is a voter", member)
			}
		}
		s.answer(member, done)
		s.struck(member)
		s.swept(member)
	}
	if got := s.members("demo", 3); !cmp.Equal(got, names) {
		t.Errorf("members are %v, want %v", got, names)
	}
	s.condition("demo", v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonReconciled)
}

// TestUnformedClusterDropsNamesAtOnce: a cluster that never formed drops names at once.
func TestUnformedClusterDropsNamesAtOnce(t *testing.T) {
	s := newStage(t)
	s.startDruid()
	s.createCluster("demo", 3)
	names := s.members("demo", 3)
	record, err := s.record("demo")
	if err != nil {
		t.Fatal(err)
	}
	s.scale("demo", 1)
	for _, name := range names {
		if name != record.Seed {
			s.struck(name)
			s.swept(name)
		}
	}
	if got := s.members("demo", 1); got[0] != record.Seed {
		t.Errorf("%v is left, want the seed %s", got, record.Seed)
	}
	s.form("demo", []string{record.Seed})
	s.condition("demo", v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonReconciled)
}

func TestRetainedClaimBelongsToNoMember(t *testing.T) {
	s := newStage(t)
	s.startDruid()
	names := s.whole(3)
	var c v1alpha1.EtcdCluster
	s.edit("demo", &c, func() {
		c.Spec.Replicas = 1
		c.Spec.Storage.PersistentVolumeClaimRetentionPolicy.WhenScaled = v1alpha1.RetainPersistentVolumeClaim
	})
	member := s.requested().Member
	uid := s.uids([]string{member}, &corev1.PersistentVolumeClaim{})[member]
	s.answer(member, done)
	s.struck(member)
	s.podGoes(member)
	s.eventually("delete Lease "+member, func() error { return s.gone(member, &coordinationv1.Lease{}) })
	s.reported(v1alpha1.EventPVCRetained, member)
	var claim corev1.PersistentVolumeClaim
	if err := s.fetch(member, &claim); err != nil || claim.UID != uid || claim.DeletionTimestamp != nil {
		t.Fatalf("claim is %+v, %v; want it to stay", claim, err)
	}
	if claim.Labels[leases.LabelCluster] != "demo" || claim.Labels[manifests.LabelClusterUID] != "" ||
		claim.Labels[leases.LabelMember] != "" || claim.Labels[leases.LabelComponent] != "" {
		t.Errorf("claim bears %v, want the cluster's name and nothing by which it is adopted", claim.Labels)
	}
	s.requested() // the next one leaves; nothing waits for the claim
	s.scale("demo", 3)
	if got := s.members("demo", 3); cmp.Equal(got, names) {
		t.Errorf("members are %v: the name of the claim that stayed is used again", got)
	}
}

func TestTwoDruidsRemoveEachMemberOnce(t *testing.T) {
	s := newStage(t)
	s.startDruid()
	s.startDruid()
	names := s.whole(5)
	s.scale("demo", 1)
	for range 4 {
		member := s.requested().Member
		s.answer(member, removing)
		s.answer(member, done)
		s.struck(member)
		s.swept(member)
	}
	if got := s.members("demo", 1); got[0] != names[0] {
		t.Errorf("%v is left, want the leader %s", got, names[0])
	}
	s.condition("demo", v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonReconciled)
	s.eventually("rest", func() error { return s.rests() })
}
