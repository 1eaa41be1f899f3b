package druid

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/druid/policy"
	"github.com/etcd-druid/druid/leases"
)

const (
	savedFull  = "0000000000000007-1795287240000.snap.zst"
	savedDelta = "0000000000000003-0000000000000007-1795287240000.delta.zst"
)

// bucketOf is a store in a bucket, with a Secret and a lock.
func bucketOf(name string) v1alpha1.BackupStore {
	return v1alpha1.BackupStore{S3: &v1alpha1.S3Store{
		Bucket: name, Prefix: "etcd", Region: "eu-central-1", Endpoint: "https://s3.example.com",
		CredentialsSecretRef: &v1alpha1.SecretRef{Name: "s3"}, ObjectLock: &v1alpha1.S3ObjectLock{Mode: v1alpha1.LockGovernance, Days: 7},
	}}
}

// savedAs is an EtcdSnapshot of demo that succeeded.
func savedAs(namespace, object, uri string) *v1alpha1.EtcdSnapshot {
	s := etcdSnapshot(namespace, "saved", v1alpha1.SnapshotFull)
	s.UID = "uid-saved"
	key := namespace + "/demo/00000003-ab/full/" + object
	if strings.HasSuffix(object, ".delta.zst") {
		s.Spec.Type, key = v1alpha1.SnapshotDelta, namespace+"/demo/00000003-ab/delta/"+object
	}
	s.Status.Phase, s.Status.Message = v1alpha1.SnapshotSucceeded, "the backup is saved"
	s.Status.Artifact = &v1alpha1.SnapshotArtifact{Key: key, URI: uri + key, Revision: 7}
	return s
}

func TestASnapshotStandsForAStateInAPlace(t *testing.T) {
	const at = "s3://backups/etcd/"
	own, keys := bucketOf("backups"), &v1alpha1.BackupEncryption{KeySecretRef: v1alpha1.SecretRef{Name: "keys"}}
	backedUp := func(store v1alpha1.BackupStore) *v1alpha1.EtcdCluster {
		return &v1alpha1.EtcdCluster{Spec: v1alpha1.EtcdClusterSpec{Backup: &v1alpha1.BackupSpec{Store: store, Encryption: keys}}}
	}
	adopted := backedUp(bucketOf("edited"))
	if err := adopted.Status.Adopt(backedUp(own).Spec); err != nil {
		t.Fatal(err)
	}
	mounted := v1alpha1.BackupStore{Directory: &v1alpha1.DirectoryStore{ClaimName: "archive"}}
	other := bucketOf("others")
	other.S3.Prefix, other.S3.CredentialsSecretRef.Name = "", "others"
	sentElsewhere := savedAs("ns", savedFull, "s3://others/")
	otherKeys := &v1alpha1.BackupEncryption{KeySecretRef: v1alpha1.SecretRef{Name: "others"}}
	sentElsewhere.Spec.Store, sentElsewhere.Spec.Encryption = &other, otherKeys
	nothingLeft := savedAs("ns", savedDelta, at)
	nothingLeft.Status.Artifact.Key, nothingLeft.Status.Artifact.URI = "", ""
	change := func(s *v1alpha1.EtcdSnapshot, change func(*v1alpha1.EtcdSnapshotStatus)) *v1alpha1.EtcdSnapshot {
		change(&s.Status)
		return s
	}
	full, delta := &v1alpha1.RestoreTarget{Name: savedFull}, &v1alpha1.RestoreTarget{Revision: 7}
	for name, c := range map[string]struct {
		snapshot *v1alpha1.EtcdSnapshot
		cluster  *v1alpha1.EtcdCluster
		reported *v1alpha1.BackupStore
		rule     string
		store    *v1alpha1.BackupStore
		keys     *v1alpha1.BackupEncryption
		to       *v1alpha1.RestoreTarget
		lineage  string
		says     string
	}{
		"a full in the store of its cluster": {savedAs("ns", savedFull, at), backedUp(own), nil, "found", &own, keys, full, "00000003-ab", ""},
		"a full where an edit waits":         {savedAs("ns", savedFull, at), adopted, nil, "found", &own, keys, full, "00000003-ab", ""},
		"a full in a volume": {savedAs("ns", savedFull, "dir://"+config.BackupDir+"/store/"), backedUp(mounted), nil, "found",
			&mounted, keys, full, "00000003-ab", ""},
		"a full in a store of its own":               {sentElsewhere, backedUp(own), nil, "found", &other, otherKeys, full, "00000003-ab", ""},
		"a full in a store of its own, cluster gone": {sentElsewhere, nil, nil, "found", &other, otherKeys, full, "00000003-ab", ""},
		"a delta":                                        {savedAs("ns", savedDelta, at), backedUp(own), nil, "found", &own, keys, delta, "00000003-ab", ""},
		"a delta that had nothing to save":               {nothingLeft, backedUp(own), nil, "snapshot-blank", nil, nil, nil, "", "names no object"},
		"a full of a cluster that is gone":               {savedAs("ns", savedFull, at), nil, nil, "cluster-gone", nil, nil, nil, "", "from.store"},
		"a full of a cluster that is gone, and reported": {savedAs("ns", savedFull, at), nil, &own, "found", &own, nil, full, "00000003-ab", ""},
		"a full of a cluster without backups": {savedAs("ns", savedFull, at), &v1alpha1.EtcdCluster{}, nil, "cluster-unsaved", nil, nil,
			nil, "", "no spec.backup any more"},
		"a full of before the cluster moved": {savedAs("ns", savedFull, at), backedUp(bucketOf("new")), nil, "backup-moved", nil, nil, nil, "", at},
		"a full that is reported nothing of": {change(savedAs("ns", savedFull, at), func(s *v1alpha1.EtcdSnapshotStatus) { s.Artifact = nil }), backedUp(own), nil,
			"snapshot-blank", nil, nil, nil, "", "status.artifact names no object"},
		"one that failed": {change(savedAs("ns", savedFull, at),
			func(s *v1alpha1.EtcdSnapshotStatus) { s.Phase, s.Message = v1alpha1.SnapshotFailed, "no such bucket" }), backedUp(own), nil,
			"snapshot-failed", nil, nil, nil, "", "no such bucket"},
		"one that runs": {change(savedAs("ns", savedFull, at), func(s *v1alpha1.EtcdSnapshotStatus) { s.Phase = v1alpha1.SnapshotRunning }), backedUp(own), nil,
			"snapshot-unfinished", nil, nil, nil, "", "Its phase is Running"},
		"one that no agent saw": {etcdSnapshot("ns", "saved", v1alpha1.SnapshotFull), backedUp(own), nil, "snapshot-unfinished", nil, nil, nil, "",
			"Its phase is new: no agent has responded yet"},
		"none": {nil, nil, nil, "snapshot-absent", nil, nil, nil, "", "does not exist in this namespace"},
	} {
		t.Run(name, func(t *testing.T) {
			from := &v1alpha1.RestoreSource{SnapshotRef: &v1alpha1.SnapshotReference{Name: "saved"}, Store: c.reported}
			n := originOf{from: from, namespace: "ns", snapshot: c.snapshot, cluster: c.cluster}
			facts, got := n.resolve()
			o := policy.JudgeOrigin(facts, n.words)
			if o.Rule != c.rule || !strings.Contains(o.Words, c.says) || (o.Words == "") != (c.rule == "found") {
				t.Fatalf("got %+v, want rule %s that says %q", o, c.rule, c.says)
			}
			if c.rule != "found" {
				return
			}
			want := v1alpha1.ResolvedRestore{SnapshotUID: "uid-saved", Lineage: c.lineage, RestoreSpec: v1alpha1.RestoreSpec{
				From: &v1alpha1.RestoreSource{Namespace: "ns", Name: "demo", Store: c.store, Encryption: c.keys}, To: c.to,
			}}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("(-want +got)\n%s", d)
			}
		})
	}
}

// restoreOf is the flag --restore of the agent in a Pod.
func (s *stage) restoreOf(pod string) (string, error) {
	var p corev1.Pod
	if err := s.fetch(pod, &p); err != nil {
		return "", err
	}
	for _, c := range p.Spec.InitContainers {
		for _, arg := range slices.Concat(c.Command, c.Args) {
			if order, ok := strings.CutPrefix(arg, "--restore="); ok {
				return order, nil
			}
		}
	}
	return "", fmt.Errorf("the agent of Pod %s restores nothing", pod)
}

// TestClusterWaitsForOriginSnapshot: a cluster waits for the snapshot that it begins with.
func TestClusterWaitsForOriginSnapshot(t *testing.T) {
	s := newStage(t)
	defer s.startDruid()()
	child := s.newCluster("restored", 1)
	child.Spec.Bootstrap = &v1alpha1.BootstrapSpec{Restore: &v1alpha1.RestoreSpec{From: &v1alpha1.RestoreSource{
		SnapshotRef: &v1alpha1.SnapshotReference{Name: "saved"},
	}}}
	if err := s.Create(t.Context(), child); err != nil {
		t.Fatal(err)
	}
	if c := s.condition("restored", v1alpha1.ConditionProgressing, metav1.ConditionTrue,
		v1alpha1.ReasonWaitingForSnapshot); !strings.Contains(c.Message, "EtcdSnapshot saved") {
		t.Errorf("it says %q", c.Message)
	}
	demo := s.newCluster("demo", 1)
	demo.Spec.Backup = &v1alpha1.BackupSpec{Store: bucketOf("backups")}
	if err := s.Create(t.Context(), demo); err != nil {
		t.Fatal(err)
	}
	s.members("demo", 1)
	saved := savedAs(s.namespace, savedFull, "s3://backups/etcd/")
	status := saved.Status
	saved.UID = ""
	if err := s.Create(t.Context(), saved); err != nil {
		t.Fatal(err)
	}
	s.becomes("saved", v1alpha1.SnapshotPending)
	s.eventually("Progressing reports how far the snapshot is", func() error {
		if c := s.condition("restored", v1alpha1.ConditionProgressing, metav1.ConditionTrue,
			v1alpha1.ReasonWaitingForSnapshot); !strings.Contains(c.Message, "Its phase is Pending") {
			return fmt.Errorf("it says %q", c.Message)
		}
		return nil
	})
	// Nothing was made of it: an agent in a Pod that were reported nothing would form an empty cluster.
	if made := s.made("restored"); len(made) > 0 {
		t.Errorf("made are %v", made)
	}
	s.eventually("it succeeds", func() error {
		if err := s.fetch("saved", saved); err != nil {
			return err
		}
		saved.Status = status
		return s.Status().Update(t.Context(), saved)
	})
	pod := s.members("restored", 1)[0]
	order, err := s.restoreOf(pod)
	for _, want := range []string{`"bucket":"backups"`, `"credentialsDir":"/restore/credentials"`, s.namespace + "/demo", "00000003-ab", savedFull} {
		if err != nil || !strings.Contains(order, want) {
			t.Errorf("its agent is reported %s, %v; want %s in it", order, err, want)
		}
	}
	// Neither is asked again.
	for _, gone := range []client.Object{saved, demo} {
		if err := s.Delete(t.Context(), gone); err != nil {
			t.Fatal(err)
		}
	}
	uids := s.uids([]string{pod}, &corev1.Pod{})
	if err := s.Delete(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: pod}}, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	s.replaced(pod, uids[pod], &corev1.Pod{})
	if again, err := s.restoreOf(pod); err != nil || again != order {
		t.Errorf("the next Pod's agent is reported %s, %v; want %s", again, err, order)
	}
}

// made are the objects of a cluster that druid made.
func (s *stage) made(cluster string) (names []string) {
	s.Helper()
	for kind, list := range map[string]client.ObjectList{"Lease": &coordinationv1.LeaseList{}, "Pod": &corev1.PodList{},
		"claim": &corev1.PersistentVolumeClaimList{}} {
		if err := s.List(s.Context(), list, client.InNamespace(s.namespace), client.MatchingLabels{leases.LabelCluster: cluster}); err != nil {
			s.Fatal(err)
		}
		objects, err := meta.ExtractList(list)
		if err != nil {
			s.Fatal(err)
		}
		for _, o := range objects {
			names = append(names, kind+" "+o.(client.Object).GetName())
		}
	}
	return names
}
