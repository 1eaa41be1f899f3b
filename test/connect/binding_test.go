package connect

import (
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/manifests"
	"github.com/etcd-druid/druid/test/pages"
)

const (
	bindingPage    = "how-to/connect/service-binding.md"
	clusterAPIPage = "how-to/connect/cluster-api.md"
)

// objectRef has the fields by which a ServiceBinding names an object.
type objectRef struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Name       string `json:"name"`
}

// serviceBinding has fields of ServiceBinding in servicebinding.io/v1, of the Service Binding specification 1.1.
type serviceBinding struct {
	objectRef

	Metadata struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec struct {
		Name     string    `json:"name"`
		Type     string    `json:"type"`
		Provider string    `json:"provider"`
		Service  objectRef `json:"service"`
		Workload objectRef `json:"workload"`
	} `json:"spec"`
}

// clusterWith is the demo cluster with the part of a spec that a page shows.
func clusterWith(t *testing.T, d demo, text string) *v1alpha1.EtcdCluster {
	t.Helper()
	var cluster v1alpha1.EtcdCluster
	if err := yaml.UnmarshalStrict([]byte(text), &cluster); err != nil {
		t.Fatalf("the page has a field that an EtcdCluster does not have: %v", err)
	}
	cluster.ObjectMeta = d.cluster.ObjectMeta
	return &cluster
}

// TestServiceBindingFitsSecret: a ServiceBinding finds the Secret for clients.
func TestServiceBindingFitsSecret(t *testing.T) {
	d := serve(t)
	var binding serviceBinding
	if err := yaml.UnmarshalStrict([]byte(blockWith(t, bindingPage, pages.YAML, "workload:")), &binding); err != nil {
		t.Fatalf("the ServiceBinding has a field that the specification does not have: %v", err)
	}
	service := binding.Spec.Service
	if binding.APIVersion != "servicebinding.io/v1" || binding.Kind != "ServiceBinding" || service.APIVersion != v1alpha1.GroupVersion.String() ||
		service.Kind != "EtcdCluster" || service.Name != d.cluster.Name {
		t.Errorf("it is %+v", binding)
	}
	if secret := manifests.Binding(d.cluster); secret == nil || secret.Name != manifests.ConnectionName(d.cluster.Name) {
		t.Errorf("status.binding is %v", secret)
	}
	if got := string(d.data["type"]); got != binding.Spec.Type {
		t.Errorf("the Secret has the type %q, and the ServiceBinding %q", got, binding.Spec.Type)
	}
	plain := d.cluster.DeepCopy()
	plain.Spec.TLS.Client = nil
	if secret := manifests.Binding(plain); secret != nil {
		t.Errorf("status.binding of a cluster without certificates is %v", secret)
	}
}

// TestClusterAPIFitsSecret: Cluster API gets the Secrets and files that it reads.
// docs/book/src/tasks/external-etcd.md of Cluster API has the names of the Secrets, their keys, and the paths of the files.
func TestClusterAPIFitsSecret(t *testing.T) {
	d := serve(t)
	cluster := clusterWith(t, d, blockWith(t, clusterAPIPage, pages.YAML, "clients:"))
	var plane struct {
		objectRef

		Metadata struct {
			Name string `json:"name"`
		} `json:"metadata"`
		Spec struct {
			KubeadmConfigSpec struct {
				ClusterConfiguration struct {
					Etcd struct {
						External struct {
							Endpoints []string `json:"endpoints"`
							CAFile    string   `json:"caFile"`
							CertFile  string   `json:"certFile"`
							KeyFile   string   `json:"keyFile"`
						} `json:"external"`
					} `json:"etcd"`
				} `json:"clusterConfiguration"`
			} `json:"kubeadmConfigSpec"`
		} `json:"spec"`
	}
	if err := yaml.UnmarshalStrict([]byte(blockWith(t, clusterAPIPage, pages.YAML, "kind: KubeadmControlPlane")), &plane); err != nil {
		t.Fatalf("the KubeadmControlPlane has a field that Cluster API does not have: %v", err)
	}
	external := plane.Spec.KubeadmConfigSpec.ClusterConfiguration.Etcd.External
	if external.CAFile != "/etc/kubernetes/pki/etcd/ca.crt" || external.CertFile != "/etc/kubernetes/pki/apiserver-etcd-client.crt" ||
		external.KeyFile != "/etc/kubernetes/pki/apiserver-etcd-client.key" {
		t.Errorf("the files are %+v", external)
	}
	server := manifests.CertificatesOf(cluster, manifests.PlaneClient, "cluster.local").Server
	for _, endpoint := range external.Endpoints {
		if name := strings.TrimSuffix(strings.TrimPrefix(endpoint, "https://"), ":2379"); !slices.Contains(server.DNSNames, name) {
			t.Errorf("endpoint %s is not in the certificate, which has %q", endpoint, server.DNSNames)
		}
	}
	script := blockWith(t, clusterAPIPage, pages.Shell, "kubectl create secret")
	connections := manifests.CertificatesOf(cluster, manifests.PlaneClient, "cluster.local").Connections
	words := strings.Fields(script)
	if i := slices.Index(words, "secret"); i < 0 || connections[words[i+1]].CommonName != "kube-apiserver" {
		t.Errorf("the script reads a Secret that is none of %v:\n%s", connections, script)
	}
	for _, command := range []string{
		"create secret generic " + plane.Metadata.Name + "-etcd --from-file tls.crt=ca.crt",
		"create secret tls " + plane.Metadata.Name + "-apiserver-etcd-client --cert tls.crt --key tls.key",
	} {
		if !strings.Contains(script, command) {
			t.Errorf("the script has no %q:\n%s", command, script)
		}
	}
	for _, key := range []string{"ca.crt", "tls.crt", "tls.key"} {
		if len(d.data[key]) == 0 || !strings.Contains(script, key) {
			t.Errorf("the Secret or the script does not have %s", key)
		}
	}
}
