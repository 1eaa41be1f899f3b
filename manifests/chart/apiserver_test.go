package chart

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/test/env"
)

// server is a real API server, on which nothing runs that makes Pods.
type server struct {
	client.Client
	kubeconfig string
	// next is the chart of a later version, in which an EtcdSnapshot has the short name laterSnap.
	next string
}

// The short names of an EtcdSnapshot in the chart and in the later one.
const (
	snap      = "etcdsnap"
	laterSnap = "latersnap"
)

// TestReleasesKeepEtcdClusters follows one API server from an installation by kubectl over releases of Helm 3 to those of Helm 4. No
// step must touch the EtcdCluster, nor what defines it.
func TestReleasesKeepEtcdClusters(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	helm3, helm4 := newHelm(t, "helm-3"), newHelm(t, "helm-4")
	s.applyInstallation(t)
	cluster := s.createCluster(t)
	steps := []struct {
		name string
		run  func(t *testing.T)
	}{
		{"Helm does not take over what kubectl applied unless it is asked to", func(t *testing.T) {
			if err := s.helm(t, helm4, "install", chartDir); err == nil || !strings.Contains(err.Error(), "invalid ownership metadata") {
				t.Errorf("want an error about the owner, got %v", err)
			}
			// With server-side apply, kubectl would stay an owner of the fields, and the next upgrade would conflict with it.
			s.mustHelm(t, helm4, "install", chartDir, "--take-ownership", "--server-side=false")
		}},
		{"Helm 4 changes its release", func(t *testing.T) { s.follow(t, helm4) }},
		{"Helm 4 uninstalls, and Helm 3 installs", func(t *testing.T) { s.replace(t, helm4, helm3) }},
		{"Helm 3 changes its release", func(t *testing.T) { s.follow(t, helm3) }},
		{"Helm 3 uninstalls, and installs again", func(t *testing.T) { s.replace(t, helm3, helm3) }},
		{"Helm 4 changes the release of Helm 3", func(t *testing.T) { s.follow(t, helm4) }},
		{"Helm 4 uninstalls, and installs again by server-side apply", func(t *testing.T) { s.replace(t, helm4, helm4) }},
		{"Helm 4 changes what it applied", func(t *testing.T) { s.follow(t, helm4) }},
		{"the roles for users are added to those of Kubernetes", func(t *testing.T) { s.aggregates(t, helm4) }},
	}
	for _, step := range steps {
		if !t.Run(step.name, func(t *testing.T) {
			step.run(t)
			s.expectCluster(t, cluster)
		}) {
			break
		}
	}
}

func newServer(t *testing.T) *server {
	t.Helper()
	config := env.OwnAPIServer(t)
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return &server{Client: c, kubeconfig: kubeconfig(t, config), next: laterChart(t)}
}

func laterChart(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "druid")
	if err := os.CopyFS(dir, os.DirFS(chartDir)); err != nil {
		t.Fatal(err)
	}
	definition := filepath.Join(dir, "files", "crds", "etcdsnapshots.yaml")
	changed := strings.Replace(read(t, definition), "- "+snap+"\n", "- "+laterSnap+"\n", 1)
	if err := os.WriteFile(definition, []byte(changed), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// kubeconfig writes the configuration to a file and returns its path.
func kubeconfig(t *testing.T, config *rest.Config) string {
	t.Helper()
	raw, err := clientcmd.Write(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{"test": {Server: config.Host, CertificateAuthorityData: config.CAData}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{"test": {
			ClientCertificateData: config.CertData, ClientKeyData: config.KeyData, Token: config.BearerToken,
		}},
		Contexts:       map[string]*clientcmdapi.Context{"test": {Cluster: "test", AuthInfo: "test"}},
		CurrentContext: "test",
	})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// applyInstallation does what kubectl apply --server-side -f install.yaml does.
func (s *server) applyInstallation(t *testing.T) {
	t.Helper()
	all := parse(t, read(t, filepath.Join(installDir, "install.yaml")))
	isNamespace := func(key string) bool { return strings.HasPrefix(key, "Namespace ") }
	var names []string
	for name := range all {
		if isNamespace(name) {
			names = slices.Insert(names, 0, name) // the others are in it
		} else {
			names = append(names, name)
		}
	}
	for _, name := range names {
		err := s.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(all[name]), client.FieldOwner("kubectl"), client.ForceOwnership)
		if err != nil {
			t.Fatalf("apply %s: %v", name, err)
		}
	}
}

func (s *server) createCluster(t *testing.T) *v1alpha1.EtcdCluster {
	t.Helper()
	cluster := &v1alpha1.EtcdCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "demo"}}
	cluster.Spec.Replicas = 3
	cluster.Spec.Storage.Size = resource.MustParse("1Gi")
	if err := s.Create(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	return cluster
}

// expectCluster fails if the EtcdCluster is another one, has another spec or is being deleted.
func (s *server) expectCluster(t *testing.T, want *v1alpha1.EtcdCluster) {
	t.Helper()
	got := &v1alpha1.EtcdCluster{}
	if err := s.Get(t.Context(), client.ObjectKeyFromObject(want), got); err != nil {
		t.Fatal(err)
	}
	if got.UID != want.UID || got.Generation != want.Generation || got.DeletionTimestamp != nil {
		t.Errorf("the EtcdCluster changed (-before +after):\n%s", cmp.Diff(want, got))
	}
}

// helm runs a command about the release.
func (s *server) helm(t *testing.T, h helm, command string, args ...string) error {
	t.Helper()
	_, err := h.do(t, append([]string{command, release, "--kubeconfig", s.kubeconfig, "--namespace", namespace}, args...)...)
	return err
}

func (s *server) mustHelm(t *testing.T, h helm, command string, args ...string) {
	t.Helper()
	if err := s.helm(t, h, command, args...); err != nil {
		t.Fatal(err)
	}
}

// follow upgrades the release to a later chart, reverts that, and removes the CustomResourceDefinitions from it.
func (s *server) follow(t *testing.T, h helm) {
	t.Helper()
	s.mustHelm(t, h, "upgrade", s.next, "--set", "replicas=3")
	s.expect(t, 3, laterSnap)
	s.mustHelm(t, h, "rollback")
	s.expect(t, 2, snap)
	s.mustHelm(t, h, "upgrade", chartDir, "--set", "crds.install=false")
	s.expect(t, 2, snap)
	s.mustHelm(t, h, "upgrade", chartDir, "--reset-then-reuse-values", "--set", "crds.install=true")
}

// replace uninstalls the release with one Helm, and installs it with another.
func (s *server) replace(t *testing.T, old, next helm) {
	t.Helper()
	s.mustHelm(t, old, "uninstall")
	err := s.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "druid"}, &appsv1.Deployment{})
	if !apierrors.IsNotFound(err) {
		t.Fatalf("the Deployment is there after the release was uninstalled: %v", err)
	}
	s.expectDefinitions(t, snap)
	s.mustHelm(t, next, "install", chartDir)
}

// expect fails if the Deployment has another number of replicas, or the CustomResourceDefinitions are not those with the short name.
func (s *server) expect(t *testing.T, replicas int32, short string) {
	t.Helper()
	deployment := &appsv1.Deployment{}
	if err := s.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "druid"}, deployment); err != nil {
		t.Fatal(err)
	}
	if got := *deployment.Spec.Replicas; got != replicas {
		t.Errorf("the Deployment has %d replicas, want %d", got, replicas)
	}
	s.expectDefinitions(t, short)
}

// expectDefinitions fails if a CustomResourceDefinition is gone or being deleted, or EtcdSnapshots have another short name. The API
// server deletes EtcdClusters some time after it began to delete what defines them.
func (s *server) expectDefinitions(t *testing.T, short string) {
	t.Helper()
	for _, plural := range []string{"etcdclusters", "etcdsnapshots"} {
		definition := &unstructured.Unstructured{}
		definition.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
		if err := s.Get(t.Context(), client.ObjectKey{Name: plural + ".etcd.druid.dev"}, definition); err != nil {
			t.Fatal(err)
		}
		if definition.GetDeletionTimestamp() != nil {
			t.Errorf("the definition of %s is being deleted", plural)
		}
		names, _, err := unstructured.NestedStringSlice(definition.Object, "spec", "names", "shortNames")
		if err != nil {
			t.Fatal(err)
		}
		if plural == "etcdsnapshots" && !slices.Equal(names, []string{short}) {
			t.Errorf("the short names of %s are %q, want %s", plural, names, short)
		}
	}
}

// aggregates checks the labels against the rules by which Kubernetes collects what its own roles permit. No controller that
// collects runs here.
func (s *server) aggregates(t *testing.T, h helm) {
	t.Helper()
	s.mustHelm(t, h, "upgrade", chartDir, "--set", "rbac.aggregate=true")
	for role, collected := range map[string]string{"view": "druid-view", "edit": "druid-edit"} {
		into, from := &rbacv1.ClusterRole{}, &rbacv1.ClusterRole{}
		if err := s.Get(t.Context(), client.ObjectKey{Name: role}, into); err != nil {
			t.Fatal(err)
		}
		if err := s.Get(t.Context(), client.ObjectKey{Name: collected}, from); err != nil {
			t.Fatal(err)
		}
		if err := matches(into, from); err != nil {
			t.Error(err)
		}
	}
	s.viewerReads(t)
}

// viewerReads checks what a user may do whom one namespace gives only what is added to view: read what the pages read, and no more.
func (s *server) viewerReads(t *testing.T) {
	t.Helper()
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "viewer"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "druid-view"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "viewer"}},
	}
	if err := s.Create(t.Context(), binding); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		namespace, group, resource string
		verbs                      []string
		allowed                    bool
	}{
		{metav1.NamespaceDefault, "coordination.k8s.io", "leases", []string{"get", "list", "watch"}, true},
		{metav1.NamespaceDefault, "etcd.druid.dev", "etcdclusters", []string{"get", "list", "watch"}, true},
		{metav1.NamespaceDefault, "coordination.k8s.io", "leases", []string{"create", "update", "patch", "delete"}, false},
		{metav1.NamespaceDefault, "etcd.druid.dev", "etcdclusters", []string{"create", "update", "patch", "delete"}, false},
		{metav1.NamespaceDefault, "", "secrets", []string{"get", "list", "watch"}, false},
		{metav1.NamespaceSystem, "coordination.k8s.io", "leases", []string{"get", "list", "watch"}, false},
	} {
		for _, verb := range c.verbs {
			review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
				User: "viewer", ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: c.namespace, Verb: verb, Group: c.group, Resource: c.resource},
			}}
			allowed := func(ctx context.Context) (bool, error) {
				got := review.DeepCopy()
				err := s.Create(ctx, got)
				return got.Status.Allowed == c.allowed, err
			}
			if err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, 10*time.Second, true, allowed); err != nil {
				t.Errorf("%s %s in %s: want allowed %t: %v", verb, c.resource, c.namespace, c.allowed, err)
			}
		}
	}
}

func matches(into, from *rbacv1.ClusterRole) error {
	for _, s := range into.AggregationRule.ClusterRoleSelectors {
		selector, err := metav1.LabelSelectorAsSelector(&s)
		if err != nil {
			return err
		}
		if selector.Matches(labels.Set(from.Labels)) {
			return nil
		}
	}
	return fmt.Errorf("ClusterRole %s does not collect %s", into.Name, from.Name)
}
