package druid

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
)

// lingers is a finalizer of someone else.
const lingers = "test.druid.dev/lingers"

// next to makes the record that of a group that was joined, in which so many are left of those that were there before.
func beside(record *leases.Record, left ...string) {
	record.Externals = []string{"a1", "a2", "a3"}
	record.MemberList = &leases.MemberList{RaftTerm: 2, RaftIndex: 9}
	for i, name := range slices.Concat(left, record.Members) {
		record.MemberList.Members = append(record.MemberList.Members, leases.ListedMember{ID: fmt.Sprintf("a%d", i+1), Name: name, PeerURL: "http://" + name})
	}
}

// isHeld says whether druid's finalizer is there as it should be.
func (s *stage) isHeld(want bool) error {
	var c v1alpha1.EtcdCluster
	if err := s.fetch("demo", &c); err != nil {
		return err
	}
	if slices.Contains(c.Finalizers, v1alpha1.JoinFinalizer) != want {
		return fmt.Errorf("finalizers are %v", c.Finalizers)
	}
	return nil
}

// deleteLingering deletes the EtcdCluster, which someone else's finalizer keeps to be looked at.
func (s *stage) deleteLingering() {
	s.Helper()
	var c v1alpha1.EtcdCluster
	s.edit("demo", &c, func() { c.Finalizers = append(c.Finalizers, lingers) })
	s.delete("demo", metav1.DeletePropagationBackground)
}

// changeRecord rewrites the record as an agent would.
func (s *stage) changeRecord(change func(*leases.Record)) {
	s.Helper()
	s.eventually("change the record", func() error {
		record, version, err := s.store("demo").Record(s.Context())
		if err != nil {
			return err
		}
		change(&record)
		_, err = s.store("demo").UpdateRecord(s.Context(), version, record)
		return err
	})
}

// acknowledges answers, as an agent does, each member that is asked to leave, and returns them in their order when none is left.
func (s *stage) acknowledges(names []string) (out []string) {
	s.Helper()
	s.eventually("all members leave", func() error {
		record, err := s.record("demo")
		if err != nil {
			return err
		}
		if len(record.Members) == 0 {
			return nil
		}
		slot := record.Retiring
		if slot == nil {
			return fmt.Errorf("the slot is free, and %v are left", record.Members)
		}
		if mark := s.mark(slot.Member); mark.State == leases.RetireRequested && slot.Orders(slot.Member, mark) {
			s.answer(slot.Member, done)
			out = append(out, slot.Member)
		}
		return fmt.Errorf("%s is on its way out, out are %v of %v", slot.Member, out, names)
	})
	return out
}

// ended waits until the EtcdCluster is gone.
func (s *stage) ended() {
	s.Helper()
	s.eventually("the EtcdCluster is gone", func() error { return s.gone("demo", &v1alpha1.EtcdCluster{}) })
}

// unfinish takes a finalizer away, as anyone who set it does.
func (s *stage) unfinish(finalizer string) {
	s.Helper()
	var c v1alpha1.EtcdCluster
	s.edit("demo", &c, func() { c.Finalizers = slices.DeleteFunc(c.Finalizers, func(f string) bool { return f == finalizer }) })
}

// firstCall is the place of the first call of the method whose path ends so, among all that druid made.
func (c *calls) firstCall(method, end string) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.IndexFunc(c.made, func(call string) bool { return strings.HasPrefix(call, method+" ") && strings.HasSuffix(call, end) })
	if i < 0 {
		return 0, errors.New("no " + method + " of " + end)
	}
	return i, nil
}

// wipe deletes all Leases of the namespace.
func (s *stage) wipe(object client.Object) {
	s.Helper()
	if err := s.DeleteAllOf(s.Context(), object, client.InNamespace(s.namespace), client.GracePeriodSeconds(0)); err != nil {
		s.Fatal(err)
	}
}
