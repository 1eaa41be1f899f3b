package bootstrap

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/etcd-druid/druid/agent/datadir"
	"github.com/etcd-druid/druid/agent/launch"
	"github.com/etcd-druid/druid/internal/crash"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

// attempt is a bootstrap that is claimed.
type attempt struct {
	record              leases.Record
	token, peerURL      string
	memberID, clusterID uint64
}

// cluster is --initial-cluster: a group is formed with one member.
func (a *attempt) cluster(member string) string { return member + "=" + a.peerURL }

// form claims an attempt in the record and starts etcd as the only member of a new cluster. The claim comes before any
// data (R2); anyone who claims after us makes our attempt a lost one, and its data never leaves this volume.
func (b *Bootstrapper) form(ctx context.Context, o *observation) (*launch.Order, error) {
	a, err := b.claim(ctx, o)
	if a == nil || err != nil {
		return nil, err
	}
	if err := b.moveAside(ctx, o, "attempt-lost"); err != nil {
		return nil, err
	}
	stamp := b.stamp(o, a.record, a.clusterID, a.memberID)
	crash.Before("stamp-bootstrap")
	err = datadir.WriteStamp(b.cfg.VolumePath, stamp)
	crash.After("stamp-bootstrap")
	if err != nil {
		return nil, err
	}
	return b.order(stamp, start{
		fresh: true, cluster: a.cluster(b.cfg.Member), token: a.token, maxLearners: a.record.MaxLearners,
	})
}

// claim puts an attempt of ours into the record, above the epoch of every lineage that the backup store has of a cluster
// of this name. It returns nil where someone else wrote meanwhile: then a new look must come first.
func (b *Bootstrapper) claim(ctx context.Context, o *observation) (*attempt, error) {
	limit, err := b.limitAtBootstrap()
	if err != nil {
		return nil, err
	}
	record, err := b.attemptOf(o, limit)
	if err != nil {
		return nil, err
	}
	a := &attempt{token: record.Token(b.cfg.Namespace, b.cfg.Cluster, b.cfg.ClusterUID), peerURL: b.peerURL(b.cfg.Member)}
	a.memberID, a.clusterID, err = membership.ExpectedIDs(b.cfg.Member, a.peerURL, a.token)
	if err != nil {
		return nil, err
	}
	record.ClusterID = a.clusterID
	if claimed, err := b.putClaim(ctx, o, record); !claimed || err != nil {
		return nil, err
	}
	b.log.InfoContext(ctx, "forming claimed", "clusterID", leases.FormatID(a.clusterID), "memberID", leases.FormatID(a.memberID),
		"epoch", record.Epoch)
	a.record = record
	return a, nil
}

// attemptOf is the record with a new attempt of ours, above the epoch of every lineage in the cluster's place.
func (b *Bootstrapper) attemptOf(o *observation, limit int) (leases.Record, error) {
	nonce, err := newNonce()
	if err != nil {
		return leases.Record{}, err
	}
	record := o.record.record
	record.Epoch = max(record.Epoch, o.bootstraps.epoch)
	return Claim(record, nonce, b.cfg.PodUID, limit), nil
}

// putClaim writes the attempt into the record as it was observed; false means that someone else wrote meanwhile.
func (b *Bootstrapper) putClaim(ctx context.Context, o *observation, record leases.Record) (bool, error) {
	crash.Before("claim-bootstrap")
	_, err := b.store.UpdateRecord(ctx, o.record.version, record)
	crash.After("claim-bootstrap")
	if errors.Is(err, leases.ErrConflict) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("claim epoch %d: %w", record.Epoch, err)
	}
	return true, nil
}

// stamp says whose the data of this volume is going to be.
func (b *Bootstrapper) stamp(o *observation, record leases.Record, clusterID, memberID uint64) datadir.Stamp {
	return StampOf(&b.cfg, record, o.own.member, clusterID, memberID)
}

// limitAtBirth is max-learners of a raft group that is formed on our version of etcd.
func (b *Bootstrapper) limitAtBootstrap() (int, error) {
	minor, err := minorOf(b.cfg.EtcdVersion)
	if err != nil {
		return 0, err
	}
	if minor <= 5 {
		return leases.MaxLearners35, nil
	}
	return leases.MaxLearners, nil
}

// newNonce draws what makes a bootstrap's token its own: 64 bits, so that no two bootstraps ever share one.
func newNonce() (string, error) {
	var nonce [8]byte
	if _, err := rand.Read(nonce[:]); err != nil {
		return "", fmt.Errorf("draw nonce: %w", err)
	}
	return hex.EncodeToString(nonce[:]), nil
}
