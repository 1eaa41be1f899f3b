package proof

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/etcd-druid/druid/backup/restore"
)

// next to compares with a checkpoint what its hash does not cover, and as far as it can be compared: of keys etcd reports how many there
// were at a revision; leases and users have no revisions, and are restored as of the full. What cannot be compared is said.
func (c comparison) beside(ctx context.Context, r *Result, point restore.Checkpoint) error {
	r.Compared = append(r.Compared, "hashKV")
	c.compareKeys(r, point)
	c.compareAuth(r, point)
	return c.compareLeases(ctx, r, point)
}

func (c comparison) compareKeys(r *Result, point restore.Checkpoint) {
	switch {
	case point.Keys == nil:
		r.NotCompared = append(r.NotCompared, "keys: the checkpoint does not report how many there were")
	case *point.Keys == r.Keys:
		r.Compared = append(r.Compared, "keys")
	default:
		c.contradicted(r, point.Object, fmt.Sprintf("at revision %d the backup holds %d keys, and member %x had %d", point.Revision, r.Keys, point.MemberID, *point.Keys))
	}
}

// compareAuth: what changes users and roles, or disables them, raises their revision; enabling them does not.
func (c comparison) compareAuth(r *Result, point restore.Checkpoint) {
	ours, theirs := c.contents, point.Auth
	switch {
	case theirs == nil:
		r.NotCompared = append(r.NotCompared, "users and roles: the checkpoint does not report them")
	case ours.AuthRevision < theirs.Revision:
		r.NotCompared = append(r.NotCompared, fmt.Sprintf("users and roles: they are restored as of the full, at change %d, and were at change %d later",
			ours.AuthRevision, theirs.Revision))
	case ours.AuthRevision > theirs.Revision:
		c.contradicted(r, c.plan.Full.Key, fmt.Sprintf("the full has users and roles as of change %d, and later member %x had them as of change %d",
			ours.AuthRevision, point.MemberID, theirs.Revision))
	case ours.AuthEnabled && !theirs.Enabled:
		c.contradicted(r, c.plan.Full.Key, fmt.Sprintf("the full demands users, and member %x did not, at the same change %d", point.MemberID, theirs.Revision))
	case !ours.AuthEnabled && theirs.Enabled:
		r.NotCompared = append(r.NotCompared, "users and roles: they were enabled after the full, which has them disabled")
	default:
		r.Compared = append(r.Compared, "users and roles")
	}
}

// compareLeases: a key that is restored as it was at the checkpoint, under a lease that etcd had then, must have that lease. Of
// other leases no one knows whether they were granted after the full, or are gone since.
func (c comparison) compareLeases(ctx context.Context, r *Result, point restore.Checkpoint) error {
	if point.Alive == nil {
		r.NotCompared = append(r.NotCompared, "leases: the checkpoint does not report which there were")
		return nil
	}
	lost, err := lostLeases(ctx, c.db, point.Revision, point.Alive)
	if err != nil {
		return err
	}
	if len(lost) > 0 {
		c.contradicted(r, c.plan.Full.Key, fmt.Sprintf("the backup has keys under lease %x without that lease, which member %x had (%d such leases): an etcd on it would end",
			lost[0], point.MemberID, len(lost)))
		return nil
	}
	r.Compared = append(r.Compared, "leases of keys")
	if notified := int64(len(point.Alive)); notified != c.contents.Leases {
		r.NotCompared = append(r.NotCompared, fmt.Sprintf("leases without keys: %d leases are restored, and there were %d at the checkpoint",
			c.contents.Leases, notified))
	}
	return nil
}

// contradicted: the hash is equal, so the deltas' records are good. Users and leases stand in the full; but the delta of the
// checkpoint may report something that was not so.
func (c comparison) contradicted(r *Result, object, reason string) {
	r.Verdict = Broken
	if r.Object == "" {
		r.Object = cmp.Or(object, c.plan.Full.Key)
		r.Suspects = []string{r.Object}
		reason += ": wrong is " + r.Object
		if notified := r.Checkpoint.Object; notified != "" && notified != r.Object {
			r.Suspects = append(r.Suspects, notified)
			reason += ", or " + notified
		}
	}
	if r.Reason != "" {
		reason = r.Reason + "; " + reason
	}
	r.Reason = reason
}

// lostLeases are those of some leases that the database does not have, and that a key refers to which was last changed up to a
// revision. It holds an entry for each such key.
func lostLeases(ctx context.Context, db *bolt.DB, revision int64, alive []int64) (lost []int64, err error) {
	err = db.View(func(tx *bolt.Tx) error {
		absent := map[int64]bool{}
		known := tx.Bucket(schema.Lease.Name())
		for _, id := range alive {
			if known == nil || known.Get(binary.BigEndian.AppendUint64(nil, uint64(id))) == nil {
				absent[id] = true
			}
		}
		if len(absent) == 0 {
			return nil
		}
		under := map[string]int64{}
		err := each(ctx, tx.Bucket(schema.Key.Name()), math.MaxInt64, func(_, main int64, deletes bool, _, value []byte) error {
			key, err := keyOf(value)
			if err != nil {
				return err
			}
			lease, err := leaseOf(value)
			switch {
			case err != nil:
				return err
			case !deletes && main <= revision && absent[lease]:
				under[string(key)] = lease
			case len(under) > 0:
				delete(under, string(key))
			}
			return nil
		})
		lost = slices.Compact(slices.Sorted(maps.Values(under)))
		return err
	})
	return lost, err
}

// fieldLease is the number of the field of mvccpb.KeyValue.
const fieldLease = 6

// leaseOf reads the lease out of a KeyValue message; 0: none.
func leaseOf(value []byte) (lease int64, err error) {
	for len(value) > 0 {
		field, kind, n := protowire.ConsumeTag(value)
		if n < 0 {
			return 0, fmt.Errorf("a record's value is no KeyValue of etcd: %w", protowire.ParseError(n))
		}
		value = value[n:]
		if field == fieldLease && kind == protowire.VarintType {
			v, n := protowire.ConsumeVarint(value)
			return int64(v), protowire.ParseError(min(n, 0))
		}
		if n = protowire.ConsumeFieldValue(field, kind, value); n < 0 {
			return 0, fmt.Errorf("a record's value is no KeyValue of etcd: %w", protowire.ParseError(n))
		}
		value = value[n:]
	}
	return 0, nil
}
