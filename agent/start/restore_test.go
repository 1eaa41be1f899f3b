package start

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/agent/datadir"
	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/backup/restore"
	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/backup/store/dir"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/test/history"
	single "github.com/etcd-druid/druid/test/member"
)

// oldLineage is the lineage of the existing backups.
const oldLineage = catalog.Lineage("00000004-01d")

// saved is the place of the backups of a cluster with another UID: a full backup with keys 1 and 2 and a raised alarm,
// and a delta backup that deletes 2 and puts 3.
func saved(t *testing.T, minor, path, prefix string) (place history.Place, last int64) {
	t.Helper()
	place = placeAt(t, path, prefix)
	source := single.Start(t, minor, single.Options{Token: "old"})
	alarm := etcdserverpb.NewMaintenanceClient(source.Client.ActiveConnection())
	change := func(action etcdserverpb.AlarmRequest_AlarmAction) {
		_, err := alarm.Alarm(t.Context(), &etcdserverpb.AlarmRequest{Action: action, MemberID: 7, Alarm: etcdserverpb.AlarmType_NOSPACE})
		must(t, err)
	}
	put := func(key string) {
		_, err := source.Client.Put(t.Context(), key, "value of "+key)
		must(t, err)
	}
	place.Formation(t, "uid-old")
	put("1")
	put("2")
	change(etcdserverpb.AlarmRequest_ACTIVATE)
	full := place.Full(t, source.Client)
	change(etcdserverpb.AlarmRequest_DEACTIVATE)
	put("3")
	_, err := source.Client.Delete(t.Context(), "2")
	must(t, err)
	return place, place.Delta(t, source.Client, full.Revision)
}

func placeAt(t *testing.T, path, prefix string) history.Place {
	t.Helper()
	s, err := dir.Open(store.Directory{Path: path})
	must(t, err)
	return history.Place{Store: s, Prefix: prefix, Lineage: oldLineage}
}

func storeJSON(path string) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(`{"directory":{"path":%q}}`, path))
}

// savedConfig is a configuration file with backups in the place ns/c of a store.
func savedConfig(t *testing.T, at string) string {
	t.Helper()
	r := config.DefaultReloadable()
	r.Backup = &config.Backup{
		Store: json.RawMessage(at), Prefix: "ns/c", Full: config.Full{Schedule: "@daily"},
		Delta:     config.Delta{Period: config.Duration(time.Second), MaxBytes: 1 << 20},
		Retention: config.Retention{Count: 3},
	}
	content, err := r.YAML()
	must(t, err)
	return string(content)
}

// writtenConfig is the path of a file with that content. Without content there is no file.
func writtenConfig(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	if content != "" {
		must(t, os.WriteFile(path, []byte(content), 0o600))
	}
	return path
}

// savedAt configures backups of the member's cluster in a directory.
func (m *member) savedAt(path string) {
	m.c.t.Helper()
	m.cfg.ConfigPath = writtenConfig(m.c.t, savedConfig(m.c.t, string(storeJSON(path))))
}

// restores requests a restore from the member.
func (m *member) restores(order config.Restore) {
	m.c.t.Helper()
	text, err := order.Encode()
	must(m.c.t, err)
	m.cfg.Restore = text
}

// TestClusterFormedFromPredecessor: a cluster is formed from the backups of its predecessor.
func TestClusterFormedFromPredecessor(t *testing.T) {
	t.Parallel()
	path := t.TempDir()
	place, last := saved(t, "3.6", path, "ns/c")
	c := newCluster(t, "3.6.16", "c-a", "c-b", "c-c")
	// A member that joins or resumes queries no store.
	silent := func(context.Context, store.Config) (store.Store, error) {
		t.Error("a store was opened")
		return nil, errBroken
	}
	for name, m := range c.members {
		m.savedAt(path)
		m.restores(config.Restore{Prefix: "ns/c"})
		if name != "c-a" {
			m.openStore = silent
		}
		m.start()
	}
	c.voters("c-a", "c-b", "c-c")
	if deeds := slices.Compact(c.members["c-a"].deeds()); !slices.Equal(deeds, []string{"restore-at-first-boot"}) {
		t.Errorf("the seed decided by %v", deeds)
	}
	if reported := c.members["c-a"].last(); reported.Reason != "" {
		t.Errorf("at last it reported %+v", reported)
	}
	c.holdsWhatWasSaved("c-c", last)
	c.put("c-b", "4", "after")
	record, _ := c.record()
	if record.Epoch != 5 || record.FormedEpoch != 5 {
		t.Errorf("the record says %+v: a lineage of epoch 4 was there", record)
	}
	formation, err := catalog.ReadBootstrap(t.Context(), place.Store, "ns/c", catalog.Lineage(record.Lineage))
	if err != nil || formation.Parent != oldLineage || formation.Fork != last || formation.ClusterUID != "uid-c" {
		t.Errorf("the store reports %+v, %v", formation, err)
	}
	identityFile, err := datadir.ReadIdentityFile(c.members["c-a"].cfg.VolumePath)
	if err != nil || identityFile.Parent != string(oldLineage) || identityFile.Fork != last || !identityFile.Formed {
		t.Errorf("the identity file says %+v, %v", identityFile, err)
	}
	// The order stays in the Pod for good.
	for _, m := range c.members {
		m.halt()
		m.openStore = silent
	}
	for _, m := range c.members {
		m.start()
	}
	c.voters("c-a", "c-b", "c-c")
	if got := c.get("c-a", "4"); got != "after" {
		t.Errorf("4 is %q", got)
	}
}

// holdsWhatWasSaved checks that the cluster has the data of saved, whose last revision is last.
func (c *cluster) holdsWhatWasSaved(name string, last int64) {
	c.t.Helper()
	client := c.client(name)
	defer func() { _ = client.Close() }()
	ctx, cancel := context.WithTimeout(c.t.Context(), maxWait)
	defer cancel()
	all, err := client.Get(ctx, "", clientv3.WithPrefix())
	must(c.t, err)
	var got []string
	for _, kv := range all.Kvs {
		got = append(got, fmt.Sprintf("%s=%s", kv.Key, kv.Value))
	}
	if want := []string{"1=value of 1", "3=value of 3"}; !slices.Equal(got, want) {
		c.t.Errorf("it holds %q, want %q", got, want)
	}
	if all.Header.Revision < last+restore.DefaultBump {
		c.t.Errorf("it is at revision %d, the old one was at %d", all.Header.Revision, last)
	}
	if response := <-client.Watch(ctx, "1", clientv3.WithRev(last)); !errors.Is(response.Err(), rpctypes.ErrCompacted) {
		c.t.Errorf("a watch from revision %d: %+v", last, response)
	}
	alarms, err := client.AlarmList(ctx)
	if err != nil || len(alarms.Alarms) != 0 {
		c.t.Errorf("alarms %v, %v", alarms, err)
	}
}

// TestMinorFormedFromOtherMinor: each minor is formed from the backups of another.
func TestMinorFormedFromOtherMinor(t *testing.T) {
	t.Parallel()
	for target, source := range map[string]string{"3.5.35": "3.5", "3.6.16": "3.5", "3.7.3": "3.6"} {
		t.Run(source+" to "+target[:3], func(t *testing.T) {
			t.Parallel()
			path := t.TempDir()
			_, last := saved(t, source, path, "other/old")
			c := newCluster(t, target, "c-a")
			// The cluster itself is not saved.
			c.members["c-a"].restores(config.Restore{Store: storeJSON(path), Prefix: "other/old"})
			c.members["c-a"].start()
			c.voters("c-a")
			c.holdsWhatWasSaved("c-a", last)
			if record, _ := c.record(); record.Epoch != 1 {
				t.Errorf("the record says %+v", record)
			}
		})
	}
}

func TestARestoreThatBreaksOffIsBegunAgain(t *testing.T) {
	t.Parallel()
	path := t.TempDir()
	_, last := saved(t, "3.6", path, "ns/c")
	c := newCluster(t, "3.6.16", "c-a")
	seed := c.members["c-a"]
	seed.savedAt(path)
	seed.restores(config.Restore{Prefix: "ns/c"})
	s := &breaking{put: func(ctx context.Context) {
		if record, _, err := c.store.Record(ctx); err == nil && record.Phase != leases.PhaseForming {
			t.Errorf("it is %s before anything reports where its history forked", record.Phase)
		}
	}}
	s.gets.Store(2)
	s.puts.Store(2)
	seed.openStore = func(_ context.Context, o store.Config) (_ store.Store, err error) {
		s.Store, err = dir.Open(*o.Directory)
		return s, err
	}
	seed.start()
	c.eventually("the cluster is recorded", func() error {
		if record, _ := c.record(); record.Phase != leases.PhaseFormed || s.puts.Load() >= 0 {
			return fmt.Errorf("the record says %+v", record)
		}
		return nil
	})
	c.holdsWhatWasSaved("c-a", last)
	if reported := seed.reported(func(p Published) bool { return strings.Contains(p.Reason, errBroken.Error()) }); len(reported) == 0 {
		t.Errorf("it did not report the broken connection: %+v", seed.reported(func(Published) bool { return true }))
	}
	c.eventually("what was begun is gone", func() error {
		left, err := datadir.Leftovers(seed.cfg.VolumePath)
		if len(left) > 0 || err != nil {
			return fmt.Errorf("left: %q, %w", left, err)
		}
		return nil
	})
}

// breaking is a store whose reads of delta backups and whose writes fail a number of times.
type breaking struct {
	store.Store
	gets, puts atomic.Int32
	put        func(context.Context)
}

var errBroken = errors.New("connection reset")

func (s *breaking) Get(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	if strings.Contains(key, "/delta/") && s.gets.Add(-1) >= 0 {
		return nil, errBroken
	}
	return s.Store.Get(ctx, key, offset, length)
}

func (s *breaking) Put(ctx context.Context, key string, r io.Reader, o store.PutOptions) (store.Object, error) {
	s.put(ctx)
	if s.puts.Add(-1) >= 0 {
		return store.Object{}, errBroken
	}
	return s.Store.Put(ctx, key, r, o)
}

// reported returns what the member has reported so far.
func (m *member) reported(want func(Published) bool) (all []Published) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.said {
		if want(p) {
			all = append(all, p)
		}
	}
	return all
}
