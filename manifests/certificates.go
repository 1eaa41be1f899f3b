package manifests

import (
	"cmp"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/pki"
)

// Plane is one of the two kinds of connections of a cluster.
type Plane string

// The planes. The agent's directories have these names.
const (
	PlaneClient Plane = "client"
	PlanePeer   Plane = "peer"
)

// DefaultLeafLifetime is the lifetime of a certificate in a spec without one, as Let's Encrypt and cert-manager have it.
const DefaultLeafLifetime = 90 * 24 * time.Hour

// DefaultCALifetime is the lifetime of a certificate authority in a spec without one. It is eight times the former, so that the two
// rolling updates of a replacement come every 16 months.
const DefaultCALifetime = 2 * 365 * 24 * time.Hour

// DefaultTrustHold is how long clients have, in a spec without a time for that. A client that reads its Secret once a day
// follows.
const DefaultTrustHold = 24 * time.Hour

// holdsInLifetime is how many times the wait for clients fits into the lifetime of an authority. druid waits twice within the
// last third of that time, so that as much of it is left for the restarts.
const holdsInLifetime = 12

// The keys of the Secrets with certificates, in addition to those of type kubernetes.io/tls.
const (
	KeyAuthorities = "ca.crt"
	KeyClient      = "client.crt"
	KeyClientKey   = "client.key"
	KeyEndpoints   = "endpoints"
	// KeyType is the key that the Service Binding specification requires in a Secret for clients.
	KeyType = "type"
)

// ConnectionType is the value of KeyType.
const ConnectionType = "etcd"

// AuthorityName returns the name of the Secret with a certificate authority of a plane, which is also the name of that
// authority. No Pod mounts it. generation counts from 1.
func AuthorityName(cluster string, p Plane, generation int32) string {
	return cluster + "-" + string(p) + "-ca-" + strconv.Itoa(int(generation))
}

// AuthorityGeneration returns the generation of the certificate authority called name, or 0 if it is not one of the plane.
func AuthorityGeneration(cluster string, p Plane, name string) int32 {
	n, err := strconv.ParseInt(strings.TrimPrefix(name, cluster+"-"+string(p)+"-ca-"), 10, 32)
	if err != nil || n < 1 || AuthorityName(cluster, p, int32(n)) != name {
		return 0
	}
	return int32(n)
}

// CertificatesName returns the name of the Secret with the certificates of a plane, which the agents mount.
func CertificatesName(cluster string, p Plane) string { return cluster + "-" + string(p) + "-tls" }

// ConnectionName returns the name of the Secret for clients of the cluster.
func ConnectionName(cluster string) string { return cluster + "-connection" }

// tlsSource is where the certificates of a plane come from.
type tlsSource struct {
	plane Plane
	auto  *v1alpha1.AutoTLS
	// ref are the Secrets of the user, or those that cert-manager writes.
	ref         *v1alpha1.TLSSecretRef
	certManager *v1alpha1.CertManagerTLS
	mode        config.TLSMode
	stage       v1alpha1.TLSStage
}

// tlsSources returns the planes of the cluster that have TLS, or that members have not left yet.
func tlsSources(cluster *v1alpha1.EtcdCluster) []tlsSource {
	var all []tlsSource
	spec := TLSOf(cluster)
	if c := spec.Client; c != nil {
		mode := config.TLSMutual
		if c.Mode == v1alpha1.TLSServerOnly {
			mode = config.TLSServer
		}
		all = append(all, tlsSourceOf(cluster, PlaneClient, c.Auto, c.SecretRef, c.CertManager, mode))
	}
	if p := spec.Peer; p != nil {
		all = append(all, tlsSourceOf(cluster, PlanePeer, p.Auto, p.SecretRef, p.CertManager, config.TLSMutual))
	}
	return all
}

func tlsSourceOf(cluster *v1alpha1.EtcdCluster, p Plane, auto *v1alpha1.AutoTLS, ref *v1alpha1.TLSSecretRef, cm *v1alpha1.CertManagerTLS,
	mode config.TLSMode) tlsSource {
	if cm != nil {
		ref = &v1alpha1.TLSSecretRef{Name: CertificatesName(cluster.Name, p), ClientName: dialerName(cluster.Name, p)}
	}
	return tlsSource{plane: p, auto: auto, ref: ref, certManager: cm, mode: mode, stage: TLSStage(cluster, p)}
}

// Planes returns the planes with TLS.
func Planes(cluster *v1alpha1.EtcdCluster) []Plane {
	var all []Plane
	for _, s := range tlsSources(cluster) {
		all = append(all, s.plane)
	}
	return all
}

// Lifetimes are the times of a plane whose certificates druid issues.
type Lifetimes struct {
	// Leaf is the lifetime of a certificate, and Authority that of a certificate authority.
	Leaf, Authority time.Duration
	// Hold is how long druid waits for clients in the replacement of an authority. Peers are not waited for.
	Hold time.Duration
}

// Issued returns the planes whose certificates druid issues.
func Issued(cluster *v1alpha1.EtcdCluster) map[Plane]Lifetimes {
	all := map[Plane]Lifetimes{}
	for _, s := range tlsSources(cluster) {
		if s.auto == nil {
			continue
		}
		l := Lifetimes{Leaf: durationOr(s.auto.LeafLifetime, DefaultLeafLifetime), Authority: durationOr(s.auto.CALifetime, DefaultCALifetime)}
		if s.plane == PlaneClient {
			l.Hold = min(durationOr(TLSOf(cluster).Client.TrustHold, DefaultTrustHold), l.Authority/holdsInLifetime)
		}
		all[s.plane] = l
	}
	return all
}

func durationOr(d *metav1.Duration, otherwise time.Duration) time.Duration {
	if d == nil {
		return otherwise
	}
	return d.Duration
}

// Certificates are the requests for what the Secret of a plane contains.
type Certificates struct {
	// Server is shown by the members, Client by the agents or peers that connect to them.
	Server, Client pki.Request
	// Connections are shown by the clients of the cluster, by the name of the Secret. Peers have none.
	Connections map[string]pki.Request
}

// CertificatesOf returns the requests for a plane. domain is the DNS domain of the Kubernetes cluster.
func CertificatesOf(cluster *v1alpha1.EtcdCluster, p Plane, domain string) Certificates {
	lifetime := Issued(cluster)[p].Leaf
	members := "*." + PeerServiceName(cluster.Name) + "." + cluster.Namespace + ".svc"
	names := []string{members, members + "." + domain}
	// Peers compare the names of a client certificate with the address of the peer. Without names they cannot differ.
	client := pki.Request{CommonName: "peer", Client: true, Lifetime: lifetime}
	var ips []net.IP
	if p == PlanePeer {
		return Certificates{Server: serverRequest("peer", names, ips, lifetime), Client: client}
	}
	nodes := "*." + NodesServiceName(cluster.Name) + "." + cluster.Namespace + ".svc"
	names = append(names, nodes, nodes+"."+domain)
	services := []string{ClientServiceName(cluster.Name)}
	if cluster.LeaderWanted() {
		services = append(services, LeaderServiceName(cluster.Name))
	}
	for _, name := range services {
		service := name + "." + cluster.Namespace
		names = append(names, name, service, service+".svc", service+".svc."+domain)
	}
	names = append(names, "localhost")
	ips = append(ips, net.IPv4(127, 0, 0, 1), net.IPv6loopback)
	for _, extra := range TLSOf(cluster).Client.ExtraSANs {
		if ip := net.ParseIP(extra); ip != nil {
			ips = append(ips, ip)
			continue
		}
		names = append(names, extra)
	}
	client.CommonName = "druid-agent"
	connections := map[string]pki.Request{ConnectionName(cluster.Name): {CommonName: "client", Client: true, Lifetime: lifetime}}
	for _, c := range TLSOf(cluster).Client.Clients {
		connections[cluster.Name+"-client-"+c.Name] = pki.Request{
			CommonName: c.CommonName, Organizations: c.Organizations, Client: true, Lifetime: lifetime,
		}
	}
	return Certificates{Server: serverRequest("etcd", names, ips, lifetime), Client: client, Connections: connections}
}

// serverRequest is also valid for clients: etcd's JSON gateway shows the server certificate to its own client port.
func serverRequest(name string, names []string, ips []net.IP, lifetime time.Duration) pki.Request {
	slices.Sort(names)
	slices.SortFunc(ips, func(a, b net.IP) int { return cmp.Compare(a.String(), b.String()) })
	return pki.Request{
		CommonName: name, DNSNames: slices.Compact(names), Server: true, Client: true, Lifetime: lifetime,
		IPs: slices.CompactFunc(ips, net.IP.Equal),
	}
}

// Endpoints returns the URLs at which clients in the Kubernetes cluster reach every member of etcd.
func Endpoints(cluster *v1alpha1.EtcdCluster) []string {
	scheme := "http"
	if clientsSecure(cluster) {
		scheme = "https"
	}
	return []string{scheme + "://" + ClientServiceName(cluster.Name) + "." + cluster.Namespace + ".svc:2379"}
}

// TLSSecret returns a Secret of the cluster. Kubernetes deletes it with the EtcdCluster.
func TLSSecret(cluster *v1alpha1.EtcdCluster, name string, data map[string][]byte) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: owned(cluster, name, Labels(cluster.Name)), Type: corev1.SecretTypeTLS, Data: data}
}

// PairData returns the keys of a Secret of type kubernetes.io/tls.
func PairData(pair pki.Pair) map[string][]byte {
	return map[string][]byte{corev1.TLSCertKey: pair.Certificate, corev1.TLSPrivateKeyKey: pair.Key}
}

// MemberData returns the content of the Secret for members.
func MemberData(server, client pki.Pair, authorities []byte) map[string][]byte {
	data := PairData(server)
	data[KeyAuthorities], data[KeyClient], data[KeyClientKey] = authorities, client.Certificate, client.Key
	return data
}

// ConnectionData returns the content of the Secret for clients.
func ConnectionData(cluster *v1alpha1.EtcdCluster, pair pki.Pair, authorities []byte) map[string][]byte {
	data := PairData(pair)
	data[KeyAuthorities], data[KeyEndpoints], data[KeyType] = authorities, []byte(strings.Join(Endpoints(cluster), ",")), []byte(ConnectionType)
	return data
}

// Binding returns the reference to the Secret for clients, or nil if neither druid nor cert-manager issues their certificates.
func Binding(cluster *v1alpha1.EtcdCluster) *corev1.LocalObjectReference {
	if tls := cluster.Spec.TLS; tls == nil || tls.Client == nil || tls.Client.Auto == nil && tls.Client.CertManager == nil {
		return nil
	}
	return &corev1.LocalObjectReference{Name: ConnectionName(cluster.Name)}
}

// certificatesLimit is far above the size of all certificates of two generations of both planes.
var certificatesLimit = resource.MustParse("4Mi")

// certificateVolumes returns the volumes for certificates: one for the Secrets, and one in memory for those that are in
// effect. All Secrets are optional, so that a Secret that is deleted prevents no Pod from starting: the agent reports it.
func certificateVolumes(cluster *v1alpha1.EtcdCluster) []corev1.Volume {
	sources, join := mountedTLS(cluster), joinSecret(cluster)
	if len(sources) == 0 && join == "" {
		return nil
	}
	mode, limit := int32(0o440), certificatesLimit.DeepCopy()
	projected := &corev1.ProjectedVolumeSource{DefaultMode: &mode}
	add := func(name string, items ...corev1.KeyToPath) {
		projected.Sources = append(projected.Sources, corev1.VolumeProjection{Secret: &corev1.SecretProjection{
			LocalObjectReference: corev1.LocalObjectReference{Name: name}, Items: items, Optional: new(true),
		}})
	}
	for _, s := range sources {
		file := func(key, name string) corev1.KeyToPath {
			return corev1.KeyToPath{Key: key, Path: string(s.plane) + "/" + name}
		}
		server := []corev1.KeyToPath{
			file(KeyAuthorities, KeyAuthorities), file(corev1.TLSCertKey, corev1.TLSCertKey), file(corev1.TLSPrivateKeyKey, corev1.TLSPrivateKeyKey),
		}
		switch {
		case s.auto != nil:
			add(CertificatesName(cluster.Name, s.plane), append(server, file(KeyClient, KeyClient), file(KeyClientKey, KeyClientKey))...)
		case s.ref.ClientName != "":
			add(s.ref.Name, server...)
			add(s.ref.ClientName, file(corev1.TLSCertKey, KeyClient), file(corev1.TLSPrivateKeyKey, KeyClientKey))
		default:
			add(s.ref.Name, server...)
		}
	}
	if join != "" {
		var items []corev1.KeyToPath
		for _, key := range []string{KeyAuthorities, corev1.TLSCertKey, corev1.TLSPrivateKeyKey} {
			items = append(items, corev1.KeyToPath{Key: key, Path: config.JoinSubdir + "/" + key})
		}
		add(join, items...)
	}
	secrets := corev1.Volume{Name: volumeSecrets, VolumeSource: corev1.VolumeSource{Projected: projected}}
	if len(sources) == 0 {
		return []corev1.Volume{secrets}
	}
	return []corev1.Volume{
		secrets,
		{Name: volumeTLS, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory, SizeLimit: &limit}}},
	}
}

// certificateMounts returns the mounts of the agent's container. That of etcd has only the certificates in effect.
func certificateMounts(cluster *v1alpha1.EtcdCluster) []corev1.VolumeMount {
	secrets := corev1.VolumeMount{Name: volumeSecrets, MountPath: config.TLSSource, ReadOnly: true}
	switch {
	case len(mountedTLS(cluster)) > 0:
		return []corev1.VolumeMount{secrets, {Name: volumeTLS, MountPath: config.TLSDir}}
	case joinSecret(cluster) != "":
		return []corev1.VolumeMount{secrets}
	default:
		return nil
	}
}

func etcdCertificateMounts(cluster *v1alpha1.EtcdCluster) []corev1.VolumeMount {
	if len(mountedTLS(cluster)) == 0 {
		return nil
	}
	return []corev1.VolumeMount{{Name: volumeTLS, MountPath: config.TLSDir, ReadOnly: true}}
}
