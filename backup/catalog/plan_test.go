package catalog

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// plain is one hour: a full backup at its beginning, middle and end, and a delta backup every ten minutes.
func plain() History {
	return history(first, 0, "", 0,
		full(1, 0), delta(2, 10, 10), delta(11, 20, 20), delta(21, 30, 30), full(30, 30), delta(31, 40, 40), delta(41, 50, 50), delta(51, 60, 60),
		full(60, 60), delta(61, 70, 70))
}

func TestPlan(t *testing.T) {
	// torn lacks revisions 21 to 29.
	torn := history(first, 0, "", 0, full(1, 0), delta(2, 10, 10), delta(11, 20, 20), delta(30, 40, 40), full(40, 40), delta(41, 50, 50))
	// raced was written by two leaders at the same time.
	raced := history(first, 0, "", 0, full(1, 0), delta(2, 10, 10), delta(2, 7, 8), delta(8, 25, 20), delta(11, 20, 20), delta(21, 30, 30),
		delta(26, 35, 31), delta(3, 5, 32))
	// skewed had a leader whose clock was half an hour behind.
	skewed := history(first, 0, "", 0, full(1, 0), delta(2, 10, 10), delta(11, 20, 40), delta(21, 30, 12), full(30, 13), delta(31, 40, 50))
	skewedFulls := history(first, 0, "", 0, full(1, 0), full(30, 40), full(35, 12), delta(2, 40, 41))
	// busy closed a delta backup within a minute of its second full backup.
	busy := history(first, 0, "", 0, full(1, 0), delta(2, 30, 30), full(30, 30), delta(31, 35, 30), delta(36, 40, 40))
	tests := map[string]struct {
		histories []History
		target    Target
		want      []int64 // the full's revision, and each delta's from and to
		revision  int64
		reach     int64
		err       error
		says      string
	}{
		"the latest state is the newest full and what follows": {histories: []History{plain()}, want: []int64{60, 61, 70}, reach: 70},
		"a revision is trimmed within a delta": {histories: []History{plain()}, target: Target{Revision: 45},
			want: []int64{30, 31, 40, 41, 50}, revision: 45, reach: 45},
		"the last revision can be named": {histories: []History{plain()}, target: Target{Revision: 70},
			want: []int64{60, 61, 70}, revision: 70, reach: 70},
		"a full that was just made may hold more than the revision": {histories: []History{plain()}, target: Target{Revision: 31},
			want: []int64{1, 2, 10, 11, 20, 21, 30, 31, 40}, revision: 31, reach: 31},
		"a full at its own revision may hold more than it": {histories: []History{plain()}, target: Target{Revision: 30},
			want: []int64{1, 2, 10, 11, 20, 21, 30}, revision: 30, reach: 30},
		"without an older one the full that was just made is taken": {histories: []History{plain()}, target: Target{Revision: 2},
			want: []int64{1, 2, 10}, revision: 2, reach: 2},
		"the full's own revision needs no delta": {histories: []History{plain()}, target: Target{Revision: 1}, want: []int64{1},
			revision: 1, reach: 1},
		"what is left out is planned around": {histories: []History{plain()},
			target: Target{Without: []string{FullKey(prefix, first, 60, at(60))}}, want: []int64{30, 31, 40, 41, 50, 51, 60, 61, 70}, reach: 70},
		"a revision that is not there yet": {histories: []History{plain()}, target: Target{Revision: 71}, err: ErrOutside,
			says: "revisions 1 to 70"},
		"a revision from before the first full": {histories: []History{history(first, 0, "", 0, full(5, 0))},
			target: Target{Revision: 4}, err: ErrOutside, says: "does not hold revision 4"},

		"a moment is cut within the delta that was closed after it": {histories: []History{plain()}, target: Target{Time: at(45)},
			want: []int64{30, 31, 40, 41, 50}, reach: 50},
		"the moment at which a delta was closed needs no more": {histories: []History{plain()}, target: Target{Time: at(50)},
			want: []int64{30, 31, 40, 41, 50}, reach: 50},
		"a moment just after a full takes an older one": {histories: []History{plain()}, target: Target{Time: at(30).Add(time.Second)},
			want: []int64{1, 2, 10, 11, 20, 21, 30, 31, 40}, reach: 40},
		"a moment after the end is the end": {histories: []History{plain()}, target: Target{Time: at(600)},
			want: []int64{60, 61, 70}, reach: 70},
		"a moment before the beginning": {histories: []History{plain()}, target: Target{Time: at(-1)}, err: ErrOutside,
			says: "before the first backup"},
		"a time is never earlier than what stands before it": {histories: []History{skewed}, target: Target{Time: at(20)},
			want: []int64{1, 2, 10, 11, 20}, reach: 20},
		"nor is a full's": {histories: []History{skewed}, target: Target{Time: at(45)}, want: []int64{30, 31, 40}, reach: 40},

		"nor are two fulls'": {histories: []History{skewedFulls}, target: Target{Time: at(20)}, want: []int64{1, 2, 40}, reach: 40},
		"a delta that was closed just after the full proves nothing": {histories: []History{busy}, target: Target{Revision: 38},
			want: []int64{1, 2, 30, 31, 35, 36, 40}, revision: 38, reach: 38},
		"a delta that was closed a minute after the full does": {histories: []History{busy}, target: Target{Revision: 40},
			want: []int64{30, 31, 35, 36, 40}, revision: 40, reach: 40},

		"overlap is planned around":            {histories: []History{raced}, want: []int64{1, 2, 10, 8, 25, 26, 35}, reach: 35},
		"overlap before a revision":            {histories: []History{raced}, target: Target{Revision: 22}, want: []int64{1, 2, 10, 8, 25}, revision: 22, reach: 22},
		"a gap before the newest full is past": {histories: []History{torn}, want: []int64{40, 41, 50}, reach: 50},
		"a revision before a gap":              {histories: []History{torn}, target: Target{Revision: 20}, want: []int64{1, 2, 10, 11, 20}, revision: 20, reach: 20},
		"a revision in a gap":                  {histories: []History{torn}, target: Target{Revision: 25}, err: ErrGap, says: "revisions 21 to 29"},
		"a revision behind a gap":              {histories: []History{torn}, target: Target{Revision: 35}, err: ErrGap, says: "revisions 1 to 20"},
		"a moment in a gap":                    {histories: []History{torn}, target: Target{Time: at(30)}, err: ErrGap, says: "revisions 40 to 50"},
		"a gap after the newest full":          {histories: []History{history(first, 0, "", 0, full(5, 0), delta(7, 9, 1))}, err: ErrGap, says: "revisions 6 to 6"},
		"a moment between two fulls alone": {histories: []History{history(first, 0, "", 0, full(5, 0), full(6, 10))}, target: Target{Time: at(5)},
			err: ErrGap, says: "revisions 6 to 6"},

		"a full by its name is taken as it is": {histories: []History{plain()},
			target: Target{Name: "000000000000001e-" + millisOf(at(30)) + ".snap.zst"}, want: []int64{30}, reach: 30},
		"a final full is a full": {histories: []History{history(first, 0, "", 0, full(1, 1), delta(2, 30, 30), final(30, 30), delta(31, 40, 40))},
			target: Target{}, want: []int64{30, 31, 40}, reach: 40},
		"a final full by its key": {histories: []History{history(first, 0, "", 0, full(1, 1), delta(2, 30, 30), final(30, 30), delta(31, 40, 40))},
			target: Target{Name: FinalKey("", first, 30, at(30))}, want: []int64{30}, reach: 30},
		"a full by its key": {histories: []History{plain()}, target: Target{Name: FullKey(prefix, first, 60, at(60))},
			want: []int64{60}, reach: 60},
		"a delta by its name is gone to the end": {histories: []History{plain()},
			target: Target{Name: "0000000000000029-0000000000000032-" + millisOf(at(50)) + ".delta.zst"}, want: []int64{30, 31, 40, 41, 50}, revision: 50, reach: 50},
		"a name that nothing has":  {histories: []History{plain()}, target: Target{Name: "x.snap.zst"}, err: ErrUnknown, says: "x.snap.zst"},
		"a part of a name is none": {histories: []History{plain()}, target: Target{Name: ".snap.zst"}, err: ErrUnknown},
		"a name that two lineages have": {histories: []History{history(first, 0, "", 0, full(5, 0)), history(second, 0, "", 0, full(5, 0))},
			target: Target{Name: "0000000000000005-" + millisOf(at(0)) + ".snap.zst"}, err: ErrAmbiguous, says: "specify more of the name"},
		"the lineage reports which": {histories: []History{history(first, 0, "", 0, full(5, 0)), history(second, 0, "", 0, full(5, 0))},
			target: Target{Lineage: first, Name: "0000000000000005-" + millisOf(at(0)) + ".snap.zst"}, want: []int64{5}, reach: 5},

		"nothing":                     {err: ErrEmpty, says: prefix},
		"deltas alone":                {histories: []History{history(first, 0, "", 0, delta(2, 5, 1))}, err: ErrEmpty},
		"a lineage that is not there": {histories: []History{plain()}, target: Target{Lineage: second}, err: ErrUnknown, says: string(first)},
		"a revision and a time":       {histories: []History{plain()}, target: Target{Revision: 5, Time: at(5)}, err: ErrTarget, says: "revision and time"},
		"a revision that is none":     {histories: []History{plain()}, target: Target{Revision: -5}, err: ErrTarget},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			checkPlan(t, catalog(test.histories...), test.target, test.want, test.revision, test.reach, test.err, test.says)
		})
	}
}

func checkPlan(t *testing.T, c Catalog, target Target, want []int64, revision, reach int64, wantErr error, says string) Plan {
	t.Helper()
	p, err := c.Plan(target)
	if !errors.Is(err, wantErr) {
		t.Fatalf("got %v, %v, want %v", route(p), err, wantErr)
	}
	if wantErr != nil {
		if !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want it to say %q", err, says)
		}
		return p
	}
	diff(t, route(p), want)
	if p.Revision != revision || p.Reach != reach || !p.Until.Equal(target.Time) {
		t.Errorf("revision %d, reach %d, until %v; want %d, %d, %v", p.Revision, p.Reach, p.Until, revision, reach, target.Time)
	}
	return p
}

func millisOf(t time.Time) string {
	name, _, _ := strings.Cut(FullKey("", first, 1, t), ".")
	return name[strings.LastIndex(name, "-")+1:]
}

func TestGapNamesBothSides(t *testing.T) {
	_, err := catalog(history(first, 0, "", 0, full(1, 0), delta(2, 10, 10), delta(14, 20, 20))).Plan(Target{})
	gap, ok := errors.AsType[*GapError](err)
	if !ok {
		t.Fatal(err)
	}
	diff(t, *gap, GapError{
		Lineage: first, From: 11, To: 13, Before: DeltaKey(prefix, first, 2, 10, at(10)), After: DeltaKey(prefix, first, 14, 20, at(20)),
		Instead: "lineage 00000001-aa revisions 1 to 10 (2026-11-21T12:00:00Z to 2026-11-21T12:10:00Z)",
	})
}

func TestAMomentAfterTheEndIsNoted(t *testing.T) {
	for minute, want := range map[int]string{
		45: "", 70: "",
		71: "the backups end with revision 70 at 2026-11-21T13:10:00Z: writes after that, until 2026-11-21T13:11:00Z, are missing",
	} {
		p, err := catalog(plain()).Plan(Target{Time: at(minute)})
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(p.Notes, "\n"); got != want {
			t.Errorf("minute %d: the notes are %q, want %q", minute, got, want)
		}
	}
}

func TestLastSaved(t *testing.T) {
	for want, h := range map[int64]History{
		0:  history(first, 0, "", 0, delta(2, 5, 1)),
		5:  history(first, 0, "", 0, full(5, 1)),
		70: plain(),
		20: history(first, 0, "", 0, full(1, 0), delta(2, 20, 1), delta(22, 30, 2)),
	} {
		if got := h.LastSaved(); got != want {
			t.Errorf("got %d, want %d", got, want)
		}
	}
}

func TestRanges(t *testing.T) {
	diff(t, plain().Ranges(), []Range{{1, 70, at(0), at(70)}})
	torn := history(first, 0, "", 0, full(1, 0), delta(2, 10, 10), full(12, 12), delta(14, 20, 20), full(20, 21), delta(21, 22, 30))
	diff(t, torn.Ranges(), []Range{{1, 10, at(0), at(10)}, {12, 12, at(12), at(12)}, {20, 22, at(21), at(30)}})
}

func TestGapsNameWhatNoDeltaHolds(t *testing.T) {
	for name, c := range map[string]struct {
		h    History
		want []Gap
	}{
		"none": {h: plain()},
		"a delta is missing, and a full comes": {
			h:    history(first, 0, "", 0, full(1, 0), delta(2, 10, 10), delta(21, 30, 30), full(30, 31)),
			want: []Gap{{From: 11, To: 20, Next: 30}},
		},
		"a delta is missing, and no full comes": {
			h:    history(first, 0, "", 0, full(1, 0), delta(2, 10, 10), delta(21, 30, 30)),
			want: []Gap{{From: 11, To: 20}},
		},
		"two fulls alone": {h: history(first, 0, "", 0, full(5, 0), full(6, 10)), want: []Gap{{From: 6, To: 6, Next: 6}}},
		"two in one history": {h: history(first, 0, "", 0, full(1, 0), full(12, 12), delta(14, 20, 20)),
			want: []Gap{{From: 2, To: 11, Next: 12}, {From: 13, To: 13}}},
		"deltas without any full": {h: history(first, 0, "", 0, delta(2, 10, 10), delta(21, 30, 30))},
	} {
		t.Run(name, func(t *testing.T) { diff(t, c.h.Gaps(), c.want) })
	}
}

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

// history returns the objects of a lineage that was formed at a minute, from a parent at a revision or without data.
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

// route shortens a plan to the revision of the full backup and the limits of the delta backups.
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
