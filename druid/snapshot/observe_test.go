package snapshot

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/druid/policy"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
)

// TestSnapshotWaitsForCluster: an EtcdSnapshot waits a while for its cluster.
func TestSnapshotWaitsForCluster(t *testing.T) {
	created := time.Date(2026, 11, 21, 18, 0, 0, 0, time.UTC)
	snapshot := &v1alpha1.EtcdSnapshot{ObjectMeta: metav1.ObjectMeta{Name: "a", CreationTimestamp: metav1.NewTime(created)}}
	for age, want := range map[time.Duration]clusterState{
		-time.Second: clusterMissing, clusterGrace - 1: clusterMissing, clusterGrace: clusterGone,
	} {
		o := &observation{name: types.NamespacedName{Name: "demo"}, now: created.Add(age)}
		got := snapshotFactsOf(o, snapshot, slotUnknown, leaseOrder{}).Cluster
		if got != want || (o.again > 0 && o.again <= 2*clusterGrace) != (want == clusterMissing) {
			t.Errorf("after %s: %d, looks again in %s", age, got, o.again)
		}
	}
	finished := snapshot.DeepCopy()
	finished.Status = v1alpha1.EtcdSnapshotStatus{Phase: v1alpha1.SnapshotFailed, FinishedAt: new(metav1.NewTime(created))}
	finished.Spec.TTLSecondsAfterFinished = new(int32(60))
	for age, want := range map[time.Duration]rules.YesNo{time.Minute - 1: rules.No, time.Minute: rules.Yes} {
		o := &observation{name: types.NamespacedName{Name: "demo"}, now: created.Add(age)}
		got := snapshotFactsOf(o, finished, slotUnknown, leaseOrder{}).Expired
		if got != want || (o.again > 0) != (want == rules.No) {
			t.Errorf("expired after %s: %d, looks again in %s", age, got, o.again)
		}
	}
}

func TestADeletionIsWaitedForForAWhile(t *testing.T) {
	deleted := metav1.NewTime(time.Date(2026, 11, 22, 5, 0, 0, 0, time.UTC))
	snapshot := &v1alpha1.EtcdSnapshot{
		ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "uid", DeletionTimestamp: &deleted, Finalizers: []string{v1alpha1.SnapshotFinalizer}},
		Spec:       v1alpha1.EtcdSnapshotSpec{Type: v1alpha1.SnapshotFull, DeletionPolicy: v1alpha1.SnapshotDelete},
	}
	snapshot.Status = v1alpha1.EtcdSnapshotStatus{Phase: v1alpha1.SnapshotSucceeded, Artifact: &v1alpha1.SnapshotArtifact{Key: "demo/full"}}
	cluster := &v1alpha1.EtcdCluster{Spec: v1alpha1.EtcdClusterSpec{Backup: &v1alpha1.BackupSpec{}}}
	for age, want := range map[time.Duration]step{
		-time.Second: stepOrder, deletionTimeout - 1: stepOrder, deletionTimeout: stepReleaseLate,
	} {
		o := &observation{now: deleted.Add(age), cluster: cluster}
		d := decide(o, snapshot, slotFree, leaseOrder{})
		if d.Verdict != want || (o.again > 0) != (want == stepOrder) {
			t.Errorf("after %s: %s by %s, looks again in %s", age, d.Verdict, d.Rule, o.again)
		}
	}
	// It was made, and deleted before the status reported it.
	snapshot.Status = v1alpha1.EtcdSnapshotStatus{Phase: v1alpha1.SnapshotRunning}
	order := leases.SnapshotOrder{UID: "uid", Answer: leases.SnapshotAnswer{UID: "uid", Phase: leases.SnapshotSucceeded, Object: "demo/full"}}
	for slot, want := range map[leases.SnapshotOrder]step{order: stepConclude, {}: stepRelease} {
		d := decide(&observation{now: deleted.Time, cluster: cluster}, snapshot, slotTaken, leaseOrder{SnapshotOrder: slot, answer: orderAnswers[slot.Answer.Phase]})
		if d.Verdict != want {
			t.Errorf("%+v: %s by %s, want %s", slot, d.Verdict, d.Rule, want)
		}
	}
}

// TestSnapshotNotIntoClustersBackups: an EtcdSnapshot is not saved where its cluster is backed up.
// A backup of another key, or of none, between those of the agents would count as one of theirs.
func TestSnapshotNotIntoClustersBackups(t *testing.T) {
	bucket := func(name, prefix, endpoint string) *v1alpha1.BackupStore {
		return &v1alpha1.BackupStore{S3: &v1alpha1.S3Store{Bucket: name, Prefix: prefix, Endpoint: endpoint}}
	}
	claim := func(name string) *v1alpha1.BackupStore {
		return &v1alpha1.BackupStore{Directory: &v1alpha1.DirectoryStore{ClaimName: name}}
	}
	for name, c := range map[string]struct {
		backup, own *v1alpha1.BackupStore
		refused     bool
	}{
		"no backups":           {nil, bucket("b", "", ""), false},
		"the same bucket":      {bucket("b", "p", ""), bucket("b", "p/", ""), true},
		"by another endpoint":  {bucket("b", "p", "https://a"), bucket("b", "p", "https://b"), true},
		"another prefix":       {bucket("b", "p", ""), bucket("b", "q", ""), false},
		"another bucket":       {bucket("b", "p", ""), bucket("c", "p", ""), false},
		"the same claim":       {claim("c"), claim("c"), true},
		"another claim":        {claim("c"), claim("d"), false},
		"a claim and a bucket": {claim("c"), bucket("c", "", ""), false},
		"a path and no claim":  {&v1alpha1.BackupStore{Directory: &v1alpha1.DirectoryStore{}}, &v1alpha1.BackupStore{Directory: &v1alpha1.DirectoryStore{}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := &v1alpha1.EtcdCluster{ObjectMeta: metav1.ObjectMeta{Name: "demo"}}
			if c.backup != nil {
				cluster.Spec.Backup = &v1alpha1.BackupSpec{Store: *c.backup}
			}
			snapshot := &v1alpha1.EtcdSnapshot{Spec: v1alpha1.EtcdSnapshotSpec{Store: c.own}}
			if got := placeProblem(cluster, snapshot); (got != "") != c.refused {
				t.Errorf("got %q, refused: %t", got, c.refused)
			}
		})
	}
}

// An EtcdSnapshot whose turn does not come ends after a day, and one whose Pods save nothing an hour and some minutes after the
// first one. The request of one that ended is removed.
func TestAnEtcdSnapshotHasALimit(t *testing.T) {
	begin := time.Date(2026, 11, 25, 0, 0, 0, 0, time.UTC)
	store := &v1alpha1.BackupStore{}
	counted := &v1alpha1.SnapshotAttempts{Count: 1, FirstAt: metav1.NewTime(begin.Add(20 * time.Hour)), LastAt: metav1.NewTime(begin.Add(20 * time.Hour))}
	for name, c := range map[string]struct {
		store    *v1alpha1.BackupStore
		attempts *v1alpha1.SnapshotAttempts
		mine     bool
		answer   orderAnswer
		limit    time.Duration
		says     string
	}{
		"a request that no agent answers": {nil, nil, true, unanswered, 24 * time.Hour,
			"Not saved within 24h0m0s. Resolve what is wrong, and create another EtcdSnapshot. The last state was: the leader's agent"},
		"one behind another that is not served":   {nil, nil, false, answerRunning, 24 * time.Hour, "Not saved within 24h0m0s."},
		"an agent at work":                        {nil, nil, true, answerRunning, 25 * time.Hour, "Not saved within 25h0m0s."},
		"one with a store before its first Pod":   {store, nil, false, unanswered, 24 * time.Hour, "Not saved within 24h0m0s."},
		"one with a store, from its first Pod on": {store, counted, false, unanswered, 20*time.Hour + 65*time.Minute, "Not saved within 1h5m0s."},
	} {
		t.Run(name, func(t *testing.T) {
			snapshot := &v1alpha1.EtcdSnapshot{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "uid", CreationTimestamp: metav1.NewTime(begin)}}
			snapshot.Spec.Store = c.store
			snapshot.Status = v1alpha1.EtcdSnapshotStatus{Phase: v1alpha1.SnapshotPending, Attempts: c.attempts}
			order := leaseOrder{SnapshotOrder: leases.SnapshotOrder{UID: "other"}, answer: c.answer, reason: "the leader's agent"}
			if c.mine {
				order.UID = "uid"
			}
			at := func(after time.Duration) (*observation, step) {
				o := &observation{name: types.NamespacedName{Name: "demo"}, record: &leases.Record{}, now: begin.Add(after), cluster: &v1alpha1.EtcdCluster{
					Spec: v1alpha1.EtcdClusterSpec{Backup: &v1alpha1.BackupSpec{}},
				}}
				return o, decide(o, snapshot, slotTaken, order).Verdict
			}
			if o, next := at(c.limit - time.Minute); next == stepFailOverdue || o.again <= 0 || o.again > time.Minute {
				t.Errorf("a minute before the limit: %s, and druid looks again in %s", next, o.again)
			}
			if _, next := at(c.limit); next != stepFailOverdue {
				t.Errorf("at the limit: %s", next)
			}
			if said := policy.AsSentences(overdueWords(snapshot, order)); !strings.HasPrefix(said, c.says) {
				t.Errorf("it says %q, want %q", said, c.says)
			}
			snapshot.Status.Phase = v1alpha1.SnapshotFailed
			if _, next := at(c.limit); c.mine && next != stepClear || !c.mine && next != stepWait {
				t.Errorf("after the end: %s", next)
			}
		})
	}
}

// A cluster can pause, resume or form while an EtcdSnapshot waits. The status follows, and the request stays.
func TestAnEtcdSnapshotSaysWhatItWaitsFor(t *testing.T) {
	paused := []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonPaused}}
	agent := "The EtcdSnapshot waits for the leader's agent. Condition BackupReady of the EtcdCluster shows what blocks it."
	for name, c := range map[string]struct {
		conditions []metav1.Condition
		record     *leases.Record
		phase      v1alpha1.SnapshotPhase
		says       string
		want       step
	}{
		"a cluster that has formed":            {nil, &leases.Record{}, v1alpha1.SnapshotPending, agent, stepWait},
		"a cluster that was resumed":           {nil, &leases.Record{}, v1alpha1.SnapshotPending, "The cluster is paused.", stepReport},
		"a cluster that is paused":             {paused, &leases.Record{}, v1alpha1.SnapshotPending, agent, stepReport},
		"a cluster that never formed":          {nil, nil, v1alpha1.SnapshotPending, agent, stepReport},
		"a cluster that is paused, at the end": {paused, &leases.Record{}, v1alpha1.SnapshotFailed, agent, stepClear},
	} {
		t.Run(name, func(t *testing.T) {
			o := &observation{name: types.NamespacedName{Name: "demo"}, record: c.record, cluster: &v1alpha1.EtcdCluster{
				Spec: v1alpha1.EtcdClusterSpec{Backup: &v1alpha1.BackupSpec{}}, Status: v1alpha1.EtcdClusterStatus{Conditions: c.conditions},
			}}
			snapshot := &v1alpha1.EtcdSnapshot{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "uid"}}
			snapshot.Status = v1alpha1.EtcdSnapshotStatus{Phase: c.phase, Message: c.says}
			order := leaseOrder{SnapshotOrder: leases.SnapshotOrder{UID: "uid"}, answer: unanswered, reason: waitsForAgent(o, snapshot)}
			if d := decide(o, snapshot, slotTaken, order); d.Verdict != c.want {
				t.Errorf("%s by %s with reason %q, want %s", d.Verdict, d.Rule, order.reason, c.want)
			}
			if waits := c.want == stepReport && name != "a cluster that was resumed"; waits != (o.again > 0 && o.again <= waitingInterval) {
				t.Errorf("druid looks again in %s", o.again)
			}
		})
	}
}
