package backups

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/etcd-druid/druid/backup/chain"
	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/leases"
)

// deleteTimeout bounds the order to delete one full, from its first beginning: anyone who deletes an EtcdSnapshot waits for it.
const deleteTimeout = 5 * time.Minute

// refusal is final: the same will be said as long as no one changes anything.
type refusal struct{ error }

func refuse(format string, args ...any) error { return refusal{fmt.Errorf(format, args...)} }

// delete the full that an order names, once nothing else needs it. What keeps it from being tried is waited for until ctx
// ends, or the order is taken back; what refuses it is final.
func (d *Duty) delete(ctx context.Context, order leases.SnapshotOrder, target leases.SnapshotTarget) (Artifact, error) {
	tries := attempts{pace: d.readPace}
	for {
		var err error
		s, changed := d.at()
		switch {
		case s == nil:
			err = ErrIdle
		case !s.sound.Load():
			err = errors.New("what the store holds is not known for certain now, as the Leases of the backups report")
		default:
			done := make(chan Artifact, 1) // a pass that hangs may end when no one waits for it any more
			err = d.pass(ctx, func(ctx context.Context) error {
				deleted, err := s.delete(ctx, order, target.URI)
				done <- deleted
				return err
			})
			if err == nil {
				return <-done, nil
			}
		}
		var final refusal
		if errors.As(err, &final) || ctx.Err() != nil {
			return Artifact{}, err
		}
		if tries.failed(time.Now()); tries.failures == 1 {
			d.Log.WarnContext(ctx, "deletion of a backup hindered", "uri", target.URI, "err", err)
		}
		await(ctx, changed, time.Until(tries.next))
		if ctx.Err() != nil {
			return Artifact{}, err
		}
	}
}

// delete one full by what a listing of just now shows. One that is gone already is deleted.
func (s *session) delete(ctx context.Context, order leases.SnapshotOrder, uri string) (a Artifact, err error) {
	key, err := s.fullAt(uri)
	if err != nil {
		return Artifact{}, err
	}
	a = Artifact{Kind: kindFull, Key: key, URI: uri}
	t, err := s.begins(ctx)
	if errors.Is(err, errCorrupt) {
		return a, refusal{err}
	}
	if err != nil {
		return a, err
	}
	defer func() { err = errors.Join(err, t.client.Close()) }()
	catalog, evidence, err := s.survey(ctx)
	if err != nil {
		return a, err
	}
	full, found := find(catalog, key)
	if !found {
		s.log.InfoContext(ctx, "backup to delete was gone", "object", key)
		return a, nil
	}
	if reason, needed := catalog.Needed(s.self.Lineage, key, evidence); needed {
		return a, refuse("other backups or a restore may need it (%s): retention deletes it once spec.backup.retention does not keep it; "+
			"to have it gone earlier, delete it in the store", reason.Words())
	}
	if err := t.lasts(ctx); errors.Is(err, errCorrupt) {
		return a, refusal{err}
	} else if err != nil {
		return a, err
	}
	if err := s.stands(ctx, order); err != nil {
		return a, err
	}
	a.Revision, a.Size = full.Revision, full.Size
	err = s.drop(ctx, chain.Verdict{Lineage: full.Lineage, Key: key, At: full.At, Size: full.Size, Reason: reasonOrdered})
	if errors.Is(err, store.ErrLocked) {
		return a, refuse("%w: retention deletes it once it is unlocked and spec.backup.retention does not keep it", err)
	}
	return a, err
}

// stands says, by an error, that an order was taken back: anyone who keeps the backup after all must not lose it to an attempt that waited.
func (s *session) stands(ctx context.Context, order leases.SnapshotOrder) error {
	now, err := s.Leases.SnapshotOrder(ctx, leases.ComponentFullSnapshot)
	if err != nil {
		return fmt.Errorf("whether the deletion is still ordered: %w", err)
	}
	if now.UID != order.UID || now.Kind != order.Kind {
		return refuse("the order was taken back")
	}
	return nil
}

// reasonOrdered is why a full goes that retention would keep.
const reasonOrdered chain.Reason = "ordered"

// fullAt is the key of the full at a URI, if that is in our place.
func (s *session) fullAt(uri string) (string, error) {
	place := s.orders.uri(s.config.Prefix) + "/"
	name, ours := strings.CutPrefix(uri, place)
	if !ours {
		return "", refuse("it is not below %s, where this cluster is backed up to now: delete it there", place)
	}
	key := s.config.Prefix + "/" + name
	if _, ok := chain.ParseFull(s.config.Prefix, key); !ok {
		return "", refuse("it is no full backup of this cluster: only these are deleted by order")
	}
	return key, nil
}

func find(c chain.Catalog, key string) (chain.Full, bool) {
	for _, h := range c.Histories {
		for _, f := range h.Fulls {
			if f.Key == key {
				return f, true
			}
		}
	}
	return chain.Full{}, false
}
