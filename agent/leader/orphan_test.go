package leader

import (
	"fmt"
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/leases"
)

func TestALearnerThatNoOneStartsGoesOnlyWhenDruidNamesIt(t *testing.T) {
	c := newCluster(t)
	leader := c.mustLead()
	const joiner = "demo-d"
	c.leases(leader, append(slices.Clone(names), joiner))
	var learner uint64
	c.eventually("add a learner", func() error { // etcd refuses for 5 s after its members connected
		resp, err := c.client(leader).MemberAddAsLearner(t.Context(), []string{"http://" + joiner + ".demo-peer:2380"})
		if err == nil {
			learner = resp.Member.ID
		}
		return err
	})
	api := c.admin.CoordinationV1().Leases(c.namespace)
	say := func(id uint64) *coordinationv1.Lease {
		value, err := leases.Healing{NotComing: leases.FormatID(id)}.Encode()
		if err != nil {
			t.Fatal(err)
		}
		return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: joiner, Annotations: map[string]string{leases.AnnotationHealing: value}}}
	}
	c.duties(leader, "mine")
	c.decided("desired-coming")
	lease, err := api.Create(t.Context(), say(learner+1), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	// Twice what the removal of one that is given up needs.
	timer := time.NewTimer(2 * grace)
	<-timer.C
	if ids := c.listed(leader); !slices.Contains(ids, learner) {
		t.Fatalf("listed: %x; a learner was removed by a word that names another", ids)
	}
	lease.Annotations = say(learner).Annotations
	if _, err := api.Update(t.Context(), lease, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.decided("orphan-learner")
	c.eventually("the learner is removed", func() error {
		if ids := c.listed(leader); slices.Contains(ids, learner) || len(ids) != len(names) {
			return fmt.Errorf("listed: %x", ids)
		}
		return nil
	})
}
