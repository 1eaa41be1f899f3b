package restore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/server/v3/lease/leasepb"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/etcd-druid/druid/backup/delta"
)

// unknownTTL, in seconds, is for a lease that was gone before the recorder could ask for its time to live. It is long
// enough for a running owner to renew the lease, and short enough that keys without an owner expire soon.
const unknownTTL = 60

// tracker finds the leases that live keys refer to but that are not in the full backup, because they were granted
// after it. Without them, etcd never expires such keys and panics when a client touches one. tracker has one entry for
// each such key that is alive.
type tracker struct {
	known   map[int64]struct{}
	missing map[string]int64 // key: lease
	// attached are the leases of records that are known to be alive.
	attached map[int64]struct{}
}

func newTracker(tx *bolt.Tx) (*tracker, error) {
	t := &tracker{known: map[int64]struct{}{}, missing: map[string]int64{}, attached: map[int64]struct{}{}}
	bucket := tx.Bucket(schema.Lease.Name())
	if bucket == nil {
		return t, nil
	}
	return t, bucket.ForEach(func(k, _ []byte) error {
		if len(k) != 8 {
			return fmt.Errorf("lease %x in the database", k)
		}
		t.known[int64(binary.BigEndian.Uint64(k))] = struct{}{}
		return nil
	})
}

// observe takes the next record of the history.
func (t *tracker) observe(value []byte, deletes bool) error {
	key, lease, err := keyAndLease(value)
	if err != nil {
		return err
	}
	_, known := t.known[lease]
	switch {
	case !deletes && lease != 0 && !known:
		t.missing[string(key)] = lease
	case len(t.missing) > 0:
		delete(t.missing, string(key))
	}
	return nil
}

// attach takes a record that is alive.
func (t *tracker) attach(value []byte) error {
	_, lease, err := keyAndLease(value)
	if _, known := t.known[lease]; err == nil && lease != 0 && !known {
		t.attached[lease] = struct{}{}
	}
	return err
}

// add writes each missing lease. It returns how many, and how many of them have an unknown time to live.
func (t *tracker) add(tx *bolt.Tx, reported map[int64]delta.Lease) (added, guessed int, err error) {
	ids := slices.Collect(maps.Keys(t.attached))
	for _, id := range t.missing {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	if len(ids) == 0 {
		return 0, 0, nil
	}
	bucket, err := tx.CreateBucketIfNotExists(schema.Lease.Name())
	if err != nil {
		return 0, 0, err
	}
	for _, id := range ids {
		ttl := reported[id].TTL
		if ttl == 0 {
			ttl = unknownTTL
			guessed++
		}
		value, err := proto.Marshal(&leasepb.Lease{ID: id, TTL: ttl})
		if err != nil {
			return 0, 0, fmt.Errorf("encode lease %x: %w", id, err)
		}
		if err := bucket.Put(binary.BigEndian.AppendUint64(nil, uint64(id)), value); err != nil {
			return 0, 0, fmt.Errorf("put lease %x: %w", id, err)
		}
	}
	return len(ids), guessed, nil
}

// Numbers of the fields of mvccpb.KeyValue.
const (
	fieldKey   = 1
	fieldLease = 6
)

var errKeyValue = errors.New("the value of a record is not a KeyValue message of etcd")

// keyOf returns the key of a KeyValue message, which is its first field. The mark of a bumped revision has none.
func keyOf(value []byte) ([]byte, error) {
	field, kind, n := protowire.ConsumeTag(value)
	if field != fieldKey || kind != protowire.BytesType {
		key, _, err := keyAndLease(value)
		return key, err
	}
	key, length := protowire.ConsumeBytes(value[n:])
	if length < 0 {
		return nil, errKeyValue
	}
	return key, nil
}

// keyAndLease returns two fields of a KeyValue message and skips the rest.
func keyAndLease(value []byte) (key []byte, lease int64, err error) {
	for len(value) > 0 {
		field, kind, n := protowire.ConsumeTag(value)
		if n < 0 {
			return nil, 0, errKeyValue
		}
		value = value[n:]
		switch {
		case field == fieldKey && kind == protowire.BytesType:
			key, n = protowire.ConsumeBytes(value)
		case field == fieldLease && kind == protowire.VarintType:
			var v uint64
			v, n = protowire.ConsumeVarint(value)
			lease = int64(v)
		default:
			n = protowire.ConsumeFieldValue(field, kind, value)
		}
		if n < 0 {
			return nil, 0, errKeyValue
		}
		value = value[n:]
	}
	return key, lease, nil
}
