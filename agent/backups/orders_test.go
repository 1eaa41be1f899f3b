package backups

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/backup/store/open"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

const (
	fullLease  = leases.ComponentFullSnapshot
	deltaLease = leases.ComponentDeltaSnapshot
)

// orderer writes orders as druid does.
type orderer struct {
	t         *testing.T
	admin     *kubernetes.Clientset
	namespace string
}

func (o orderer) store() *leases.Store {
	return leases.NewStore(o.admin.CoordinationV1().Leases(o.namespace), "demo")
}

// order writes an order on a Lease and deletes the answer to an earlier one.
func (o orderer) order(component leases.Component, uid string) {
	o.t.Helper()
	o.patchOrder(component, uid, "", leases.SnapshotTarget{})
}

func (o orderer) orderKind(component leases.Component, uid string, kind leases.SnapshotKind) {
	o.t.Helper()
	o.patchOrder(component, uid, kind, leases.SnapshotTarget{})
}

func (o orderer) patchOrder(component leases.Component, uid string, kind leases.SnapshotKind, target leases.SnapshotTarget) {
	o.t.Helper()
	about, err := leases.OrderTarget(target, uid)
	if err != nil {
		o.t.Fatal(err)
	}
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q,%q:%q,%q:%q,%q:null}}}`, leases.AnnotationSnapshotOrder, uid,
		leases.AnnotationSnapshotOrderKind, leases.OrderKind(kind, uid), leases.AnnotationSnapshotOrderTarget, about, leases.AnnotationSnapshotAnswer)
	_, err = o.admin.CoordinationV1().Leases(o.namespace).Patch(o.t.Context(), leases.SnapshotName("demo", component),
		types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		o.t.Fatal(err)
	}
}

// answered waits for the final answer.
func (o orderer) answered(component leases.Component, uid string, want leases.SnapshotPhase) (a leases.SnapshotAnswer) {
	o.t.Helper()
	eventually(o.t, "answer "+uid, func() error {
		got, err := o.store().SnapshotOrder(o.t.Context(), component)
		if err != nil || got.UID != uid || got.Open() {
			return fmt.Errorf("the Lease says %+v, %w", got, err)
		}
		a = got.Answer
		return nil
	})
	if a.Phase != want || a.Started.IsZero() || a.Finished.Before(a.Started) {
		o.t.Fatalf("answered %+v, want %s", a, want)
	}
	return a
}

// object returns the size of an object in the store.
func object(t *testing.T, s store.Store, key string) (size int64) {
	t.Helper()
	for o, err := range s.List(t.Context(), key) {
		if err != nil {
			t.Fatal(err)
		}
		if o.Key == key {
			size = o.Size
		}
	}
	return size
}

func TestOrdersRunOnceAndAreAnswered(t *testing.T) {
	t.Parallel()
	admin, namespace, agentOf := snapshotLeases(t)
	o := orderer{t, admin, namespace}
	g := newGroup(t, 1)
	c := directory(t.TempDir())
	client, s := g.client(0), opened(t, c)
	a := agentOf(g, 0)
	background(t, a.ServeOrders)
	o.order(fullLease, "early") // nothing is configured yet
	a.Configure(c)
	o.order(fullLease, "first") // nothing is open yet
	a.start()
	o.answered(fullLease, "first", leases.SnapshotSucceeded)

	eventually(t, "etcd names its storage version", func() error { // which it does some time after its start
		status, err := membership.ReadStatus(t.Context(), client, g.endpoint(0))
		if err == nil && status.StorageVersion == "" {
			err = errWaiting
		}
		return err
	})
	last := put(t, client, 5)
	o.order(fullLease, "second")
	answer := o.answered(fullLease, "second", leases.SnapshotSucceeded)
	if answer.Revision < last || answer.Size == 0 || answer.Size != object(t, s, answer.Object) || answer.SHA256 == "" || answer.Error != "" ||
		!strings.HasSuffix(answer.URI, answer.Object) || !strings.HasPrefix(answer.URI, "dir:///") || !strings.HasPrefix(answer.StorageVersion, "3.7") {
		t.Errorf("answered %+v after revision %d", answer, last)
	}
	fulls := len(history(t, s).Fulls)
	// A watch that is behind shows the order as it was before the answer.
	if err := a.perform(t.Context(), fullLease, kindFull); err != nil {
		t.Error(err)
	}
	last = put(t, client, 5)
	o.order(deltaLease, "third")
	delta := o.answered(deltaLease, "third", leases.SnapshotSucceeded)
	if delta.Revision < last || delta.Object != "" && delta.Size != object(t, s, delta.Object) {
		t.Errorf("answered %+v after revision %d", delta, last)
	}
	// By now, the Leases were renewed several times, each time with the orders on them.
	if after := len(history(t, s).Fulls); after != fulls {
		t.Errorf("%d fulls, want %d: an order was performed twice", after, fulls)
	}
	verifyAll(t, s, client, last)
}

// TestFinalFullNamedAfterDeltas: a final full is named so and follows the deltas.
func TestFinalFullNamedAfterDeltas(t *testing.T) {
	t.Parallel()
	admin, namespace, agentOf := snapshotLeases(t)
	o := orderer{t, admin, namespace}
	g := newGroup(t, 1)
	c := directory(t.TempDir())
	client, s := g.client(0), opened(t, c)
	a := agentOf(g, 0)
	background(t, a.ServeOrders)
	a.Configure(c)
	a.start()
	o.order(deltaLease, "whole")
	o.answered(deltaLease, "whole", leases.SnapshotSucceeded)
	last := put(t, client, 5)
	o.orderKind(fullLease, "last", leases.SnapshotFinal)
	answer := o.answered(fullLease, "last", leases.SnapshotSucceeded)
	h := history(t, s)
	final := h.Fulls[len(h.Fulls)-1]
	if answer.Kind != leases.SnapshotFinal || !catalog.IsFinal(answer.Object) || final.Key != answer.Object || !final.Final || final.Revision < last {
		t.Errorf("answered %+v after revision %d, newest is %+v", answer, last, final)
	}
	if !slices.ContainsFunc(h.Deltas, func(d catalog.Delta) bool { return d.To >= last }) {
		t.Errorf("no delta has revision %d: %+v", last, h.Deltas)
	}
	last = put(t, client, 5)
	o.order(deltaLease, "more") // the cluster goes on, and its backups do
	o.answered(deltaLease, "more", leases.SnapshotSucceeded)
	verifyAll(t, s, client, last)
	for component, kind := range map[leases.Component]leases.SnapshotKind{deltaLease: leases.SnapshotFinal, fullLease: "Tomorrow's"} {
		o.orderKind(component, "unknown", kind)
		if answer := o.answered(component, "unknown", leases.SnapshotFailed); !strings.Contains(answer.Error, "does not know this kind of request") {
			t.Errorf("%s on %s: answered %+v", kind, component, answer)
		}
	}
}

// A request for an ordinary full backup must not return a final one, which is kept permanently, and the reverse.
func TestFinalAndOrdinaryFullsAreTakenApart(t *testing.T) {
	o, answers := newOrders(), make(chan Artifact, 3)
	var group errgroup.Group
	for _, kind := range []string{kindFull, kindFinal, kindFull} {
		group.Go(func() error {
			a, err := o.ask(t.Context(), kind)
			answers <- a
			if err == nil && a.Kind != kind {
				return fmt.Errorf("asked for %s, got %+v", kind, a)
			}
			return err
		})
	}
	eventually(t, "ask", func() error {
		o.mu.Lock()
		defer o.mu.Unlock()
		if len(o.waits[kindFull]) < 2 || len(o.waits[kindFinal]) < 1 {
			return errors.New("not all have asked")
		}
		return nil
	})
	for _, want := range []string{kindFinal, kindFull} {
		if !o.waiting() {
			t.Fatalf("nothing waits for %s", want)
		}
		kind, answer := o.take()
		if kind != want {
			t.Fatalf("takes %s, want %s", kind, want) // who waits ends with the test
		}
		answer(Artifact{Kind: kind}, nil)
	}
	if err := group.Wait(); err != nil || o.waiting() {
		t.Errorf("%v, someone waits: %t", err, o.waiting())
	}
}

// TestPredecessorsOrderPerformedAgain: an order that a predecessor left is performed again.
func TestPredecessorsOrderPerformedAgain(t *testing.T) {
	t.Parallel()
	admin, namespace, agentOf := snapshotLeases(t)
	o := orderer{t, admin, namespace}
	g := newGroup(t, 1)
	c := directory(t.TempDir())
	o.order(fullLease, "left")
	order, err := o.store().SnapshotOrder(t.Context(), fullLease)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now().Add(-time.Minute).UTC()
	running := leases.SnapshotAnswer{UID: "left", Phase: leases.SnapshotRunning, Started: began}
	if err := o.store().AnswerSnapshot(t.Context(), fullLease, order.Version, running); err != nil {
		t.Fatal(err)
	}
	a := agentOf(g, 0)
	a.Configure(c)
	a.start()
	background(t, a.ServeOrders)
	answer := o.answered(fullLease, "left", leases.SnapshotSucceeded)
	if !answer.Started.Equal(began) || object(t, opened(t, c), answer.Object) == 0 {
		t.Errorf("answered %+v", answer)
	}
}

func TestAnOrderThatFailsReportsWhy(t *testing.T) {
	t.Parallel()
	admin, namespace, agentOf := snapshotLeases(t)
	o := orderer{t, admin, namespace}
	g := newGroup(t, 1)
	a := agentOf(g, 0)
	f := &full{}
	a.Open = func(ctx context.Context, c store.Config) (_ store.Store, err error) {
		f.Store, err = open.Open(ctx, c)
		return f, err
	}
	a.Configure(directory(t.TempDir()))
	a.start()
	background(t, a.ServeOrders)
	o.order(fullLease, "good")
	o.answered(fullLease, "good", leases.SnapshotSucceeded)
	f.broken.Store(true)
	o.order(fullLease, "bad")
	if answer := o.answered(fullLease, "bad", leases.SnapshotFailed); !strings.Contains(answer.Error, "no space") || answer.Object != "" {
		t.Errorf("answered %+v", answer)
	}
	// No full backup is due, so that nothing would remove an error from the Lease. The end of one attempt is noted before the next begins.
	o.order(fullLease, "bad again")
	o.answered(fullLease, "bad again", leases.SnapshotFailed)
	session, _ := a.at()
	session.reporter.mu.Lock()
	problem := session.reporter.full.Error
	session.reporter.mu.Unlock()
	if problem != "" {
		t.Errorf("after a request that failed, the agent reports %q", problem)
	}
	f.broken.Store(false)
	o.order(fullLease, "good again")
	o.answered(fullLease, "good again", leases.SnapshotSucceeded)
}

// full is a store that can be out of space.
type full struct {
	store.Store
	broken atomic.Bool
}

func (f *full) Put(ctx context.Context, key string, r io.Reader, o store.PutOptions) (store.Object, error) {
	if f.broken.Load() {
		return store.Object{}, errors.New("no space")
	}
	return f.Store.Put(ctx, key, r, o)
}

func TestAnOrderThatIsNotPerformedInTimeFails(t *testing.T) {
	t.Parallel()
	admin, namespace, agentOf := snapshotLeases(t)
	o := orderer{t, admin, namespace}
	g := newGroup(t, 1)
	o.order(fullLease, "old")
	order, err := o.store().SnapshotOrder(t.Context(), fullLease)
	if err != nil {
		t.Fatal(err)
	}
	old := leases.SnapshotAnswer{UID: "old", Phase: leases.SnapshotRunning, Started: time.Now().Add(-2 * orderTimeout).UTC()}
	if err := o.store().AnswerSnapshot(t.Context(), fullLease, order.Version, old); err != nil {
		t.Fatal(err)
	}
	a := agentOf(g, 0)
	a.Configure(directory(t.TempDir()))
	a.start()
	background(t, a.ServeOrders)
	if answer := o.answered(fullLease, "old", leases.SnapshotFailed); !strings.Contains(answer.Error, "not saved within") {
		t.Errorf("answered %+v", answer)
	}
}

func TestAnOrderThatWasTakenAwayIsNotAnswered(t *testing.T) {
	t.Parallel()
	admin, namespace, agentOf := snapshotLeases(t)
	o := orderer{t, admin, namespace}
	a := agentOf(newGroup(t, 1), 0)
	o.order(fullLease, "present")
	before, err := o.store().SnapshotOrder(t.Context(), fullLease)
	if err != nil {
		t.Fatal(err)
	}
	gone := leases.SnapshotAnswer{UID: "gone", Phase: leases.SnapshotSucceeded}
	if err := a.answer(t.Context(), fullLease, gone); err != nil {
		t.Error(err)
	}
	if after, err := o.store().SnapshotOrder(t.Context(), fullLease); err != nil || after != before {
		t.Errorf("the Lease says %+v, %v, want %+v", after, err, before)
	}
	o.order(fullLease, "next")
	err = o.store().AnswerSnapshot(t.Context(), fullLease, before.Version, leases.SnapshotAnswer{UID: "present", Phase: leases.SnapshotFailed})
	if !errors.Is(err, leases.ErrConflict) {
		t.Errorf("answered what was replaced: %v", err)
	}
}
