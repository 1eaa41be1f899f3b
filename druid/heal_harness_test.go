package druid

import (
	"encoding/json"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/leases"
)

// clocked is a druid whose passes and whose clock the test drives, with the rights that it is installed with.
type clocked struct {
	*stage
	*Reconciler
	at    time.Time
	deeds *calls
}

// clocked returns a druid that has made its first passes.
func (s *stage) clocked(change ...func(*Reconciler)) *clocked {
	s.Helper()
	c := s.clockedQuiet(change...)
	c.pass()
	return c
}

// clockedQuiet returns a druid that has seen nothing yet.
func (s *stage) clockedQuiet(change ...func(*Reconciler)) *clocked {
	s.Helper()
	as := *s
	deeds := &calls{}
	as.config = s.configAs(druidUser, serviceAccounts...)
	as.config.Wrap(deeds.RoundTrip)
	as.config.Wrap(used.Record)
	as.Client = s.clientOf(as.config)
	c := &clocked{stage: s, Reconciler: as.reconciler(as.Client), at: time.Now(), deeds: deeds}
	c.now = func() time.Time { return c.at }
	for _, f := range change {
		f(c.Reconciler)
	}
	return c
}

// pass lets druid work until it has nothing left to do: until it wrote nothing twice in a row, for what the first of these
// passes saw may be what the second acts upon.
func (c *clocked) pass() {
	c.Helper()
	c.passes(2)
}

// passes lets druid work until it wrote nothing idle times in a row.
func (c *clocked) passes(idle int) {
	c.Helper()
	const most = 6 // an announcement, a deed, and what follows from it, with room for lost compare-and-sets
	wroteNothing := 0
	for i := 0; i < most && wroteNothing < idle; i++ {
		before := c.deeds.count()
		if err := c.reconcile(c.Reconciler); err != nil {
			c.Fatal(err)
		}
		wroteNothing++
		if writes(c.deeds.since(before)) {
			wroteNothing = 0
		}
	}
}

// after lets time pass at which druid looks once in a while, as it does.
func (c *clocked) after(d time.Duration) {
	c.Helper()
	const looks = 3
	for i := range looks {
		c.at = c.at.Add(d / looks)
		c.passes(1 + i/(looks-1))
	}
}

// reported says whether an Event of the reason was reported since the last call.
func (c *clocked) reported() (all []string) {
	recorded := c.recorder.(*events.FakeRecorder).Events
	for {
		select {
		case e := <-recorded:
			all = append(all, e)
		default:
			return all
		}
	}
}

// repairing is what the member's Lease says of it.
func (s *stage) repairing(name string) leases.Repairing {
	s.Helper()
	var lease coordinationv1.Lease
	if err := s.fetch(name, &lease); err != nil {
		s.Fatal(err)
	}
	m, err := leases.DecodeMember(&lease)
	if err != nil {
		s.Fatal(err)
	}
	return m.Repairing
}

// terminates says whether the member's Pod was deleted.
func (s *stage) terminates(name string) bool {
	s.Helper()
	var pod corev1.Pod
	if err := s.fetch(name, &pod); err != nil {
		s.Fatal(err)
	}
	return pod.DeletionTimestamp != nil
}

// node makes a Node, or changes it.
func (s *stage) node(name string, ready bool, taints ...corev1.Taint) {
	s.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}}}
	if err := client.IgnoreAlreadyExists(s.Create(s.Context(), node)); err != nil {
		s.Fatal(err)
	}
	s.eventually("change Node "+name, func() error {
		if err := s.Get(s.Context(), client.ObjectKey{Name: name}, node); err != nil {
			return err
		}
		node.Spec.Taints = taints
		if err := s.Update(s.Context(), node); err != nil {
			return err
		}
		status := map[bool]corev1.ConditionStatus{true: corev1.ConditionTrue, false: corev1.ConditionUnknown}[ready]
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}
		return s.Status().Update(s.Context(), node)
	})
}

// bind puts the Pod on a node.
func (s *stage) bind(name, node string) {
	s.Helper()
	var pod corev1.Pod
	if err := s.fetch(name, &pod); err != nil {
		s.Fatal(err)
	}
	binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.namespace}, Target: corev1.ObjectReference{Kind: "Node", Name: node}}
	if err := s.SubResource("binding").Create(s.Context(), &pod, binding); err != nil {
		s.Fatal(err)
	}
}

// nodeController marks the Pod as that of a node that is not reachable.
func (s *stage) nodeController(name string) {
	s.Helper()
	s.eventually("take Ready from "+name, func() error {
		var pod corev1.Pod
		if err := s.fetch(name, &pod); err != nil {
			return err
		}
		for i := range pod.Status.Conditions {
			if pod.Status.Conditions[i].Type == corev1.PodReady {
				pod.Status.Conditions[i].Status = corev1.ConditionFalse
			}
		}
		return s.Status().Update(s.Context(), &pod)
	})
}

// says writes an annotation of the member's Lease, as its agent would.
func (s *stage) says(name, annotation, value string) {
	s.Helper()
	raw, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{annotation: value}}})
	if err != nil {
		s.Fatal(err)
	}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name}}
	if err := s.Patch(s.Context(), lease, client.RawPatch("application/merge-patch+json", raw)); err != nil {
		s.Fatal(err)
	}
}
