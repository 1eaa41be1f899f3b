package delta

import (
	"encoding/binary"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/encoding/protowire"
)

// A key of bucket `key` in etcd's database: main revision and sub-revision in 8 bytes each, big endian, with '_' between
// them; a deletion has the mark 't' behind (go.etcd.io/etcd/server/v3/storage/mvcc/revision.go).
const (
	keyLength  = 17
	markLength = keyLength + 1
	separator  = '_'
	tombstone  = 't'
)

// Record is one change of one key, as it stands in bucket `key` of etcd's database.
type Record struct {
	// Key is the bucket's key: the revision, and a mark for a deletion.
	Key []byte
	// Value is the KeyValue message; of a deletion it has the key alone.
	Value []byte
	// Revision is the main revision in Key.
	Revision int64
	// At is when the watch delivered the revision, by the clock of the recorder, never before the revision before it. Its
	// resolution is a millisecond.
	At time.Time
}

// IsDelete reports whether the record deletes its key.
func (r Record) IsDelete() bool { return len(r.Key) == markLength }

// AppendKey appends the database's key of a revision's change number sub.
func AppendKey(b []byte, main, sub int64, deletes bool) []byte {
	b = binary.BigEndian.AppendUint64(b, uint64(main))
	b = append(b, separator)
	b = binary.BigEndian.AppendUint64(b, uint64(sub))
	if deletes {
		b = append(b, tombstone)
	}
	return b
}

// parseKey is the inverse of AppendKey.
func parseKey(key []byte) (main, sub int64, err error) {
	if len(key) != keyLength && len(key) != markLength {
		return 0, 0, fmt.Errorf("key of a record has %d bytes", len(key))
	}
	if key[8] != separator || len(key) == markLength && key[keyLength] != tombstone {
		return 0, 0, fmt.Errorf("key of a record is malformed: %x", key)
	}
	return int64(binary.BigEndian.Uint64(key)), int64(binary.BigEndian.Uint64(key[9:])), nil
}

// Numbers of the fields of mvccpb.KeyValue.
const (
	fieldKey            = 1
	fieldCreateRevision = 2
	fieldModRevision    = 3
	fieldVersion        = 4
	fieldValue          = 5
	fieldLease          = 6
)

// appendValue appends the message as etcd stores it: fields in the order of their numbers, zero ones left out. A deletion
// stores nothing but the key.
func appendValue(b []byte, e *mvccpb.Event) []byte {
	b = appendBytes(b, fieldKey, e.Kv.Key)
	if e.Type == mvccpb.Event_DELETE {
		return b
	}
	b = appendInt(b, fieldCreateRevision, e.Kv.CreateRevision)
	b = appendInt(b, fieldModRevision, e.Kv.ModRevision)
	b = appendInt(b, fieldVersion, e.Kv.Version)
	b = appendBytes(b, fieldValue, e.Kv.Value)
	return appendInt(b, fieldLease, e.Kv.Lease)
}

func appendBytes(b []byte, field protowire.Number, v []byte) []byte {
	if len(v) == 0 {
		return b
	}
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), v)
}

func appendInt(b []byte, field protowire.Number, v int64) []byte {
	if v == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), uint64(v))
}
