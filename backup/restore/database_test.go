package restore

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.uber.org/zap"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/test/member"
)

// The members and the log in a database that is restored alone are those of the source, whatever delta backups follow.
func TestADatabaseKeepsWhoTheClusterIs(t *testing.T) {
	t.Parallel()
	s := newSource(t, newest, 3)
	s.traffic(30)
	taken := s.full()
	s.traffic(30)
	s.deltas(taken.Revision+1, s.revision())
	buckets := func(p catalog.Plan) map[string]map[string]string {
		path := filepath.Join(t.TempDir(), "db")
		if _, err := Database(t.Context(), Config{Store: s.store, Plan: p, EtcdVersion: newest}, path); err != nil {
			t.Fatal(err)
		}
		all := bucketsOf(t, path)
		maps.DeleteFunc(all, func(name string, _ map[string]string) bool { return name == "key" || name == "lease" })
		return all
	}
	want := buckets(catalog.Plan{Full: s.named(taken.Key)})
	if diff := cmp.Diff(want, buckets(s.plan(catalog.Target{}))); diff != "" || len(want["members"]) != 1 || len(want["meta"]) == 0 {
		t.Errorf("the full (-) and what the deltas made of it (+), with %d members:\n%s", len(want["members"]), diff)
	}
}

func TestADatabaseReplacesNothing(t *testing.T) {
	t.Parallel()
	s := newSource(t, newest, 4)
	s.traffic(10)
	s.full()
	path := filepath.Join(t.TempDir(), "db")
	if err := os.WriteFile(path, []byte("mine"), fileMode); err != nil {
		t.Fatal(err)
	}
	if _, err := Database(t.Context(), Config{Store: s.store, Plan: s.plan(catalog.Target{}), EtcdVersion: newest}, path); !errors.Is(err, os.ErrExist) {
		t.Errorf("over a file: %v", err)
	}
	if mine, err := os.ReadFile(path); err != nil || string(mine) != "mine" {
		t.Errorf("the file is %q, %v", mine, err)
	}
}

// The restore of etcdutl is the model: the log, the snapshot and the complete database must be equal. If the revision
// is bumped, etcdutl leaves it to etcd to drop what is thereby compacted.
func TestTheMembersAreWhatEtcdutlMakesOfThem(t *testing.T) {
	t.Parallel()
	for _, minor := range member.Minors {
		s := newSource(t, minor, 10)
		s.traffic(50)
		full := s.full()
		for name, cluster := range map[string]string{
			"one member":    "m=http://127.0.0.1:1",
			"three members": "a=http://127.0.0.1:3,m=http://127.0.0.1:1,z=http://127.0.0.1:2",
		} {
			for _, bump := range []string{"", "1000"} {
				t.Run(minor+" "+name+" "+bump, func(t *testing.T) {
					members := len(strings.Split(cluster, ","))
					theirs := filepath.Join(t.TempDir(), "theirs")
					args := []string{
						"snapshot", "restore", plain(t, s, full.Key), "--data-dir", theirs, "--name=m", "--initial-cluster=" + cluster,
						"--initial-cluster-token=restored", "--initial-advertise-peer-urls=http://127.0.0.1:1",
					}
					g := newTarget(t)
					g.peerURL = "http://127.0.0.1:1"
					cfg := g.config(s, catalog.Plan{Full: s.named(full.Key)}, newest)
					cfg.InitialCluster = cluster
					if bump != "" {
						args, cfg.Bump = append(args, "--bump-revision="+bump, "--mark-compacted"), 1000
					}
					if out, err := exec.CommandContext(t.Context(), member.Program(t, "etcdutl", newest), args...).CombinedOutput(); err != nil {
						t.Fatalf("etcdutl: %v\n%s", err, out)
					}
					if _, err := Run(t.Context(), cfg); err != nil {
						t.Fatal(err)
					}
					want := contentOf(t, theirs, members)
					if bump != "" {
						want.Buckets["key"] = aliveIn(t, want.Buckets["key"])
					}
					if diff := cmp.Diff(want, contentOf(t, g.dir, members), protocmp.Transform()); diff != "" {
						t.Errorf("etcdutl (-) and this package (+) differ:\n%s", diff)
					}
				})
			}
		}
	}
}

// aliveIn returns the last records of the keys that are alive.
func aliveIn(t *testing.T, records map[string]string) map[string]string {
	t.Helper()
	last := map[string]string{}
	for _, revision := range slices.Sorted(maps.Keys(records)) {
		key, _, err := keyAndLease([]byte(records[revision]))
		if err != nil {
			t.Fatal(err)
		}
		last[string(key)] = revision
	}
	alive := map[string]string{}
	for _, revision := range last {
		if !strings.HasSuffix(revision, "t") || len(revision) == 17 {
			alive[revision] = records[revision]
		}
	}
	return alive
}

// plain decompresses a full backup into a file, as etcd sent it.
func plain(t *testing.T, s *source, key string) string {
	t.Helper()
	d, err := zstd.NewReader(bytes.NewReader(s.content(key)))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	content, err := io.ReadAll(d)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "snapshot.db")
	write(t, path, string(content))
	return path
}

// contents of a data directory: files by name, entries of each bucket, and the content of the log.
type contents struct {
	Files    map[string]string
	Buckets  map[string]map[string]string
	Metadata string
	State    any
	Entries  any
}

func contentOf(t *testing.T, data string, members int) contents {
	t.Helper()
	c := contents{Files: map[string]string{}}
	err := filepath.WalkDir(data, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(data, path)
		info, err := d.Info()
		if err != nil {
			return err
		}
		c.Files[name] = info.Mode().String()
		// With more than one member, etcd writes this file in the order of a map.
		if filepath.Ext(path) == ".snap" && members == 1 {
			content, err := os.ReadFile(path)
			c.Files[name] += string(content)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	c.Buckets = bucketsOf(t, filepath.Join(data, "member", "snap", "db"))
	log, err := wal.OpenForRead(zap.NewNop(), filepath.Join(data, "member", "wal"), &walpb.Snapshot{Index: new(uint64(0)), Term: new(uint64(0))})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	metadata, state, entries, err := log.ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	c.Metadata, c.State, c.Entries = string(metadata), state, entries
	return c
}

// bucketsOf reads the complete database.
func bucketsOf(t *testing.T, path string) map[string]map[string]string {
	t.Helper()
	buckets := map[string]map[string]string{}
	db, err := bolt.Open(path, fileMode, &bolt.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	err = db.View(func(tx *bolt.Tx) error {
		return tx.ForEach(func(name []byte, b *bolt.Bucket) error {
			entries := map[string]string{}
			buckets[string(name)] = entries
			return b.ForEach(func(k, v []byte) error {
				entries[string(k)] = string(v)
				return nil
			})
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return buckets
}
