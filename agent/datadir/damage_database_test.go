package datadir

import (
	"encoding/binary"
	"os"
	"testing"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/server/v3/storage/schema"

	"github.com/etcd-druid/druid/internal/boltdb"
)

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

func flipID(where find) damageFunc { return flipAt(where, 0) }

func flipHeader(where find) damageFunc { return flipAt(where, 8) }

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
