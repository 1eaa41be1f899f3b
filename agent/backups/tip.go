package backups

import (
	"context"

	"github.com/etcd-druid/druid/backup/chain"
	"github.com/etcd-druid/druid/backup/delta"
	"github.com/etcd-druid/druid/backup/store"
)

// maxHeader is more than the longest header of a delta, in bytes.
const maxHeader = 128 << 10

// tip is the digest of the last revision that is saved, as the delta that ends there says in its header. It is zero where no delta does,
// and where it cannot be read: then nothing is compared, and a proof finds a fork.
func (s *session) tip(ctx context.Context, h chain.History, saved int64) delta.Digest {
	ctx, cancel := store.Patient(ctx, store.Patience)
	defer cancel()
	for _, d := range h.Deltas {
		if d.To != saved {
			continue
		}
		digest, err := s.lastOf(ctx, d)
		if err != nil {
			s.log.DebugContext(ctx, "newest delta not read", "object", d.Key, "err", err)
		}
		return digest
	}
	return delta.Digest{}
}

func (s *session) lastOf(ctx context.Context, d chain.Delta) (delta.Digest, error) {
	body, err := s.store.Get(ctx, d.Key, 0, maxHeader)
	if err != nil {
		return delta.Digest{}, err
	}
	defer body.Close() // what is read has a checksum of its own
	r, err := delta.NewReader(body, delta.Expected{Object: d.Key, Lineage: string(d.Lineage), From: d.From, To: d.To})
	if err != nil {
		return delta.Digest{}, err
	}
	defer r.Close()
	return r.Header().Last, nil
}
