package backups

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/backup/delta"
	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/internal/rules"
)

// Verdict is the next step.
type Verdict string

// The verdicts. RecordOn continues after the last saved revision. RecordAgain starts after etcd's present revision.
const (
	Wait        Verdict = "Wait"
	RecordOn    Verdict = "RecordOn"
	RecordAgain Verdict = "RecordAgain"
	TakeFull    Verdict = "TakeFull"
)

// Decision includes the name of the rule.
type Decision = rules.Decision[Verdict]

// unsound are the states that only a new full backup resolves.
const unsound = CatalogEmpty | CatalogBroken | CatalogBehind

// ruleFoundBroken takes a full backup because the newest one was found to be invalid.
const ruleFoundBroken = "found-broken"

// ruleAsked takes a full backup because a request asks for it, and not because one is due.
const ruleAsked = "requested"

// backupTable is the name of backupRules in the metric of all decisions, and in docs/reference/decisions.md.
const backupTable = "agent/backups.backupRules"

// backupRules is the complete policy on when a backup is made. The first match wins. The default is to wait.
var backupRules = rules.New(Wait, []rules.Row[Facts, Verdict]{
	{Name: "not-read", When: Facts{CatalogState: CatalogUnknown}, Verdict: Wait,
		Why: "the store or etcd did not respond; both are read again"},
	{Name: "catalog-ahead", When: Facts{CatalogState: CatalogAhead}, Verdict: Wait,
		Why: "the store has revisions that etcd never had; two histories must not be mixed, so you have to check which one is right"},
	{Name: "resume-recording", When: Facts{CatalogState: CatalogComplete, Recorder: RecorderOff}, Verdict: RecordOn,
		Why: "the saved revisions have no gap"},
	{Name: "start-recording", When: Facts{CatalogState: unsound, Recorder: RecorderOff}, Verdict: RecordAgain,
		Why: "a full backup can take longer than etcd keeps revisions, so the changes in the meantime are recorded alongside it"},
	{Name: "full-running", When: Facts{Full: FullRunning}, Verdict: Wait,
		Why: "one full backup at a time"},
	{Name: ruleAsked, When: Facts{Asked: rules.Yes}, Verdict: TakeFull,
		Why: "a full backup is requested"},
	{Name: "full-failed", When: Facts{CatalogState: unsound | CatalogComplete, Full: FullResting, Asked: rules.No}, Verdict: Wait,
		Why: "a failed full backup is retried after a pause"},
	{Name: "first", When: Facts{CatalogState: CatalogEmpty, Full: FullIdle, Asked: rules.No}, Verdict: TakeFull,
		Why: "delta backups cannot be restored without a full backup"},
	{Name: "broken", When: Facts{CatalogState: CatalogBroken, Full: FullIdle, Asked: rules.No}, Verdict: TakeFull,
		Why: "only a new full backup closes the gap"},
	{Name: "catalog-behind", When: Facts{CatalogState: CatalogBehind, Full: FullIdle, Asked: rules.No}, Verdict: TakeFull,
		Why: "a watch of that many changes would delay writes; a full backup reads them once"},
	{Name: ruleFoundBroken, When: Facts{CatalogState: CatalogComplete, Full: FullIdle, Asked: rules.No, Doubted: rules.Yes}, Verdict: TakeFull,
		Why: "the saved backups do not restore a state that the cluster had"},
	{Name: "due", When: Facts{CatalogState: CatalogComplete, Full: FullIdle, Asked: rules.No, Due: rules.Yes}, Verdict: TakeFull,
		Why: "the table due decided: schedule, age, changed users or roles, or size of the changes since the last full backup"},
	{Name: "saved", When: Facts{CatalogState: CatalogComplete, Full: FullIdle, Asked: rules.No, Due: rules.No, Doubted: rules.No}, Verdict: Wait,
		Why: "nothing is due, and the recorder saves the changes"},
})

// Decide returns the next step. The step is started but not awaited, and then Decide runs again.
func Decide(f Facts) Decision { return backupRules.Decide(f) }

const (
	// inflation is how much larger records are in the database than in a delta backup. Objects of Kubernetes compress
	// to a third to an eighth at zstd's fastest level; random letters compress to two thirds.
	inflation = 4
	// revisionSize is the minimum size in bytes that a revision is assumed to take in the database. A Lease of a node
	// has about 400 bytes, and etcd and bbolt add 80.
	revisionSize = 512
	// quotaPart is the divisor of the quota that the changes after a full backup may reach. A verification restores
	// the full backup with all changes after it, and a database that follows etcd's advice is at most half full.
	quotaPart = 2
)

// tail is what follows the newest full backup.
type tail struct {
	// revisions, and bytes of delta backups as they are stored.
	revisions, bytes int64
}

// tailOf returns what a listing has after the newest full backup.
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

// restored estimates how many bytes the tail takes in a database that contains all of it.
func (t tail) restored() int64 { return max(t.bytes*inflation, t.revisions*revisionSize) }

// DueFacts is the complete input of DecideDue.
type DueFacts struct {
	// Time: a full backup is due by the schedule or because of the age of the newest one.
	Time rules.YesNo `fact:"by time"`
	// Auth: users, roles or authentication changed since the newest full backup, as authChanged decides.
	Auth rules.YesNo `fact:"users or roles changed"`
	// Large: the changes after the newest full backup take half of the quota in a restore that keeps the history.
	Large rules.YesNo `fact:"what follows is large"`
	// Paid: the changes after the newest full backup are as large in the store as that backup, so that full backups
	// never cause more traffic than delta backups.
	Paid rules.YesNo `fact:"and no smaller than the full"`
}

// dueRules decide when the next full backup is due. The first match wins.
var dueRules = rules.New(rules.YesNo(rules.No), []rules.Row[DueFacts, rules.YesNo]{
	{Name: "time", When: DueFacts{Time: rules.Yes}, Verdict: rules.Yes,
		Why: "the schedule or the age of the newest full backup requires it"},
	{Name: "auth", When: DueFacts{Time: rules.No, Auth: rules.Yes}, Verdict: rules.Yes,
		Why: "delta backups have no users and roles, so a restore would have those of the newest full backup"},
	{Name: "size", When: DueFacts{Time: rules.No, Auth: rules.No, Large: rules.Yes, Paid: rules.Yes}, Verdict: rules.Yes,
		Why: "a restore that keeps the history, as in a verification, would exceed the quota"},
	{Name: "size-not-paid", When: DueFacts{Time: rules.No, Auth: rules.No, Large: rules.Yes, Paid: rules.No}, Verdict: rules.No,
		Why: "the full backup is larger than the changes since then, so another one would cause more traffic than the changes"},
	{Name: "not-due", When: DueFacts{Time: rules.No, Auth: rules.No, Large: rules.No}, Verdict: rules.No,
		Why: "the changes since the last full backup are small"},
})

// DecideDue says whether the next full backup is due, and by which rule.
func DecideDue(f DueFacts) rules.Decision[rules.YesNo] { return dueRules.Decide(f) }

// dueFacts returns the facts at a moment from the newest full backup, the changes after it and the quota. A quota of 0
// is etcd's default. auth is the answer of authChanged.
func dueFacts(due, now time.Time, full catalog.Full, t tail, quota int64, auth bool) DueFacts {
	return DueFacts{
		Time:  rules.YesNoOf(!due.IsZero() && !now.Before(due)),
		Auth:  rules.YesNoOf(auth),
		Large: rules.YesNoOf(full.Key != "" && t.restored() >= cmp.Or(quota, config.DefaultQuotaBytes)/quotaPart),
		Paid:  rules.YesNoOf(t.bytes >= full.Size),
	}
}

// follows returns what follows the newest full backup now: what was listed, and what the recorder has saved since
// then.
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

// measure records what a listing has after the newest full backup.
func (s *session) measure(h catalog.History) {
	s.behind.tail, s.behind.bytes = tailOf(h), 0
	if s.recorder != nil {
		s.recorder.mu.Lock()
		s.behind.bytes = s.recorder.bytes
		s.recorder.mu.Unlock()
	}
}

// superseding returns a history in the same place that does not count as older than the history of this cluster. If
// two clusters save there, each deletes the backups of the other, and the latest backup belongs to the other cluster.
// It is a pure function.
//
// Ancestors count as older, and so do lineages with a lower epoch: a cluster that is formed with its backups takes an
// epoch above all existing ones. A lineage without backups does not count, because it belongs to a failed attempt or
// to a bootstrap in progress.
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

// ancestors returns the ancestors of this lineage according to the identity file and the records of the bootstraps.
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

// supersededError is a doubt about which cluster's backups lead to the latest state.
type supersededError struct {
	by   catalog.Lineage
	text string
}

func (e *supersededError) Error() string { return e.text }

// supersededBy says what you can do: only you can know which of the two clusters belongs here.
func (s *session) supersededBy(l catalog.Lineage) error {
	return &supersededError{by: l, text: fmt.Sprintf(
		"another lineage in the same place is newer: lineage %s below %s, while this cluster has lineage %s. A restore of the latest state would "+
			"use the other lineage, so nothing is deleted. Give this cluster a place of its own, "+
			"with another prefix of its store, or as an EtcdCluster with another name or namespace", l, s.config.Prefix, s.self.Lineage)}
}

// maxHeader is larger than the longest header of a delta backup, in bytes.
const maxHeader = 128 << 10

// tip returns the digest of the last saved revision from the header of the delta backup that ends there. It is zero if
// there is none or if it cannot be read. Then nothing is compared, and a verification detects a fork.
func (s *session) tip(ctx context.Context, h catalog.History, saved int64) delta.Digest {
	ctx, cancel := store.Patient(ctx, store.MaxWait)
	defer cancel()
	for _, d := range h.Deltas {
		if d.To != saved {
			continue
		}
		digest, err := s.lastOf(ctx, d)
		if err != nil {
			s.log.DebugContext(ctx, "newest delta backup not read", "object", d.Key, "err", err)
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
