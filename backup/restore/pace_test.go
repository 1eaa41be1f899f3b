package restore

import (
	"strings"
	"testing"
	"time"
)

func TestThePaceOfAPhaseIsReportedAndUnknownIsSaid(t *testing.T) {
	begun := time.Unix(1_790_000_000, 0)
	fetching := func(mib int64) Progress {
		return Progress{Phase: Fetching, Bytes: mib << 20, TotalBytes: 100 << 20, TotalDeltas: 3}
	}
	applying := func(events, bytes int64) Progress {
		return Progress{Phase: Applying, Events: events, DeltaBytes: bytes, TotalDeltaBytes: 1000, TotalDeltas: 3}
	}
	var p Pace
	for _, step := range []struct {
		after time.Duration
		at    Progress
		want  Speed
		words string
	}{
		{0, fetching(10), Speed{Part: 0.1}, "10 of 100 MiB, rate unknown, time left unknown; 3 deltas follow"},
		{900 * time.Millisecond, fetching(20), Speed{Part: 0.2}, "time left unknown"},
		{2 * time.Second, fetching(30), Speed{0.3, 10 << 20, 7 * time.Second, true}, "10.0 MiB/s, about 7s left"},
		{9 * time.Second, fetching(100), Speed{1, 10 << 20, 0, true}, "about 0s left"},
		{10 * time.Second, applying(0, 0), Speed{}, "0 of 3, 0 events, rate unknown, revision 0, time left unknown"},
		{12 * time.Second, applying(50, 0), Speed{PerSecond: 25}, "25 events/s, revision 0, time left unknown"},
		{14 * time.Second, applying(100, 500), Speed{0.5, 25, 4 * time.Second, true}, "25 events/s, revision 0, about 4s left"},
		{20 * time.Second, Progress{Phase: Finishing, Revision: 7}, Speed{Part: 1}, "revision 7 is reached and being made durable, time left unknown"},
	} {
		got := p.Observe(step.at, begun.Add(step.after))
		if diff := got.Part - step.want.Part; got.PerSecond != step.want.PerSecond || got.Left != step.want.Left || got.Known != step.want.Known || diff*diff > 1e-9 {
			t.Errorf("after %s: %+v, want %+v", step.after, got, step.want)
		}
		if words := got.Words(step.at); !strings.Contains(words, step.words) {
			t.Errorf("after %s it says %q, want %q", step.after, words, step.words)
		}
	}
}
