package e2e

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/manifests"
	"github.com/etcd-druid/druid/test/e2e/harness"
	"github.com/etcd-druid/druid/test/e2e/stories"
)

// Clients are cut off from a running cluster. It loses its quorum and is recovered meanwhile, and they stay cut off until the spec admits
// them. No acknowledged write is lost, no Pod is replaced by the cut-off, and connections that exist stay open.
func TestClientsCutOffUntilAdmitted(t *testing.T) {
	stories.Begin(t)
	c := rig.Apply(t, withTLSAndAuth, recoversItself)
	view := awaitSecured(t, c, 3)
	w := harness.Write(t, c.EtcdService(t))
	w.AwaitWrites(t, 100, scaleWithin)
	pods, allowed := podsOf(t, c, view), minAvailable(t, c)

	c.Edit(t, `{"spec":{"clientService":{"serving":false}}}`)
	c.AwaitCondition(t, scaleWithin, v1alpha1.ConditionReady, "False", v1alpha1.ReasonClientsCutOff)
	awaitNoConnection(t, c)
	w.AwaitWrites(t, 20, scaleWithin)
	w.Stop(t, c.Etcd(t))
	if got := podsOf(t, c, view); fmt.Sprint(got) != fmt.Sprint(pods) {
		t.Errorf("the Pods are %v, want %v as before", got, pods)
	}
	if got := minAvailable(t, c); got != allowed {
		t.Errorf("the PodDisruptionBudget requires %d voters, want %d as before", got, allowed)
	}

	survivor := view.Follower()
	for member := range view.Members {
		if member != survivor {
			c.VolumeOf(t, member).Wipe(t)
		}
	}
	for member := range view.Members {
		if member != survivor {
			c.Kill(t, member, harness.Etcd)
		}
	}
	stories.Resting(t, func() {
		c.AwaitCondition(t, healWithin, v1alpha1.ConditionReady, "False", v1alpha1.ReasonQuorumLost)
	})
	c.AwaitCondition(t, healWithin, v1alpha1.ConditionReady, "False", v1alpha1.ReasonClientsCutOff)
	c.AwaitCondition(t, healWithin, v1alpha1.ConditionAllMembersReady, "True")
	if last := recoveryOf(t, c).Last; last == nil || last.Member != survivor {
		t.Errorf("status.recovery.last is %+v, want a recovery from %s", last, survivor)
	}
	harness.Consistently(t, 5*time.Second, "no member in the client Service", func(ctx context.Context) error { return noneServes(ctx, c) })
	awaitNoConnection(t, c)

	c.Edit(t, `{"spec":{"clientService":{"serving":true}}}`)
	c.AwaitMembers(t, 3, healWithin)
	w.Verify(t, c.EtcdService(t))
}

// noneServes returns an error if a member is in the client Service.
func noneServes(ctx context.Context, c *harness.Cluster) error {
	var list corev1.PodList
	err := rig.Client.List(ctx, &list, client.InNamespace(c.Namespace), client.MatchingLabels{leases.LabelCluster: c.Name},
		client.HasLabels{manifests.LabelServing})
	if err != nil {
		return harness.NoAnswer(err)
	}
	if len(list.Items) > 0 {
		return fmt.Errorf("%s serves", list.Items[0].Name)
	}
	return nil
}

// awaitNoConnection waits until a new client gets no answer from the client Service.
func awaitNoConnection(t *testing.T, c *harness.Cluster) {
	t.Helper()
	harness.Eventually(t, scaleWithin, "the client Service without an endpoint", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		if _, err := c.EtcdService(t).Get(ctx, "key"); err == nil {
			return errors.New("a new client was served")
		}
		return nil
	})
}

// minAvailable is that of the cluster's PodDisruptionBudget.
func minAvailable(t *testing.T, c *harness.Cluster) int {
	t.Helper()
	var budget policyv1.PodDisruptionBudget
	if err := rig.Client.Get(t.Context(), harness.Key(c.Namespace, manifests.DisruptionBudgetName(c.Name)), &budget); err != nil {
		t.Fatalf("get the PodDisruptionBudget of %s: %v", c, err)
	}
	return budget.Spec.MinAvailable.IntValue()
}
