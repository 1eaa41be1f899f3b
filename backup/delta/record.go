package delta

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"math"
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

// Record is one change of one key, as etcd stores it in bucket `key` of its database.
type Record struct {
	// Key is the key in the bucket: the revision, and a mark for a deletion.
	Key []byte
	// Value is the KeyValue message. For a deletion it has only the key.
	Value []byte
	// Revision is the main revision in Key.
	Revision int64
	// At is when the watch delivered the revision, by the clock of the recorder, in milliseconds. It is never before
	// that of the preceding revision.
	At time.Time
}

// IsDelete reports whether the record deletes its key.
func (r Record) IsDelete() bool { return len(r.Key) == markLength }

// AppendKey appends the database key of change number sub of a revision.
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
		return 0, 0, fmt.Errorf("the key of a record has %d bytes", len(key))
	}
	if key[8] != separator || len(key) == markLength && key[keyLength] != tombstone {
		return 0, 0, fmt.Errorf("the key of a record is malformed: %x", key)
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

// appendValue appends the message as etcd stores it: fields in the order of their numbers, without zero fields. A
// deletion stores only the key.
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

// cursor is the position up to which a delta backup was read. It checks that the next record follows.
type cursor struct {
	header *Header
	// main and sub are those of the last record, at the time of its revision.
	main, sub int64
	at        int64
	events    int64
	digest    Digester
}

// smallestRecord is the smallest entry of a block: one byte each for the lengths of key and value, the key, and a
// value with a key of one byte.
const smallestRecord = 1 + keyLength + 1 + 1

// timeLength of a time mark: a zero in place of the length of a record, and Unix milliseconds.
const timeLength = 1 + 8

var errRunsOver = errors.New("a record extends beyond the end of its block")

// block parses the content of a block. The records share its memory.
func (c *cursor) block(h blockHeader, plain []byte) ([]Record, error) {
	if h.records == 0 || int(h.records) > len(plain)/smallestRecord {
		return nil, fmt.Errorf("a block of %d bytes claims to hold %d records", len(plain), h.records)
	}
	if len(plain) == 0 || plain[0] != 0 {
		return nil, errors.New("a block does not begin with a time")
	}
	batch := make([]Record, 0, h.records)
	ms := c.at // of the last mark, which counts from the next revision on
	for len(plain) > 0 {
		if plain[0] == 0 {
			var err error
			if ms, plain, err = c.time(plain); err != nil {
				return nil, err
			}
			continue
		}
		r, rest, err := c.record(plain, ms)
		if err != nil {
			return nil, err
		}
		batch, plain = append(batch, r), rest
	}
	if len(batch) != int(h.records) || batch[0].Revision != h.first || c.main != h.last {
		return nil, fmt.Errorf("a block holds %d records up to revision %d, but its header says %d records of revisions %d to %d",
			len(batch), c.main, h.records, h.first, h.last)
	}
	return batch, nil
}

func (c *cursor) time(plain []byte) (int64, []byte, error) {
	if len(plain) < timeLength {
		return 0, nil, errRunsOver
	}
	ms := int64(binary.BigEndian.Uint64(plain[1:]))
	if ms < c.at {
		return 0, nil, errors.New("the times are not in order")
	}
	return ms, plain[timeLength:], nil
}

func (c *cursor) record(plain []byte, ms int64) (Record, []byte, error) {
	key, plain, err := field(plain)
	if err != nil {
		return Record{}, nil, err
	}
	value, plain, err := field(plain)
	if err != nil {
		return Record{}, nil, err
	}
	main, sub, err := parseKey(key)
	if err != nil {
		return Record{}, nil, err
	}
	if err := c.advance(main, sub, ms); err != nil {
		return Record{}, nil, err
	}
	if main == c.header.To {
		c.digest.Add(key, value)
	}
	c.events++
	return Record{Key: key, Value: value, Revision: main, At: time.UnixMilli(c.at)}, plain, nil
}

func (c *cursor) advance(main, sub, ms int64) error {
	next := c.main + 1
	if c.events == 0 {
		next = c.header.From
	}
	switch {
	case main > c.header.To:
		return fmt.Errorf("it holds revision %d, but its header says that %d is the last", main, c.header.To)
	case c.events > 0 && main == c.main && sub == c.sub+1:
	case main == next && sub == 0:
		c.at = ms
	default:
		return fmt.Errorf("revision %d, sub-revision %d, follows revision %d, sub-revision %d", main, sub, c.main, c.sub)
	}
	c.main, c.sub = main, sub
	return nil
}

// done compares what was read with the header.
func (c *cursor) done(blocks int64) error {
	switch h := c.header; {
	case c.main != h.To || c.events != h.Events || blocks != h.Blocks:
		return fmt.Errorf("it holds %d events in %d blocks up to revision %d, but its header says %d in %d up to %d",
			c.events, blocks, c.main, h.Events, h.Blocks, h.To)
	case c.digest.Sum() != h.Last:
		return fmt.Errorf("the digest of its last revision is %s, but its header says %s", c.digest.Sum(), h.Last)
	}
	return nil
}

// field reads a length and as many bytes.
func field(b []byte) (value, rest []byte, err error) {
	n, used := binary.Uvarint(b)
	if used <= 0 || n > math.MaxInt32 || int(n) > len(b)-used {
		return nil, nil, errRunsOver
	}
	end := used + int(n)
	return b[used:end:end], b[end:], nil
}

// Digest identifies the content of one revision. It is the first 16 bytes of a sha256 over the records in order: for
// each, the length of the key (4 bytes, big endian), the key, the length of the value and the value. The zero Digest
// is "unknown".
type Digest [16]byte

// IsZero reports whether the digest is unknown.
func (d Digest) IsZero() bool { return d == Digest{} }

// String returns the digest in hexadecimal.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// MarshalText writes hexadecimal. An unknown digest is empty.
func (d Digest) MarshalText() ([]byte, error) {
	if d.IsZero() {
		return []byte{}, nil
	}
	return []byte(d.String()), nil
}

// UnmarshalText reads what MarshalText wrote.
func (d *Digest) UnmarshalText(text []byte) error {
	*d = Digest{}
	if len(text) == 0 {
		return nil
	}
	if len(text) != hex.EncodedLen(len(d)) {
		return fmt.Errorf("digest of %d digits, want %d", len(text), hex.EncodedLen(len(d)))
	}
	_, err := hex.Decode(d[:], text)
	return err
}

// Digester computes the Digest of one revision after the other. The zero value is ready to use.
type Digester struct {
	sum hash.Hash
	any bool
	buf [sha256.Size]byte // lengths on the way in, the sum on the way out
}

// Add adds the next record of the revision.
func (d *Digester) Add(key, value []byte) {
	if d.sum == nil {
		d.sum = sha256.New()
	}
	d.any = true
	d.field(key)
	d.field(value)
}

func (d *Digester) field(b []byte) {
	binary.BigEndian.PutUint32(d.buf[:4], uint32(len(b)))
	d.sum.Write(d.buf[:4])
	d.sum.Write(b)
}

// Sum returns the Digest of what was added since the last Reset, or the zero Digest if that was nothing.
func (d *Digester) Sum() Digest {
	if !d.any {
		return Digest{}
	}
	return Digest(d.sum.Sum(d.buf[:0])[:len(Digest{})])
}

// Reset begins the next revision.
func (d *Digester) Reset() {
	if d.any {
		d.sum.Reset()
	}
	d.any = false
}
