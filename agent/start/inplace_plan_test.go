package start

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/backup/store/dir"
	"github.com/etcd-druid/druid/leases"
)

// planning returns an agent that plans from the backups in path, as the configuration file says; without a path there are no backups.
func planning(t *testing.T, path string, change func(*config.Config)) *Bootstrapper {
	t.Helper()
	cfg := config.Default()
	cfg.Namespace, cfg.Cluster, cfg.Member, cfg.EtcdVersion, cfg.VolumePath = "ns", "c", "c-a", "3.6.16", t.TempDir()
	content, err := config.DefaultReloadable().YAML()
	must(t, err)
	if path != "" {
		content = []byte(savedConfig(t, string(storeJSON(path))))
	}
	cfg.ConfigPath = writtenConfig(t, string(content))
	if change != nil {
		change(&cfg)
	}
	b, err := New(Options{Config: cfg, Store: leases.NewStore(fullLease{}, "c"), Log: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry()})
	must(t, err)
	return b
}

// The dry run says what a restore in place would read, and changes nothing.
func TestARestoreInPlaceIsPlanned(t *testing.T) {
	t.Parallel()
	path := t.TempDir()
	place, last := saved(t, "3.6", path, "ns/c")
	const lineage = string(oldLineage)
	b := planning(t, path, nil)
	newest, err := b.PlanRestore(t.Context(), leases.RestoreTarget{}, lineage)
	must(t, err)
	if newest.Lineage != lineage || newest.Full == "" || newest.Deltas != 1 || newest.Revision != last || newest.Error != "" ||
		newest.Nonce != "" || len(newest.Notes) != 0 {
		t.Errorf("the newest state: %+v", newest)
	}
	objects := map[string]int64{}
	for o, err := range place.Store.List(t.Context(), "ns/c") {
		must(t, err)
		objects[o.Key] = o.Size
	}
	full := objects[newest.Full]
	if full == 0 || newest.Bytes <= full || newest.Database <= full {
		t.Errorf("the full backup has %d bytes, and the plan says %+v", full, newest)
	}
	earlier, err := b.PlanRestore(t.Context(), leases.RestoreTarget{Revision: last - 1}, lineage)
	if err != nil || earlier.Revision != last-1 || earlier.Full != newest.Full {
		t.Errorf("one revision less: %+v, %v", earlier, err)
	}
	then, err := b.PlanRestore(t.Context(), leases.RestoreTarget{Time: time.Now().Add(time.Hour)}, lineage)
	if err != nil || then.Revision != last || !strings.Contains(strings.Join(then.Notes, " "), "are missing") {
		t.Errorf("a time after the last backup: %+v, %v", then, err)
	}

	small := planning(t, path, func(cfg *config.Config) { cfg.QuotaBackendBytes = 4096 })
	if p, err := small.PlanRestore(t.Context(), leases.RestoreTarget{}, lineage); err != nil ||
		!strings.Contains(strings.Join(p.Notes, " "), "increase spec.etcd.quotaBackendBytes") {
		t.Errorf("a small quota: %+v, %v", p, err)
	}
}

// Without a plan, the answer says what to do.
func TestWhyARestoreInPlaceIsNotPlanned(t *testing.T) {
	t.Parallel()
	path := t.TempDir()
	_, last := saved(t, "3.6", path, "ns/c")
	const lineage = string(oldLineage)
	for name, test := range map[string]struct {
		path    string
		change  func(*config.Config)
		target  leases.RestoreTarget
		current string
		want    string
	}{
		"no backups":           {"", nil, leases.RestoreTarget{}, lineage, "set spec.backup"},
		"a store that is away": {filepath.Join(path, "away"), nil, leases.RestoreTarget{}, lineage, "the agent tries again"},
		"another lineage": {path, nil, leases.RestoreTarget{Lineage: "00000001-aa"}, lineage,
			"set another target in spec.recovery.restore: no backup leads to the newest state of lineage 00000001-aa"},
		"no such revision":   {path, nil, leases.RestoreTarget{Revision: last + 1}, lineage, "set another target in spec.recovery.restore"},
		"before the backups": {path, nil, leases.RestoreTarget{Time: time.Unix(1, 0)}, lineage, "set another target in spec.recovery.restore"},
		"an older etcd":      {path, func(cfg *config.Config) { cfg.EtcdVersion = "3.5.35" }, leases.RestoreTarget{}, lineage, "cannot be used"},
	} {
		plan, err := planning(t, test.path, test.change).PlanRestore(t.Context(), test.target, test.current)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %+v, %v; want %q", name, plan, err, test.want)
		}
	}
	b := planning(t, path, nil)
	newest, err := b.PlanRestore(t.Context(), leases.RestoreTarget{}, lineage)
	must(t, err)
	b.openStore = func(_ context.Context, o store.Config) (store.Store, error) {
		s, err := dir.Open(*o.Directory)
		return tooNew{s, newest.Full}, err
	}
	if plan, err := b.PlanRestore(t.Context(), leases.RestoreTarget{}, lineage); err == nil || !strings.Contains(err.Error(), "set another target") {
		t.Errorf("the only full backup contains more than the target: %+v, %v", plan, err)
	}
	must(t, os.Remove(b.cfg.ConfigPath))
	if plan, err := b.PlanRestore(t.Context(), leases.RestoreTarget{}, lineage); err == nil {
		t.Errorf("without a configuration file: %+v", plan)
	}
}
