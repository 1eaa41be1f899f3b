package bootstrap

import (
	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/leases"
)

// heard is what our own Lease and the record said when they could be read last, since etcd last ran on this volume, or it was cleared.
// A Lease that cannot be read reports nothing, and lets Resume pass; but what spoke against the data a moment before has not gone.
type heard struct {
	own    *leases.Member
	record *leases.Record
}

// forgetVolume: what was found on it, and what spoke against that, holds no longer.
func (b *Bootstrapper) forgetVolume() { b.inspects, b.heard = nil, heard{} }

// hear keeps what could be read.
func (h *heard) hear(own ownLease, r recordState) {
	if own.err == nil {
		h.own = &own.member
	}
	if r.err == nil {
		h.record = &r.record
	}
}

// against adds to the facts what was heard from whom cannot be read now, as far as it speaks against the data or against us.
func (h heard) against(cfg config.Config, v volumeState, f *Facts, note func(fact, detail string)) {
	if f.Lease == LeaseUnread && h.own != nil {
		own := ownLease{member: *h.own}
		data, detail := classifyData(cfg, v, own)
		f.Data = data
		note("data", detail)
		if lease, detail := classifyLease(cfg, own); lease == Superseded {
			f.Lease = lease
			note("lease", detail)
		}
	}
	if f.Record == RecordUnread && h.record != nil {
		f.Epoch = classifyEpoch(cfg, v, recordState{record: *h.record})
	}
}
