package delta

import (
	"errors"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
)

func TestASequenceTakesEachEventOnce(t *testing.T) {
	type step struct {
		revision int64
		sub      int64 // -1: not new
		ends     bool  // the response ends behind it
		broke    bool  // the watch broke before it
	}
	for name, c := range map[string]struct {
		steps []step
		start int64 // where the next watch begins
		gap   bool  // the last step is refused
	}{
		"what is before the first":              {steps: []step{{revision: 10, sub: -1}, {revision: 11, sub: 0, ends: true}}, start: 11},
		"a revision of several":                 {steps: []step{{revision: 11, sub: 0}, {revision: 11, sub: 1}, {revision: 12, sub: 0, ends: true}}, start: 12},
		"a hole":                                {steps: []step{{revision: 11, sub: 0, ends: true}, {revision: 13}}, gap: true},
		"a hole at the beginning":               {steps: []step{{revision: 12}}, gap: true},
		"broken between revisions":              {steps: []step{{revision: 11, sub: 0, ends: true}, {revision: 11, sub: -1, broke: true}, {revision: 12, sub: 0}}, start: 11},
		"broken within one":                     {steps: []step{{revision: 11, sub: 0}}, start: 10},
		"taken up within one":                   {steps: []step{{revision: 11, sub: 0}, {revision: 11, sub: -1, broke: true}, {revision: 11, sub: 1}, {revision: 12, sub: 0, ends: true}}, start: 12},
		"broken twice within one":               {steps: []step{{revision: 11, sub: 0}, {revision: 11, sub: 1}, {revision: 11, sub: -1, broke: true}, {revision: 11, sub: -1, broke: true}, {revision: 11, sub: -1}, {revision: 11, sub: 2, ends: true}}, start: 11},
		"an old response ends within one":       {steps: []step{{revision: 11, sub: 0}, {revision: 10, sub: -1, broke: true, ends: true}, {revision: 11, sub: -1}}, start: 10},
		"the rest of one never comes":           {steps: []step{{revision: 11, sub: 0}, {revision: 11, sub: 1}, {revision: 11, sub: -1, broke: true}, {revision: 12}}, gap: true},
		"one that had begun does not come back": {steps: []step{{revision: 11, sub: 0}, {revision: 12, broke: true}}, gap: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := sequence{main: 10, whole: true}
			s.startAt()
			for i, step := range c.steps {
				if step.broke {
					s.startAt()
				}
				sub, isNew, err := s.take(&mvccpb.Event{Kv: &mvccpb.KeyValue{ModRevision: step.revision}})
				if c.gap && i == len(c.steps)-1 {
					if !errors.Is(err, ErrGap) {
						t.Fatalf("step %d: %v, want ErrGap", i, err)
					}
					return
				}
				if err != nil || isNew != (step.sub >= 0) || isNew && sub != step.sub {
					t.Fatalf("step %d: %d, %t, %v, want %d", i, sub, isNew, err, step.sub)
				}
				if step.ends {
					s.end(step.revision)
				}
			}
			if got := s.startAt(); got != c.start {
				t.Errorf("the next watch begins at %d, want %d", got, c.start)
			}
		})
	}
}

// Whatever the watch hands over, there is no hole between two deltas either, of which nothing in the store would report.
func TestNoHoleIsAppendedBetweenTwoDeltas(t *testing.T) {
	for name, c := range map[string]struct {
		revision int64
		gap      bool
	}{
		"the one before the first": {revision: 10},
		"the first":                {revision: 11},
		"one behind the first":     {revision: 12, gap: true},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLoop(recorderOf(t, &revisions{}, 11, nil))
			l.book = newLeaseBook(l.cfg.Conn, l.cfg.Now)
			l.receive(delivery{at: start, changes: []change{{Event: &mvccpb.Event{Kv: &mvccpb.KeyValue{ModRevision: c.revision}}}}, whole: true})
			if err := l.append(); errors.Is(err, ErrGap) != c.gap || !c.gap && err != nil {
				t.Errorf("%v, want a gap: %t", err, c.gap)
			}
		})
	}
}

func TestBeatsReportWhatIsSaved(t *testing.T) {
	var b beats
	for i := range int64(3) {
		b = b.add(beat{at: start.Add(patience * time.Duration(i)), revision: 10 + i})
	}
	b = b.add(beat{at: start.Add(3 * patience), revision: 12}) // which says more than the one before
	if rest, at := b.saved(9); len(rest) != 3 || !at.IsZero() {
		t.Errorf("saved up to 9: %v, %s", rest, at)
	}
	if rest, at := b.saved(11); len(rest) != 1 || !at.Equal(start.Add(patience)) {
		t.Errorf("saved up to 11: %v, %s", rest, at)
	}
	if rest, at := b.saved(12); len(rest) != 0 || !at.Equal(start.Add(3*patience)) {
		t.Errorf("saved up to 12: %v, %s", rest, at)
	}
	for i := range int64(10 * maxBeats) {
		b = b.add(beat{at: start, revision: 100 + i})
	}
	if len(b) != maxBeats || b[len(b)-1].revision != 99+10*maxBeats {
		t.Errorf("%d beats wait, the last for %d", len(b), b[len(b)-1].revision)
	}
}
