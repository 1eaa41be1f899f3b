package backups

import (
	"context"
	"time"

	"github.com/klauspost/compress/zstd"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/backup/chain"
	"github.com/etcd-druid/druid/backup/guard"
	"github.com/etcd-druid/druid/backup/snapshot"
	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/internal/crash"
	"github.com/etcd-druid/druid/leases"
)

// takeFull starts a full. It ends with ctx, and nothing of it is in the store then.
func (s *session) takeFull(ctx context.Context, why string) {
	s.fulling = true
	kind, answer := s.orders.take()
	name := chain.FullKey
	if kind == kindFinal {
		name = chain.FinalKey
	}
	began := time.Now()
	s.log.InfoContext(ctx, "full began", "rule", why, "kind", kind)
	s.group.Go(func() error {
		var result snapshot.Result
		err := guard.Run(func() (err error) {
			result, err = s.snapshot(ctx, s.client, s.store, name)
			return err
		})
		took := time.Since(began)
		s.ended <- func(ctx context.Context) { s.fullEnded(ctx, why, result, took, err) }
		answer(Artifact{
			Kind: kind, Key: result.Key, URI: s.orders.uri(result.Key), Revision: result.Revision, Size: result.ObjectSize,
			SHA256: result.SHA256, StorageVersion: result.StorageVersion,
		}, err)
		return nil
	})
}

// snapshot puts a full of our member into a store, under a name of the lineage's.
func (s *session) snapshot(
	ctx context.Context, client *clientv3.Client, in store.Store, name func(string, chain.Lineage, int64, time.Time) string,
) (snapshot.Result, error) {
	defer crash.Around("take-full")()
	return snapshot.Take(ctx, snapshot.Config{
		Client: client, Store: in, Lineage: string(s.self.Lineage), Level: levelOf(s.config.Compression),
		Key: func(revision int64, at time.Time) string { return name(s.config.Prefix, s.self.Lineage, revision, at) },
	})
}

// levelOf is what zstd calls a level: the same words.
func levelOf(c config.Compression) zstd.EncoderLevel {
	if known, level := zstd.EncoderLevelFromString(c.Level); known {
		return level
	}
	return zstd.SpeedFastest
}

func (s *session) fullEnded(ctx context.Context, why string, r snapshot.Result, took time.Duration, err error) {
	s.fulling = false
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		s.full.failed(time.Now())
		s.Metrics.failed(kindFull)
		s.inform.fullFailed(ctx, err)
		return
	}
	s.full.succeeded()
	s.replacing.fulls = append(s.replacing.fulls, r.Key)
	if why == ruleDisproved { // one that did not come to be is no matter of this member's database
		s.replacing.taken.failed(time.Now())
	}
	s.Metrics.saved(kindFull, r.ObjectSize, took)
	s.log.InfoContext(ctx, "full taken", "object", r.Key, "revision", r.Revision, "bytes", r.ObjectSize, "took", took)
	taken := chain.Full{Lineage: s.self.Lineage, Key: r.Key, Revision: r.Revision, At: r.Taken, Size: r.ObjectSize, Final: chain.IsFinal(r.Key)}
	s.joined(taken)
	if err := s.know(chain.History{Fulls: []chain.Full{taken}}, time.Now()); err != nil {
		s.inform.fullFailed(ctx, err) // a schedule without a date was refused before
		return
	}
	s.inform.fullTaken(leases.Backup{
		Revision: r.Revision, Lineage: string(s.self.Lineage), Object: r.Key, Size: r.ObjectSize, SHA256: r.SHA256, Taken: r.Taken,
	}, s.newest, s.chain)
	s.prune()
}

// joined says what a new full makes of the chain: whole, where the recorder saves what follows it. A recorder that began
// later ends, and the next one goes on where the full left off.
func (s *session) joined(full chain.Full) {
	switch {
	case s.chain == ChainWhole && s.recorder != nil:
	case s.recorder != nil && s.chain&unsound != 0 && s.recorder.from <= full.Revision+1:
		s.chain = ChainWhole
	default:
		s.chain = ChainUnknown
		s.recorder.end()
	}
}

// prune lets go what the new object made superfluous, once the leader's Lease is held.
func (d *Duty) prune() {
	select {
	case d.pruning <- struct{}{}:
	default:
	}
}
