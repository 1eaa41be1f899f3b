package backups

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/backup/delta"
	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/internal/rules"
)

// Verdict is what is to be done.
type Verdict string

// The verdicts. RecordOn goes on after what was saved last, RecordAnew begins after etcd's present revision.
const (
	Wait        Verdict = "Wait"
	RecordOn    Verdict = "RecordOn"
	RecordAgain Verdict = "RecordAnew"
	TakeFull    Verdict = "TakeFull"
)

// Decision names the rule too.
type Decision = rules.Decision[Verdict]

// unsound are the chains that only a full makes whole.
const unsound = CatalogEmpty | CatalogBroken | CatalogBehind

// ruleDisproved takes a full for one that was found to be broken.
const ruleDisproved = "disproved"

// backupRules are the whole policy on when something is saved. First match wins; what no rule covers is waited for.
var backupRules = rules.New(Wait, []rules.Row[Facts, Verdict]{
	{Name: "not-read", When: Facts{CatalogState: CatalogUnknown}, Verdict: Wait,
		Why: "the store or etcd did not answer; both are asked again"},
	{Name: "ahead", When: Facts{CatalogState: CatalogAhead}, Verdict: Wait,
		Why: "the store holds revisions that etcd never had: two histories must not be mixed, and a person has to look"},
	{Name: "go-on", When: Facts{CatalogState: CatalogComplete, Recorder: RecorderOff}, Verdict: RecordOn,
		Why: "the chain has no gap"},
	{Name: "begin", When: Facts{CatalogState: unsound, Recorder: RecorderOff}, Verdict: RecordAgain,
		Why: "a full may take longer than etcd keeps revisions: what is written meanwhile is saved next to it"},
	{Name: "full-running", When: Facts{Full: FullRunning}, Verdict: Wait,
		Why: "one full at a time"},
	{Name: "asked", When: Facts{Asked: rules.Yes}, Verdict: TakeFull,
		Why: "someone waits for it"},
	{Name: "full-failed", When: Facts{CatalogState: unsound | CatalogComplete, Full: FullResting, Asked: rules.No}, Verdict: Wait,
		Why: "a full that failed is tried again after a pause"},
	{Name: "first", When: Facts{CatalogState: CatalogEmpty, Full: FullIdle, Asked: rules.No}, Verdict: TakeFull,
		Why: "deltas lead nowhere without a full"},
	{Name: "broken", When: Facts{CatalogState: CatalogBroken, Full: FullIdle, Asked: rules.No}, Verdict: TakeFull,
		Why: "only a new full closes the hole"},
	{Name: "behind", When: Facts{CatalogState: CatalogBehind, Full: FullIdle, Asked: rules.No}, Verdict: TakeFull,
		Why: "to read what follows by a watch would hold up writes; a full reads it once"},
	{Name: ruleDisproved, When: Facts{CatalogState: CatalogComplete, Full: FullIdle, Asked: rules.No, Doubted: rules.Yes}, Verdict: TakeFull,
		Why: "what is saved leads to no state that the cluster had"},
	{Name: "due", When: Facts{CatalogState: CatalogComplete, Full: FullIdle, Asked: rules.No, Due: rules.Yes}, Verdict: TakeFull,
		Why: "by its schedule, for its age, or for the size of what follows it: table due"},
	{Name: "saved", When: Facts{CatalogState: CatalogComplete, Full: FullIdle, Asked: rules.No, Due: rules.No, Doubted: rules.No}, Verdict: Wait,
		Why: "nothing is due but what the recorder does"},
})

// Decide says what to do next. What it orders is started, not awaited, and then it is asked again.
func Decide(f Facts) Decision { return backupRules.Decide(f) }

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
func tailOf(h catalog.History) (t tail) {
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
func dueFacts(due, now time.Time, full catalog.Full, t tail, quota int64) DueFacts {
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
func (s *session) measure(h catalog.History) {
	s.behind.tail, s.behind.bytes = tailOf(h), 0
	if s.recorder != nil {
		s.recorder.mu.Lock()
		s.behind.bytes = s.recorder.bytes
		s.recorder.mu.Unlock()
	}
}

// superseding finds a history in our place that does not count as older than ours: where two go on side by side, each lets
// the other's backups go, and the latest backup is the other's. Pure.
//
// Older are our ancestors, and what has a lower epoch: a cluster that is formed with its backups takes one above all that is
// there. A lineage that nothing was saved of is no history: it is of an attempt that was lost, or of a bootstrap under way.
func superseding(c catalog.Catalog, self Identity) (catalog.Lineage, bool) {
	older := ancestors(c, self)
	for _, h := range c.Histories {
		saved := len(h.Fulls)+len(h.Deltas) > 0
		if saved && h.Lineage != self.Lineage && !older[h.Lineage] && h.Lineage.Epoch() >= self.Lineage.Epoch() {
			return h.Lineage, true
		}
	}
	return "", false
}

// ancestors of ours, as the stamp and the records of their bootstraps report.
func ancestors(c catalog.Catalog, self Identity) map[catalog.Lineage]bool {
	found := map[catalog.Lineage]bool{}
	for _, l := range []catalog.Lineage{self.Parent, parentOf(c, self.Lineage)} {
		for ; l != "" && !found[l]; l = parentOf(c, l) {
			found[l] = true
		}
	}
	return found
}

func parentOf(c catalog.Catalog, l catalog.Lineage) catalog.Lineage {
	if h, _ := c.History(l); h.Formation != nil {
		return h.Formation.Parent
	}
	return ""
}

// supersededError is a doubt about whose backups lead to the latest state.
type supersededError struct {
	by   catalog.Lineage
	text string
}

func (e *supersededError) Error() string { return e.text }

// supersededBy says what a person is to do: which of the two is to stay here no one else can know.
func (s *session) supersededBy(l catalog.Lineage) error {
	return &supersededError{by: l, text: fmt.Sprintf("another history of this place is newer than ours: lineage %s below %s, ours is %s. What leads to the latest state is its backup, not ours, and nothing is deleted: give this cluster a place of its own, "+
		"by another prefix of its store, or as an EtcdCluster of another name or namespace", l, s.config.Prefix, s.self.Lineage)}
}

// maxHeader is more than the longest header of a delta, in bytes.
const maxHeader = 128 << 10

// tip is the digest of the last revision that is saved, as the delta that ends there says in its header. It is zero where no delta does,
// and where it cannot be read: then nothing is compared, and a proof finds a fork.
func (s *session) tip(ctx context.Context, h catalog.History, saved int64) delta.Digest {
	ctx, cancel := store.Patient(ctx, store.MaxWait)
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

func (s *session) lastOf(ctx context.Context, d catalog.Delta) (delta.Digest, error) {
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
