package backups

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/test/backups"
	"github.com/etcd-druid/druid/test/bucket"
)

// changed returns a configuration with another store.
func changed(t *testing.T, c *config.Backup, change func(*store.Config)) *config.Backup {
	t.Helper()
	parsed, err := store.ParseConfig(c.Store)
	if err != nil {
		t.Fatal(err)
	}
	change(&parsed)
	copied := *c
	if copied.Store, err = json.Marshal(parsed); err != nil {
		t.Fatal(err)
	}
	return &copied
}

func TestAFullInAnotherBucketIsABackupByItself(t *testing.T) {
	t.Parallel()
	admin, namespace, agentOf := snapshotLeases(t)
	o := orderer{t, admin, namespace}
	server := bucket.Start(t)
	mine, theirs := server.Make(t, "mine", false), server.Make(t, "theirs", false)
	keys := backups.Keys(t, "a")
	c := changed(t, inBucket(t, server.Endpoint, mine), func(c *store.Config) { c.ClientEncryption = &store.ClientEncryption{KeysDir: keys} })
	there := changed(t, c, func(c *store.Config) { c.S3.Bucket, c.S3.Prefix = theirs, "moved/here" })
	plain := changed(t, there, func(c *store.Config) { c.ClientEncryption = nil })
	g := newGroup(t, 1)
	client, s := g.client(0), opened(t, c)
	self := g.self(0)
	self.Parent, self.Fork = "00000000-dead", 1
	a := agentOf(g, 0)
	a.Self = func() (Identity, bool) { return self, true }
	a.Configure(c)
	a.start()
	background(t, a.ServeOrders)
	last := put(t, client, 20)
	savedUpTo(t, s, last)
	fulls := len(history(t, s).Fulls)
	// The Lease reports the first full backup when it is listed, not when it is saved.
	var reported leases.Backup
	eventually(t, "the Lease reports the first full", func() (err error) {
		if reported, err = decoded(t, admin, namespace, leases.FullSnapshotName("demo")); err == nil && reported.Object == "" {
			err = errors.New("it reports none")
		}
		return err
	})

	place := &leases.SnapshotPlace{Bucket: theirs, Prefix: "moved/here"}
	o.patchOrder(fullLease, "moves", leases.SnapshotElsewhere, leases.SnapshotTarget{Place: place})
	answer := o.answered(fullLease, "moves", leases.SnapshotSucceeded)
	if answer.URI != "s3://"+theirs+"/moved/here/"+answer.Object || answer.Revision < last || answer.Size == 0 || answer.SHA256 == "" {
		t.Errorf("answered %+v after revision %d", answer, last)
	}
	isVerified(t, opened(t, there), client, last)
	restored(t, opened(t, there), client, last)
	h := history(t, opened(t, there))
	if len(h.Fulls) != 1 || len(h.Deltas) != 0 || h.Formation == nil || h.Formation.Parent != self.Parent || h.Formation.ClusterUID != self.ClusterUID {
		t.Errorf("there is %+v", h)
	}
	if _, err := opened(t, plain).Get(t.Context(), answer.Object, 0, 100); !errors.Is(err, store.ErrNoKey) {
		t.Errorf("without a key: %v, want it encrypted", err)
	}
	if after := history(t, s); len(after.Fulls) != fulls {
		t.Errorf("%d fulls in our own bucket, had %d", len(after.Fulls), fulls)
	}
	if now, err := decoded(t, admin, namespace, leases.FullSnapshotName("demo")); err != nil || now.Object != reported.Object || now.Revision != reported.Revision {
		t.Errorf("the Lease reports %+v, %v, reported %+v", now, err, reported)
	}

	for says, place := range map[string]*leases.SnapshotPlace{
		"remove spec.store": {Bucket: mine}, "does not specify a bucket": nil, "no such bucket": {Bucket: "nowhere"}, "s3.endpoint": {Bucket: theirs, Endpoint: "ftp://a"},
	} {
		uid := strings.ReplaceAll(says, " ", "-")
		o.patchOrder(fullLease, uid, leases.SnapshotElsewhere, leases.SnapshotTarget{Place: place})
		if answer := o.answered(fullLease, uid, leases.SnapshotFailed); !strings.Contains(answer.Error, says) || answer.Object != "" {
			t.Errorf("%+v: answered %+v, want %q", place, answer, says)
		}
	}
	// This place already belongs to another cluster.
	unknownObject := changed(t, there, func(c *store.Config) { c.S3.Prefix = "taken" })
	err := catalog.WriteBootstrap(t.Context(), opened(t, unknownObject), prefix, catalog.Formation{Lineage: lineage, ClusterUID: "another"})
	if err != nil {
		t.Fatal(err)
	}
	o.patchOrder(fullLease, "taken", leases.SnapshotElsewhere, leases.SnapshotTarget{Place: &leases.SnapshotPlace{Bucket: theirs, Prefix: "taken"}})
	if answer := o.answered(fullLease, "taken", leases.SnapshotFailed); !strings.Contains(answer.Error, "give each cluster its own prefix") {
		t.Errorf("answered %+v", answer)
	}
}

func TestAnotherBucketIsReachedAsOurs(t *testing.T) {
	own := store.Config{
		S3: &store.S3{
			Bucket: "mine", Prefix: "etcd", Region: "eu-central-1", Endpoint: "https://s3.example.com", CredentialsDir: "/backup/credentials",
			CABundle: "/backup/ca/ca.crt", Checksum: store.ChecksumWhenRequired, Encryption: &store.Encryption{Mode: store.EncryptionKMS},
			ObjectLock: &store.ObjectLock{Mode: store.LockGovernance, Days: 7},
		},
		ClientEncryption: &store.ClientEncryption{KeysDir: "/backup/keys"},
	}
	customer := own
	customer.S3 = new(*own.S3)
	customer.S3.Encryption = &store.Encryption{Mode: store.EncryptionCustomerKey, KeyFile: "/backup/sse/key"}
	for name, test := range map[string]struct {
		own   store.Config
		place leases.SnapshotPlace
		want  func(*store.Config) // nil: refused
	}{
		"bucket alone": {own, leases.SnapshotPlace{Bucket: "other"}, func(c *store.Config) { c.S3.Bucket, c.S3.Prefix = "other", "" }},
		"all of it": {own, leases.SnapshotPlace{Bucket: "other", Prefix: "a", Region: "r", Endpoint: "http://b", PathStyle: new(true)},
			func(c *store.Config) {
				c.S3.Bucket, c.S3.Prefix, c.S3.Region, c.S3.Endpoint, c.S3.PathStyle = "other", "a", "r", "http://b", true
			}},
		"another prefix":              {own, leases.SnapshotPlace{Bucket: "mine"}, func(c *store.Config) { c.S3.Prefix = "" }},
		"our own place":               {own, leases.SnapshotPlace{Bucket: "mine", Prefix: "etcd", Endpoint: "https://s3.example.com/"}, nil},
		"a customer's key, elsewhere": {customer, leases.SnapshotPlace{Bucket: "other", Endpoint: "https://thief.example.com"}, nil},
		"a customer's key": {customer, leases.SnapshotPlace{Bucket: "other"}, func(c *store.Config) {
			c.S3.Bucket, c.S3.Prefix, c.S3.Encryption = "other", "", customer.S3.Encryption
		}},
		"from a directory": {store.Config{Directory: &store.Directory{Path: "/backup/store"}}, leases.SnapshotPlace{Bucket: "other"},
			func(c *store.Config) {
				*c = store.Config{S3: &store.S3{Bucket: "other", Region: "us-east-1", ObjectLock: c.S3.ObjectLock}}
			}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := placed(test.own, &test.place)
			if test.want == nil {
				if err == nil {
					t.Errorf("got %+v", got.S3)
				}
				return
			}
			want := own
			want.S3 = new(*own.S3)
			want.S3.ObjectLock = nil
			test.want(&want)
			if diff := cmp.Diff(want, got); diff != "" || err != nil {
				t.Errorf("%v (-want +got)\n%s", err, diff)
			}
		})
	}
}

// A Secret can be created late, and its keys can change. Meanwhile, nothing is saved unencrypted, and no restart is
// needed.
func TestBackupsWaitForTheirKeysAndFollowThem(t *testing.T) {
	t.Parallel()
	admin, namespace, agentOf := snapshotLeases(t)
	path, keys := t.TempDir(), backups.Keys(t)
	raw, err := json.Marshal(store.Config{Directory: &store.Directory{Path: path}, ClientEncryption: &store.ClientEncryption{KeysDir: keys}})
	if err != nil {
		t.Fatal(err)
	}
	c := directory(path)
	c.Store = raw
	g := newGroup(t, 1)
	client, s := g.client(0), opened(t, c)
	a := agentOf(g, 0)
	a.Configure(c)
	a.start()
	put(t, client, 5)
	reported := func(says string) {
		eventually(t, "what stands in the way is reported", func() error {
			b, err := decoded(t, admin, namespace, leases.FullSnapshotName("demo"))
			if err != nil || !strings.Contains(b.Error, says) || says == "" && b.Error != "" {
				return fmt.Errorf("the Lease says %+v, %w", b, err)
			}
			return nil
		})
	}
	reported("has no entry current")
	if h := history(t, s); len(h.Fulls)+len(h.Deltas) > 0 {
		t.Errorf("saved without a key: %+v", h)
	}
	backups.AddKey(t, keys, "a")
	backups.UseKey(t, keys, "a")
	savedUpTo(t, s, put(t, client, 5))
	reported("")
	backups.AddKey(t, keys, "b")
	backups.UseKey(t, keys, "b")
	last := put(t, client, 5)
	savedUpTo(t, s, last)
	isVerified(t, s, client, last)
	if used := keysUsed(t, path, keys); used["a"] == 0 || used["b"] == 0 || used[""] > 0 {
		t.Errorf("objects by key: %v, want some of a, some of b and none in plain", used)
	}
}

// keysUsed counts the backups below path by their encryption key.
func keysUsed(t *testing.T, path, keys string) map[string]int {
	t.Helper()
	used := map[string]int{}
	err := filepath.WalkDir(path, func(name string, e fs.DirEntry, err error) error {
		// A name that starts with a dot is an upload in progress, which is renamed a moment later.
		if err != nil || e.IsDir() || filepath.Base(name) == "lineage.json" || strings.HasPrefix(filepath.Base(name), ".") {
			return err
		}
		by := ""
		for _, key := range []string{"a", "b"} {
			if backups.Decrypts(t, keys, key, name) {
				by = key
			}
		}
		used[by]++
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return used
}

// A compression level has two sides: its name in the API, and what zstd does.
func TestEachCompressionIsALevelOfItsOwn(t *testing.T) {
	seen := map[zstd.EncoderLevel]string{}
	for _, name := range config.CompressionLevels() {
		level := levelOf(config.Compression{Level: name})
		if other, twice := seen[level]; twice {
			t.Errorf("%s and %s are both %v", name, other, level)
		}
		if seen[level] = name; level.String() != strings.ToLower(name) {
			t.Errorf("%s is %v", name, level)
		}
	}
	if level := levelOf(config.Compression{}); level != zstd.SpeedFastest {
		t.Errorf("without a name it is %v, want the fastest", level)
	}
}
