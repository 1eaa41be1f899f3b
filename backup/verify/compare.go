package verify

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/backup/restore"
)

type comparison struct {
	db          *bolt.DB
	plan        catalog.Plan
	checkpoints []restore.Checkpoint
	contents    Contents
}

// judge compares with the newest checkpoint that can be compared. Its hash covers everything before it.
func (c comparison) judge(ctx context.Context) Result {
	r := Result{Verdict: Unknown, Reason: "everything was read and restored, but there is no checkpoint to compare with"}
	for i, point := range slices.Backward(c.checkpoints) {
		state, err := StateAt(ctx, c.db, point.Revision, point.CompactRevision)
		switch {
		case errors.Is(err, ErrCompacted), errors.Is(err, ErrEmpty):
			r.Reason = fmt.Sprintf("everything was read and restored, but cannot be compared: %v", err)
			continue
		case err != nil:
			r.Reason = fmt.Sprintf("everything was read and restored, but not compared: %v", err)
			return r
		}
		r = Result{Verdict: Verified, HashKV: state.HashKV, Keys: state.Keys, Checkpoint: reported(point)}
		if state.HashKV != point.HashKV {
			return c.blame(ctx, r, i)
		}
		if err := c.alongside(ctx, &r, point); err != nil && r.Verdict == Verified {
			r.Verdict, r.Reason = Unknown, fmt.Sprintf("everything was read and restored, but not compared: %v", err)
		}
		return r
	}
	return r
}

func reported(c restore.Checkpoint) *Checkpoint {
	return &Checkpoint{Object: c.Object, Revision: c.Revision, CompactRevision: c.CompactRevision, HashKV: c.HashKV, MemberID: c.MemberID, Alongside: c.Alongside}
}

// blame finds the oldest checkpoint that differs. The error came after the checkpoint before it.
func (c comparison) blame(ctx context.Context, r Result, differs int) Result {
	r.Verdict = Broken
	equal := -1
	for i, point := range c.checkpoints[:differs] {
		state, err := StateAt(ctx, c.db, point.Revision, point.CompactRevision)
		if err != nil {
			continue // it reports nothing
		}
		if state.HashKV != point.HashKV {
			r.Checkpoint, r.HashKV, r.Keys = reported(point), state.HashKV, state.Keys
			break
		}
		equal = i
	}
	r.Suspects = c.between(equal, r.Checkpoint.Object)
	r.Object = r.Suspects[0]
	var keys string
	if theirs := r.Checkpoint.Keys; theirs != nil && *theirs != r.Keys {
		keys = fmt.Sprintf(", with %d keys instead of %d", r.Keys, *theirs)
	}
	r.Reason = fmt.Sprintf("at revision %d the backup has HashKV %d, and member %x had %d%s; the invalid object is %s",
		r.Checkpoint.Revision, r.HashKV, r.Checkpoint.MemberID, r.Checkpoint.HashKV, keys, r.Object)
	if n := len(r.Suspects); n > 1 {
		r.Reason += fmt.Sprintf(", or one of the %d that follow up to %s", n-1, r.Suspects[n-1])
	}
	return r
}

// between returns the objects that follow the delta backup of a checkpoint, up to the object called last. If equal is
// negative, it returns all of them.
func (c comparison) between(equal int, last string) []string {
	var keys []string
	if equal < 0 {
		keys = append(keys, c.plan.Full.Key)
	}
	begun := equal < 0
	for _, d := range c.plan.Deltas {
		if begun {
			keys = append(keys, d.Key)
		}
		if d.Key == last {
			break
		}
		begun = begun || d.Key == c.checkpoints[equal].Object
	}
	return keys
}

// alongside compares what the hash of a checkpoint does not cover, as far as possible. For keys, etcd reports their
// number at a revision. Leases and users have no revisions and are restored as of the full backup. The result lists
// what could not be compared.
func (c comparison) alongside(ctx context.Context, r *Result, point restore.Checkpoint) error {
	r.Compared = append(r.Compared, "hashKV")
	c.compareKeys(r, point)
	c.compareAuth(r, point)
	return c.compareLeases(ctx, r, point)
}

func (c comparison) compareKeys(r *Result, point restore.Checkpoint) {
	switch {
	case point.Keys == nil:
		r.NotCompared = append(r.NotCompared, "keys: the checkpoint does not report their number")
	case *point.Keys == r.Keys:
		r.Compared = append(r.Compared, "keys")
	default:
		c.contradicted(r, point.Object, fmt.Sprintf("at revision %d the backup has %d keys, and member %x had %d", point.Revision, r.Keys,
			point.MemberID, *point.Keys))
	}
}

// compareAuth compares users and roles. A change of users and roles, or disabling them, raises their revision.
// Enabling them does not.
func (c comparison) compareAuth(r *Result, point restore.Checkpoint) {
	ours, theirs := c.contents, point.Auth
	switch {
	case theirs == nil:
		r.NotCompared = append(r.NotCompared, "users and roles: the checkpoint does not report them")
	case ours.AuthRevision < theirs.Revision:
		r.NotCompared = append(r.NotCompared, fmt.Sprintf("users and roles: they are restored as of the full backup, at change %d, and were at change %d later",
			ours.AuthRevision, theirs.Revision))
	case ours.AuthRevision > theirs.Revision:
		c.contradicted(r, c.plan.Full.Key, fmt.Sprintf("the full backup has users and roles as of change %d, and later member %x had them as of change %d",
			ours.AuthRevision, point.MemberID, theirs.Revision))
	case ours.AuthEnabled && !theirs.Enabled:
		c.contradicted(r, c.plan.Full.Key, fmt.Sprintf("the full backup has users enabled, and member %x had them disabled at the same change %d",
			point.MemberID, theirs.Revision))
	case !ours.AuthEnabled && theirs.Enabled:
		r.NotCompared = append(r.NotCompared, "users and roles: they were enabled after the full backup, which has them disabled")
	default:
		r.Compared = append(r.Compared, "users and roles")
	}
}

// compareLeases compares the leases of keys. A key that is restored as it was at the checkpoint, with a lease that
// etcd had then, must have that lease. For other leases it is unknown whether they were granted after the full backup
// or have ended since.
func (c comparison) compareLeases(ctx context.Context, r *Result, point restore.Checkpoint) error {
	if point.Alive == nil {
		r.NotCompared = append(r.NotCompared, "leases: the checkpoint does not report them")
		return nil
	}
	lost, err := lostLeases(ctx, c.db, point.Revision, point.Alive)
	if err != nil {
		return err
	}
	if len(lost) > 0 {
		c.contradicted(r, c.plan.Full.Key, fmt.Sprintf(
			"the backup has keys with lease %x but not the lease, which member %x had (%d such leases); an etcd on it would end",
			lost[0], point.MemberID, len(lost)))
		return nil
	}
	r.Compared = append(r.Compared, "leases of keys")
	if reported := int64(len(point.Alive)); reported != c.contents.Leases {
		r.NotCompared = append(r.NotCompared, fmt.Sprintf("leases without keys: %d leases are restored, and there were %d at the checkpoint",
			c.contents.Leases, reported))
	}
	return nil
}

// contradicted reports a contradiction. The hash is equal, so the records of the delta backups are intact. Users and
// leases are in the full backup, but the delta backup with the checkpoint can also report something wrong.
func (c comparison) contradicted(r *Result, object, reason string) {
	r.Verdict = Broken
	if r.Object == "" {
		r.Object = cmp.Or(object, c.plan.Full.Key)
		r.Suspects = []string{r.Object}
		reason += "; the invalid object is " + r.Object
		if reported := r.Checkpoint.Object; reported != "" && reported != r.Object {
			r.Suspects = append(r.Suspects, reported)
			reason += ", or " + reported
		}
	}
	if r.Reason != "" {
		reason = r.Reason + "; " + reason
	}
	r.Reason = reason
}

// lostLeases returns the leases in alive that the database does not have, but that a key refers to whose last change
// is at or before revision. It keeps one entry in memory for each such key.
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

// leaseOf reads the lease out of a KeyValue message, 0 for none.
func leaseOf(value []byte) (lease int64, err error) {
	for len(value) > 0 {
		field, kind, n := protowire.ConsumeTag(value)
		if n < 0 {
			return 0, fmt.Errorf("the value of a record is not a KeyValue message of etcd: %w", protowire.ParseError(n))
		}
		value = value[n:]
		if field == fieldLease && kind == protowire.VarintType {
			v, n := protowire.ConsumeVarint(value)
			return int64(v), protowire.ParseError(min(n, 0))
		}
		if n = protowire.ConsumeFieldValue(field, kind, value); n < 0 {
			return 0, fmt.Errorf("the value of a record is not a KeyValue message of etcd: %w", protowire.ParseError(n))
		}
		value = value[n:]
	}
	return 0, nil
}

// Contents is what a database has in addition to its keys. etcd reports no revision for leases and users: they are as
// of the full backup. Leases also include those that later keys refer to.
type Contents struct {
	Leases int64 `json:"leases"`
	// AuthEnabled says that clients need a user. AuthRevision counts changes of users and roles.
	AuthEnabled  bool   `json:"authEnabled"`
	AuthRevision uint64 `json:"authRevision"`
}

func contentsOf(db *bolt.DB) (c Contents, err error) {
	err = db.View(func(tx *bolt.Tx) error {
		if leases := tx.Bucket(schema.Lease.Name()); leases != nil {
			cursor := leases.Cursor()
			for k, _ := cursor.First(); k != nil; k, _ = cursor.Next() {
				c.Leases++
			}
		}
		auth := tx.Bucket(schema.Auth.Name())
		if auth == nil {
			return nil
		}
		c.AuthEnabled = bytes.Equal(auth.Get(schema.AuthEnabledKeyName), []byte{1})
		if v := auth.Get(schema.AuthRevisionKeyName); len(v) == 8 {
			c.AuthRevision = binary.BigEndian.Uint64(v)
		}
		return nil
	})
	return c, err
}
