package druid

import (
	"fmt"
	"slices"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/manifests"
)

// renew renews the Leases of all that are listed, as form left them: for a druid that just started, no member is live before that.
func (s *stage) renew(names []string) {
	s.Helper()
	record, err := s.record("demo")
	if err != nil {
		s.Fatal(err)
	}
	for i, name := range names {
		if record.Lists(name) {
			s.agent("demo", name, uint64(i+1), map[bool]leases.Role{true: leases.RoleLeader, false: leases.RoleMember}[i == 0])
		}
	}
}

// renewAsIs renews the Leases of the listed members with the IDs and roles that they have.
func (s *stage) renewAsIs() {
	s.Helper()
	record, err := s.record("demo")
	if err != nil {
		s.Fatal(err)
	}
	for _, name := range record.Members {
		m, err := s.store("demo").Member(s.Context(), name)
		if err != nil {
			s.Fatal(err)
		}
		s.agent("demo", name, m.ID, m.Role)
	}
}

// slot waits until a member is to leave.
func (s *stage) slot() leases.PendingRemoval {
	s.Helper()
	var found leases.PendingRemoval
	s.eventually("take the slot", func() error {
		record, err := s.record("demo")
		if err != nil {
			return err
		}
		if record.PendingRemoval == nil {
			return fmt.Errorf("the slot is free, members are %v", record.Members)
		}
		found = *record.PendingRemoval
		return nil
	})
	return found
}

// requested waits until a member's Lease is marked as the record's slot says.
func (s *stage) requested() leases.PendingRemoval {
	s.Helper()
	var found leases.PendingRemoval
	s.eventually("mark a Lease", func() error {
		found = s.slot()
		mark := s.mark(found.Member)
		if mark.State != leases.RemovalRequested || !found.Orders(found.Member, mark) {
			return fmt.Errorf("the slot is %+v, the mark %+v", found, mark)
		}
		return nil
	})
	return found
}

func (s *stage) mark(name string) leases.RemovalRequest {
	s.Helper()
	m, err := s.store("demo").Member(s.Context(), name)
	if err != nil {
		s.Fatal(err)
	}
	return m.Removal
}

// executor is the Pod whose agent removes the member called name: that of the leader. A leader that is to go moves leadership
// first, to another member or, from the last one, to an external member. Then its own agent removes it.
func (s *stage) executor(name string) (podUID string) {
	s.Helper()
	record, err := s.record("demo")
	if err != nil {
		s.Fatal(err)
	}
	var going, next leases.Member
	nextName := ""
	for _, listed := range record.Members {
		m, err := s.store("demo").Member(s.Context(), listed)
		switch {
		case err != nil:
			s.Fatal(err)
		case listed == name:
			going = m
		case m.Role == leases.RoleLeader:
			return m.PodUID
		case m.Role == leases.RoleMember && nextName == "":
			next, nextName = m, listed
		}
	}
	if going.Role == leases.RoleLeader {
		s.agent("demo", name, going.ID, leases.RoleMember)
	}
	if nextName == "" {
		return going.PodUID
	}
	s.agent("demo", nextName, next.ID, leases.RoleLeader)
	return next.PodUID
}

// answer is what the leader's agent writes.
func (s *stage) answer(name string, change func(*leases.RemovalRequest)) {
	s.Helper()
	by := s.executor(name)
	s.eventually("answer on Lease "+name, func() error {
		m, err := s.store("demo").Member(s.Context(), name)
		if err != nil {
			return err
		}
		mark := m.Removal
		mark.State, mark.By, mark.MemberID, mark.ClusterID = leases.RemovalBegun, by, leases.FormatID(m.ID), leases.FormatID(clusterID)
		change(&mark)
		if mark.State == leases.RemovalDone {
			mark.RaftTerm, mark.RaftIndex = 2, 10
		}
		_, err = s.store("demo").RequestRemoval(s.Context(), name, m.LeaseVersion, mark)
		return err
	})
}

func removing(*leases.RemovalRequest) {}
func done(r *leases.RemovalRequest)   { r.State = leases.RemovalDone }

// struck waits until the record does not list the name, and its slot is free.
func (s *stage) struck(name string) {
	s.Helper()
	s.eventually("strike "+name, func() error {
		record, err := s.record("demo")
		if err == nil && (record.Lists(name) || record.PendingRemoval != nil && record.PendingRemoval.Member == name) {
			return fmt.Errorf("record is %+v", record)
		}
		return err
	})
}

// swept plays the kubelet and the volume's protection until nothing bears the name.
func (s *stage) swept(name string) {
	s.Helper()
	s.podGoes(name)
	s.claimGoes(name)
	s.eventually("delete Lease "+name, func() error { return s.gone(name, &coordinationv1.Lease{}) })
}

// podGoes waits for the deletion of the Pod, and ends it.
func (s *stage) podGoes(name string) {
	s.Helper()
	s.eventually("delete Pod "+name, func() error {
		var pod corev1.Pod
		err := s.fetch(name, &pod)
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err == nil && pod.DeletionTimestamp != nil:
			s.end(name)
		case err == nil:
			return fmt.Errorf("Pod %s is not deleted", name)
		}
		return err
	})
}

// claimGoes waits for the deletion of the claim, and lets it go as kube-controller-manager does.
func (s *stage) claimGoes(name string) {
	s.Helper()
	s.eventually("delete claim "+name, func() error {
		var claim corev1.PersistentVolumeClaim
		err := s.fetch(name, &claim)
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err == nil && claim.DeletionTimestamp == nil:
			return fmt.Errorf("claim %s is not deleted", name)
		case err == nil:
			claim.Finalizers = nil
			if err = s.Update(s.Context(), &claim); err == nil {
				err = fmt.Errorf("claim %s is still there", name)
			}
		}
		return err
	})
}

func (s *stage) gone(name string, object client.Object) error {
	err := s.fetch(name, object)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err == nil {
		err = fmt.Errorf("%T %s exists", object, name)
	}
	return err
}

// routes makes the endpoints of the client Service hold just these Pods.
func (s *stage) routes(names ...string) {
	s.Helper()
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.namespace, Name: "demo-client-abc", Labels: map[string]string{discoveryv1.LabelServiceName: manifests.ClientServiceName("demo")},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
	}
	for i, name := range names {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{fmt.Sprintf("10.0.0.%d", i+1)}, TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: name},
		})
	}
	err := s.Create(s.Context(), slice)
	if apierrors.IsAlreadyExists(err) {
		endpoints := slice.Endpoints
		if err = s.fetch(slice.Name, slice); err == nil {
			slice.Endpoints = endpoints
			err = s.Update(s.Context(), slice)
		}
	}
	if err != nil {
		s.Fatal(err)
	}
}

// leaving waits until the status says how far the member's way out has come.
func (s *stage) leaving(name string, want v1alpha1.MemberLeaving) {
	s.Helper()
	s.eventually("show "+name, func() error {
		var cluster v1alpha1.EtcdCluster
		if err := s.fetch("demo", &cluster); err != nil {
			return err
		}
		for _, m := range cluster.Status.Members {
			if m.Name == name && m.Leaving == want {
				return nil
			}
		}
		return fmt.Errorf("members are %+v, want %s %q", cluster.Status.Members, name, want)
	})
}

// looks waits until druid has looked at the endpoints count times more.
func (s *stage) looks(count int) {
	s.Helper()
	before := len(s.calls.matching("GET", "/endpointslices"))
	s.eventually("look at the endpoints", func() error {
		if n := len(s.calls.matching("GET", "/endpointslices")); n < before+count {
			return fmt.Errorf("%d looks", n-before)
		}
		return nil
	})
}

// reported waits until an Event of the reason reports about the member.
func (s *stage) reported(reason, member string) {
	s.Helper()
	s.eventually("report "+reason, func() error {
		var list eventsv1.EventList
		if err := s.List(s.Context(), &list, client.InNamespace(s.namespace)); err != nil {
			return err
		}
		if !slices.ContainsFunc(list.Items, func(e eventsv1.Event) bool {
			return e.Reason == reason && (member == "" || e.Related != nil && e.Related.Name == member)
		}) {
			return fmt.Errorf("no Event %s of %q", reason, member)
		}
		return nil
	})
}

// deletions are the objects of the name that druid deleted, in their order.
func (s *stage) deletions(name string) []string {
	var kinds []string
	for _, call := range s.calls.matching("DELETE", "/"+name) {
		parts := strings.Split(call, "/")
		kinds = append(kinds, parts[len(parts)-2])
	}
	return slices.Compact(kinds)
}

// minAvailable waits for the budget.
func (s *stage) minAvailable(want int32) {
	s.Helper()
	s.eventually("set the budget", func() error { return s.budgetIs(want) })
}
