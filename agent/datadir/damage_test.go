package datadir

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"

	"github.com/etcd-druid/druid/internal/boltdb"
)

type damageFunc = func(*testing.T, string)

func all(damages ...damageFunc) damageFunc {
	return func(t *testing.T, dir string) {
		for _, d := range damages {
			d(t, dir)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// fingerprint is the name and the content of everything on the volume.
func fingerprint(t *testing.T, dir string) map[string][32]byte {
	t.Helper()
	prints := map[string][32]byte{}
	must(t, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			prints[path] = [32]byte{}
			return err
		}
		raw, err := os.ReadFile(path)
		prints[path] = sha256.Sum256(raw)
		return err
	}))
	return prints
}

func mkdir(name string) damageFunc {
	return func(t *testing.T, dir string) { must(t, os.MkdirAll(filepath.Join(dir, name), 0o700)) }
}

func remove(name string) damageFunc {
	return func(t *testing.T, dir string) { must(t, os.RemoveAll(filepath.Join(dir, "data", "member", name))) }
}

func emptyDir(name string) damageFunc {
	return all(remove(name), mkdir(filepath.Join("data", "member", name)))
}

func walAt(t *testing.T, dir string, i int) string {
	t.Helper()
	paths := walPaths(t, dir)
	return paths[(i+len(paths))%len(paths)]
}

func removeWAL(i int) damageFunc {
	return func(t *testing.T, dir string) { must(t, os.Remove(walAt(t, dir, i))) }
}

// removeWALBelowSnapshot keeps only the start of the last file, which has no snapshot, as after purging too much.
func removeWALBelowSnapshot(t *testing.T, dir string) {
	paths := walPaths(t, dir)
	for _, p := range paths[:len(paths)-1] {
		must(t, os.Remove(p))
	}
	cutTail(t, dir)
}

func cutWAL(i int, part int64) damageFunc {
	return func(t *testing.T, dir string) {
		path := walAt(t, dir, i)
		info, err := os.Stat(path)
		must(t, err)
		// At the end of a record, so that nothing is torn and only the checksum of the next file reports.
		offsets := recordEnds(t, path)
		cut := offsets[0]
		for _, o := range offsets {
			if o <= info.Size()/part {
				cut = o
			}
		}
		must(t, os.Truncate(path, cut))
	}
}

func cutRecord(i int) damageFunc {
	return func(t *testing.T, dir string) {
		path := walAt(t, dir, i)
		offsets := recordEnds(t, path)
		must(t, os.Truncate(path, offsets[len(offsets)/2]-20))
	}
}

// cutTail removes complete records from the end, as a file system repair might.
func cutTail(t *testing.T, dir string) {
	path := walAt(t, dir, -1)
	offsets := recordEnds(t, path)
	must(t, os.Truncate(path, offsets[1]))
}

// tearTail appends a record of which only the beginning reached the disk, as after a crash.
func tearTail(t *testing.T, dir string) {
	path := walAt(t, dir, -1)
	offsets := recordEnds(t, path)
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	must(t, err)
	torn := binary.LittleEndian.AppendUint64(nil, 5000)
	torn = append(torn, 8, 2, 16)
	_, err = f.WriteAt(torn, offsets[len(offsets)-1])
	must(t, err)
	must(t, f.Truncate(offsets[len(offsets)-1]+600))
	must(t, f.Close())
}

// zeroTail appends a record whose later sectors never reached the disk.
func zeroTail(t *testing.T, dir string) {
	path := walAt(t, dir, -1)
	offsets := recordEnds(t, path)
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	must(t, err)
	record := append(binary.LittleEndian.AppendUint64(nil, 2000), 8, 2, 16, 1, 26)
	_, err = f.WriteAt(record, offsets[len(offsets)-1])
	must(t, err)
	must(t, f.Close())
}

// recordEnds returns the offsets at which the records of a file end. It uses etcd's decoder.
func recordEnds(t *testing.T, path string) []int64 {
	t.Helper()
	f, err := os.Open(path)
	must(t, err)
	defer f.Close() // only read
	decoder := wal.NewDecoder(fileutil.NewFileReader(f))
	var ends []int64
	for rec := (&walpb.Record{}); ; {
		err := decoder.Decode(rec)
		if errors.Is(err, io.EOF) {
			return ends
		}
		must(t, err)
		if rec.GetType() == wal.CrcType {
			decoder.UpdateCRC(rec.GetCrc())
		}
		ends = append(ends, decoder.LastOffset())
	}
}

func flipWAL(i int) damageFunc {
	return func(t *testing.T, dir string) {
		path := walAt(t, dir, i)
		offsets := recordEnds(t, path)
		flip(t, path, offsets[len(offsets)/2]-10)
	}
}

func flip(t *testing.T, path string, off int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	must(t, err)
	var b [1]byte
	_, err = f.ReadAt(b[:], off)
	must(t, err)
	b[0] ^= 0xff
	_, err = f.WriteAt(b[:], off)
	must(t, err)
	must(t, f.Close())
}

func truncate(size int64) damageFunc {
	return func(t *testing.T, dir string) { must(t, os.Truncate(dbPath(dir), size)) }
}

// truncateHalf cuts pages that are in use. The file of bbolt is longer than those.
func truncateHalf(t *testing.T, dir string) {
	m := metaOf(t, dir)
	truncate(int64(m.End*m.PageSize/2))(t, dir)
}

// flipMeta changes the meta page of the older transaction, or both.
func flipMeta(n int) damageFunc {
	return func(t *testing.T, dir string) {
		m := metaOf(t, dir)
		for i := range n {
			id := (m.TxID + 1 + uint64(i)) % 2
			flip(t, dbPath(dir), int64(id*m.PageSize)+boltdb.HeaderSize+16)
		}
	}
}

func metaOf(t *testing.T, dir string) boltdb.Meta {
	t.Helper()
	f, size, err := openBackendFile(dbPath(dir))
	must(t, err)
	defer f.Close() // only read
	m, err := readMeta(f, size)
	must(t, err)
	return m
}

// find returns a page of the database.
type find func(t *testing.T, dir string) (page uint64)

func rootPage(t *testing.T, dir string) uint64 { return metaOf(t, dir).Root }

func bucketRoot(name []byte) find {
	return func(t *testing.T, dir string) (root uint64) {
		view(t, dir, func(tx *bolt.Tx) { root = uint64(tx.Bucket(name).RootPage()) })
		if root == 0 {
			return rootPage(t, dir) // the bucket is kept within the root page
		}
		return root
	}
}

func view(t *testing.T, dir string, fn func(tx *bolt.Tx)) {
	t.Helper()
	db, err := bolt.Open(dbPath(dir), 0, &bolt.Options{ReadOnly: true})
	must(t, err)
	defer db.Close() // only read
	must(t, db.View(func(tx *bolt.Tx) error { fn(tx); return nil }))
}

// someBranch is the first branch above the leaves of the bucket of keys.
func someBranch(t *testing.T, dir string) uint64 {
	for id := bucketRoot(schema.Key.Name())(t, dir); ; {
		child := boltdb.Order.Uint64(readPage(t, dir, id)[boltdb.HeaderSize+8:])
		if boltdb.Order.Uint16(readPage(t, dir, child)[8:]) == boltdb.Leaf {
			return id
		}
		id = child
	}
}

// someLeaf is a leaf below the middle of someBranch.
func someLeaf(t *testing.T, dir string) uint64 {
	raw := readPage(t, dir, someBranch(t, dir))
	i := int(boltdb.Order.Uint16(raw[10:])) / 2
	return boltdb.Order.Uint64(raw[boltdb.HeaderSize+i*boltdb.ElementSize+8:])
}

func readPage(t *testing.T, dir string, id uint64) []byte {
	t.Helper()
	raw := make([]byte, metaOf(t, dir).PageSize)
	f, err := os.Open(dbPath(dir))
	must(t, err)
	_, err = f.ReadAt(raw, int64(id)*int64(len(raw)))
	must(t, err)
	must(t, f.Close())
	return raw
}

func flipAt(where find, off int64) damageFunc {
	return func(t *testing.T, dir string) {
		flip(t, dbPath(dir), int64(where(t, dir)*metaOf(t, dir).PageSize)+off)
	}
}

func flipID(where find) damageFunc       { return flipAt(where, 0) }
func flipHeader(where find) damageFunc   { return flipAt(where, 8) }
func flipOverflow(where find) damageFunc { return flipAt(where, 14) }
func flipElement(where find) damageFunc {
	return flipAt(where, boltdb.HeaderSize+boltdb.ElementSize+6)
}

// strayChild makes a branch refer to a page beyond every mapping, whose number differs from the correct one only in
// high bits.
func strayChild(t *testing.T, dir string) {
	branch := someBranch(t, dir)
	child := boltdb.Order.Uint64(readPage(t, dir, branch)[boltdb.HeaderSize+boltdb.ElementSize+8:])
	writePage(t, dir, branch, boltdb.HeaderSize+boltdb.ElementSize+8, binary.LittleEndian.AppendUint64(nil, child|1<<40))
}

// strayMarks makes bbolt follow a page number beyond its memory map when it reads etcd's metadata, which is a fault.
func strayMarks(t *testing.T, dir string) {
	root := rootPage(t, dir)
	raw := readPage(t, dir, root)
	for i := range boltdb.Count(raw) {
		at := boltdb.HeaderSize + i*boltdb.ElementSize
		key, _, _ := boltdb.Entry(raw[at:], true)
		if string(key) == string(schema.Meta.Name()) {
			value := at + int(boltdb.Order.Uint32(raw[at+4:])) + len(key)
			writePage(t, dir, root, value, binary.LittleEndian.AppendUint64(nil, 1<<30))
			return
		}
	}
	t.Fatal("the root page holds no meta bucket")
}

// flipBranchKey makes the first key of a child wrong in a branch. The branch itself is still in order, so it does not
// show the damage.
func flipBranchKey(t *testing.T, dir string) {
	raw := readPage(t, dir, someBranch(t, dir))
	element := boltdb.HeaderSize + boltdb.ElementSize
	key := element + int(boltdb.Order.Uint32(raw[element:]))
	revision := binary.BigEndian.Uint64(raw[key:])
	writePage(t, dir, someBranch(t, dir), key, binary.BigEndian.AppendUint64(nil, revision+1))
}

func writePage(t *testing.T, dir string, id uint64, off int, content []byte) {
	t.Helper()
	f, err := os.OpenFile(dbPath(dir), os.O_RDWR, 0)
	must(t, err)
	_, err = f.WriteAt(content, int64(id*metaOf(t, dir).PageSize)+int64(off))
	must(t, err)
	must(t, f.Close())
}

func overwritePage(where find) damageFunc {
	return func(t *testing.T, dir string) {
		writePage(t, dir, where(t, dir), 0, make([]byte, metaOf(t, dir).PageSize))
	}
}

func overwriteValue(t *testing.T, dir string) {
	id := someLeaf(t, dir)
	raw := readPage(t, dir, id)
	element := raw[boltdb.HeaderSize:]
	value := boltdb.HeaderSize + int(boltdb.Order.Uint32(element[4:])) + int(boltdb.Order.Uint32(element[8:]))
	writePage(t, dir, id, value, []byte{0xff, 0xff, 0xff, 0xff})
}

func update(t *testing.T, dir string, fn func(tx *bolt.Tx) error) {
	t.Helper()
	db, err := bolt.Open(dbPath(dir), 0o600, &bolt.Options{NoFreelistSync: true})
	must(t, err)
	must(t, db.Update(fn))
	must(t, db.Close())
}

func setMeta(key, value []byte) damageFunc {
	return func(t *testing.T, dir string) {
		update(t, dir, func(tx *bolt.Tx) error { return tx.Bucket(schema.Meta.Name()).Put(key, value) })
	}
}

func setStorageVersion(v string) damageFunc {
	return setMeta(schema.MetaStorageVersionName, []byte(v))
}

func dropKeys(t *testing.T, dir string) {
	update(t, dir, func(tx *bolt.Tx) error { return tx.DeleteBucket(schema.Key.Name()) })
}

func snaps(t *testing.T, dir string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(filepath.Dir(dbPath(dir)), "*.snap"))
	must(t, err)
	if len(paths) < 3 {
		t.Fatalf("etcd left %d snapshot files", len(paths))
	}
	return paths
}

func removeSnaps(t *testing.T, dir string) {
	for _, p := range snaps(t, dir) {
		must(t, os.Remove(p))
	}
}

func tearSnaps(t *testing.T, dir string) {
	for _, p := range snaps(t, dir) {
		must(t, os.Truncate(p, 100))
	}
}

func tearNewestSnap(t *testing.T, dir string) {
	paths := snaps(t, dir)
	must(t, os.Truncate(paths[len(paths)-1], 100))
}
