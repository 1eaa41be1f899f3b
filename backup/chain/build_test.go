package chain

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const (
	prefix = "ns/demo"
	first  = Lineage("00000001-aa")
	second = Lineage("00000002-bb")
	third  = Lineage("00000003-cc")
	twin   = Lineage("00000002-dd")
)

// noon is when the histories of these tests begin.
var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func at(minute int) time.Time { return noon.Add(time.Duration(minute) * time.Minute) }

// history of a test: objects of a lineage that was formed in a minute, from a parent at a revision or from nothing.
func history(l Lineage, wasFormed int, parent Lineage, fork int64, objects ...any) History {
	h := History{Lineage: l, Formation: &Formation{Version: BootstrapVersion, Lineage: l, Parent: parent, Fork: fork, Created: at(wasFormed)}}
	for _, o := range objects {
		switch o := o.(type) {
		case Full:
			o.Lineage, o.Key = l, FullKey(prefix, l, o.Revision, o.At)
			if o.Final {
				o.Key = FinalKey(prefix, l, o.Revision, o.At)
			}
			h.Fulls = append(h.Fulls, o)
		case Delta:
			o.Lineage, o.Key = l, DeltaKey(prefix, l, o.From, o.To, o.At)
			h.Deltas = append(h.Deltas, o)
		}
	}
	return h
}

func full(revision int64, minute int) Full { return Full{Revision: revision, At: at(minute)} }

func final(revision int64, minute int) Full {
	return Full{Revision: revision, At: at(minute), Final: true}
}

func delta(from, to int64, minute int) Delta { return Delta{From: from, To: to, At: at(minute)} }

func catalog(histories ...History) Catalog { return Catalog{Prefix: prefix, Histories: histories} }

// route shortens a plan to the full's revision and the deltas' borders.
func route(p Plan) []int64 {
	r := []int64{p.Full.Revision}
	for _, d := range p.Deltas {
		r = append(r, d.From, d.To)
	}
	return r
}

func diff(t *testing.T, got, want any) {
	t.Helper()
	if d := cmp.Diff(got, want); d != "" {
		t.Errorf("(-got +want)\n%s", d)
	}
}
