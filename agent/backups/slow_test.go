package backups

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcd-druid/druid/backup/chain"
	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/backup/store/storetest"
)

func TestAListingMayTakeLongAndMayNotHang(t *testing.T) {
	for name, test := range map[string]struct {
		slow     storetest.Slow
		took     time.Duration
		notified string
	}{
		"objects come slowly":   {storetest.Slow{Pace: store.Patience - time.Second}, 10 * (store.Patience - time.Second), ""},
		"objects come no more":  {storetest.Slow{Pace: time.Second, Hangs: 4}, 4*time.Second + store.Patience, "nothing came from the store for 2m0s"},
		"the first never comes": {storetest.Slow{Pace: store.Patience + time.Second}, store.Patience, "nothing came from the store for 2m0s"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				test.slow.Store = opened(t, directory(t.TempDir()))
				for i := range int64(10) {
					mustPut(t, test.slow.Store, chain.FullKey(prefix, lineage, 1+i, time.Now()), "x")
				}
				began := time.Now()
				c, _, err := catalogOf(t.Context(), test.slow, prefix)
				if took := time.Since(began); took != test.took {
					t.Errorf("it took %s, want %s", took, test.took)
				}
				if test.notified == "" && (err != nil || len(c.Histories[0].Fulls) != 10) {
					t.Errorf("listed %+v, %v", c, err)
				}
				if test.notified != "" && (err == nil || !strings.Contains(err.Error(), test.notified)) {
					t.Errorf("reported %v, want %q", err, test.notified)
				}
			})
		})
	}
}
