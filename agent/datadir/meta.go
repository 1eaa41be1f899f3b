package datadir

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
)

// The layout of bbolt's pages, which bbolt itself does not export. It is written in the byte order of the machine.
const (
	pageHeader  = 16 // id uint64, flags uint16, count uint16, overflow uint32
	elementSize = 16 // of branch pages: pos uint32, ksize uint32, pgid uint64; of leaf pages: flags, pos, ksize, vsize uint32
	bucketSize  = 16 // root pgid uint64, sequence uint64; an inline page follows where root is 0

	branchPage   = 0x01
	leafPage     = 0x02
	freelistPage = 0x10

	bucketElement = 0x01

	metaMagic   = 0xED0CDAED
	metaVersion = 2
	metaSize    = 64
	noFreelist  = ^uint64(0)

	minPageSize, maxPageSize = 1 << 10, 1 << 24 // what bbolt itself tries
)

var order = binary.NativeEndian

// boltMeta is the meta page of the last transaction that was written whole.
type boltMeta struct {
	pageSize uint64
	root     uint64 // page of the bucket of buckets
	freelist uint64 // page, or noFreelist: etcd keeps none
	end      uint64 // the number of pages that belong to the backend
	txid     uint64
}

// readMeta finds the valid meta page of the higher transaction, as bbolt does: one bad meta page is what a crash may
// leave, and the other then stands for the transaction before. The file must hold all pages that the meta page counts.
func readMeta(f io.ReaderAt, size int64) (boltMeta, error) {
	var best boltMeta
	offsets := []int64{0}
	for s := int64(minPageSize); s <= maxPageSize && s < size; s *= 2 {
		offsets = append(offsets, s)
	}
	for _, off := range offsets {
		m, ok, err := metaAt(f, off)
		if err != nil {
			return best, err
		}
		if ok && (off == 0 || uint64(off) == m.pageSize) && (best.pageSize == 0 || m.txid > best.txid) {
			best = m
		}
	}
	switch {
	case size == 0:
		return best, damaged(TruncatedDB, "the backend is empty")
	case best.pageSize == 0:
		return best, damaged(BadMeta, "neither meta page of the backend is valid")
	case uint64(size)/best.pageSize < best.end:
		return best, damaged(TruncatedDB, "the backend has %d bytes, but %d pages of %d", size, best.end, best.pageSize)
	case best.root < 2 || best.root >= best.end:
		return best, damaged(BadMeta, "the root page %d is outside of the backend's %d pages", best.root, best.end)
	}
	return best, nil
}

func metaAt(f io.ReaderAt, off int64) (boltMeta, bool, error) {
	var raw [pageHeader + metaSize]byte
	if _, err := f.ReadAt(raw[:], off); errors.Is(err, io.EOF) {
		return boltMeta{}, false, nil
	} else if err != nil {
		return boltMeta{}, false, fmt.Errorf("read meta page: %w", err)
	}
	m := raw[pageHeader:]
	sum := fnv.New64a()
	_, _ = sum.Write(m[:56]) // a hash never fails
	if order.Uint32(m) != metaMagic || order.Uint32(m[4:]) != metaVersion || order.Uint64(m[56:]) != sum.Sum64() {
		return boltMeta{}, false, nil
	}
	meta := boltMeta{
		pageSize: uint64(order.Uint32(m[8:])),
		root:     order.Uint64(m[16:]),
		freelist: order.Uint64(m[32:]),
		end:      order.Uint64(m[40:]),
		txid:     order.Uint64(m[48:]),
	}
	return meta, meta.pageSize >= minPageSize && meta.pageSize <= maxPageSize, nil
}
