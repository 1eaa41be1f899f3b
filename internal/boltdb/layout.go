package boltdb

import (
	"encoding/binary"
	"hash/fnv"
)

// The sizes in bytes of what pages are made of.
const (
	HeaderSize  = 16 // id uint64, flags uint16, count uint16, overflow uint32
	ElementSize = 16 // of branch pages: pos uint32, ksize uint32, pgid uint64; of leaf pages: flags, pos, ksize, vsize uint32
	BucketSize  = 16 // root pgid uint64, sequence uint64; an inline page follows where root is 0
	MetaSize    = 64 // of a meta page, after its header
)

// The flags of pages, and of elements of leaf pages.
const (
	Branch   = 0x01
	Leaf     = 0x02
	Freelist = 0x10

	BucketElement = 0x01
)

// NoFreelist is Meta.Freelist of a database without a free list, such as those of etcd.
const NoFreelist = ^uint64(0)

const (
	metaMagic   = 0xED0CDAED
	metaVersion = 2
)

// Order of the bytes is that of the machine. All machines that run etcd are little-endian except s390x. A file moves
// only between machines with the same order.
var Order = binary.NativeEndian

// Meta is the content of a meta page.
type Meta struct {
	PageSize uint64 // in bytes
	Root     uint64 // page of the bucket of buckets
	Freelist uint64 // page, or NoFreelist
	End      uint64 // the number of pages that belong to the database
	TxID     uint64 // of the transaction that wrote it
}

// IsMeta reports whether a page that begins with head is a meta page. Only ParseMeta checks that it is valid.
func IsMeta(head []byte) bool {
	return len(head) >= HeaderSize+8 && Order.Uint32(head[HeaderSize:]) == metaMagic && Order.Uint32(head[HeaderSize+4:]) == metaVersion
}

// ParseMeta parses the HeaderSize+MetaSize bytes at the beginning of a meta page. ok is false if they are not a meta
// page or their checksum does not match.
func ParseMeta(raw []byte) (m Meta, ok bool) {
	if len(raw) < HeaderSize+MetaSize || !IsMeta(raw) {
		return Meta{}, false
	}
	// magic, version, page size and flags uint32; root pgid and sequence, freelist, end, txid and checksum uint64
	said := raw[HeaderSize:]
	sum := fnv.New64a()
	_, _ = sum.Write(said[:56]) // a hash never fails
	m = Meta{
		PageSize: uint64(Order.Uint32(said[8:])), Root: Order.Uint64(said[16:]), Freelist: Order.Uint64(said[32:]),
		End: Order.Uint64(said[40:]), TxID: Order.Uint64(said[48:]),
	}
	return m, Order.Uint64(said[56:]) == sum.Sum64()
}

// ID is the number of the page, as stored in it.
func ID(page []byte) uint64 { return Order.Uint64(page) }

// Kind of a page: its flags.
func Kind(page []byte) uint16 { return Order.Uint16(page[8:]) }

// Count is the number of elements in a page.
func Count(page []byte) int { return int(Order.Uint16(page[10:])) }

// Pages is the number of pages that a page and its overflow take.
func Pages(page []byte) uint64 { return 1 + uint64(Order.Uint32(page[12:])) }

// Child is the page to which an element of a branch page refers.
func Child(element []byte) uint64 { return Order.Uint64(element[8:]) }

// Entry returns the key and the value of an element; the value is empty for a branch page. Positions are relative to
// the element, so element must extend to the end of its page. ok is false if they are outside of it.
func Entry(element []byte, leaf bool) (key, value []byte, ok bool) {
	pos, keySize, valueSize := uint64(Order.Uint32(element)), uint64(Order.Uint32(element[4:])), uint64(0)
	if leaf {
		pos, keySize, valueSize = keySize, uint64(Order.Uint32(element[8:])), uint64(Order.Uint32(element[12:]))
	}
	if pos+keySize+valueSize > uint64(len(element)) {
		return nil, nil, false
	}
	return element[pos : pos+keySize], element[pos+keySize : pos+keySize+valueSize], true
}
