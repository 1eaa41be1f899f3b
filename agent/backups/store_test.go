package backups

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/backup/store/open"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/test/bucket"
	"github.com/etcd-druid/druid/test/env"
)

// mortal is a store whose client can die. Afterwards no call succeeds, and an upload in progress is torn.
type mortal struct {
	store.Store
	dead   atomic.Bool
	inside chan struct{}
}

func (m *mortal) Put(ctx context.Context, key string, r io.Reader, o store.PutOptions) (store.Object, error) {
	return m.Store.Put(ctx, key, io.MultiReader(io.LimitReader(r, 64), dying{m, r}), o)
}

// dying forwards the data unless the client died meanwhile.
type dying struct {
	m *mortal
	r io.Reader
}

func (d dying) Read(p []byte) (int, error) {
	if d.m.dead.Load() {
		select {
		case d.m.inside <- struct{}{}:
		default:
		}
		return 0, errors.New("killed")
	}
	return d.r.Read(p)
}

func TestTheSuccessorOfAKilledAgentContinues(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 1)
	c := directory(t.TempDir())
	client, s := g.client(0), opened(t, c)
	a := g.newAgent(0, nil, "default")
	m := &mortal{inside: make(chan struct{}, 1)}
	a.Open = func(ctx context.Context, c store.Config) (_ store.Store, err error) {
		m.Store, err = open.Open(ctx, c)
		return m, err
	}
	a.Configure(c)
	stop := a.start()
	savedUpTo(t, s, put(t, client, 5))
	m.dead.Store(true)
	last := put(t, client, 20)
	select {
	case <-m.inside:
	case <-time.After(maxWait):
		t.Fatal("nothing was uploaded")
	}
	stop()
	if at := history(t, s).LastSaved(); at >= last {
		t.Fatalf("revision %d is saved after all", at)
	}
	next := g.newAgent(0, nil, "default")
	next.Configure(c)
	next.start()
	savedUpTo(t, s, last)
	if next.fired("resume-recording") == 0 {
		t.Error("the next agent did not go on")
	}
	verifyAll(t, s, client, last)
}

// snapshotLeases creates the two Leases on a real API server.
func snapshotLeases(t *testing.T) (admin *kubernetes.Clientset, namespace string, agent func(g *group, i int) *neighbour) {
	t.Helper()
	api := env.APIServer(t)
	admin, namespace = kubernetes.NewForConfigOrDie(api), env.Namespace(t, api)
	for _, name := range []string{leases.FullSnapshotName("demo"), leases.DeltaSnapshotName("demo")} {
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if _, err := admin.CoordinationV1().Leases(namespace).Create(t.Context(), lease, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	return admin, namespace, func(g *group, i int) *neighbour { return g.newAgent(i, api, namespace) }
}

// inBucket returns a configuration with a bucket of the real server.
func inBucket(t *testing.T, endpoint, name string) *config.Backup {
	t.Helper()
	credentials := filepath.Join(t.TempDir(), "credentials")
	content := fmt.Sprintf("[default]\naws_access_key_id = %s\naws_secret_access_key = %s\n", bucket.AccessKey, bucket.SecretKey)
	if err := os.WriteFile(credentials, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(store.Config{S3: &store.S3{
		Bucket: name, Region: bucket.Region, Endpoint: endpoint, PathStyle: true, CredentialsFile: credentials,
	}})
	if err != nil {
		t.Fatal(err)
	}
	c := directory(t.TempDir())
	c.Store = raw
	return c
}

// TestUnreachableStoreThenCatchUp: an unreachable store is reported and backups catch up later.
func TestUnreachableStoreThenCatchUp(t *testing.T) {
	t.Parallel()
	admin, namespace, agentOf := snapshotLeases(t)
	server := bucket.Start(t)
	proxy := server.Before(t)
	c := inBucket(t, proxy.Endpoint, server.Make(t, "away", false))
	g := newGroup(t, 1)
	client, s := g.client(0), opened(t, c)
	a := agentOf(g, 0)
	a.Configure(c)
	a.start()
	savedUpTo(t, s, put(t, client, 5))
	proxy.Break(func(string, *http.Request) bucket.Fault { return bucket.Answer(http.StatusForbidden, "AccessDenied") })
	last := put(t, client, 100)
	eventually(t, "the failure is reported", func() error {
		b, err := decoded(t, admin, namespace, leases.DeltaSnapshotName("demo"))
		if err != nil || !strings.Contains(b.Error, "denied") || b.Lag == 0 {
			return fmt.Errorf("the Lease says %+v, %w", b, err)
		}
		if a.Metrics.rpo() == 0 {
			return errors.New("no write is called unsaved")
		}
		return nil
	})
	proxy.Break(nil)
	savedUpTo(t, s, last)
	eventually(t, "the success is reported", func() error {
		b, err := decoded(t, admin, namespace, leases.DeltaSnapshotName("demo"))
		if err != nil || b.Error != "" || b.Revision < last {
			return fmt.Errorf("the Lease says %+v, %w", b, err)
		}
		if rpo := a.Metrics.rpo(); rpo != 0 {
			return fmt.Errorf("a write of %v s ago is called unsaved", rpo)
		}
		return nil
	})
	verifyAll(t, s, client, last)
}

func decoded(t *testing.T, admin *kubernetes.Clientset, namespace, name string) (leases.Backup, error) {
	t.Helper()
	lease, err := admin.CoordinationV1().Leases(namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		return leases.Backup{}, err
	}
	return leases.DecodeBackup(lease)
}

// TestLeasesReportSavedRevisions: the Leases report what is saved and that nothing was to save.
func TestLeasesReportSavedRevisions(t *testing.T) {
	t.Parallel()
	admin, namespace, agentOf := snapshotLeases(t)
	g := newGroup(t, 1)
	c := directory(t.TempDir())
	client, s := g.client(0), opened(t, c)
	put(t, client, 5)
	a := agentOf(g, 0)
	a.Configure(c)
	a.start()
	savedUpTo(t, s, 1) // by a full
	last := put(t, client, 5)
	savedUpTo(t, s, last)
	eventually(t, "both Leases report", func() error {
		full, err := decoded(t, admin, namespace, leases.FullSnapshotName("demo"))
		if err != nil {
			return err
		}
		d, err := decoded(t, admin, namespace, leases.DeltaSnapshotName("demo"))
		h := history(t, s)
		if err != nil || full.Object != h.Fulls[0].Key || full.Revision != h.Fulls[0].Revision || full.SHA256 == "" || full.Size != h.Fulls[0].Size ||
			full.Taken.IsZero() || !full.Since.Equal(h.Ranges()[0].Since.Truncate(time.Second)) || full.Lineage != string(lineage) {
			return fmt.Errorf("the full Lease says %+v: %w", full, err)
		}
		if newest := h.Deltas[len(h.Deltas)-1]; d.Revision != last || d.Object != newest.Key || d.Size != newest.Size || d.SHA256 == "" || d.Error != "" {
			return fmt.Errorf("the delta Lease says %+v, the store has %+v", d, newest)
		}
		return nil
	})
	// The delta Lease is renewed twice, and nothing is added to the store.
	objects := len(history(t, s).Deltas)
	var renewed []time.Time
	eventually(t, "the Lease of an idle cluster is renewed", func() error {
		lease, err := admin.CoordinationV1().Leases(namespace).Get(t.Context(), leases.DeltaSnapshotName("demo"), metav1.GetOptions{})
		if err != nil || lease.Spec.RenewTime == nil {
			return fmt.Errorf("%+v: %w", lease, err)
		}
		if at := lease.Spec.RenewTime.Time; len(renewed) == 0 || !at.Equal(renewed[len(renewed)-1]) {
			renewed = append(renewed, at)
		}
		if len(renewed) < 3 {
			return fmt.Errorf("renewed at %v", renewed)
		}
		if want := int32(c.DeltaLeaseDuration() / time.Second); lease.Spec.LeaseDurationSeconds == nil || *lease.Spec.LeaseDurationSeconds != want {
			t.Errorf("it lasts %v s, want %d", lease.Spec.LeaseDurationSeconds, want)
		}
		return nil
	})
	if n := len(history(t, s).Deltas); n != objects {
		t.Errorf("an idle cluster has %d deltas, had %d", n, objects)
	}
}

// TestRetentionNeedsLeadersLease: retention deletes only under the leader's Lease.
func TestRetentionNeedsLeadersLease(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 3)
	c := directory(t.TempDir())
	c.Retention = config.Retention{Count: 2}
	leading := g.leader()
	follower := (leading + 1) % len(g.members)
	client, s := g.client(leading), opened(t, c)
	_, _, agentOf := snapshotLeases(t) // which report what is known of the backups
	a, b := agentOf(g, leading), agentOf(g, follower)
	for _, x := range []*neighbour{a, b} {
		x.Configure(c)
		x.start()
	}
	fulls := func() int { return len(history(t, s).Fulls) }
	take := func(x *neighbour) {
		put(t, client, 3)
		eventually(t, "a full is taken", func() error { // once it has begun
			_, err := x.Snapshot(t.Context(), kindFull)
			return err
		})
	}
	savedUpTo(t, s, put(t, client, 5))
	// The other agent believes that it leads and holds the Lease, but raft says that it does not lead.
	background(t, b.Prune)
	for range 4 {
		take(b)
	}
	eventually(t, "the follower tried", func() error {
		if b.failures(kindStore) == 0 {
			return errors.New("not yet")
		}
		return nil
	})
	if n := fulls(); n < 5 {
		t.Errorf("%d full backups are left, and none was to be deleted", n)
	}
	other := catalog.Lineage("00000000-other")
	for i := range int64(4) {
		mustPut(t, s, catalog.FullKey(prefix, other, 1+i, time.Now()), "another cluster's")
	}
	stop := background(t, a.Prune)
	eventually(t, "the leader deletes", func() error {
		if n := fulls(); n != 2 {
			return fmt.Errorf("%d fulls", n)
		}
		return nil
	})
	take(a)
	eventually(t, "a new full lets an old one go", func() error {
		if n := fulls(); n != 2 {
			return fmt.Errorf("%d fulls", n)
		}
		return nil
	})
	stop()
	all, err := catalog.Read(t.Context(), s, prefix)
	if h, _ := all.History(other); err != nil || len(h.Fulls) != 4 {
		t.Errorf("want all of another cluster's left: %+v, %v", all, err)
	}
	last := put(t, client, 5)
	savedUpTo(t, s, last)
	verifyAll(t, s, client, last)
}

// panics is a store that panics once within a delta backup, and once within a full backup.
type panics struct {
	store.Store
	fulls, deltas sync.Once
}

func (p *panics) Put(ctx context.Context, key string, r io.Reader, o store.PutOptions) (store.Object, error) {
	fault := func() { panic("a store's fault") }
	switch {
	case strings.Contains(key, "/full/"):
		p.fulls.Do(fault)
	case strings.Contains(key, "/delta/"):
		p.deltas.Do(fault)
	}
	return p.Store.Put(ctx, key, r, o)
}

func TestTheDutyGoesOnAfterAPanic(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 1)
	c := directory(t.TempDir())
	faulty := &panics{Store: opened(t, c)}
	a := g.newAgent(0, nil, "default")
	a.Open = func(context.Context, store.Config) (store.Store, error) { return faulty, nil }
	a.Configure(c)
	a.start()
	last := put(t, g.client(0), 10)
	savedUpTo(t, faulty, last)
	savedUpTo(t, faulty, put(t, g.client(0), 10))
	eventually(t, "both were begun again", func() error {
		if fulls, deltas := a.failures(kindFull), a.failures(kindDelta); fulls == 0 || deltas == 0 {
			return fmt.Errorf("%v fulls and %v deltas failed", fulls, deltas)
		}
		return nil
	})
}
