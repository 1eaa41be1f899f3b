package druid

import (
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/test/env"
)

// A druid for some namespaces has its ClusterRole there alone, and next to it only what it reads of things without a namespace.
func TestDruidWorksInTheNamespacesThatItIsGiven(t *testing.T) {
	first := newStage(t)
	first.user = "system:serviceaccount:druid-system:druid-of-" + first.namespace
	second, other := *first, *first
	second.namespace, other.namespace = env.Namespace(t, first.config), env.Namespace(t, first.config)
	first.may("druid-cluster", "")
	for _, s := range []*stage{first, &second} {
		s.may("druid", s.namespace)
	}
	first.startDruid(func(o *Options) { o.Namespaces = []string{first.namespace, second.namespace} })
	for _, s := range []*stage{first, &second, &other} {
		s.createCluster("demo", 3)
	}
	for _, s := range []*stage{first, &second} {
		names := s.members("demo", 3)
		s.form("demo", names)
		s.eventually("serve", s.served)
	}
	var cluster v1alpha1.EtcdCluster
	if err := other.fetch("demo", &cluster); err != nil || len(cluster.Status.Conditions) > 0 {
		t.Errorf("in another namespace the status is %+v, %v", cluster.Status, err)
	}
	for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE"} {
		if got := first.calls.matching(method, "/namespaces/"+other.namespace+"/"); len(got) > 0 {
			t.Errorf("in another namespace druid asked for %v", got)
		}
	}
}

// may binds the ClusterRole of the install to who druid is: in a namespace, or in all.
func (s *stage) may(role, namespace string) {
	s.Helper()
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}
	subjects := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: s.user}}
	name := metav1.ObjectMeta{Name: role + "-of-" + s.namespace, Namespace: namespace}
	var err error
	if namespace == "" {
		err = s.Create(s.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: name, RoleRef: ref, Subjects: subjects})
	} else {
		err = s.Create(s.Context(), &rbacv1.RoleBinding{ObjectMeta: name, RoleRef: ref, Subjects: subjects})
	}
	if err != nil {
		s.Fatal(err)
	}
}
