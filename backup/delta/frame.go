package delta

import (
	"encoding/binary"
	"hash/crc32"
)

// Version is the version of the format that is written.
const Version = 1

// What every length in a delta is checked against before memory is taken for it.
const (
	// maxText is the longest header or footer, in bytes. Both are a few hundred.
	maxText = 64 << 10
	// MaxBlock is the largest block, in bytes, before compression. etcd refuses a request of more than 1.5 MiB unless
	// --max-request-bytes says otherwise, and warns above 10 MiB; a record is one change of a request.
	MaxBlock = 64 << 20
	// blockSize is when a block is closed, in bytes before compression: zstd's fastest level looks back no further.
	blockSize = 1 << 20
	// maxValue is the longest value of a record, in bytes: what fits a block that was not full, with key, lengths and time.
	maxValue = MaxBlock - blockSize - 64
	// MaxAlive is up to how many leases a delta reports those that are alive: 80 KiB of what is random and does not compress.
	MaxAlive = 10_000
)

// A skippable frame of zstd begins with one of 16 magic numbers, of which ours is 0x184D2A5D, and a length, both little
// endian (RFC 8878, 3.1.2). Every tool steps over it.
const (
	skippable   = 0x184D2A5D
	frameHeader = 8
)

// The first 8 bytes of our skippable frames' content.
const (
	magicHeader = "DRUIDDLT"
	magicBlock  = "DRUIDBLK"
	magicFooter = "DRUIDEND"
	magicLength = 8
)

const (
	// headerFixed: magic, version in 4 bytes, and the checksum at the end.
	headerFixed = magicLength + 4 + 4
	// footerFixed: magic, and the sha256 at the end.
	footerFixed = magicLength + 32
	// blockFixed is the whole length of what stands before a block.
	blockFixed = 48
)

// kind of a block.
type kind uint32

const (
	records kind = 1
	leases  kind = 2
)

// blockHeader stands before each block's own zstd frame.
type blockHeader struct {
	kind kind
	// compressed and plain are the lengths of the zstd frame and of its content.
	compressed, plain uint32
	// records in the block, and the revisions of the first and of the last of them; zero for leases.
	records     uint32
	first, last int64
	// sum is the CRC-32C of the compressed frame.
	sum uint32
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func checksum(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// appendFrame begins a skippable frame with a content of n bytes, the first of which are its magic.
func appendFrame(b []byte, n int, magic string) []byte {
	b = binary.LittleEndian.AppendUint32(b, skippable)
	b = binary.LittleEndian.AppendUint32(b, uint32(n))
	return append(b, magic...)
}

func (h blockHeader) marshal() []byte {
	b := appendFrame(make([]byte, 0, frameHeader+blockFixed), blockFixed, magicBlock)
	for _, v := range []uint32{uint32(h.kind), h.compressed, h.plain, h.records} {
		b = binary.LittleEndian.AppendUint32(b, v)
	}
	b = binary.LittleEndian.AppendUint64(b, uint64(h.first))
	b = binary.LittleEndian.AppendUint64(b, uint64(h.last))
	b = binary.LittleEndian.AppendUint32(b, h.sum)
	return binary.LittleEndian.AppendUint32(b, checksum(b[frameHeader:]))
}

// unmarshalBlock reads the content of a block's frame. It is false when the checksum is not that of the content.
func unmarshalBlock(b []byte) (blockHeader, bool) {
	if len(b) != blockFixed || checksum(b[:blockFixed-4]) != binary.LittleEndian.Uint32(b[blockFixed-4:]) {
		return blockHeader{}, false
	}
	u32 := func(at int) uint32 { return binary.LittleEndian.Uint32(b[magicLength+at:]) }
	u64 := func(at int) int64 { return int64(binary.LittleEndian.Uint64(b[magicLength+at:])) }
	return blockHeader{
		kind: kind(u32(0)), compressed: u32(4), plain: u32(8), records: u32(12), first: u64(16), last: u64(24), sum: u32(32),
	}, true
}

// marshalHeader is the first frame of a delta.
func marshalHeader(h Header) ([]byte, error) {
	text, err := h.marshal()
	if err != nil {
		return nil, err
	}
	b := appendFrame(nil, headerFixed+len(text), magicHeader)
	b = binary.LittleEndian.AppendUint32(b, Version)
	b = append(b, text...)
	return binary.LittleEndian.AppendUint32(b, checksum(b[frameHeader:])), nil
}
