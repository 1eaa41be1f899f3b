package plugin

import (
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/test/env"
)

func TestConnectWritesTheCertificates(t *testing.T) {
	s := newStage(t, env.APIServer(t))
	s.put(situation(t, "tls"))
	dir := filepath.Join(t.TempDir(), "with a space")
	_, errs, code := s.run("connect", "demo", "--write", dir)
	if contains(t, errs, "get Secret "+s.namespace+"/demo-connection", "not found"); code != 1 {
		t.Errorf("exit code %d", code)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "demo-connection"},
		Data: map[string][]byte{"ca.crt": []byte("ca"), "tls.crt": []byte("crt"), "tls.key": []byte("key")}}
	if _, err := s.typed.CoreV1().Secrets(s.namespace).Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	variables := "export ETCDCTL_ENDPOINTS=https://localhost:2379\nexport ETCDCTL_CACERT='" + dir + "/ca.crt'\nexport ETCDCTL_CERT='" + dir +
		"/tls.crt'\nexport ETCDCTL_KEY='" + dir + "/tls.key'\n"
	for range 2 { // what is there already is no other file
		out, errs, code := s.run("connect", "demo", "--write", dir)
		if contains(t, out, "port-forward service/demo-client 2379", dir+"/tls.key", "  . '"+dir+"/etcdctl.env'"); code != 0 || errs != "" {
			t.Errorf("exit code %d, %s", code, errs)
		}
		for name, want := range map[string]string{"ca.crt": "ca", "tls.crt": "crt", "tls.key": "key", envFile: variables} {
			text, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil || string(text) != want {
				t.Errorf("%s has %q, %v", name, text, err)
			}
			if info, err := os.Stat(filepath.Join(dir, name)); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != fs.FileMode(0o600) {
				t.Errorf("%s has the mode %v, %v", name, info.Mode(), err)
			}
		}
		if err := os.Chmod(filepath.Join(dir, "tls.key"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	other := t.TempDir()
	if err := os.WriteFile(filepath.Join(other, "tls.key"), []byte("of another cluster"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, errs, code = s.run("connect", "demo", "--write", other)
	contains(t, errs, "tls.key exists with another content", "Nothing was written")
	if entries, err := os.ReadDir(other); code != 1 || err != nil || len(entries) != 1 {
		t.Errorf("exit code %d, %v, %v", code, entries, err)
	}
	if text, _ := os.ReadFile(filepath.Join(other, "tls.key")); !strings.HasPrefix(string(text), "of another") {
		t.Error("it was overwritten")
	}
}

func TestConnectWritesNoCertificatesOfUsers(t *testing.T) {
	s := newStage(t, env.APIServer(t))
	s.put(situation(t, "own-certificates"))
	_, errs, code := s.run("connect", "demo", "--write", t.TempDir())
	if contains(t, errs, "druid issues none for clients"); code != 1 {
		t.Errorf("exit code %d", code)
	}
}

func TestConnectWritesVariablesWithoutTLS(t *testing.T) {
	s := newStage(t, env.APIServer(t))
	s.put(situation(t, "serving"))
	dir := t.TempDir()
	if _, errs, code := s.run("connect", "demo", "--write", dir); code != 0 {
		t.Fatal(errs)
	}
	text, err := os.ReadFile(filepath.Join(dir, envFile))
	if err != nil || string(text) != "export ETCDCTL_ENDPOINTS=http://localhost:2379\n" {
		t.Errorf("it has %q, %v", text, err)
	}
}
