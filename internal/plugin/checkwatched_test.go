package plugin

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/test/env"
	"github.com/etcd-druid/druid/test/situations"
)

// limited is druid's Deployment with arguments, and with the variable DRUID_NAMESPACES from a ConfigMap.
func limited(namespace string, args ...string) appsv1.Deployment {
	return deployment(func(d *appsv1.Deployment) {
		d.Namespace = namespace
		c := &d.Spec.Template.Spec.Containers[0]
		c.Args = args
		c.Env = []corev1.EnvVar{
			{Name: "DRUID_NAMESPACES", ValueFrom: &corev1.EnvVarSource{
				ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "list"}, Key: "namespaces"}}},
			{Name: "PLAIN", Value: "team-b"},
			{Name: "OLM", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.annotations['olm.targetNamespaces']"}}},
			{Name: "FIELD", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "spec.nodeName"}}},
		}
	})
}

func TestDruidMustWatchTheNamespace(t *testing.T) {
	s := newStage(t, env.APIServer(t))
	list := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "list"}, Data: map[string]string{"namespaces": "team-a,team-c"}}
	if _, err := s.typed.CoreV1().ConfigMaps(s.namespace).Create(t.Context(), list, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	watched := func(namespace string, args ...string) finding {
		i := &installation{kube: &kube{typed: s.typed, namespace: namespace}, deployments: []appsv1.Deployment{limited(s.namespace, args...)}}
		return i.checkWatched(t.Context())
	}
	is(t, watched("team-a", "--level=info"), checkOK, "all namespaces")
	is(t, watched("team-a", "--namespaces="), checkOK, "all namespaces")
	is(t, watched("team-a", "--namespaces=team-b,team-a"), checkOK, "namespace team-a")
	is(t, watched("team-a", "--namespaces", "team-a"), checkOK, "namespace team-a")
	is(t, watched("team-a", "--namespaces=team-b", "--namespaces=team-a"), checkOK, "namespace team-a")
	is(t, watched("team-a", "--namespaces=team-ab"), checkFail, "only team-ab, and not namespace team-a", "--namespaces")
	is(t, watched("team-c", "--namespaces=$(DRUID_NAMESPACES)"), checkOK, "namespace team-c")
	is(t, watched("team-b", "--namespaces=$(DRUID_NAMESPACES)"), checkFail, "only team-a, team-c")
	is(t, watched("team-b", "--namespaces=$(PLAIN)"), checkOK, "namespace team-b")
	is(t, watched("team-b", "--namespaces=$(FIELD)"), checkWarn, "FIELD")
	is(t, watched("team-b", "--namespaces=$(OLM)"), checkOK, "all namespaces")
	byOLM := limited(s.namespace, "--namespaces=$(OLM)")
	byOLM.Spec.Template.Annotations = map[string]string{"olm.targetNamespaces": "team-a,team-b"}
	is(t, (&installation{kube: &kube{typed: s.typed, namespace: "team-b"}, deployments: []appsv1.Deployment{byOLM}}).checkWatched(t.Context()),
		checkOK, "namespace team-b")
	is(t, (&installation{kube: &kube{typed: s.typed, namespace: "team-c"}, deployments: []appsv1.Deployment{byOLM}}).checkWatched(t.Context()),
		checkFail, "only team-a, team-b")
	is(t, (&installation{}).checkWatched(t.Context()), checkWarn, "not known")
	both := &installation{kube: &kube{typed: s.typed, namespace: "team-b"},
		deployments: []appsv1.Deployment{limited(s.namespace, "--namespaces=team-a"), limited(s.namespace, "--namespaces=team-b")}}
	is(t, both.checkWatched(t.Context()), checkOK)
}

func TestTheLeaseOfTheLeaderCanBeElsewhere(t *testing.T) {
	s := newStage(t, env.APIServer(t))
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "druid"}, Spec: coordinationv1.LeaseSpec{
		HolderIdentity: new("druid-1"), LeaseDurationSeconds: new(int32(15)), RenewTime: &metav1.MicroTime{Time: situations.Now.Add(-2 * time.Second)},
	}}
	if _, err := s.typed.CoordinationV1().Leases(s.namespace).Create(t.Context(), lease, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	i := &installation{kube: &kube{typed: s.typed}, now: situations.Now, deployments: []appsv1.Deployment{limited("elsewhere", "--leader-namespace="+s.namespace)}}
	is(t, i.checkLeader(t.Context()), checkOK, "druid-1 leads")
	i.deployments[0] = limited("elsewhere")
	is(t, i.checkLeader(t.Context()), checkFail, "no replica")
}

// refusing is a Kubernetes that answers a path with a status, and everything else with an empty list.
func refusing(t *testing.T, status int, paths ...string) *kube {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		for _, path := range paths {
			if strings.HasPrefix(r.URL.Path, path) {
				w.WriteHeader(status)
				return
			}
		}
		_, _ = w.Write([]byte(`{"kind":"DeploymentList","apiVersion":"apps/v1","items":[]}`))
	}))
	t.Cleanup(server.Close)
	typed, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	return &kube{typed: typed, namespace: "default"}
}

func TestWhatCannotBeReadIsNoFailure(t *testing.T) {
	is(t, refusing(t, http.StatusNotFound, "/api").checkAPIs(t.Context()), checkFail, "does not serve")
	is(t, refusing(t, http.StatusServiceUnavailable, "/api").checkAPIs(t.Context()), checkWarn, "could not be read")
	some := &installation{kube: refusing(t, http.StatusForbidden, "/apis/apps/v1/deployments", "/api/v1/pods")}
	some.read(t.Context())
	is(t, some.checkDeployment(t.Context()), checkWarn, "in namespace druid-system", "administrator")
	all := &installation{kube: refusing(t, http.StatusForbidden)}
	all.read(t.Context())
	is(t, all.checkDeployment(t.Context()), checkFail, "no Deployment")
}

// A process that waits for a snapshot reads it.
func TestTheCheckKnowsWhatASnapshotNeeds(t *testing.T) {
	s := newStage(t, env.APIServer(t))
	group := v1alpha1.GroupVersion.Group
	s.grant("requester", rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{"etcdclusters"}, Verbs: []string{"get", "list"}},
		rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{"etcdsnapshots"}, Verbs: []string{"create"}})
	var found finding
	s.eventually(func() bool {
		all, _ := s.findingsOf("check", "--as", "requester")
		found = all["Your permissions"]
		return !strings.Contains(found.Reason, "(for snapshot),") && !strings.Contains(found.Reason, "get etcdclusters")
	})
	is(t, found, checkWarn, "get etcdsnapshots (for snapshot --wait)")
}

// A cluster from before the label keeps its Pods, so the user must find it before a Pod is replaced.
func TestTheCheckFindsHostPathsWithoutLabel(t *testing.T) {
	s := newStage(t, env.APIServer(t))
	s.put(onNode(situation(t, "serving"), ""))
	directories := func(args ...string) finding {
		all, _ := s.findingsOf(append([]string{"check"}, args...)...)
		return all["Directories of nodes"]
	}
	is(t, directories(), checkOK, "no EtcdCluster")
	spec := func(path, value string) {
		t.Helper()
		patch := []byte(`[{"op":"add","path":"` + path + `","value":` + value + `}]`)
		clusters := s.dynamic.Resource(clusterResource).Namespace(s.namespace)
		if _, err := clusters.Patch(t.Context(), "demo", types.JSONPatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	spec("/spec/backup", `{"store":{"directory":{"hostPath":"/srv/backups"}}}`)
	is(t, directories(), checkWarn, "demo", "label ns "+s.namespace+" etcd.druid.dev/allow-host-path=true")
	label := func(value string) {
		t.Helper()
		patch := []byte(`{"metadata":{"labels":{"etcd.druid.dev/allow-host-path":"` + value + `"}}}`)
		if _, err := s.typed.CoreV1().Namespaces().Patch(t.Context(), s.namespace, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	label("false")
	is(t, directories(), checkWarn, "without its label")
	label("true")
	is(t, directories(), checkOK, "has the label", "demo")
	s.grant("owner", rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"etcdclusters"}, Verbs: []string{"get", "list"}})
	var found finding
	s.eventually(func() bool {
		found = directories("--as", "owner")
		return !strings.Contains(found.Reason, "EtcdClusters could not be read") && !strings.Contains(found.Reason, "may not read EtcdClusters")
	})
	is(t, found, checkWarn, "which you may not read", "demo", "administrator")
}

func TestOneDeploymentMustHaveAReadyReplica(t *testing.T) {
	down := deployment(func(d *appsv1.Deployment) { d.Status.ReadyReplicas = 0 })
	up := deployment(func(d *appsv1.Deployment) { d.Namespace = "other" })
	is(t, (&installation{kube: &kube{}}).deploymentFinding([]appsv1.Deployment{down, up}), checkWarn, "more than once")
	is(t, (&installation{kube: &kube{}}).deploymentFinding([]appsv1.Deployment{down, down}), checkFail, "no replica is ready")
}
