package leases

import (
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/test/rulestest"
)

func TestLivenessIsJudgedForEverySight(t *testing.T) {
	cases := rulestest.Check(t, livenesses, func(s sight, d rules.Decision[Liveness]) string {
		switch {
		case d.Verdict == Stale && (s.readable == rules.No || s.elapsed == rules.No):
			return "stale without having seen it unchanged"
		case d.Verdict == Live && (s.moved == rules.No || s.elapsed == rules.Yes):
			return "live without having seen a renewal in time"
		}
		return ""
	})
	rulestest.Section(t, "../docs/reference/decisions.md", "livenesses", "Whether a Lease is renewed: leases.livenesses",
		"Asked by each observer of a Lease, by what it saw itself and by its own clock.", livenesses, cases)
}

func TestWatcherTrustsItsOwnClockAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		duration := int32(45)
		holder := "1:Member"
		lease := &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "demo-a", UID: "1"},
			Spec:       coordinationv1.LeaseSpec{LeaseDurationSeconds: &duration, HolderIdentity: &holder},
		}
		w := NewWatcher()
		expect := func(what string, want Liveness) {
			t.Helper()
			if got := w.Observe(lease, time.Now()); got != want {
				t.Errorf("%s: %s, want %s", what, got, want)
			}
		}
		// The member's clock is a year behind: only a change of renewTime counts.
		foreign := time.Now().AddDate(-1, 0, 0)
		renew := func() { foreign = foreign.Add(time.Second); lease.Spec.RenewTime = &metav1.MicroTime{Time: foreign} }

		expect("without any renewal", Never)
		renew()
		expect("after the first renewal", Live)
		time.Sleep(44 * time.Second)
		expect("a second before its duration", Live)
		time.Sleep(time.Second)
		expect("unchanged for its duration", Stale)
		renew()
		expect("renewed again", Live)

		w = NewWatcher()
		expect("an observer that just started", Unknown)
		time.Sleep(45 * time.Second)
		expect("and saw it unchanged for its duration", Stale)

		lease.UID = "2"
		expect("made again", Unknown)
		holder = "nonsense"
		expect("edited to nonsense", Unknown)
		if got := w.Observe(nil, time.Now()); got != Unknown {
			t.Errorf("absent: %s, want Unknown", got)
		}
		if at, ok := w.Expiry("ns", "demo-a"); !ok || !at.Equal(time.Now().Add(45*time.Second)) {
			t.Errorf("expiry %v %v, want 45 s from now", at, ok)
		}
	})
}

func TestFloorIsOneIntervalOld(t *testing.T) {
	at := func(n uint64) Raft { return Raft{Term: 1, Committed: n} }
	start := time.Unix(0, 0)
	const interval = 15 * time.Second
	var f floor
	for _, step := range []struct {
		what   string
		after  time.Duration
		id     uint64
		alive  bool
		now    Raft
		wanted Raft
	}{
		{"nothing was published before", 0, 1, true, at(10), Raft{}},
		{"the first one is too young", 5 * time.Second, 1, true, at(20), Raft{}},
		{"the first one is old enough", 15 * time.Second, 1, true, at(30), at(10)},
		{"the third one is too young", 25 * time.Second, 1, true, at(40), at(10)},
		{"the third one is old enough", 30 * time.Second, 1, true, at(50), at(30)},
		{"what an etcd reported last before it ended stays out of it", 45 * time.Second, 1, false, at(50), at(30)},
		{"for as long as it is away", 90 * time.Second, 1, false, at(50), at(30)},
		{"and is no measure for the next one", 91 * time.Second, 1, true, at(49), at(30)},
		{"which needs its own interval", 106 * time.Second, 1, true, at(60), at(49)},
		{"a new raft ID begins at nothing", 120 * time.Second, 2, true, at(1), Raft{}},
		{"and goes its own way", 135 * time.Second, 2, true, at(2), at(1)},
	} {
		now := start.Add(step.after)
		if got := f.next(step.id, step.alive, now, interval); got != step.wanted {
			t.Errorf("%s: floor %v, want %v", step.what, got, step.wanted)
		}
		f.published(step.now, step.alive, now)
	}
	f.resume(Member{ID: 3, Raft: at(19), Floor: at(8)})
	if got := f.next(3, true, start, interval); got != at(8) {
		t.Errorf("after a restart: floor %v, want the published one", got)
	}
	f.published(at(9), true, start)
	if got := f.next(3, true, start.Add(interval), interval); got != at(9) {
		t.Errorf("an interval after a restart: floor %v, want what this etcd held at its start", got)
	}
}
