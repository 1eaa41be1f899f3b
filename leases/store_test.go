package leases_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/test/env"
	"github.com/etcd-druid/druid/test/machine"
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

func TestStoreOfARealServer(t *testing.T) {
	s := newServer(t)
	want := leases.Record{Phase: leases.PhaseForming, Seed: "demo-a", Epoch: 1, Members: []string{"demo-a"}}
	if _, _, err := s.store.Record(t.Context()); !errors.Is(err, leases.ErrAbsent) {
		t.Errorf("no record: %v, want ErrAbsent", err)
	}
	s.make("demo-cluster", func(l *coordinationv1.Lease) {
		l.Annotations = map[string]string{"someone.else/key": "stays"}
		if err := want.Encode(l); err != nil {
			t.Fatal(err)
		}
	})
	record, version, err := s.store.Record(t.Context())
	if diff := cmp.Diff(record, want); err != nil || diff != "" {
		t.Fatalf("%v (-got +want)\n%s", err, diff)
	}

	want.Phase, want.ClusterID, want.Nonce, want.Seed = leases.PhaseFormed, 0xabc, "n", ""
	next, err := s.store.UpdateRecord(t.Context(), version, want)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.store.UpdateRecord(t.Context(), version, leases.Record{Phase: leases.PhaseForming, Epoch: 9}); !errors.Is(err, leases.ErrConflict) {
		t.Errorf("a write over an old version: %v, want ErrConflict", err)
	}
	record, version, err = s.store.Record(t.Context())
	if diff := cmp.Diff(record, want); err != nil || diff != "" || version != next {
		t.Errorf("%v, version %s want %s (-got +want)\n%s", err, version, next, diff)
	}
	if s.get("demo-cluster").Annotations["someone.else/key"] != "stays" {
		t.Error("a foreign annotation was lost")
	}
	if _, err := s.store.UpdateRecord(t.Context(), "", want); err == nil {
		t.Error("a write without a version was made, want an error")
	}
	s.edit("demo-cluster", func(l *coordinationv1.Lease) { delete(l.Annotations, leases.Prefix+"phase") })
	if _, _, err := s.store.Record(t.Context()); !errors.Is(err, leases.ErrUnreadable) {
		t.Errorf("a record without a phase: %v, want ErrUnreadable", err)
	}
	if _, err := s.store.Member(t.Context(), "other"); !errors.Is(err, leases.ErrForbidden) {
		t.Errorf("a Lease that is not ours: %v, want ErrForbidden", err)
	}
}

func TestWhatIsOutOfReachIsUnknown(t *testing.T) {
	// The test owns this address, and no server listens on it.
	client, err := leases.NewClient(&rest.Config{Host: "http://" + machine.Address(t)}, "ns")
	if err != nil {
		t.Fatal(err)
	}
	_, err = leases.NewStore(client, "demo").Member(t.Context(), "demo-a")
	for _, known := range []error{leases.ErrAbsent, leases.ErrForbidden, leases.ErrUnreadable, leases.ErrConflict} {
		if errors.Is(err, known) {
			t.Errorf("%v is %v, want none of the answers", err, known)
		}
	}
	if err == nil {
		t.Error("got none, want an error")
	}
}

func TestRenewerOnARealServer(t *testing.T) {
	s := newServer(t)
	s.make("demo-a", func(l *coordinationv1.Lease) { l.Annotations = map[string]string{leases.AnnotationPodUID: "mine"} })
	settings := func() leases.Settings { return leases.Settings{Interval: time.Second, Duration: 3 * time.Second} }
	r := leases.NewRenewer(s.store, "demo-a", "mine", settings, discard())
	r.Publish(leases.Fact{Alive: true, Member: leases.Member{ID: 1, Role: leases.RoleMember, ClusterID: 2}})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	s.eventually("the Lease is held and renewed", func() bool {
		l := s.get("demo-a")
		return l.Spec.RenewTime != nil && *l.Spec.HolderIdentity == "1:Member" && *l.Spec.LeaseDurationSeconds == 3
	})
	const mark = `{"state":"requested","mark":"x7k2p"}`
	s.edit("demo-a", func(l *coordinationv1.Lease) { l.Annotations[leases.AnnotationRemoval] = mark })
	s.eventually("the mark is read and still there", func() bool {
		m, _, _ := r.Lease()
		return m.Removal.State == leases.RemovalRequested && s.get("demo-a").Annotations[leases.AnnotationRemoval] == mark
	})
	s.edit("demo-a", func(l *coordinationv1.Lease) {
		nonsense := "no one knows"
		l.Spec.HolderIdentity = &nonsense
	})
	s.eventually("nonsense is written over, and the mark is still there", func() bool {
		l := s.get("demo-a")
		return *l.Spec.HolderIdentity == "1:Member" && l.Annotations[leases.AnnotationRemoval] == mark
	})
	if err := s.admin.RbacV1().RoleBindings(s.namespace).Delete(t.Context(), "agent", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.eventually("renewals are refused", func() bool { _, known, _ := r.Lease(); return !known })
	before := s.get("demo-a").Spec.RenewTime
	if err := s.admin.RbacV1().Roles(s.namespace).Delete(t.Context(), "agent", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.grant("get", "update", "patch")
	s.eventually("renewals go on", func() bool { return !s.get("demo-a").Spec.RenewTime.Equal(before) })
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run: %v", err)
	}
}

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

func TestMarkIsComparedAndSet(t *testing.T) {
	s := newServer(t)
	s.make("demo-a", func(l *coordinationv1.Lease) {
		holder := "1:Member"
		l.Spec.HolderIdentity = &holder
		l.Annotations = map[string]string{leases.AnnotationPodUID: "mine", "someone.else/key": "stays"}
	})
	before, err := s.store.Marks(t.Context(), "demo-a")
	if err != nil || before.Removal.State != leases.RemovalNone {
		t.Fatalf("%+v, %v: want no mark", before, err)
	}
	requested := leases.RemovalRequest{State: leases.RemovalRequested, Mark: "x7k2p"}
	asked, err := s.store.RequestRemoval(t.Context(), "demo-a", before.LeaseVersion, requested)
	if err != nil || asked.Removal != requested {
		t.Fatalf("%+v, %v: want %+v", asked, err, requested)
	}
	claimed := leases.RemovalRequest{State: leases.RemovalBegun, Mark: "x7k2p", By: "pod", MemberID: "1", ClusterID: "c"}
	if _, err := s.store.RequestRemoval(t.Context(), "demo-a", before.LeaseVersion, claimed); !errors.Is(err, leases.ErrConflict) {
		t.Errorf("over an old version: %v, want ErrConflict", err)
	}
	if _, err := s.store.RequestRemoval(t.Context(), "demo-a", "", claimed); err == nil {
		t.Error("a mark was written without a version, want an error")
	}
	if _, err := s.store.RequestRemoval(t.Context(), "demo-a", asked.LeaseVersion, leases.RemovalRequest{State: leases.RemovalDone, Mark: "x"}); err == nil {
		t.Error("half an acknowledgement was written, want an error")
	}
	if _, err := s.store.RequestRemoval(t.Context(), "demo-a", asked.LeaseVersion, leases.RemovalRequest{}); err != nil {
		t.Fatal(err)
	}
	member, err := s.store.Member(t.Context(), "demo-a")
	if err != nil || member.Removal != (leases.RemovalRequest{}) || member.ID != 1 || member.PodUID != "mine" {
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

func TestBackupsOnARealServer(t *testing.T) {
	s := newServer(t)
	if err := s.store.RenewBackup(t.Context(), leases.ComponentDeltaSnapshot, leases.BackupPatch{}); !errors.Is(err, leases.ErrAbsent) {
		t.Errorf("a Lease that no one made: %v, want ErrAbsent", err)
	}
	s.make("demo-full-snapshot", func(l *coordinationv1.Lease) { l.Spec.LeaseDurationSeconds = new(int32(3600)) })
	b, err := s.store.Backup(t.Context(), leases.ComponentFullSnapshot)
	if err != nil || b.EverSaved() {
		t.Errorf("before the first: %+v %v", b, err)
	}
	now := time.Now()
	saved := leases.Backup{Revision: 7, Lineage: "00000001-a", Object: "full", Size: 1, SHA256: "ab", Taken: now.UTC().Truncate(time.Second)}
	for range 2 { // it compares nothing
		err := s.store.RenewBackup(t.Context(), leases.ComponentFullSnapshot, leases.BackupPatch{Backup: saved, RenewTime: &now, Duration: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
	}
	if b, err = s.store.Backup(t.Context(), leases.ComponentFullSnapshot); err != nil || b != saved {
		t.Errorf("after it: %+v %v, want %+v", b, err, saved)
	}
	if l := s.get("demo-full-snapshot"); *l.Spec.HolderIdentity != "7" || *l.Spec.LeaseDurationSeconds != 3600 {
		t.Errorf("the Lease says %+v", l.Spec)
	}
	if _, err := s.store.Backup(t.Context(), leases.ComponentDeltaSnapshot); !errors.Is(err, leases.ErrAbsent) {
		t.Errorf("a Lease that is not there: %v, want ErrAbsent", err)
	}
}

func TestOrdersOnARealServer(t *testing.T) {
	s := newServer(t)
	s.make("demo-full-snapshot", func(*coordinationv1.Lease) {})
	order, err := s.store.SnapshotOrder(t.Context(), leases.ComponentFullSnapshot)
	if err != nil || order.Open() || order.UID != "" {
		t.Errorf("without an order: %+v %v", order, err)
	}
	s.edit("demo-full-snapshot", func(l *coordinationv1.Lease) {
		l.Annotations = map[string]string{leases.AnnotationSnapshotOrder: "one"}
	})
	if order, err = s.store.SnapshotOrder(t.Context(), leases.ComponentFullSnapshot); err != nil || !order.Open() || order.UID != "one" {
		t.Errorf("with an order: %+v %v", order, err)
	}
	now := time.Now().UTC().Truncate(time.Second)
	answer := leases.SnapshotAnswer{
		UID: "one", Phase: leases.SnapshotSucceeded, Started: now, Finished: now, Object: "full", Size: 1, SHA256: "ab", Revision: 7,
		URI: "s3://b/full", StorageVersion: "3.6.0",
	}
	if err := s.store.AnswerSnapshot(t.Context(), leases.ComponentFullSnapshot, order.Version, answer); err != nil {
		t.Fatal(err)
	}
	if err := s.store.AnswerSnapshot(t.Context(), leases.ComponentFullSnapshot, order.Version, answer); !errors.Is(err, leases.ErrConflict) {
		t.Errorf("over an old version: %v, want ErrConflict", err)
	}
	if err := s.store.AnswerSnapshot(t.Context(), leases.ComponentFullSnapshot, "", answer); err == nil {
		t.Error("answered without a version, want an error")
	}
	if order, err = s.store.SnapshotOrder(t.Context(), leases.ComponentFullSnapshot); err != nil || order.Open() || order.Answer != answer {
		t.Errorf("answered: %+v %v, want %+v", order, err, answer)
	}
	s.edit("demo-full-snapshot", func(l *coordinationv1.Lease) {
		l.Annotations[leases.AnnotationSnapshotOrderKind] = leases.OrderKind(leases.SnapshotFinal, "zero")
	})
	if order, err = s.store.SnapshotOrder(t.Context(), leases.ComponentFullSnapshot); err != nil || order.Kind != "" || order.Answer != answer {
		t.Errorf("with the kind of another order: %+v %v", order, err)
	}
	s.edit("demo-full-snapshot", func(l *coordinationv1.Lease) {
		l.Annotations[leases.AnnotationSnapshotOrderKind] = leases.OrderKind(leases.SnapshotFinal, "one")
	})
	// The answer of an agent that does not know kinds does not count: an agent that knows them performs the request.
	order, err = s.store.SnapshotOrder(t.Context(), leases.ComponentFullSnapshot)
	if err != nil || !order.Open() || order.Kind != leases.SnapshotFinal || order.Answer != (leases.SnapshotAnswer{}) {
		t.Errorf("of another kind: %+v %v", order, err)
	}
	answer.Kind = leases.SnapshotFinal
	if err := s.store.AnswerSnapshot(t.Context(), leases.ComponentFullSnapshot, order.Version, answer); err != nil {
		t.Fatal(err)
	}
	if order, err = s.store.SnapshotOrder(t.Context(), leases.ComponentFullSnapshot); err != nil || order.Open() || order.Answer != answer {
		t.Errorf("of its kind: %+v %v, want %+v", order, err, answer)
	}
	for name, annotation := range map[string]string{
		"another's": `{"uid":"two","phase":"Succeeded"}`, "of no phase": `{"uid":"one","phase":"Done"}`, "no answer": "yes", "nothing": "",
	} {
		s.edit("demo-full-snapshot", func(l *coordinationv1.Lease) { l.Annotations[leases.AnnotationSnapshotAnswer] = annotation })
		order, err := s.store.SnapshotOrder(t.Context(), leases.ComponentFullSnapshot)
		if err != nil || !order.Open() || order.Answer != (leases.SnapshotAnswer{}) {
			t.Errorf("%s answers: %+v %v", name, order, err)
		}
	}
}

func TestOrdersAreWrittenAndRemovedWhole(t *testing.T) {
	s := newServer(t)
	s.make("demo-full-snapshot", func(l *coordinationv1.Lease) { l.Annotations = map[string]string{"other": "stays"} })
	read := func() leases.SnapshotOrder {
		t.Helper()
		order, err := s.store.SnapshotOrder(t.Context(), leases.ComponentFullSnapshot)
		if err != nil {
			t.Fatal(err)
		}
		return order
	}
	want := leases.SnapshotTarget{URI: "s3://b/full"}
	before := read()
	if err := s.store.OrderSnapshot(t.Context(), leases.ComponentFullSnapshot, before.Version, "one", leases.SnapshotDelete, &want); err != nil {
		t.Fatal(err)
	}
	order := read()
	if target, err := order.Target(); order.UID != "one" || order.Kind != leases.SnapshotDelete || target != want || err != nil {
		t.Errorf("ordered %+v of %+v, %v", order, target, err)
	}
	for name, write := range map[string]func(leases.Version) error{
		"an order": func(at leases.Version) error {
			return s.store.OrderSnapshot(t.Context(), leases.ComponentFullSnapshot, at, "two", "", nil)
		},
		"a removal": func(at leases.Version) error {
			return s.store.ClearSnapshotOrder(t.Context(), leases.ComponentFullSnapshot, at)
		},
	} {
		if err := write(before.Version); !errors.Is(err, leases.ErrConflict) {
			t.Errorf("%s over an old version: %v, want ErrConflict", name, err)
		}
		if err := write(""); err == nil {
			t.Errorf("%s without a version, want an error", name)
		}
	}
	answer := leases.SnapshotAnswer{UID: "one", Kind: leases.SnapshotDelete, Phase: leases.SnapshotSucceeded}
	if err := s.store.AnswerSnapshot(t.Context(), leases.ComponentFullSnapshot, read().Version, answer); err != nil {
		t.Fatal(err)
	}
	// Nothing of an order or its answer is left to the next one.
	if err := s.store.OrderSnapshot(t.Context(), leases.ComponentFullSnapshot, read().Version, "two", "", nil); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"other": "stays", leases.AnnotationSnapshotOrder: "two"}, s.get("demo-full-snapshot").Annotations); diff != "" {
		t.Errorf("the next order (-want +got)\n%s", diff)
	}
	if err := s.store.ClearSnapshotOrder(t.Context(), leases.ComponentFullSnapshot, read().Version); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"other": "stays"}, s.get("demo-full-snapshot").Annotations); diff != "" {
		t.Errorf("removed (-want +got)\n%s", diff)
	}
}

// What druid writes on a Lease is a compare-and-set that leaves everything else on the Lease unchanged.
func TestDruidsAnnotationsAreWrittenByCompareAndSet(t *testing.T) {
	order, repairing := leases.UpgradeOrder{Nonce: "one", Version: "3.6.5"}, leases.Repairing{Restarts: 2}
	encodedOrder, err1 := order.Encode()
	encodedRepairing, err2 := repairing.Encode()
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	s := newServer(t)
	for name, test := range map[string]struct {
		lease        string
		write, clear func(leases.Version) error // clear is nil for what is never removed
		want         map[string]string
	}{
		"the Pod and the volume of a member": {
			lease: "demo-a",
			write: func(at leases.Version) error { return s.store.BindMember(t.Context(), "demo-a", at, "pod", "volume") },
			want:  map[string]string{leases.AnnotationPodUID: "pod", leases.AnnotationVolumeUID: "volume"},
		},
		"the repair of a member": {
			lease: "demo-b",
			write: func(at leases.Version) error { return s.store.AnnounceRepair(t.Context(), "demo-b", at, repairing) },
			clear: func(at leases.Version) error {
				return s.store.AnnounceRepair(t.Context(), "demo-b", at, leases.Repairing{})
			},
			want: map[string]string{leases.AnnotationRepairing: encodedRepairing},
		},
		"an upgrade": {
			lease: leases.RecordName("demo"),
			write: func(at leases.Version) error { return s.store.OrderUpgrade(t.Context(), at, order) },
			clear: func(at leases.Version) error { return s.store.OrderUpgrade(t.Context(), at, leases.UpgradeOrder{}) },
			want:  map[string]string{leases.AnnotationUpgradeOrder: encodedOrder},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s.make(test.lease, func(l *coordinationv1.Lease) {
				l.Annotations = map[string]string{"other": "stays", leases.AnnotationUpgradeAnswer: "of an earlier order"}
			})
			if test.lease != leases.RecordName("demo") {
				test.want[leases.AnnotationUpgradeAnswer] = "of an earlier order"
			}
			test.want["other"] = "stays"
			before := leases.Version(s.get(test.lease).ResourceVersion)
			if err := test.write(before); err != nil {
				t.Fatal(err)
			}
			if err := test.write(""); err == nil {
				t.Error("written without a version, want an error")
			}
			s.edit(test.lease, func(l *coordinationv1.Lease) { l.Labels = map[string]string{"edited": "true"} })
			if err := test.write(before); !errors.Is(err, leases.ErrConflict) {
				t.Errorf("over an old version: %v, want ErrConflict", err)
			}
			if diff := cmp.Diff(test.want, s.get(test.lease).Annotations); diff != "" {
				t.Errorf("written (-want +got)\n%s", diff)
			}
			if test.clear == nil {
				return
			}
			if err := test.clear(leases.Version(s.get(test.lease).ResourceVersion)); err != nil {
				t.Fatal(err)
			}
			for key := range s.get(test.lease).Annotations {
				if key == leases.AnnotationRepairing || key == leases.AnnotationUpgradeOrder {
					t.Errorf("%s is still there", key)
				}
			}
		})
	}
}

func TestATargetIsOfItsOrderAlone(t *testing.T) {
	want := leases.SnapshotTarget{URI: "s3://b/demo/full/1.zst"}
	of, err := leases.OrderTarget(want, "one")
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		uid, target string
		readable    bool
	}{
		"its own":          {"one", of, true},
		"another order's":  {"two", of, false},
		"none":             {"one", "", false},
		"half of it":       {"one", of[:len(of)-1], false},
		"of a later druid": {"one", `one/{"uri":"a","unless":"b"}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			var lease coordinationv1.Lease
			lease.Annotations = map[string]string{leases.AnnotationSnapshotOrder: test.uid, leases.AnnotationSnapshotOrderTarget: test.target}
			got, err := leases.DecodeSnapshotOrder(&lease).Target()
			switch {
			case !test.readable && !errors.Is(err, leases.ErrUnreadable):
				t.Errorf("got %+v, %v", got, err)
			case test.readable && (err != nil || cmp.Diff(want, got) != ""):
				t.Errorf("%v (-want +got)\n%s", err, cmp.Diff(want, got))
			}
		})
	}
}
