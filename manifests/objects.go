package manifests

import (
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	policyv1ac "k8s.io/client-go/applyconfigurations/policy/v1"
	rbacv1ac "k8s.io/client-go/applyconfigurations/rbac/v1"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
)

func serviceAccount(cluster *v1alpha1.EtcdCluster) *corev1ac.ServiceAccountApplyConfiguration {
	return corev1ac.ServiceAccount(AgentName(cluster.Name), cluster.Namespace).
		WithLabels(labelled(cluster, Labels(cluster.Name))).
		WithAnnotations(annotated(cluster, nil)).
		WithOwnerReferences(ownerReference(cluster)).
		WithAutomountServiceAccountToken(false)
}

// agentRole lets the agents read and write the Leases of their own cluster by name. They may not create Leases: a
// missing Lease must stay missing until druid, which knows its content, creates it again. They may not list Leases.
// They may watch only the record and the two Leases by which druid requests backups. The agent next to the leader
// watches these. They change seldom, and by name the API server serves these few watchers without checking all
// renewals.
func agentRole(cluster *v1alpha1.EtcdCluster, members []string) *rbacv1ac.RoleApplyConfiguration {
	names := append([]string{leases.RecordName(cluster.Name), leases.LeaderName(cluster.Name)}, slices.Sorted(slices.Values(members))...)
	watched := []string{leases.RecordName(cluster.Name)}
	if cluster.Spec.Backup != nil {
		snapshots := []string{leases.FullSnapshotName(cluster.Name), leases.DeltaSnapshotName(cluster.Name)}
		names, watched = append(names, snapshots...), append(watched, snapshots...)
	}
	return rbacv1ac.Role(AgentName(cluster.Name), cluster.Namespace).
		WithLabels(labelled(cluster, Labels(cluster.Name))).
		WithAnnotations(annotated(cluster, nil)).
		WithOwnerReferences(ownerReference(cluster)).
		WithRules(rbacv1ac.PolicyRule().
			WithAPIGroups(coordinationv1.GroupName).
			WithResources("leases").
			WithResourceNames(names...).
			WithVerbs("get", "update", "patch"),
			rbacv1ac.PolicyRule().
				WithAPIGroups(coordinationv1.GroupName).
				WithResources("leases").
				WithResourceNames(watched...).
				WithVerbs("watch"))
}

func agentRoleBinding(cluster *v1alpha1.EtcdCluster) *rbacv1ac.RoleBindingApplyConfiguration {
	name := AgentName(cluster.Name)
	return rbacv1ac.RoleBinding(name, cluster.Namespace).
		WithLabels(labelled(cluster, Labels(cluster.Name))).
		WithAnnotations(annotated(cluster, nil)).
		WithOwnerReferences(ownerReference(cluster)).
		WithRoleRef(rbacv1ac.RoleRef().WithAPIGroup(rbacv1.GroupName).WithKind("Role").WithName(name)).
		WithSubjects(rbacv1ac.Subject().WithKind(rbacv1.ServiceAccountKind).WithName(name).WithNamespace(cluster.Namespace))
}

// DisruptionBudget returns the PodDisruptionBudget that prevents evictions of more voters than the cluster can lose.
// minAvailable is the number of voters that must stay. It is not a percentage, because Kubernetes computes a
// percentage of spec.replicas, and would allow the eviction of every voter at once when the user reduces that number.
// explanation is the sentence in AnnotationEvictions. A budget without one does not have the annotation.
func DisruptionBudget(cluster *v1alpha1.EtcdCluster, minAvailable int32, explanation string) (Applied, error) {
	var own map[string]string
	if explanation != "" {
		own = map[string]string{AnnotationEvictions: explanation}
	}
	return applied(policyv1ac.PodDisruptionBudget(DisruptionBudgetName(cluster.Name), cluster.Namespace).
		WithLabels(labelled(cluster, Labels(cluster.Name))).
		WithAnnotations(annotated(cluster, own)).
		WithOwnerReferences(ownerReference(cluster)).
		WithSpec(policyv1ac.PodDisruptionBudgetSpec().
			WithMinAvailable(intstr.FromInt32(minAvailable)).
			WithUnhealthyPodEvictionPolicy(policyv1.IfHealthyBudget).
			WithSelector(metav1ac.LabelSelector().WithMatchLabels(map[string]string{
				LabelClusterUID: string(cluster.UID),
				LabelVoter:      LabelTrue,
			}))))
}

// RecordLease returns the Lease of the cluster record when it is created, or created again after it was lost.
func RecordLease(cluster *v1alpha1.EtcdCluster, record leases.Record) (*coordinationv1.Lease, error) {
	lease := sharedLease(cluster, leases.RecordName(cluster.Name), leases.ComponentRecord)
	if err := record.Encode(lease); err != nil {
		return nil, fmt.Errorf("cluster record %s/%s: %w", lease.Namespace, lease.Name, err)
	}
	return lease, nil
}

// LeaderLease returns the Lease for the election among the agents next to the raft leader.
func LeaderLease(cluster *v1alpha1.EtcdCluster) *coordinationv1.Lease {
	return sharedLease(cluster, leases.LeaderName(cluster.Name), leases.ComponentLeader)
}

// MemberLease returns the Lease of a member that was never in a cluster. It has no holder until the member's agent
// writes one.
func MemberLease(cluster *v1alpha1.EtcdCluster, member string) *coordinationv1.Lease {
	return &coordinationv1.Lease{ObjectMeta: owned(cluster, member, MemberLabels(cluster.Name, member))}
}

// SnapshotLease returns the Lease in which the leader's agent reports full or delta backups, before the first report.
// Until then, it is valid as long as the first backup may take.
func SnapshotLease(cluster *v1alpha1.EtcdCluster, component leases.Component) (*coordinationv1.Lease, error) {
	backup, err := Backup(cluster)
	if err != nil || backup == nil {
		return nil, err
	}
	name, duration := leases.FullSnapshotName(cluster.Name), config.FullGrace
	if component == leases.ComponentDeltaSnapshot {
		name, duration = leases.DeltaSnapshotName(cluster.Name), backup.DeltaLeaseDuration()
	}
	lease := sharedLease(cluster, name, component)
	lease.Spec.LeaseDurationSeconds = new(int32(duration / time.Second))
	return lease, nil
}

func sharedLease(cluster *v1alpha1.EtcdCluster, name string, component leases.Component) *coordinationv1.Lease {
	labels := Labels(cluster.Name)
	labels[leases.LabelComponent] = string(component)
	return &coordinationv1.Lease{ObjectMeta: owned(cluster, name, labels)}
}

// owned returns the metadata of an object that Kubernetes deletes with the EtcdCluster.
func owned(cluster *v1alpha1.EtcdCluster, name string, labels map[string]string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name:            name,
		Namespace:       cluster.Namespace,
		Labels:          labelled(cluster, labels),
		Annotations:     annotated(cluster, nil),
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(cluster, kind)},
	}
}
