package harness

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/etcd-druid/druid/api/v1alpha1"
)

// RequestRestore sets spec.recovery.restore to a JSON object, or removes it with null.
func (c *Cluster) RequestRestore(t testing.TB, restore string) {
	t.Helper()
	c.Edit(t, fmt.Sprintf(`{"spec":{"recovery":{"restore":%s}}}`, restore))
}

// AwaitRecovery waits until status.recovery has a phase.
func (c *Cluster) AwaitRecovery(t testing.TB, within time.Duration, phase v1alpha1.RecoveryPhase) (status v1alpha1.RecoveryStatus) {
	t.Helper()
	Eventually(t, within, "recovery phase "+string(phase), func(ctx context.Context) error {
		cluster, err := c.Get(ctx)
		if err != nil {
			return err
		}
		if s := cluster.Status.Recovery; s == nil || s.Phase != phase {
			return fmt.Errorf("status.recovery is %+v", s)
		}
		status = *cluster.Status.Recovery
		return nil
	})
	return status
}

// Approve runs the command that the status prints for a plan.
func (r *Rig) Approve(t testing.TB, proposed v1alpha1.RecoveryStatus) (at time.Time) {
	t.Helper()
	words := strings.Fields(proposed.Approve)
	if len(words) == 0 || words[0] != "kubectl" {
		t.Fatalf("status.recovery.approve is %q, want a command of kubectl", proposed.Approve)
	}
	at = time.Now()
	if out, err := r.Lab.Kubectl(t.Context(), words[1:]...); err != nil {
		t.Fatalf("%s: %v\n%s", proposed.Approve, err, out)
	}
	return at
}
