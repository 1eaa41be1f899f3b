package start

import (
	"context"
	"slices"
	"strings"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/agent/datadir"
	"github.com/etcd-druid/druid/agent/datadir/volume"
	"github.com/etcd-druid/druid/agent/launch"
	"github.com/etcd-druid/druid/leases"
)

// failingAfter is how many times in a row etcd must end soon after its start before its data counts as failing. A wrong
// limit of memory ends every etcd, so this says nothing about the data.
const failingAfter = 5

// failing reports whether etcd ended repeatedly within seconds of its start.
func failing(report launch.Report) bool {
	return report.Crashes >= failingAfter && report.LastExit != nil && report.LastExit.RanFor <= soonAfter
}

// reportDisk passes on what the volume holds, while etcd does not run on it.
func (b *Bootstrapper) reportDisk(ctx context.Context, report launch.Report, o *observation) {
	if disk := b.describe(ctx, report, o); disk != nil {
		b.held(disk)
	}
}

// describe returns what the volume holds, nil if it is not known. It reads the database and the log once for each
// inspection of the volume.
func (b *Bootstrapper) describe(ctx context.Context, report launch.Report, o *observation) *leases.DiskReport {
	if b.inspects == nil || o.own.err != nil || o.own.member.PodUID != b.cfg.PodUID {
		return nil // whose volume this is, is not known
	}
	if b.holding == nil {
		h := &datadir.Holding{}
		if r := b.inspects.report; r.DB != "" && (r.State != datadir.Corrupt || r.Whole) {
			read, err := datadir.ReadHolding(ctx, b.cfg.VolumePath, r)
			if err != nil {
				if text := err.Error(); text != b.failed && ctx.Err() == nil {
					b.failed = text
					b.log.WarnContext(ctx, "disk report not made, retrying", "err", err)
				}
				return nil
			}
			h = &read
		}
		b.holding = h
	}
	disk, known := reportOf(b.cfg, *b.inspects, o.Data, *b.holding, failing(report), o.own.member)
	if !known {
		return nil
	}
	if free, err := volume.Free(b.cfg.VolumePath); err == nil { // otherwise it stays 0, which stands for unknown
		disk.Free = max(1, free+b.reclaimable(o))
	}
	if disk.State != leases.DiskForeign && disk.State != leases.DiskNewer { // such data is not acknowledged
		disk.Order, disk.Failed = b.acknowledged, b.failureIn(b.acknowledged)
	}
	return &disk
}

// diskStates are the states of a disk by what the data means for a start. Data that could not be read has none.
var diskStates = map[Data]leases.DiskState{
	Differing: leases.DiskIntact, // for raft it is; druid reads the mark on the Lease
	Empty:     leases.DiskEmpty, Intact: leases.DiskIntact, Stale: leases.DiskStale, Corrupt: leases.DiskCorrupt, Foreign: leases.DiskForeign,
	Newer: leases.DiskNewer,
}

// reportOf describes a volume in the words of the member Lease. own is the member Lease, which names this Pod.
func reportOf(cfg config.Config, v volumeState, data Data, h datadir.Holding, failing bool, own leases.Member) (leases.DiskReport, bool) {
	state, known := diskStates[data]
	c := leases.DiskReport{Pod: cfg.PodUID, Volume: own.VolumeUID, State: state, Orders: true}
	switch {
	case !known:
		return c, false
	case state == leases.DiskIntact && failing:
		c.State = leases.DiskFailing
	case state == leases.DiskCorrupt:
		c.Kind = string(v.report.Kind)
	case state == leases.DiskEmpty, state == leases.DiskForeign:
		return c, true // nothing of it is of this cluster
	}
	r, identity := v.report, v.identityFile
	c.WholeDB, c.Size, c.Revision, c.Tail = r.Whole, r.DBSize, h.Revision, h.Tail
	c.Cluster, c.Member = leases.FormatID(uint64(identity.ClusterID)), leases.FormatID(uint64(identity.MemberID))
	c.Epoch, c.Lineage, c.Prepared = identity.Epoch, identity.Lineage, identity.Prepared
	c.LastTerm, c.Last, c.Commit, c.Applied = r.Last.Term, r.Last.Index, r.Commit, r.ConsistentIndex
	c.Voters, c.Uncommitted = joined(h.Voters), joined(h.Uncommitted)
	c.Corrupt = joined(slices.DeleteFunc(h.Corrupt, func(id uint64) bool {
		return id != 0 && id != uint64(identity.MemberID) && !slices.Contains(h.Voters, id) // a client can raise an alarm for any ID
	}))
	return c, true
}

// joined are IDs as the member Lease has them.
func joined(ids []uint64) string {
	words := make([]string, len(ids))
	for i, id := range ids {
		words[i] = leases.FormatID(id)
	}
	return strings.Join(words, ",")
}
