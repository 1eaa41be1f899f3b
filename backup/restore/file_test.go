package restore

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/klauspost/compress/zstd"
	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/server/v3/storage/schema"

	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/backup/snapshot"
	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/test/member"
)

// saved returns what `etcdctl snapshot save` writes: the stream of etcd.
func (s *source) saved() []byte {
	s.tb.Helper()
	stream, err := s.m.Client.Snapshot(s.tb.Context())
	if err != nil {
		s.tb.Fatal(err)
	}
	defer stream.Close()
	content, err := io.ReadAll(stream)
	if err != nil {
		s.tb.Fatal(err)
	}
	return content
}

func (s *source) fileOf(key string, content []byte) store.Object {
	s.tb.Helper()
	if _, err := s.store.Put(s.tb.Context(), key, bytes.NewReader(content), store.PutOptions{}); err != nil {
		s.tb.Fatal(err)
	}
	o, err := store.Find(s.tb.Context(), s.store, key)
	if err != nil {
		s.tb.Fatal(err)
	}
	return o
}

func (g *target) ofFile(s *source, file store.Object, minor string) Config {
	c := g.config(s, catalog.Plan{}, minor)
	c.File = file
	return c
}

func TestAFileOfEtcdctlIsWhatTheSourceWas(t *testing.T) {
	for from, targets := range map[string][]string{"3.5": {"3.5", "3.6"}, "3.6": {"3.6", "3.7"}, "3.7": {"3.7"}} {
		t.Run(from, func(t *testing.T) {
			t.Parallel()
			s := newSource(t, from, 5)
			s.traffic(300)
			if _, err := s.m.Client.Compact(t.Context(), s.revision()-100); err != nil {
				t.Fatal(err)
			}
			s.traffic(50)
			revision, content := s.revision(), s.saved()
			for revision != s.revision() { // a lease ran out in between
				revision, content = s.revision(), s.saved()
			}
			file := s.fileOf("old/snapshot.db", content)
			s.traffic(20) // is not in it
			for _, minor := range targets {
				t.Run("to "+minor, func(t *testing.T) {
					g := newTarget(t)
					got, err := Run(t.Context(), g.ofFile(s, file, minor))
					if err != nil || got.Revision != revision || got.Bumped != revision {
						t.Fatalf("restored %+v, %v; want revision %d", got, err, revision)
					}
					soundPages(t, filepath.Join(g.dir, "member", "snap", "db"), got.Size)
					same(t, s, g.start(minor, member.Options{}), revision)

					bumped := newTarget(t)
					c := bumped.ofFile(s, file, minor)
					c.Bump = 1000
					if got, err = Run(t.Context(), c); err != nil || got.Revision != revision || got.Bumped != revision+1000 {
						t.Fatalf("restored %+v, %v; want revision %d and 1000 more", got, err, revision)
					}
					m := bumped.start(minor, member.Options{})
					now, err := m.Client.Get(t.Context(), "a")
					if err != nil || now.Header.Revision < revision+1000 {
						t.Errorf("etcd begins at %+v, %v", now, err)
					}
				})
			}
		})
	}
}

// unsummed removes the checksum of etcd, and the next function adds it again.
func unsummed(content []byte) []byte { return content[:len(content)-sha256.Size] }

func summed(database []byte) []byte {
	sum := sha256.Sum256(database)
	return append(bytes.Clone(database), sum[:]...)
}

// changed returns a complete file with a modified database.
func changed(t *testing.T, content []byte, change func(*bolt.Tx) error) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "db")
	if err := os.WriteFile(path, unsummed(content), 0o600); err != nil {
		t.Fatal(err)
	}
	db, err := bolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(db.Update(change), db.Close()); err != nil {
		t.Fatal(err)
	}
	database, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return summed(database)
}

func put(bucket interface{ Name() []byte }, key []byte, value string) func(*bolt.Tx) error {
	return func(tx *bolt.Tx) error { return tx.Bucket(bucket.Name()).Put(key, []byte(value)) }
}

func compressed(t *testing.T, pack func(io.Writer) io.WriteCloser, content []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := pack(&b)
	_, err := w.Write(content)
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func isFileError(err error) bool {
	_, ok := errors.AsType[*snapshot.FileError](err)
	return ok
}

func TestAFileThatIsNotWholeIsRefused(t *testing.T) {
	t.Parallel()
	s := newSource(t, "3.6", 7)
	s.traffic(200)
	full := s.full()
	good := s.saved()
	is := func(want error) func(error) bool { return func(err error) bool { return errors.Is(err, want) } }
	version := func(v string) []byte {
		return changed(t, good, put(schema.Cluster, schema.ClusterClusterVersionKeyName, v))
	}
	begun := func(content []byte) []byte { return append([]byte("age-encryption.org/v1\n"), content...) }
	for name, c := range map[string]struct {
		content []byte
		config  func(*Config)
		want    func(error) bool
		says    string
		// late: the first few pages do not show it.
		late bool
	}{
		"an empty file":                   {content: nil, want: isFileError, says: "is empty"},
		"cut by a byte":                   {content: good[:len(good)-1], want: isFileError, says: "is incomplete"},
		"longer by a byte":                {content: append(bytes.Clone(good), 0), want: isFileError, says: "has additional data"},
		"a copy of member/snap/db":        {content: unsummed(good), want: isFileError, says: "has no checksum at its end"},
		"half of it":                      {content: good[:len(good)/2/512*512], want: isFileError, says: "has no checksum at its end"},
		"cut by pages":                    {content: append(bytes.Clone(good[:len(good)-4096-32]), good[len(good)-32:]...), want: isFileError, says: "is damaged"},
		"longer by pages":                 {content: append(bytes.Clone(good), make([]byte, 4096)...), want: isFileError, says: "its sha256 is", late: true},
		"a bit flipped in the first page": {content: flip(good, 20), want: isFileError, says: "its beginning is damaged"},
		"a bit flipped in its root":       {content: flip(good, 32), want: isFileError, says: "checksum of the meta page"},
		"a bit flipped in the middle":     {content: flip(good, len(good)/2), want: isFileError, says: "damaged", late: true},
		"a bit flipped in the checksum":   {content: flip(good, len(good)-1), want: isFileError, says: "its sha256 is", late: true},
		"compressed by gzip": {content: compressed(t, func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) }, good),
			want: isFileError, says: "compressed with gzip: store it uncompressed"},
		"compressed with zstd":           {content: compressed(t, zstdWriter(t), good), want: isFileError, says: "compressed with zstd"},
		"a full of druid's own":          {content: s.content(full.Key), want: isFileError, says: "set from.namespace and from.name"},
		"encrypted":                      {content: begun(good), want: isFileError, says: "is encrypted"},
		"some text":                      {content: []byte(strings.Repeat("not one of etcd ", 100)), want: isFileError, says: "is not a database of etcd"},
		"a database of something else":   {content: summed(boltOf(t)), want: func(err error) bool { return err != nil }, says: "not one of etcd", late: true},
		"of a newer etcd by its cluster": {content: version("3.7.0"), want: is(ErrVersion), says: "use etcd 3.7 or later"},
		"of a newer etcd by its storage": {content: changed(t, good, put(schema.Meta, schema.MetaStorageVersionName, "3.7.0")),
			want: is(ErrVersion), says: "use etcd 3.7 or later"},
		"of a very old etcd":        {content: version("3.4.0"), want: is(ErrVersion), says: "restore it with etcdutl 3.5"},
		"of a version that is none": {content: version("latest"), want: is(ErrVersion), says: "latest"},
		"larger than the quota":     {content: good, config: func(c *Config) { c.Quota = 4096 }, want: is(ErrQuota), says: "etcd.quotaBackendBytes"},
		"with authentication, for an agent": {content: changed(t, good, put(schema.Auth, schema.AuthEnabledKeyName, "\x01")),
			config: func(c *Config) { c.Auth = RefuseAuth }, want: is(ErrAuth), says: "etcdctl auth disable"},
	} {
		t.Run(name, func(t *testing.T) {
			file := s.fileOf("bad/"+strings.NewReplacer(" ", "-", "'", "", ",", "").Replace(name)+".db", nonNil(c.content))
			g := newTarget(t)
			config := g.ofFile(s, file, "3.6")
			if c.config != nil {
				c.config(&config)
			}
			if _, err := CheckFile(t.Context(), config); (err == nil) != c.late {
				t.Errorf("a few pages report: %v", err)
			}
			_, err := Run(t.Context(), config)
			if err == nil || !c.want(err) || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), file.Key) {
				t.Errorf("got %v, want %q in it", err, c.says)
			}
			left, err := os.ReadDir(filepath.Dir(g.dir))
			if err != nil || len(left) > 0 {
				t.Errorf("left are %v, %v", left, err)
			}
		})
	}
}

func nonNil(b []byte) []byte { return append([]byte{}, b...) }

func zstdWriter(t *testing.T) func(io.Writer) io.WriteCloser {
	return func(w io.Writer) io.WriteCloser {
		e, err := zstd.NewWriter(w)
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
}

// boltOf returns a database that etcd did not make.
func boltOf(t *testing.T) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "db")
	db, err := bolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(db.Close()); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// counted counts the bytes that are read of a store.
type counted struct {
	store.Store
	calls, bytes atomic.Int64
}

func (c *counted) Get(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	c.calls.Add(1)
	c.bytes.Add(length)
	return c.Store.Get(ctx, key, offset, length)
}

func TestALookAtAFileReadsLittleOfIt(t *testing.T) {
	t.Parallel()
	s := newSource(t, "3.6", 9)
	value := strings.Repeat("x", 100_000)
	for i := range 60 {
		s.put("key"+string(rune('a'+i)), value)
	}
	s.await("etcd to report the version of the cluster and of the storage", func() bool {
		f, err := snapshot.LookAtFile(t.Context(), s.store, "f.db", s.fileOf("f.db", s.saved()).Size)
		return err == nil && f.ClusterVersion == "3.6.0" && f.StorageVersion == "3.6.0"
	})
	file := s.fileOf("f.db", s.saved())
	c := &counted{Store: s.store}
	f, err := snapshot.LookAtFile(t.Context(), c, file.Key, file.Size)
	if err != nil || f.Size != file.Size-32 || f.Auth {
		t.Errorf("got %+v, %v", f, err)
	}
	if calls, read := c.calls.Load(), c.bytes.Load(); calls > 6 || read > 6*64<<10 || file.Size < 6_000_000 {
		t.Errorf("of %d bytes it read %d in %d calls", file.Size, read, calls)
	}
	gone := &broken{Store: s.store, err: map[string]error{file.Key: errors.New("connection reset")}}
	if _, err := snapshot.LookAtFile(t.Context(), gone, file.Key, file.Size); err == nil || isFileError(err) {
		t.Errorf("a store that cannot be read says of the file: %v", err)
	}
}

// swapped is a store in which an object is replaced after a few pages of it were read.
type swapped struct {
	store.Store
	after string
}

func (s swapped) Get(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	if length < 0 {
		key = s.after
	}
	return s.Store.Get(ctx, key, offset, length)
}

// TestFileReplacedWhileReadDetected: a file that is replaced while it is read is no other file.
func TestFileReplacedWhileReadDetected(t *testing.T) {
	t.Parallel()
	s := newSource(t, "3.6", 11)
	s.traffic(50)
	older := s.fileOf("older.db", s.saved())
	s.put("much", strings.Repeat("x", 1_000_000))
	newer := s.fileOf("newer.db", s.saved())
	g := newTarget(t)
	c := g.ofFile(s, newer, "3.6")
	c.Store = swapped{s.store, older.Key}
	if _, err := Run(t.Context(), c); !errors.Is(err, ErrSwapped) || !strings.Contains(err.Error(), newer.Key) {
		t.Errorf("a shorter file in its place: %v", err)
	}
	untouched(t, g)
	if older.Size >= newer.Size {
		t.Error("the older one is no shorter, so nothing was shown")
	}
}
