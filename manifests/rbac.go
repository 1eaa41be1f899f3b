package manifests

import (
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	rbacv1ac "k8s.io/client-go/applyconfigurations/rbac/v1"

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

// agentRole lets the agents read and write the Leases of their own cluster by name. They may not create one (a Lease that
// is missing must stay missing until druid, who knows what it said, makes it again), nor list them. Of all only the record,
// and the two on which druid asks for backups, may be watched, which the agent next to the leader does: they change seldom,
// and by name the API server finds their few watchers without looking at the renewals of all the others.
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
