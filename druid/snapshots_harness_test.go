package druid

import (
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
)

// snapshot asks for a backup of cluster demo and returns the UID of the request.
func (s *stage) snapshot(name string, kind v1alpha1.SnapshotType, ttl *int32) string {
	s.Helper()
	snapshot := etcdSnapshot(s.namespace, name, kind)
	snapshot.Spec.TTLSecondsAfterFinished = ttl
	return s.asks(snapshot)
}

func etcdSnapshot(namespace, name string, kind v1alpha1.SnapshotType) *v1alpha1.EtcdSnapshot {
	return &v1alpha1.EtcdSnapshot{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       v1alpha1.EtcdSnapshotSpec{ClusterRef: v1alpha1.ClusterReference{Name: "demo"}, Type: kind},
	}
}

// asks for a backup and returns the UID of the request.
func (s *stage) asks(snapshot *v1alpha1.EtcdSnapshot) string {
	s.Helper()
	if err := s.Create(s.Context(), snapshot); err != nil {
		s.Fatal(err)
	}
	return string(snapshot.UID)
}

// settled is the status of the EtcdSnapshot, with what is missing until it is in a phase.
func (s *stage) settled(name string, phase v1alpha1.SnapshotPhase) (v1alpha1.EtcdSnapshotStatus, error) {
	var snapshot v1alpha1.EtcdSnapshot
	if err := s.fetch(name, &snapshot); err != nil {
		return snapshot.Status, err
	}
	if snapshot.Status.Phase != phase {
		return snapshot.Status, fmt.Errorf("EtcdSnapshot %s is %+v, want %s", name, snapshot.Status, phase)
	}
	return snapshot.Status, nil
}

func (s *stage) becomes(name string, phase v1alpha1.SnapshotPhase) (status v1alpha1.EtcdSnapshotStatus) {
	s.Helper()
	s.eventually("become "+string(phase), func() (err error) {
		status, err = s.settled(name, phase)
		return err
	})
	return status
}

// ordered says whether the Lease bears the order, empty for none and no answer.
func (s *stage) ordered(component leases.Component, uid string) error {
	var lease coordinationv1.Lease
	if err := s.fetch(leases.SnapshotName("demo", component), &lease); err != nil {
		return err
	}
	order, answer := lease.Annotations[leases.AnnotationSnapshotOrder], lease.Annotations[leases.AnnotationSnapshotAnswer]
	if order != uid || uid == "" && answer != "" {
		return fmt.Errorf("Lease %s orders %q, answered %q, want %q", lease.Name, order, answer, uid)
	}
	return nil
}

func (s *stage) orders(component leases.Component, uid string) {
	s.Helper()
	s.eventually("order on "+string(component), func() error { return s.ordered(component, uid) })
}

// replies as the leader's agent does.
func (s *stage) replies(component leases.Component, a leases.SnapshotAnswer) {
	s.Helper()
	a.Started = time.Date(2026, 11, 21, 18, 54, 0, 0, time.UTC)
	if a.Phase != leases.SnapshotRunning {
		a.Finished = a.Started.Add(time.Minute)
	}
	s.eventually("answer", func() error {
		order, err := s.store("demo").SnapshotOrder(s.Context(), component)
		if err != nil {
			return err
		}
		return s.store("demo").AnswerSnapshot(s.Context(), component, order.Version, a)
	})
}

// obey answers what is ordered, where anything is.
func (s *stage) obey() {
	s.Helper()
	for _, component := range []leases.Component{full, delta} {
		if order, err := s.store("demo").SnapshotOrder(s.Context(), component); err == nil && order.Open() {
			answer := done7(order.UID)
			answer.Kind = order.Kind
			s.replies(component, answer)
		}
	}
}

func done7(uid string) leases.SnapshotAnswer {
	return leases.SnapshotAnswer{UID: uid, Phase: leases.SnapshotSucceeded, Object: "demo/full", URI: "s3://b/demo/full", Revision: 7, Size: 9, SHA256: "ab", StorageVersion: "3.6"}
}
