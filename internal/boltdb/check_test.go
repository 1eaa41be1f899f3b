package boltdb_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"testing"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/server/v3/storage/schema"

	"github.com/etcd-druid/druid/internal/boltdb"
)

// database returns a database that bbolt made, with a tree of several levels and without a free list, like those of
// etcd.
func database(t *testing.T) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "db")
	db, err := bolt.Open(path, 0o600, &bolt.Options{NoFreelistSync: true})
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bolt.Tx) error {
		keys, err := tx.CreateBucket(schema.Key.Name())
		for i := range uint64(2000) {
			err = errors.Join(err, keys.Put(binary.BigEndian.AppendUint64(nil, i), make([]byte, 0, 8)))
		}
		return err
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func check(ctx context.Context, t *testing.T, content []byte) error {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "db")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() // the test ends with it
	if _, err := f.Write(content); err != nil {
		t.Fatal(err)
	}
	return boltdb.Check(ctx, f)
}

func TestDamageIsNamedByItsKind(t *testing.T) {
	t.Parallel()
	whole := database(t)
	meta, err := boltdb.ReadMeta(bytes.NewReader(whole), int64(len(whole)))
	if err != nil {
		t.Fatal(err)
	}
	size := int(meta.PageSize)
	flipped := func(places ...int) []byte {
		content := append([]byte(nil), whole...)
		for _, at := range places {
			content[at] ^= 0x10
		}
		return content
	}
	const inMeta = boltdb.HeaderSize + 16
	for name, test := range map[string]struct {
		content []byte
		want    boltdb.DamageKind
	}{
		"as bbolt made it":         {whole, 0},
		"one meta page":            {flipped(inMeta + size*int((meta.TxID+1)%2)), 0},
		"both meta pages":          {flipped(inMeta, inMeta+size), boltdb.BadMeta},
		"nothing":                  {nil, boltdb.Truncated},
		"cut by its last page":     {whole[:int(meta.End-1)*size], boltdb.Truncated},
		"the ID of the root":       {flipped(int(meta.Root) * size), boltdb.BadPage},
		"the kind of the root":     {flipped(int(meta.Root)*size + 8), boltdb.BadPage},
		"the overflow of the root": {flipped(int(meta.Root)*size + 14), boltdb.BadPage},
	} {
		err := check(t.Context(), t, test.content)
		damage, ok := errors.AsType[*boltdb.DamagedError](err)
		if ok != (test.want != 0) || ok && damage.Kind != test.want || !ok && err != nil {
			t.Errorf("%s: %v, want kind %d", name, err, test.want)
		}
	}
}

// TestStoppedCheckReportsNothing: a check that was stopped reports nothing of the database.
// What was not read is not damaged.
func TestStoppedCheckReportsNothing(t *testing.T) {
	t.Parallel()
	stopped := errors.New("stopped")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(stopped)
	err := check(ctx, t, database(t))
	if _, damaged := errors.AsType[*boltdb.DamagedError](err); damaged || !errors.Is(err, stopped) {
		t.Errorf("it ends with %v", err)
	}
}
