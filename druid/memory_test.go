package druid

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
)

func (m *memory) facts(uid types.UID) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := map[fact]bool{}
	for f := range m.since {
		all[f] = true
	}
	for f := range m.values {
		all[f] = true
	}
	for f := range m.renewals {
		all[f] = true
	}
	n := len(m.seen[uid])
	for f := range all {
		if f.cluster == uid && m.seen[uid][f] == 0 {
			n++
		}
	}
	return n
}

func TestAClockEndsWithTheWaitThatItMeasures(t *testing.T) {
	m, now := newMemory(), time.Now()
	key := types.NamespacedName{Namespace: "ns", Name: "demo"}
	waits := fact{"uid", "demo-a waits"}
	look := func(after time.Duration, ask bool) (lasts bool) {
		now = now.Add(after)
		m.beginLook(key, "uid")
		if ask {
			lasts, _ = m.lasts(waits, true, time.Minute, now)
		}
		m.endLook("uid")
		return lasts
	}
	look(0, true)
	if !look(time.Minute, true) {
		t.Error("a wait of a minute does not last for one")
	}
	look(time.Second, false)
	if look(time.Hour, true) {
		t.Error("a look that did not ask for the clock did not end it")
	}
	m.beginLook(key, "another")
	if n := m.facts("uid"); n > 0 {
		t.Errorf("%d facts of a cluster are kept whose name another one has", n)
	}
}

func TestNothingIsKeptOfAClusterThatIsGone(t *testing.T) {
	c, names := stuckCluster(t, 3)
	c.pass()
	c.after(time.Minute)
	var cluster v1alpha1.EtcdCluster
	if err := c.fetch("demo", &cluster); err != nil {
		t.Fatal(err)
	}
	if c.memory.facts(cluster.UID) == 0 {
		t.Fatal("nothing was known of it, and this test shows nothing")
	}
	if err := c.stage.Delete(t.Context(), &cluster); err != nil {
		t.Fatal(err)
	}
	if err := c.fetch("demo", &cluster); !apierrors.IsNotFound(err) {
		t.Fatalf("still there: %v", err)
	}
	if err := c.reconcile(c.Reconciler); err != nil {
		t.Fatal(err)
	}
	if n := c.memory.facts(cluster.UID); n > 0 {
		t.Errorf("%d facts are kept", n)
	}
	if n := len(c.memory.judged); n > 0 {
		t.Errorf("%d Leases are remembered, of %v", n, names)
	}
}

func (c *clocked) waits(name string) {
	c.Helper()
	c.kubelet(name, false)
	c.stage.says(name, leases.Prefix+"rule", "await-quorum")
	c.stage.says(name, leases.Prefix+"reason", "no quorum answers, and this member's data cannot be resumed")
}

func (c *clocked) serves(name string) {
	c.Helper()
	c.editLease(name, func(l *coordinationv1.Lease) {
		l.Annotations[leases.Prefix+"rule"] = "resume"
		delete(l.Annotations, leases.Prefix+"reason")
	})
	c.kubelet(name, true)
}

func TestAnEarlierWaitIsNotTakenForOneOfNow(t *testing.T) {
	c, names := stuckCluster(t, 3)
	c.waits(names[1])
	c.pass()
	c.at = c.at.Add(3 * time.Second)
	c.serves(names[1])
	c.pass()
	c.at = c.at.Add(20 * time.Minute)
	c.pass()
	c.waits(names[1])
	c.pass()
	if d := c.degraded(t); d.Reason == v1alpha1.ReasonMemberCannotStart {
		t.Errorf("a wait that just began counts as one of twenty minutes: %s", d.Message)
	}
	c.at = c.at.Add(startPatience)
	c.pass()
	if d := c.degraded(t); d.Reason != v1alpha1.ReasonMemberCannotStart {
		t.Errorf("a wait that lasts is not reported: %s", d.Reason)
	}
}
