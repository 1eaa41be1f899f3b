package druid

import (
	"fmt"
	"testing"

	policyv1 "k8s.io/api/policy/v1"

	"github.com/etcd-druid/druid/manifests"
)

// explains waits for a budget with that number and that sentence.
func (s *stage) explains(minAvailable int32, sentence string) {
	s.Helper()
	s.eventually("explain the budget", func() error {
		if err := s.budgetIs(minAvailable); err != nil {
			return err
		}
		var budget policyv1.PodDisruptionBudget
		if err := s.fetch(manifests.DisruptionBudgetName("demo"), &budget); err != nil {
			return err
		}
		if got := budget.Annotations[manifests.AnnotationEvictions]; got != sentence {
			return fmt.Errorf("annotation is %q, want %q", got, sentence)
		}
		return nil
	})
}

func TestBudgetSaysWhyADrainHangs(t *testing.T) {
	const spare = "1 of 3 voting members can be evicted at a time, because the others are a quorum."
	s := newStage(t)
	s.startDruid()
	names := s.whole(3)
	s.explains(2, spare)
	s.eventually("rest", func() error { return s.rests() })

	budget := &policyv1.PodDisruptionBudget{}
	s.edit(manifests.DisruptionBudgetName("demo"), budget, func() {
		budget.Annotations[manifests.AnnotationEvictions] = "Evict all."
	})
	s.explains(2, spare)

	// The number of Pods that must stay is the same, and druid writes the other sentence nevertheless.
	s.kubelet(names[2], false)
	s.explains(2, "Only Pods that are not ready can be evicted, because a voting member is not ready: see status.members.")
	s.kubelet(names[2], true)
	s.explains(2, spare)

	s.scale("demo", 1)
	s.explains(3, "No Pod can be evicted, because a member is being removed: see condition Progressing.")
}

// TestOnlyMemberEvictableBySpec: the only member can be evicted if the spec says so.
func TestOnlyMemberEvictableBySpec(t *testing.T) {
	s := newStage(t)
	s.startDruid()
	s.whole(1)
	s.explains(1, "No Pod can be evicted, because the cluster has only one voting member: scale it up, or delete its Pod yourself.")
	s.patchCluster(`{"spec":{"disruption":{"singleMember":"Allow"}}}`)
	s.explains(0, "The only voting member can be evicted, because spec.disruption.singleMember is Allow.")
	s.scale("demo", 3)
	s.explains(1, "No Pod can be evicted, because a member is not known to be a voter: see status.members.")
}
