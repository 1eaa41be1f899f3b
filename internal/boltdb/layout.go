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

// NoFreelist is Meta.Freelist of a database that keeps none, as etcd's do not.
const NoFreelist = ^uint64(0)

const (
	metaMagic   = 0xED0CDAED
	metaVersion = 2
)

// Order of the bytes is that of the machine: all that run etcd are little-endian but s390x. A file moves between machines of one order.
var Order = binary.NativeEndian

// Meta is what a meta page says.
type Meta struct {
	PageSize uint64 // in bytes
	Root     uint64 // page of the bucket of buckets
	Freelist uint64 // page, or NoFreelist
	End      uint64 // the number of pages that belong to the database
	TxID     uint64 // of the transaction that wrote it
}

// IsMeta says whether a page that begins with head is a meta page. That it is whole only ParseMeta knows.
func IsMeta(head []byte) bool {
	return len(head) >= HeaderSize+8 && Order.Uint32(head[HeaderSize:]) == metaMagic && Order.Uint32(head[HeaderSize+4:]) == metaVersion
}

// ParseMeta reads the HeaderSize+MetaSize bytes that a meta page begins with. It is not ok where they are none, or their checksum is wrong.
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

// ID that a page says it has.
func ID(page []byte) uint64 { return Order.Uint64(page) }

// Kind of a page: its flags.
func Kind(page []byte) uint16 { return Order.Uint16(page[8:]) }

// Count of a page's elements.
func Count(page []byte) int { return int(Order.Uint16(page[10:])) }

// Pages that a page takes, with those that overflow it.
func Pages(page []byte) uint64 { return 1 + uint64(Order.Uint32(page[12:])) }

// Child is the page that an element of a branch page leads to.
func Child(element []byte) uint64 { return Order.Uint64(element[8:]) }

// Entry returns key and value of an element, and no value of a branch page's. Positions are relative to the element itself, which therefore is
// given with all that follows it in its page. It is not ok where they lie outside of that.
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
