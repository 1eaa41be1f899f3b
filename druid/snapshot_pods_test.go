package druid

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/manifests"
)

// inOwnStore is an EtcdSnapshot in a bucket with a Secret of its own.
func inOwnStore(namespace, name string) *v1alpha1.EtcdSnapshot {
	snapshot := etcdSnapshot(namespace, name, v1alpha1.SnapshotFull)
	snapshot.Spec.Store = &v1alpha1.BackupStore{S3: &v1alpha1.S3Store{
		Bucket: "own", Region: "us-east-1", CredentialsSecretRef: &v1alpha1.SecretRef{Name: "own-credentials"},
	}}
	return snapshot
}

// inClaim is an EtcdSnapshot in a PersistentVolumeClaim.
func inClaim(namespace, name, claim string) *v1alpha1.EtcdSnapshot {
	snapshot := etcdSnapshot(namespace, name, v1alpha1.SnapshotFull)
	snapshot.Spec.Store = &v1alpha1.BackupStore{Directory: &v1alpha1.DirectoryStore{ClaimName: claim}}
	return snapshot
}

// snapshotPod waits for the Pod of an EtcdSnapshot, other than the one before.
func (s *stage) snapshotPod(uid string, before *corev1.Pod) *corev1.Pod {
	s.Helper()
	var pod corev1.Pod
	s.eventually("a Pod that saves", func() error {
		if err := s.fetch("snapshot-"+uid, &pod); err != nil {
			return err
		}
		if before != nil && pod.UID == before.UID {
			return fmt.Errorf("Pod %s is the one before", pod.Name)
		}
		return nil
	})
	return &pod
}

// reportsPod writes the status of a Pod as a kubelet does.
func (s *stage) reportsPod(pod *corev1.Pod, phase corev1.PodPhase, state corev1.ContainerState, conditions ...corev1.PodCondition) {
	s.Helper()
	s.eventually("report of Pod "+pod.Name, func() error {
		var now corev1.Pod
		if err := s.fetch(pod.Name, &now); err != nil || now.UID != pod.UID {
			return client.IgnoreNotFound(err)
		}
		now.Status.Phase, now.Status.Conditions = phase, conditions
		now.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: manifests.ContainerSnapshot, State: state}}
		return client.IgnoreNotFound(s.Status().Update(s.Context(), &now))
	})
}

var podRuns = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}

func podEnded(t testing.TB, code int32, message any) corev1.ContainerState {
	t.Helper()
	text, ok := message.(string)
	if a, isAnswer := message.(leases.SnapshotAnswer); isAnswer && !ok {
		a.Started, a.Finished = time.Now().Add(-time.Minute), time.Now()
		raw, err := a.Result()
		if err != nil {
			t.Fatal(err)
		}
		text = string(raw)
	}
	return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: "Error", Message: text}}
}

// savePods ends the Pods of EtcdSnapshots well, as the kubelet does.
func (s *stage) savePods() {
	s.Helper()
	var pods corev1.PodList
	if err := s.List(s.Context(), &pods, client.InNamespace(s.namespace),
		client.MatchingLabels{leases.LabelComponent: string(leases.ComponentSnapshot)}); err != nil {
		s.Fatal(err)
	}
	for i := range pods.Items {
		if pod := &pods.Items[i]; len(pod.Status.ContainerStatuses) == 0 {
			s.reportsPod(pod, corev1.PodSucceeded, podEnded(s, 0, done7(strings.TrimPrefix(pod.Name, "snapshot-"))))
		}
	}
}

// TestSnapshotInOwnStoreUsesPod: an EtcdSnapshot in its own store is saved by a Pod.
// A cluster without spec.backup is saved by a Pod, which is replaced if something ends it, and never twice.
func TestSnapshotInOwnStoreUsesPod(t *testing.T) {
	s := newStage(t)
	s.startDruid()
	s.whole(1)
	uid := s.asks(inOwnStore(s.namespace, "a"))
	pod := s.snapshotPod(uid, nil)
	second := s.asks(inOwnStore(s.namespace, "b"))
	command := strings.Join(pod.Spec.Containers[0].Command, " ")
	for _, part := range []string{"backup save", "--endpoint=http://demo-client." + s.namespace + ".svc:2379", "--request=" + uid,
		"--prefix=" + s.namespace + "/demo", "=own-credentials"} {
		if !strings.Contains(command, part) {
			t.Errorf("the command lacks %q: %s", part, command)
		}
	}
	if pod.Spec.AutomountServiceAccountToken == nil || *pod.Spec.AutomountServiceAccountToken || len(pod.OwnerReferences) != 1 ||
		pod.OwnerReferences[0].Kind != "EtcdSnapshot" {
		t.Errorf("the Pod has a token or another owner: %+v", pod.OwnerReferences)
	}
	s.reportsPod(pod, corev1.PodPending, corev1.ContainerState{}, corev1.PodCondition{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "0/3 nodes are available",
	})
	s.eventually("say what it waits for", func() error {
		status, err := s.stable("a", v1alpha1.SnapshotPending)
		if err == nil && !strings.Contains(status.Message, "0/3 nodes are available") {
			err = fmt.Errorf("it says %q", status.Message)
		}
		return err
	})
	s.reportsPod(pod, corev1.PodRunning, podRuns)
	if status := s.becomes("a", v1alpha1.SnapshotRunning); status.StartedAt == nil || !strings.Contains(status.Message, pod.Name) {
		t.Errorf("running: %+v", status)
	}
	// The node is drained.
	s.reportsPod(pod, corev1.PodFailed, podEnded(t, 137, ""), corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue})
	pod = s.snapshotPod(uid, pod)
	if err := s.gone("snapshot-"+second, &corev1.Pod{}); err != nil {
		t.Errorf("two Pods at once: %v", err)
	}
	s.reportsPod(pod, corev1.PodSucceeded, podEnded(t, 0, done7(uid)))
	if status := s.becomes("a", v1alpha1.SnapshotSucceeded); status.Artifact == nil || status.Artifact.URI != "s3://b/demo/full" || status.Artifact.Revision != 7 {
		t.Errorf("succeeded: %+v", status)
	}
	s.eventually("delete the Pod", func() error { return s.gone(pod.Name, &corev1.Pod{}) })

	pod = s.snapshotPod(second, nil)
	s.reportsPod(pod, corev1.PodFailed, podEnded(t, 1, leases.SnapshotAnswer{UID: second, Phase: leases.SnapshotFailed, Error: "access denied"}))
	if status := s.becomes("b", v1alpha1.SnapshotFailed); status.Message != "Access denied. Resolve this, and create another EtcdSnapshot." ||
		status.Artifact != nil {
		t.Errorf("failed: %+v", status)
	}
	// A process that the kernel killed would be killed again.
	third := s.asks(inOwnStore(s.namespace, "c"))
	s.reportsPod(s.snapshotPod(third, nil), corev1.PodFailed, podEnded(t, 137, "last line of the log"))
	if status := s.becomes("c", v1alpha1.SnapshotFailed); !strings.Contains(status.Message, "exit code 137") || !strings.Contains(status.Message, "last line") {
		t.Errorf("killed: %+v", status)
	}
	s.eventually("delete the Pods", func() error { return s.gone("snapshot-"+third, &corev1.Pod{}) })
	if made := s.calls.creations("/pods"); len(made) != 5 { // that of the member, and four of EtcdSnapshots
		t.Errorf("druid created %d Pods: %v", len(made), made)
	}
}

func TestAnEtcdSnapshotDoesNotUseAnyClaim(t *testing.T) {
	s := newStage(t)
	s.startDruid()
	names := s.whole(1)
	s.asks(inClaim(s.namespace, "member", names[0]))
	if status := s.becomes("member", v1alpha1.SnapshotFailed); !strings.Contains(status.Message, "belongs to a member of EtcdCluster demo") {
		t.Errorf("the claim of a member: %+v", status)
	}
	late := s.asks(inClaim(s.namespace, "late", "archive"))
	status := s.becomes("late", v1alpha1.SnapshotPending)
	if !strings.Contains(status.Message, "PersistentVolumeClaim archive does not exist") {
		t.Errorf("a claim that does not exist: %+v", status)
	}
	if err := s.gone("snapshot-"+late, &corev1.Pod{}); err != nil {
		t.Error(err)
	}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "archive"}}
	claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	if err := s.Create(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	pod := s.snapshotPod(late, nil)
	if !slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == "archive" && !v.PersistentVolumeClaim.ReadOnly
	}) {
		t.Errorf("the Pod has volumes %+v", pod.Spec.Volumes)
	}
	s.reportsPod(pod, corev1.PodFailed, podEnded(t, 1, leases.SnapshotAnswer{UID: late, Phase: leases.SnapshotFailed, Error: "no space left on device"}))
	s.becomes("late", v1alpha1.SnapshotFailed)
	s.asks(inClaim(s.namespace, "never", "no-such"))
	if status := s.becomes("never", v1alpha1.SnapshotFailed); !strings.Contains(status.Message, "PersistentVolumeClaim no-such does not exist") {
		t.Errorf("a claim that does not come: %+v", status)
	}
}

func TestABackupInItsOwnStoreIsDeletedByAPod(t *testing.T) {
	s := newStage(t)
	s.startDruid()
	s.whole(1)
	for name, c := range map[string]struct {
		answer leases.SnapshotAnswer
		reason string
		note   string
	}{
		"deleted": {leases.SnapshotAnswer{Phase: leases.SnapshotSucceeded}, v1alpha1.EventBackupDeleted, "s3://b/demo/full was deleted"},
		"refused": {leases.SnapshotAnswer{Phase: leases.SnapshotFailed, Error: "delta backups need it"}, v1alpha1.EventBackupRetained,
			"stays in the store: delta backups need it"},
	} {
		snapshot := inOwnStore(s.namespace, name)
		snapshot.Spec.DeletionPolicy = v1alpha1.SnapshotDelete
		uid := s.asks(snapshot)
		pod := s.snapshotPod(uid, nil)
		s.reportsPod(pod, corev1.PodSucceeded, podEnded(t, 0, done7(uid)))
		s.becomes(name, v1alpha1.SnapshotSucceeded)
		s.deleteSnapshot(name)
		pod = s.snapshotPod(uid, pod)
		if command := strings.Join(pod.Spec.Containers[0].Command, " "); !strings.Contains(command, "backup drop") || !strings.Contains(command, "--key=demo/full") {
			t.Errorf("the command is %s", command)
		}
		c.answer.UID = uid
		s.reportsPod(pod, corev1.PodSucceeded, podEnded(t, 0, c.answer))
		s.eventually("let it go", func() error { return s.gone(name, &v1alpha1.EtcdSnapshot{}) })
		s.noted(name, c.reason, c.note)
	}
}

// Who creates an EtcdSnapshot with a store uses Secrets, a claim and the data of a cluster through druid, so the user needs
// the permissions to use them without druid.
func TestEtcdSnapshotUsesOnlyUserRights(t *testing.T) {
	s := newStage(t)
	s.install("admission.yaml")
	rule := func(group, resource, verb string, names ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: []string{verb}, ResourceNames: names}
	}
	create := rule(v1alpha1.GroupVersion.Group, "etcdsnapshots", "create")
	update := rule(v1alpha1.GroupVersion.Group, "etcdclusters", "update", "demo")
	get := func(names ...string) rbacv1.PolicyRule { return rule("", "secrets", "get", names...) }
	all := inOwnStore(s.namespace, "all")
	all.Spec.Store.S3.CASecretRef = &v1alpha1.SecretKeyRef{Name: "own-ca", Key: "ca.crt"}
	all.Spec.Store.S3.Endpoint = "https://s3.example.com"
	all.Spec.Store.S3.SSE = &v1alpha1.S3Encryption{Mode: v1alpha1.SSECustomerKey, KeySecretRef: &v1alpha1.SecretKeyRef{Name: "own-sse", Key: "key"}}
	all.Spec.Encryption = &v1alpha1.BackupEncryption{KeySecretRef: v1alpha1.SecretRef{Name: "own-keys"}}
	type attempt struct {
		rules    []rbacv1.PolicyRule
		snapshot *v1alpha1.EtcdSnapshot
		says     string // empty: allowed
	}
	cases := map[string]attempt{
		"a Secret that the user may get": {[]rbacv1.PolicyRule{create, update, get("own-credentials")}, inOwnStore(s.namespace, "a"), ""},
		"a Secret that the user may not get": {[]rbacv1.PolicyRule{create, update, get("other")}, inOwnStore(s.namespace, "a"),
			"only if you may get Secret own-credentials"},
		"a cluster of which the user is none": {[]rbacv1.PolicyRule{create, get("own-credentials")}, inOwnStore(s.namespace, "a"),
			"you may not update that EtcdCluster"},
		"all Secrets of the store": {[]rbacv1.PolicyRule{create, update, get("own-credentials", "own-ca", "own-sse", "own-keys")}, all, ""},
		"a claim that the user may not update": {[]rbacv1.PolicyRule{create, update}, inClaim(s.namespace, "a", "archive"),
			"you may not update PersistentVolumeClaim archive"},
		"a claim that the user may update": {[]rbacv1.PolicyRule{create, update, rule("", "persistentvolumeclaims", "update", "archive")},
			inClaim(s.namespace, "a", "archive"), ""},
		"the store of the cluster": {[]rbacv1.PolicyRule{create}, etcdSnapshot(s.namespace, "a", v1alpha1.SnapshotFull), ""},
	}
	secrets := []string{"own-credentials", "own-ca", "own-sse", "own-keys"}
	for i, name := range secrets {
		others := slices.Delete(slices.Clone(secrets), i, i+1)
		cases["every Secret but "+name] = attempt{[]rbacv1.PolicyRule{create, update, get(others...)}, all, "Secret own-sse and Secret own-keys"}
	}
	n := 0
	for name, c := range cases {
		n++
		user := fmt.Sprintf("user-%d-%s", n, s.namespace)
		impersonated := s.userWith(fmt.Sprintf("user-%d", n), user, c.rules...)
		s.eventually(name, func() error { // the policy and the permissions take a moment
			err := impersonated.Create(t.Context(), c.snapshot.DeepCopy(), client.DryRunAll)
			switch {
			case c.says == "":
				return err
			case !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), c.says):
				return fmt.Errorf("got %w, want Forbidden: %s", err, c.says)
			}
			return nil
		})
	}
}

// userWith returns a client of a user that has these permissions in the namespace.
func (s *stage) userWith(role, user string, rules ...rbacv1.PolicyRule) client.Client {
	s.Helper()
	meta := metav1.ObjectMeta{Namespace: s.namespace, Name: role}
	binding := &rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name}}
	binding.Subjects = []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}}
	for _, object := range []client.Object{&rbacv1.Role{ObjectMeta: meta, Rules: rules}, binding} {
		if err := s.Create(s.Context(), object); err != nil {
			s.Fatal(err)
		}
	}
	return s.as(user, "system:authenticated")
}
