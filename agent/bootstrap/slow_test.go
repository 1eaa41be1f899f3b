package bootstrap

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/backup/chain"
	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/backup/store/dir"
	"github.com/etcd-druid/druid/backup/store/storetest"
)

func TestABootstrapWaitsForAStoreThatIsSlowAndNotForOneThatHangs(t *testing.T) {
	const pace = store.Patience - time.Second
	for name, test := range map[string]struct {
		slow   storetest.Slow
		took   time.Duration
		want   Backup
		detail string
	}{
		"objects come slowly":  {storetest.Slow{Pace: pace}, 10 * pace, BackupPresent, ""},
		"objects come no more": {storetest.Slow{Pace: pace, Hangs: 4}, 4*pace + store.Patience, StoreUnreachable, "nothing came from the store for 2m0s"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				path := t.TempDir()
				s, err := dir.Open(store.Directory{Path: path})
				must(t, err)
				for i := range int64(10) {
					_, err := s.Put(t.Context(), chain.FullKey("ns/c", oldLineage, 1+i, time.Now()), strings.NewReader("x"), store.PutOptions{})
					must(t, err)
				}
				b := alone(t)
				b.cfg.Restore, err = config.Restore{Store: storeJSON(path), Prefix: "ns/c"}.Encode()
				must(t, err)
				b.openStore = func(context.Context, store.Config) (store.Store, error) {
					test.slow.Store = s
					return test.slow, nil
				}
				began := time.Now()
				o := observation{details: map[string]string{}}
				b.observeBackup(t.Context(), &o)
				if took := time.Since(began); took != test.took || o.Backup != test.want {
					t.Errorf("it is %v after %s, want %v after %s", o.Backup, took, test.want, test.took)
				}
				if !strings.Contains(o.details["backup"], test.detail) {
					t.Errorf("reported %q, want %q", o.details["backup"], test.detail)
				}
			})
		})
	}
}
