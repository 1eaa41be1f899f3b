package backups

import (
	"errors"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"github.com/etcd-druid/druid/backup/chain"
	"github.com/etcd-druid/druid/backup/delta"
	"github.com/etcd-druid/druid/backup/store"
)

// The newest delta of the lineage holds another revision than etcd: what follows does not continue it, and a full is taken at once.
func TestAForkInsideALineageIsFollowedByAFull(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 1)
	c, client := directory(t.TempDir()), g.client(0)
	files := opened(t, c)
	a := g.newAgent(0, nil, "default")
	a.Configure(c)
	stop := a.start()
	savedUpTo(t, files, put(t, client, 5))
	stop()
	fulls := len(history(t, files).Fulls)

	at := put(t, client, 1)
	w, err := delta.NewWriter(delta.Header{Lineage: string(lineage), ClusterID: g.self(0).ClusterID})
	if err != nil {
		t.Fatal(err)
	}
	value, err := proto.Marshal(&mvccpb.KeyValue{Key: []byte("another"), CreateRevision: at, ModRevision: at, Version: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Append(delta.AppendKey(nil, at, 0, false), value, time.Now()); err != nil {
		t.Fatal(err)
	}
	sealed, err := w.Finish(time.Now(), delta.Leases{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := files.Put(t.Context(), chain.DeltaKey(prefix, lineage, at, at, time.Now()), sealed.Reader(), store.PutOptions{}); err != nil {
		t.Fatal(err)
	}

	next := g.newAgent(0, nil, "default")
	next.Configure(c)
	next.start()
	last := put(t, client, 5)
	eventually(t, "a full follows the fork", func() error {
		if len(history(t, files).Fulls) == fulls || next.fired("broken") == 0 {
			return errors.New("not yet")
		}
		return nil
	})
	savedUpTo(t, files, last)
	restored(t, files, client, last)
}
