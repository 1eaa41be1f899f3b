package backups

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/version"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"google.golang.org/protobuf/proto"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/backup/delta"
	"github.com/etcd-druid/druid/backup/restore"
	"github.com/etcd-druid/druid/backup/snapshot"
	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/backup/store/open"
	"github.com/etcd-druid/druid/backup/verify"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/test/embedded"
)

// directory returns a configuration for a store in a directory.
func directory(path string) *config.Backup {
	raw, err := json.Marshal(store.Config{Directory: &store.Directory{Path: path}})
	if err != nil {
		panic(err)
	}
	return &config.Backup{
		Store: raw, Prefix: prefix, Full: config.Full{Schedule: "0 0 1 1 *"},
		Delta: config.Delta{Period: config.Duration(time.Second), MaxBytes: 1 << 20}, Retention: config.Retention{Count: 100},
	}
}

func opened(t *testing.T, c *config.Backup) store.Store {
	t.Helper()
	parsed, err := store.ParseConfig(c.Store)
	if err != nil {
		t.Fatal(err)
	}
	s, err := open.Open(t.Context(), parsed)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func mustPut(t *testing.T, s store.Store, key, content string) {
	t.Helper()
	if _, err := s.Put(t.Context(), key, strings.NewReader(content), store.PutOptions{}); err != nil {
		t.Fatal(err)
	}
}

func history(t *testing.T, s store.Store) catalog.History {
	t.Helper()
	c, err := catalog.Read(t.Context(), s, prefix)
	if err != nil {
		t.Fatal(err)
	}
	h, _ := c.History(lineage)
	return h
}

// savedUpTo waits until the backups in the store reach revision.
func savedUpTo(t *testing.T, s store.Store, revision int64) {
	t.Helper()
	eventually(t, fmt.Sprintf("revision %d is saved", revision), func() error {
		if at := history(t, s).LastSaved(); at < revision {
			return fmt.Errorf("saved up to %d", at)
		}
		return nil
	})
}

// verifyAll reads everything that the store has of the lineage. All objects must pass their checks, the latest plan
// must equal what etcd itself reports, event by event, and it must reach revision.
func verifyAll(t *testing.T, s store.Store, c *clientv3.Client, revision int64) {
	t.Helper()
	listed, err := catalog.Read(t.Context(), s, prefix)
	if err != nil {
		t.Fatal(err)
	}
	h, _ := listed.History(lineage)
	for _, f := range h.Fulls {
		body, err := s.Get(t.Context(), f.Key, 0, -1)
		if err != nil {
			t.Fatal(err)
		}
		r, err := snapshot.Open(f.Key, body)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, r); err != nil {
			t.Errorf("full %s: %v", f.Key, err)
		}
		_, _ = r.Close(), body.Close()
	}
	for _, d := range h.Deltas {
		events(t, s, d)
	}
	plan, err := listed.Plan(catalog.Target{Lineage: lineage})
	if err != nil {
		t.Fatal(err)
	}
	if plan.Reach < revision || h.Formation == nil {
		t.Errorf("the plan reaches revision %d, bootstrap %v; want %d: %+v", plan.Reach, h.Formation, revision, plan)
	}
	var got []event
	for _, d := range plan.Deltas {
		for _, e := range events(t, s, d) {
			if len(got) == 0 && e.Revision > plan.Full.Revision || len(got) > 0 && e.Revision >= got[len(got)-1].Revision {
				got = append(got, e)
			}
		}
	}
	got = distinct(got)
	if diff := cmp.Diff(watched(t, c, plan.Full.Revision+1, plan.Reach), got); diff != "" {
		t.Errorf("what etcd says and what was saved differ (-etcd +saved):\n%.2000s", diff)
	}
}

// event of one revision. The tests write one key at a time.
type event struct {
	Revision int64
	Key      string
	Deletes  bool
}

func events(t *testing.T, s store.Store, d catalog.Delta) (all []event) {
	t.Helper()
	body, err := s.Get(t.Context(), d.Key, 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = body.Close() }()
	r, err := delta.NewReader(body, delta.Expected{Object: d.Key, Lineage: string(lineage)})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for {
		records, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("delta %s: %v", d.Key, err)
		}
		for _, record := range records {
			var kv mvccpb.KeyValue
			if err := proto.Unmarshal(record.Value, &kv); err != nil {
				t.Fatal(err)
			}
			all = append(all, event{int64(binary.BigEndian.Uint64(record.Key)), string(kv.Key), record.IsDelete()})
		}
	}
}

// distinct removes the overlaps.
func distinct(all []event) (rest []event) {
	for _, e := range all {
		if len(rest) == 0 || e.Revision > rest[len(rest)-1].Revision {
			rest = append(rest, e)
		}
	}
	return rest
}

// watched returns what etcd itself reports for the revisions from to to.
func watched(t *testing.T, c *clientv3.Client, from, to int64) (all []event) {
	t.Helper()
	if to < from {
		return nil
	}
	ctx, cancel := context.WithTimeout(t.Context(), maxWait)
	defer cancel()
	for response := range c.Watch(ctx, "", clientv3.WithPrefix(), clientv3.WithRev(from)) {
		if err := response.Err(); err != nil {
			t.Fatal(err)
		}
		for _, e := range response.Events {
			if e.Kv.ModRevision > to {
				return all
			}
			all = append(all, event{e.Kv.ModRevision, string(e.Kv.Key), e.Type == clientv3.EventTypeDelete})
		}
		if all[len(all)-1].Revision == to {
			return all
		}
	}
	t.Fatalf("the watch ended: %v", ctx.Err())
	return nil
}

// restored restores the backups into another etcd, and compares the hash up to revision with that of the original.
func restored(t *testing.T, s store.Store, c *clientv3.Client, revision int64) {
	t.Helper()
	listed, err := catalog.Read(t.Context(), s, prefix)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := listed.Plan(catalog.Target{Lineage: lineage, Revision: revision})
	if err != nil {
		t.Fatal(err)
	}
	e := embedded.Config(t, "restored", filepath.Join(t.TempDir(), "data"))
	_, err = restore.Run(t.Context(), restore.Config{
		Store: s, Plan: plan, DataDir: e.Dir, Name: e.Name, Token: "restored", PeerURLs: []string{e.ListenPeerUrls[0].String()},
		InitialCluster: e.InitialCluster, EtcdVersion: version.Version,
	})
	if err != nil {
		t.Fatal(err)
	}
	g := &group{t: t}
	etcd := embedded.Start(t, e)
	t.Cleanup(etcd.Close)
	g.members = []*embed.Etcd{etcd}
	g.leader()
	hash := func(c *clientv3.Client) uint32 {
		response, err := c.HashKV(t.Context(), c.Endpoints()[0], revision)
		if err != nil {
			t.Fatal(err)
		}
		return response.Hash
	}
	if got, want := hash(g.client(0)), hash(c); got != want {
		t.Errorf("at revision %d the restored etcd has hash %x, the original %x", revision, got, want)
	}
}

// TestOrderedBackupSavedWhenVerified: an ordered backup counts as saved when it is verified.
func TestOrderedBackupSavedWhenVerified(t *testing.T) {
	t.Parallel()
	admin, namespace, agentOf := snapshotLeases(t)
	o := orderer{t, admin, namespace}
	g := newGroup(t, 1)
	path := t.TempDir()
	c := directory(path)
	client, s := g.client(0), opened(t, c)
	a := agentOf(g, 0)
	a.Scratch, a.verificationReserve, a.verifyPause = t.TempDir(), 0, 10*time.Millisecond
	background(t, a.ServeOrders)
	a.Configure(c)
	a.start()

	last := put(t, client, 5)
	o.orderKind(fullLease, "good", leases.SnapshotVerified)
	answer := o.answered(fullLease, "good", leases.SnapshotSucceeded)
	if answer.Kind != leases.SnapshotVerified || answer.Revision < last || answer.Size != object(t, s, answer.Object) {
		t.Errorf("answered %+v after revision %d", answer, last)
	}
	if left, err := os.ReadDir(a.Scratch); err != nil || len(left) != 0 {
		t.Errorf("the scratch directory holds %v, %v", left, err)
	}
	o.orderKind(fullLease, "last", leases.SnapshotFinalVerified)
	if answer := o.answered(fullLease, "last", leases.SnapshotSucceeded); answer.Object != "" && !strings.Contains(answer.Object, "final") {
		t.Errorf("answered %+v, want a final full", answer)
	}

	// From now on, the store returns other data for a full backup than was written.
	opens := a.Open
	a.Open = func(ctx context.Context, c store.Config) (store.Store, error) {
		s, err := opens(ctx, c)
		return damaging{s}, err
	}
	before := len(history(t, s).Fulls)
	o.orderKind(fullLease, "bad", leases.SnapshotVerified)
	answer = o.answered(fullLease, "bad", leases.SnapshotFailed)
	fulls := history(t, s).Fulls
	if len(fulls) <= before {
		t.Fatalf("%d fulls, had %d", len(fulls), before)
	}
	bad := fulls[before].Key
	if !strings.Contains(answer.Error, bad) || !strings.Contains(answer.Error, "not verified") {
		t.Errorf("answered %q, want %s in it", answer.Error, bad)
	}
	eventually(t, "the Lease reports what is broken, and a new full is made", func() error {
		_, v, err := a.Leases.Full(t.Context())
		if fulls := history(t, s).Fulls; err != nil || v.Verdict != leases.VerdictBroken || v.Broken != bad || len(fulls) < before+2 {
			return fmt.Errorf("it reports %+v, %w, next to %d fulls", v, err, len(fulls))
		}
		return nil
	})
	if _, err := os.Stat(filepath.Join(path, bad)); err != nil {
		t.Errorf("what is broken is gone: %v", err)
	}
}

// damaging flips a bit in the middle of each full backup that is read.
type damaging struct{ store.Store }

func (d damaging) Get(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	body, err := d.Store.Get(ctx, key, offset, length)
	if err != nil || !strings.Contains(key, "/full/") || offset != 0 || length >= 0 {
		return body, err
	}
	raw, err := io.ReadAll(body)
	if err = errors.Join(err, body.Close()); err != nil {
		return nil, err
	}
	raw[len(raw)/2] ^= 1
	return io.NopCloser(strings.NewReader(string(raw))), nil
}

// TestWaiterSeesOtherVerificationEnd: a caller that waits for another verification notices its end.
// An agent that no longer leads must not wait for another verification, because it would hold the leader's Lease
// meanwhile.
func TestWaiterSeesOtherVerificationEnd(t *testing.T) {
	t.Parallel()
	d := New(Options{})
	d.verifying <- struct{}{}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	done := make(chan verify.Result, 1)
	background(t, func(context.Context) error {
		done <- d.verifyTarget(ctx, config.Backup{}, Identity{}, catalog.Target{})
		return nil
	})
	select {
	case r := <-done:
		if r.Verdict != verify.Unknown || !strings.Contains(r.Reason, "another verification is in progress") {
			t.Errorf("found %+v", r)
		}
	case <-time.After(time.Minute):
		<-d.verifying
		t.Error("it waits for the other verification")
	}
}
