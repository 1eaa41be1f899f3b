package plugin

import (
	"bytes"
	"io"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/cli"
	"github.com/etcd-druid/druid/internal/view"
	"github.com/etcd-druid/druid/test/env"
	"github.com/etcd-druid/druid/test/situations"
)

// maxWait with an API server that needs milliseconds on an idle machine.
const maxWait = 2 * time.Minute

// stage is a namespace of a real API server in which a situation stands.
type stage struct {
	*testing.T
	config     *rest.Config
	dynamic    dynamic.Interface
	typed      kubernetes.Interface
	namespace  string
	kubeconfig string
}

func newStage(t *testing.T, config *rest.Config) *stage {
	t.Helper()
	s := &stage{T: t, config: config, namespace: env.Namespace(t, config), kubeconfig: filepath.Join(t.TempDir(), "kubeconfig")}
	var err error
	if s.dynamic, err = dynamic.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	if s.typed, err = kubernetes.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	file := clientcmdapi.NewConfig()
	file.Clusters["test"] = &clientcmdapi.Cluster{Server: config.Host, CertificateAuthorityData: config.CAData}
	file.AuthInfos["test"] = &clientcmdapi.AuthInfo{ClientCertificateData: config.CertData, ClientKeyData: config.KeyData}
	file.Contexts["test"] = &clientcmdapi.Context{Cluster: "test", AuthInfo: "test", Namespace: s.namespace}
	file.CurrentContext = "test"
	if err := clientcmd.WriteToFile(*file, s.kubeconfig); err != nil {
		t.Fatal(err)
	}
	return s
}

// run runs kubectl druid at the time of the situations.
func (s *stage) run(args ...string) (stdout, stderr string, code int) {
	s.Helper()
	var errs bytes.Buffer
	stdout, code = s.runOn(&errs, args...)
	return stdout, errs.String(), code
}

// runOn is run with another standard error.
func (s *stage) runOn(stderr io.Writer, args ...string) (stdout string, code int) {
	s.Helper()
	var out bytes.Buffer
	root := newCommand(func() time.Time { return situations.Now })
	if !slices.Contains(args, "--kubeconfig") && args[0] != "completion" {
		args = slices.Insert(slices.Clone(args), 1, "--kubeconfig", s.kubeconfig)
	}
	root.SetArgs(args)
	root.SetIn(strings.NewReader("from the terminal"))
	root.SetOut(&out)
	root.SetErr(stderr)
	code = cli.Main(s.Context(), root, slog.New(slog.DiscardHandler))
	return out.String(), code
}

// neutral is a text without the namespace and the kubeconfig of the test.
func (s *stage) neutral(text string) string {
	return strings.NewReplacer(s.namespace, "default", " --kubeconfig "+s.kubeconfig, "").Replace(text)
}

// put creates the objects of a situation under the name of the EtcdCluster.
func (s *stage) put(o view.Objects) {
	s.Helper()
	cluster := o.Cluster.DeepCopy()
	cluster.Namespace, cluster.UID = s.namespace, ""
	s.setCluster(cluster)
	for i := range o.Leases {
		o.Leases[i].Namespace = s.namespace
		if _, err := s.typed.CoordinationV1().Leases(s.namespace).Create(s.Context(), &o.Leases[i], metav1.CreateOptions{}); err != nil {
			s.Fatal(err)
		}
	}
	for i := range o.Pods {
		o.Pods[i].Namespace = s.namespace
		if _, err := s.typed.CoreV1().Pods(s.namespace).Create(s.Context(), &o.Pods[i], metav1.CreateOptions{}); err != nil {
			s.Fatal(err)
		}
	}
	for i := range o.Nodes {
		node, err := s.typed.CoreV1().Nodes().Create(s.Context(), &o.Nodes[i], metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) { // a test before this one had it in another state
			node, err = s.typed.CoreV1().Nodes().Get(s.Context(), o.Nodes[i].Name, metav1.GetOptions{})
		}
		if err != nil {
			s.Fatal(err)
		}
		node.Status = o.Nodes[i].Status
		if _, err := s.typed.CoreV1().Nodes().UpdateStatus(s.Context(), node, metav1.UpdateOptions{}); err != nil {
			s.Fatal(err)
		}
	}
}

// setCluster creates an EtcdCluster, with a status that says that druid accepted it.
func (s *stage) setCluster(cluster *v1alpha1.EtcdCluster) {
	s.Helper()
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(cluster)
	if err != nil {
		s.Fatal(err)
	}
	clusters := s.dynamic.Resource(clusterResource).Namespace(s.namespace)
	created, err := clusters.Create(s.Context(), &unstructured.Unstructured{Object: object}, metav1.CreateOptions{})
	if err != nil {
		s.Fatal(err)
	}
	cluster.Status.ObservedGeneration = created.GetGeneration()
	status, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&cluster.Status)
	if err != nil {
		s.Fatal(err)
	}
	created.Object["status"] = status
	if _, err := clusters.UpdateStatus(s.Context(), created, metav1.UpdateOptions{}); err != nil {
		s.Fatal(err)
	}
}

// situation returns the objects of a situation.
func situation(t *testing.T, name string) view.Objects {
	t.Helper()
	for _, s := range situations.All() {
		if s.Name == name {
			return s.Objects
		}
	}
	t.Fatalf("there is no situation %s", name)
	return view.Objects{}
}

// contains fails unless the text has each of the words.
func contains(t *testing.T, text string, words ...string) {
	t.Helper()
	for _, word := range words {
		if !strings.Contains(text, word) {
			t.Errorf("it does not say %q:\n%s", word, text)
		}
	}
}

func TestGetAndStatusOfARealAPIServer(t *testing.T) {
	s := newStage(t, env.APIServer(t))
	out, errs, code := s.run("get")
	if out != "" || code != 0 || errs != "No EtcdClusters found in namespace "+s.namespace+".\n" {
		t.Errorf("an empty namespace: %d %q %q", code, out, errs)
	}
	s.put(situation(t, "serving"))
	out, errs, code = s.run("get")
	if contains(t, out, "demo   ● Serving", "3/3", "demo-bqdq7", "6s ago"); code != 0 || errs != "" {
		t.Errorf("exit code %d, %q", code, errs)
	}
	out, errs, code = s.run("status", "demo")
	if contains(t, out, "Serving", "Leader       demo-bqdq7", "revision 48,211", "n3     z3", "Nothing to do."); code != 0 || errs != "" {
		t.Errorf("exit code %d, %q", code, errs)
	}
	out, _, _ = s.run("status", "demo", "-o", "yaml")
	contains(t, out, "state: Serving", "savedRevision: 48211")
	out, _, _ = s.run("get", "-A", "-o", "json")
	contains(t, out, `"namespace": "`+s.namespace+`"`, `"leader": "demo-bqdq7"`)

	worse := situation(t, "quorum-lost")
	worse.Cluster.Name, worse.Cluster.Namespace = "aworse", s.namespace
	s.setCluster(&worse.Cluster)
	out, _, code = s.run("get")
	if lines := strings.Split(out, "\n"); code != codeNotWell || len(lines) != 4 || !strings.HasPrefix(lines[1], "aworse   ✖ QuorumLost") {
		t.Errorf("exit code %d:\n%s", code, out)
	}
	if _, _, code := s.run("status", "aworse"); code != codeNotWell {
		t.Errorf("exit code %d", code)
	}
}

func TestWrongInputIsASentence(t *testing.T) {
	s := newStage(t, env.APIServer(t))
	for want, args := range map[string][]string{
		"kubectl druid: unknown command \"staus\" for \"kubectl druid\"\n\nDid you mean this?\n\tstatus": {"staus"},
		"kubectl druid status: got 0 arguments, want the name of one EtcdCluster":                        {"status"},
		"kubectl druid status: --output is \"xml\", want one of table, json, yaml":                       {"status", "demo", "-o", "xml"},
		"kubectl druid get: --output is \"jsonpath\", want one of table, wide, json, yaml":               {"get", "-o", "jsonpath"},
		"kubectl druid status: get EtcdCluster " + s.namespace + "/demo: etcdclusters.etcd.druid":        {"status", "demo"},
		"kubectl druid get: read the kubeconfig: context \"nowhere\" does not exist":                     {"get", "--context", "nowhere"},
	} {
		out, errs, code := s.run(args...)
		if out != "" || code != 1 || !strings.HasPrefix(errs, want) {
			t.Errorf("%v: %d %q %q, want %q", args, code, out, errs, want)
		}
	}
}

// grant gives a user rights in the namespace of the stage.
func (s *stage) grant(user string, rules ...rbacv1.PolicyRule) {
	s.Helper()
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: user}, Rules: rules}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: user},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}},
	}
	if _, err := s.typed.RbacV1().Roles(s.namespace).Create(s.Context(), role, metav1.CreateOptions{}); err != nil {
		s.Fatal(err)
	}
	if _, err := s.typed.RbacV1().RoleBindings(s.namespace).Create(s.Context(), binding, metav1.CreateOptions{}); err != nil {
		s.Fatal(err)
	}
}

// viewing are the rights of Kubernetes' ClusterRole view that concern the plugin, with those of druid-view. view has no
// Leases and no Nodes.
var viewing = []rbacv1.PolicyRule{
	{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"etcdclusters", "etcdsnapshots"}, Verbs: []string{"get", "list", "watch"}},
	{APIGroups: []string{""}, Resources: []string{"pods", "pods/log", "events"}, Verbs: []string{"get", "list", "watch"}},
}

// eventually runs until the authorizer, which reads from a cache, knows the rights that were just given.
func (s *stage) eventually(done func() bool) {
	s.Helper()
	for poll, late := time.Tick(20*time.Millisecond), time.After(maxWait); !done(); {
		select {
		case <-poll:
		case <-late:
			s.Fatal("it did not come in time")
		}
	}
}

func TestAUserWhoMayOnlyView(t *testing.T) {
	s := newStage(t, env.APIServer(t))
	s.put(situation(t, "serving"))
	s.grant("viewer", viewing...)
	var out, errs string
	var code int
	s.eventually(func() bool {
		out, errs, code = s.run("status", "demo", "--as", "viewer")
		return !strings.Contains(errs, "forbidden") && strings.Contains(out, "n1")
	})
	if contains(t, out, "Serving", "Leader       demo-bqdq7", "Leases could not be read", "Nodes could not be read", "n1     z1"); code != 0 {
		t.Errorf("exit code %d", code)
	}
	out, errs, _ = s.run("get", "--as", "viewer")
	contains(t, out, "● Serving", "unknown")
	contains(t, errs, "Leases could not be read")
	_, errs, code = s.run("get", "-A", "--as", "viewer")
	if contains(t, errs, "kubectl druid get: list EtcdClusters: ", "forbidden"); code != 1 {
		t.Errorf("exit code %d", code)
	}
}

// The plugin of Gardener's etcd-druid has the same name.
func TestAnotherDruidIsNamed(t *testing.T) {
	s := newStage(t, env.OwnAPIServer(t))
	definitions := s.dynamic.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	for _, name := range []string{"etcdclusters.etcd.druid.dev", "etcdsnapshots.etcd.druid.dev"} {
		if err := definitions.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	says := func(words ...string) {
		t.Helper()
		var errs string
		s.eventually(func() bool {
			var code int
			_, errs, code = s.run("get")
			return code == 1 && strings.Contains(errs, words[0])
		})
		contains(t, errs, words...)
	}
	says("druid's CustomResourceDefinitions are not installed", "Install druid")
	_, err := definitions.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{
			"name": "etcds.druid.gardener.cloud", "annotations": map[string]any{"api-approved.kubernetes.io": "unapproved, a test"},
		},
		"spec": map[string]any{
			"group": "druid.gardener.cloud", "scope": "Namespaced",
			"names": map[string]any{"kind": "Etcd", "plural": "etcds", "singular": "etcd", "listKind": "EtcdList"},
			"versions": []any{map[string]any{
				"name": "v1alpha1", "served": true, "storage": true, "schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object"}},
			}},
		},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	says("Gardener's etcd-druid", "the same name")
}
