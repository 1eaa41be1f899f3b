package boltcheck

import (
	"errors"
	"fmt"
	"io"

	"github.com/etcd-druid/druid/backup/boltpage"
)

const minPageSize, maxPageSize = 1 << 10, 1 << 24 // what bbolt itself tries

// ReadMeta finds the valid meta page of the higher transaction, as bbolt does: one bad meta page is what a crash may
// leave, and the other then stands for the transaction before. The file of that size in bytes must hold all pages that
// the meta page counts.
func ReadMeta(f io.ReaderAt, size int64) (boltpage.Meta, error) {
	var best boltpage.Meta
	offsets := []int64{0}
	for s := int64(minPageSize); s <= maxPageSize && s < size; s *= 2 {
		offsets = append(offsets, s)
	}
	for _, off := range offsets {
		m, ok, err := metaAt(f, off)
		if err != nil {
			return best, err
		}
		if ok && (off == 0 || uint64(off) == m.PageSize) && (best.PageSize == 0 || m.TxID > best.TxID) {
			best = m
		}
	}
	switch {
	case size == 0:
		return best, damaged(Truncated, "the backend is empty")
	case best.PageSize == 0:
		return best, damaged(BadMeta, "neither meta page of the backend is valid")
	case uint64(size)/best.PageSize < best.End:
		return best, damaged(Truncated, "the backend has %d bytes, but %d pages of %d", size, best.End, best.PageSize)
	case best.Root < 2 || best.Root >= best.End:
		return best, damaged(BadMeta, "the root page %d is outside of the backend's %d pages", best.Root, best.End)
	}
	return best, nil
}

func metaAt(f io.ReaderAt, off int64) (boltpage.Meta, bool, error) {
	var raw [boltpage.HeaderSize + boltpage.MetaSize]byte
	if _, err := f.ReadAt(raw[:], off); errors.Is(err, io.EOF) {
		return boltpage.Meta{}, false, nil
	} else if err != nil {
		return boltpage.Meta{}, false, fmt.Errorf("read meta page: %w", err)
	}
	meta, ok := boltpage.ParseMeta(raw[:])
	return meta, ok && meta.PageSize >= minPageSize && meta.PageSize <= maxPageSize, nil
}
