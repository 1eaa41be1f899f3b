package connect

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/test/env"
	"github.com/etcd-druid/druid/test/pages"
	"github.com/etcd-druid/druid/test/rig/binaries"
)

// commandWithin is for a command of a page. Each needs a second on an idle machine.
const commandWithin = 2 * time.Minute

// reader is a shell whose kubectl talks to a namespace of a real API server.
type reader struct {
	*pages.Session
	dir, namespace string
	config         *rest.Config
}

func newReader(t *testing.T) reader {
	t.Helper()
	r := reader{dir: t.TempDir(), config: env.APIServer(t)}
	r.namespace = env.Namespace(t, r.config)
	programs, err := binaries.Programs(t.Context(), t.Logf, "kubectl")
	if err != nil {
		t.Fatal(err)
	}
	file := clientcmdapi.NewConfig()
	file.Clusters["test"] = &clientcmdapi.Cluster{Server: r.config.Host, CertificateAuthorityData: r.config.CAData}
	file.AuthInfos["test"] = &clientcmdapi.AuthInfo{ClientCertificateData: r.config.CertData, ClientKeyData: r.config.KeyData}
	file.Contexts["test"] = &clientcmdapi.Context{Cluster: "test", AuthInfo: "test", Namespace: r.namespace}
	file.CurrentContext = "test"
	kubeconfig := filepath.Join(r.dir, "kubeconfig")
	if err := errors.Join(
		os.CopyFS(filepath.Join(r.dir, "docs/samples"), os.DirFS(filepath.Join(docs, "samples"))),
		os.Symlink(programs["kubectl"], filepath.Join(r.dir, "kubectl")),
		clientcmd.WriteToFile(*file, kubeconfig),
	); err != nil {
		t.Fatal(err)
	}
	r.Session, err = pages.NewSession(t.Context(), r.dir, append(os.Environ(), "KUBECONFIG="+kubeconfig, "PATH="+r.dir+":"+os.Getenv("PATH")))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

// act plays druid: it writes the Secret of the client, and the condition for which the page waits.
func (r reader) act(t *testing.T, d demo) {
	t.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: secretName}, Type: corev1.SecretTypeTLS, Data: d.data}
	if _, err := kubernetes.NewForConfigOrDie(r.config).CoreV1().Secrets(r.namespace).Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	clusters := dynamic.NewForConfigOrDie(r.config).Resource(v1alpha1.GroupVersion.WithResource("etcdclusters")).Namespace(r.namespace)
	made, err := clusters.Get(t.Context(), "demo", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	made.Object["status"] = map[string]any{"conditions": []any{map[string]any{
		"type": v1alpha1.ConditionAllMembersReady, "status": "True", "reason": v1alpha1.ReasonAllReady, "message": "",
		"lastTransitionTime": time.Now().UTC().Format(time.RFC3339),
	}}}
	if _, err := clusters.UpdateStatus(t.Context(), made, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// save writes a file that the page has the reader write.
func (r reader) save(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(r.dir, name), []byte(text+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}

// The test does what the page says, with three differences: it plays druid, it builds the program in Go with the client of this
// repository, and the address of etcd is that of a process and not of a forwarded port.
func TestTutorialOfAnAppIsTrue(t *testing.T) {
	const page = "tutorials/connect-an-app.md"
	if _, err := exec.LookPath("python3"); err != nil {
		t.Fatal("there is no python3, and the tutorial has a program in Python: run make setup as root, or install Python 3.8 or later")
	}
	d, r := serve(t), newReader(t)
	if err := os.Mkdir(filepath.Join(r.dir, "app"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(compiled(t, page), filepath.Join(r.dir, "app/app")); err != nil {
		t.Fatal(err)
	}
	r.save(t, "app.py", blockWith(t, page, pages.Python, "urllib"))
	before := map[string]func(){
		"kubectl wait etcdcluster/demo --for=condition=AllMembersReady --timeout=5m": func() { r.act(t, d) },
		"app/app secret":        func() { r.save(t, "secret/endpoints", d.etcd.Endpoint) },
		"python3 app.py secret": func() { d.holds(t, "/app/greeting", "hello from Go") },
		"kubectl delete etcdcluster demo": func() {
			d.holds(t, "/app/greeting", "hello from Python")
			r.save(t, "pod.yaml", blockWith(t, page, pages.YAML, "kind: Pod"))
			if out, err := r.Run("kubectl create --dry-run=server --validate=strict -f pod.yaml", commandWithin); err != nil {
				t.Errorf("the Pod of the page: %v\n%s", err, strings.Join(out, "\n"))
			}
		},
	}
	all, err := pages.Read(filepath.Join(docs, page))
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range all {
		for _, step := range b.Steps {
			if b.NotRun != "" {
				t.Logf("%s:%d: not run: %s", page, step.Line, b.NotRun)
				continue
			}
			if prepare, ok := before[step.Command]; ok {
				delete(before, step.Command)
				prepare()
			}
			printed, err := r.Run(step.Command, commandWithin)
			if err == nil && step.Checked {
				err = pages.Compare(step.Shown, printed)
			}
			if err != nil {
				t.Fatalf("%s:%d: %v", page, step.Line, err)
			}
		}
	}
	for command := range before {
		t.Errorf("%s does not have the command %s", page, command)
	}
}

// TestCiliumCommandCreatesSecret: the command for Cilium creates the Secret of its chart.
func TestCiliumCommandCreatesSecret(t *testing.T) {
	const page = "how-to/connect/cilium.md"
	d, r := serve(t), newReader(t)
	for _, name := range []string{"ca.crt", "tls.crt", "tls.key"} {
		r.save(t, name, string(d.data[name]))
	}
	command := strings.Replace(blockWith(t, page, pages.Shell, "create secret"), "--namespace kube-system", "--namespace "+r.namespace, 1)
	if _, err := r.Run(command, commandWithin); err != nil {
		t.Fatal(err)
	}
	made, err := kubernetes.NewForConfigOrDie(r.config).CoreV1().Secrets(r.namespace).Get(t.Context(), "cilium-etcd-secrets", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	config := parsed(t, blockWith(t, page, pages.YAML, "trusted-ca-file"))
	for _, key := range []string{"trusted-ca-file", "cert-file", "key-file"} {
		name, ok := strings.CutPrefix(at(config, key).(string), "/var/lib/etcd-secrets/")
		if !ok || len(made.Data[name]) == 0 {
			t.Errorf("%s is %v, and the Secret does not have it", key, at(config, key))
		}
	}
}
