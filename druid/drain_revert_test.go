package druid

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/manifests"
)

func TestScaleDownIsTakenBackUntilAnAgentClaimedIt(t *testing.T) {
	t.Parallel()
	kept := func(t *testing.T, s *stage, names []string, member string) {
		s.eventually("keep the member", func() error {
			record, err := s.record("demo")
			if err == nil && record.Retiring != nil {
				err = fmt.Errorf("slot is %+v", record.Retiring)
			}
			return err
		})
		if mark := s.mark(member); mark != (leases.Retirement{}) {
			t.Errorf("the Lease is still marked: %+v", mark)
		}
		if got := s.members("demo", 3); !cmp.Equal(got, names) {
			t.Errorf("members are %v, want %v", got, names)
		}
		s.condition("demo", v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonReconciled)
		s.eventually("send clients to it again", func() error {
			var pod corev1.Pod
			err := s.fetch(member, &pod)
			if err == nil && pod.Labels[manifests.LabelServing] == "" {
				err = fmt.Errorf("Pod bears %v", pod.Labels)
			}
			return err
		})
		s.minAvailable(2)
		s.notified(v1alpha1.EventScaleDownCancelled, member)
		if deletes := s.calls.matching("DELETE", ""); len(deletes) != 0 {
			t.Errorf("druid deleted %v", deletes)
		}
	}
	tests := map[string]func(*testing.T, *stage, []string){
		"before it was asked": func(t *testing.T, s *stage, names []string) {
			s.routes(names...)
			s.scale("demo", 1)
			member := s.slot().Member
			s.leaving(member, v1alpha1.DrainingClients)
			s.scale("demo", 3)
			kept(t, s, names, member)
		},
		"while it was asked": func(t *testing.T, s *stage, names []string) {
			s.scale("demo", 1)
			member := s.requested().Member
			s.leaving(member, v1alpha1.LeaveRequested)
			s.scale("demo", 3)
			kept(t, s, names, member)
		},
		"on the way to a pause": func(t *testing.T, s *stage, names []string) {
			s.scale("demo", 0)
			member := s.requested().Member
			s.leaving(member, v1alpha1.LeaveRequested)
			s.scale("demo", 3)
			kept(t, s, names, member)
		},
		"not once it is claimed: another takes its place": func(t *testing.T, s *stage, names []string) {
			s.scale("demo", 1)
			member := s.requested().Member
			s.answer(member, removing)
			s.scale("demo", 3)
			s.leaving(member, v1alpha1.LeaveRemoving)
			s.answer(member, done)
			s.struck(member)
			s.eventually("draw another name", func() error {
				record, err := s.record("demo")
				if err == nil && (len(record.Members) != 3 || record.Lists(member)) {
					err = fmt.Errorf("members are %v", record.Members)
				}
				return err
			})
			s.swept(member)
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			s.startDruid()
			test(t, s, s.whole(3))
		})
	}
}

func TestScaleDownWaitsForTheOthers(t *testing.T) {
	s := newStage(t)
	s.startDruid()
	names := s.whole(3)
	blocked := func(by string) {
		condition := s.condition("demo", v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonScaleDownBlocked)
		if !strings.Contains(condition.Message, by) {
			t.Errorf("message %q does not say %q", condition.Message, by)
		}
		s.notified(v1alpha1.EventScaleDownBlocked, "")
		s.eventually("leave the slot free", func() error {
			record, err := s.record("demo")
			if err == nil && (record.Retiring != nil || len(record.Members) != 3) {
				err = fmt.Errorf("record is %+v", record)
			}
			return err
		})
		for _, name := range names {
			if mark := s.mark(name); mark != (leases.Retirement{}) {
				t.Errorf("%s is marked %+v", name, mark)
			}
		}
	}
	replacing := func(r *leases.Replacing) {
		s.eventually("write the slot", func() error {
			record, version, err := s.store("demo").Record(t.Context())
			if err == nil {
				record.Replacing = r
				_, err = s.store("demo").UpdateRecord(t.Context(), version, record)
			}
			return err
		})
	}
	replacing(&leases.Replacing{Member: names[1], PodUID: "x", MemberID: "2"})
	s.minAvailable(3)
	s.scale("demo", 1)
	blocked("member " + names[1] + " replaces itself")
	s.kubelet(names[1], false)
	s.kubelet(names[2], false)
	replacing(nil)
	s.eventually("name the other", func() error {
		condition := s.condition("demo", v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonScaleDownBlocked)
		if !strings.Contains(condition.Message, "is not ready") {
			return fmt.Errorf("message is %q", condition.Message)
		}
		return nil
	})
	blocked("is not ready")

	// One that is down may go; the other is well again.
	s.kubelet(names[2], true)
	member := s.requested().Member
	if member != names[1] {
		t.Errorf("%s is to go, want %s, which serves no one", member, names[1])
	}
	// Before an agent claimed it another fails: that one may need the slot.
	s.kubelet(names[2], false)
	blocked("is not ready")
}
