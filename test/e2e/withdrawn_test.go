package e2e

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/test/e2e/harness"
	"github.com/etcd-druid/druid/test/e2e/stories"
)

// In each phase of a restore in place, the user withdraws it with kubectl druid. Each time the cluster continues under a writer with all
// that it acknowledged, with the members that it had, and caches notice nothing. The backup store does not answer in the phases that read
// from it or write to it, so that they last.
func TestRestoreIsWithdrawnInEveryPhase(t *testing.T) {
	stories.Begin(t)
	s3, namespace := rig.MakeSavedNamespace(t, bucket)
	c := rig.ApplyIn(t, namespace, withTLSAndAuth, backedUp(s3.Store(bucket)))
	w := withdrawn{cluster: c, store: s3, view: awaitSecured(t, c, 3)}
	w.writer, w.caches = harness.Write(t, c.EtcdService(t)), startCaches(t, c, 5)
	awaitBackups(t, c)
	w.writer.AwaitWrites(t, 100, scaleWithin)
	w.target = c.Revision(t)
	c.AwaitSaved(t, saveWithin, w.target)
	for _, step := range []struct {
		phase   v1alpha1.RecoveryPhase
		reaches func(*testing.T) (release func())
		served  bool // clients are served in the phase
	}{
		{v1alpha1.RecoveryRefused, w.refused, true},
		{v1alpha1.RecoveryPlanning, w.planning, true},
		{v1alpha1.RecoveryProposed, w.shown, true},
		{v1alpha1.RecoveryWaiting, w.waiting, true},
		{v1alpha1.RecoverySaving, w.saving, true},
		{v1alpha1.RecoveryPreparing, w.preparing, false},
		{v1alpha1.RecoveryExecuting, w.executing, false},
	} {
		t.Run(string(step.phase), func(t *testing.T) {
			awaitBackups(t, c)
			w.writer.Gap()
			w.withdraws(t, step.phase, step.reaches(t), step.served)
		})
		if t.Failed() {
			return
		}
	}
	w.writer.Stop(t, c.Etcd(t))
}

// withdrawn is a cluster whose restores are withdrawn.
type withdrawn struct {
	cluster *harness.Cluster
	store   *harness.S3
	view    harness.View
	writer  *harness.Writer
	caches  caches
	target  int64
}

// withdraws withdraws the restore, and checks that the cluster is as it was. What made the phase last ends when clients are served again.
func (w *withdrawn) withdraws(t *testing.T, phase v1alpha1.RecoveryPhase, release func(), served bool) {
	t.Helper()
	c := w.cluster
	if s := recoveryOf(t, c); s.Phase != phase {
		t.Errorf("status.recovery is %+v before the restore is withdrawn, want the phase %s", s, phase)
	}
	from := time.Now()
	pluginOf{c}.prints(t, 0, []string{"restore", c.Name, "--cancel"}, "You withdrew the restore")
	harness.Eventually(t, healWithin, "the end of the request", func(ctx context.Context) error {
		record, err := c.Record(ctx)
		if err != nil {
			return err
		}
		cluster, err := c.Get(ctx)
		if err != nil {
			return err
		}
		if s := cluster.Status.Recovery; s != nil || record.Recovery != nil {
			return fmt.Errorf("status.recovery is %+v, and the order %+v", s, record.Recovery)
		}
		return nil
	})
	released := time.Since(from)
	w.writer.AwaitWrites(t, 20, healWithin)
	gap := w.writer.Gap()
	release()
	after := c.AwaitMembers(t, len(w.view.Members), healWithin)
	t.Logf("in the phase %s: withdrawn after %s, and all members served after %s; clients were cut off for %s", phase,
		released.Round(100*time.Millisecond), time.Since(from).Round(100*time.Millisecond), gap.Round(100*time.Millisecond))
	if served && gap > harness.ElectionGap {
		t.Errorf("clients were cut off for %s", gap)
	}
	same(t, w.view, after)
	w.writer.Verify(t, c.Etcd(t))
	w.caches.equal(t, c, 1)
	for member := range w.view.Members {
		if c.VolumeOf(t, member).Has(t, "data.quarantine-*") {
			t.Errorf("the volume of %s has quarantined data", member)
		}
	}
}

func (w *withdrawn) request(t *testing.T) {
	t.Helper()
	requestRestore(t, w.cluster, fmt.Sprintf(`{"revision":%d}`, w.target))
}

// The phases are reached here. Each function returns what ends the cause that makes the phase last.

// nothing makes the phase last.
func nothing() {}

// refused requests a revision that no backup has.
func (w *withdrawn) refused(t *testing.T) (release func()) {
	requestRestore(t, w.cluster, fmt.Sprintf(`{"revision":%d}`, w.target+1_000_000))
	if s := awaitPhase(t, w.cluster, v1alpha1.RecoveryRefused); !strings.Contains(s.Message, "no backup leads to") {
		t.Errorf("the message is %q", s.Message)
	}
	return nothing
}

// planning requests a restore while the store does not answer.
func (w *withdrawn) planning(t *testing.T) (release func()) {
	thaw := w.store.Freeze(t)
	w.request(t)
	awaitPhase(t, w.cluster, v1alpha1.RecoveryPlanning)
	return thaw
}

func (w *withdrawn) shown(t *testing.T) (release func()) {
	w.proposed(t)
	return nothing
}

func (w *withdrawn) proposed(t *testing.T) v1alpha1.RecoveryStatus {
	t.Helper()
	w.request(t)
	return awaitRestorePlan(t, w.cluster)
}

// waiting approves while the agent of a follower does not report.
func (w *withdrawn) waiting(t *testing.T) (release func()) {
	proposed, follower := w.proposed(t), w.view.Follower()
	pid := w.cluster.Process(t, follower, harness.Agent)
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatalf("freeze the agent of %s: %v", follower, err)
	}
	release = sync.OnceFunc(func() {
		if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
			t.Errorf("let the agent of %s go on: %v", follower, err)
		}
	})
	t.Cleanup(release)
	harness.Eventually(t, healWithin, "the Lease of "+follower+" is expired", func(ctx context.Context) error {
		cluster, err := w.cluster.Get(ctx)
		if err != nil {
			return err
		}
		for _, m := range cluster.Status.Members {
			if m.Name == follower && m.Reason != v1alpha1.ReasonLeaseExpired {
				return fmt.Errorf("status.members has %+v", m)
			}
		}
		return nil
	})
	approve(t, proposed)
	awaitPhase(t, w.cluster, v1alpha1.RecoveryWaiting)
	return release
}

// saving approves while the store does not answer, so that the final backup does not end.
func (w *withdrawn) saving(t *testing.T) (release func()) {
	proposed := w.proposed(t)
	thaw := w.store.Freeze(t)
	approve(t, proposed)
	awaitPhase(t, w.cluster, v1alpha1.RecoverySaving)
	return thaw
}

func (w *withdrawn) preparing(t *testing.T) (release func()) {
	approve(t, w.proposed(t))
	awaitPhase(t, w.cluster, v1alpha1.RecoveryPreparing)
	return nothing
}

// executing makes the store unable to answer when the final backup is complete.
func (w *withdrawn) executing(t *testing.T) (release func()) {
	w.preparing(t)
	thaw := w.store.Freeze(t)
	awaitPhase(t, w.cluster, v1alpha1.RecoveryExecuting)
	return thaw
}
