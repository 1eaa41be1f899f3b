package manifests

import (
	"maps"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
)

// The names of what all members of a cluster share. With a cluster name of 50 characters, the longest that the API server
// accepts, each fits in the 63 characters of a DNS label. The Leases' names stand in package leases.

// PeerServiceName returns the name of the headless Service that resolves the names of the members.
func PeerServiceName(cluster string) string { return cluster + "-peer" }

// ClientServiceName returns the name of the Service for clients.
func ClientServiceName(cluster string) string { return cluster + "-client" }

// NodesServiceName returns the name of the headless Service in which clients find each member that serves.
func NodesServiceName(cluster string) string { return cluster + "-nodes" }

// LeaderServiceName returns the name of the Service for clients that connect to the leader.
func LeaderServiceName(cluster string) string { return cluster + "-leader" }

// AgentName returns the name of the agents' ServiceAccount, Role, RoleBinding and ConfigMap.
func AgentName(cluster string) string { return cluster + "-agent" }

// DisruptionBudgetName returns the name of the cluster's PodDisruptionBudget.
func DisruptionBudgetName(cluster string) string { return cluster }

// NetworkPolicyName returns the name of the NetworkPolicy of the members.
func NetworkPolicyName(cluster string) string { return cluster + "-members" }

// Labels and annotations that druid writes, beyond those that the Leases bear (package leases).
const (
	// LabelServing is "true" on the Pods that may receive clients. The client Service selects it.
	LabelServing = leases.Prefix + "serving"
	// LabelVoter is "true" on the Pods of voting members. The PodDisruptionBudget selects it.
	LabelVoter = leases.Prefix + "voter"
	// LabelLeader is "true" on the Pod of the leader, if the cluster has a leader Service, which selects it.
	LabelLeader = leases.Prefix + "leader"
	// LabelClusterUID identifies the EtcdCluster among others that had its name earlier. Volumes have it, because they
	// can outlive the EtcdCluster and then have no owner. Pods have it, so that no Service and no PodDisruptionBudget
	// selects Pods of another cluster.
	LabelClusterUID = leases.Prefix + "cluster-uid"
	// AnnotationHash is the hash of the fields that druid sets in the object.
	AnnotationHash = leases.Prefix + "hash"
	// AnnotationEvictions is a sentence on the PodDisruptionBudget that says how many Pods can be evicted, and why not
	// more.
	AnnotationEvictions = leases.Prefix + "evictions"
	// AnnotationCutFor marks a Pod from which clients were cut off for a restore in place: the nonce of the request for its plan.
	AnnotationCutFor = leases.Prefix + "cut-for"
	// AnnotationSpecHash is the hash of what the spec requested of the Pod when druid created it, or accepted it as
	// such a Pod.
	AnnotationSpecHash = leases.Prefix + "spec-hash"
	// AnnotationMountedFor is the requested size of the claim, on a Pod that druid created while the volume waited for
	// a new mount.
	AnnotationMountedFor = leases.Prefix + "mounted-for"
	// AnnotationAgentImage is the image that druid last set for the agent of the Pod. AnnotationAgentBefore is the ID
	// of the container that ran before, on a Pod whose agent got another image while it ran.
	AnnotationAgentImage  = leases.Prefix + "agent-image"
	AnnotationAgentBefore = leases.Prefix + "agent-before"

	// AnnotationCertificates, with the name of a plane behind it, is when druid last issued certificates, on the Pods that
	// ran then. A change makes the kubelet update the mounted Secrets at once, instead of within about a minute.
	AnnotationCertificates = leases.Prefix + "certificates-"

	labelName      = "app.kubernetes.io/name"
	labelInstance  = "app.kubernetes.io/instance"
	labelManagedBy = "app.kubernetes.io/managed-by"
)

// LabelTrue is the value of LabelServing, LabelVoter and LabelLeader. A Pod for which they are not true does not have them.
const LabelTrue = "true"

// Labels returns the labels of every object of the cluster.
func Labels(cluster string) map[string]string {
	return map[string]string{
		leases.LabelCluster: cluster,
		labelName:           "etcd",
		labelInstance:       cluster,
		labelManagedBy:      "druid",
	}
}

// MemberLabels returns the labels of the objects of one member: its Lease, PersistentVolumeClaim and Pod.
func MemberLabels(cluster, member string) map[string]string {
	labels := Labels(cluster)
	labels[leases.LabelComponent] = string(leases.ComponentMember)
	labels[leases.LabelMember] = member
	return labels
}

// Selector returns the labels that select all Pods of the cluster, whatever their state.
func Selector(cluster string) map[string]string {
	return map[string]string{
		leases.LabelCluster:   cluster,
		leases.LabelComponent: string(leases.ComponentMember),
	}
}

// kind of the owner of all objects of a cluster.
var kind = v1alpha1.GroupVersion.WithKind("EtcdCluster")

// labelled returns the labels of druid together with those of the user. The keys of druid take precedence, because
// druid finds and selects objects by them.
func labelled(cluster *v1alpha1.EtcdCluster, own map[string]string) map[string]string {
	if cluster.Spec.AdditionalMetadata == nil {
		return own
	}
	all := plainStrings(cluster.Spec.AdditionalMetadata.Labels)
	maps.Copy(all, own)
	return all
}

// annotated does the same for annotations. It returns nil if there are none.
func annotated(cluster *v1alpha1.EtcdCluster, own map[string]string) map[string]string {
	if cluster.Spec.AdditionalMetadata == nil {
		return own
	}
	all := plainStrings(cluster.Spec.AdditionalMetadata.Annotations)
	maps.Copy(all, own)
	if len(all) == 0 {
		return nil
	}
	return all
}

func plainStrings[V ~string](values map[string]V) map[string]string {
	all := make(map[string]string, len(values))
	for k, v := range values {
		all[k] = string(v)
	}
	return all
}

// Options are settings of the installation, which are the same for all clusters.
type Options struct {
	// AgentImage is the image of the agent, with its tag. It is not part of the hash of a Pod. A Pod gets another
	// image when it is created again, and does not become outdated by it.
	AgentImage string
	// EtcdRepository is the image of etcd, without a tag, for clusters whose spec.image is v1alpha1.DefaultImage. Empty: that image. It
	// is not part of the hash of a Pod either: running Pods keep their image.
	EtcdRepository string
	// ClusterDomain is the DNS domain of the Kubernetes cluster, such as cluster.local. Certificates are valid for it.
	ClusterDomain string
	// Reloadable is the configuration that the agents read from their ConfigMap, except for what the spec of each
	// cluster sets.
	Reloadable config.Reloadable
}
