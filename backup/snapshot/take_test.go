package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	bolt "go.etcd.io/bbolt"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/backup/store/dir"
	"github.com/etcd-druid/druid/test/member"
)

const lineage = "00000001-00112233445566aa"

func keyOf(revision int64, at time.Time) string {
	return fmt.Sprintf("c/%s/full/%016x-%d.snap.zst", lineage, revision, at.UnixMilli())
}

func directory(tb testing.TB) *dir.Store {
	tb.Helper()
	s, err := dir.Open(store.Directory{Path: tb.TempDir()})
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func configOf(m *member.Member, s store.Store) Config {
	return Config{Client: m.Client, Store: s, Lineage: lineage, Key: keyOf}
}

// fill puts n values of size bytes that do not compress.
func fill(tb testing.TB, c *clientv3.Client, n, size int) {
	tb.Helper()
	random := rand.NewChaCha8([32]byte{1})
	value := make([]byte, size)
	for i := range n {
		_, _ = random.Read(value)
		if _, err := c.Put(tb.Context(), fmt.Sprintf("key-%06d", i), string(value)); err != nil {
			tb.Fatal(err)
		}
	}
}

func listed(tb testing.TB, s store.Store) []string {
	tb.Helper()
	var keys []string
	for o, err := range s.List(tb.Context(), "") {
		if err != nil {
			tb.Fatal(err)
		}
		keys = append(keys, o.Key)
	}
	return keys
}

// extract writes the database of a full backup into a file.
func extract(tb testing.TB, s store.Store, key string) (path string, t Trailer) {
	tb.Helper()
	source, err := s.Get(tb.Context(), key, 0, -1)
	if err != nil {
		tb.Fatal(err)
	}
	defer source.Close()
	r, err := Open(key, source)
	if err != nil {
		tb.Fatal(err)
	}
	defer r.Close()
	path = filepath.Join(tb.TempDir(), "db")
	f, err := os.Create(path)
	if err != nil {
		tb.Fatal(err)
	}
	_, err = io.Copy(f, r)
	if err := errors.Join(err, f.Close()); err != nil {
		tb.Fatal(err)
	}
	return path, r.Trailer()
}

// lastRevision returns the newest revision in a database, as etcd finds it.
func lastRevision(tb testing.TB, path string) int64 {
	tb.Helper()
	db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true})
	if err != nil {
		tb.Fatal(err)
	}
	defer db.Close()
	var last int64
	err = db.View(func(tx *bolt.Tx) error {
		k, _ := tx.Bucket([]byte("key")).Cursor().Last()
		for _, b := range k[:8] {
			last = last<<8 | int64(b)
		}
		return nil
	})
	if err != nil {
		tb.Fatal(err)
	}
	return last
}

func TestAFullIsWhatEtcdSent(t *testing.T) {
	for _, minor := range member.Minors {
		t.Run(minor, func(t *testing.T) {
			t.Parallel()
			m, s := member.Start(t, minor, member.Options{}), directory(t)
			fill(t, m.Client, 50, 40_000)
			m.AwaitStorageVersion(t)
			var reported int64
			cfg := configOf(m, s)
			cfg.Progress = func(n int64) { reported = n }
			before := time.Now()
			got, err := Take(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			status, err := m.Client.Status(t.Context(), m.Endpoint)
			if err != nil {
				t.Fatal(err)
			}
			if got.Revision != 51 || got.Upper != 51 || got.Key != keyOf(51, got.Taken) || got.Lineage != lineage {
				t.Errorf("revisions %d to %d, key %s, lineage %s, want revision 51", got.Revision, got.Upper, got.Key, got.Lineage)
			}
			if uint64(got.ClusterID) != status.Header.ClusterId || uint64(got.MemberID) != status.Header.MemberId ||
				got.EtcdVersion != status.Version || (got.StorageVersion == "") != (minor == "3.5") {
				t.Errorf("trailer %+v, want the IDs and versions of %+v", got.Trailer, status)
			}
			if got.Started.Before(before.Add(-time.Second)) || got.Taken.Before(got.Started) || got.Taken.After(time.Now()) {
				t.Errorf("started %s, taken %s, called at %s", got.Started, got.Taken, before)
			}
			if reported == 0 || reported > got.Size || got.Size < 50*40_000 {
				t.Errorf("progress reported %d bytes, the database has %d", reported, got.Size)
			}
			if keys := listed(t, s); len(keys) != 1 || keys[0] != got.Key {
				t.Errorf("the store lists %v, want %s", keys, got.Key)
			}
			db, trailer := extract(t, s, got.Key)
			if info, err := os.Stat(db); err != nil || info.Size() != got.Size || lastRevision(t, db) != 51 {
				t.Errorf("the database has %v (%v), want %d bytes up to revision 51", info, err, got.Size)
			}
			alone, err := ReadTrailer(t.Context(), s, got.Key, got.ObjectSize)
			if err != nil || alone != trailer || trailer != got.Trailer {
				t.Errorf("trailers differ: read alone %+v (%v), with the database %+v, returned %+v", alone, err, trailer, got.Trailer)
			}
			acceptedByEtcd(t, s, got.Key, minor)
		})
	}
}

// acceptedByEtcd decompresses the object with a standard decoder and restores it with the tool of etcd.
func acceptedByEtcd(t *testing.T, s store.Store, key, minor string) {
	t.Helper()
	source, err := s.Get(t.Context(), key, 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	plain, err := zstd.NewReader(source)
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	content, err := io.ReadAll(plain)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "snapshot.db")
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), member.Program(t, "etcdutl", minor), "snapshot", "restore", file, "--data-dir", filepath.Join(t.TempDir(), "data"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("etcdutl %s refuses the decompressed full: %v\n%s", minor, err, out)
	}
}

// TestRevisionsBoundFullUnderWrites: the revisions bound the content under writes.
func TestRevisionsBoundFullUnderWrites(t *testing.T) {
	m, s := member.Start(t, member.Minors[len(member.Minors)-1], member.Options{}), directory(t)
	fill(t, m.Client, 20, 50_000)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var writers errgroup.Group
	for range 4 {
		writers.Go(func() error {
			for ctx.Err() == nil {
				if _, err := m.Client.Put(ctx, "key", "value"); err != nil && ctx.Err() == nil {
					return err
				}
			}
			return nil
		})
	}
	for range 5 {
		got, err := Take(t.Context(), configOf(m, s))
		if err != nil {
			t.Fatal(err)
		}
		db, _ := extract(t, s, got.Key)
		if last := lastRevision(t, db); last < got.Revision || last > got.Upper {
			t.Errorf("the database ends at revision %d, want one of %d to %d", last, got.Revision, got.Upper)
		}
	}
	stop()
	if err := writers.Wait(); err != nil {
		t.Error(err)
	}
}

// interrupted is a store that calls during after some bytes of an object.
type interrupted struct {
	store.Store
	during func()
}

func (i interrupted) Put(ctx context.Context, key string, r io.Reader, o store.PutOptions) (store.Object, error) {
	return i.Store.Put(ctx, key, &interruptedReader{Reader: r, during: i.during}, o)
}

type interruptedReader struct {
	io.Reader
	during func()
	read   int
}

func (i *interruptedReader) Read(p []byte) (int, error) {
	if i.read > 1<<20 && i.during != nil {
		i.during()
		i.during = nil
	}
	n, err := i.Reader.Read(p)
	i.read += n
	return n, err
}

func TestNothingAppearsUnlessAllOfItCame(t *testing.T) {
	minor := member.Minors[0]
	t.Run("the member ends", func(t *testing.T) {
		m, s := member.Start(t, minor, member.Options{}), directory(t)
		fill(t, m.Client, 100, 100_000)
		// A window that grows, as gRPC's does, may take all of the database in before the member ends.
		c, err := clientv3.New(clientv3.Config{
			Endpoints:   []string{m.Endpoint},
			DialOptions: []grpc.DialOption{grpc.WithStaticStreamWindowSize(1 << 16), grpc.WithStaticConnWindowSize(1 << 16)},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		cfg := configOf(m, interrupted{Store: s, during: func() { m.Kill(t) }})
		cfg.Client = c
		_, err = Take(t.Context(), cfg)
		if !errors.Is(err, ErrTorn) || len(listed(t, s)) != 0 {
			t.Errorf("err %v, the store lists %v", err, listed(t, s))
		}
	})
	m := member.Start(t, minor, member.Options{})
	fill(t, m.Client, 100, 100_000)
	t.Run("the caller gives up", func(t *testing.T) {
		s := directory(t)
		ctx, cancel := context.WithCancel(t.Context())
		_, err := Take(ctx, configOf(m, interrupted{Store: s, during: cancel}))
		if !errors.Is(err, context.Canceled) || len(listed(t, s)) != 0 {
			t.Errorf("err %v, the store lists %v", err, listed(t, s))
		}
	})
	t.Run("the store fails", func(t *testing.T) {
		broken := errors.New("disk is full")
		_, err := Take(t.Context(), configOf(m, failing{err: broken}))
		if !errors.Is(err, broken) {
			t.Errorf("err %v", err)
		}
	})
	t.Run("the store panics", func(t *testing.T) {
		s := directory(t)
		_, err := Take(t.Context(), configOf(m, interrupted{Store: s, during: func() { panic("a store's fault") }}))
		if err == nil || !strings.Contains(err.Error(), "a store's fault") || len(listed(t, s)) != 0 {
			t.Errorf("err %v, the store lists %v", err, listed(t, s))
		}
	})
	t.Run("two endpoints", func(t *testing.T) {
		c, err := clientv3.New(clientv3.Config{Endpoints: []string{m.Endpoint, "http://127.0.0.1:1"}})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := Take(t.Context(), Config{Client: c, Store: directory(t), Key: keyOf}); !errors.Is(err, ErrEndpoints) {
			t.Errorf("err %v", err)
		}
	})
}

// failing is a store that accepts only a part of an object.
type failing struct {
	store.Store
	err error
}

func (f failing) Put(_ context.Context, _ string, r io.Reader, _ store.PutOptions) (store.Object, error) {
	_, _ = io.ReadFull(r, make([]byte, 1<<20))
	return store.Object{}, f.err
}

// fullStore is a store that accepts nothing.
type fullStore struct{ store.Store }

var errFull = errors.New("no space left")

func (fullStore) Put(context.Context, string, io.Reader, store.PutOptions) (store.Object, error) {
	return store.Object{}, errFull
}

// TestFailedUploadLeavesStalledStream: an upload that fails does not wait for a stream that stands still.
func TestFailedUploadLeavesStalledStream(t *testing.T) {
	t.Parallel()
	for name, begun := range map[string][]byte{"before its first byte": nil, "in its middle": make([]byte, 3*aheadChunk+1)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stream, etcd := io.Pipe()
			go func() { _, _ = etcd.Write(begun) }()
			ended := make(chan error, 1)
			go func() {
				_, err := upload(t.Context(), fullStore{}, "key", Trailer{}, stream, passage{})
				ended <- err
			}()
			select {
			case err := <-ended:
				if !errors.Is(err, errFull) {
					t.Errorf("it ends with %v", err)
				}
			case <-time.After(time.Minute):
				t.Fatal("it waits")
			}
		})
	}
}
