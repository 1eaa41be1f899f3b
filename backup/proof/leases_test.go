package proof

import (
	"encoding/binary"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/storage/schema"

	"github.com/etcd-druid/druid/backup/chain"
	"github.com/etcd-druid/druid/backup/restore"
	"github.com/etcd-druid/druid/test/history"
	"github.com/etcd-druid/druid/test/member"
)

// The leases of a database are in no hash: a full without one of them would end the etcd that a client touches its key in.
func TestALeaseThatTheFullLacksIsFound(t *testing.T) {
	t.Parallel()
	m, s := member.Start(t, "3.6", member.Options{}), newStore(t)
	place := history.Place{Store: s, Prefix: prefix, Lineage: lineage, CheckpointEvery: time.Nanosecond}
	place.Formation(t, "uid")
	grant := func() clientv3.LeaseID {
		lease, err := m.Client.Grant(t.Context(), 3600)
		if err != nil {
			t.Fatal(err)
		}
		return lease.ID
	}
	put := func(key string, o ...clientv3.OpOption) {
		if _, err := m.Client.Put(t.Context(), key, "value", o...); err != nil {
			t.Fatal(err)
		}
	}
	held := grant()
	put("held", clientv3.WithLease(held))
	full := place.Full(t, m.Client)
	// A key that lets go of its lease later: no one needs that lease, and it is not restored.
	put("changed", clientv3.WithLease(grant()))
	at := place.Delta(t, m.Client, full.Revision)
	put("changed")
	place.Delta(t, m.Client, at)

	p, err := catalog(t, s).Plan(chain.Target{})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "db")
	got, err := restore.Database(t.Context(), restore.Config{Store: s, Plan: p, EtcdVersion: anyVersion}, path)
	if err != nil {
		t.Fatal(err)
	}
	db, err := bolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	compared := func() Result {
		contents, err := contentsOf(db)
		if err != nil {
			t.Fatal(err)
		}
		return comparison{db: db, plan: p, checkpoints: got.Checkpoints[:1], contents: contents}.judge(t.Context())
	}
	if r := compared(); r.Verdict != Proven || !slices.Equal(r.Compared, all) || !strings.Contains(strings.Join(r.NotCompared, ""), "1 leases are restored, and there were 2") {
		t.Errorf("got %+v", r)
	}
	err = db.Update(func(tx *bolt.Tx) error {
		return tx.Bucket(schema.Lease.Name()).Delete(binary.BigEndian.AppendUint64(nil, uint64(held)))
	})
	if err != nil {
		t.Fatal(err)
	}
	if r := compared(); r.Verdict != Broken || r.Object != full.Key || !strings.Contains(r.Reason, "without that lease") || slices.Contains(r.Compared, "leases of keys") {
		t.Errorf("without lease %x: got %+v", held, r)
	}
	if got.Checkpoints[0].Alive = nil; !strings.Contains(strings.Join(compared().NotCompared, ""), "leases: the checkpoint does not report") {
		t.Errorf("where the delta does not report: got %+v", compared())
	}
}
