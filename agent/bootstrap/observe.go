package bootstrap

import (
	"context"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/etcd-druid/druid/agent/datadir"
	"github.com/etcd-druid/druid/agent/launch"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

// observation is what the facts were made from, for the acts and for the words of a reason.
type observation struct {
	Facts
	volume volumeState
	own    ownLease
	record recordState
	// view is the list in which entry was found, if Listed says that it was.
	view  membership.View
	entry membership.Member
	// fresh: the own Lease was read for this observation and not remembered.
	fresh bool
	// bootstraps is what the stores report, where they were asked.
	bootstraps bootstraps
	// source is what was found of the cluster that is to be joined, where that was asked, and adoption what follows.
	source   AdoptionFacts
	adoption adoption
	// details are the words on facts that stand in the way, by fact.
	details map[string]string
}

func (o *observation) note(fact, detail string) {
	if detail != "" {
		o.details[fact] = detail
	}
}

// noteOf are the words that belong to a rule's reason.
var noteOf = map[string]string{
	"superseded": "lease", "lease-unread": "lease", "retired": "lease", "volume-unread": "data", "foreign-data": "data",
	"newer-schema": "data", "record-unread": "record", "record-absent": "record", "await-quorum": "listed",
	"needs-unmet": "needs", "evidence-unknown": "evidence", "formed-before": "evidence", "peer-answers": "peers",
	"slot-taken": "slot", "await-drain": "slot", "confirming": "listed", "store-unreachable": "backup",
	"source-other": "source", "source-silent": "source", "source-unfit": "source", "source-ailing": "source", "adoption-needs": "source needs",
	"backup-present": "backup", "backup-unusable": "backup", "nothing-to-restore": "backup",
}

// reason is the decision's reason with what was observed.
func (o *observation) reason(d Decision) string {
	if detail := o.details[noteOf[d.Rule]]; detail != "" {
		return d.Reason + ": " + strings.ReplaceAll(detail, "\n", "; ")
	}
	return d.Reason
}

// observe looks at everything that the decision needs; what need not be asked stays unknown. It changes nothing. fresh
// makes it read our own Lease again.
func (b *Bootstrapper) observe(ctx context.Context, report launch.Report, fresh bool) observation {
	var o observation
	var group errgroup.Group
	group.Go(func() error { o.volume = b.inspect(ctx, report); return nil })
	group.Go(func() error { o.record = b.readRecord(ctx); return nil })
	group.Go(func() error { o.own, o.fresh = b.readLease(ctx, fresh); return nil })
	_ = group.Wait() // each keeps its error as a fact

	o.Facts, o.details = classify(b.cfg, o.volume, o.own, o.record)
	b.heard.hear(o.own, o.record)
	b.heard.against(b.cfg, o.volume, &o.Facts, o.note)
	b.observeListing(ctx, &o)
	if o.Record&isForming != 0 && o.Place == Seed {
		b.observeEvidence(ctx, &o)
	}
	if o.Listed != NoQuorum && o.Record == Formed && o.Lease == Fresh {
		b.observeNeeds(ctx, &o)
	}
	if Decide(o.Facts).Mode == ModeNew {
		b.observeBackup(ctx, &o)
	}
	if b.cfg.Join != "" && Decide(o.Facts).Mode == ModeNew {
		b.observeSource(ctx, &o)
	}
	return o
}

// inspect looks at the volume once per state of it: no one but us changes it while launch holds its lock.
func (b *Bootstrapper) inspect(ctx context.Context, report launch.Report) volumeState {
	if b.inspects != nil {
		return *b.inspects
	}
	var v volumeState
	v.report, v.err = datadir.Inspect(ctx, b.cfg.VolumePath, datadir.Options{
		EtcdVersion: b.cfg.EtcdVersion,
		Full:        !report.Clean || report.Crashes > 1,
	})
	v.stamp, v.stampErr = datadir.ReadStamp(b.cfg.VolumePath)
	if v.err == nil {
		b.inspects = &v
		b.log.InfoContext(ctx, "volume inspected", "data", v.report.String(), "full", v.report.Full, "took", v.report.Took)
	}
	return v
}

// readRecord reads the cluster record.
func (b *Bootstrapper) readRecord(ctx context.Context) (r recordState) {
	ctx, cancel := context.WithTimeout(ctx, kubernetesTimeout)
	defer cancel()
	r.record, r.version, r.err = b.store.Record(ctx)
	if r.err == nil {
		b.record = &r
	}
	return r
}

// readLease reads our own Lease, or remembers it: while we only wait, two reads per look would double the cost.
func (b *Bootstrapper) readLease(ctx context.Context, fresh bool) (own ownLease, read bool) {
	if !fresh && b.lease.err == nil && !b.leaseAt.IsZero() && time.Since(b.leaseAt) < leaseAge {
		return b.lease, false
	}
	ctx, cancel := context.WithTimeout(ctx, kubernetesTimeout)
	defer cancel()
	own.member, own.err = b.store.Member(ctx, b.cfg.Member)
	b.lease, b.leaseAt = own, time.Now()
	return own, true
}

// knownRecord is the newest record that could be read: good enough to know whom to ask, never to decide by.
func (b *Bootstrapper) knownRecord(o *observation) (leases.Record, bool) {
	switch {
	case o.record.err == nil:
		return o.record.record, true
	case b.record != nil:
		return b.record.record, true
	default:
		return leases.Record{}, false
	}
}
