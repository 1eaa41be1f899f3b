package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/test/e2e/harness"
)

// phase says that a change of scale has come so far, or further, or why it has not.
type phase func(ctx context.Context, c *harness.Cluster) error

// await waits until a change of scale has come so far.
func await(t *testing.T, c *harness.Cluster, what string, reached phase) {
	t.Helper()
	harness.Eventually(t, scaleWithin, what, reached.of(c))
}

// of is the question whether a cluster has come so far.
func (p phase) of(c *harness.Cluster) func(context.Context) error {
	return func(ctx context.Context) error { return p(ctx, c) }
}

func recorded(n int) phase {
	return func(ctx context.Context, c *harness.Cluster) error {
		record, err := c.Record(ctx)
		if err == nil && len(record.Members) != n {
			return fmt.Errorf("the record lists %v", record.Members)
		}
		return err
	}
}

func podsMade(n int) phase {
	return func(ctx context.Context, c *harness.Cluster) error {
		var pods corev1.PodList
		if err := listMembers(ctx, c, &pods); err != nil {
			return err
		}
		if len(pods.Items) < n {
			return fmt.Errorf("%d Pods", len(pods.Items))
		}
		return nil
	}
}

// joined: so many agents have said that their members are listed, as learners at first. On a busy machine the next look may find
// them voting.
func joined(n int) phase {
	return func(ctx context.Context, c *harness.Cluster) error {
		found, err := count(ctx, c, func(m leases.Member) bool { return m.ID != 0 })
		if err == nil && found < n {
			err = fmt.Errorf("%d members have joined", found)
		}
		return err
	}
}

func voters(n int) phase {
	return func(ctx context.Context, c *harness.Cluster) error {
		found, err := count(ctx, c, func(m leases.Member) bool { return m.Role == leases.RoleMember || m.Role == leases.RoleLeader })
		if err == nil && found < n {
			err = fmt.Errorf("%d voters", found)
		}
		return err
	}
}

// count the members that their Leases say this of.
func count(ctx context.Context, c *harness.Cluster, is func(leases.Member) bool) (found int, err error) {
	var all coordinationv1.LeaseList
	if err := listMembers(ctx, c, &all); err != nil {
		return 0, err
	}
	for _, lease := range all.Items {
		if m, err := leases.DecodeMember(&lease); err == nil && is(m) {
			found++
		}
	}
	return found, nil
}

// marked: a member's way out has come to one of the states, as its Lease says.
func marked(states ...string) phase {
	return func(ctx context.Context, c *harness.Cluster) error {
		var all coordinationv1.LeaseList
		if err := listMembers(ctx, c, &all); err != nil {
			return err
		}
		said := map[string]string{}
		for _, lease := range all.Items {
			var mark struct{ State string }
			if json.Unmarshal([]byte(lease.Annotations[leases.AnnotationRemoval]), &mark) != nil {
				continue
			}
			if slices.Contains(states, mark.State) {
				return nil
			}
			said[lease.Name] = mark.State
		}
		return fmt.Errorf("marks are %v, want one of %v", said, states)
	}
}

// podGoes: a member's Pod is on its way out, or gone.
func podGoes(n int) phase {
	return func(ctx context.Context, c *harness.Cluster) error {
		var pods corev1.PodList
		if err := listMembers(ctx, c, &pods); err != nil {
			return err
		}
		for _, pod := range pods.Items {
			if pod.DeletionTimestamp != nil {
				return nil
			}
		}
		if len(pods.Items) < n {
			return nil
		}
		return fmt.Errorf("all of %d Pods stay", n)
	}
}

// either of two phases, the first of which may be over before it is seen.
func either(first, next phase) phase {
	return func(ctx context.Context, c *harness.Cluster) error {
		err := first(ctx, c)
		if err != nil && next(ctx, c) == nil {
			return nil
		}
		return err
	}
}

// listMembers lists the objects that bear a member's name.
func listMembers(ctx context.Context, c *harness.Cluster, list client.ObjectList) error {
	return c.Rig.Client.List(ctx, list, client.InNamespace(c.Namespace),
		client.MatchingLabels{leases.LabelCluster: c.Name}, client.HasLabels{leases.LabelMember})
}

// reconciled waits until druid has reached the spec as it is now.
func reconciled(t *testing.T, c *harness.Cluster, within time.Duration) {
	t.Helper()
	harness.Eventually(t, within, "the last edit is reached", func(ctx context.Context) error {
		_, err := asAsked(ctx, c)
		return err
	})
}

// asAsked is the spec when druid has reached the last edit of it, and an error before.
func asAsked(ctx context.Context, c *harness.Cluster) (v1alpha1.EtcdClusterSpec, error) {
	cluster, err := c.Get(ctx)
	if err != nil {
		return v1alpha1.EtcdClusterSpec{}, err
	}
	p := meta.FindStatusCondition(cluster.Status.Conditions, v1alpha1.ConditionProgressing)
	if cluster.Status.ObservedGeneration != cluster.Generation || p == nil || p.Reason != v1alpha1.ReasonReconciled {
		return cluster.Spec, fmt.Errorf("generation %d, observed %d, Progressing %+v", cluster.Generation, cluster.Status.ObservedGeneration, p)
	}
	return cluster.Spec, nil
}
