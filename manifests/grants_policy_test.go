package manifests

import (
	"encoding/json"
	"errors"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/test/env"
)

// roleAttempts are what an owner of druid's token could grant with the Role of the agents.
var roleAttempts = map[string]func(*rbacv1.Role){
	"Secrets": func(r *rbacv1.Role) {
		r.Rules = append(r.Rules, rule("", "secrets", []string{"patch"}, "demo-leader"))
	},
	"Services of the names of Leases": func(r *rbacv1.Role) {
		r.Rules[0].APIGroups, r.Rules[0].Resources, r.Rules[0].Verbs = []string{""}, []string{"services"}, []string{"patch"}
	},
	"all Leases":                   func(r *rbacv1.Role) { r.Rules[0].ResourceNames = nil },
	"a Lease of others":            func(r *rbacv1.Role) { r.Rules[0].ResourceNames = []string{"bank-leader"} },
	"a Lease that no member has":   func(r *rbacv1.Role) { r.Rules[0].ResourceNames = []string{"demo-controller-manager"} },
	"the deletion of Leases":       func(r *rbacv1.Role) { r.Rules[0].Verbs = []string{"delete"} },
	"more, with a Role of no name": func(r *rbacv1.Role) { r.Name, r.GenerateName = "", "demo-agent" },
	"more, with another Role":      func(r *rbacv1.Role) { r.Name = "demo-agents" },
}

// bindingAttempts are to what and to whom an owner of druid's token could bind permissions.
var bindingAttempts = map[string]func(*rbacv1.RoleBinding){
	"the permissions of druid": func(b *rbacv1.RoleBinding) { b.RoleRef.Kind, b.RoleRef.Name = "ClusterRole", "druid" },
	"the permissions of druid to another": func(b *rbacv1.RoleBinding) {
		b.RoleRef.Kind, b.RoleRef.Name, b.Subjects[0].Name = "ClusterRole", "druid", "default"
	},
	"the Role of the agents to a user": func(b *rbacv1.RoleBinding) {
		b.Subjects = []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: b.Name}}
	},
	"the Role of the agents to a user with a namespace": func(b *rbacv1.RoleBinding) {
		b.Subjects[0].Kind, b.Subjects[0].APIGroup = rbacv1.UserKind, rbacv1.GroupName
	},
	"a ClusterRole of the name of their Role": func(b *rbacv1.RoleBinding) { b.RoleRef.Kind = "ClusterRole" },
	"the Role of the agents to a group": func(b *rbacv1.RoleBinding) {
		b.Subjects = append(b.Subjects, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "system:serviceaccounts"})
	},
	"the Role of the agents to another ServiceAccount":      func(b *rbacv1.RoleBinding) { b.Subjects[0].Name = "default" },
	"the Role of the agents to one of another namespace":    func(b *rbacv1.RoleBinding) { b.Subjects[0].Namespace = "default" },
	"the Role of the agents by a RoleBinding of a new name": func(b *rbacv1.RoleBinding) { b.Name = "demo-agents" },
	"another Role": func(b *rbacv1.RoleBinding) { b.RoleRef.Name = "other-agent" },
}

// A stolen token of druid grants agents their Leases, and grants nothing else to anyone.
func TestATokenOfDruidGrantsNothing(t *testing.T) {
	in := install(t, env.APIServer(t))
	namespace := env.Namespace(t, in.config)
	role, binding := in.agentsPermissions(t, namespace)
	for _, object := range []client.Object{role.DeepCopy(), binding.DeepCopy()} {
		if err := in.druid.Create(t.Context(), object); err != nil {
			t.Fatalf("create the %T of the agents: %v", object, err)
		}
	}
	others := []*rbacv1.Role{role.DeepCopy(), role.DeepCopy()} // druid has their permissions, so Kubernetes lets it bind them
	others[0].Name, others[1].Name = "other-agent", "demo-agents"
	for _, other := range others {
		if err := in.admin.Create(t.Context(), other); err != nil {
			t.Fatal(err)
		}
	}
	forbidden := role.DeepCopy()
	forbidden.Rules = nil
	forbidden.Name = "forbidden"
	inForce(t, "druid-objects", func() error { return in.druid.Create(t.Context(), forbidden.DeepCopy(), client.DryRunAll) })
	elsewhere := []string{env.Namespace(t, in.config), metav1.NamespaceSystem}
	for what, change := range roleAttempts {
		for _, namespace := range elsewhere {
			role, _ := in.agentsPermissions(t, namespace)
			change(role)
			if err := in.druid.Create(t.Context(), role, client.DryRunAll); !refusedBy("druid-objects", err) {
				t.Errorf("create in %s a Role that grants %s: %v, want a refusal by the policy", namespace, what, err)
			}
		}
		changed := role.DeepCopy()
		if change(changed); changed.Name != role.Name {
			continue
		}
		if err := in.druid.Patch(t.Context(), changed, client.MergeFrom(role), client.DryRunAll); !refusedBy("druid-objects", err) {
			t.Errorf("change the Role of the agents so that it grants %s: %v, want a refusal by the policy", what, err)
		}
	}
	for what, change := range bindingAttempts {
		bound := binding.DeepCopy()
		if change(bound); bound.RoleRef == binding.RoleRef && bound.Name == binding.Name {
			if err := in.druid.Patch(t.Context(), bound, client.MergeFrom(binding), client.DryRunAll); !refusedBy("druid-objects", err) {
				t.Errorf("change the RoleBinding of the agents so that it grants %s: %v, want a refusal by the policy", what, err)
			}
		}
		for _, namespace := range elsewhere {
			_, binding := in.agentsPermissions(t, namespace)
			change(binding)
			in.refusesBinding(t, binding, what)
		}
	}
}

// refusesBinding tries to create a RoleBinding, where there are a Role and a ClusterRole of the name in it.
func (in *installed) refusesBinding(t *testing.T, binding *rbacv1.RoleBinding, what string) {
	t.Helper()
	if binding.RoleRef.Name != "druid" {
		role, _ := in.agentsPermissions(t, binding.Namespace)
		role.Name = binding.RoleRef.Name
		clusterRole := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: role.Name}, Rules: role.Rules}
		for _, object := range []client.Object{role, clusterRole} {
			if err := client.IgnoreAlreadyExists(in.admin.Create(t.Context(), object)); err != nil {
				t.Fatal(err)
			}
		}
		await(t, "druid cannot bind the Role", func() (bool, error) {
			err := in.druid.Create(t.Context(), binding.DeepCopy(), client.DryRunAll)
			return err == nil || refusedBy("druid-objects", err), err
		})
	}
	if err := in.druid.Create(t.Context(), binding, client.DryRunAll); !refusedBy("druid-objects", err) {
		t.Errorf("create in %s a RoleBinding that grants %s: %v, want a refusal by the policy", binding.Namespace, what, err)
	}
}

// agentsPermissions returns the Role and the RoleBinding that druid makes for the agents, as if the cluster were in the namespace.
func (in *installed) agentsPermissions(t *testing.T, namespace string) (*rbacv1.Role, *rbacv1.RoleBinding) {
	t.Helper()
	cluster := full()
	cluster.ObjectMeta = metav1.ObjectMeta{Name: "demo", Namespace: namespace, UID: in.cluster.UID}
	role, binding := &rbacv1.Role{}, &rbacv1.RoleBinding{}
	for object, made := range map[client.Object]any{role: agentRole(cluster, []string{member, lost}), binding: agentRoleBinding(cluster)} {
		raw, err := json.Marshal(made)
		if err := errors.Join(err, json.Unmarshal(raw, object)); err != nil {
			t.Fatal(err)
		}
	}
	return role, binding
}
