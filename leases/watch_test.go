package leases_test

import (
	"context"
	"errors"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/leases"
)

func TestMarkIsComparedAndSet(t *testing.T) {
	s := newServer(t)
	s.make("demo-a", func(l *coordinationv1.Lease) {
		holder := "1:Member"
		l.Spec.HolderIdentity = &holder
		l.Annotations = map[string]string{leases.AnnotationPodUID: "mine", "someone.else/key": "stays"}
	})
	before, err := s.store.Marks(t.Context(), "demo-a")
	if err != nil || before.Retire.State != leases.RetireNone {
		t.Fatalf("%+v, %v: want no mark", before, err)
	}
	requested := leases.Retirement{State: leases.RetireRequested, Mark: "x7k2p"}
	asked, err := s.store.Retire(t.Context(), "demo-a", before.LeaseVersion, requested)
	if err != nil || asked.Retire != requested {
		t.Fatalf("%+v, %v: want %+v", asked, err, requested)
	}
	claimed := leases.Retirement{State: leases.RetireRemoving, Mark: "x7k2p", By: "pod", MemberID: "1", ClusterID: "c"}
	if _, err := s.store.Retire(t.Context(), "demo-a", before.LeaseVersion, claimed); !errors.Is(err, leases.ErrConflict) {
		t.Errorf("over an old version: %v, want ErrConflict", err)
	}
	if _, err := s.store.Retire(t.Context(), "demo-a", "", claimed); err == nil {
		t.Error("a mark was written without a version, want an error")
	}
	if _, err := s.store.Retire(t.Context(), "demo-a", asked.LeaseVersion, leases.Retirement{State: leases.RetireDone, Mark: "x"}); err == nil {
		t.Error("half an acknowledgement was written, want an error")
	}
	if _, err := s.store.Retire(t.Context(), "demo-a", asked.LeaseVersion, leases.Retirement{}); err != nil {
		t.Fatal(err)
	}
	member, err := s.store.Member(t.Context(), "demo-a")
	if err != nil || member.Retire != (leases.Retirement{}) || member.ID != 1 || member.PodUID != "mine" {
		t.Errorf("%+v, %v: want the mark gone and the rest as it was", member, err)
	}
	if s.get("demo-a").Annotations["someone.else/key"] != "stays" {
		t.Error("a foreign annotation was lost")
	}
}

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

func TestRecordIsWatchedByName(t *testing.T) {
	s := newServer(t)
	if err := s.store.WatchRecord(t.Context(), func(leases.Version) {}); !errors.Is(err, leases.ErrForbidden) {
		t.Errorf("without the right: %v, want ErrForbidden", err)
	}
	s.watching()
	fill := func(l *coordinationv1.Lease) {
		if err := (leases.Record{Phase: leases.PhaseForming, Epoch: 1}).Encode(l); err != nil {
			t.Fatal(err)
		}
	}
	s.make("demo-cluster", fill)
	s.make("demo-a", func(*coordinationv1.Lease) {})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	versions, done := make(chan leases.Version), make(chan error, 1)
	go func() {
		for {
			err := s.store.WatchRecord(ctx, func(v leases.Version) {
				select {
				case versions <- v:
				case <-ctx.Done():
				}
			})
			if !errors.Is(err, leases.ErrForbidden) { // the right was given just now
				done <- err
				return
			}
		}
	}()
	next := func(what string) leases.Version {
		t.Helper()
		select {
		case v := <-versions:
			return v
		case err := <-done:
			t.Fatalf("%s: the watch ended: %v", what, err)
		case <-ctx.Done():
			t.Fatalf("%s: not within a minute", what)
		}
		return ""
	}
	if got, want := next("the present version"), leases.Version(s.get("demo-cluster").ResourceVersion); got != want {
		t.Errorf("first seen at %s, want %s", got, want)
	}
	s.edit("demo-a", func(l *coordinationv1.Lease) { l.Annotations = map[string]string{"renewed": "yes"} })
	s.edit("demo-cluster", func(l *coordinationv1.Lease) { l.Annotations["someone.else/key"] = "new" })
	if got, want := next("the change"), leases.Version(s.get("demo-cluster").ResourceVersion); got != want {
		t.Errorf("then seen at %s, want %s: nothing of another Lease", got, want)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v, want the context's end", err)
	}
}
