package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// TLSSpec secures the connections of clients and of peers, each by itself.
//
// +kubebuilder:validation:XValidation:rule="has(self.client) || has(self.peer)",message="spec.tls needs client or peer: set at least one of them"
type TLSSpec struct {
	// client secures the connections of clients. If not set, clients connect in plain text. You can add and remove it
	// while the cluster runs: druid changes the members one at a time, twice.
	// +optional
	Client *ClientTLS `json:"client,omitempty"`

	// peer secures the connections between the members. Both sides always show a certificate. If not set, members
	// connect in plain text. You can add and remove it while the cluster runs: druid changes the members one at a time, twice.
	// +optional
	Peer *PeerTLS `json:"peer,omitempty"`
}

// ClientTLS configures the certificates for the connections of clients.
//
// +kubebuilder:validation:XValidation:rule="[has(self.auto), has(self.secretRef), has(self.certManager)].exists_one(x, x)",message="tls.client needs exactly one source: auto, secretRef or certManager"
// +kubebuilder:validation:XValidation:rule="has(self.auto) == has(oldSelf.auto) && has(self.secretRef) == has(oldSelf.secretRef) && (!has(self.secretRef) || self.secretRef == oldSelf.secretRef) && (!has(self.certManager) || self.certManager.issuerRef == oldSelf.certManager.issuerRef)",message="the source of tls.client must not change: the members do not trust another issuer"
// +kubebuilder:validation:XValidation:rule="self.mode == oldSelf.mode",message="tls.client.mode must not change; remove tls.client, wait until status.tls.client is absent, and add it with the other mode"
// +kubebuilder:validation:XValidation:rule="!has(self.extraSANs) || !has(self.secretRef)",message="tls.client.extraSANs needs tls.client.auto or tls.client.certManager: druid does not issue the certificates of a secretRef"
// +kubebuilder:validation:XValidation:rule="!has(self.clients) || !has(self.secretRef)",message="tls.client.clients needs tls.client.auto or tls.client.certManager: druid does not issue the certificates of a secretRef"
// +kubebuilder:validation:XValidation:rule="!has(self.trustHold) || has(self.auto)",message="tls.client.trustHold needs tls.client.auto: druid does not replace the certificate authority of a secretRef"
// +kubebuilder:validation:XValidation:rule="!has(self.trustHold) || !has(self.auto) || !has(self.auto.caLifetime) || duration(self.trustHold).getSeconds() * 12 <= duration(self.auto.caLifetime).getSeconds()",message="tls.client.trustHold must be at most a twelfth of tls.client.auto.caLifetime, so that two of them fit into the last third of that time"
type ClientTLS struct {
	// auto lets druid issue the certificates from its own certificate authority for this cluster, and renew them.
	// druid creates a Secret for clients, <cluster>-connection.
	// +optional
	Auto *AutoTLS `json:"auto,omitempty"`

	// secretRef names Secrets with your own certificates.
	// +optional
	SecretRef *TLSSecretRef `json:"secretRef,omitempty"`

	// certManager lets an issuer of cert-manager issue the certificates. druid creates the Certificate objects, and
	// cert-manager creates their Secrets and renews them.
	// +optional
	CertManager *CertManagerTLS `json:"certManager,omitempty"`

	// mode Mutual requires a certificate of every client. ServerOnly lets every client in that can reach the port.
	// You cannot change it while client is set. Defaults to Mutual.
	// +kubebuilder:default=Mutual
	// +optional
	Mode ClientTLSMode `json:"mode,omitempty"`

	// plaintext Allow serves clients in plain text too, on the same port, until they use TLS. Anyone who reaches the port can then
	// read and write. Deny serves TLS only. A change is a rolling update. Defaults to Deny.
	// +kubebuilder:default=Deny
	// +optional
	Plaintext Plaintext `json:"plaintext,omitempty"`

	// extraSANs are further DNS names and IP addresses at which clients reach the cluster, such as the name of a load
	// balancer. druid issues a new certificate when you change them.
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.all(n, isIP(n) || n.matches('^([*][.])?[a-z0-9]([a-z0-9-]*[a-z0-9])?([.][a-z0-9]([a-z0-9-]*[a-z0-9])?)*$'))",message="tls.client.extraSANs must be DNS names in lower case, like etcd.example.com or *.example.com, or IP addresses"
	// +optional
	ExtraSANs []string `json:"extraSANs,omitempty"`

	// trustHold is how long druid waits for clients when it replaces the certificate authority: once before it uses the
	// new authority, and once before it removes the old one. Clients must read their Secret again within
	// that time. At most a twelfth of auto.caLifetime. Defaults to 24h, or to that twelfth if it is shorter.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=20
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+(h|m|s))+$')",message="trustHold must be a duration, like 24h"
	// +optional
	TrustHold *metav1.Duration `json:"trustHold,omitempty"`

	// clients get a certificate and a Secret of their own, in addition to the Secret <cluster>-connection. If you remove a
	// client, druid does not renew its certificate any more. The Secret stays until you delete it.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	// +optional
	Clients []TLSClient `json:"clients,omitempty"`
}

// TLSClient is a client of the cluster with a certificate of its own.
//
// +kubebuilder:validation:XValidation:rule="!(self.commonName in ['root', 'druid-agent'])",message="commonName must not be root or druid-agent: these names are reserved for the administration of etcd"
type TLSClient struct {
	// name of the client. Its Secret is <cluster>-client-<name>.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:XValidation:rule="!self.matches('^(tls|ca-[0-9]+)$')",message="name must differ from what druid calls its own Secrets: <cluster>-client-tls and <cluster>-client-ca-<number>"
	// +required
	Name string `json:"name"`
	// commonName in the certificate.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +required
	CommonName string `json:"commonName"`
	// organizations in the certificate.
	// +listType=set
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=64
	// +optional
	Organizations []string `json:"organizations,omitempty"`
	// agentAPI allows the client to request backups and changes of leadership from the agents. Defaults to false.
	// +optional
	AgentAPI bool `json:"agentAPI,omitempty"`
}

// ClientTLSMode says whether clients must show a certificate.
//
// +kubebuilder:validation:Enum=Mutual;ServerOnly
type ClientTLSMode string

// The modes.
const (
	TLSMutual     ClientTLSMode = "Mutual"
	TLSServerOnly ClientTLSMode = "ServerOnly"
)

// Plaintext says whether clients may connect without TLS.
//
// +kubebuilder:validation:Enum=Allow;Deny
type Plaintext string

// The values of plaintext.
const (
	PlaintextAllow Plaintext = "Allow"
	PlaintextDeny  Plaintext = "Deny"
)

// PeerTLS configures the certificates for the connections between members.
//
// +kubebuilder:validation:XValidation:rule="[has(self.auto), has(self.secretRef), has(self.certManager)].exists_one(x, x)",message="tls.peer needs exactly one source: auto, secretRef or certManager"
// +kubebuilder:validation:XValidation:rule="has(self.auto) == has(oldSelf.auto) && has(self.secretRef) == has(oldSelf.secretRef) && (!has(self.secretRef) || self.secretRef == oldSelf.secretRef) && (!has(self.certManager) || self.certManager.issuerRef == oldSelf.certManager.issuerRef)",message="the source of tls.peer must not change: the members do not trust another issuer"
type PeerTLS struct {
	// auto lets druid issue the certificates from its own certificate authority for this cluster, and renew them.
	// +optional
	Auto *AutoTLS `json:"auto,omitempty"`

	// secretRef names Secrets with your own certificates.
	// +optional
	SecretRef *TLSSecretRef `json:"secretRef,omitempty"`

	// certManager lets an issuer of cert-manager issue the certificates. druid creates the Certificate objects, and
	// cert-manager creates their Secrets and renews them.
	// +optional
	CertManager *CertManagerTLS `json:"certManager,omitempty"`
}

// AutoTLS configures the certificates that druid issues.
type AutoTLS struct {
	// leafLifetime is how long a certificate is valid, at least 2m. druid renews it when a third of that time is
	// left. A renewal restarts nothing. Defaults to 2160h, which is 90 days.
	// +kubebuilder:default="2160h"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=20
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+(h|m|s))+$') && duration(self) >= duration('2m') && duration(self) <= duration('43800h')",message="leafLifetime must be a duration from 2m to 43800h, like 720h"
	// +optional
	LeafLifetime *metav1.Duration `json:"leafLifetime,omitempty"`

	// caLifetime is how long a new certificate authority is valid, at least 10m. druid replaces the authority when a third
	// of that time is left: it restarts the members one at a time, twice. Defaults to 17520h, which is two years.
	// +kubebuilder:default="17520h"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=20
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+(h|m|s))+$') && duration(self) >= duration('10m') && duration(self) <= duration('175200h')",message="caLifetime must be a duration from 10m to 175200h, like 8760h"
	// +optional
	CALifetime *metav1.Duration `json:"caLifetime,omitempty"`
}

// CertManagerTLS configures the certificates that cert-manager issues.
//
// +kubebuilder:validation:XValidation:rule="!has(self.renewBefore) || duration(self.renewBefore) < duration(self.leafLifetime)",message="renewBefore must be shorter than leafLifetime"
type CertManagerTLS struct {
	// issuerRef names the issuer. Its certificates must come with the certificate of their authority, as those of the
	// issuers CA and Vault do. You cannot change it.
	// +required
	IssuerRef CertManagerIssuer `json:"issuerRef"`

	// leafLifetime is the lifetime of a certificate that druid requests, at least 1h, the shortest that cert-manager
	// accepts. Defaults to 2160h, which is 90 days.
	// +kubebuilder:default="2160h"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=20
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+(h|m|s))+$') && duration(self) >= duration('1h') && duration(self) <= duration('43800h')",message="leafLifetime must be a duration from 1h to 43800h, like 720h"
	// +optional
	LeafLifetime *metav1.Duration `json:"leafLifetime,omitempty"`

	// renewBefore is how long before the end of a certificate cert-manager renews it, at least 5m. If not set,
	// cert-manager renews it when a third of its lifetime is left. A renewal restarts nothing.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=20
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+(h|m|s))+$') && duration(self) >= duration('5m')",message="renewBefore must be a duration of at least 5m, like 240h"
	// +optional
	RenewBefore *metav1.Duration `json:"renewBefore,omitempty"`
}

// CertManagerIssuer names an issuer of cert-manager.
type CertManagerIssuer struct {
	// name of the issuer.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +required
	Name string `json:"name"`

	// kind of the issuer. Defaults to Issuer, which is in the namespace of the cluster.
	// +kubebuilder:default=Issuer
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Kind string `json:"kind,omitempty"`

	// group of the issuer. Another group than the default is that of an external issuer.
	// +kubebuilder:default=cert-manager.io
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Group string `json:"group,omitempty"`
}

// TLSSecretRef names Secrets with certificates, in the namespace of the cluster. You renew the certificates by
// changing the Secrets. The members use a new certificate within about a minute, without a restart, if the certificate
// authority stays the same. A Secret that is bad or deleted has no effect on a running member, and condition
// CertificatesReady says what is wrong.
type TLSSecretRef struct {
	// name of the Secret with the certificate of all members: tls.crt, tls.key, and in ca.crt the certificate
	// authorities that the members trust. The certificate must have the extended key usages server auth and client
	// auth. For clients it must be valid for <cluster>-client.<namespace>.svc, and for *.<cluster>-peer.<namespace>.svc
	// if clients connect to single members. For peers it must be valid for *.<cluster>-peer.<namespace>.svc.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +required
	Name string `json:"name"`

	// clientName is the name of the Secret with the certificate that the agents, or peers, show when they connect:
	// tls.crt and tls.key. If not set, they show the certificate of name. For peers, use a certificate without subject
	// alternative names: etcd compares these with the address that a connection comes from.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +optional
	ClientName string `json:"clientName,omitempty"`
}

// RotateCAAnnotation on an EtcdCluster requests the replacement of certificate authorities at once. Its value is any string of
// at most 253 characters, for example a date. Each other value requests one replacement. druid keeps the value that it has handled in
// status.tls.<plane>.lastHandledRotateCA and does not change the annotation. A value that begins with "client:" or "peer:" requests it for
// these connections alone.
const RotateCAAnnotation = "etcd.druid.dev/rotate-ca"

// MaxRotateCALength is how long the value of that annotation may be.
const MaxRotateCALength = 253
