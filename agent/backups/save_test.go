package backups

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/etcd-druid/druid/agent/transport"
	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/backup/snapshot"
	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/test/backups"
	"github.com/etcd-druid/druid/test/bucket"
)

// saveOf is a Save of the group in the store of a configuration.
func saveOf(t *testing.T, g *group, s store.Store) *Save {
	t.Helper()
	return &Save{
		Endpoint: g.endpoint(0), Dial: transport.NewClients(transport.Transport{}).Dial, Store: s,
		URI: func(key string) string { return "s3://theirs/" + key }, Prefix: prefix, Self: g.self(0),
		Log: slog.New(slog.DiscardHandler),
	}
}

func TestASaveIsABackupByItself(t *testing.T) {
	t.Parallel()
	server := bucket.Start(t)
	theirs := server.Make(t, "saved", false)
	keys := backups.Keys(t, "a")
	plain := inBucket(t, server.Endpoint, theirs)
	c := changed(t, plain, func(c *store.Config) { c.ClientEncryption = &store.ClientEncryption{KeysDir: keys} })
	g := newGroup(t, 1)
	client, s := g.client(0), opened(t, c)
	last := put(t, client, 20)
	save := saveOf(t, g, s)
	a, err := save.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if a.URI != "s3://theirs/"+a.Key || a.Revision < last || a.Size == 0 || a.SHA256 == "" {
		t.Errorf("saved %+v after revision %d", a, last)
	}
	verifyAll(t, s, client, last)
	restored(t, s, client, last)
	h := history(t, s)
	if len(h.Fulls) != 1 || len(h.Deltas) != 0 || h.Formation == nil || h.Formation.ClusterUID != save.Self.ClusterUID {
		t.Errorf("the store has %+v", h)
	}
	if _, err := opened(t, plain).Get(t.Context(), a.Key, 0, 100); !errors.Is(err, store.ErrNoKey) {
		t.Errorf("without a key: %v, want it encrypted", err)
	}
	// A second Pod saves a second object. It replaces nothing.
	again, err := save.Run(t.Context())
	if err != nil || again.Key == a.Key {
		t.Errorf("saved again as %+v, %v", again, err)
	}
	for range 2 { // the second time it is not there any more
		if _, err := save.Drop(t.Context(), again.Key); err != nil {
			t.Error(err)
		}
	}
	if h := history(t, s); len(h.Fulls) != 1 || h.Fulls[0].Key != a.Key {
		t.Errorf("the store has %+v, want %s alone", h.Fulls, a.Key)
	}
	if _, err := save.Drop(t.Context(), prefix+"/lineage.json"); err == nil {
		t.Error("it deletes an object that is no backup")
	}
	deltas := catalog.DeltaKey(prefix, lineage, last+1, last+2, time.Now())
	if _, err := s.Put(t.Context(), deltas, strings.NewReader("x"), store.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := save.Drop(t.Context(), a.Key); err == nil || !strings.Contains(err.Error(), "delta backups of this lineage") {
		t.Errorf("it deletes a full backup before delta backups: %v", err)
	}
}

func TestASaveRefusesWhatIsNotItsOwn(t *testing.T) {
	t.Parallel()
	server := bucket.Start(t)
	g := newGroup(t, 1)
	s := opened(t, inBucket(t, server.Endpoint, server.Make(t, "refused", false)))
	other := saveOf(t, g, s)
	other.Self.ClusterID++
	other.Prefix = "ns/other"
	if _, err := other.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "nothing was saved") {
		t.Errorf("it saves another cluster: %v", err)
	}
	taken := saveOf(t, g, s)
	if err := catalog.WriteBootstrap(t.Context(), s, prefix, catalog.Formation{Lineage: lineage, ClusterUID: "another"}); err != nil {
		t.Fatal(err)
	}
	if _, err := taken.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "give each cluster its own prefix") {
		t.Errorf("it saves in the place of another cluster: %v", err)
	}
	if h := history(t, s); len(h.Fulls) > 0 {
		t.Errorf("the store has %+v", h)
	}
}

// swapped returns an object that is damaged after it was stored.
type swapped struct{ store.Store }

func (s swapped) Get(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	r, err := s.Store.Get(ctx, key, offset, length)
	if err != nil || !strings.HasSuffix(key, ".snap.zst") {
		return r, err
	}
	raw, err := io.ReadAll(r)
	if err == nil && offset == 0 && len(raw) > 100 {
		raw[100] ^= 1
	}
	return io.NopCloser(bytes.NewReader(raw)), errors.Join(err, r.Close())
}

func TestASaveIsReadBack(t *testing.T) {
	t.Parallel()
	server := bucket.Start(t)
	g := newGroup(t, 1)
	put(t, g.client(0), 20)
	s := opened(t, inBucket(t, server.Endpoint, server.Make(t, "damaged", false)))
	a, err := saveOf(t, g, swapped{s}).Run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "was saved and is broken") {
		t.Errorf("saved %+v, %v", a, err)
	}
	if h := history(t, s); len(h.Fulls) != 1 {
		t.Errorf("the store has %+v, want the broken object left alone", h.Fulls)
	}
}

func TestASaveTriesAgainOnlyWhatEtcdRefused(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"no etcd":             {status.Error(codes.Unavailable, "connection refused"), true},
		"a stream that ended": {snapshot.ErrTorn, true},
		"another member":      {snapshot.ErrEndpoints, true},
		"no permission":       {status.Error(codes.PermissionDenied, "etcdserver: permission denied"), false},
		"no user":             {status.Error(codes.InvalidArgument, "etcdserver: user name is empty"), false},
		"the store refuses":   {store.ErrForbidden, false},
		"no bucket":           {store.ErrInvalid, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := passing(c.err); got != c.want {
				t.Errorf("%v passes: %t, want %t", c.err, got, c.want)
			}
		})
	}
}
