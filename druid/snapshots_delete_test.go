package druid

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
)

// savedToDelete is an EtcdSnapshot that succeeded and takes its backup along.
func (s *stage) savedToDelete(name string) (uid string) {
	s.Helper()
	snapshot := etcdSnapshot(s.namespace, name, v1alpha1.SnapshotFull)
	snapshot.Spec.DeletionPolicy = v1alpha1.SnapshotDelete
	uid = s.asks(snapshot)
	s.orders(full, uid)
	s.replies(full, done7(uid))
	s.becomes(name, v1alpha1.SnapshotSucceeded)
	if err := s.heldBy(name, true); err != nil {
		s.Error(err)
	}
	s.orders(full, "")
	return uid
}

func (s *stage) heldBy(name string, want bool) error {
	var snapshot v1alpha1.EtcdSnapshot
	if err := s.fetch(name, &snapshot); err != nil {
		return err
	}
	if slices.Contains(snapshot.Finalizers, v1alpha1.SnapshotFinalizer) != want {
		return fmt.Errorf("EtcdSnapshot %s has finalizers %v, is held: want %t", name, snapshot.Finalizers, want)
	}
	return nil
}

func (s *stage) deleteSnapshot(name string) {
	s.Helper()
	if err := s.Delete(s.Context(), etcdSnapshot(s.namespace, name, v1alpha1.SnapshotFull)); err != nil {
		s.Fatal(err)
	}
}

// ordersDeletion waits for the order, and says what it is about.
func (s *stage) ordersDeletion(uid string) {
	s.Helper()
	s.eventually("order the deletion", func() error {
		order, err := s.store("demo").SnapshotOrder(s.Context(), full)
		if err != nil || order.UID != uid || order.Kind != leases.SnapshotDelete {
			return fmt.Errorf("ordered %+v, %w", order, err)
		}
		target, err := order.Target()
		if err != nil || target != (leases.SnapshotTarget{URI: "s3://b/demo/full"}) {
			s.Fatalf("ordered of %+v, %v", target, err)
		}
		return nil
	})
}

// notes are those of the Events about an EtcdSnapshot of the reason.
func (s *stage) notes(name, reason string) (notes []string) {
	s.Helper()
	var list eventsv1.EventList
	if err := s.List(s.Context(), &list, client.InNamespace(s.namespace)); err != nil {
		s.Fatal(err)
	}
	for _, e := range list.Items {
		if e.Regarding.Kind == "EtcdSnapshot" && e.Regarding.Name == name && e.Reason == reason {
			notes = append(notes, e.Note)
		}
	}
	return notes
}

func (s *stage) noted(name, reason, want string) {
	s.Helper()
	s.eventually("report "+name, func() error {
		if notes := s.notes(name, reason); !slices.ContainsFunc(notes, func(note string) bool { return strings.Contains(note, want) }) {
			return fmt.Errorf("%s of %s says %q, want %q", reason, name, notes, want)
		}
		return nil
	})
}

func (s *stage) leaves(name string) {
	s.Helper()
	s.eventually("let go of "+name, func() error { return s.gone(name, &v1alpha1.EtcdSnapshot{}) })
}

func TestAnEtcdSnapshotTakesItsBackupAlong(t *testing.T) {
	s := backedUp(t)
	uid := s.savedToDelete("a")
	next := s.snapshot("next", v1alpha1.SnapshotFull, nil)
	s.orders(full, next)
	s.deleteSnapshot("a") // while another is at its turn
	s.replies(full, done7(next))
	s.becomes("next", v1alpha1.SnapshotSucceeded)
	s.ordersDeletion(uid)
	s.replies(full, leases.SnapshotAnswer{UID: uid, Phase: leases.SnapshotSucceeded}) // as an agent does that knows of no kinds
	s.replies(full, leases.SnapshotAnswer{UID: uid, Kind: leases.SnapshotDelete, Phase: leases.SnapshotRunning})
	if err := s.heldBy("a", true); err != nil {
		t.Error(err)
	}
	s.replies(full, leases.SnapshotAnswer{UID: uid, Kind: leases.SnapshotDelete, Phase: leases.SnapshotSucceeded, Object: "demo/full"})
	s.leaves("a")
	s.orders(full, "")
	s.noted("a", v1alpha1.EventBackupDeleted, "s3://b/demo/full was deleted")

	uid = s.savedToDelete("refused")
	s.deleteSnapshot("refused")
	s.ordersDeletion(uid)
	s.replies(full, leases.SnapshotAnswer{UID: uid, Kind: leases.SnapshotDelete, Phase: leases.SnapshotFailed, Error: "the newest full"})
	s.leaves("refused")
	s.noted("refused", v1alpha1.EventBackupRetained, "s3://b/demo/full stays in the store: the newest full")
	s.orders(full, "")
}

func TestWhoKeepsABackupAfterAllIsNotHeld(t *testing.T) {
	s := backedUp(t)
	keep := func(name string, policy v1alpha1.SnapshotDeletionPolicy) {
		t.Helper()
		var snapshot v1alpha1.EtcdSnapshot
		s.edit(name, &snapshot, func() { snapshot.Spec.DeletionPolicy = policy })
	}
	s.savedToDelete("before")
	keep("before", v1alpha1.SnapshotRetain)
	s.eventually("let go", func() error { return s.heldBy("before", false) })
	keep("before", v1alpha1.SnapshotDelete)
	s.eventually("hold", func() error { return s.heldBy("before", true) })

	uid := s.savedToDelete("meanwhile")
	s.deleteSnapshot("meanwhile")
	s.ordersDeletion(uid)
	keep("meanwhile", v1alpha1.SnapshotRetain)
	s.leaves("meanwhile")
	s.orders(full, "")

	failed := etcdSnapshot(s.namespace, "failed", v1alpha1.SnapshotFull)
	failed.Spec.DeletionPolicy = v1alpha1.SnapshotDelete
	uid = s.asks(failed)
	s.orders(full, uid)
	s.replies(full, leases.SnapshotAnswer{UID: uid, Phase: leases.SnapshotFailed, Error: "denied"})
	s.becomes("failed", v1alpha1.SnapshotFailed)
	s.deleteSnapshot("failed")
	s.leaves("failed") // there is no backup

	// What goes with the whole namespace, or without its cluster, is not held.
	uid = s.savedToDelete("last")
	s.deleteSnapshot("last")
	s.ordersDeletion(uid)
	s.delete("demo", metav1.DeletePropagationBackground)
	s.leaves("last")
	s.noted("last", v1alpha1.EventBackupRetained, "there is no EtcdCluster demo with spec.backup any more")
	s.deleteSnapshot("before")
	s.leaves("before")
	if notes := s.notes("meanwhile", v1alpha1.EventBackupRetained); len(notes) > 0 {
		t.Errorf("a backup that was to stay is reported: %q", notes)
	}
}

// A pass that goes by an old cache must not have a backup deleted that is to stay.
func TestWhatIsToStayIsNotOrderedToGo(t *testing.T) {
	s := backedUp(t)
	uid := s.savedToDelete("a")
	var there v1alpha1.EtcdSnapshot
	s.edit("a", &there, func() { there.Finalizers = append(there.Finalizers, "test.etcd.druid.dev/keep") })
	s.deleteSnapshot("a")
	s.ordersDeletion(uid)
	var old v1alpha1.EtcdSnapshot
	if err := s.fetch("a", &old); err != nil {
		t.Fatal(err)
	}
	var live v1alpha1.EtcdSnapshot
	s.edit("a", &live, func() { live.Spec.DeletionPolicy = v1alpha1.SnapshotRetain })
	s.orders(full, "")
	s.looksAgain(&old)
	s.eventually("let go", func() error { return s.heldBy("a", false) })
	s.edit("a", &live, func() { live.Finalizers = nil })
	if err := s.ordered(full, ""); err != nil {
		t.Error(err)
	}
}

// Anyone who deletes a namespace deletes its EtcdSnapshots perhaps before its EtcdCluster.
func TestABackupStaysWhenItsNamespaceGoes(t *testing.T) {
	s := backedUp(t)
	s.savedToDelete("a")
	if err := s.Delete(s.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}}); err != nil {
		t.Fatal(err)
	}
	s.deleteSnapshot("a")
	s.eventually("look at the namespace", func() error {
		reads := s.calls.matching("GET", "/api/v1/namespaces/"+s.namespace)
		if !slices.ContainsFunc(reads, func(call string) bool { return strings.HasSuffix(call, "/"+s.namespace) }) {
			return errors.New("not deleted")
		}
		return s.heldBy("a", true)
	})
	s.orders(full, "")
	s.delete("demo", metav1.DeletePropagationBackground)
	s.leaves("a")
}
