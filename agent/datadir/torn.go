package datadir

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"os"

	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// etcd ends a log before the first record that is incomplete, and takes that for a write which a crash interrupted. Such a record was never
// acknowledged. A record can also look incomplete because of damage: a changed length reaches beyond the file, or into the zeros after the
// last record. Then acknowledged entries follow. The functions here find what only damage explains. What a crash can explain is not damage:
// sectors of one unfinished write reach the disk in any order.

// frameSize is the size in bytes of the length before each record (frameSizeBytes in decoder.go of etcd).
const frameSize = 8

// walTable is the polynomial of the checksums in the log (crcTable in wal.go of etcd).
var walTable = crc32.MakeTable(crc32.Castagnoli)

// sectorSize is what a disk writes completely or not at all (minSectorSize in decoder.go of etcd).
const sectorSize = 512

// tornByDamage says why what follows the offset off of the last log file cannot be an interrupted write, and is empty
// if it can be. sum is the checksum of the records before it. It reads the rest of the file only if a record seems to
// follow: at most one file of the log, 64 MB.
func tornByDamage(f *os.File, off int64, sum uint32) (string, error) {
	info, err := f.Stat()
	if err != nil || info.Size() <= off+frameSize {
		return "", err
	}
	var head [frameSize + 1]byte
	if _, err := f.ReadAt(head[:], off); err != nil {
		return "", err
	}
	noLength := binary.LittleEndian.Uint64(head[:]) == 0
	// A record begins with its kind. If the sector of the length ends with it, the disk can have the next sector alone.
	if head[frameSize] != byte(protowire.EncodeTag(1, protowire.VarintType)) || noLength && (off+frameSize)%sectorSize == 0 {
		return "", nil
	}
	rest := make([]byte, info.Size()-off)
	if _, err := f.ReadAt(rest, off); err != nil {
		return "", err
	}
	switch {
	case completeWithoutLength(rest[frameSize:], sum):
		return fmt.Sprintf("the record at offset %d is complete, and its length is wrong", off), nil
	case writtenAfter(rest):
		return fmt.Sprintf("the entry at offset %d is damaged, and later writes follow it", off), nil
	}
	return "", nil
}

// completeWithoutLength says whether a record begins here whose checksum is right. A record of which a part did not
// reach the disk has another one. etcd writes data with each record but that of a checksum.
func completeWithoutLength(raw []byte, sum uint32) bool {
	kind, raw, isKind := uintField(raw, 1)
	crc, raw, isCRC := uintField(raw, 2)
	number, wire, n := protowire.ConsumeTag(raw)
	if !isKind || !isCRC || n < 0 || number != 3 || wire != protowire.BytesType {
		return false
	}
	data, m := protowire.ConsumeBytes(raw[n:])
	return m >= 0 && kind >= uint64(wal.MetadataType) && kind <= uint64(wal.SnapshotType) && uint64(crc32.Update(sum, walTable, data)) == crc
}

// writtenAfter says whether raw begins with an entry that etcd wrote completely: a later write follows it. etcd syncs a
// write with entries before it begins the next one. A write ends with a hard state, so that what follows a hard state
// belongs to a later write.
func writtenAfter(raw []byte) bool {
	torn, raw, ok := frame(raw)
	if !ok {
		return false
	}
	kind, torn, isKind := uintField(torn, 1)
	crc, _, isCRC := uintField(torn, 2) // the rest of the record is damaged
	if !isKind || !isCRC || kind != uint64(wal.EntryType) {
		return false
	}
	for sum, ended := uint32(crc), false; ; {
		var body []byte
		if body, raw, ok = frame(raw); !ok {
			return false
		}
		rec := &walpb.Record{}
		if proto.Unmarshal(body, rec) != nil || crc32.Update(sum, walTable, rec.Data) != rec.GetCrc() {
			return false
		}
		if ended {
			return true
		}
		sum, ended = rec.GetCrc(), rec.GetType() == wal.StateType
	}
}

// uintField reads a field with a number, and returns what follows it.
func uintField(raw []byte, want protowire.Number) (value uint64, rest []byte, ok bool) {
	number, wire, n := protowire.ConsumeTag(raw)
	if n < 0 || number != want || wire != protowire.VarintType {
		return 0, nil, false
	}
	value, m := protowire.ConsumeVarint(raw[n:])
	if m < 0 {
		return 0, nil, false
	}
	return value, raw[n+m:], true
}

// frame returns the record with which raw begins, and what follows it. It returns false at the end of the log.
func frame(raw []byte) (body, rest []byte, ok bool) {
	if len(raw) < frameSize {
		return nil, nil, false
	}
	length := binary.LittleEndian.Uint64(raw)
	size, pad := length&^(uint64(0xff)<<56), uint64(0)
	if length>>63 != 0 {
		pad = length >> 56 & 7
	}
	raw = raw[frameSize:]
	if size == 0 || size > uint64(len(raw)) || size+pad > uint64(len(raw)) {
		return nil, nil, false
	}
	return raw[:size], raw[size+pad:], true
}
