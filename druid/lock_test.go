package druid

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/manifests"
)

// late is after any deadline that is not written otherwise.
const late = defaultProgressDeadline + time.Second

// witness notes every spec that a Pod was made for, and every name that the record ever listed.
type witness struct {
	*clocked
	hashes, names map[string]bool
}

func (w *witness) look() {
	w.Helper()
	record, err := w.record("demo")
	if err != nil {
		w.Fatal(err)
	}
	for _, name := range record.Members {
		w.names[name] = true
		var pod corev1.Pod
		if w.fetch(name, &pod) == nil {
			w.hashes[pod.Annotations[manifests.AnnotationSpecHash]] = true
		}
	}
}

// TestQueuedEditsEndInTheLast: five edits in the middle of an update end in the last.
func TestQueuedEditsEndInTheLast(t *testing.T) {
	c, names := renewed(t)
	w := &witness{c, map[string]bool{}, map[string]bool{}}
	w.look()
	request := func(cpu string) string {
		return fmt.Sprintf(`{"spec":{"replicas":3,"env":null,"resources":{"requests":{"cpu":%q}}}}`, cpu)
	}
	c.patchCluster(request("100m"))
	c.pass()
	c.isGoing("after the first edit", names, names[1])
	deadline := c.cluster().Status.ProgressDeadline
	if want := c.at.Add(defaultProgressDeadline); deadline == nil || deadline.Sub(want).Abs() > time.Second {
		t.Errorf("the deadline is %v, want %v", deadline, want)
	}
	c.reported()
	for _, edit := range []string{
		request("200m"), `{"spec":{"replicas":5}}`, `{"spec":{"env":[{"name":"GOGC","value":"50"}]}}`, `{"spec":{"replicas":1}}`, request("300m"),
	} {
		c.patchCluster(edit)
		c.pass()
		w.look()
		c.adopted(true)
	}
	if reported := strings.Join(c.reported(), "\n"); strings.Count(reported, v1alpha1.EventSpecChangePending) != 5 || strings.Contains(reported, "was accepted") {
		t.Errorf("each edit is reported once to wait, events are\n%s", reported)
	}
	if message := c.progressing().Message; !strings.Contains(message,
		fmt.Sprintf("The edit (generation %d of spec) is accepted when that is complete", c.cluster().Generation)) {
		t.Errorf("message %q does not say what waits", message)
	}
	for range 2 {
		for _, name := range []string{names[1], names[2], names[0]} {
			c.isGoing("in turn", names, name)
			c.returns(names, name)
			w.look()
			c.after(stable)
			w.look()
		}
	}
	c.adopted(false)
	c.stands(v1alpha1.ReasonReconciled)
	for _, name := range names {
		var pod corev1.Pod
		if err := c.fetch(name, &pod); err != nil || pod.Spec.Containers[0].Resources.Requests.Cpu().String() != "300m" || len(pod.Spec.Containers[0].Env) != 0 {
			t.Errorf("Pod %s is not what the last edit asks for: %v", name, err)
		}
	}
	if len(w.hashes) != 3 || !slices.Equal(slices.Sorted(maps.Keys(w.names)), names) {
		t.Errorf("Pods of %d specs were seen, want 3, and the names %v, want %v", len(w.hashes), slices.Sorted(maps.Keys(w.names)), names)
	}
	if c.cluster().Status.ProgressDeadline != nil {
		t.Error("the deadline stands although the target is reached")
	}
}

func TestDeadlineInThePastForcesAnEdit(t *testing.T) {
	c, names := renewed(t)
	c.patchCluster(`{"spec":{"progressDeadlineSeconds":60,"resources":{"requests":{"cpu":"100m"}}}}`)
	c.pass()
	c.isGoing("after the first edit", names, names[1])
	c.patchCluster(`{"spec":{"progressDeadlineSeconds":600,"resources":{"requests":{"cpu":"200m"}}}}`)
	c.pass()
	c.adopted(true)
	// What the user writes last counts.
	c.deadline(time.Hour)
	c.after(2 * time.Minute)
	c.adopted(true)
	c.reported()
	c.deadline(-time.Second)
	c.pass()
	c.adopted(false)
	if reported := strings.Join(c.reported(), "\n"); !strings.Contains(reported, v1alpha1.ReasonRetryAfterDeadline) {
		t.Errorf("events are\n%s", reported)
	}
	if at := c.cluster().Status.ProgressDeadline; at == nil || at.Sub(c.at.Add(defaultProgressDeadline)).Abs() > time.Second {
		t.Errorf("the next deadline is %v", at)
	}
	if pod := c.replace(names[1]); pod.Spec.Containers[0].Resources.Requests.Cpu().String() != "200m" {
		t.Error("the Pod is not what the forced edit asks for")
	}
}

func TestAnEditIsAcceptedAtOnceOnRequest(t *testing.T) {
	c, names := renewed(t)
	c.patchCluster(`{"spec":{"resources":{"requests":{"cpu":"100m"}}}}`)
	c.pass()
	c.isGoing("after the first edit", names, names[1])
	c.patchCluster(`{"spec":{"resources":{"requests":{"cpu":"200m"}}}}`)
	waits := c.cluster().Generation
	now := func(generation int64) string {
		return fmt.Sprintf(`{"metadata":{"annotations":{%q:"%d"}}}`, v1alpha1.ApplyNowAnnotation, generation)
	}
	c.patchCluster(now(waits - 1))
	c.pass()
	c.adopted(true)
	c.patchCluster(now(waits))
	c.pass()
	c.adopted(false)
	if pod := c.replace(names[1]); pod.Spec.Containers[0].Resources.Requests.Cpu().String() != "200m" {
		t.Error("the Pod is not what the edit asks for")
	}
	// The request was for that edit alone.
	c.patchCluster(`{"spec":{"resources":{"requests":{"cpu":"300m"}}}}`)
	c.pass()
	c.adopted(true)
}

// TestAfterDeadlineHealThenResume: after the deadline druid heals, and resumes at the next edit.
func TestAfterDeadlineHealThenResume(t *testing.T) {
	c, names := renewed(t)
	c.patchCluster(`{"spec":{"replicas":1}}`)
	c.pass()
	slot := c.requested()
	c.after(late)
	c.stands(v1alpha1.ReasonDeadlineExceeded)
	if reported := strings.Join(c.reported(), "\n"); !strings.Contains(reported, "Warning "+v1alpha1.ReasonDeadlineExceeded) {
		t.Errorf("events are\n%s", reported)
	}
	record, err := c.record("demo")
	if err != nil || record.PendingRemoval != nil || c.mark(slot.Member) != (leases.RemovalRequest{}) || !slices.Equal(record.Members, names) {
		t.Errorf("the removal was not taken back: %+v, %v", record, err)
	}
	if err := c.Delete(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: names[1]}}, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	c.returns(names, names[1])
	c.stands(v1alpha1.ReasonDeadlineExceeded)

	c.patchCluster(`{"spec":{"progressDeadlineSeconds":1200}}`)
	c.pass()
	c.adopted(false)
	member := c.requested().Member
	if at := c.cluster().Status.ProgressDeadline; at == nil || at.Sub(c.at.Add(1200*time.Second)).Abs() > time.Second {
		t.Errorf("the next deadline is %v", at)
	}
	// What an agent claimed is brought to its end, whatever the time is.
	c.answer(member, removing)
	c.deadline(-time.Second)
	c.pass()
	c.stands(v1alpha1.ReasonDeadlineExceeded)
	c.answer(member, done)
	c.pass()
	if record, err := c.record("demo"); err != nil || record.Lists(member) || len(record.Members) != 2 {
		t.Errorf("the record is %+v, %v, want it without %s", record, err, member)
	}
	c.stands(v1alpha1.ReasonDeadlineExceeded)
}

// TestFailedBootstrapWaitsForMoreTime: a bootstrap that fails is left alone until it has time again.
func TestFailedBootstrapWaitsForMoreTime(t *testing.T) {
	s := newStage(t)
	stop := s.startDruid()
	s.createCluster("demo", 3)
	names := s.members("demo", 3)
	stop()
	c := s.clocked()
	c.stands(v1alpha1.ReasonWaitingForSeed)
	c.patchCluster(`{"spec":{"resources":{"requests":{"cpu":"100m"}}}}`)
	c.pass()
	c.adopted(false) // a mistake in a new cluster is corrected at once
	c.after(late)
	c.stands(v1alpha1.ReasonBootstrapFailed)
	before := c.uids(names, &corev1.PersistentVolumeClaim{})
	if err := c.Delete(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: names[1]}}, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	c.patchCluster(`{"spec":{"resources":{"requests":{"cpu":"200m"}}}}`)
	c.pass()
	c.adopted(true)
	c.stands(v1alpha1.ReasonBootstrapFailed)
	if err := c.gone(names[1], &corev1.Pod{}); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(before, c.uids(names, &corev1.PersistentVolumeClaim{})); diff != "" {
		t.Errorf("claims (-before +after):\n%s", diff)
	}

	c.deadline(time.Hour)
	c.pass()
	c.adopted(false)
	if err := c.marked(names[1]); err != nil {
		t.Errorf("the Pod was not made again: %v", err)
	}
	c.after(late)
	c.stands(v1alpha1.ReasonBootstrapFailed) // that edit's own deadline
	c.form("demo", names)
	c.pass()
	c.stands(v1alpha1.ReasonReconciled)
	if is := c.cluster(); is.Status.ProgressDeadline != nil || is.Status.ClusterID == "" {
		t.Errorf("a cluster that formed all the same is instructed to be %+v", is.Status)
	}
}

// TestProgressingBootstrapNotCut: a bootstrap from a backup that makes progress is not ended.
func TestProgressingBootstrapNotCut(t *testing.T) {
	s := newStage(t)
	stop := s.startDruid()
	s.createCluster("demo", 1)
	name := s.members("demo", 1)[0]
	stop()
	c := s.clocked()
	c.says(name, leases.Prefix+"rule", "restore-at-first-boot")
	for i := range 10 {
		c.says(name, leases.Prefix+"reason", fmt.Sprint("restoring deltas: ", i))
		c.after(restoreTimeout - time.Minute)
	}
	if p := c.progressing(); p.Reason == v1alpha1.ReasonBootstrapFailed {
		t.Fatalf("after %s of progress Progressing is %+v", 10*restoreTimeout, p)
	}
	c.after(restoreTimeout)
	c.stands(v1alpha1.ReasonBootstrapFailed)
}

// TestUnreadableStatusStopsNoOther: a status.observed that cannot be read stops no other.
func TestUnreadableStatusStopsNoOther(t *testing.T) {
	c, _ := renewed(t)
	c.patchStatus(`{"status":{"observed":{"replicas":"many"}}}`)
	err := c.reconcile(c.Reconciler)
	if err == nil || !strings.Contains(err.Error(), "status.observed cannot be understood; remove it") {
		t.Errorf("got %v, want what to do", err)
	}
	c.patchStatus(`{"status":{"observed":null}}`)
	c.pass()
	c.adopted(false)
	if adopted, err := c.cluster().Status.Adopted(); err != nil || adopted == nil || adopted.Replicas != 3 {
		t.Errorf("adopted is %+v, %v", adopted, err)
	}
}

// observed is what the druid sees of demo after it adopted the spec as it is.
func (s *stage) observed(r *Reconciler) *observation {
	s.Helper()
	cluster := &v1alpha1.EtcdCluster{}
	if err := s.fetch("demo", cluster); err != nil {
		s.Fatal(err)
	}
	for {
		o, err := r.observe(s.Context(), r.cached, cluster, nil)
		if err != nil {
			s.Fatal(err)
		}
		if o.lock.adoption.Rule == "" {
			return o
		}
		if cluster, err = r.adopt(s.Context(), o); err != nil {
			s.Fatal(err)
		}
	}
}

// cluster is demo as it is.
func (s *stage) cluster() *v1alpha1.EtcdCluster {
	s.Helper()
	var cluster v1alpha1.EtcdCluster
	if err := s.fetch("demo", &cluster); err != nil {
		s.Fatal(err)
	}
	return &cluster
}

// patchStatus does what `kubectl patch --subresource=status` does.
func (s *stage) patchStatus(patch string) {
	s.Helper()
	if err := s.Status().Patch(s.Context(), s.newCluster("demo", 1), client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
		s.Fatal(err)
	}
}

// deadline moves the deadline to that of the test's clock, and what is added to it.
func (c *clocked) deadline(after time.Duration) {
	c.Helper()
	c.patchStatus(`{"status":{"progressDeadline":"` + c.at.Add(after).UTC().Format(time.RFC3339) + `"}}`)
}

// adopted fails unless the status answers the spec as it is, or, with pending, the one before.
func (c *clocked) adopted(pending bool) {
	c.Helper()
	is := c.cluster()
	if waits := is.Status.ObservedGeneration != is.Generation; waits != pending {
		c.Fatalf("generation %d, observed %d, want that the edit waits: %t; Progressing is %+v", is.Generation, is.Status.ObservedGeneration, pending,
			c.progressing())
	}
}

// stands fails unless Progressing has the reason.
func (c *clocked) stands(reason string) {
	c.Helper()
	if p := c.progressing(); p.Reason != reason {
		c.Fatalf("Progressing is %+v, want %s", p, reason)
	}
}
