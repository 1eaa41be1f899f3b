package chart_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/test/env"
	"github.com/etcd-druid/druid/test/gitops"
	"github.com/etcd-druid/druid/test/pages"
	"github.com/etcd-druid/druid/test/rig/binaries"
)

const (
	repo = "../.."
	page = "docs/how-to/install/gitops.md"
	// commandWithin is enough for one kubectl on a busy machine.
	commandWithin = time.Minute
)

func TestMain(m *testing.M) { os.Exit(env.Main(m)) }

// pageServer is a namespace of a real API server without druid, whose part the test plays, and a shell with kubectl.
type pageServer struct {
	client.Client
	shell     *pages.Session
	namespace string
}

func newPageServer(t *testing.T) *pageServer {
	t.Helper()
	config := env.APIServer(t)
	namespace := env.Namespace(t, config)
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	built, err := binaries.Programs(t.Context(), t.Logf, "kubectl")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Symlink(built["kubectl"], filepath.Join(dir, "kubectl")); err != nil {
		t.Fatal(err)
	}
	shell, err := pages.NewSession(t.Context(), repo,
		[]string{"PATH=" + dir + ":" + os.Getenv("PATH"), "KUBECONFIG=" + kubeconfig(t, dir, namespace, config), "HOME=" + dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(shell.Close)
	return &pageServer{Client: c, shell: shell, namespace: namespace}
}

func kubeconfig(t *testing.T, dir, namespace string, config *rest.Config) string {
	t.Helper()
	path := filepath.Join(dir, "kubeconfig")
	err := clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"test": {Server: config.Host, CertificateAuthorityData: config.CAData}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"test": {ClientCertificateData: config.CertData, ClientKeyData: config.KeyData, Token: config.BearerToken}},
		Contexts:       map[string]*clientcmdapi.Context{"test": {Cluster: "test", AuthInfo: "test", Namespace: namespace}},
		CurrentContext: "test",
	}, path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// writes does what druid does: it accepts the present generation, and sets conditions, each as "Type=Status=Reason".
func (s *pageServer) writes(t *testing.T, ready string, conditions ...string) {
	t.Helper()
	cluster := &v1alpha1.EtcdCluster{}
	if err := s.Get(t.Context(), client.ObjectKey{Namespace: s.namespace, Name: "demo"}, cluster); err != nil {
		t.Fatal(err)
	}
	cluster.Status = v1alpha1.EtcdClusterStatus{
		ObservedGeneration: cluster.Generation, ReadyMembers: ready, ClusterID: "d5786d3f204ff405",
		Members: []v1alpha1.MemberStatus{
			{Name: "demo-qtd87", Role: "Leader", Status: v1alpha1.MemberReady, LastTransitionTime: metav1.Now()},
			{Name: "demo-svg4g", Role: "Member", Status: v1alpha1.MemberReady, Leaving: v1alpha1.DrainingClients, LastTransitionTime: metav1.Now()},
		},
	}
	for _, c := range conditions {
		parts := strings.Split(c, "=")
		cluster.Status.Conditions = append(cluster.Status.Conditions, metav1.Condition{
			Type: parts[0], Status: metav1.ConditionStatus(parts[1]), Reason: parts[2], Message: "The message.",
			ObservedGeneration: cluster.Generation, LastTransitionTime: metav1.Now(),
		})
	}
	if err := s.Status().Update(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
}

// kstatus of demo as the API server returns it.
func (s *pageServer) kstatus(t *testing.T, kind string) string {
	t.Helper()
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind))
	if err := s.Get(t.Context(), client.ObjectKey{Namespace: s.namespace, Name: "demo"}, u); err != nil {
		t.Fatal(err)
	}
	state, _ := gitops.Kstatus(t, u)
	return state
}

// commands are those of the page that are not marked as not run.
func commands(t *testing.T) (all []pages.Step) {
	t.Helper()
	blocks, err := pages.Read(filepath.Join(repo, page))
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range blocks {
		if b.NotRun == "" {
			all = append(all, b.Steps...)
		}
	}
	return all
}

// TestPageIsTrue runs the commands of the page. Each wait must reach its time limit before druid has done its part, and end after it.
func TestPageIsTrue(t *testing.T) {
	t.Parallel()
	s := newPageServer(t)
	argocd := metav1.ObjectMeta{Name: "argocd"}
	if err := s.Create(t.Context(), &corev1.Namespace{ObjectMeta: argocd}); err != nil {
		t.Fatal(err)
	}
	if err := s.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "argocd", Name: "argocd-cm"},
		Data: map[string]string{"url": "kept"}}); err != nil {
		t.Fatal(err)
	}
	const well = "AllMembersReady=True=AllReady"
	after := map[string]func(){ // what druid does about each wait, by a part of the command
		"condition=Ready": func() {
			s.writes(t, "1/3", "Ready=True=Quorate", "AllMembersReady=False=MembersNotReady", "Progressing=True=ScalingUp")
		},
		"condition=AllMem":   func() { s.writes(t, "3/3", "Ready=True=Quorate", well, "Progressing=False=Reconciled") },
		"observedGeneration": func() { s.writes(t, "3/5", "Ready=True=Quorate", well, "Progressing=True=SpecChanged") },
		"=Reconciled":        func() { s.writes(t, "5/5", "Ready=True=Quorate", well, "Progressing=False=Reconciled") },
	}
	for _, step := range commands(t) {
		for part, druid := range after {
			if strings.HasPrefix(step.Command, "kubectl wait ") && strings.Contains(step.Command, part) {
				delete(after, part)
				if printed, err := s.shell.Run(strings.Replace(step.Command, "--timeout=15m", "--timeout=1s", 1), commandWithin); err == nil {
					t.Errorf("%d: the wait ends before druid has done its part: %v", step.Line, printed)
				}
				druid()
			}
		}
		printed, err := s.shell.Run(step.Command, commandWithin)
		if err != nil {
			t.Fatalf("%s:%d: %v", page, step.Line, err)
		}
		if err := pages.Compare(step.Shown, printed); step.Checked && err != nil {
			t.Errorf("%s:%d: %v", page, step.Line, err)
		}
	}
	if len(after) > 0 {
		t.Errorf("the page does not wait for %v", after)
	}
	patched := &corev1.ConfigMap{}
	if err := s.Get(t.Context(), client.ObjectKey{Namespace: "argocd", Name: "argocd-cm"}, patched); err != nil || len(patched.Data) != 3 ||
		patched.Data["url"] != "kept" {
		t.Errorf("the patch leaves %v, %v", patched.Data, err)
	}
}

// TestAPIServerShowsState: what kstatus computes from objects of the API server, and the columns of kubectl get.
func TestAPIServerShowsState(t *testing.T) {
	t.Parallel()
	s := newPageServer(t)
	if _, err := s.shell.Run("kubectl apply -f docs/samples/demo.yaml", commandWithin); err != nil {
		t.Fatal(err)
	}
	if got := s.kstatus(t, "EtcdCluster"); got != "InProgress" {
		t.Errorf("a cluster that druid has not seen is %s", got)
	}
	s.writes(t, "2/3", "Ready=True=Quorate", "Progressing=True=RepairingMember", "Degraded=True=NodeLost", "Spread=True=MembersSpread",
		"BackupReady=True=FullBackupSucceeded", "BackupVerified=Unknown=NotYetVerified", "Reconciling=True=RepairingMember")
	if got := s.kstatus(t, "EtcdCluster"); got != "InProgress" {
		t.Errorf("a cluster that is repaired is %s", got)
	}
	for command, want := range map[string][]string{
		"kubectl get etcdcluster demo": {
			"NAME READY STATE VERSION LEADER BACKUP PROGRESS AGE",
			"demo 2/3 Quorate 3.6.16 demo-qtd87 FullBackupSucceeded RepairingMember 7s",
		},
		"kubectl get etcdcluster demo -o wide": {
			"NAME READY STATE VERSION LEADER BACKUP PROGRESS AGE LEAVING DEGRADED VERIFIED FULL BACKUP RESTORABLE SPREAD CERTIFICATES CLUSTER ID",
			"demo 2/3 Quorate 3.6.16 demo-qtd87 FullBackupSucceeded RepairingMember 7s demo-svg4g NodeLost NotYetVerified MembersSpread d5786d3f204ff405",
		},
	} {
		printed, err := s.shell.Run(command, commandWithin)
		if err != nil {
			t.Fatal(err)
		}
		if err := pages.Compare(want, printed); err != nil {
			t.Errorf("%s: %v", command, err)
		}
	}
	s.writes(t, "3/3", "Ready=True=Quorate", "Progressing=False=Reconciled")
	if got := s.kstatus(t, "EtcdCluster"); got != "Current" {
		t.Errorf("a healthy cluster is %s", got)
	}
	if _, err := s.shell.Run("kubectl scale etcdcluster demo --replicas=5", commandWithin); err != nil {
		t.Fatal(err)
	}
	if got := s.kstatus(t, "EtcdCluster"); got != "InProgress" {
		t.Errorf("a cluster with an edit that druid has not accepted is %s", got)
	}
	snapshot := &v1alpha1.EtcdSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "demo"}}
	snapshot.Spec.ClusterRef.Name = "demo"
	if err := s.Create(t.Context(), snapshot); err != nil {
		t.Fatal(err)
	}
	if got := s.kstatus(t, "EtcdSnapshot"); got != "InProgress" {
		t.Errorf("an EtcdSnapshot that druid has not seen is %s", got)
	}
	snapshot.Status = v1alpha1.EtcdSnapshotStatus{Phase: v1alpha1.SnapshotFailed, Conditions: []metav1.Condition{
		{Type: v1alpha1.ConditionStalled, Status: metav1.ConditionTrue, Reason: "Failed", LastTransitionTime: metav1.Now()},
	}}
	if err := s.Status().Update(t.Context(), snapshot); err != nil {
		t.Fatal(err)
	}
	if got := s.kstatus(t, "EtcdSnapshot"); got != "Failed" {
		t.Errorf("an EtcdSnapshot that failed is %s", got)
	}
}
