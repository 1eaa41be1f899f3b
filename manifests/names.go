package manifests

import (
	"maps"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
)

// The names of what all members of a cluster share. With a cluster name of 50 characters, the longest that the API server
// accepts, each fits in the 63 characters of a DNS label. The Leases' names stand in package leases.

// PeerServiceName is the name of the headless Service under which the members' own names resolve.
func PeerServiceName(cluster string) string { return cluster + "-peer" }

// ClientServiceName is the name of the Service that clients dial.
func ClientServiceName(cluster string) string { return cluster + "-client" }

// AgentName is the name of the agents' ServiceAccount, Role, RoleBinding and ConfigMap.
func AgentName(cluster string) string { return cluster + "-agent" }

// DisruptionBudgetName is the name of the cluster's PodDisruptionBudget.
func DisruptionBudgetName(cluster string) string { return cluster }

// Labels and annotations that druid writes, beyond those that the Leases bear (package leases).
const (
	// LabelServing is "true" on the Pods that clients may be sent to: the client Service selects it.
	LabelServing = leases.Prefix + "serving"
	// LabelVoter is "true" on the Pods of voting members: the PodDisruptionBudget selects it.
	LabelVoter = leases.Prefix + "voter"
	// LabelClusterUID names the very EtcdCluster, and not one that bore its name before: on its volumes, which may outlive it
	// and then have no owner, and on its Pods, so that no Service and no budget takes those of another for its own.
	LabelClusterUID = leases.Prefix + "cluster-uid"
	// AnnotationHash is the hash of what druid sets in the object that bears it.
	AnnotationHash = leases.Prefix + "hash"
	// AnnotationSpecHash is the hash of what the spec asked of a Pod when the Pod was made, or was taken for such a Pod.
	AnnotationSpecHash = leases.Prefix + "spec-hash"
	// AnnotationMountedFor is the size that its claim requested of a Pod that was made while the volume waited for a new mount.
	AnnotationMountedFor = leases.Prefix + "mounted-for"
	// AnnotationAgentImage is the image that druid last asked of the Pod's agent, and AnnotationAgentBefore, on a Pod whose agent got
	// another image while it ran, the ID of the container that ran before.
	AnnotationAgentImage  = leases.Prefix + "agent-image"
	AnnotationAgentBefore = leases.Prefix + "agent-before"

	labelName      = "app.kubernetes.io/name"
	labelInstance  = "app.kubernetes.io/instance"
	labelManagedBy = "app.kubernetes.io/managed-by"
)

// LabelTrue is the value of LabelServing and LabelVoter; a Pod of which they are not true does not bear them.
const LabelTrue = "true"

// Labels are on every object of the cluster.
func Labels(cluster string) map[string]string {
	return map[string]string{
		leases.LabelCluster: cluster,
		labelName:           "etcd",
		labelInstance:       cluster,
		labelManagedBy:      "druid",
	}
}

// MemberLabels are on every object that a member has for itself: its Lease, PersistentVolumeClaim and Pod.
func MemberLabels(cluster, member string) map[string]string {
	labels := Labels(cluster)
	labels[leases.LabelComponent] = string(leases.ComponentMember)
	labels[leases.LabelMember] = member
	return labels
}

// Selector selects the cluster's Pods, whatever their state.
func Selector(cluster string) map[string]string {
	return map[string]string{
		leases.LabelCluster:   cluster,
		leases.LabelComponent: string(leases.ComponentMember),
	}
}

// kind of the owner of all that a cluster has.
var kind = v1alpha1.GroupVersion.WithKind("EtcdCluster")

// labelled are druid's own labels with what the user wants next to them. Own keys win: druid finds and selects by them.
func labelled(cluster *v1alpha1.EtcdCluster, own map[string]string) map[string]string {
	if cluster.Spec.AdditionalMetadata == nil {
		return own
	}
	all := plainStrings(cluster.Spec.AdditionalMetadata.Labels)
	maps.Copy(all, own)
	return all
}

// annotated is the same for annotations, nil for none.
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

// Options are what the install decides, alike for every cluster.
type Options struct {
	// AgentImage is the image, with its tag, that holds /agent. It is no part of a Pod's hash: another one
	// reaches a Pod when the Pod is made again, and makes none outdated.
	AgentImage string
	// Reloadable is what the agents read from their ConfigMap, but for what each cluster's own spec says there.
	Reloadable config.Reloadable
}
