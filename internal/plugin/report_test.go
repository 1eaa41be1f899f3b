package plugin

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/view"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/test/env"
	"github.com/etcd-druid/druid/test/machine"
)

// planted are secrets, each in another place. No report may have one.
var planted = []string{
	"in-an-annotation", "in-the-environment", "in-a-flag", "behind-a-flag", "in-a-sidecar", "in-the-store", "in-a-url", "in-an-event", "in-a-condition",
	"in-a-log", "in-an-old-log", "in-a-secret", "in-a-lease", "MHcCAQEEIkeyinalog",
	"of-a-neighbour",
}

// plant puts the secrets into a situation.
func plant(o *view.Objects) {
	o.Cluster.Annotations = map[string]string{corev1.LastAppliedConfigAnnotation: `{"spec":{"note":"in-an-annotation"}}`,
		v1alpha1.HandsOffAnnotation: "ask Kim, password=in-an-annotation"}
	o.Cluster.Spec.Backup.Store.S3.Endpoint = "https://minio.example.com"
	for i := range o.Cluster.Status.Conditions {
		o.Cluster.Status.Conditions[i].Message += " The endpoint is https://kim:in-a-condition@minio.example.com."
	}
	pod := &o.Pods[0]
	pod.Annotations = map[string]string{"example.com/token": "in-an-annotation"}
	pod.Spec.Containers[0].Args = []string{"--root-password", "behind-a-flag", "--proxy-token=in-a-flag",
		"--endpoint=https://kim:in-a-url@minio.example.com", "--level=info"}
	pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "HTTPS_PROXY", Value: "in-the-environment"},
		{Name: "NODE", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "spec.nodeName"}}}}
	pod.Spec.Containers = append(pod.Spec.Containers,
		corev1.Container{Name: "proxy", Image: "registry.example.com/proxy:v1", Command: []string{"sh", "-c", "proxy -p in-a-sidecar"}})
	o.Leases[0].Annotations[leases.Prefix+"refused"] = `https://kim:in-a-lease@minio.example.com refused it`
}

// plantMore creates a ConfigMap, an Event and a Secret.
func (s *stage) plantMore() {
	s.Helper()
	labels := map[string]string{leases.LabelCluster: "demo"}
	_, err := s.typed.CoreV1().ConfigMaps(s.namespace).Create(s.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "demo-agent", Labels: labels},
		Data: map[string]string{"config.yaml": "logLevel: info\nbackup:\n  prefix: default/demo\n  store:\n    s3:\n      bucket: backups\n      " +
			"secretAccessKey: in-the-store\n" +
			"      endpoint: https://kim:in-the-store@minio.example.com\n"},
	}, metav1.CreateOptions{})
	if err != nil {
		s.Fatal(err)
	}
	_, err = s.typed.CoreV1().Events(s.namespace).Create(s.Context(), &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: "demo.1"}, InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: "demo-bqdq7", Namespace: s.namespace},
		Reason:  "Failed",
		Message: `Error: flag --api-key in-an-event is wrong`,
	}, metav1.CreateOptions{})
	if err != nil {
		s.Fatal(err)
	}
	_, err = s.typed.CoreV1().Events(s.namespace).Create(s.Context(), &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: "demo-shop.1"},
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: "demo-shop-abcde", Namespace: s.namespace}, Reason: "Failed",
		Message: "of-a-neighbour",
	}, metav1.CreateOptions{})
	if err != nil {
		s.Fatal(err)
	}
	_, err = s.typed.CoreV1().Secrets(s.namespace).Create(s.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "demo-connection", Labels: labels}, StringData: map[string]string{"tls.key": "in-a-secret"},
	}, metav1.CreateOptions{})
	if err != nil {
		s.Fatal(err)
	}
}

// reporting are the rights that a complete report about EtcdClusters needs. Secrets are not among them.
var reporting = append(slices.Clone(viewing),
	rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"persistentvolumeclaims", "services", "configmaps"}, Verbs: []string{"list"}},
	rbacv1.PolicyRule{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"list"}},
	rbacv1.PolicyRule{APIGroups: []string{"policy"}, Resources: []string{"poddisruptionbudgets"}, Verbs: []string{"list"}},
)

// unpack reads a report.
func unpack(t *testing.T, path string) map[string]string {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	compressed, err := gzip.NewReader(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	files, archive := map[string]string{}, tar.NewReader(compressed)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		_, name, _ := strings.Cut(header.Name, "/")
		files[name] = string(content)
	}
}

func TestAReportHasNoSecret(t *testing.T) {
	s := newStage(t, env.APIServer(t))
	n, name := newNode(s)
	o := onNode(situation(t, "serving"), name)
	plant(&o)
	s.put(o)
	s.plantMore()
	n.logs["demo-bqdq7/agent"] = `2026-11-24T02:59:01Z {"level":"ERROR","msg":"backup failed","err":"PUT ` +
		`https://kim:in-a-log@minio.example.com/b?X-Amz-Signature=in-a-log: denied","secretAccessKey":"in-a-log"}` + "\n"
	n.logs["demo-bqdq7/etcd"] = "2026-11-24T02:59:02Z -----BEGIN EC PRIVATE KEY-----\nMHcCAQEEIkeyinalog\n-----END EC PRIVATE " +
		"KEY-----\n2026-11-24T02:59:03Z ready to serve client requests\n"
	n.logs["demo-bqdq7/proxy"] = "in-a-sidecar\n"
	s.grant("reporter", reporting...)
	file := filepath.Join(t.TempDir(), "report.tar.gz")
	var out string
	s.eventually(func() bool {
		var code int
		out, _, code = s.run("report", "demo", "--output", file, "--as", "reporter")
		if code == 0 && strings.Contains(out, "in namespace "+s.namespace+": ") && os.Remove(file) == nil {
			return false // a right has not arrived
		}
		return code == 0
	})
	contains(t, out, "The report about 1 EtcdCluster of namespace "+s.namespace+" is in "+file, "No Secret was read", "tar -xzf")
	if strings.Contains(out, "secrets") {
		t.Errorf("it tried to read Secrets: %s", out)
	}
	files := unpack(t, file)
	for name, content := range files {
		for _, secret := range planted {
			if strings.Contains(content, secret) {
				t.Errorf("%s has %q:\n%s", name, secret, content)
			}
		}
	}
	in := s.namespace + "/"
	for name, words := range map[string][]string{
		in + "etcdclusters.yaml": {"# 1 object", "bucket: backups", "etcd.druid.dev/hands-off: ask Kim, password=[removed]", "type: Ready"},
		in + "pods.yaml": {"# 3 objects", "name: HTTPS_PROXY", "fieldPath: spec.nodeName", "- --level=info",
			"- --proxy-token=[removed]", "https://[removed]@minio", "registry.example.com/proxy:v1"},
		in + "configmaps.yaml":             {"bucket: backups", "secretAccessKey: '[removed]'"},
		in + "leases.yaml":                 {"demo-lgmkl", "etcd.druid.dev/revision"},
		in + "events.yaml":                 {"reason: Failed", "--api-key [removed]"},
		in + "services.yaml":               {"# 0 objects"},
		in + "persistentvolumeclaims.yaml": {"# 0 objects"},
		in + "poddisruptionbudgets.yaml":   {"# 0 objects"},
		in + "etcdsnapshots.yaml":          {"# 0 objects"},
		in + "demo/status.txt":             {"Serving", "demo-bqdq7"},
		in + "demo/why.txt":                {"Rule "},
		in + "logs/demo-bqdq7/agent.log":   {"backup failed", `"secretAccessKey":"[removed]"`},
		in + "logs/demo-bqdq7/etcd.log":    {"ready to serve client requests"},
		"versions.txt":                     {"kubernetes   v", "api          etcd.druid.dev/v1alpha1", "registry.example.com/druid:v0.6.0"},
		"README.txt":                       {"No Secret was read", "log of etcd in Pod " + in + "demo-lgmkl"},
	} {
		contains(t, files[name], words...)
	}
	if _, there := files[in+"logs/demo-bqdq7/proxy.log"]; there {
		t.Error("it has the log of a container that is not druid's")
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

func TestATerminalShowsHowFarAReportIs(t *testing.T) {
	s := newStage(t, env.APIServer(t))
	s.put(situation(t, "serving"))
	terminal, shown := machine.OpenTerminal(t)
	out, code := s.runOn(terminal, "report", "demo", "--output", filepath.Join(t.TempDir(), "report.tar.gz"))
	text := shown()
	if code != 0 || !strings.HasPrefix(text, "\r\x1b[K\x1b[?7lWriting the report: 1 file\x1b[?7h") || !strings.HasSuffix(text, "\r\x1b[K") {
		t.Errorf("exit code %d, the terminal shows %q", code, text)
	}
	if !strings.HasPrefix(out, "The report about 1 EtcdCluster") {
		t.Errorf("it prints %q", out)
	}
}

func TestAReportOverwritesNothing(t *testing.T) {
	s := newStage(t, env.APIServer(t))
	s.put(situation(t, "serving"))
	file := filepath.Join(t.TempDir(), "report.tar.gz")
	if err := os.WriteFile(file, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		"overwrites no file":              {"report", "demo", "--output", file},
		`"other" not found`:               {"report", "other", "--output", file + "2"},
		"--tail is 0, want":               {"report", "demo", "--output", file + "2", "--tail", "0"},
		"got 2 arguments":                 {"report", "demo", "other"},
		"create the report: open /absent": {"report", "demo", "--output", "/absent/report.tar.gz"},
	} {
		if _, errs, code := s.run(args...); code != 1 || !strings.Contains(errs, want) {
			t.Errorf("%v: exit code %d, %s", args, code, errs)
		}
	}
	if content, err := os.ReadFile(file); err != nil || string(content) != "mine" {
		t.Errorf("it holds %q, %v", content, err)
	}
	if _, err := os.Stat(file + "2"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a report that failed left its file: %v", err)
	}
}

// Without a name it is about all EtcdClusters of the namespace, and about druid wherever it runs.
func TestAReportOfANamespaceHasDruid(t *testing.T) {
	s := newStage(t, env.APIServer(t))
	n, name := newNode(s)
	s.put(situation(t, "serving"))
	other := situation(t, "paused")
	other.Cluster.Name, other.Cluster.Namespace = "other", s.namespace
	s.setCluster(&other.Cluster)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "druid-1", Labels: map[string]string{"app.kubernetes.io/name": "druid"}},
		Spec: corev1.PodSpec{NodeName: name,
			Containers: []corev1.Container{{Name: "druid", Image: "registry.example.com/druid:v0.7.0", Env: []corev1.EnvVar{{Name: "A", Value: "in-the-environment"}}}}},
	}
	pod, err := s.typed.CoreV1().Pods(s.namespace).Create(t.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "druid", RestartCount: 2, Image: "i", ImageID: "i"}}
	if _, err := s.typed.CoreV1().Pods(s.namespace).UpdateStatus(t.Context(), pod, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	n.logs["druid-1/druid"] = "2026-11-24T02:59:01Z reconciled token=in-an-old-log\n"
	t.Chdir(t.TempDir())
	out, errs, code := s.run("report")
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, errs)
	}
	file := "druid-report-" + s.namespace + "-20261124T030000Z.tar.gz"
	contains(t, out, "2 EtcdClusters", file)
	files := unpack(t, file)
	in := s.namespace + "/"
	contains(t, files[in+"logs/druid-1/druid.log"], "reconciled token=[removed]")
	contains(t, files[in+"logs/druid-1/druid.previous.log"], "reconciled token=[removed]")
	contains(t, files[in+"druid-pods.yaml"], "druid-1", "restartCount: 2")
	contains(t, files[in+"other/status.txt"], "Paused")
	contains(t, files[in+"etcdclusters.yaml"], "# 2 objects")
	contains(t, files["versions.txt"], "registry.example.com/druid:v0.7.0", "definition   etcdclusters.etcd.druid.dev")
	if _, errs, code := s.run("report"); code != 1 || !strings.Contains(errs, "overwrites no file") {
		t.Errorf("a second one at the same time: exit code %d, %s", code, errs)
	}
	for name, content := range files {
		for _, secret := range planted {
			if strings.Contains(content, secret) {
				t.Errorf("%s has %q", name, secret)
			}
		}
	}
}

func TestEventsAreAboutTheObjectsOfAReport(t *testing.T) {
	about := subjects{{"EtcdCluster", "demo"}: true}
	about.add([]unstructured.Unstructured{{Object: map[string]any{"kind": "Deployment", "metadata": map[string]any{"name": "druid"}}}})
	for want, of := range map[string]bool{
		"EtcdCluster/demo": true, "Deployment/druid": true, "ReplicaSet/druid-5d4f": true,
		"Pod/demo": false, "Pod/demo-bqdq7": false, "Deployment/druid-ui": false, "ReplicaSet/druid-ui-5d4f": false, "ReplicaSet/druid": false,
	} {
		kind, name, _ := strings.Cut(want, "/")
		event := unstructured.Unstructured{Object: map[string]any{"involvedObject": map[string]any{"kind": kind, "name": name}}}
		if got := about.of(event); got != of {
			t.Errorf("an Event about %s: %t", want, got)
		}
	}
}

func TestTheEndOfALogStays(t *testing.T) {
	log := &lastBytes{max: 20}
	for range 10 {
		if _, err := io.WriteString(log, "0123456\n"); err != nil {
			t.Fatal(err)
		}
	}
	if got := log.String(); got != "0123456\n0123456\n" {
		t.Errorf("it keeps %q", got)
	}
	whole := &lastBytes{max: 20}
	_, _ = io.WriteString(whole, "first\nlast\n")
	if got := whole.String(); got != "first\nlast\n" {
		t.Errorf("it keeps %q", got)
	}
}
