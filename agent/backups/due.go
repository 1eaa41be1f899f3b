package backups

import (
	"cmp"
	"time"

	"github.com/etcd-druid/druid/backup/chain"
	"github.com/etcd-druid/druid/internal/rules"
)

const (
	// defaultQuota is etcd's own (server/storage.DefaultQuotaBytes).
	defaultQuota = 2 << 30
	// inflation is how much larger records are in the database than in a delta. Objects of Kubernetes compress to a third to an eighth at zstd's
	// fastest level; random letters to two thirds.
	inflation = 4
	// revisionSize is what a revision takes in the database at the least that is worth to be counted, in bytes: a Lease of a node has some 400,
	// and etcd and bbolt add 80.
	revisionSize = 512
	// quotaPart of the quota is what may follow a full. A proof restores the full with all that follows it, and a database that keeps to
	// etcd's advice is at most half full.
	quotaPart = 2
)

// tail is what follows the newest full.
type tail struct {
	// revisions, and bytes of deltas as they are stored.
	revisions, bytes int64
}

// tailOf is what a listing has after the newest full.
func tailOf(h chain.History) (t tail) {
	if len(h.Fulls) == 0 {
		return tail{}
	}
	newest := h.Fulls[len(h.Fulls)-1]
	for _, d := range h.Deltas {
		if d.To > newest.Revision {
			t.bytes += d.Size
			t.revisions = max(t.revisions, d.To-newest.Revision)
		}
	}
	return t
}

// restored is about how many bytes the tail takes in a database that has all of it.
func (t tail) restored() int64 { return max(t.bytes*inflation, t.revisions*revisionSize) }

// DueFacts are all that DecideDue may look at.
type DueFacts struct {
	// Time: by schedule, or for the age of the newest full.
	Time rules.YesNo `fact:"by time"`
	// Large: what follows the newest full takes half of the quota where its history is restored.
	Large rules.YesNo `fact:"what follows is large"`
	// Paid: what follows the newest full is as large in the store as that full, so that fulls are never more traffic than deltas.
	Paid rules.YesNo `fact:"and no smaller than the full"`
}

// dueRules say when another full is due. First match wins.
var dueRules = rules.New(rules.YesNo(rules.No), []rules.Row[DueFacts, rules.YesNo]{
	{Name: "time", When: DueFacts{Time: rules.Yes}, Verdict: rules.Yes,
		Why: "by its schedule, or for its age"},
	{Name: "size", When: DueFacts{Time: rules.No, Large: rules.Yes, Paid: rules.Yes}, Verdict: rules.Yes,
		Why: "a restore that keeps the history, as a proof does, would outgrow the quota"},
	{Name: "size-not-paid", When: DueFacts{Time: rules.No, Large: rules.Yes, Paid: rules.No}, Verdict: rules.No,
		Why: "the full is larger than what follows it: fulls one after the other would be more traffic than the changes are"},
	{Name: "not-due", When: DueFacts{Time: rules.No, Large: rules.No}, Verdict: rules.No,
		Why: "what follows the full is small"},
})

// DecideDue says whether another full is due, and by which rule.
func DecideDue(f DueFacts) rules.Decision[rules.YesNo] { return dueRules.Decide(f) }

// dueFacts of the newest full at a moment, with what follows it, under a quota; 0 is etcd's own.
func dueFacts(due, now time.Time, full chain.Full, t tail, quota int64) DueFacts {
	return DueFacts{
		Time:  rules.YesNoOf(!due.IsZero() && !now.Before(due)),
		Large: rules.YesNoOf(full.Key != "" && t.restored() >= cmp.Or(quota, defaultQuota)/quotaPart),
		Paid:  rules.YesNoOf(t.bytes >= full.Size),
	}
}

// follows is what follows the newest full by now: what was listed, and what the recorder saved since.
func (s *session) follows() tail {
	t := s.behind.tail
	if s.recorder == nil {
		return t
	}
	s.recorder.mu.Lock()
	defer s.recorder.mu.Unlock()
	t.bytes += max(s.recorder.bytes-s.behind.bytes, 0)
	t.revisions = max(t.revisions, s.recorder.status.Saved-s.newest.Revision)
	return t
}

// measure takes note of what a listing has after the newest full.
func (s *session) measure(h chain.History) {
	s.behind.tail, s.behind.bytes = tailOf(h), 0
	if s.recorder != nil {
		s.recorder.mu.Lock()
		s.behind.bytes = s.recorder.bytes
		s.recorder.mu.Unlock()
	}
}
