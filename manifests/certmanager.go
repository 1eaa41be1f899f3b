package manifests

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/pki"
)

// CertificateKind is the kind of the objects by which cert-manager is asked for a certificate.
var CertificateKind = schema.GroupVersionKind{Group: "cert-manager.io", Version: "v1", Kind: "Certificate"}

// AnnotationCertificateName is the annotation of cert-manager on a Secret that names the Certificate that it was issued for.
const AnnotationCertificateName = "cert-manager.io/certificate-name"

// dialerName returns the name of the Secret with the certificate that agents or peers show when they connect. Only
// cert-manager needs it, which puts one certificate into a Secret.
func dialerName(cluster string, p Plane) string {
	if p == PlanePeer {
		return cluster + "-peer-client-tls"
	}
	return cluster + "-agent-tls"
}

// IssuedByCertManager returns the planes whose certificates cert-manager issues.
func IssuedByCertManager(cluster *v1alpha1.EtcdCluster) []Plane {
	var all []Plane
	for _, s := range tlsSources(cluster) {
		if s.certManager != nil {
			all = append(all, s.plane)
		}
	}
	return all
}

// CertManagerCertificates returns the Certificates of a plane whose certificates cert-manager issues: that of the
// members, that of those who connect to them, and those of the clients. Each has the name of its Secret.
func CertManagerCertificates(cluster *v1alpha1.EtcdCluster, p Plane, domain string) ([]Applied, error) {
	sources := tlsSources(cluster)
	i := slices.IndexFunc(sources, func(s tlsSource) bool { return s.plane == p && s.certManager != nil })
	if i < 0 {
		return nil, nil
	}
	requests := CertificatesOf(cluster, p, domain)
	var all collector
	add(&all, certificateFor(cluster, CertificatesName(cluster.Name, p), sources[i].certManager, requests.Server))
	add(&all, certificateFor(cluster, dialerName(cluster.Name, p), sources[i].certManager, requests.Client))
	for _, name := range slices.Sorted(maps.Keys(requests.Connections)) {
		add(&all, certificateFor(cluster, name, sources[i].certManager, requests.Connections[name]))
	}
	return all.objects, all.err
}

// certificate is the part of a Certificate of cert-manager that druid writes. cert-manager's own types are not imported,
// because their module requires half a hundred others.
type certificate struct {
	metav1ac.TypeMetaApplyConfiguration    `json:",inline"`
	*metav1ac.ObjectMetaApplyConfiguration `json:"metadata,omitempty"`

	Spec certificateSpec `json:"spec"`
}

type certificateSpec struct {
	SecretName     string                     `json:"secretName"`
	SecretTemplate secretTemplate             `json:"secretTemplate"`
	IssuerRef      v1alpha1.CertManagerIssuer `json:"issuerRef"`
	CommonName     string                     `json:"commonName"`
	Subject        *certificateSubject        `json:"subject,omitempty"`
	DNSNames       []string                   `json:"dnsNames,omitempty"`
	IPAddresses    []string                   `json:"ipAddresses,omitempty"`
	Usages         []string                   `json:"usages"`
	IsCA           bool                       `json:"isCA"`
	Duration       string                     `json:"duration"`
	RenewBefore    string                     `json:"renewBefore,omitempty"`
	PrivateKey     certificateKey             `json:"privateKey"`
}

type secretTemplate struct {
	Labels map[string]string `json:"labels"`
}

type certificateSubject struct {
	Organizations []string `json:"organizations"`
}

type certificateKey struct {
	Algorithm string `json:"algorithm"`
	Size      int    `json:"size"`
	Encoding  string `json:"encoding"`
	// RotationPolicy Always makes a new key with each certificate.
	RotationPolicy string `json:"rotationPolicy"`
}

func certificateFor(cluster *v1alpha1.EtcdCluster, name string, source *v1alpha1.CertManagerTLS, request pki.Request) *certificate {
	labels := Labels(cluster.Name)
	kind, apiVersion := CertificateKind.Kind, CertificateKind.GroupVersion().String()
	c := &certificate{
		TypeMetaApplyConfiguration: metav1ac.TypeMetaApplyConfiguration{Kind: &kind, APIVersion: &apiVersion},
		ObjectMetaApplyConfiguration: metav1ac.ObjectMeta().WithName(name).WithNamespace(cluster.Namespace).
			WithLabels(labelled(cluster, labels)).WithAnnotations(annotated(cluster, nil)).WithOwnerReferences(ownerReference(cluster)),
		Spec: certificateSpec{
			SecretName: name, SecretTemplate: secretTemplate{labels}, IssuerRef: source.IssuerRef, CommonName: request.CommonName, DNSNames: request.DNSNames,
			Usages: usagesOf(request), Duration: DefaultLeafLifetime.String(),
			PrivateKey: certificateKey{Algorithm: "ECDSA", Size: 256, Encoding: "PKCS8", RotationPolicy: "Always"},
		},
	}
	if len(request.Organizations) > 0 {
		c.Spec.Subject = &certificateSubject{request.Organizations}
	}
	for _, ip := range request.IPs {
		c.Spec.IPAddresses = append(c.Spec.IPAddresses, ip.String())
	}
	if source.LeafLifetime != nil {
		c.Spec.Duration = source.LeafLifetime.Duration.String()
	}
	if source.RenewBefore != nil {
		c.Spec.RenewBefore = source.RenewBefore.Duration.String()
	}
	return c
}

func usagesOf(request pki.Request) []string {
	usages := []string{"digital signature", "key encipherment"}
	if request.Server {
		usages = append(usages, "server auth")
	}
	if request.Client {
		usages = append(usages, "client auth")
	}
	return usages
}

// IsApplyConfiguration, and what follows, make a certificate an apply configuration like the generated ones.
func (c *certificate) IsApplyConfiguration() {}

// GetAPIVersion returns the version of the API.
func (c *certificate) GetAPIVersion() *string { return c.APIVersion }

// GetKind returns the kind.
func (c *certificate) GetKind() *string { return c.Kind }

// GetName returns the name.
func (c *certificate) GetName() *string { return c.Name }

// GetNamespace returns the namespace.
func (c *certificate) GetNamespace() *string { return c.Namespace }

// WithAnnotations adds annotations.
func (c *certificate) WithAnnotations(annotations map[string]string) *certificate {
	c.ObjectMetaApplyConfiguration.WithAnnotations(annotations)
	return c
}
