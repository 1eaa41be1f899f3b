package leases_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/test/machine"
)

func TestStoreOfARealServer(t *testing.T) {
	s := newServer(t)
	want := leases.Record{Phase: leases.PhaseForming, Seed: "demo-a", Epoch: 1, Members: []string{"demo-a"}}
	if _, _, err := s.store.Record(t.Context()); !errors.Is(err, leases.ErrAbsent) {
		t.Errorf("no record: %v, want ErrAbsent", err)
	}
	s.make("demo-cluster", func(l *coordinationv1.Lease) {
		l.Annotations = map[string]string{"someone.else/key": "stays"}
		if err := want.Encode(l); err != nil {
			t.Fatal(err)
		}
	})
	record, version, err := s.store.Record(t.Context())
	if diff := cmp.Diff(record, want); err != nil || diff != "" {
		t.Fatalf("%v (-got +want)\n%s", err, diff)
	}

	want.Phase, want.ClusterID, want.Nonce, want.Seed = leases.PhaseFormed, 0xabc, "n", ""
	next, err := s.store.UpdateRecord(t.Context(), version, want)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.store.UpdateRecord(t.Context(), version, leases.Record{Phase: leases.PhaseForming, Epoch: 9}); !errors.Is(err, leases.ErrConflict) {
		t.Errorf("a write over an old version: %v, want ErrConflict", err)
	}
	record, version, err = s.store.Record(t.Context())
	if diff := cmp.Diff(record, want); err != nil || diff != "" || version != next {
		t.Errorf("%v, version %s want %s (-got +want)\n%s", err, version, next, diff)
	}
	if s.get("demo-cluster").Annotations["someone.else/key"] != "stays" {
		t.Error("a foreign annotation was lost")
	}
	if _, err := s.store.UpdateRecord(t.Context(), "", want); err == nil {
		t.Error("a write without a version was made, want an error")
	}
	s.edit("demo-cluster", func(l *coordinationv1.Lease) { delete(l.Annotations, leases.Prefix+"phase") })
	if _, _, err := s.store.Record(t.Context()); !errors.Is(err, leases.ErrUnreadable) {
		t.Errorf("a record without a phase: %v, want ErrUnreadable", err)
	}
	if _, err := s.store.Member(t.Context(), "other"); !errors.Is(err, leases.ErrForbidden) {
		t.Errorf("a Lease that is not ours: %v, want ErrForbidden", err)
	}
}

func TestWhatIsOutOfReachIsUnknown(t *testing.T) {
	// The test owns this address, and no server listens on it.
	client, err := leases.NewClient(&rest.Config{Host: "http://" + machine.Address(t)}, "ns")
	if err != nil {
		t.Fatal(err)
	}
	_, err = leases.NewStore(client, "demo").Member(t.Context(), "demo-a")
	for _, known := range []error{leases.ErrAbsent, leases.ErrForbidden, leases.ErrUnreadable, leases.ErrConflict} {
		if errors.Is(err, known) {
			t.Errorf("%v is %v, want none of the answers", err, known)
		}
	}
	if err == nil {
		t.Error("got none, want an error")
	}
}

func TestRenewerOnARealServer(t *testing.T) {
	s := newServer(t)
	s.make("demo-a", func(l *coordinationv1.Lease) { l.Annotations = map[string]string{leases.AnnotationPodUID: "mine"} })
	settings := func() leases.Settings { return leases.Settings{Interval: time.Second, Duration: 3 * time.Second} }
	r := leases.NewRenewer(s.store, "demo-a", "mine", settings, discard())
	r.Publish(leases.Fact{Alive: true, Member: leases.Member{ID: 1, Role: leases.RoleMember, ClusterID: 2}})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	s.eventually("the Lease is held and renewed", func() bool {
		l := s.get("demo-a")
		return l.Spec.RenewTime != nil && *l.Spec.HolderIdentity == "1:Member" && *l.Spec.LeaseDurationSeconds == 3
	})
	const mark = `{"state":"requested","mark":"x7k2p"}`
	s.edit("demo-a", func(l *coordinationv1.Lease) { l.Annotations[leases.AnnotationRemoval] = mark })
	s.eventually("the mark is read and still there", func() bool {
		m, _, _ := r.Lease()
		return m.Removal.State == leases.RemovalRequested && s.get("demo-a").Annotations[leases.AnnotationRemoval] == mark
	})
	s.edit("demo-a", func(l *coordinationv1.Lease) {
		nonsense := "not a record"
		l.Spec.HolderIdentity = &nonsense
	})
	s.eventually("nonsense is written over, and the mark is still there", func() bool {
		l := s.get("demo-a")
		return *l.Spec.HolderIdentity == "1:Member" && l.Annotations[leases.AnnotationRemoval] == mark
	})
	if err := s.admin.RbacV1().RoleBindings(s.namespace).Delete(t.Context(), "agent", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.eventually("renewals are refused", func() bool { _, known, _ := r.Lease(); return !known })
	before := s.get("demo-a").Spec.RenewTime
	if err := s.admin.RbacV1().Roles(s.namespace).Delete(t.Context(), "agent", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.grant("get", "update", "patch")
	s.eventually("renewals go on", func() bool { return !s.get("demo-a").Spec.RenewTime.Equal(before) })
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run: %v", err)
	}
}

func TestMarkIsComparedAndSet(t *testing.T) {
	s := newServer(t)
	s.make("demo-a", func(l *coordinationv1.Lease) {
		holder := "1:Member"
		l.Spec.HolderIdentity = &holder
		l.Annotations = map[string]string{leases.AnnotationPodUID: "mine", "someone.else/key": "stays"}
	})
	before, err := s.store.Marks(t.Context(), "demo-a")
	if err != nil || before.Removal.State != leases.RemovalNone {
		t.Fatalf("%+v, %v: want no mark", before, err)
	}
	requested := leases.RemovalRequest{State: leases.RemovalRequested, Mark: "x7k2p"}
	asked, err := s.store.RequestRemoval(t.Context(), "demo-a", before.LeaseVersion, requested)
	if err != nil || asked.Removal != requested {
		t.Fatalf("%+v, %v: want %+v", asked, err, requested)
	}
	claimed := leases.RemovalRequest{State: leases.RemovalBegun, Mark: "x7k2p", By: "pod", MemberID: "1", ClusterID: "c"}
	if _, err := s.store.RequestRemoval(t.Context(), "demo-a", before.LeaseVersion, claimed); !errors.Is(err, leases.ErrConflict) {
		t.Errorf("over an old version: %v, want ErrConflict", err)
	}
	if _, err := s.store.RequestRemoval(t.Context(), "demo-a", "", claimed); err == nil {
		t.Error("a mark was written without a version, want an error")
	}
	if _, err := s.store.RequestRemoval(t.Context(), "demo-a", asked.LeaseVersion, leases.RemovalRequest{State: leases.RemovalDone, Mark: "x"}); err == nil {
		t.Error("half an acknowledgement was written, want an error")
	}
	if _, err := s.store.RequestRemoval(t.Context(), "demo-a", asked.LeaseVersion, leases.RemovalRequest{}); err != nil {
		t.Fatal(err)
	}
	member, err := s.store.Member(t.Context(), "demo-a")
	if err != nil || member.Removal != (leases.RemovalRequest{}) || member.ID != 1 || member.PodUID != "mine" {
		t.Errorf("%+v, %v: want the mark gone and the rest as it was", member, err)
	}
	if s.get("demo-a").Annotations["someone.else/key"] != "stays" {
		t.Error("a foreign annotation was lost")
	}
}

func TestRecordIsWatchedByName(t *testing.T) {
	s := newServer(t)
	if err := s.store.WatchRecord(t.Context(), func(leases.Version) {}); !errors.Is(err, leases.ErrForbidden) {
		t.Errorf("without the right: %v, want ErrForbidden", err)
	}
	s.watching()
	fill := func(l *coordinationv1.Lease) {
		if err := (leases.Record{Phase: leases.PhaseForming, Epoch: 1}).Encode(l); err != nil {
			t.Fatal(err)
		}
	}
	s.make("demo-cluster", fill)
	s.make("demo-a", func(*coordinationv1.Lease) {})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	versions, done := make(chan leases.Version), make(chan error, 1)
	go func() {
		for {
			err := s.store.WatchRecord(ctx, func(v leases.Version) {
				select {
				case versions <- v:
				case <-ctx.Done():
				}
			})
			if !errors.Is(err, leases.ErrForbidden) { // the right was given just now
				done <- err
				return
			}
		}
	}()
	next := func(what string) leases.Version {
		t.Helper()
		select {
		case v := <-versions:
			return v
		case err := <-done:
			t.Fatalf("%s: the watch ended: %v", what, err)
		case <-ctx.Done():
			t.Fatalf("%s: not within a minute", what)
		}
		return ""
	}
	if got, want := next("the present version"), leases.Version(s.get("demo-cluster").ResourceVersion); got != want {
		t.Errorf("first seen at %s, want %s", got, want)
	}
	s.edit("demo-a", func(l *coordinationv1.Lease) { l.Annotations = map[string]string{"renewed": "yes"} })
	s.edit("demo-cluster", func(l *coordinationv1.Lease) { l.Annotations["someone.else/key"] = "new" })
	if got, want := next("the change"), leases.Version(s.get("demo-cluster").ResourceVersion); got != want {
		t.Errorf("then seen at %s, want %s: nothing of another Lease", got, want)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v, want the context's end", err)
	}
}

// TestDruidAnnotationsCompareAndSet: druid's annotations are written by compare and set.
// What druid writes on a Lease is a compare-and-set that leaves everything else on the Lease unchanged.
func TestDruidAnnotationsCompareAndSet(t *testing.T) {
	order, repairing := leases.UpgradeOrder{Nonce: "one", Version: "3.6.5"}, leases.Repairing{Restarts: 2}
	encodedOrder, err1 := order.Encode()
	encodedRepairing, err2 := repairing.Encode()
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	s := newServer(t)
	for name, test := range map[string]struct {
		lease        string
		write, clear func(leases.Version) error // clear is nil for what is never removed
		want         map[string]string
	}{
		"the Pod and the volume of a member": {
			lease: "demo-a",
			write: func(at leases.Version) error { return s.store.BindMember(t.Context(), "demo-a", at, "pod", "volume") },
			want:  map[string]string{leases.AnnotationPodUID: "pod", leases.AnnotationVolumeUID: "volume"},
		},
		"the repair of a member": {
			lease: "demo-b",
			write: func(at leases.Version) error { return s.store.AnnounceRepair(t.Context(), "demo-b", at, repairing) },
			clear: func(at leases.Version) error {
				return s.store.AnnounceRepair(t.Context(), "demo-b", at, leases.Repairing{})
			},
			want: map[string]string{leases.AnnotationRepairing: encodedRepairing},
		},
		"an upgrade": {
			lease: leases.RecordName("demo"),
			write: func(at leases.Version) error { return s.store.OrderUpgrade(t.Context(), at, order) },
			clear: func(at leases.Version) error { return s.store.OrderUpgrade(t.Context(), at, leases.UpgradeOrder{}) },
			want:  map[string]string{leases.AnnotationUpgradeOrder: encodedOrder},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s.make(test.lease, func(l *coordinationv1.Lease) {
				l.Annotations = map[string]string{"other": "stays", leases.AnnotationUpgradeAnswer: "of an earlier order"}
			})
			if test.lease != leases.RecordName("demo") {
				test.want[leases.AnnotationUpgradeAnswer] = "of an earlier order"
			}
			test.want["other"] = "stays"
			before := leases.Version(s.get(test.lease).ResourceVersion)
			if err := test.write(before); err != nil {
				t.Fatal(err)
			}
			if err := test.write(""); err == nil {
				t.Error("written without a version, want an error")
			}
			s.edit(test.lease, func(l *coordinationv1.Lease) { l.Labels = map[string]string{"edited": "true"} })
			if err := test.write(before); !errors.Is(err, leases.ErrConflict) {
				t.Errorf("over an old version: %v, want ErrConflict", err)
			}
			if diff := cmp.Diff(test.want, s.get(test.lease).Annotations); diff != "" {
				t.Errorf("written (-want +got)\n%s", diff)
			}
			if test.clear == nil {
				return
			}
			if err := test.clear(leases.Version(s.get(test.lease).ResourceVersion)); err != nil {
				t.Fatal(err)
			}
			for key := range s.get(test.lease).Annotations {
				if key == leases.AnnotationRepairing || key == leases.AnnotationUpgradeOrder {
					t.Errorf("%s is still there", key)
				}
			}
		})
	}
}
