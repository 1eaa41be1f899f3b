package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sync/errgroup"

	"github.com/etcd-druid/druid/agent/datadir"
	"github.com/etcd-druid/druid/leases"
)

// observeEvidence asks whether the cluster ever formed before: of the record, of this volume, of every desired member's
// Lease, and of the network.
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
		return FormedBefore, fmt.Sprintf("the record names the formed epoch %d", record.FormedEpoch)
	}
	if fact, detail := b.stampEvidence("this volume", o.volume.stamp, o.volume.stampErr); fact != NeverFormed {
		return fact, detail
	}
	asides, err := datadir.Asides(b.cfg.VolumePath)
	if err != nil {
		return EvidenceUnknown, err.Error()
	}
	for _, aside := range asides {
		stamp, err := datadir.ReadStamp(filepath.Join(b.cfg.VolumePath, aside.Name))
		if fact, detail := b.stampEvidence(aside.Name, stamp, err); fact != NeverFormed {
			return fact, detail
		}
	}
	return b.leaseEvidence(ctx, record)
}

// stampEvidence is what the stamp of where reports. That there is none reports nothing; one that cannot be read, or is of a
// later agent, may be of a cluster that was formed.
func (b *Bootstrapper) stampEvidence(where string, stamp datadir.Stamp, err error) (fact Evidence, detail string) {
	switch {
	case errors.Is(err, datadir.ErrNoStamp):
		return NeverFormed, ""
	case err != nil:
		return EvidenceUnknown, err.Error()
	case stamp.Formed && stamp.Cluster == b.cfg.ClusterUID:
		return FormedBefore, fmt.Sprintf("%s was stamped for cluster %x", where, uint64(stamp.ClusterID))
	default:
		return NeverFormed, ""
	}
}

// leaseEvidence reads every desired member's Lease; one that cannot be read leaves the question open.
func (b *Bootstrapper) leaseEvidence(ctx context.Context, record leases.Record) (fact Evidence, detail string) {
	ctx, cancel := context.WithTimeout(ctx, kubernetesTimeout)
	defer cancel()
	for _, name := range record.Members {
		member, err := b.store.Member(ctx, name)
		if err != nil {
			return EvidenceUnknown, err.Error()
		}
		if member.EverFormed() {
			return FormedBefore, fmt.Sprintf("member %s once was %x in cluster %x", name, member.ID, member.ClusterID)
		}
	}
	return NeverFormed, ""
}

// observePeers tries the peer port of every address behind the peer Service but our own. The Service's name is looked up
// and not the members': theirs may not be published yet, and DNS would remember that.
func (b *Bootstrapper) observePeers(ctx context.Context, o *observation) {
	ctx, cancel := context.WithTimeout(ctx, endpointTimeout)
	defer cancel()
	own, err := b.ownAddresses()
	if err != nil {
		o.Peers = Answering // not to be ruled out
		o.note("peers", err.Error())
		return
	}
	found, err := b.lookup(ctx, b.cfg.PeerService+"."+b.cfg.Namespace+".svc")
	if missing, ok := errors.AsType[*net.DNSError](err); ok && missing.IsNotFound {
		return // no one is published
	}
	if err != nil {
		o.Peers = Answering // not to be ruled out
		o.note("peers", err.Error())
		return
	}
	answers := make([]bool, len(found))
	var group errgroup.Group
	for i, address := range found {
		if slices.Contains(own, address) {
			continue
		}
		group.Go(func() error {
			answers[i] = b.transport.Reach(ctx, net.JoinHostPort(address, strconv.Itoa(b.cfg.PeerPort))) == nil
			return nil
		})
	}
	_ = group.Wait() // silence is an answer here
	if i := slices.Index(answers, true); i >= 0 {
		o.Peers = Answering
		o.note("peers", found[i])
	}
}

// ownAddresses are the addresses of this Pod.
func (b *Bootstrapper) ownAddresses() ([]string, error) {
	addresses, err := b.addresses()
	if err != nil {
		return nil, fmt.Errorf("own addresses: %w", err)
	}
	var own []string
	for _, a := range addresses {
		if ip, ok := a.(*net.IPNet); ok {
			own = append(own, ip.IP.String())
		}
	}
	return own, nil
}
