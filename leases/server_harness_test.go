package leases_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/test/env"
)

// maxWait is the timeout for operations that take a second on an idle machine.
const maxWait = 2 * time.Minute

// server is a namespace of a real kube-apiserver with the Leases of a cluster and an agent with the permissions of
// agents.
type server struct {
	t         *testing.T
	admin     *kubernetes.Clientset
	agent     *rest.Config
	namespace string
	store     *leases.Store
}

func newServer(t *testing.T) *server {
	t.Helper()
	config := env.APIServer(t)
	s := &server{t: t, admin: kubernetes.NewForConfigOrDie(config), namespace: env.Namespace(t, config)}
	s.agent = rest.CopyConfig(config)
	s.agent.ContentType = "application/vnd.kubernetes.protobuf"
	s.agent.Impersonate = rest.ImpersonationConfig{UserName: "agent", Groups: []string{"system:authenticated"}}
	s.grant("get", "update", "patch")
	s.store = leases.NewStore(s.client(s.agent), "demo").WithTimeout(maxWait)
	return s
}

func (s *server) client(config *rest.Config) leases.Client {
	s.t.Helper()
	client, err := leases.NewClient(config, s.namespace)
	if err != nil {
		s.t.Fatal(err)
	}
	return client
}

// grant gives the agent the permissions of a member's agent: verbs on the Leases of its cluster, by name.
func (s *server) grant(verbs ...string) {
	s.t.Helper()
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "agent"}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: verbs,
		ResourceNames: []string{"demo-cluster", "demo-leader", "demo-a", "demo-b", "demo-full-snapshot", "demo-delta-snapshot"},
	}}}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "agent"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "agent"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "agent"}},
	}
	_, err1 := s.admin.RbacV1().Roles(s.namespace).Create(s.t.Context(), role, metav1.CreateOptions{})
	_, err2 := s.admin.RbacV1().RoleBindings(s.namespace).Create(s.t.Context(), binding, metav1.CreateOptions{})
	if err := errors.Join(err1, err2); err != nil {
		s.t.Fatal(err)
	}
	s.eventually("the grant holds", func() bool {
		_, err := s.client(s.agent).Get(s.t.Context(), "demo-a", metav1.GetOptions{})
		return !errors.Is(err, leases.ErrForbidden) && (err == nil || !isForbidden(err))
	})
}

func isForbidden(err error) bool {
	var status interface{ Status() metav1.Status }
	return errors.As(err, &status) && status.Status().Code == 403
}

func (s *server) make(name string, fill func(*coordinationv1.Lease)) {
	s.t.Helper()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}}
	fill(lease)
	if _, err := s.admin.CoordinationV1().Leases(s.namespace).Create(s.t.Context(), lease, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *server) edit(name string, change func(*coordinationv1.Lease)) {
	s.t.Helper()
	s.eventually("an edit of "+name+" between two renewals", func() bool {
		lease := s.get(name)
		change(lease)
		_, err := s.admin.CoordinationV1().Leases(s.namespace).Update(s.t.Context(), lease, metav1.UpdateOptions{})
		if err != nil && !apierrors.IsConflict(err) {
			s.t.Fatal(err)
		}
		return err == nil
	})
}

func (s *server) get(name string) *coordinationv1.Lease {
	s.t.Helper()
	lease, err := s.admin.CoordinationV1().Leases(s.namespace).Get(s.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	return lease
}

func (s *server) eventually(what string, condition func() bool) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), maxWait)
	defer cancel()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for !condition() {
		select {
		case <-ctx.Done():
			s.t.Fatalf("not within %s: %s", maxWait, what)
		case <-ticker.C:
		}
	}
}

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

// watching lets the agent watch the record and no other Lease.
func (s *server) watching() {
	s.t.Helper()
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "watcher"}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"watch"},
		ResourceNames: []string{"demo-cluster"},
	}}}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "watcher"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "watcher"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "agent"}},
	}
	_, err1 := s.admin.RbacV1().Roles(s.namespace).Create(s.t.Context(), role, metav1.CreateOptions{})
	_, err2 := s.admin.RbacV1().RoleBindings(s.namespace).Create(s.t.Context(), binding, metav1.CreateOptions{})
	if err := errors.Join(err1, err2); err != nil {
		s.t.Fatal(err)
	}
}
