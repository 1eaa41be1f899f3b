package backups

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/backup/store/open"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/test/bucket"
)

// bound is a store in which objects can be locked.
type bound struct {
	store.Store
	key string
	// first is called once, before the first deletion, and fails it.
	first atomic.Pointer[func()]
}

func (b *bound) Delete(ctx context.Context, key string) error {
	if first := b.first.Swap(nil); first != nil {
		(*first)()
		return fmt.Errorf("delete %s: the store is away", key)
	}
	if key == b.key {
		return fmt.Errorf("delete %s: %w until tomorrow", key, store.ErrLocked)
	}
	return b.Store.Delete(ctx, key)
}

// deletes requests the deletion of a full backup and returns the final answer.
func (o orderer) deletes(uid, uri string, want leases.SnapshotPhase) leases.SnapshotAnswer {
	o.t.Helper()
	o.patchOrder(fullLease, uid, leases.SnapshotDelete, leases.SnapshotTarget{URI: uri})
	return o.answered(fullLease, uid, want)
}

// TestFullDeletedUnlessNeeded: a full is deleted by order unless something needs it.
func TestFullDeletedUnlessNeeded(t *testing.T) {
	t.Parallel()
	admin, namespace, agentOf := snapshotLeases(t)
	o := orderer{t, admin, namespace}
	server := bucket.Start(t)
	proxy := server.Before(t)
	g := newGroup(t, 1)
	c := inBucket(t, proxy.Endpoint, server.Make(t, "deletes", false))
	client, s := g.client(0), opened(t, c)
	a := agentOf(g, 0)
	locks := &bound{}
	a.Open = func(ctx context.Context, c store.Config) (_ store.Store, err error) {
		locks.Store, err = open.Open(ctx, c)
		return locks, err
	}
	a.Configure(c)
	a.start()
	background(t, a.ServeOrders)
	var fulls []leases.SnapshotAnswer
	var last int64
	for i := range 5 {
		last = put(t, client, 5)
		savedUpTo(t, s, last) // deltas lead from each full to the next
		uid := fmt.Sprintf("full-%d", i)
		o.order(fullLease, uid)
		fulls = append(fulls, o.answered(fullLease, uid, leases.SnapshotSucceeded))
	}
	last = put(t, client, 5)
	savedUpTo(t, s, last)
	first := history(t, s).Fulls[0]
	kept := func(key string) bool {
		return slices.ContainsFunc(history(t, s).Fulls, func(f catalog.Full) bool { return f.Key == key })
	}

	alarm := func(action etcdserverpb.AlarmRequest_AlarmAction) {
		t.Helper()
		if _, err := g.members[0].Server.Alarm(t.Context(), &etcdserverpb.AlarmRequest{
			Action: action, MemberID: g.self(0).MemberID, Alarm: etcdserverpb.AlarmType_CORRUPT,
		}); err != nil {
			t.Fatal(err)
		}
	}
	alarm(etcdserverpb.AlarmRequest_ACTIVATE)
	if answer := o.deletes("corrupt", fulls[1].URI, leases.SnapshotFailed); !strings.Contains(answer.Error, "CORRUPT") {
		t.Errorf("answered %+v", answer)
	}
	alarm(etcdserverpb.AlarmRequest_DEACTIVATE)
	locks.key = fulls[1].Object
	if answer := o.deletes("locked", fulls[1].URI, leases.SnapshotFailed); !strings.Contains(answer.Error, "locked until tomorrow") {
		t.Errorf("answered %+v", answer)
	}
	cases := 0
	for uri, says := range map[string]string{
		fulls[4].URI: catalog.ReasonNewest.Words(), fulls[3].URI: catalog.ReasonSpare.Words(),
		strings.TrimSuffix(fulls[4].URI, fulls[4].Object) + first.Key:    catalog.ReasonNeeded.Words(),
		strings.Replace(fulls[1].URI, "s3://", "s3://other-", 1):         "the present place of this cluster's backups",
		strings.Replace(fulls[1].URI, ".snap.zst", ".delta.zst", 1):      "not a full backup of this cluster",
		strings.Replace(fulls[1].URI, prefix, prefix+"/../of-others", 1): "not a full backup of this cluster",
		"": "the present place of this cluster's backups",
	} {
		cases++ // an answer that is written again is of its own order
		if answer := o.deletes(fmt.Sprintf("refused-%d", cases), uri, leases.SnapshotFailed); !strings.Contains(answer.Error, says) || answer.Object != "" {
			t.Errorf("%s: answered %+v, want %q", uri, answer, says)
		}
	}
	if h := history(t, s); len(h.Fulls) != 6 {
		t.Fatalf("%d fulls are left of 6", len(h.Fulls))
	}

	locks.key = ""
	takenBack := make(chan struct{})
	locks.first.Store(new(func() {
		o.order(fullLease, "")
		close(takenBack)
	}))
	o.patchOrder(fullLease, "taken-back", leases.SnapshotDelete, leases.SnapshotTarget{URI: fulls[1].URI})
	eventually(t, "take the order back", func() error {
		select {
		case <-takenBack:
			return nil
		default:
			return errors.New("nothing was to be deleted yet")
		}
	})
	o.deletes("after-it", fulls[4].URI, leases.SnapshotFailed) // its turn comes when that one has ended
	if !kept(fulls[1].Object) {
		t.Error("a full is deleted whose order was taken back while its store was away")
	}
	proxy.Break(bucket.First(3, "DeleteObject", bucket.Answer(http.StatusForbidden, "AccessDenied")))
	denied := o.deletes("patient", fulls[1].URI, leases.SnapshotSucceeded)
	if denied.Kind != leases.SnapshotDelete || denied.Object != fulls[1].Object || kept(fulls[1].Object) {
		t.Errorf("answered %+v, it is there: %t", denied, kept(fulls[1].Object))
	}
	o.deletes("again", fulls[1].URI, leases.SnapshotSucceeded)
	o.deletes("next", fulls[2].URI, leases.SnapshotSucceeded)
	if h := history(t, s); len(h.Fulls) != 4 || kept(fulls[2].Object) {
		t.Errorf("left are %+v", h.Fulls)
	}
	verifyAll(t, s, client, last)
	if ranges := history(t, s).Ranges(); len(ranges) != 1 || ranges[0].From != first.Revision || ranges[0].To < last {
		t.Errorf("restorable: %v, want all from %d to %d", ranges, first.Revision, last)
	}
}

// TestLateDeletionFails: a deletion that is not performed in time fails.
func TestLateDeletionFails(t *testing.T) {
	t.Parallel()
	admin, namespace, agentOf := snapshotLeases(t)
	o := orderer{t, admin, namespace}
	c := directory(t.TempDir())
	a := agentOf(newGroup(t, 1), 0)
	o.patchOrder(fullLease, "old", leases.SnapshotDelete, leases.SnapshotTarget{URI: "dir:///gone"})
	order, err := o.store().SnapshotOrder(t.Context(), fullLease)
	if err != nil {
		t.Fatal(err)
	}
	began := leases.SnapshotAnswer{
		UID: "old", Kind: leases.SnapshotDelete, Phase: leases.SnapshotRunning, Started: time.Now().Add(-2 * deleteTimeout).UTC(),
	}
	if err := o.store().AnswerSnapshot(t.Context(), fullLease, order.Version, began); err != nil {
		t.Fatal(err)
	}
	session, err := a.begin(t.Context(), *c, Identity{Lineage: lineage}) // what it holds is never known
	if err != nil {
		t.Fatal(err)
	}
	a.work(session)
	background(t, a.ServeOrders)
	a.Configure(c)
	answer := o.answered(fullLease, "old", leases.SnapshotFailed)
	if !strings.Contains(answer.Error, "not deleted within 5m0s") || !strings.Contains(answer.Error, "not certain now") {
		t.Errorf("answered %+v", answer)
	}
}

// If a watch would have to read more than it may catch up with, a full backup is taken.
func TestWhatIsFarBehindIsFollowedByAFull(t *testing.T) {
	t.Parallel()
	_, _, agentOf := snapshotLeases(t)
	g := newGroup(t, 1)
	c := directory(t.TempDir())
	client, s := g.client(0), opened(t, c)
	before := savedBefore(t, agentOf(g, 0), c, client)
	put(t, client, 20)
	for _, test := range []struct {
		backlog int64
		fires   string
		fulls   int
	}{{1000, "resume-recording", before}, {9, "catalog-behind", before + 1}} {
		if test.fires == "catalog-behind" {
			put(t, client, 10)
		}
		a := agentOf(g, 0)
		a.backlog = test.backlog
		a.Configure(c)
		stop := a.start()
		last := put(t, client, 5)
		savedUpTo(t, s, last)
		stop()
		if n := len(history(t, s).Fulls); n != test.fulls || a.fired(test.fires) == 0 {
			t.Errorf("with a backlog of %d there are %d fulls, want %d; rule %s fired %v times", test.backlog, n, test.fulls, test.fires, a.fired(test.fires))
		}
		verifyAll(t, s, client, last)
	}
}

// TestRecorderFarBehindGetsFull: a recorder that falls far behind is followed by a full.
// The same applies to changes that a recorder could not read because the store accepted nothing.
func TestRecorderFarBehindGetsFull(t *testing.T) {
	t.Parallel()
	_, _, agentOf := snapshotLeases(t)
	g := newGroup(t, 1)
	c := directory(t.TempDir())
	c.Delta.MaxBytes = 1
	client, s := g.client(0), opened(t, c)
	put(t, client, 5)
	a := agentOf(g, 0)
	a.backlog, a.revalidation = 50, 50*time.Millisecond
	let := make(chan struct{})
	a.Open = func(ctx context.Context, c store.Config) (store.Store, error) {
		s, err := open.Open(ctx, c)
		return jammed{s, let}, err
	}
	a.Configure(c)
	a.start()
	eventually(t, "the recorder is ended", func() error {
		put(t, client, 20)
		if a.fired("catalog-behind") == 0 {
			return errWaiting
		}
		return nil
	})
	close(let)
	last := put(t, client, 5)
	savedUpTo(t, s, last)
	verifyAll(t, s, client, last)
}

// jammed accepts no delta backup until it is allowed to.
type jammed struct {
	store.Store
	let <-chan struct{}
}

func (j jammed) Put(ctx context.Context, key string, r io.Reader, o store.PutOptions) (store.Object, error) {
	if _, delta := catalog.ParseDelta(prefix, key); delta {
		select {
		case <-j.let:
		case <-ctx.Done():
			return store.Object{}, ctx.Err()
		}
	}
	return j.Store.Put(ctx, key, r, o)
}

// Changes that are written during a slow listing count too.
func TestWhatAListingFallsBehindCounts(t *testing.T) {
	t.Parallel()
	_, _, agentOf := snapshotLeases(t)
	g := newGroup(t, 1)
	c := directory(t.TempDir())
	client, s := g.client(0), opened(t, c)
	before := savedBefore(t, agentOf(g, 0), c, client)
	a := agentOf(g, 0)
	a.backlog = 9
	var once sync.Once
	a.Open = func(ctx context.Context, c store.Config) (store.Store, error) {
		s, err := open.Open(ctx, c)
		return whileListed{s, func() { once.Do(func() { put(t, client, 20) }) }}, err
	}
	a.Configure(c)
	stop := a.start()
	savedUpTo(t, s, put(t, client, 5))
	stop()
	if n := len(history(t, s).Fulls); n != before+1 || a.fired("catalog-behind") == 0 {
		t.Errorf("there are %d fulls, want %d; rule catalog-behind fired %v times", n, before+1, a.fired("catalog-behind"))
	}
}

// whileListed is a store that runs a function while it is listed.
type whileListed struct {
	store.Store
	happens func()
}

func (w whileListed) List(ctx context.Context, prefix string) iter.Seq2[store.Object, error] {
	w.happens()
	return w.Store.List(ctx, prefix)
}

// TestListingEndsOnConfigChange: a listing ends when the configuration changes.
func TestListingEndsOnConfigChange(t *testing.T) {
	t.Parallel()
	_, _, agentOf := snapshotLeases(t)
	g := newGroup(t, 1)
	wrong, right := t.TempDir(), directory(t.TempDir())
	client, s := g.client(0), opened(t, right)
	a := agentOf(g, 0)
	began, ended := make(chan struct{}), make(chan error, 1)
	a.Open = func(ctx context.Context, c store.Config) (store.Store, error) {
		s, err := open.Open(ctx, c)
		if c.Directory.Path == wrong {
			return endless{s, began, ended}, err
		}
		return s, err
	}
	a.Configure(directory(wrong))
	a.start()
	<-began
	a.Configure(right)
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the listing of the wrong place ends by %v", err)
	}
	savedUpTo(t, s, put(t, client, 5))
}

// endless is a store whose first listing continues until its context ends.
type endless struct {
	store.Store
	began chan<- struct{}
	ended chan<- error
}

func (e endless) List(ctx context.Context, _ string) iter.Seq2[store.Object, error] {
	return func(yield func(store.Object, error) bool) {
		close(e.began)
		<-ctx.Done()
		e.ended <- context.Cause(ctx)
		yield(store.Object{}, ctx.Err())
	}
}
