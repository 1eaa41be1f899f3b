package harness

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/pki"
	"github.com/etcd-druid/druid/manifests"
)

// plainCerts is where the Secrets of a plain etcd are mounted: that of its members, and in client/ that with which they connect to
// peers.
const plainCerts = "/certs"

const (
	plainSecret      = plainName + "-tls"
	plainPeersSecret = plainName + "-peer-client"
)

// StartPlainWithTLS is StartPlain with mutual TLS of clients and of peers, of one authority.
func (r *Rig) StartPlainWithTLS(t testing.TB, namespace, minor string, replicas int) *Plain {
	t.Helper()
	authority, err := pki.NewAuthority("plain", time.Now(), 24*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	p := &Plain{Namespace: namespace, Replicas: replicas, rig: r, pods: r.Attach(namespace, plainName), authority: authority}
	p.pods.secure = true
	var hosts []string
	for _, name := range p.names() {
		hosts = append(hosts, p.host(name))
	}
	p.issue(t, plainSecret, pki.Request{CommonName: "etcd", Server: true, Client: true,
		DNSNames: append(hosts, manifests.ClientServiceName(plainName)+"."+namespace+".svc")})
	p.issue(t, plainPeersSecret, pki.Request{CommonName: "peer", Client: true})
	p.issue(t, manifests.ConnectionName(plainName), pki.Request{CommonName: "client", Client: true})
	p.start(t, minor)
	return p
}

// issue creates a Secret with a certificate.
func (p *Plain) issue(t testing.TB, name string, request pki.Request) {
	t.Helper()
	signer, err := pki.ParseAuthority(p.authority, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	request.Lifetime = 12 * time.Hour
	pair, err := signer.Issue(request, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	data := manifests.PairData(pair)
	data[manifests.KeyAuthorities] = p.authority.Certificate
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: name}, Type: corev1.SecretTypeTLS, Data: data}
	if err := p.rig.Client.Create(t.Context(), secret); err != nil {
		t.Fatalf("create Secret %s/%s: %v", p.Namespace, name, err)
	}
}

// secure lets the container and the Pod use the Secrets.
func (p *Plain) secure(spec *corev1.PodSpec) {
	container, mode := &spec.Containers[0], int32(0o440)
	for _, plane := range []string{"", "peer-"} {
		container.Command = append(container.Command,
			"--"+plane+"client-cert-auth", fmt.Sprintf("--%strusted-ca-file=%s/ca.crt", plane, plainCerts),
			fmt.Sprintf("--%scert-file=%s/tls.crt", plane, plainCerts), fmt.Sprintf("--%skey-file=%s/tls.key", plane, plainCerts))
	}
	container.Command = append(container.Command, "--peer-client-cert-file="+plainCerts+"/client/tls.crt", "--peer-client-key-file="+plainCerts+"/client/tls.key")
	for i, secret := range []string{plainSecret, plainPeersSecret} {
		path := []string{plainCerts, plainCerts + "/client"}[i]
		container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: secret, MountPath: path, ReadOnly: true})
		spec.Volumes = append(spec.Volumes, corev1.Volume{Name: secret, VolumeSource: corev1.VolumeSource{
			Secret: &corev1.SecretVolumeSource{SecretName: secret, DefaultMode: &mode},
		}})
	}
}

// trusts gives the EtcdCluster certificates of the authority of the plain etcd, and the Secret with which to join it.
func (p *Plain) trusts(t testing.TB, c *v1alpha1.EtcdCluster, join *v1alpha1.JoinSpec) {
	t.Helper()
	server, connection := c.Name+"-own", manifests.ConnectionName(c.Name)
	p.issue(t, server, pki.Request{CommonName: "etcd", Server: true, Client: true, DNSNames: []string{
		"*." + manifests.PeerServiceName(c.Name) + "." + p.Namespace + ".svc", manifests.ClientServiceName(c.Name) + "." + p.Namespace + ".svc",
		manifests.ClientServiceName(plainName) + "." + p.Namespace + ".svc",
	}})
	p.issue(t, connection, pki.Request{CommonName: "client", Client: true})
	join.TLS = &v1alpha1.JoinTLS{SecretRef: v1alpha1.SecretRef{Name: manifests.ConnectionName(plainName)}}
	c.Spec.TLS = &v1alpha1.TLSSpec{
		Client: &v1alpha1.ClientTLS{SecretRef: &v1alpha1.TLSSecretRef{Name: server, ClientName: connection}},
		Peer:   &v1alpha1.PeerTLS{SecretRef: &v1alpha1.TLSSecretRef{Name: server, ClientName: plainPeersSecret}},
	}
}
