package harness

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
)

// AwaitReady waits until the status says that all members are ready voters, and returns how long that took.
func (c *Cluster) AwaitReady(t testing.TB, replicas int, within time.Duration) time.Duration {
	t.Helper()
	return Eventually(t, within, fmt.Sprintf("%s with %d ready voters", c, replicas), func(ctx context.Context) error {
		return c.ready(ctx, replicas)
	})
}

func (c *Cluster) ready(ctx context.Context, replicas int) error {
	cluster, err := c.Get(ctx)
	if err != nil {
		return err
	}
	status := cluster.Status
	switch {
	case status.ObservedGeneration != cluster.Generation:
		return differ("status.observedGeneration", status.ObservedGeneration, cluster.Generation)
	case int(status.ReadyReplicas) != replicas || int(status.ClusterSize) != replicas || len(status.Members) != replicas:
		return differ("status", describe(status), fmt.Sprint(replicas, " ready members"))
	case !meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionReady),
		!meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionAllMembersReady):
		return differ("status", describe(status), "Ready and AllMembersReady")
	}
	return nil
}

// AwaitCondition waits until a condition has the status and its reason and message together hold every one of the words.
func (c *Cluster) AwaitCondition(t testing.TB, within time.Duration, kind string, want metav1.ConditionStatus, words ...string) {
	t.Helper()
	what := fmt.Sprintf("%s with condition %s=%s %q", c, kind, want, words)
	Eventually(t, within, what, func(ctx context.Context) error {
		cluster, err := c.Get(ctx)
		if err != nil {
			return err
		}
		return conditionReports(cluster.Status, kind, want, words)
	})
}

func conditionReports(status v1alpha1.EtcdClusterStatus, kind string, want metav1.ConditionStatus, words []string) error {
	condition := meta.FindStatusCondition(status.Conditions, kind)
	if condition == nil || condition.Status != want {
		return differ("status", describe(status), kind+"="+string(want))
	}
	text := strings.ToLower(condition.Reason + " " + condition.Message)
	for _, word := range words {
		if !strings.Contains(text, strings.ToLower(word)) {
			return fmt.Errorf("condition %s says %s %q, without %q", kind, condition.Reason, condition.Message, word)
		}
	}
	return nil
}

// describe writes a status on one line.
func describe(status v1alpha1.EtcdClusterStatus) string {
	var b strings.Builder
	fmt.Fprintf(&b, "size %d ready %d", status.ClusterSize, status.ReadyReplicas)
	for _, m := range status.Members {
		fmt.Fprintf(&b, "; %s %s:%s %s/%s %s", m.Name, m.ID, m.Role, m.Status, m.Reason, m.Message)
	}
	for _, condition := range status.Conditions {
		fmt.Fprintf(&b, "; %s=%s/%s %s", condition.Type, condition.Status, condition.Reason, condition.Message)
	}
	return b.String()
}
