package agent_test

import (
	"fmt"
	"os"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	rbacv1ac "k8s.io/client-go/applyconfigurations/rbac/v1"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/manifests"
	"github.com/etcd-druid/druid/test/env"
)

// used are the rights that the agents of all tests used. The API server refuses what the Role of the agents does not grant, so an
// agent that lacks a right also fails its test.
var used env.Rights

// unasked are rights that only agents of an earlier release use. druid is upgraded before them, and its Role applies to both.
var unasked = []rbacv1.PolicyRule{
	// They campaign by client-go's election, which updates the Lease: see TestElectionAgreesWithThatOfClientGo.
	{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"update"}},
}

// checkRights compares the Role that druid creates for the agents of a cluster with the rights that the tests used. It returns the
// exit code.
func checkRights() int {
	granted, err := grantedRights()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	used.Add(unasked...)
	return used.Compare(granted, "the agent", "the Role of the agents")
}

// grantedRights are those of the Role of a cluster with backups, which grants the most.
func grantedRights() (*env.Rights, error) {
	cluster := &v1alpha1.EtcdCluster{}
	cluster.Name, cluster.Namespace, cluster.UID = "demo", "default", "cluster-uid"
	cluster.Spec.Backup = &v1alpha1.BackupSpec{Store: v1alpha1.BackupStore{Directory: &v1alpha1.DirectoryStore{HostPath: "/backups"}}}
	shared, err := manifests.Shared(cluster, leases.Record{Members: []string{member}}, manifests.Options{Reloadable: config.DefaultReloadable()})
	if err != nil {
		return nil, fmt.Errorf("create the Role of the agents: %w", err)
	}
	granted := &env.Rights{}
	for _, object := range shared {
		role, isRole := runtime.ApplyConfiguration(object.Configuration).(*rbacv1ac.RoleApplyConfiguration)
		if !isRole {
			continue
		}
		for _, rule := range role.Rules {
			granted.Add(rbacv1.PolicyRule{APIGroups: rule.APIGroups, Resources: rule.Resources, Verbs: rule.Verbs})
		}
	}
	return granted, nil
}
