package v1alpha1

import (
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// TLSStatus is the state of the certificates of a cluster.
type TLSStatus struct {
	// client is the state of the certificates for clients.
	// +optional
	Client *TLSPlaneStatus `json:"client,omitempty"`
	// peer is the state of the certificates for peers.
	// +optional
	Peer *TLSPlaneStatus `json:"peer,omitempty"`
}

// TLSStage says how far TLS is turned on for clients or for peers.
//
// +kubebuilder:validation:Enum=Off;Adding;Both;On
type TLSStage string

// The stages.
const (
	TLSStageOff    TLSStage = "Off"
	TLSStageAdding TLSStage = "Adding"
	TLSStageBoth   TLSStage = "Both"
	TLSStageOn     TLSStage = "On"
)

// TLSPlaneStatus is the state of the certificates for clients or for peers.
type TLSPlaneStatus struct {
	// stage is how far TLS is turned on. Adding: each member that starts gets certificates, and plain text works. Both: TLS works,
	// and each member that starts accepts plain text too; peers change back to plain text. On: TLS works, and each member that
	// starts uses nothing else. Off: TLS is being removed, and plain text works. Without TLS, status.tls is absent.
	// +optional
	Stage TLSStage `json:"stage,omitempty"`
	// phase of the replacement of the certificate authority. Absent for certificates that druid does not issue.
	// +optional
	Phase TLSPhase `json:"phase,omitempty"`
	// authority is the fingerprint of the certificate authority that druid issues certificates from: the first half of
	// its SHA-256.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	Authority string `json:"authority,omitempty"`
	// authorityNotAfter is when that certificate authority expires.
	// +optional
	AuthorityNotAfter *metav1.Time `json:"authorityNotAfter,omitempty"`
	// trusted are the certificate authorities of druid that members and clients are to trust, the oldest first. druid
	// writes them here before it uses them. So the loss of a Secret does not change them.
	// +listType=map
	// +listMapKey=generation
	// +kubebuilder:validation:MaxItems=4
	// +optional
	Trusted []TLSAuthority `json:"trusted,omitempty"`
	// distributedAt is since when the Secrets of all clients have what this phase gives them. spec.tls.client.trustHold
	// counts from then on.
	// +optional
	DistributedAt *metav1.Time `json:"distributedAt,omitempty"`
	// heldFor is how much of spec.tls.client.trustHold has passed. druid counts only the time for which it ran and saw that the
	// Secrets have what this phase gives them. It writes it now and then, so that another replica of druid continues.
	// +optional
	HeldFor *metav1.Duration `json:"heldFor,omitempty"`
	// lastHandledRotateCA is the value of annotation etcd.druid.dev/rotate-ca for which druid last replaced the authority, or
	// which it found when it issued the first certificates. druid acts only on another value.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	LastHandledRotateCA string `json:"lastHandledRotateCA,omitempty"`
	// message says why druid replaces the certificate authority, and what it waits for.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Message string `json:"message,omitempty"`
	// issuers are the fingerprints of the certificate authorities whose certificates the members used when the cluster had
	// formed. Of a secretRef they are the authorities that all members trust, of the first four in ca.crt. No member uses a
	// certificate of another authority, because the other members do not trust it.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +optional
	Issuers []string `json:"issuers,omitempty"`
	// notAfter is when the first certificate of a member or its authority expires, as the members report it.
	// +optional
	NotAfter *metav1.Time `json:"notAfter,omitempty"`
}

// TLSPhase is a phase of the replacement of a certificate authority.
//
// +kubebuilder:validation:Enum=Stable;TrustingBoth;WaitingForClients;IssuingCertificates;WaitingForOldCertificates;TrustingNew
type TLSPhase string

// The phases, in order.
const (
	// TLSStable: one authority is in use.
	TLSStable TLSPhase = "Stable"
	// TLSTrustingBoth: the Secrets have the old and the new authority. druid restarts the members one at a time, so that they trust both.
	TLSTrustingBoth TLSPhase = "TrustingBoth"
	// TLSWaitingForClients: druid waits for trustHold, so that clients read their Secrets again.
	TLSWaitingForClients TLSPhase = "WaitingForClients"
	// TLSIssuingCertificates: members and clients get certificates of the new authority.
	TLSIssuingCertificates TLSPhase = "IssuingCertificates"
	// TLSWaitingForOldCertificates: druid waits for trustHold, so that clients use their new certificates.
	TLSWaitingForOldCertificates TLSPhase = "WaitingForOldCertificates"
	// TLSTrustingNew: druid restarts the members one at a time, so that they no longer trust the old authority.
	TLSTrustingNew TLSPhase = "TrustingNew"
)

// TLSAuthority is a certificate authority of druid.
type TLSAuthority struct {
	// generation is the number of the authority. It is in the name of its Secret: <cluster>-<plane>-ca-<generation>.
	// +kubebuilder:validation:Minimum=1
	Generation int32 `json:"generation"`
	// fingerprint is the first half of the SHA-256 of the certificate.
	// +kubebuilder:validation:MaxLength=64
	Fingerprint string `json:"fingerprint"`
	// notAfter is when the authority expires.
	NotAfter metav1.Time `json:"notAfter"`
	// certificate of the authority as PEM.
	// +kubebuilder:validation:MaxLength=4096
	Certificate string `json:"certificate"`
}

// Former returns what was removed from spec.tls and is still used, or nil.
func (s *EtcdClusterStatus) Former() (*TLSSpec, error) {
	if s.FormerTLS == nil || len(s.FormerTLS.Raw) == 0 {
		return nil, nil
	}
	former := &TLSSpec{}
	if err := json.Unmarshal(s.FormerTLS.Raw, former); err != nil {
		return nil, fmt.Errorf("read status.formerTLS, which only druid writes: %w; if druid issued the certificates, remove the field; otherwise "+
			"set it to the part of spec.tls that was removed", err)
	}
	return former, nil
}

// KeepFormer writes what is still used of a former spec.tls, or removes it if that is nothing.
func (s *EtcdClusterStatus) KeepFormer(former TLSSpec) error {
	if former == (TLSSpec{}) {
		s.FormerTLS = nil
		return nil
	}
	raw, err := json.Marshal(former)
	if err != nil {
		return fmt.Errorf("write status.formerTLS: %w", err)
	}
	s.FormerTLS = &runtime.RawExtension{Raw: raw}
	return nil
}
