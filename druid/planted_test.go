package druid

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/pki"
	"github.com/etcd-druid/druid/manifests"
)

// secretive is an EtcdCluster that names a Secret in each field that can, and has druid issue certificates.
func (s *stage) secretive() *v1alpha1.EtcdCluster {
	return s.createClusterWith("demo", func(c *v1alpha1.EtcdCluster) {
		c.Spec.TLS = &v1alpha1.TLSSpec{
			Client: &v1alpha1.ClientTLS{Auto: &v1alpha1.AutoTLS{}, Clients: []v1alpha1.TLSClient{{Name: "app", CommonName: "app"}}},
			Peer:   &v1alpha1.PeerTLS{Auto: &v1alpha1.AutoTLS{}},
		}
		c.Spec.Auth = &v1alpha1.AuthSpec{
			Enabled: true, PasswordsSecretRef: &v1alpha1.SecretRef{Name: "passwords"},
			Users: []v1alpha1.AuthUser{{Name: "app", PasswordKey: "app", Roles: []string{"root"}}},
		}
		c.Spec.Backup = &v1alpha1.BackupSpec{
			Store: v1alpha1.BackupStore{S3: &v1alpha1.S3Store{
				Bucket: "backups", Region: "us-east-1", Endpoint: "https://s3.example.com", CredentialsSecretRef: &v1alpha1.SecretRef{Name: "own-credentials"},
				CASecretRef: &v1alpha1.SecretKeyRef{Name: "store-ca", Key: "ca.crt"},
				SSE:         &v1alpha1.S3Encryption{Mode: v1alpha1.SSECustomerKey, KeySecretRef: &v1alpha1.SecretKeyRef{Name: "sse", Key: "key"}},
			}},
			Full: v1alpha1.FullBackup{Schedule: "@daily"}, Encryption: &v1alpha1.BackupEncryption{KeySecretRef: v1alpha1.SecretRef{Name: "keys"}},
		}
	})
}

// plants creates a Secret and returns its values.
func (s *stage) plants(name string, data map[string]string) (values []string) {
	s.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name}, StringData: data}
	if err := s.Create(s.Context(), secret); err != nil {
		s.Fatal(err)
	}
	for _, value := range data {
		values = append(values, value)
	}
	return values
}

// issuedKeys are the private keys in the Secrets that druid made.
func (s *stage) issuedKeys() (values []string) {
	s.Helper()
	var made corev1.SecretList
	if err := s.List(s.Context(), &made, client.InNamespace(s.namespace), client.MatchingLabels(manifests.Labels("demo"))); err != nil {
		s.Fatal(err)
	}
	for _, secret := range made.Items {
		for _, value := range secret.Data {
			if strings.Contains(string(value), "PRIVATE KEY") {
				values = append(values, string(value))
			}
		}
	}
	return values
}

// words is a log that several goroutines write.
type words struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (w *words) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.Write(p)
}

func (w *words) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

// forms are how a value can be written: as it is, as a line of it, and in base64 or as a list of bytes.
func forms(value string) []string {
	raw := []byte(value)
	all := []string{base64.StdEncoding.EncodeToString(raw), base64.URLEncoding.EncodeToString(raw), strings.Trim(fmt.Sprint(raw), "[]")}
	for line := range strings.Lines(value) {
		if line = strings.TrimSpace(line); !strings.HasPrefix(line, "-----") {
			all = append(all, line)
		}
	}
	return all
}

// writings are all objects in the namespace but the Secrets, as JSON, by kind. Of Secrets it is the metadata.
func (s *stage) writings() map[string]string {
	s.Helper()
	all := map[string]string{}
	for kind, list := range map[string]client.ObjectList{
		"Pods": &corev1.PodList{}, "claims": &corev1.PersistentVolumeClaimList{}, "ConfigMaps": &corev1.ConfigMapList{},
		"Services": &corev1.ServiceList{}, "ServiceAccounts": &corev1.ServiceAccountList{}, "Leases": &coordinationv1.LeaseList{},
		"Events": &corev1.EventList{}, "new Events": &eventsv1.EventList{}, "Roles": &rbacv1.RoleList{}, "RoleBindings": &rbacv1.RoleBindingList{},
		"budgets": &policyv1.PodDisruptionBudgetList{}, "NetworkPolicies": &networkingv1.NetworkPolicyList{},
		"EtcdClusters": &v1alpha1.EtcdClusterList{}, "EtcdSnapshots": &v1alpha1.EtcdSnapshotList{},
	} {
		if err := s.List(s.Context(), list, client.InNamespace(s.namespace)); err != nil {
			s.Fatal(err)
		}
		raw, err := json.Marshal(list)
		if err != nil {
			s.Fatal(err)
		}
		all[kind] = string(raw)
	}
	var secrets corev1.SecretList
	if err := s.List(s.Context(), &secrets, client.InNamespace(s.namespace)); err != nil {
		s.Fatal(err)
	}
	for _, secret := range secrets.Items {
		raw, err := json.Marshal(secret.ObjectMeta)
		if err != nil {
			s.Fatal(err)
		}
		all["metadata of Secrets"] += string(raw)
	}
	return all
}

// Nothing that druid writes has the content of a Secret: neither its log at level debug, nor an object that is no Secret.
func TestDruidWritesNoSecretElsewhere(t *testing.T) {
	s := newStage(t)
	log := &words{}
	s.log = log
	pair, err := pki.NewAuthority("planted", time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	foreign := manifests.ConnectionName("demo") // druid cannot write it, and says so
	var planted []string
	for name, data := range map[string]map[string]string{
		"passwords":       {"app": "planted-password-of-app"},
		"own-credentials": {"accessKeyID": "planted-access-key", "secretAccessKey": "planted-secret-key"},
		"store-ca":        {"ca.key": string(pair.Key)}, "sse": {"key": "planted-key-of-the-store-000000"},
		"keys":  {"key": "AGE-SECRET-KEY-1PLANTED"},
		foreign: {"password": "planted-by-someone"},
	} {
		planted = append(planted, s.plants(name, data)...)
	}
	s.startDruid()
	s.secretive()
	s.form("demo", s.members("demo", 1))
	s.condition("demo", v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonQuorate)
	s.condition("demo", v1alpha1.ConditionCertificatesReady, metav1.ConditionFalse, v1alpha1.ReasonObjectNotOwned)
	if err := s.Create(t.Context(), inOwnStore(s.namespace, "all")); err != nil {
		t.Fatal(err)
	}
	s.eventually("a Pod that saves", func() error {
		if !strings.Contains(s.writings()["Pods"], `"snapshot-`) {
			return fmt.Errorf("the Pods are %s", s.writings()["Pods"])
		}
		return nil
	})
	keys := s.issuedKeys()
	if len(keys) < 4 { // of two authorities, of the members as servers, and as peers
		t.Fatalf("druid issued %d keys", len(keys))
	}
	written := s.writings()
	written["the log"] = log.String()
	for where, text := range written {
		if where != "budgets" && where != "NetworkPolicies" && !strings.Contains(text, "demo") {
			t.Errorf("%s: nothing is about the cluster: %s", where, text)
		}
		for _, value := range append(planted, keys...) {
			for _, form := range forms(value) {
				if strings.Contains(text, form) {
					t.Errorf("%s: the value %q is written there as %q", where, value, form)
				}
			}
		}
	}
}
