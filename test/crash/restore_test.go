package crash_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/backup/restore"
	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/backup/store/dir"
	"github.com/etcd-druid/druid/test/history"
	"github.com/etcd-druid/druid/test/member"
)

// What the backups are of that a cluster is formed from: a cluster of the same name, which is gone.
const (
	savedPrefix  = "default/" + clusterName
	savedLineage = catalog.Lineage("00000003-5a7ed")
)

// template is a store that was saved once; each cluster gets a copy. TestMain removes it.
var template struct {
	sync.Mutex
	path string
}

func savedOnce(t *testing.T) string {
	t.Helper()
	template.Lock()
	defer template.Unlock()
	if template.path != "" {
		return template.path
	}
	path, err := os.MkdirTemp("", "crash-backups")
	if err != nil {
		t.Fatal(err)
	}
	template.path = path
	s, err := dir.Open(store.Directory{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	place := history.Place{Store: s, Prefix: savedPrefix, Lineage: savedLineage}
	place.Formation(t, "uid-of-the-old-cluster")
	source := member.Start(t, "3.6", member.Options{Token: "old"})
	put := func(key, value string) {
		if _, err := source.Client.Put(t.Context(), key, value); err != nil {
			t.Fatal(err)
		}
	}
	put("saved", "in a full")
	full := place.Full(t, source.Client)
	put("saved", "in a delta")
	place.Delta(t, source.Client, full.Revision)
	return path
}

// restoring is a seed whose first boot restores.
func restoring(c *cluster) *pod {
	p, path := seed(c), filepath.Join(c.t.TempDir(), "store")
	c.must(os.CopyFS(path, os.DirFS(savedOnce(c.t))))
	r := quick()
	r.Backup = &config.Backup{
		Store: json.RawMessage(fmt.Sprintf(`{"directory":{"path":%q}}`, path)), Prefix: savedPrefix,
		Full: config.Full{Schedule: "@daily"}, Retention: config.Retention{Count: 3},
		Delta: config.Delta{Period: config.Duration(time.Second), MaxBytes: 1 << 20},
	}
	content, err := r.YAML()
	c.must(err)
	c.must(os.WriteFile(p.config.ConfigPath, content, 0o600))
	p.config.Restore, err = config.Restore{Prefix: savedPrefix}.Encode()
	c.must(err)
	p.certify()
	return p
}

// restored checks that the cluster holds what was saved, once, and that the store reports where its history forked.
func (c *cluster) restored() {
	c.t.Helper()
	c.must(c.etcd(c.names[0], func(ctx context.Context, client *clientv3.Client) error {
		got, err := client.Get(ctx, "saved")
		switch {
		case err != nil:
			return err
		case len(got.Kvs) != 1 || string(got.Kvs[0].Value) != "in a delta":
			return fmt.Errorf("it holds %v", got.Kvs)
		case got.Header.Revision < restore.DefaultBump || got.Header.Revision >= 2*restore.DefaultBump:
			return fmt.Errorf("it is at revision %d", got.Header.Revision)
		}
		return nil
	}))
	record, _, err := c.store.Record(c.t.Context())
	c.must(err)
	backup, err := config.ReadReloadable(c.pods[c.names[0]].config.ConfigPath)
	c.must(err)
	parsed, err := store.ParseConfig(backup.Backup.Store)
	c.must(err)
	s, err := dir.Open(*parsed.Directory)
	c.must(err)
	formation, err := catalog.ReadBootstrap(c.t.Context(), s, savedPrefix, catalog.Lineage(record.Lineage))
	c.must(err)
	if formation.Parent != savedLineage || formation.Fork == 0 || formation.Lineage.Epoch() <= savedLineage.Epoch() {
		c.must(errors.New("the store reports no fork: " + fmt.Sprint(formation)))
	}
}
