package druid

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
)

// newcomer waits until the record has one name more than names, and returns it.
func (s *stage) newcomer(names []string) string {
	s.Helper()
	all := slices.DeleteFunc(s.members("demo", len(names)+1), func(name string) bool { return slices.Contains(names, name) })
	if len(all) != 1 {
		s.Fatalf("%v joined next to %v", all, names)
	}
	return all[0]
}

// replacing waits until condition Progressing says what a requested replacement waits for.
func (s *stage) replacing(says string) {
	s.Helper()
	c := s.condition("demo", v1alpha1.ConditionProgressing, metav1.ConditionTrue, v1alpha1.ReasonReplacingMember)
	if !strings.Contains(c.Message, says) {
		s.Fatalf("message is %q, want one with %q", c.Message, says)
	}
}

// TestNamedMemberReplacedByNew: a new member replaces the one that the user names.
func TestNamedMemberReplacedByNew(t *testing.T) {
	s := newStage(t)
	s.install("admission.yaml")
	s.startDruid()
	names := s.whole(3)
	for _, bad := range []string{"demo-other", names[0] + "," + names[1]} {
		s.denies(v1alpha1.ReplaceAnnotation, bad, "must have the name of one member: "+strings.Join(names, ", "))
	}
	// The Lease of the first one reports the leader, which any other order would remove last.
	if err := s.annotates(v1alpha1.ReplaceAnnotation, names[0]); err != nil {
		t.Fatal(err)
	}
	joins := s.newcomer(names)
	s.replacing("Replacing member " + names[0] + ": member " + joins + " joins, and has to vote first.")
	s.kubelet(joins, true)
	s.agent("demo", joins, 4, leases.RoleLearner)
	s.eventually("show the learner", func() error {
		var c v1alpha1.EtcdCluster
		err := s.fetch("demo", &c)
		if !slices.ContainsFunc(c.Status.Members, func(m v1alpha1.MemberStatus) bool { return m.Name == joins && m.Role == string(leases.RoleLearner) }) {
			return errors.Join(err, fmt.Errorf("members are %+v", c.Status.Members))
		}
		return err
	})
	if record, err := s.record("demo"); err != nil || record.PendingRemoval != nil {
		t.Fatalf("while the new member is a learner, the record is %+v, %v", record, err)
	}
	s.agent("demo", joins, 4, leases.RoleMember)
	if got := s.requested().Member; got != names[0] {
		t.Fatalf("%s leaves, want %s", got, names[0])
	}
	s.replacing("Replacing member " + names[0] + ": removing member " + names[0] + ", ")
	s.answer(names[0], done)
	s.struck(names[0])
	s.swept(names[0])
	s.condition("demo", v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonReconciled)
	after := append(slices.Clone(names[1:]), joins)
	slices.Sort(after)
	if got := s.members("demo", 3); !slices.Equal(got, after) {
		t.Errorf("members are %v, want %v", got, after)
	}

	// The next request is withdrawn before the new member has joined.
	if err := s.annotates(v1alpha1.ReplaceAnnotation, names[1]); err != nil {
		t.Fatal(err)
	}
	never := s.newcomer(after)
	if err := s.annotates(v1alpha1.ReplaceAnnotation, ""); err != nil {
		t.Fatal(err)
	}
	if got := s.requested().Member; got != never {
		t.Fatalf("%s leaves, want %s, which has not joined", got, never)
	}
	s.answer(never, done)
	s.struck(never)
	s.swept(never)
	s.condition("demo", v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonReconciled)
	if got := s.members("demo", 3); !slices.Equal(got, after) {
		t.Errorf("members are %v, want %v", got, after)
	}
}
