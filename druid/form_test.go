package druid

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/manifests"
)

func TestNamesAreRecordedBeforeAnythingBearsThem(t *testing.T) {
	s := newStage(t)
	s.startDruid()
	s.createCluster("demo", 3)
	names := s.members("demo", 3)

	posts := s.calls.matching("POST", "/namespaces/"+s.namespace+"/")
	if len(posts) == 0 || !strings.HasSuffix(posts[0], "/leases") {
		t.Errorf("the first object created was by %v, want the record Lease", posts)
	}
	at := func(part string) int {
		return slices.IndexFunc(posts, func(call string) bool { return strings.HasSuffix(call, part) })
	}
	if claim, pod := at("/persistentvolumeclaims"), at("/pods"); claim > pod {
		t.Errorf("a Pod was created before every claim: %v", posts)
	}
	if got := len(s.calls.creations("/pods")); got != 3 {
		t.Errorf("%d Pods were created, want 3", got)
	}
	record, err := s.record("demo")
	if err != nil {
		t.Fatal(err)
	}
	want := leases.Record{Phase: leases.PhaseForming, Epoch: 1, Seed: names[0], Nonce: record.Nonce, Members: names}
	if diff := cmp.Diff(want, record); diff != "" || record.Nonce == "" {
		t.Errorf("record (-want +got):\n%s", diff)
	}
	s.condition("demo", v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonForming)
}

func TestFormedClusterIsServedThenLeftAlone(t *testing.T) {
	s := newStage(t)
	s.startDruid()
	s.createCluster("demo", 3)
	names := s.members("demo", 3)
	s.form("demo", names)

	s.condition("demo", v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonQuorate)
	s.condition("demo", v1alpha1.ConditionAllMembersReady, metav1.ConditionTrue, v1alpha1.ReasonAllReady)
	s.condition("demo", v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonReconciled)
	s.condition("demo", v1alpha1.ConditionDegraded, metav1.ConditionFalse, v1alpha1.ReasonAsExpected)
	s.eventually("labels and budget", func() error {
		for _, name := range names {
			var pod corev1.Pod
			if err := s.fetch(name, &pod); err != nil {
				return err
			}
			if pod.Labels[manifests.LabelServing] != manifests.LabelTrue || pod.Labels[manifests.LabelVoter] != manifests.LabelTrue {
				return fmt.Errorf("Pod %s bears %v", name, pod.Labels)
			}
		}
		var budget policyv1.PodDisruptionBudget
		if err := s.fetch(manifests.DisruptionBudgetName("demo"), &budget); err != nil {
			return err
		}
		if budget.Spec.MinAvailable.IntVal != 2 {
			return fmt.Errorf("minAvailable is %s, want 2", budget.Spec.MinAvailable)
		}
		return nil
	})
	var cluster v1alpha1.EtcdCluster
	if err := s.fetch("demo", &cluster); err != nil {
		t.Fatal(err)
	}
	if cluster.Status.ClusterID != leases.FormatID(clusterID) || cluster.Status.ReadyReplicas != 3 || cluster.Status.ClusterSize != 3 {
		t.Errorf("status is %+v", cluster.Status)
	}

	// A steady cluster renews its Leases, and costs druid no call at all.
	// Renewals that cost anything would do so in every round; what druid still had to do for the formation falls into one.
	s.eventually("renew at no cost", func() error {
		before := s.calls.count()
		for range 5 {
			for i, name := range names {
				s.agent("demo", name, uint64(i+1), map[bool]leases.Role{true: leases.RoleLeader, false: leases.RoleMember}[i == 0])
			}
		}
		for _, name := range names {
			s.caughtUp(name, &coordinationv1.Lease{})
		}
		if err := s.rests(); err != nil || s.calls.count() != before {
			return fmt.Errorf("renewals cost druid %d calls: %v", s.calls.count()-before, s.calls.since(before))
		}
		return nil
	})
}

// rests says whether druid makes no call for as long as restTime.
func (s *stage) rests() error {
	before := s.calls.count()
	timer := time.NewTimer(restTime)
	defer timer.Stop()
	<-timer.C
	if after := s.calls.count(); after != before {
		return fmt.Errorf("druid made %d calls", after-before)
	}
	return nil
}

func TestEventsReportTheStory(t *testing.T) {
	s := newStage(t)
	s.startDruid()
	names := s.whole(3)
	want := []string{v1alpha1.EventRecordCreated + " ", v1alpha1.EventClusterFormed + " "}
	for _, name := range names {
		want = append(want, v1alpha1.EventPodCreated+" "+name, v1alpha1.EventMemberReady+" "+name)
	}
	slices.Sort(want)
	s.eventually("report the story", func() error {
		var list eventsv1.EventList
		if err := s.List(t.Context(), &list, client.InNamespace(s.namespace)); err != nil {
			return err
		}
		var got []string
		for _, e := range list.Items {
			if e.Regarding.Kind != "EtcdCluster" || e.Type != corev1.EventTypeNormal {
				continue
			}
			member := ""
			if e.Related != nil {
				member = e.Related.Name
			}
			got = append(got, e.Reason+" "+member)
		}
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			return fmt.Errorf("events (-want +got):\n%s", diff)
		}
		return nil
	})
}
