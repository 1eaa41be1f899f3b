package druid

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/druid/control"
	"github.com/etcd-druid/druid/druid/policy"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/manifests"
)

// TestScaleDownRevertedUntilClaimed: a scale-down can be reverted until an agent claims it.
func TestScaleDownRevertedUntilClaimed(t *testing.T) {
	t.Parallel()
	kept := func(t *testing.T, s *stage, names []string, member string) {
		s.eventually("keep the member", func() error {
			record, err := s.record("demo")
			if err == nil && record.PendingRemoval != nil {
				err = fmt.Errorf("slot is %+v", record.PendingRemoval)
			}
			return err
		})
		if mark := s.mark(member); mark != (leases.RemovalRequest{}) {
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
		s.reported(v1alpha1.EventScaleDownCancelled, member)
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
		s.reported(v1alpha1.ReasonScaleDownBlocked, "")
		s.eventually("leave the slot free", func() error {
			record, err := s.record("demo")
			if err == nil && (record.PendingRemoval != nil || len(record.Members) != 3) {
				err = fmt.Errorf("record is %+v", record)
			}
			return err
		})
		for _, name := range names {
			if mark := s.mark(name); mark != (leases.RemovalRequest{}) {
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
		t.Errorf("%s is to go, want %s, which serves no client", member, names[1])
	}
	// Before an agent claimed it another fails: that one may need the slot.
	s.kubelet(names[2], false)
	blocked("is not ready")
}

func TestClaimsFollowTheRetentionPolicy(t *testing.T) {
	s := newStage(t)
	s.startDruid()
	names := s.whole(3)
	var cluster v1alpha1.EtcdCluster
	if err := s.fetch("demo", &cluster); err != nil {
		t.Fatal(err)
	}
	own := manifests.ClaimOwner(&cluster)
	other := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "other", UID: "another-owner"}

	// A claim of the cluster that no member has any more, one that has another owner too, one of an earlier cluster.
	unlisted, earlier := manifests.PersistentVolumeClaim(&cluster, "demo-unlisted"), manifests.PersistentVolumeClaim(&cluster, "demo-earlier")
	unlisted.OwnerReferences = []metav1.OwnerReference{other}
	earlier.Labels[manifests.LabelClusterUID] = "an-earlier-cluster"
	for _, claim := range []*corev1.PersistentVolumeClaim{unlisted, earlier} {
		if err := s.Create(t.Context(), claim); err != nil {
			t.Fatal(err)
		}
	}
	await := func(what string, ours ...metav1.OwnerReference) {
		t.Helper()
		want := map[string][]metav1.OwnerReference{"demo-earlier": nil, "demo-unlisted": append([]metav1.OwnerReference{other}, ours...)}
		for _, name := range names {
			want[name] = ours
		}
		s.eventually(what, func() error {
			if diff := cmp.Diff(want, s.owners("demo")); diff != "" {
				return fmt.Errorf("owners (-want +got):\n%s", diff)
			}
			return nil
		})
	}
	await("claims stay unless something else is said")
	s.retain(v1alpha1.DeletePersistentVolumeClaim)
	await("claims are to go", own)
	s.retain(v1alpha1.RetainPersistentVolumeClaim)
	await("claims are to stay after all")

	s.createClusterWith("restored", func(c *v1alpha1.EtcdCluster) {
		c.Spec.Storage.PersistentVolumeClaimRetentionPolicy.WhenDeleted = v1alpha1.DeletePersistentVolumeClaim
	})
	name := s.members("restored", 1)[0]
	if owners := s.owners("restored")[name]; len(owners) != 1 || owners[0].Name != "restored" {
		t.Errorf("a claim that is to go with its cluster was made with the owners %+v", owners)
	}
	if patches := s.calls.matching("PATCH", "/persistentvolumeclaims/"+name); len(patches) != 0 {
		t.Errorf("a claim that is as it should be was written: %v", patches)
	}
}

// The caches may show a cluster that is deleted already, so that what it owned stays. Taken then, the data would go.
func TestDeletedClusterTakesNoClaim(t *testing.T) {
	s := newStage(t)
	stop := s.startDruid()
	names := s.whole(1)
	stop()
	s.retain(v1alpha1.DeletePersistentVolumeClaim)
	r := s.reconciler(s.Client)
	o := s.observed(r)
	step := stepFor(t, o, policy.TakeClaim)
	s.delete("demo", metav1.DeletePropagationOrphan)
	if err := r.take(t.Context(), o, step); err != nil {
		t.Fatal(err)
	}
	if owners := s.owners("demo")[names[0]]; len(owners) != 0 {
		t.Errorf("the claim was taken: %+v", owners)
	}
	s.released("demo")
	if err := r.take(t.Context(), o, step); err != nil {
		t.Fatal(err)
	}
	if owners := s.owners("demo")[names[0]]; len(owners) != 0 {
		t.Errorf("the claim was taken by a cluster that is gone: %+v", owners)
	}
}

func TestOwnersAreWrittenByCompareAndSet(t *testing.T) {
	s := newStage(t)
	stop := s.startDruid()
	s.createClusterWith("demo", func(c *v1alpha1.EtcdCluster) {
		c.Spec.Storage.PersistentVolumeClaimRetentionPolicy.WhenDeleted = v1alpha1.DeletePersistentVolumeClaim
	})
	name := s.members("demo", 1)[0]
	stop()
	s.retain(v1alpha1.RetainPersistentVolumeClaim)
	r := s.reconciler(s.Client)
	o := s.observed(r)
	step := stepFor(t, o, policy.ReleaseClaim)
	s.binder(name) // the claim changes after the plan
	if err := r.take(t.Context(), o, step); !apierrors.IsConflict(err) || control.Passing(err) != control.StaleCachePause {
		t.Errorf("release a claim that changed: got %v, want a conflict", err)
	}
	if owners := s.owners("demo")[name]; len(owners) != 1 {
		t.Errorf("owners are %+v, want them as they were", owners)
	}
}

// TestOrphanedClusterUntouched: an orphaned cluster is neither adopted nor touched.
func TestOrphanedClusterUntouched(t *testing.T) {
	s := newStage(t)
	s.startDruid()
	names := s.whole(3)
	s.retain(v1alpha1.DeletePersistentVolumeClaim)
	s.eventually("claims are to go", func() error {
		for name, owners := range s.owners("demo") {
			if len(owners) != 1 {
				return fmt.Errorf("%s is owned by %+v", name, owners)
			}
		}
		return nil
	})
	s.delete("demo", metav1.DeletePropagationOrphan)
	s.eventually("see the deletion", func() error { return s.rests() })
	s.orphan("demo")
	s.eventually("rest", func() error { return s.rests() })
	before := versions(s.belongingsOf("demo"))

	s.createCluster("demo", 3)
	condition := s.condition("demo", v1alpha1.ConditionDegraded, metav1.ConditionTrue, v1alpha1.ReasonObjectNotOwned)
	if !strings.Contains(condition.Message, leases.RecordName("demo")) {
		t.Errorf("message %q does not name the record", condition.Message)
	}
	s.eventually("rest next to the orphans", func() error { return s.rests() })
	if diff := cmp.Diff(before, versions(s.belongingsOf("demo"))); diff != "" {
		t.Errorf("what was orphaned changed (-before +after):\n%s", diff)
	}
	for name, owners := range s.owners("demo") {
		if len(owners) != 0 || !slices.Contains(names, name) {
			t.Errorf("claim %s is owned by %+v", name, owners)
		}
	}
}

// TestNewClusterShowsFormerVolumes: a new cluster shows the volumes of the one before.
func TestNewClusterShowsFormerVolumes(t *testing.T) {
	s := newStage(t)
	s.startDruid()
	names := s.whole(3)
	if reported := s.leftoversReported(); len(reported) != 0 {
		t.Errorf("a first cluster reports volumes that are left: %v", reported)
	}
	deleted := s.delete("demo", metav1.DeletePropagationBackground)
	s.eventually("see the deletion", func() error { return s.rests() })
	s.collect("demo", deleted)
	left := versions(s.belongingsOf("demo"))
	if len(left) != 3 {
		t.Fatalf("what is left is %v, want three claims", sortedKeys(left))
	}

	s.createCluster("demo", 3)
	again := s.members("demo", 3)
	s.form("demo", again)
	s.condition("demo", v1alpha1.ConditionAllMembersReady, metav1.ConditionTrue, v1alpha1.ReasonAllReady)
	s.condition("demo", v1alpha1.ConditionDegraded, metav1.ConditionFalse, v1alpha1.ReasonAsExpected)
	for _, name := range again {
		if slices.Contains(names, name) {
			t.Errorf("name %s is used twice", name)
		}
	}
	s.eventually("report what is left", func() error {
		reported := s.leftoversReported()
		if len(reported) != 1 || !strings.Contains(reported[0], strings.Join(names, ", ")) {
			return fmt.Errorf("reported %q, want %v once", reported, names)
		}
		return nil
	})
	after := versions(s.belongingsOf("demo"))
	for object, version := range left {
		if after[object] != version {
			t.Errorf("%s was touched: %s, was %s", object, after[object], version)
		}
	}
}

// leftoversReported are the notes of the Events about volumes of an earlier cluster.
func (s *stage) leftoversReported() []string {
	s.Helper()
	var list eventsv1.EventList
	if err := s.List(s.Context(), &list, client.InNamespace(s.namespace)); err != nil {
		s.Fatal(err)
	}
	var notes []string
	for _, e := range list.Items {
		if e.Reason == v1alpha1.EventRetainedVolumesFound && e.Type == corev1.EventTypeWarning {
			notes = append(notes, e.Note)
		}
	}
	return notes
}
