package backups

import (
	"context"
	"reflect"

	"github.com/etcd-druid/druid/leases"
)

// savedAuth returns what a full backup has of authentication, or false until the Lease was read.
func (h *reporter) savedAuth() (leases.BackupAuth, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.auth, h.leaseRead
}

// readVerification reads the results that other agents wrote about the backups. On an error, it keeps the last result.
func (h *reporter) readVerification(ctx context.Context) {
	b, v, err := h.leases.Full(ctx)
	if err != nil {
		return // the agent that renews the Lease reports
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	first := !h.leaseRead
	if h.leaseRead = true; first && h.auth.Object == "" {
		h.auth = b.Auth
	}
	if !first && reflect.DeepEqual(h.verified, v) {
		return
	}
	h.verified = v
	select {
	case h.changed <- struct{}{}:
	default:
	}
}

// foundBroken reports whether the newest full backup and the changes after it were found to be invalid.
func (h *reporter) foundBroken(newest string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.verified.Verdict == leases.VerdictBroken && newest != "" && h.verified.Full == newest
}

// notVerified says that the full backup was not found to be intact. It is false until the Lease was read.
func (h *reporter) notVerified(full string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.leaseRead && h.verified.VerifiedFull != full
}

// verifiedFull returns the full backup that was last found to be intact, or the empty string.
func (h *reporter) verifiedFull() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.verified.VerifiedFull
}
