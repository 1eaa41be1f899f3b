package druid

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/etcd-druid/druid/leases"
)

// writeNames edits the names in the record by hand.
func (s *stage) writeNames(names ...string) {
	s.Helper()
	var lease coordinationv1.Lease
	s.edit(leases.RecordName("demo"), &lease, func() { lease.Annotations[leases.Prefix+"members"] = strings.Join(names, ",") })
}

func TestNamesThatAreTakenOutOfTheRecordComeBack(t *testing.T) {
	s := newStage(t)
	s.startDruid()
	names := s.whole(3)
	pods, claims := s.uids(names, &corev1.Pod{}), s.uids(names, &corev1.PersistentVolumeClaim{})
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, seed))
	listed := func(want func([]string) bool) {
		t.Helper()
		s.eventually("the members' names in the record", func() error {
			record, err := s.record("demo")
			if err == nil && !want(record.Members) {
				return fmt.Errorf("the record lists %v, and the members are %v", record.Members, names)
			}
			return err
		})
	}
	for range 20 {
		var left []string
		for _, name := range names {
			if random.IntN(2) == 0 {
				left = append(left, name)
			}
		}
		random.Shuffle(len(left), func(i, j int) { left[i], left[j] = left[j], left[i] })
		s.writeNames(left...)
		listed(func(is []string) bool { return slices.Equal(is, names) || len(left) == len(names) })
	}
	s.writeNames()
	listed(func(is []string) bool { return slices.Equal(is, names) })
	if diff := cmp.Diff(pods, s.uids(names, &corev1.Pod{})); diff != "" {
		t.Errorf("Pods changed (-before +after):\n%s", diff)
	}
	if diff := cmp.Diff(claims, s.uids(names, &corev1.PersistentVolumeClaim{})); diff != "" {
		t.Errorf("claims changed (-before +after):\n%s", diff)
	}
	if made := s.calls.creations("/pods"); len(made) != len(names) {
		t.Errorf("druid made %d Pods, want the %d of the members: no name is drawn", len(made), len(names))
	}
	if deletes := s.calls.matching("DELETE", ""); len(deletes) > 0 {
		t.Errorf("druid deleted %v", deletes)
	}
}

// A name that was mistyped stands for one more member; that which it was typed over comes back.
func TestAMistypedNameTakesNoMemberAway(t *testing.T) {
	s := newStage(t)
	s.startDruid()
	names := s.whole(3)
	pods := s.uids(names, &corev1.Pod{})
	s.writeNames(names[0], names[1], "demo-typed")
	s.eventually("the mistyped name's member is listed again", func() error {
		record, err := s.record("demo")
		if err == nil && !record.Lists(names[2]) {
			return fmt.Errorf("the record lists %v", record.Members)
		}
		return err
	})
	if diff := cmp.Diff(pods, s.uids(names, &corev1.Pod{})); diff != "" {
		t.Errorf("Pods changed (-before +after):\n%s", diff)
	}
}
