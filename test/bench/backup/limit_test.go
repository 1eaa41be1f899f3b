package backup

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"syscall"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/etcd-druid/druid/test/machine"
)

// transaction is as many bytes as a restore writes at once.
const transaction = 16 << 20

// appendOnly appends records that are ready to a database that is there: the least that a restore of deltas costs.
func appendOnly(_ context.Context, t task) (map[string]float64, error) {
	records, err := mapped(t.Records)
	if err != nil {
		return nil, err
	}
	db, err := bolt.Open(t.Path, 0o600, &bolt.Options{
		NoSync: true, NoGrowSync: true, NoFreelistSync: true, FreelistType: bolt.FreelistMapType, InitialMmapSize: 8 << 30, NoStatistics: true,
	})
	if err != nil {
		return nil, err
	}
	db.AllocSize = 64 << 20
	begin, used := time.Now(), machine.CPU()
	for len(records) > 0 {
		err := db.Update(func(tx *bolt.Tx) error {
			bucket := tx.Bucket([]byte("key"))
			bucket.FillPercent = 0.9
			for written := 0; len(records) > 0 && written < transaction; {
				k, v := 8+int(binary.BigEndian.Uint32(records)), int(binary.BigEndian.Uint32(records[4:]))
				if err := bucket.Put(records[8:k:k], records[k:k+v:k+v]); err != nil {
					return err
				}
				written += k - 8 + v
				records = records[k+v:]
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return map[string]float64{"wall": time.Since(begin).Seconds(), "cpu": (machine.CPU() - used).Seconds()}, db.Close()
}

// mapped is a file in memory, with pages that are there already.
func mapped(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	return syscall.Mmap(int(f.Fd()), 0, int(info.Size()), syscall.PROT_READ, syscall.MAP_SHARED|syscall.MAP_POPULATE)
}

// writeOnly writes a file of a size, and makes it durable.
func writeOnly(_ context.Context, t task) (map[string]float64, error) {
	f, err := os.Create(t.Path)
	if err != nil {
		return nil, err
	}
	block := make([]byte, 1<<20)
	for left := t.Bytes; left > 0; left -= int64(len(block)) {
		if _, err := f.Write(block[:min(left, int64(len(block)))]); err != nil {
			return nil, errors.Join(err, f.Close())
		}
	}
	return nil, errors.Join(f.Sync(), f.Close())
}
