package druid

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/druid/policy"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/manifests"
)

// restorable is a cluster whose record has the member list, whose Leases have a revision, and which is backed up.
func restorable(t *testing.T) (c *clocked, names []string) {
	t.Helper()
	c, names, _ = listsMembers(t)
	c.patchCluster(`{"spec":{"backup":{"store":{"s3":{"bucket":"backups"}}}}}`)
	c.pass()
	c.renewAll(names)
	return c, names
}

// renewAll renews the Leases of all members whose etcd serves.
func (c *clocked) renewAll(names []string) {
	c.Helper()
	for i := range names {
		c.renew(names, i)
	}
	c.pass()
}

// requestsRestore sets spec.recovery.restore.
func (c *clocked) requestsRestore(restore string) {
	c.Helper()
	c.patchCluster(`{"spec":{"recovery":{"restore":` + restore + `}}}`)
	c.pass()
}

// planned answers the request for a plan, as the leader's agent does: the backups lead to revision 5.
func (c *clocked) planned() {
	c.Helper()
	record, err := c.record("demo")
	if err != nil {
		c.Fatal(err)
	}
	request := record.Restore.Request
	if request.Nonce == "" {
		c.Fatal("the record has no request for a plan")
	}
	_, version, err := c.stage.store("demo").Record(c.Context())
	if err != nil {
		c.Fatal(err)
	}
	plan := leases.RestorePlan{Nonce: request.Nonce, Lineage: record.Lineage, Full: "full", Deltas: 1, Revision: 5, At: c.at}
	if _, err := c.stage.store("demo").AnswerRestore(c.Context(), version, plan); err != nil {
		c.Fatal(err)
	}
	c.pass()
}

// savesFinally ends the final backup with a phase.
func (c *clocked) savesFinally(phase v1alpha1.SnapshotPhase) *v1alpha1.EtcdSnapshot {
	c.Helper()
	record, _ := c.ordered()
	snapshot := &v1alpha1.EtcdSnapshot{}
	if err := c.fetch("demo-before-restore-"+record.Restore.Request.Nonce, snapshot); err != nil {
		c.Fatal(err)
	}
	snapshot.Status.Phase = phase
	if err := c.stage.Status().Update(c.Context(), snapshot); err != nil {
		c.Fatal(err)
	}
	c.pass()
	return snapshot
}

// A restore is planned, and begins only after the approval: clients are cut off, a final backup is made, and the order is written once.
func TestRestoreOrderedAfterApproval(t *testing.T) {
	c, names := restorable(t)
	c.requestsRestore(`{"revision":5}`)
	if got := c.recovery(); got.Phase != v1alpha1.RecoveryPlanning {
		t.Fatalf("the status is %+v", got)
	}
	c.planned()
	got := c.recovery()
	if got.Phase != v1alpha1.RecoveryProposed || got.Plan == nil || !strings.HasSuffix(got.Plan.Backup, "@5") || got.Plan.LostRevisions == nil ||
		*got.Plan.LostRevisions != 2 {
		t.Fatalf("the status is %+v, plan %+v", got, got.Plan)
	}
	before := len(c.deeds.writes())
	c.after(time.Minute)
	if writes := c.deeds.writes(); len(writes) > before {
		t.Errorf("a plan that waits for its approval is written again: %v", writes[before:])
	}
	c.renewAll(names)
	if !c.servesClients(names[0]) {
		t.Errorf("clients are cut off before the approval")
	}
	c.approve(got.Plan.Hash)
	for _, name := range names {
		if c.servesClients(name) {
			t.Errorf("%s serves clients after the approval", name)
		}
	}
	if _, order := c.ordered(); order != nil {
		t.Fatalf("etcd is stopped before the final backup: %+v", order)
	}
	if got := c.recovery(); got.Phase != v1alpha1.RecoverySaving {
		t.Errorf("the status is %+v", got)
	}
	if snapshot := c.savesFinally(v1alpha1.SnapshotSucceeded); !snapshot.Spec.Final || !snapshot.Spec.Verify || snapshot.Spec.TTLSecondsAfterFinished != nil {
		t.Errorf("the backup is %+v", snapshot.Spec)
	}
	record, order := c.ordered()
	if !order.Restores() || order.Stage != leases.StagePrepare || order.Revision != 5 || order.Lineage != record.Lineage ||
		record.Phase != leases.PhaseRecovering {
		t.Fatalf("the order is %+v", order)
	}
	// The user withdraws it.
	c.patchCluster(`{"spec":{"recovery":null}}`)
	c.renewAll(names)
	if record, order = c.ordered(); order != nil || record.Released != 2 || record.Phase != leases.PhaseFormed {
		t.Errorf("the order stands: %+v", order)
	}
	c.renewAll(names)
	if !c.servesClients(names[0]) {
		t.Error("clients are still cut off")
	}
	if record, _ = c.ordered(); record.Restore.Request.Nonce != "" {
		t.Errorf("the request for the plan stays: %+v", record.Restore)
	}
	if warnings := strings.Join(c.reported(), "\n"); !strings.Contains(warnings, v1alpha1.EventRestoreReleased) ||
		!strings.Contains(warnings, v1alpha1.EventRestoreProposed) {
		t.Errorf("the Events are %s", warnings)
	}
	// The same approval does nothing about the same request.
	c.requestsRestore(`{"revision":5}`)
	c.planned()
	if again := c.recovery(); again.Phase != v1alpha1.RecoveryProposed || again.Plan.Hash == got.Plan.Hash {
		t.Errorf("the status is %+v", again)
	}
}

// TestRestoreNeedsFinalBackup: a restore without its final backup does not begin.
// A final backup that fails, or takes too long, ends the restore, and clients are served again.
func TestRestoreNeedsFinalBackup(t *testing.T) {
	for name, test := range map[string]struct {
		save func(c *clocked, names []string)
		says string
	}{
		"it fails": {func(c *clocked, _ []string) { c.savesFinally(v1alpha1.SnapshotFailed) }, "failed"},
		"it takes long": {func(c *clocked, names []string) {
			c.at = c.at.Add(policy.RestoreLimit + time.Minute)
			c.renewAll(names)
		}, "did not complete"},
		"it succeeds, and no druid runs": {func(c *clocked, names []string) {
			c.at = c.at.Add(policy.RestoreLimit + time.Minute)
			c.memory = newMemory()
			c.savesFinally(v1alpha1.SnapshotSucceeded)
		}, "too old"},
	} {
		t.Run(name, func(t *testing.T) {
			c, names := restorable(t)
			c.requestsRestore(`{"latest":true,"lineage":"00000001-aa"}`)
			c.planned()
			c.approve(c.recovery().Plan.Hash)
			test.save(c, names)
			c.renewAll(names)
			if got := c.recovery(); got.Phase != v1alpha1.RecoveryPlanning || !strings.Contains(got.Message, test.says) {
				t.Errorf("the status is %+v", got)
			}
			c.planned()
			if got := c.recovery(); got.Phase != v1alpha1.RecoveryProposed || !strings.Contains(got.Message, test.says) {
				t.Errorf("the status is %+v", got)
			}
			if _, order := c.ordered(); order != nil || !c.servesClients(names[0]) {
				t.Errorf("the order is %+v, clients served: %t", order, c.servesClients(names[0]))
			}
		})
	}
}

// TestLateLabelKeepsPodCutOff: a late label sends no clients to a Pod that was cut off.
// A druid plans to send clients to a Pod, and is suspended before it writes the label. Another one cuts clients off meanwhile.
func TestLateLabelKeepsPodCutOff(t *testing.T) {
	c, names := restorable(t)
	c.requestsRestore(`{"revision":5}`)
	c.planned()
	var pod corev1.Pod
	c.edit(names[2], &pod, func() { delete(pod.Labels, manifests.LabelServing) })
	var cluster v1alpha1.EtcdCluster
	if err := c.fetch("demo", &cluster); err != nil {
		t.Fatal(err)
	}
	late, err := c.observe(t.Context(), c.cached, &cluster, nil)
	if err != nil {
		t.Fatal(err)
	}
	steps := policy.Steps(late.evaluation)
	i := slices.IndexFunc(steps, func(s policy.Step) bool { return s.Kind == policy.LabelPod && s.Member == names[2] })
	if i < 0 || steps[i].Serving == nil || !*steps[i].Serving {
		t.Fatalf("the steps are %+v", steps)
	}
	c.approve(c.recovery().Plan.Hash)
	record, _ := c.ordered()
	for _, name := range names {
		if err := c.fetch(name, &pod); err != nil || pod.Annotations[manifests.AnnotationCutFor] != record.Restore.Request.Nonce {
			t.Errorf("Pod %s has the mark %q, want %q (%v)", name, pod.Annotations[manifests.AnnotationCutFor], record.Restore.Request.Nonce, err)
		}
	}
	if err := c.take(t.Context(), late, steps[i]); !apierrors.IsConflict(err) || c.servesClients(names[2]) {
		t.Errorf("the late label is written: %v", err)
	}
	c.approve("another")
	c.renewAll(names)
	if err := c.fetch(names[2], &pod); err != nil || pod.Annotations[manifests.AnnotationCutFor] != "" || !c.servesClients(names[2]) {
		t.Errorf("the mark stays: %v, %v", pod.Annotations, err)
	}
}

// The time limit counts from the order, also for a druid that takes over.
func TestARestoreThatTakesTooLongIsReleased(t *testing.T) {
	c, names := restorable(t)
	c.requestsRestore(`{"revision":5}`)
	c.planned()
	c.approve(c.recovery().Plan.Hash)
	c.savesFinally(v1alpha1.SnapshotSucceeded)
	if _, order := c.ordered(); !order.Restores() || order.Since.IsZero() {
		t.Fatalf("the order is %+v", order)
	}
	c.at = c.at.Add(policy.RestoreLimit - time.Minute)
	c.renewAll(names)
	if _, order := c.ordered(); order == nil {
		t.Error("the order is released before its limit")
	}
	c.at = c.at.Add(2 * time.Minute)
	c.memory = newMemory()
	c.renewAll(names)
	if record, order := c.ordered(); order != nil || record.Released == 0 {
		t.Errorf("the order stands: %+v", order)
	}
}

// The selected member reports that no attempt can succeed. druid releases the order at once, and the Event says why.
func TestARestoreThatCannotSucceedIsReleased(t *testing.T) {
	c, names := restorable(t)
	c.requestsRestore(`{"revision":5}`)
	c.planned()
	c.approve(c.recovery().Plan.Hash)
	c.savesFinally(v1alpha1.SnapshotSucceeded)
	_, order := c.ordered()
	for i, name := range names {
		c.kubelet(name, false)
		c.acknowledges(name, i, order, "")
	}
	c.pass()
	if _, order = c.ordered(); !order.Restores() || order.Stage != leases.StageExecute {
		t.Fatalf("the order is %+v", order)
	}
	chosen := slices.Index(names, order.Chosen)
	c.says(order.Chosen, leases.Prefix+"reason", "full backup a is damaged")
	c.acknowledges(order.Chosen, chosen, order, leases.FailedBackups)
	c.pass()
	if record, order := c.ordered(); order != nil || record.Released != 2 || record.Phase != leases.PhaseFormed {
		t.Errorf("the order stands: %+v", order)
	}
	if warnings := strings.Join(c.reported(), "\n"); !strings.Contains(warnings, "because of the backups: full backup a is damaged") {
		t.Errorf("the Events are %s", warnings)
	}
}

// patchError tries a patch of the EtcdCluster and returns the refusal.
func (s *stage) patchError(patch string) error {
	s.Helper()
	return s.Patch(s.Context(), s.newCluster("demo", 1), client.RawPatch("application/merge-patch+json", []byte(patch)), client.DryRunAll)
}

func TestABadRestoreIsRefused(t *testing.T) {
	c, _ := restorable(t)
	for restore, says := range map[string]string{
		`{}`:                              "exactly one of",
		`{"latest":false}`:                "exactly one of",
		`{"revision":5,"latest":true}`:    "exactly one of",
		`{"revision":0}`:                  "revision",
		`{"revision":-1}`:                 "revision",
		`{"time":"yesterday"}`:            "time",
		`{"latest":true,"lineage":"../"}`: "lineage must be",
	} {
		err := c.patchError(fmt.Sprintf(`{"spec":{"recovery":{"restore":%s}}}`, restore))
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", restore, err)
		}
	}
	err := c.patchError(`{"spec":{"backup":null,"recovery":{"restore":{"latest":true}}}}`)
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "recovery.restore needs backup") {
		t.Errorf("without backups: %v", err)
	}
}
