package manifests

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/api/v1alpha1"
)

// TLSOf returns the sources of the certificates. They are those of spec.tls, and of a plane that members have not left yet
// those that it had before.
func TLSOf(cluster *v1alpha1.EtcdCluster) v1alpha1.TLSSpec {
	var all v1alpha1.TLSSpec
	if cluster.Spec.TLS != nil {
		all = *cluster.Spec.TLS
	}
	former, err := cluster.Status.Former()
	if err != nil || former == nil {
		return all // druid's own writing: someone else changed it, and the certificates that druid issues remain
	}
	if former.Client != nil {
		all.Client = former.Client
	}
	if former.Peer != nil {
		all.Peer = former.Peer
	}
	return all
}

// FormerTLS returns what remains in use of the sources of before, when spec.tls becomes after: each plane that after does
// not have, or has from another source, or with another mode.
func FormerTLS(before v1alpha1.TLSSpec, after *v1alpha1.TLSSpec) v1alpha1.TLSSpec {
	if after == nil {
		after = &v1alpha1.TLSSpec{}
	}
	var former v1alpha1.TLSSpec
	if c := before.Client; c != nil && (after.Client == nil || originOfClients(c) != originOfClients(after.Client)) {
		former.Client = c
	}
	if p := before.Peer; p != nil && (after.Peer == nil || originOfPeers(p) != originOfPeers(after.Peer)) {
		former.Peer = p
	}
	return former
}

// origin is what two certificates of a plane must share, so that members with one accept members with the other.
type origin struct {
	auto   bool
	ref    v1alpha1.TLSSecretRef
	issuer v1alpha1.CertManagerIssuer
	mode   v1alpha1.ClientTLSMode
}

func originOfClients(c *v1alpha1.ClientTLS) origin {
	return originOf(c.Auto, c.SecretRef, c.CertManager, cmp.Or(c.Mode, v1alpha1.TLSMutual))
}

func originOfPeers(p *v1alpha1.PeerTLS) origin {
	return originOf(p.Auto, p.SecretRef, p.CertManager, v1alpha1.TLSMutual)
}

func originOf(auto *v1alpha1.AutoTLS, ref *v1alpha1.TLSSecretRef, issuer *v1alpha1.CertManagerTLS, mode v1alpha1.ClientTLSMode) origin {
	o := origin{auto: auto != nil, mode: mode}
	if ref != nil {
		o.ref = *ref
	}
	if issuer != nil {
		o.issuer = issuer.IssuerRef
	}
	return o
}

// TLSTarget returns where the plane is to arrive: Off, Both or On.
func TLSTarget(cluster *v1alpha1.EtcdCluster, p Plane) v1alpha1.TLSStage {
	former, _ := cluster.Status.Former()
	spec := cluster.Spec.TLS
	switch {
	case spec == nil:
		return v1alpha1.TLSStageOff
	case p == PlaneClient && (spec.Client == nil || former != nil && former.Client != nil):
		return v1alpha1.TLSStageOff
	case p == PlanePeer && (spec.Peer == nil || former != nil && former.Peer != nil):
		return v1alpha1.TLSStageOff
	case p == PlaneClient && spec.Client.Plaintext == v1alpha1.PlaintextAllow:
		return v1alpha1.TLSStageBoth
	default:
		return v1alpha1.TLSStageOn
	}
}

// TLSStage returns how far the plane is. Until druid has written that, it is where the plane is to arrive.
func TLSStage(cluster *v1alpha1.EtcdCluster, p Plane) v1alpha1.TLSStage {
	if plane := PlaneStatus(cluster, p); plane != nil && plane.Stage != "" {
		return plane.Stage
	}
	return TLSTarget(cluster, p)
}

// clientsSecure says whether every member serves clients with TLS.
func clientsSecure(cluster *v1alpha1.EtcdCluster) bool {
	stage := TLSStage(cluster, PlaneClient)
	return stage == v1alpha1.TLSStageBoth || stage == v1alpha1.TLSStageOn
}

// SetTLSStage writes how far the plane is into the status.
func SetTLSStage(cluster *v1alpha1.EtcdCluster, p Plane, stage v1alpha1.TLSStage) {
	if cluster.Status.TLS == nil {
		cluster.Status.TLS = &v1alpha1.TLSStatus{}
	}
	into := statusOf(cluster.Status.TLS, p)
	if *into == nil {
		*into = &v1alpha1.TLSPlaneStatus{}
	}
	(*into).Stage = stage
}

// PlaneStatus returns what the status has about the plane, or nil.
func PlaneStatus(cluster *v1alpha1.EtcdCluster, p Plane) *v1alpha1.TLSPlaneStatus {
	if cluster.Status.TLS == nil {
		return nil
	}
	return *statusOf(cluster.Status.TLS, p)
}

// statusOf returns where the status has the plane.
func statusOf(status *v1alpha1.TLSStatus, p Plane) **v1alpha1.TLSPlaneStatus {
	if p == PlanePeer {
		return &status.Peer
	}
	return &status.Client
}

// mountedTLS returns the planes whose certificates a new Pod gets.
func mountedTLS(cluster *v1alpha1.EtcdCluster) []tlsSource {
	return slices.DeleteFunc(tlsSources(cluster), func(s tlsSource) bool { return s.stage == v1alpha1.TLSStageOff })
}

// sourceless returns an error if a kind of connection is to use TLS, and names no source of certificates. The API server refuses that, unless
// its CustomResourceDefinition is not that of druid.
func sourceless(cluster *v1alpha1.EtcdCluster) error {
	for _, s := range mountedTLS(cluster) {
		if s.auto == nil && s.ref == nil {
			return fmt.Errorf("spec.tls.%s names no source of certificates: set auto, secretRef or certManager", s.plane)
		}
	}
	return nil
}

// PodTLS returns how the Pod of a member uses TLS: Off, Both or On.
func PodTLS(pod *corev1.Pod, p Plane) v1alpha1.TLSStage {
	i := slices.IndexFunc(pod.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == ContainerAgent })
	if i < 0 {
		return v1alpha1.TLSStageOff
	}
	has := func(prefix string) bool {
		return slices.ContainsFunc(pod.Spec.InitContainers[i].Command, func(arg string) bool { return strings.HasPrefix(arg, prefix) })
	}
	switch {
	case !has("--" + string(p) + "-tls="):
		return v1alpha1.TLSStageOff
	case has("--" + string(p) + "-plaintext=true"):
		return v1alpha1.TLSStageBoth
	default:
		return v1alpha1.TLSStageOn
	}
}

// setTLS sets the options for certificates. A cluster without TLS has none of them, so that an earlier version of the
// agent can run in its Pods.
func setTLS(c *config.Config, cluster *v1alpha1.EtcdCluster) {
	for _, s := range mountedTLS(cluster) {
		c.TLSSource, c.TLSDir = config.TLSSource, config.TLSDir
		switch s.plane {
		case PlaneClient:
			c.ClientTLS, c.ClientPlaintext = s.mode, s.plaintext()
		case PlanePeer:
			c.PeerTLS, c.PeerPlaintext = s.mode, s.plaintext()
		}
	}
}

// plaintext says whether a Pod that is created now uses plain text: with TLS for clients, instead of it for peers.
func (s tlsSource) plaintext() bool {
	return s.stage == v1alpha1.TLSStageAdding || s.stage == v1alpha1.TLSStageBoth
}
