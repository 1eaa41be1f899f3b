package start

import (
	"context"
	"errors"
	"fmt"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/agent/datadir"
	"github.com/etcd-druid/druid/agent/launch"
	"github.com/etcd-druid/druid/internal/crash"
	"github.com/etcd-druid/druid/leases"
)

// A recovery order goes through two stages, see leases.Recovery. In the first, the agent writes the epoch of the order to
// the identity file, and then acknowledges the order in its disk report. In the second, the selected agent builds the data of the
// new raft group next to the old data. It moves nothing before the cluster record is Formed by that data. So an order that
// is released or replaced leaves the old data as it was.

// observeOrder finds the part of this member in a recovery order.
func (b *Bootstrapper) observeOrder(ctx context.Context, report launch.Report, o *observation) {
	if o.record.err == nil && o.record.record.Order() == nil {
		b.acknowledged = ""
	}
	o.Order = orderOf(b.cfg, o.volume, o.own, o.record, b.acknowledged, func() *leases.DiskReport {
		o.report = b.describe(ctx, report, o)
		return o.report
	})
}

// orderOf is the part of the member in the recovery order of the record. acknowledged is the name of the order that this
// process acknowledged. report describes the volume, and returns nil if that is not known.
func orderOf(cfg config.Config, v volumeState, own ownLease, r recordState, acknowledged string, report func() *leases.DiskReport) Order {
	order := r.record.Order()
	switch {
	case r.err != nil:
		return NoOrder
	case order == nil && placeable(cfg, v, own, r.record):
		return OrderPlace
	case order == nil, !concerns(*order, v, own):
		return NoOrder
	case acknowledged != order.Name():
		return OrderPrepare
	default:
		return partIn(*order, cfg.Member, report())
	}
}

// concerns says whether an order is later than everything that this member knows. A record that was rolled back can name an
// order of the past.
func concerns(order leases.Recovery, v volumeState, own ownLease) bool {
	if own.err == nil && own.member.Epoch >= order.Epoch {
		return false
	}
	return v.identityFileErr != nil || v.identityFile.Epoch < order.Epoch && v.identityFile.Prepared <= order.Epoch
}

// partIn is the part of the member called name in an order that its disk report acknowledges. The report is nil if it is not known.
func partIn(order leases.Recovery, name string, report *leases.DiskReport) Order {
	if order.Stage == leases.StageExecute && order.Chosen == name && report != nil && report.Order == order.Name() && report.Digest() == order.Report {
		return OrderForm
	}
	return OrderWait
}

// placeable says whether the volume has the built data of the raft group that the record names. A record that druid made again has no
// lineage: only a member that runs has it, and no member runs before the data is in place. The cluster ID is that of the attempt. A record
// that druid made again can even name the raft group before. Then the identity file shows that the agent began to put the data in place.
func placeable(cfg config.Config, v volumeState, own ownLease, r leases.Record) bool {
	built, id := v.built, v.identityFile
	named := uint64(built.ClusterID) == r.ClusterID && (built.Lineage == r.Lineage || r.Lineage == "")
	begun := v.identityFileErr == nil && id.ClusterID == built.ClusterID && id.Lineage == built.Lineage && built.Epoch > max(r.FormedEpoch, r.Released)
	return own.err == nil && built.Cluster == cfg.ClusterUID && built.Member == cfg.Member && built.VolumeUID == own.member.VolumeUID &&
		r.Phase == leases.PhaseFormed && built.ClusterID != 0 && (named || begun)
}

// prepare writes the order to the volume. Then the disk report acknowledges the order. An empty volume has nothing
// on which an etcd could start, so nothing is written to it.
func (b *Bootstrapper) prepare(ctx context.Context, o *observation) error {
	order := *o.record.record.Order()
	if v := o.volume; v.report.State != datadir.Empty && v.identityFileErr == nil && v.identityFile.Prepared < order.Epoch {
		v.identityFile.Prepared = order.Epoch
		crash.Before("identity-file-prepared")
		err := datadir.WriteIdentityFile(b.cfg.VolumePath, v.identityFile)
		crash.After("identity-file-prepared")
		if err != nil {
			return err
		}
	}
	b.acknowledged, b.withdrawn = order.Name(), false
	b.forgetVolume() // it is inspected completely now
	b.log.InfoContext(ctx, "recovery order acknowledged", "order", order.Name(), "chosen", order.Chosen)
	return nil
}

// unprepare removes an order from the volume before etcd starts. Otherwise a record that lost the release would prevent the
// next start. The member Lease does not acknowledge the order any more, see withdraw.
func (b *Bootstrapper) unprepare(ctx context.Context, identityFile *datadir.IdentityFile) error {
	identityFile.Prepared = 0
	crash.Before("identity-file-released")
	err := datadir.WriteIdentityFile(b.cfg.VolumePath, *identityFile)
	crash.After("identity-file-released")
	if err == nil {
		b.log.InfoContext(ctx, "recovery order no longer in effect for this volume")
	}
	return err
}

// withdraw removes the disk report from the member Lease, and with it the acknowledgement of an order. druid counts a member that
// acknowledges as one that cannot serve, so the acknowledgement must end before the fence. It patches a Lease without a disk report
// too, which changes nothing: a renewal can have removed the disk report a moment before. If another write came first, it withdraws nothing.
// druid can choose a member by the acknowledgement until then. So the caller observes the record and the member list again before etcd
// starts.
func (b *Bootstrapper) withdraw(ctx context.Context) error {
	b.acknowledged = ""
	b.held(nil) // what is written later must not be the old report
	ctx, cancel := context.WithTimeout(ctx, kubernetesTimeout)
	defer cancel()
	lease, err := b.store.Marks(ctx, b.cfg.Member)
	switch {
	case err != nil:
		return fmt.Errorf("withdraw the acknowledgement of a recovery order: %w", err)
	case lease.PodUID != b.cfg.PodUID:
		return fmt.Errorf("withdraw the acknowledgement of a recovery order: the member Lease names the Pod with UID %q, and this Pod has UID %s",
			lease.PodUID, b.cfg.PodUID)
	}
	crash.Before("withdraw-disk-report")
	_, err = b.store.PublishDiskReport(ctx, b.cfg.Member, lease.LeaseVersion, nil)
	crash.After("withdraw-disk-report")
	if errors.Is(err, leases.ErrConflict) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("withdraw the acknowledgement of a recovery order: %w", err)
	}
	b.withdrawn = true
	b.log.InfoContext(ctx, "disk report withdrawn before etcd starts")
	return nil
}
