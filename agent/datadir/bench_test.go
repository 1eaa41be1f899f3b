package datadir

import (
	"encoding/binary"
	"flag"
	"os"
	"testing"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
)

var dbMiB = flag.Int("db", 1024, "size of the backend that BenchmarkInspect looks at, in MiB")

// BenchmarkInspect inspects a typical backend of etcd: revisions in order, values of 1 KiB, a tenth of them rewritten
// so that pages are freed and reused. The cold runs first drop the page cache of the file. 8 GiB take eight times as
// long as the default of 1 GiB, because every page is read once.
func BenchmarkInspect(b *testing.B) {
	dir := b.TempDir()
	if err := os.CopyFS(dir, os.DirFS(servedVolume(b))); err != nil {
		b.Fatal(err)
	}
	fillBackend(b, dbPath(dir), *dbMiB)
	for name, o := range map[string]struct{ full, cold bool }{
		"quick": {false, false}, "full/cached": {true, false}, "full/cold": {true, true},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if o.cold {
					b.StopTimer()
					dropCache(b, dbPath(dir))
					b.StartTimer()
				}
				r, err := Inspect(b.Context(), dir, Options{Full: o.full})
				if err != nil || r.State != Intact {
					b.Fatalf("%v, %s, %v", r, r.Detail, err)
				}
				if o.full {
					b.SetBytes(r.DBSize)
				}
			}
		})
	}
}

func fillBackend(b *testing.B, path string, mib int) {
	b.Helper()
	db, err := bolt.Open(path, 0o600, &bolt.Options{NoFreelistSync: true, NoSync: true, FreelistType: bolt.FreelistMapType})
	if err != nil {
		b.Fatal(err)
	}
	value := &mvccpb.KeyValue{Key: []byte("/registry/pods/default/some-deployment-0123456789-abcde"), Value: make([]byte, 1024)}
	rev := uint64(1 << 20)
	for done := 0; done < mib<<20; {
		err := db.Update(func(tx *bolt.Tx) error {
			bucket := tx.Bucket(schema.Key.Name())
			bucket.FillPercent = 0.9 // as etcd sets it
			for range 10000 {
				rev++
				value.ModRevision = int64(rev)
				raw, err := proto.Marshal(value)
				if err != nil {
					return err
				}
				key := append(binary.BigEndian.AppendUint64(nil, rev), '_', 0, 0, 0, 0, 0, 0, 0, 0)
				if err := bucket.Put(key, raw); err != nil {
					return err
				}
				done += len(key) + len(raw)
				if old := rev - 5000; rev%10 == 0 { // compaction
					if err := bucket.Delete(append(binary.BigEndian.AppendUint64(nil, old), '_', 0, 0, 0, 0, 0, 0, 0, 0)); err != nil {
						return err
					}
				}
			}
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	if err := db.Sync(); err != nil {
		b.Fatal(err)
	}
	if err := db.Close(); err != nil {
		b.Fatal(err)
	}
}

func dropCache(b *testing.B, path string) {
	b.Helper()
	f, err := os.Open(path)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close() // only read
	if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
		b.Fatal(err)
	}
}
