package manifests

import (
	"net"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
)

// secured is a cluster whose client certificates druid issues, and whose peer certificates are the user's.
func secured() *v1alpha1.EtcdCluster {
	cluster := plain()
	cluster.Spec.TLS = &v1alpha1.TLSSpec{
		Client: &v1alpha1.ClientTLS{Auto: &v1alpha1.AutoTLS{}, Mode: v1alpha1.TLSMutual, ExtraSANs: []string{"etcd.example.com", "203.0.113.7", "localhost"},
			Clients: []v1alpha1.TLSClient{{Name: "app", CommonName: "application"}},
		},
		Peer: &v1alpha1.PeerTLS{SecretRef: &v1alpha1.TLSSecretRef{Name: "peers", ClientName: "peers-client"}},
	}
	return cluster
}

// TestCertificatesCoverLeaderService: certificates are valid for the leader Service.
func TestCertificatesCoverLeaderService(t *testing.T) {
	for _, wanted := range []bool{true, false} {
		cluster := secured()
		cluster.Spec.LeaderService = &v1alpha1.LeaderServiceSpec{Enabled: wanted}
		names := CertificatesOf(cluster, PlaneClient, "example.local").Server.DNSNames
		for _, suffix := range []string{"", ".default", ".default.svc", ".default.svc.example.local"} {
			if name := LeaderServiceName(cluster.Name) + suffix; slices.Contains(names, name) != wanted {
				t.Errorf("the names are %q, want %s among them: %t", names, name, wanted)
			}
		}
	}
}

// TestCertificatesCoverEndpoints: certificates are valid where clients and peers connect.
func TestCertificatesCoverEndpoints(t *testing.T) {
	cluster := secured()
	client := CertificatesOf(cluster, PlaneClient, "example.local")
	for _, want := range []string{
		"*." + PeerServiceName(cluster.Name) + "." + cluster.Namespace + ".svc",
		"*." + PeerServiceName(cluster.Name) + "." + cluster.Namespace + ".svc.example.local",
		"*." + NodesServiceName(cluster.Name) + "." + cluster.Namespace + ".svc.example.local",
		ClientServiceName(cluster.Name), ClientServiceName(cluster.Name) + "." + cluster.Namespace + ".svc", "localhost", "etcd.example.com",
	} {
		if n := slices.Index(client.Server.DNSNames, want); n < 0 || slices.Contains(client.Server.DNSNames[n+1:], want) {
			t.Errorf("the names are %q, want %s once", client.Server.DNSNames, want)
		}
	}
	for _, want := range []string{"127.0.0.1", "::1", "203.0.113.7"} {
		if !slices.ContainsFunc(client.Server.IPs, net.ParseIP(want).Equal) {
			t.Errorf("the addresses are %v, want %s among them", client.Server.IPs, want)
		}
	}
	if client.Client.CommonName != "druid-agent" {
		t.Errorf("agents are %q", client.Client.CommonName)
	}
	want := map[string]string{ConnectionName(cluster.Name): "client", cluster.Name + "-client-app": "application"}
	for secret, name := range want {
		if got := client.Connections[secret]; got.CommonName != name || !got.Client || got.Server || len(client.Connections) != len(want) {
			t.Errorf("Secret %s is for %+v, want %s; all are %v", secret, got, name, client.Connections)
		}
	}
	peer := CertificatesOf(cluster, PlanePeer, "example.local")
	if names := peer.Client.DNSNames; len(names)+len(peer.Client.IPs) > 0 {
		t.Errorf("the certificate that peers show has the names %q: etcd compares them with the address of the peer", names)
	}
	if len(peer.Connections) > 0 {
		t.Error("clients get a certificate of the peers' authority")
	}
	for plane, c := range map[Plane]Certificates{PlaneClient: client, PlanePeer: peer} {
		if !c.Server.Server || !c.Server.Client || c.Client.Server || !c.Client.Client {
			t.Errorf("%s: usages are %+v and %+v", plane, c.Server, c.Client)
		}
	}
}

func TestDruidIssuesOnlyWhatTheSpecAsksItFor(t *testing.T) {
	cluster := secured()
	if issued := Issued(cluster); len(issued) != 1 || issued[PlaneClient].Leaf != DefaultLeafLifetime {
		t.Errorf("issued are %v", issued)
	}
	cluster.Spec.TLS.Client.Auto.LeafLifetime = &metav1.Duration{Duration: time.Hour}
	if issued := Issued(cluster); issued[PlaneClient].Leaf != time.Hour {
		t.Errorf("the lifetime is %v, want 1h", issued)
	}
	if planes := Planes(cluster); !slices.Equal(planes, []Plane{PlaneClient, PlanePeer}) {
		t.Errorf("planes are %q", planes)
	}
	if planes := Planes(plain()); planes != nil {
		t.Errorf("a cluster without TLS has the planes %q", planes)
	}
}

// The Secrets are mounted in the agent alone, and each is optional: a Secret that is deleted must not prevent a Pod from starting.
func TestSecretsAreMountedInTheAgentAlone(t *testing.T) {
	pod, err := Pod(secured(), member, options())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		for _, mount := range c.VolumeMounts {
			if mount.Name == volumeSecrets && c.Name != ContainerAgent {
				t.Errorf("container %s mounts the Secrets", c.Name)
			}
			if mount.Name == volumeTLS && c.Name == ContainerEtcd && !mount.ReadOnly {
				t.Error("etcd can write its certificates")
			}
		}
	}
	for _, volume := range pod.Spec.Volumes {
		if volume.Name != volumeSecrets {
			continue
		}
		for _, source := range volume.Projected.Sources {
			if source.Secret.Optional == nil || !*source.Secret.Optional {
				t.Errorf("Secret %s is required", source.Secret.Name)
			}
		}
	}
}

// The agent gets the Secret for the cluster to join, alone or next to the others. etcd and the Pod of an EtcdSnapshot do not.
func TestAgentGetsJoinSecret(t *testing.T) {
	for name, base := range map[string]func() *v1alpha1.EtcdCluster{"without TLS of its own": plain, "with TLS": secured} {
		t.Run(name, func(t *testing.T) {
			cluster := base()
			cluster.Spec.Bootstrap = &v1alpha1.BootstrapSpec{Join: &v1alpha1.JoinSpec{
				Endpoints: []v1alpha1.JoinEndpoint{"https://a:2379"}, TLS: &v1alpha1.JoinTLS{SecretRef: v1alpha1.SecretRef{Name: "source"}},
			}}
			pod, err := Pod(cluster, member, options())
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
				mounts := slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == volumeSecrets })
				if mounts != (c.Name == ContainerAgent) {
					t.Errorf("container %s mounts the Secrets: %t", c.Name, mounts)
				}
				if c.Name == ContainerAgent && !slices.Contains(c.Command, "--join-tls=/run/druid/secrets/join") {
					t.Errorf("the agent is started with %v", c.Command)
				}
			}
			if got := secretFiles(pod.Spec.Volumes, "source"); !slices.Equal(got, []string{"join/ca.crt", "join/tls.crt", "join/tls.key"}) {
				t.Errorf("the agent reads %v", got)
			}
			if dial := dialAttached(cluster); dial != nil && len(secretFiles([]corev1.Volume{dial.volume}, "source")) > 0 {
				t.Error("the Pod of an EtcdSnapshot mounts the Secret")
			}
		})
	}
}

// secretFiles returns the files that the volumes have of a Secret, which must be optional.
func secretFiles(volumes []corev1.Volume, name string) (files []string) {
	for _, volume := range volumes {
		if volume.Projected == nil {
			continue
		}
		for _, source := range volume.Projected.Sources {
			if source.Secret == nil || source.Secret.Name != name || source.Secret.Optional == nil || !*source.Secret.Optional {
				continue
			}
			for _, item := range source.Secret.Items {
				files = append(files, item.Path)
			}
		}
	}
	return files
}

// TestEndpointSchemeMatchesClientPort: endpoints have the scheme of the client port.
func TestEndpointSchemeMatchesClientPort(t *testing.T) {
	cluster := plain()
	host := ClientServiceName(cluster.Name) + "." + cluster.Namespace + ".svc:2379"
	if got := Endpoints(cluster); !slices.Equal(got, []string{"http://" + host}) {
		t.Errorf("endpoints are %q", got)
	}
	cluster.Spec.TLS = &v1alpha1.TLSSpec{Peer: &v1alpha1.PeerTLS{Auto: &v1alpha1.AutoTLS{}}}
	if got := Endpoints(cluster); !slices.Equal(got, []string{"http://" + host}) {
		t.Errorf("endpoints with TLS of peers alone are %q", got)
	}
	if got := Endpoints(secured()); !slices.Equal(got, []string{"https://" + host}) {
		t.Errorf("endpoints with TLS of clients are %q", got)
	}
}

// Only a client that the spec allows it may have the agents act.
func TestTheAgentsKnowWhichClientsMayAct(t *testing.T) {
	cluster := secured()
	cluster.Spec.TLS.Client.Clients = append(cluster.Spec.TLS.Client.Clients, v1alpha1.TLSClient{Name: "op", CommonName: "operator", AgentAPI: true})
	if got := apiClients(cluster); !slices.Equal(got, []string{"operator"}) {
		t.Errorf("%q may act, want operator alone", got)
	}
	if got := apiClients(plain()); len(got) > 0 {
		t.Errorf("%q may act without TLS", got)
	}
}
