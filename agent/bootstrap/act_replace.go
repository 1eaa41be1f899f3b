package bootstrap

import (
	"context"
	"errors"
	"fmt"

	"github.com/etcd-druid/druid/internal/crash"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

// replaceSelf takes the slot, which reports a successor of ours what is to be removed, moves the data aside and removes
// exactly the ID that was seen. The next look then joins. The slot is given back once we vote.
func (b *Bootstrapper) replaceSelf(ctx context.Context, o *observation) error {
	id := leases.FormatID(o.entry.ID)
	record := o.record.record
	want := leases.Replacing{Member: b.cfg.Member, PodUID: b.cfg.PodUID, MemberID: id}
	if record.Replacing == nil || *record.Replacing != want {
		record.Replacing = &want
		crash.Before("take-slot")
		version, err := b.store.UpdateRecord(ctx, o.record.version, record)
		crash.After("take-slot")
		if errors.Is(err, leases.ErrConflict) {
			return nil // look again: someone else wrote
		}
		if err != nil {
			return fmt.Errorf("take the slot to replace member %s: %w", id, err)
		}
		o.record.version, o.record.record = version, record
	}
	reason := o.Data.String()
	if o.Data == Intact {
		reason = "other-id"
	}
	if err := b.moveAside(ctx, o, reason); err != nil {
		return err
	}
	return b.removeOwn(ctx, o)
}

// removeOwn removes exactly the ID under which a quorum lists us.
func (b *Bootstrapper) removeOwn(ctx context.Context, o *observation) error {
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	client, err := b.dial(ctx, o.view.Endpoint)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	crash.Before("remove-self")
	err = membership.Remove(ctx, client, o.entry.ID)
	crash.After("remove-self")
	if err != nil && !errors.Is(err, membership.ErrNotFound) {
		return err
	}
	b.joining = joining{}
	b.log.InfoContext(ctx, "member removed", "memberID", leases.FormatID(o.entry.ID), "member", b.cfg.Member)
	return nil
}
