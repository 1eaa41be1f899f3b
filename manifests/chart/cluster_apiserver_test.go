package chart

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/api/v1alpha1"
)

// team is a namespace with releases of the chart etcd-cluster by one Helm.
type team struct {
	*server
	helm helm
	name string
}

// TestReleaseOfAnEtcdCluster follows a release on an API server from its installation until its EtcdCluster is deleted.
func TestReleaseOfAnEtcdCluster(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	for _, name := range []string{"helm-3", "helm-4"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
			if err := s.Create(t.Context(), namespace); err != nil {
				t.Fatal(err)
			}
			team := team{server: s, helm: newHelm(t, name), name: name}
			team.followRelease(t)
			team.expectNotes(t)
		})
	}
}

// do runs a command of Helm about the release demo.
func (s team) do(t *testing.T, command string, args ...string) (string, error) {
	t.Helper()
	return s.helm.do(t, append([]string{command, "demo", "--kubeconfig", s.kubeconfig, "--namespace", s.name}, args...)...)
}

func (s team) must(t *testing.T, command string, args ...string) string {
	t.Helper()
	out, err := s.do(t, command, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (s team) followRelease(t *testing.T) {
	t.Helper()
	s.refuse(t, "install")
	s.must(t, "install", clusterDir)
	first := s.expect(t, 3)
	s.must(t, "upgrade", clusterDir, "--set", "spec.replicas=5", "--set", "snapshots[0].name=before")
	s.expect(t, 5)
	s.expectSnapshot(t, true)
	s.must(t, "rollback")
	s.expect(t, 3)
	s.expectSnapshot(t, false)
	s.refuse(t, "upgrade")
	s.must(t, "uninstall")
	s.must(t, "install", clusterDir)
	if again := s.expect(t, 3); again != first {
		t.Errorf("the EtcdCluster is another one after the release was uninstalled and installed again")
	}
	s.must(t, "upgrade", clusterDir, "--set", "spec.replicas=1,keep=false")
	s.expect(t, 1)
	s.must(t, "uninstall")
	err := s.Get(t.Context(), client.ObjectKey{Namespace: s.name, Name: "demo"}, &v1alpha1.EtcdCluster{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("the EtcdCluster is there although its release was uninstalled with keep=false: %v", err)
	}
}

// refuse fails unless the API server refuses values that only it can judge.
func (s team) refuse(t *testing.T, command string) {
	t.Helper()
	for values, want := range map[string]string{
		"spec.replicas=2":                 "replicas must be 0 or odd",
		"spec.etcd.quotaBackendBytes=2Gi": "etcd.quotaBackendBytes must not exceed storage.size",
	} {
		if _, err := s.do(t, command, clusterDir, "--set", values); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s with %s: want an error with %q, got %v", command, values, want, err)
		}
		if command == "install" {
			s.must(t, "uninstall") // a failed installation is a release
		}
	}
}

// expect fails if the EtcdCluster has another number of replicas or is being deleted, and returns its UID.
func (s team) expect(t *testing.T, replicas int32) types.UID {
	t.Helper()
	cluster := &v1alpha1.EtcdCluster{}
	if err := s.Get(t.Context(), client.ObjectKey{Namespace: s.name, Name: "demo"}, cluster); err != nil {
		t.Fatal(err)
	}
	if got := cluster.Spec.Replicas; got != replicas {
		t.Errorf("the EtcdCluster has %d replicas, want %d", got, replicas)
	}
	if cluster.DeletionTimestamp != nil {
		t.Error("the EtcdCluster is being deleted")
	}
	return cluster.UID
}

func (s team) expectSnapshot(t *testing.T, want bool) {
	t.Helper()
	snapshot := &v1alpha1.EtcdSnapshot{}
	err := s.Get(t.Context(), client.ObjectKey{Namespace: s.name, Name: "before"}, snapshot)
	if client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	if got := err == nil; got != want {
		t.Errorf("is there an EtcdSnapshot: %v, want %v", got, want)
	}
	if want && snapshot.Spec.ClusterRef.Name != "demo" {
		t.Errorf("the EtcdSnapshot is of the EtcdCluster %s", snapshot.Spec.ClusterRef.Name)
	}
}

// expectNotes checks what Helm prints after an installation. A dry run prints it too.
func (s team) expectNotes(t *testing.T) {
	t.Helper()
	const (
		secret = "Secret demo-connection"
		open   = "The connection has no TLS"
		kept   = "helm uninstall keeps the EtcdCluster"
	)
	url := "://demo-client." + s.name + ".svc:2379"
	for name, c := range map[string]struct {
		values      string
		has, hasNot []string
	}{
		"the defaults":        {"{}", []string{"http" + url, "wait etcdcluster/demo", open, kept}, []string{secret}},
		"certificates":        {"spec: {tls: {client: {auto: {}}}}", []string{"https" + url, secret}, []string{open}},
		"own certificates":    {"spec: {tls: {client: {secretRef: {name: a}}}}", []string{"https" + url, "your own authority"}, []string{secret, open}},
		"TLS for peers alone": {"spec: {tls: {peer: {auto: {}}}}", []string{"http" + url, open}, []string{secret}},
		"not kept":            {"keep: false", []string{"helm uninstall deletes the EtcdCluster"}, []string{kept}},
	} {
		out := s.must(t, "install", clusterDir, "--dry-run=client", "--values", valuesFile(t, c.values))
		for _, part := range c.has {
			if !strings.Contains(out, part) {
				t.Errorf("%s: the notes do not have %q:\n%s", name, part, out)
			}
		}
		for _, part := range c.hasNot {
			if strings.Contains(out, part) {
				t.Errorf("%s: the notes have %q:\n%s", name, part, out)
			}
		}
	}
}
