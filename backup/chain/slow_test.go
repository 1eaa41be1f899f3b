package chain

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/backup/store/storetest"
)

func TestAReadIsGivenUpOnlyWhenNothingComes(t *testing.T) {
	const patience, pace = time.Minute, 50 * time.Second
	lineages := []Lineage{first, second}
	for name, test := range map[string]struct {
		hangs int
		want  time.Duration
	}{
		"a store that is slow": {0, 6 * pace}, // two records and two fulls are listed, and the records read
		"a store that hangs":   {3, 3*pace + patience},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStore(t)
				for _, l := range lineages {
					if err := WriteBootstrap(t.Context(), s, prefix, Formation{Lineage: l}); err != nil {
						t.Fatal(err)
					}
					put(t, s, FullKey(prefix, l, 1, at(1)), "x")
				}
				ctx, cancel := store.Patient(t.Context(), patience)
				defer cancel()
				began := time.Now()
				c, err := Read(ctx, storetest.Slow{Store: s, Pace: pace, Hangs: test.hangs}, prefix)
				if took := time.Since(began); took != test.want {
					t.Errorf("it took %s, want %s", took, test.want)
				}
				if test.hangs == 0 && (err != nil || len(c.Histories) != len(lineages) || c.Histories[1].Formation == nil) {
					t.Errorf("read %+v, %v", c, err)
				}
				if test.hangs > 0 && (err == nil || !strings.Contains(err.Error(), "nothing came from the store for 1m0s")) {
					t.Errorf("read %+v, %v", c, err)
				}
			})
		})
	}
}
