package start

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/agent/datadir"
	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/backup/store/dir"
	"github.com/etcd-druid/druid/backup/store/storetest"
	single "github.com/etcd-druid/druid/test/member"
)

// savedFile writes to a directory what `etcdctl snapshot save` returns for an etcd with keys 1 and 3. With auth,
// authentication is enabled. It returns the last revision of etcd.
func savedFile(t *testing.T, minor, path string, auth bool) (last int64) {
	t.Helper()
	source := single.Start(t, minor, single.Options{Token: "old"})
	for _, key := range []string{"1", "3"} {
		put, err := source.Client.Put(t.Context(), key, "value of "+key)
		must(t, err)
		last = put.Header.Revision
	}
	alarm := etcdserverpb.NewMaintenanceClient(source.Client.ActiveConnection())
	_, err := alarm.Alarm(t.Context(), &etcdserverpb.AlarmRequest{
		Action: etcdserverpb.AlarmRequest_ACTIVATE, MemberID: 7, Alarm: etcdserverpb.AlarmType_NOSPACE,
	})
	must(t, err)
	client := source.Client
	source.AwaitStorageVersion(t)
	if auth {
		_, err := client.UserAdd(t.Context(), "root", "secret")
		must(t, err)
		_, err = client.UserGrantRole(t.Context(), "root", "root")
		must(t, err)
		_, err = client.AuthEnable(t.Context())
		must(t, err)
		client, err = clientv3.New(clientv3.Config{Endpoints: []string{source.Endpoint}, Username: "root", Password: "secret", DialTimeout: maxWait})
		must(t, err)
		t.Cleanup(func() { _ = client.Close() })
	}
	stream, err := client.Snapshot(t.Context())
	must(t, err)
	content, err := io.ReadAll(stream)
	must(t, errors.Join(err, stream.Close()))
	must(t, os.MkdirAll(filepath.Join(path, "old"), 0o755))
	must(t, os.WriteFile(filepath.Join(path, oldFile), content, 0o600))
	return last
}

const oldFile = "old/snapshot.db"

func TestEachMinorIsFormedFromAFileOfEtcdctl(t *testing.T) {
	t.Parallel()
	for target, source := range map[string]string{"3.5.35": "3.5", "3.6.16": "3.5", "3.7.3": "3.6"} {
		t.Run(source+" to "+target[:3], func(t *testing.T) {
			t.Parallel()
			path := t.TempDir()
			last := savedFile(t, source, path, false)
			c := newCluster(t, target, "c-a", "c-b")
			for _, m := range c.members {
				m.savedAt(path)
				m.restores(config.Restore{File: oldFile})
				m.start()
			}
			c.voters("c-a", "c-b")
			c.holdsWhatWasSaved("c-b", last)
			record, _ := c.record()
			place := placeAt(t, path, "ns/c")
			formation, err := catalog.ReadBootstrap(t.Context(), place.Store, "ns/c", catalog.Lineage(record.Lineage))
			if err != nil || formation.Reason != "restore" || formation.File != oldFile || formation.Parent != "" || formation.Fork != 0 {
				t.Errorf("the store reports %+v, %v", formation, err)
			}
			identityFile, err := datadir.ReadIdentityFile(c.members["c-a"].cfg.VolumePath)
			if err != nil || identityFile.File != oldFile || identityFile.Parent != "" || !identityFile.Formed {
				t.Errorf("the identity file says %+v, %v", identityFile, err)
			}
		})
	}
}

// TestNothingFormedFromPartialFile: nothing is formed of a file that is not there or not whole.
func TestNothingFormedFromPartialFile(t *testing.T) {
	t.Parallel()
	plain, authed := t.TempDir(), t.TempDir()
	savedFile(t, "3.6", plain, false)
	savedFile(t, "3.6", authed, true)
	cut := func(n int) func(*testing.T, string) {
		return func(t *testing.T, path string) {
			info, err := os.Stat(path)
			must(t, err)
			must(t, os.Truncate(path, info.Size()-int64(n)))
		}
	}
	for name, tc := range map[string]struct {
		from, version string
		spoil         func(t *testing.T, path string)
		quota         int64
		rule          string
		says          string
	}{
		"it is not there": {plain, "3.6.16", func(t *testing.T, path string) { must(t, os.Remove(path)) }, 0, "nothing-to-restore",
			"no such object called " + oldFile},
		"the directory is not": {plain, "3.6.16", func(t *testing.T, path string) { must(t, os.RemoveAll(filepath.Dir(filepath.Dir(path)))) }, 0,
			"store-unreachable", "no such bucket"},
		"it is cut by a byte":       {plain, "3.6.16", cut(1), 0, "backup-unusable", "is incomplete"},
		"it has no checksum":        {plain, "3.6.16", cut(sha256.Size), 0, "backup-unusable", "has no checksum at its end"},
		"a bit flipped":             {plain, "3.6.16", flip, 0, "backup-unusable", oldFile},
		"it is of a newer etcd":     {plain, "3.5.35", nil, 0, "backup-unusable", "use etcd 3.6 or later"},
		"it is more than is let":    {plain, "3.6.16", nil, 4096, "backup-unusable", "increase etcd.quotaBackendBytes"},
		"it wants to know who asks": {authed, "3.6.16", nil, 0, "auth-required-not-configured", "etcdctl auth disable"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			copied := filepath.Join(t.TempDir(), "store")
			must(t, os.CopyFS(copied, os.DirFS(tc.from)))
			if tc.spoil != nil {
				tc.spoil(t, filepath.Join(copied, oldFile))
			}
			c := newCluster(t, tc.version, "c-a")
			seed := c.members["c-a"]
			seed.cfg.QuotaBackendBytes = tc.quota
			seed.restores(config.Restore{Store: storeJSON(copied), File: oldFile})
			seed.start()
			c.beginsNothing("c-a", tc.rule, tc.says)
		})
	}
}

func TestAFileThatIsRepairedIsRestored(t *testing.T) {
	t.Parallel()
	path := t.TempDir()
	last := savedFile(t, "3.6", path, false)
	file := filepath.Join(path, oldFile)
	whole, err := os.ReadFile(file)
	must(t, err)
	flip(t, file)
	c := newCluster(t, "3.6.16", "c-a")
	seed := c.members["c-a"]
	seed.restores(config.Restore{Store: storeJSON(path), File: oldFile})
	seed.start()
	c.decides("c-a", "backup-unusable")
	must(t, os.WriteFile(file+".new", whole, 0o600))
	must(t, os.Rename(file+".new", file))
	c.voters("c-a")
	c.holdsWhatWasSaved("c-a", last)
}

// TestFileFoundInEncryptedStore: a file is found in a store whose backups are encrypted.
func TestFileFoundInEncryptedStore(t *testing.T) {
	path := t.TempDir()
	last := savedFile(t, "3.6", path, false)
	b := alone(t)
	b.cfg.EtcdVersion = "3.6.16"
	var opened store.Config
	b.openStore = func(_ context.Context, c store.Config) (store.Store, error) {
		opened = c
		return dir.Open(*c.Directory)
	}
	raw := fmt.Sprintf(`{"directory":{"path":%q},"clientEncryption":{"keysDir":"/keys"}}`, path)
	answer := b.findFile(t.Context(), storeAnswer{}, oldFile, []byte(raw))
	if answer.fact != BackupPresent || answer.file.Key != oldFile || opened.ClientEncryption != nil || last == 0 {
		t.Errorf("got %+v of %+v", answer, opened)
	}
}

// TestBootstrapWaitsForSlowStoreOnly: a bootstrap waits for a store that is slow and not for one that hangs.
func TestBootstrapWaitsForSlowStoreOnly(t *testing.T) {
	const pace = store.MaxWait - time.Second
	for name, test := range map[string]struct {
		slow   storetest.Slow
		took   time.Duration
		want   Backup
		detail string
	}{
		"objects come slowly":  {storetest.Slow{Pace: pace}, 10 * pace, BackupPresent, ""},
		"objects come no more": {storetest.Slow{Pace: pace, Hangs: 4}, 4*pace + store.MaxWait, StoreUnreachable, "the store sent no data for 2m0s"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				path := t.TempDir()
				s, err := dir.Open(store.Directory{Path: path})
				must(t, err)
				for i := range int64(10) {
					_, err := s.Put(t.Context(), catalog.FullKey("ns/c", oldLineage, 1+i, time.Now()), strings.NewReader("x"), store.PutOptions{})
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
