package backups

import (
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/backup/delta"
	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/test/exports"
	"github.com/etcd-druid/druid/test/rulestest"
)

// TestDecisionsKeepCatalogComplete: decisions keep the catalog complete for all facts.
func TestDecisionsKeepCatalogComplete(t *testing.T) {
	cases := rulestest.Check(t, backupRules, func(f Facts, d rules.Decision[Verdict]) string {
		unsaved := f.CatalogState == CatalogEmpty || f.CatalogState == CatalogBroken || f.CatalogState == CatalogBehind
		switch {
		case d.Verdict != Wait && f.CatalogState&(CatalogUnknown|CatalogAhead) != 0:
			return "something is saved on top of what is not known or not ours"
		case d.Verdict == RecordOn && f.CatalogState != CatalogComplete:
			return "goes on after a hole"
		case d.Verdict == RecordAgain && f.CatalogState == CatalogComplete:
			return "makes a gap in a catalog that has none"
		case (d.Verdict == RecordOn || d.Verdict == RecordAgain) && f.Recorder != RecorderOff:
			return "two recorders, or one before its pause is over"
		case d.Verdict == TakeFull && f.Full == FullRunning:
			return "two fulls at once"
		case d.Verdict == TakeFull && f.Full == FullResting && f.Asked == rules.No:
			return "a full without a pause after the one that failed"
		case d.Verdict == Wait && f.Recorder == RecorderOff && (unsaved || f.CatalogState == CatalogComplete):
			return "writes are not saved, and no backup is made"
		case d.Verdict == Wait && f.Full == FullIdle &&
			(unsaved || f.CatalogState == CatalogComplete && (f.Due == rules.Yes || f.Asked == rules.Yes || f.Doubted == rules.Yes)):
			return "a full backup is needed, and none is made"
		}
		return ""
	})
	rulestest.Section(t, "../../docs/reference/decisions.md", "backups", "What is backed up now: "+backupTable,
		"Asked by the agent next to the raft leader, again after each thing that it started. `catalog`: what the store holds of this lineage, "+
			"against what etcd still holds.", backupRules, cases)
}

// TestFullDueByTimeAndSize: fulls are due by time and by size for all facts.
func TestFullDueByTimeAndSize(t *testing.T) {
	cases := rulestest.Check(t, dueRules, func(f DueFacts, d rules.Decision[rules.YesNo]) string {
		if want := rules.YesNoOf(f.Time == rules.Yes || f.Auth == rules.Yes || f.Large == rules.Yes && f.Paid == rules.Yes); d.Verdict != want {
			return "want " + want.String()
		}
		return ""
	})
	rulestest.Section(t, "../../docs/reference/decisions.md", "due", "Whether a full backup is due: agent/backups.dueRules",
		"It is `due` of the table of what is backed up. What follows the newest full is large when it takes half of etcd's quota in a restore that "+
			"keeps the history: "+
			"4 bytes for each byte of a delta, or 512 for each revision, whichever is more.", dueRules, cases)
}

// TestBytesAfterFullComparedWithQuota: what follows a full is measured against the quota.
func TestBytesAfterFullComparedWithQuota(t *testing.T) {
	now := time.UnixMilli(1)
	full := func(size int64) catalog.Full { return catalog.Full{Key: "full", Revision: 100, Size: size} }
	for name, test := range map[string]struct {
		full  catalog.Full
		tail  tail
		quota int64
		want  rules.YesNo
	}{
		"no full":                              {catalog.Full{}, tail{1 << 40, 1 << 40}, 0, rules.No},
		"little":                               {full(10), tail{100, 1 << 20}, 0, rules.No},
		"bytes, of half of etcd's own quota":   {full(10), tail{100, 1 << 28}, 0, rules.Yes},
		"one byte less":                        {full(10), tail{100, 1<<28 - 1}, 0, rules.No},
		"bytes, of half of a small quota":      {full(10), tail{100, 1 << 21}, 16 << 20, rules.Yes},
		"revisions":                            {full(10), tail{1 << 21, 10}, 0, rules.Yes},
		"revisions, and the full is larger":    {full(11), tail{1 << 21, 10}, 0, rules.No},
		"a day of 25 writes of 1 KiB a second": {full(100 << 20), tail{25 * 86400, 25 * 86400 * 300}, 0, rules.Yes},
	} {
		t.Run(name, func(t *testing.T) {
			if d := DecideDue(dueFacts(time.Time{}, now, test.full, test.tail, test.quota, false)); d.Verdict != test.want {
				t.Errorf("it is due: %s, by %s, want %s", d.Verdict, d.Rule, test.want)
			}
		})
	}
	h := catalog.History{
		Fulls:  []catalog.Full{{Revision: 10}, {Revision: 20}},
		Deltas: []catalog.Delta{{From: 11, To: 20, Size: 1}, {From: 15, To: 25, Size: 2}, {From: 26, To: 31, Size: 4}},
	}
	if got, want := tailOf(h), (tail{11, 6}); got != want {
		t.Errorf("behind the newest full are %+v, want %+v", got, want)
	}
}

// The newest delta backup of the lineage has another revision than etcd. The following changes do not continue it, and
// a full backup is taken at once.
func TestAForkInsideALineageIsFollowedByAFull(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 1)
	c, client := directory(t.TempDir()), g.client(0)
	files := opened(t, c)
	a := g.newAgent(0, nil, "default")
	a.Configure(c)
	stop := a.start()
	savedUpTo(t, files, put(t, client, 5))
	stop()
	fulls := len(history(t, files).Fulls)

	at := put(t, client, 1)
	w, err := delta.NewWriter(delta.Header{Lineage: string(lineage), ClusterID: g.self(0).ClusterID})
	if err != nil {
		t.Fatal(err)
	}
	value, err := proto.Marshal(&mvccpb.KeyValue{Key: []byte("another"), CreateRevision: at, ModRevision: at, Version: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Append(delta.AppendKey(nil, at, 0, false), value, time.Now()); err != nil {
		t.Fatal(err)
	}
	finished, err := w.Finish(time.Now(), delta.Leases{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := files.Put(t.Context(), catalog.DeltaKey(prefix, lineage, at, at, time.Now()), finished.Reader(), store.PutOptions{}); err != nil {
		t.Fatal(err)
	}

	next := g.newAgent(0, nil, "default")
	next.Configure(c)
	next.start()
	last := put(t, client, 5)
	eventually(t, "a full follows the fork", func() error {
		if len(history(t, files).Fulls) == fulls || next.fired("broken") == 0 {
			return errors.New("not yet")
		}
		return nil
	})
	savedUpTo(t, files, last)
	restored(t, files, client, last)
}

// TestMetricsFollowConventions: metrics keep the conventions and are listed.
func TestMetricsFollowConventions(t *testing.T) {
	registry := exports.NewRegistry()
	if _, err := NewMetrics(registry, prometheus.NewCounterVec(prometheus.CounterOpts{Name: "decisions_total", Help: "Decisions."}, nil)); err != nil {
		t.Fatal(err)
	}
	registry.Hold(t, "../../docs/reference/metrics.md", "backups")
}
