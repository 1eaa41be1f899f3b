package druid

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/druid/policy"
	"github.com/etcd-druid/druid/leases"
)

var outOfService = corev1.Taint{Key: corev1.TaintNodeOutOfService, Value: "nodeshutdown", Effect: corev1.TaintEffectNoExecute}

// onNodes is one of three members, each on a node of its own, with a volume that only that node can mount or any.
func onNodes(t *testing.T, local bool) (c *clocked, names, nodes []string) {
	t.Helper()
	s := newStage(t)
	stop := s.startDruid()
	s.createCluster("demo", 3)
	names = s.members("demo", 3)
	for i, name := range names {
		node := fmt.Sprintf("%s-%d", s.namespace, i)
		nodes = append(nodes, node)
		s.node(node, true)
		s.volume(name, node, local)
		s.bind(name, node)
	}
	s.form("demo", names)
	s.condition("demo", v1alpha1.ConditionAllMembersReady, metav1.ConditionTrue, v1alpha1.ReasonAllReady)
	s.condition("demo", v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonReconciled)
	stop()
	return s.clocked(), names, nodes
}

// volume is what a provisioner binds the member's claim to.
func (s *stage) volume(name, node string, local bool) {
	s.Helper()
	var claim corev1.PersistentVolumeClaim
	if err := s.fetch(name, &claim); err != nil {
		s.Fatal(err)
	}
	pv := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: s.namespace + "-" + name},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:               corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("4Gi")},
			AccessModes:            claim.Spec.AccessModes,
			ClaimRef:               &corev1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: s.namespace, Name: name, UID: claim.UID},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "test", VolumeHandle: name}},
		},
	}
	if local {
		pv.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}},
		}}}}
	}
	if err := s.Create(s.Context(), pv); err != nil {
		s.Fatal(err)
	}
	s.eventually("bind claim "+name, func() error {
		if err := s.fetch(name, &claim); err != nil {
			return err
		}
		claim.Spec.VolumeName = pv.Name
		return s.Update(s.Context(), &claim)
	})
	s.binder(name)
}

// away takes the member's node from the cluster, as the node controller sees it.
func (c *clocked) away(name, node string, taints ...corev1.Taint) {
	c.Helper()
	c.node(node, false, taints...)
	c.nodeController(name)
	c.pass()
}

// claimGoes says whether the member's claim was deleted.
func (c *clocked) claimGoes(name string) bool {
	c.Helper()
	var claim corev1.PersistentVolumeClaim
	if err := c.fetch(name, &claim); err != nil {
		c.Fatal(err)
	}
	return claim.DeletionTimestamp != nil
}

func TestMemberOfANodeThatIsAwayIsLeftAlone(t *testing.T) {
	t.Parallel()
	for _, local := range []bool{true, false} {
		t.Run(fmt.Sprintf("local volume %t", local), func(t *testing.T) {
			c, names, nodes := onNodes(t, local)
			c.away(names[0], nodes[0])
			if reason := c.degraded(t).Reason; reason == v1alpha1.ReasonNodeLost {
				t.Error("a node that reboots is an operator's business at once")
			}
			c.after(2 * time.Hour)
			if c.terminates(names[0]) || c.claimGoes(names[0]) || c.repairing(names[0]) != (leases.Repairing{}) {
				t.Errorf("something was deleted because a node is away: %+v", c.repairing(names[0]))
			}
			condition := c.degraded(t)
			remedy := "kubectl taint nodes " + nodes[0] + " node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"
			if condition.Reason != v1alpha1.ReasonNodeLost || !strings.Contains(condition.Message, remedy) {
				t.Errorf("condition is %s: %s", condition.Reason, condition.Message)
			}
			// It was not ready before its node went: that restarts nothing either.
			c.kubelet(names[0], false)
			c.after(2 * time.Hour)
			if c.terminates(names[0]) || c.repairing(names[0]) != (leases.Repairing{}) {
				t.Error("a Pod was restarted on a node that is away")
			}
			c.node(nodes[0], true)
			c.kubelet(names[0], true)
			c.pass()
			if condition := c.degraded(t); condition.Status != metav1.ConditionFalse {
				t.Errorf("it is back, and the condition is %s: %s", condition.Reason, condition.Message)
			}
		})
	}
}

func TestPodOfALostNodeMovesWithItsVolume(t *testing.T) {
	c, names, nodes := onNodes(t, false)
	for i := range 2 { // two of three: what moves with its data is needed all the more
		c.away(names[i], nodes[i], outOfService)
	}
	for i := range 2 {
		if !c.terminates(names[i]) || c.claimGoes(names[i]) {
			t.Errorf("Pod %s deleted: %t, claim deleted: %t; want the Pod alone", names[i], c.terminates(names[i]), c.claimGoes(names[i]))
		}
	}
	if c.terminates(names[2]) {
		t.Error("the member that serves was deleted")
	}
}

// TestLostNodesVolumeGivenUpInSteps: a local volume of a lost node is given up in steps.
func TestLostNodesVolumeGivenUpInSteps(t *testing.T) {
	c, names, nodes := onNodes(t, true)
	affected := names[0]
	claims := c.uids(names, &corev1.PersistentVolumeClaim{})
	c.node(nodes[0], false, outOfService)
	c.nodeController(affected)
	if err := c.reconcile(c.Reconciler); err != nil {
		t.Fatal(err)
	}
	if want := (leases.Repairing{ClaimUID: string(claims[affected])}); c.repairing(affected) != want || c.claimGoes(affected) {
		t.Fatalf("announced is %+v, want %+v before anything is deleted (deleted: %t)", c.repairing(affected), want, c.claimGoes(affected))
	}
	announced := strings.Join(c.reported(), "\n")
	if !strings.Contains(announced, v1alpha1.EventVolumeAbandoned) || !strings.Contains(announced, nodes[0]) {
		t.Errorf("events of the announcement are\n%s", announced)
	}
	// Another druid takes over, and a second node is lost meanwhile: one member at a time.
	c = c.stage.clocked()
	if !c.claimGoes(affected) || !c.terminates(affected) {
		t.Fatalf("claim deleted: %t, Pod deleted: %t; want both", c.claimGoes(affected), c.terminates(affected))
	}
	c.away(names[1], nodes[1], outOfService)
	c.after(time.Hour)
	if c.claimGoes(names[1]) || c.terminates(names[1]) {
		t.Fatal("two members were given up at once")
	}
	c.node(nodes[1], true)
	c.kubelet(names[1], true)
	c.pass()

	// Kubernetes ends the Pod and lets the claim go; the member comes back elsewhere, empty.
	c.end(affected)
	c.freeClaim(affected)
	c.pass()
	if now := c.uids(names, &corev1.PersistentVolumeClaim{}); now[affected] == claims[affected] || now[names[2]] != claims[names[2]] {
		t.Errorf("claims are %v, were %v; want that of %s made again", now, claims, affected)
	}
	if err := c.marked(affected); err != nil {
		t.Error(err)
	}
	c.bind(affected, nodes[2])
	c.binder(affected)
	c.kubelet(affected, true)
	c.agent("demo", affected, 77, leases.RoleMember)
	c.pass()
	c.after(6 * time.Minute)
	if c.repairing(affected) != (leases.Repairing{}) {
		t.Errorf("it is well again and still marked: %+v", c.repairing(affected))
	}
	all := strings.Join(c.reported(), "\n")
	if !strings.Contains(all, v1alpha1.EventPVCDeleted) {
		t.Errorf("events are\n%s", all)
	}
}

// freeClaim is what Kubernetes' protection of claims in use does when no Pod uses it any more.
func (s *stage) freeClaim(name string) {
	s.Helper()
	var claim corev1.PersistentVolumeClaim
	if err := s.fetch(name, &claim); err != nil {
		s.Fatal(err)
	}
	for _, f := range claim.Finalizers {
		controllerutil.RemoveFinalizer(&claim, f)
	}
	if err := s.Update(s.Context(), &claim); err != nil {
		s.Fatal(err)
	}
}

// TestLocalVolumeKeptWithoutQuorum: a local volume is kept while the others are no quorum.
func TestLocalVolumeKeptWithoutQuorum(t *testing.T) {
	c, names, nodes := onNodes(t, true)
	c.kubelet(names[1], false)
	c.away(names[0], nodes[0], outOfService)
	c.after(4 * time.Minute)
	if c.claimGoes(names[0]) || c.repairing(names[0]).ClaimUID != "" {
		t.Error("a volume was given up that the quorum may need")
	}
	if condition := c.degraded(t); condition.Reason != v1alpha1.ReasonNodeLost || !strings.Contains(condition.Message, "not a healthy quorum") {
		t.Errorf("condition is %s: %s", condition.Reason, condition.Message)
	}
	c.kubelet(names[1], true)
	c.pass()
	if !c.claimGoes(names[0]) {
		t.Error("the others are a quorum again, and nothing follows")
	}
}

// TestWithdrawnDeclarationStopsAction: a declaration that is taken back stops what was announced.
func TestWithdrawnDeclarationStopsAction(t *testing.T) {
	c, names, nodes := onNodes(t, true)
	c.node(nodes[0], false, outOfService)
	c.nodeController(names[0])
	var cluster v1alpha1.EtcdCluster
	if err := c.fetch("demo", &cluster); err != nil {
		t.Fatal(err)
	}
	if err := c.reconcile(c.Reconciler); err != nil || c.repairing(names[0]).ClaimUID == "" {
		t.Fatalf("not announced: %v", err)
	}
	o, err := c.observe(t.Context(), c.cached, &cluster, nil)
	if err != nil {
		t.Fatal(err)
	}
	step := stepFor(t, o, policy.DeleteClaim)
	c.node(nodes[0], false) // the plan is older than this
	if err := c.take(t.Context(), o, step); err != nil {
		t.Fatal(err)
	}
	c.after(time.Hour)
	if c.claimGoes(names[0]) || c.terminates(names[0]) {
		t.Error("a claim was deleted by an old plan")
	}
}

func TestNodeThatIsDeletedIsLostAfterAWhile(t *testing.T) {
	c, names, nodes := onNodes(t, true)
	c.nodeController(names[0])
	if err := c.Delete(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodes[0]}}); err != nil {
		t.Fatal(err)
	}
	// Kubernetes' garbage collector ends the Pod, and the new one finds no node that can mount its volume.
	c.end(names[0])
	c.pass()
	var pod corev1.Pod
	if err := c.fetch(names[0], &pod); err != nil {
		t.Fatal(err)
	}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}}
	if err := c.Status().Update(t.Context(), &pod); err != nil {
		t.Fatal(err)
	}
	c.pass()
	c.after(time.Minute)
	if c.claimGoes(names[0]) {
		t.Fatal("a volume was given up for a Node that registers again")
	}
	c.after(10 * time.Minute)
	if !c.claimGoes(names[0]) {
		t.Errorf("the node is gone for good, and its volume is kept: %+v", c.repairing(names[0]))
	}
	c.freeClaim(names[0])
	c.pass()
	if c.claimGoes(names[0]) {
		t.Error("no new claim was made next to the Pod that waits for one")
	}
}

// TestDeadNodesMemberGetsNoClients: a member whose agent was down when its node died receives no clients.
// The node controller marks no Pod that was not ready as a whole: what its kubelet wrote last of etcd stays.
func TestDeadNodesMemberGetsNoClients(t *testing.T) {
	c, names, nodes := onNodes(t, true)
	c.eventually("the agent of "+names[0]+" is down", func() error {
		var pod corev1.Pod
		if err := c.fetch(names[0], &pod); err != nil {
			return err
		}
		for i := range pod.Status.Conditions {
			pod.Status.Conditions[i].Status = corev1.ConditionFalse
		}
		return c.Status().Update(c.Context(), &pod)
	})
	othersRenew := func() {
		c.renew(names, 1)
		c.renew(names, 2)
		c.pass()
	}
	c.after(time.Hour)
	othersRenew()
	if reason := c.degraded(t).Reason; reason == v1alpha1.ReasonNodeLost {
		t.Fatal("its node is lost because its agent is silent")
	}
	c.node(nodes[0], false)
	c.after(time.Hour)
	othersRenew()
	if condition := c.degraded(t); condition.Reason != v1alpha1.ReasonNodeLost || !strings.Contains(condition.Message, nodes[0]) {
		t.Errorf("its node is away, and the condition is %s: %s", condition.Reason, condition.Message)
	}
	if err := c.Delete(c.Context(), &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: names[1]}}); err != nil {
		t.Fatal(err)
	}
	c.after(time.Minute)
	if c.terminates(names[1]) {
		t.Error("a Pod was deleted that the quorum needs")
	}
}
