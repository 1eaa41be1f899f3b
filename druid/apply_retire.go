package druid

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/druid/plan"
	"github.com/etcd-druid/druid/internal/crash"
	"github.com/etcd-druid/druid/leases"
)

// changeSlot is what the step makes of the record as it was read just now: nil when that is not what the plan saw.
func (r *Reconciler) changeSlot(record leases.Record, step plan.Step) (*leases.Record, error) {
	mark, err := drawMark()
	if err != nil {
		return nil, err
	}
	changed, ok := step.ChangeSlot(record, mark)
	if !ok {
		return nil, nil
	}
	return &changed, nil
}

// drawMark names an order. Eight bytes are never drawn twice.
func drawMark() (string, error) {
	var mark [8]byte
	if _, err := rand.Read(mark[:]); err != nil {
		return "", fmt.Errorf("draw a mark: %w", err)
	}
	return hex.EncodeToString(mark[:]), nil
}

// tellSlot reports a record that was written.
func (r *Reconciler) reportSlot(o *observation, step plan.Step) {
	if step.Kind == plan.StrikeName {
		r.inform(o, v1alpha1.EventMemberRemoved, step, "Member %s is out of the cluster (%s)", step.Member, step.Rule)
	}
}

// retireLease asks the agents to remove the member, by a mark under the slot that the record has now.
func (r *Reconciler) retireLease(ctx context.Context, o *observation, step plan.Step) error {
	return r.writeMark(ctx, o, step, func(store *leases.Store, version leases.Version, step plan.Step) (leases.Member, error) {
		mark := leases.Retirement{State: leases.RetireRequested, Mark: step.Slot.Mark, At: r.now().UTC().Format(time.RFC3339)}
		defer crash.Around("retire-lease")()
		return store.Retire(ctx, step.Member, version, mark)
	})
}

// unretireLease takes a mark away, unless the Lease changed since the live read: an agent may have claimed the removal.
func (r *Reconciler) unretireLease(ctx context.Context, o *observation, step plan.Step) error {
	return r.writeMark(ctx, o, step, func(store *leases.Store, version leases.Version, step plan.Step) (leases.Member, error) {
		defer crash.Around("unretire-lease")()
		return store.Retire(ctx, step.Member, version, leases.Retirement{})
	})
}

// markWriter writes a mark over the Lease as it was at version.
type markWriter func(store *leases.Store, version leases.Version, step plan.Step) (leases.Member, error)

func (r *Reconciler) writeMark(ctx context.Context, o *observation, step plan.Step, write markWriter) error {
	store := leases.NewStore(r.leases.Leases(o.cluster.Namespace), o.cluster.Name)
	_, err := write(store, leases.Version(o.leases[step.Member].ResourceVersion), step)
	switch {
	case errors.Is(err, leases.ErrConflict):
		return apierrors.NewConflict(schema.GroupResource{Group: coordinationv1.GroupName, Resource: "leases"}, step.Member, err)
	case errors.Is(err, leases.ErrAbsent), errors.Is(err, leases.ErrUnreadable): // the next pass sees it
		return nil
	}
	return err
}
