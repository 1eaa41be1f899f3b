package druid

import (
	"fmt"
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/leases"
)

// thief has the tokens of all agents, and a druid whose clock the test drives.
type thief struct {
	*clocked
	// names are the members, of which the first one leads, and leaving is the one that the record's slot names.
	names   []string
	leaving string
	pods    map[string]*corev1.Pod
	tokens  map[string]client.Client
}

// newThief returns a thief of a cluster of three that is to shrink. The policy for the Leases of the agents is in force.
func newThief(t *testing.T, joins bool) *thief {
	t.Helper()
	s := newStage(t)
	s.joins = joins
	s.install("admission.yaml")
	stop := s.startDruid()
	x := &thief{pods: map[string]*corev1.Pod{}, tokens: map[string]client.Client{}}
	if joins {
		x.names = s.formed("demo", 3)
	} else {
		x.names = s.whole(3)
	}
	stop()
	for _, name := range x.names {
		pod := &corev1.Pod{}
		if err := s.fetch(name, pod); err != nil {
			t.Fatal(err)
		}
		x.pods[name], x.tokens[name] = pod, s.asAgent(pod)
	}
	s.eventually("the policy is in force", func() error {
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: x.names[0]}}
		patch := []byte(`{"metadata":{"annotations":{"etcd.druid.dev/revision":"9"}}}`)
		if x.tokens[x.names[1]].Patch(t.Context(), lease, client.RawPatch(types.MergePatchType, patch), client.DryRunAll) == nil {
			return fmt.Errorf("a token writes the Lease of another member")
		}
		return nil
	})
	x.clocked = s.clocked()
	x.stage.renew(x.names)
	x.pass()
	if joins {
		s.delete("demo", metav1.DeletePropagationBackground)
	} else {
		x.patchCluster(`{"spec":{"replicas":1}}`)
	}
	x.pass()
	x.leaving = x.requested().Member
	return x
}

// other is a follower that stays.
func (x *thief) other() string {
	return x.names[slices.IndexFunc(x.names, func(name string) bool { return name != x.names[0] && name != x.leaving })]
}

// acknowledge answers the removal request with the token of a member's agent: it claims the removal, and acknowledges it.
func (x *thief) acknowledge(by string) {
	x.Helper()
	for _, state := range []leases.RemovalState{leases.RemovalBegun, leases.RemovalDone} {
		mark := x.mark(x.leaving)
		mark.State, mark.By, mark.MemberID, mark.ClusterID = state, string(x.pods[by].UID), "abc", leases.FormatID(clusterID)
		if state == leases.RemovalDone {
			mark.RaftTerm, mark.RaftIndex = 2, 10
		}
		value, err := mark.Encode()
		if err != nil {
			x.Fatal(err)
		}
		x.write(by, x.leaving, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, leases.AnnotationRemoval, value))
	}
}

// reports writes the role of a member to its Lease with the token of its agent, and renews it. The Lease expires after 45 s.
func (x *thief) reports(name string, role leases.Role) {
	x.Helper()
	id := slices.Index(x.names, name) + 1
	x.write(name, name, fmt.Sprintf(`{"spec":{"holderIdentity":"%d:%s","leaseDurationSeconds":45,"renewTime":%q}}`, id, role,
		time.Now().UTC().Format("2006-01-02T15:04:05.000000Z")))
}

func (x *thief) write(by, lease, patch string) {
	x.Helper()
	object := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: x.namespace, Name: lease}}
	if err := x.tokens[by].Patch(x.Context(), object, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		x.Fatalf("the token of %s cannot write Lease %s: %v", by, lease, err)
	}
}

// stays checks that druid removed nothing, and in which state the removal request is.
func (x *thief) stays(when string, want leases.RemovalState) {
	x.Helper()
	record, err := x.record("demo")
	if err != nil || !record.Lists(x.leaving) {
		x.Fatalf("%s: the record is %+v, %v; want it with %s", when, record, err, x.leaving)
	}
	if len(x.deeds.matching("DELETE", "")) > 0 {
		x.Fatalf("%s: druid deleted %v", when, x.deeds.matching("DELETE", ""))
	}
	if mark := x.mark(x.leaving); mark.State != want {
		x.Fatalf("%s: the removal request is %+v, want it %s", when, mark, want)
	}
}

// goes checks that druid believes that the member is out: its name and its Pod go.
func (x *thief) goes(when string) {
	x.Helper()
	record, err := x.record("demo")
	if err != nil || record.Lists(x.leaving) {
		x.Fatalf("%s: the record is %+v, %v; want it without %s", when, record, err, x.leaving)
	}
	if !x.desiresNothing() && !x.terminates(x.leaving) {
		x.Fatalf("%s: the Pod of %s is not deleted", when, x.leaving)
	}
}

// desiresNothing says whether the EtcdCluster is deleted. Then Kubernetes deletes the Pods at the end.
func (x *thief) desiresNothing() bool { return x.joins }

// believes lets druid see who says that it leads, and lets the time pass after which it believes that.
func (x *thief) believes() {
	x.Helper()
	x.pass()
	x.after(31 * time.Second)
}
