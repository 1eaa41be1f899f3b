package manifests

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/test/env"
)

// onHost is an EtcdCluster with backups in a directory of the node.
func onHost(namespace, path string) *v1alpha1.EtcdCluster {
	cluster := plain()
	cluster.ObjectMeta = metav1.ObjectMeta{Name: "node", Namespace: namespace, UID: "11111111-2222-3333-4444-555555555555"}
	store := v1alpha1.BackupStore{Directory: &v1alpha1.DirectoryStore{HostPath: path}}
	cluster.Spec.Backup = &v1alpha1.BackupSpec{Store: store, Full: v1alpha1.FullBackup{Schedule: "@daily"}}
	return cluster
}

// The CustomResourceDefinition refuses each path of which the policy refuses the Pod, in the same words, and no other.
func TestDefinitionAndPolicyAgreeOnPaths(t *testing.T) {
	in := install(t, env.APIServer(t))
	namespace := env.Namespace(t, in.config) // no level of Pod Security refuses a Pod here
	in.allowHostPath(t, namespace)
	errors := func(path string) (ofCluster, ofPod error) {
		cluster := onHost(namespace, path)
		pod, err := Pod(cluster, member, options())
		if err != nil {
			t.Fatal(err)
		}
		return in.admin.Create(t.Context(), cluster, client.DryRunAll), in.druid.Create(t.Context(), pod, client.DryRunAll)
	}
	await(t, "the label of the namespace has no effect", func() (bool, error) {
		_, err := errors("/srv")
		return err == nil, err
	})
	inForce(t, "druid-pods", func() error {
		_, err := errors("/etc")
		return err
	})
	const words = "hostPath must not be a directory of the system: "
	for _, path := range []string{
		"/", "//", "/.", "/./", "/boot", "/boot/", "/dev/shm", "/etc", "//etc", "/./etc/./kubernetes", "/proc", "/root", "//root/.ssh",
		"/run", "/run/containerd", "/sys/fs",
		"/var", "/var/", "/var/.", "/var//./", "/var/lib", "/var/lib/kubelet", "/var/./lib", "/var//run", "/var/run/docker.sock", "/./var/./lib/",
	} {
		for what, err := range pair(errors(path)) {
			if err == nil || !strings.Contains(err.Error(), words) {
				t.Errorf("%s with path %s: %v, want %q", what, path, err, words)
			}
		}
	}
	for _, path := range []string{
		"/srv", "/srv/", "/srv/./a", "/mnt/etc", "/etcd", "/var/backups", "/var/library",
		"/var/lib.old", "/variable", "/running", "/.etc", "/...", "/a..b/..c",
	} {
		for what, err := range pair(errors(path)) {
			if err != nil {
				t.Errorf("%s with path %s: %v", what, path, err)
			}
		}
	}
	for _, path := range []string{"srv", "./etc", "etc", "../etc"} {
		cluster, pod := errors(path)
		if !apierrors.IsInvalid(cluster) || !strings.Contains(cluster.Error(), "hostPath must be an absolute path") {
			t.Errorf("an EtcdCluster with path %s: %v", path, cluster)
		}
		if path != "../etc" && !refusedBy("druid-pods", pod) {
			t.Errorf("a Pod with path %s: %v", path, pod)
		}
	}
	for _, path := range []string{"/srv/..", "/srv/../etc", "/../etc"} {
		cluster, pod := errors(path)
		if !apierrors.IsInvalid(cluster) || !strings.Contains(cluster.Error(), "without ..") {
			t.Errorf("an EtcdCluster with path %s: %v", path, cluster)
		}
		if !apierrors.IsInvalid(pod) {
			t.Errorf("a Pod with path %s: %v, want that Kubernetes refuses it", path, pod)
		}
	}
}

func pair(cluster, pod error) map[string]error {
	return map[string]error{"an EtcdCluster": cluster, "a Pod": pod}
}

// Only the label of the namespace lets druid mount a directory of the node: a link in it can lead to each file of the node.
func TestOnlyALabelAllowsAHostPath(t *testing.T) {
	in := install(t, env.APIServer(t))
	namespace := env.Namespace(t, in.config)
	made := madePods(t, namespace)
	for _, kind := range []string{"a member: directory", "a member: restored"} {
		inForce(t, "druid-pods", func() error { return in.druid.Create(t.Context(), made[kind].DeepCopy(), client.DryRunAll) })
	}
	refused := in.druid.Create(t.Context(), made["a member: directory"].DeepCopy(), client.DryRunAll)
	if want := "kubectl label ns " + namespace + " etcd.druid.dev/allow-host-path=true"; refused == nil || !strings.Contains(refused.Error(), want) {
		t.Errorf("the refusal is %v, want %q in it", refused, want)
	}
	if err := in.druid.Create(t.Context(), made["a member: full"].DeepCopy(), client.DryRunAll); err != nil {
		t.Errorf("a Pod without a directory of the node: %v", err)
	}
	in.allowHostPath(t, namespace)
	answered(t, "druid-pods", "create a Pod with a directory of the node", false, func() error {
		return in.druid.Create(t.Context(), made["a member: directory"].DeepCopy(), client.DryRunAll)
	})
}
