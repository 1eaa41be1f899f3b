package start

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/etcd-druid/druid/agent/datadir"
	"github.com/etcd-druid/druid/agent/launch"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

// observation is the input of the facts. The steps and the reasons use it too.
type observation struct {
	Facts
	volume volumeState
	own    ownLease
	record recordState
	// view is the member list that contains entry, if Listed says that there is one.
	view  membership.View
	entry membership.Member
	// fresh: the own Lease was read for this observation and not remembered.
	fresh bool
	// storeAnswer is what the stores answered, where they were asked.
	storeAnswer storeAnswer
	// source is what is known of the cluster to join, if it was queried. adoption is the decision about it.
	source   AdoptionFacts
	adoption adoption
	// claim is what the volume holds, if a recovery order stands and it is known.
	report *leases.DiskReport
	// unchecked: the next etcd starts without its initial check.
	unchecked bool
	// details explains the facts that block a start, by fact.
	details map[string]string
}

func (o *observation) note(fact, detail string) {
	if detail != "" {
		o.details[fact] = detail
	}
}

// reason returns the decision's reason with the explanation from the observation.
func (o *observation) reason(d Decision) string {
	if detail := o.details[d.Detail]; detail != "" {
		return d.Reason + ": " + strings.ReplaceAll(detail, "\n", "; ")
	}
	return d.Reason
}

// observe reads everything that the decision needs and changes nothing. What it need not read stays unknown. fresh
// makes it read the member Lease again.
func (b *Bootstrapper) observe(ctx context.Context, report launch.Report, fresh bool) observation {
	var o observation
	var group errgroup.Group
	group.Go(func() error { o.volume = b.inspect(ctx, report); return nil })
	group.Go(func() error { o.record = b.readRecord(ctx); return nil })
	group.Go(func() error { o.own, o.fresh = b.readLease(ctx, fresh); return nil })
	_ = group.Wait() // each keeps its error as a fact

	o.Facts, o.details = classify(b.cfg, o.volume, o.own, o.record)
	b.lastKnown.hear(o.own, o.record)
	b.lastKnown.against(b.cfg, o.volume, &o.Facts, o.note)
	b.observeListing(ctx, &o)
	o.unchecked = startsUnchecked(report, o.Listed)
	b.observeOrder(ctx, report, &o)
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

// inspect inspects the volume once for each state. While launch holds the lock, only this agent changes the volume.
func (b *Bootstrapper) inspect(ctx context.Context, report launch.Report) volumeState {
	if b.inspects != nil {
		return *b.inspects
	}
	var v volumeState
	v.report, v.err = datadir.Inspect(ctx, b.cfg.VolumePath, datadir.Options{
		EtcdVersion: b.cfg.EtcdVersion,
		Full:        !report.Clean || report.Crashes > 1 || b.acknowledged != "",
	})
	v.identityFile, v.identityFileErr = datadir.ReadIdentityFile(b.cfg.VolumePath)
	if built, err := datadir.ReadBuilt(b.cfg.VolumePath); err == nil {
		v.built = built // otherwise there is nothing that could be placed
	} else if !errors.Is(err, datadir.ErrNoIdentityFile) && !errors.Is(err, datadir.ErrBadIdentityFile) {
		v.err = errors.Join(v.err, err)
	}
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

// readLease reads the member Lease or returns the remembered one. While the agent only waits, two reads per check
// would double the cost.
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

// knownRecord returns the newest record that could be read. Use it only to find members to query, never for a
// decision.
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

// observeEvidence looks for signs that the cluster was formed before: in the record, on this volume, in the Lease of
// every desired member and on the network.
func (b *Bootstrapper) observeEvidence(ctx context.Context, o *observation) {
	var detail string
	o.Evidence, detail = b.evidence(ctx, o)
	o.note("evidence", detail)
	if o.Evidence == NeverFormed {
		b.observePeers(ctx, o)
	}
}

func (b *Bootstrapper) evidence(ctx context.Context, o *observation) (fact Evidence, detail string) {
	record := o.record.record
	if record.FormedEpoch > 0 {
		return FormedBefore, fmt.Sprintf("the cluster record names the formed epoch %d", record.FormedEpoch)
	}
	if fact, detail := b.identityFileEvidence("this volume", o.volume.identityFile, o.volume.identityFileErr); fact != NeverFormed {
		return fact, detail
	}
	all, err := datadir.AllQuarantined(b.cfg.VolumePath)
	if err != nil {
		return EvidenceUnknown, err.Error()
	}
	for _, quarantined := range all {
		identityFile, err := datadir.ReadIdentityFile(filepath.Join(b.cfg.VolumePath, quarantined.Name))
		if fact, detail := b.identityFileEvidence(quarantined.Name, identityFile, err); fact != NeverFormed {
			return fact, detail
		}
	}
	return b.leaseEvidence(ctx, record)
}

// identityFileEvidence returns the evidence of the identity file in where. A missing file is no evidence. A file that
// is unreadable or from a later agent might belong to a formed cluster.
func (b *Bootstrapper) identityFileEvidence(where string, identityFile datadir.IdentityFile, err error) (fact Evidence, detail string) {
	switch {
	case errors.Is(err, datadir.ErrNoIdentityFile):
		return NeverFormed, ""
	case err != nil:
		return EvidenceUnknown, err.Error()
	case identityFile.Formed && identityFile.Cluster == b.cfg.ClusterUID:
		return FormedBefore, fmt.Sprintf("the identity file of %s names cluster %x", where, uint64(identityFile.ClusterID))
	default:
		return NeverFormed, ""
	}
}

// leaseEvidence reads the Lease of every desired member. If one cannot be read, the result is unknown.
func (b *Bootstrapper) leaseEvidence(ctx context.Context, record leases.Record) (fact Evidence, detail string) {
	ctx, cancel := context.WithTimeout(ctx, kubernetesTimeout)
	defer cancel()
	for _, name := range record.Members {
		member, err := b.store.Member(ctx, name)
		if err != nil {
			return EvidenceUnknown, err.Error()
		}
		if member.EverFormed() {
			return FormedBefore, fmt.Sprintf("member %s had ID %x in cluster %x", name, member.ID, member.ClusterID)
		}
	}
	return NeverFormed, ""
}

// observePeers dials the peer port of every address behind the peer Service except the own ones. It looks up the name
// of the Service instead of the member names: those might not be published yet, and DNS would cache that they are
// missing.
func (b *Bootstrapper) observePeers(ctx context.Context, o *observation) {
	ctx, cancel := context.WithTimeout(ctx, endpointTimeout)
	defer cancel()
	own, err := b.ownAddresses()
	if err != nil {
		o.Peers = Answering // not to be ruled out
		o.note("peers", membership.Brief(err))
		return
	}
	found, err := b.lookup(ctx, b.cfg.PeerService+"."+b.cfg.Namespace+".svc")
	if missing, ok := errors.AsType[*net.DNSError](err); ok && missing.IsNotFound {
		return // no members are published
	}
	if err != nil {
		o.Peers = Answering // not to be ruled out
		o.note("peers", membership.Brief(err))
		return
	}
	others := slices.DeleteFunc(found, func(address string) bool { return slices.Contains(own, address) })
	if listening := b.listening(ctx, others); len(listening) > 0 {
		o.Peers = Answering
		o.note("peers", listening[0])
	}
}

// listening returns those of hosts on which an etcd listens for peers, in their order. It asks all of them at once.
func (b *Bootstrapper) listening(ctx context.Context, hosts []string) []string {
	answers := make([]bool, len(hosts))
	var group errgroup.Group
	for i, host := range hosts {
		group.Go(func() error {
			answers[i] = b.transport.Reach(ctx, net.JoinHostPort(host, strconv.Itoa(b.cfg.PeerPort))) == nil
			return nil
		})
	}
	_ = group.Wait() // silence is an answer here
	var listening []string
	for i, host := range hosts {
		if answers[i] {
			listening = append(listening, host)
		}
	}
	return listening
}

// ownAddresses returns the addresses of this Pod.
func (b *Bootstrapper) ownAddresses() ([]string, error) {
	addresses, err := b.addresses()
	if err != nil {
		return nil, fmt.Errorf("list the addresses of this Pod: %w", err)
	}
	var own []string
	for _, a := range addresses {
		if ip, ok := a.(*net.IPNet); ok {
			own = append(own, ip.IP.String())
		}
	}
	return own, nil
}
