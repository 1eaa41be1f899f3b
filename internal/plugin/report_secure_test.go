package plugin

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/pki"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/test/env"
)

// secretsOf returns the Secrets that a cluster with TLS, users, backups in S3 and encryption has, by name.
func secretsOf(t *testing.T) map[string]map[string]string {
	t.Helper()
	all := map[string]map[string]string{
		"demo-users": {"app": "correct-horse-battery", "root": "staple-of-root"},
		"demo-s3":    {"accessKeyID": "AKIAIOSFODNN7EXAMPLE", "secretAccessKey": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"},
		"demo-keys":  {"current": "AGE-SECRET-KEY-1QQPZRY9X8GF2TVDW0S3JN54KHCE6MUA7LQQPZRY9X8GF2TVDW0"},
	}
	for _, name := range []string{"demo-client-ca-1", "demo-client-tls", "demo-peer-ca-1", "demo-peer-tls", "demo-connection"} {
		pair, err := pki.NewAuthority(name, time.Now(), time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		all[name] = map[string]string{"tls.key": string(pair.Key)}
	}
	return all
}

// spellings are the forms in which a value can be in an object or in a log: as it is, in JSON, and in base64. Of a private key it is each
// line of it.
func spellings(value string) []string {
	all := []string{base64.StdEncoding.EncodeToString([]byte(value))}
	for line := range strings.Lines(value) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "-----") {
			all = append(all, line)
		}
	}
	return all
}

// printed are lines that programs log with a value: of a request, of an object, and of an error.
func printed(key, value string) string {
	request, _ := json.Marshal(map[string]string{"msg": "request failed", "password": value})
	object, _ := json.Marshal(map[string]any{"msg": "patched", "kind": "Secret", "data": map[string]string{key: base64.StdEncoding.EncodeToString([]byte(value))}})
	return fmt.Sprintf("2026-11-24T02:59:01Z %s\n2026-11-24T02:59:02Z %s\n2026-11-24T02:59:03Z curl --password %q\n", request, object, value)
}

// A report of a cluster with everything that is secret reads no Secret, and has no value of one from elsewhere.
func TestAReportOfASecureClusterHasNoSecret(t *testing.T) {
	s := newStage(t, env.APIServer(t))
	n, name := newNode(s)
	o := onNode(situation(t, "serving"), name)
	spec := &o.Cluster.Spec
	spec.TLS = &v1alpha1.TLSSpec{Client: &v1alpha1.ClientTLS{Auto: &v1alpha1.AutoTLS{}}, Peer: &v1alpha1.PeerTLS{Auto: &v1alpha1.AutoTLS{}}}
	spec.Auth = &v1alpha1.AuthSpec{
		Enabled: true, PasswordsSecretRef: &v1alpha1.SecretRef{Name: "demo-users"},
		Users: []v1alpha1.AuthUser{{Name: "app", PasswordKey: "app"}},
	}
	spec.Backup.Store.S3.CredentialsSecretRef = &v1alpha1.SecretRef{Name: "demo-s3"}
	spec.Backup.Encryption = &v1alpha1.BackupEncryption{KeySecretRef: v1alpha1.SecretRef{Name: "demo-keys"}}
	s.put(o)
	secrets, log := secretsOf(t), ""
	for secret, data := range secrets {
		for key, value := range data {
			log += printed(key, value)
		}
		applied, err := json.Marshal(map[string]any{"kind": "Secret", "stringData": data})
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.typed.CoreV1().Secrets(s.namespace).Create(t.Context(), &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{
				Name: secret, Labels: map[string]string{leases.LabelCluster: "demo"}, Annotations: map[string]string{corev1.LastAppliedConfigAnnotation: string(applied)},
			},
			StringData: data,
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.typed.CoreV1().Events(s.namespace).Create(t.Context(), &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Name: "demo." + secret, Annotations: map[string]string{corev1.LastAppliedConfigAnnotation: string(applied)}},
			InvolvedObject: corev1.ObjectReference{Kind: "EtcdCluster", Name: "demo", Namespace: s.namespace}, Reason: "Failed",
			Message: string(applied)[:min(len(applied), 1000)],
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, container := range []string{"agent", "etcd"} {
		n.logs["demo-bqdq7/"+container] = log + "2026-11-24T02:59:04Z the last line\n"
	}
	file := filepath.Join(t.TempDir(), "report.tar.gz")
	out, errs, code := s.run("report", "demo", "--output", file)
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, errs)
	}
	files := unpack(t, file)
	in := s.namespace + "/"
	contains(t, files[in+"etcdclusters.yaml"], "demo-users", "demo-s3", "demo-keys")
	contains(t, files[in+"events.yaml"], "reason: Failed")
	contains(t, files[in+"logs/demo-bqdq7/agent.log"], "request failed", "patched", "the last line")
	files["what it printed"] = out + errs
	for data := range maps.Values(secrets) {
		for key, value := range data {
			for _, secret := range spellings(value) {
				for file, content := range files {
					if strings.Contains(content, secret) {
						t.Errorf("%s has the value of %s, %s", file, key, secret)
					}
				}
			}
		}
	}
}
