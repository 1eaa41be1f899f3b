package delta

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"strconv"
	"time"
)

// Header describes the content of a delta backup.
type Header struct {
	// Version of the format; 1 is the only one.
	Version int
	// Lineage is the lineage to which the revisions belong.
	Lineage string
	// ClusterID and MemberID are the etcd IDs of the member that was watched.
	ClusterID, MemberID uint64
	// From and To are the first and the last revision; all between them are there.
	From, To int64
	// Before is the digest of revision From-1, which is not in the delta backup. It is zero if unknown. Last is the
	// digest of To.
	Before, Last Digest
	// Opened is when the watch delivered From, and Closed when the delta backup was closed, by the clock of the
	// recorder, in milliseconds.
	Opened, Closed time.Time
	// Revisions and Events are counts. An event is one record.
	Revisions, Events int64
	// Blocks of records.
	Blocks int64
}

// Lease is what is known of an etcd lease. The events of a watch do not contain leases.
type Lease struct {
	ID int64
	// TTL is the granted time in seconds. It is 0 if the lease was gone before the recorder could ask, or if etcd did
	// not respond.
	TTL int64
	// Remaining of it, in seconds, at the time At, by the clock of the recorder.
	Remaining int64
	At        time.Time
}

// Leases are the leases that a delta backup records.
type Leases struct {
	// Records has each lease that a put of this delta backup references, and each other one that is Alive and that
	// this recorder did not record before.
	Records []Lease
	// Alive are the IDs of all leases that etcd had when the delta backup was closed. Known is false if they are not
	// recorded: there is no checkpoint, etcd did not respond, or etcd has more than MaxAlive.
	Alive []int64
	Known bool
}

// hexID is an ID in hexadecimal, as etcd and druid print it.
type hexID uint64

func (id hexID) MarshalText() ([]byte, error) { return strconv.AppendUint(nil, uint64(id), 16), nil }

func (id *hexID) UnmarshalText(text []byte) error {
	n, err := strconv.ParseUint(string(text), 16, 64)
	*id = hexID(n)
	return err
}

type headerJSON struct {
	Lineage   string `json:"lineage"`
	ClusterID hexID  `json:"clusterID"`
	MemberID  hexID  `json:"memberID"`
	From      int64  `json:"from"`
	To        int64  `json:"to"`
	Before    Digest `json:"before"`
	Last      Digest `json:"last"`
	Opened    int64  `json:"opened"`
	Closed    int64  `json:"closed"`
	Revisions int64  `json:"revisions"`
	Events    int64  `json:"events"`
	Blocks    int64  `json:"blocks"`
}

func (h Header) marshal() ([]byte, error) {
	return json.Marshal(headerJSON{
		Lineage: h.Lineage, ClusterID: hexID(h.ClusterID), MemberID: hexID(h.MemberID), From: h.From, To: h.To,
		Before: h.Before, Last: h.Last, Opened: h.Opened.UnixMilli(), Closed: h.Closed.UnixMilli(),
		Revisions: h.Revisions, Events: h.Events, Blocks: h.Blocks,
	})
}

func unmarshalHeader(version int, b []byte) (Header, error) {
	var w headerJSON
	if err := json.Unmarshal(b, &w); err != nil {
		return Header{}, fmt.Errorf("its header cannot be read: %w", err)
	}
	h := Header{
		Version: version, Lineage: w.Lineage, ClusterID: uint64(w.ClusterID), MemberID: uint64(w.MemberID), From: w.From, To: w.To,
		Before: w.Before, Last: w.Last, Opened: time.UnixMilli(w.Opened), Closed: time.UnixMilli(w.Closed),
		Revisions: w.Revisions, Events: w.Events, Blocks: w.Blocks,
	}
	// To-From+1 may overflow if From is far below zero, but that is rejected first.
	if h.From < 1 || h.To < h.From || h.Revisions != h.To-h.From+1 || h.Events < h.Revisions || h.Blocks < 1 {
		return Header{}, fmt.Errorf("its header contradicts itself: revisions %d to %d, %d revisions, %d events, %d blocks",
			h.From, h.To, h.Revisions, h.Events, h.Blocks)
	}
	return h, nil
}

type leasesJSON struct {
	Leases []leaseJSON `json:"leases"`
	// Alive is absent if it is not known.
	Alive *[]hexID `json:"alive,omitempty"`
}

type leaseJSON struct {
	ID        hexID `json:"id"`
	TTL       int64 `json:"ttl"`
	Remaining int64 `json:"remaining"`
	At        int64 `json:"at"`
}

func (l Leases) marshal() ([]byte, error) {
	w := leasesJSON{Leases: []leaseJSON{}}
	for _, r := range l.Records {
		w.Leases = append(w.Leases, leaseJSON{hexID(r.ID), r.TTL, r.Remaining, r.At.UnixMilli()})
	}
	if l.Known {
		ids := make([]hexID, 0, len(l.Alive))
		for _, id := range l.Alive {
			ids = append(ids, hexID(id))
		}
		w.Alive = &ids
	}
	return json.Marshal(w)
}

func unmarshalLeases(b []byte) (Leases, error) {
	var w leasesJSON
	if err := json.Unmarshal(b, &w); err != nil {
		return Leases{}, fmt.Errorf("its leases cannot be read: %w", err)
	}
	var l Leases
	for _, r := range w.Leases {
		l.Records = append(l.Records, Lease{int64(r.ID), r.TTL, r.Remaining, time.UnixMilli(r.At)})
	}
	if w.Alive != nil {
		l.Known = true
		for _, id := range *w.Alive {
			l.Alive = append(l.Alive, int64(id))
		}
	}
	return l, nil
}

// Version is the version of the format that is written.
const Version = 1

// What every length in a delta is checked against before memory is taken for it.
const (
	// maxText is the longest header or footer, in bytes. Both have a few hundred.
	maxText = 64 << 10
	// MaxBlock is the largest block, in bytes before compression. etcd rejects requests above 1.5 MiB unless
	// --max-request-bytes is set, and warns above 10 MiB. A record is one change of a request.
	MaxBlock = 64 << 20
	// blockSize is the size at which a block is closed, in bytes before compression. The fastest level of zstd looks
	// back no further.
	blockSize = 1 << 20
	// maxValue is the longest value of a record, in bytes. It fits into a block that was not yet full, with its key,
	// lengths and time.
	maxValue = MaxBlock - blockSize - 64
	// MaxAlive limits the leases that a delta backup records as alive. They take 80 KiB of random bytes that do not
	// compress.
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
	// headerFixed has the magic, the version in 4 bytes, and the checksum at the end.
	headerFixed = magicLength + 4 + 4
	// footerFixed has the magic, and the sha256 at the end.
	footerFixed = magicLength + 32
	// blockFixed is the complete length of the frame before a block.
	blockFixed = 48
)

// kind of a block.
type kind uint32

const (
	records kind = 1
	leases  kind = 2
)

// blockHeader precedes the zstd frame of each block.
type blockHeader struct {
	kind kind
	// compressed and plain are the lengths of the zstd frame and of its content.
	compressed, plain uint32
	// records in the block, and the revisions of the first and the last of them. They are zero for a block of leases.
	records     uint32
	first, last int64
	// sum is the CRC-32C of the compressed frame.
	sum uint32
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func checksum(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// appendFrame begins a skippable frame with a content of n bytes, of which the magic is the first part.
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

// unmarshalBlock parses the content of a block header frame. It returns false if the checksum does not match.
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

// marshalHeader returns the first frame of a delta backup.
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
