package start

import (
	"testing"
	"time"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/agent/datadir"
	"github.com/etcd-druid/druid/agent/launch"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

func TestSlotBindsWhileItsHolderIsListed(t *testing.T) {
	url := func(name string) string { return "http://" + name + ":2380" }
	taken := &leases.Replacing{Member: "c-a", MemberID: "a1"}
	for name, tc := range map[string]struct {
		slot   Slot
		listed []membership.Member
		want   Slot
	}{
		"the ID is still to be removed":       {SlotTaken, []membership.Member{{ID: 0xa1, Name: "c-a"}, {ID: 2, Name: "c-b"}}, SlotTaken},
		"the holder joined under another ID":  {SlotTaken, []membership.Member{{ID: 9, PeerURLs: []string{url("c-a")}}}, SlotTaken},
		"the holder is gone and not back yet": {SlotTaken, []membership.Member{{ID: 2, Name: "c-b"}}, SlotFree},
		"our own slot stays ours":             {SlotOurs, []membership.Member{{ID: 2, Name: "c-b"}}, SlotOurs},
		"a free slot stays free with anybody": {SlotFree, []membership.Member{{ID: 0xa1, Name: "c-a"}}, SlotFree},
	} {
		t.Run(name, func(t *testing.T) {
			if got := SlotIn(membership.View{Members: tc.listed}, tc.slot, taken, url); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

func TestReplacingNeedsAQuorumThatOutlivesIt(t *testing.T) {
	voters := func(n int) membership.View {
		var v membership.View
		for i := range n {
			v.Members = append(v.Members, membership.Member{ID: uint64(i + 1), Name: leases.FormatID(uint64(i + 1))})
		}
		return v
	}
	for n, want := range map[int]int{1: 1, 2: 1, 3: 2, 4: 3, 5: 3} {
		v := voters(n)
		if others, got := QuorumForReplacing(v, v.Members[0], Voter); got != want || len(others) != n-1 {
			t.Errorf("of %d voters: %d of %d others must be healthy, want %d", n, got, len(others), want)
		}
	}
	if _, got := QuorumForReplacing(voters(3), membership.Member{ID: 9, Learner: true}, Learner); got != 0 {
		t.Errorf("a learner's removal takes no vote, got %d", got)
	}
}

// TestCrashingEtcdGetsRest: an etcd that ends again and again is given a rest.
func TestCrashingEtcdGetsRest(t *testing.T) {
	crashed := func(times int, ran time.Duration) launch.Report {
		return launch.Report{Crashes: times, LastExit: &launch.Exit{Code: 1, RanFor: ran}}
	}
	killed := launch.Report{Crashes: 1, LastExit: &launch.Exit{Code: -1, Signal: "killed"}}
	notRun := launch.Report{Clean: true, LastExit: &launch.Exit{Code: -1, Message: "no such file"}}
	tests := map[string]struct {
		attempts int
		reports  []launch.Report
		want     []time.Duration
	}{
		"none before the first start": {0, []launch.Report{{}}, []time.Duration{0}},
		"none after the first crash":  {0, []launch.Report{crashed(1, 0), killed}, []time.Duration{0, 0}},
		"doubling, up to a bound": {0, []launch.Report{crashed(2, 0), crashed(3, 0), crashed(99, 0)},
			[]time.Duration{time.Second, 2 * time.Second, maxCrashPause}},
		"none for one that ran for a while": {0, []launch.Report{crashed(9, time.Minute)}, []time.Duration{0}},
		"none for a learner that lost a race with another joiner": {
			2, []launch.Report{crashed(2, 0)}, []time.Duration{0},
		},
		"doubling for a program that cannot be run, also a joiner's": {
			2, []launch.Report{notRun, notRun, notRun, notRun, notRun, notRun, notRun},
			[]time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, maxCrashPause, maxCrashPause},
		},
		"begun again once it could be run": {0, []launch.Report{notRun, notRun, crashed(1, 0), notRun},
			[]time.Duration{time.Second, 2 * time.Second, 0, time.Second}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			b := &Bootstrapper{joining: joining{attempts: tc.attempts}}
			for i, report := range tc.reports {
				if got, why := b.crashRest(report); got != tc.want[i] {
					t.Errorf("rest %d: %s (%s), want %s", i, got, why, tc.want[i])
				}
			}
		})
	}
}

// TestBuiltDataPlacedWithoutLineage: built data is placed for a record without a lineage.
// A record that druid made again has no lineage until a member runs, and the first one to run is the one that formed the raft group.
func TestBuiltDataPlacedWithoutLineage(t *testing.T) {
	cfg := config.Config{Cluster: "c", ClusterUID: "uid", Member: "c-a", PodUID: "pod"}
	own := leases.Member{VolumeUID: "volume", PodUID: "pod"}
	record := leases.Record{Phase: leases.PhaseFormed, ClusterID: 7, Epoch: 2, FormedEpoch: 2, Nonce: "n", Lineage: "00000002-n"}
	s := Sight{Own: own, Built: IdentityFileOf(&cfg, record, own, 7, 1)}
	before := func(r *leases.Record) { r.ClusterID, r.Epoch, r.FormedEpoch, r.Lineage = 8, 1, 1, "00000001-m" }
	for name, tc := range map[string]struct {
		change func(r *leases.Record)
		// begun says that the agent ended after it wrote the identity file, before the data was in place.
		begun bool
		want  Order
	}{
		"as it was formed":               {func(*leases.Record) {}, false, OrderPlace},
		"made again":                     {func(r *leases.Record) { r.Nonce, r.Lineage = "", "" }, false, OrderPlace},
		"of another lineage":             {func(r *leases.Record) { r.Lineage = "00000002-o" }, false, NoOrder},
		"of another group":               {func(r *leases.Record) { r.ClusterID, r.Lineage = 8, "" }, false, NoOrder},
		"without a group":                {func(r *leases.Record) { r.ClusterID, r.Lineage = 0, "" }, false, NoOrder},
		"that still recovers":            {func(r *leases.Record) { r.Phase = leases.PhaseRecovering }, false, NoOrder},
		"of the group before":            {before, false, NoOrder},
		"of the group before, and begun": {before, true, OrderPlace},
		"of a released order, and begun": {func(r *leases.Record) { before(r); r.Released = 2 }, true, NoOrder},
		"of a later group, and begun":    {func(r *leases.Record) { r.ClusterID, r.Epoch, r.FormedEpoch = 9, 3, 3 }, true, NoOrder},
	} {
		t.Run(name, func(t *testing.T) {
			s.Record, s.IdentityFile = record, datadir.IdentityFile{}
			if tc.begun {
				s.IdentityFile = s.Built
			}
			tc.change(&s.Record)
			if got := s.OrderOf(&cfg, "", nil); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

// Old data goes only for a record that formed the raft group of the data that etcd runs on, and that knows no tie of members that differ.
func TestTheRecordSaysWhetherOldDataIsNeeded(t *testing.T) {
	own := datadir.IdentityFile{ClusterID: 0xc, Epoch: 2}
	for name, test := range map[string]struct {
		change             func(*leases.Record)
		current, undecided rules.Answer
	}{
		"as it is":           {func(*leases.Record) {}, rules.Yes, rules.No},
		"a tie":              {func(r *leases.Record) { r.Undecided.Revision = 5 }, rules.Yes, rules.Yes},
		"a tie not readable": {func(r *leases.Record) { r.Undecided.Hashes = "not readable" }, rules.Yes, rules.Yes},
		"a recovery":         {func(r *leases.Record) { r.Phase = leases.PhaseRecovering }, rules.No, rules.No},
		"another raft group": {func(r *leases.Record) { r.ClusterID = 0xd }, rules.No, rules.No},
		"another epoch":      {func(r *leases.Record) { r.FormedEpoch = 3 }, rules.No, rules.No},
	} {
		record := leases.Record{Phase: leases.PhaseFormed, ClusterID: 0xc, FormedEpoch: 2}
		test.change(&record)
		want := datadir.PruneFacts{Voter: rules.Unknown, Quorum: rules.Unknown, Current: test.current, Full: rules.No, Undecided: test.undecided}
		if got := pruneFactsOf(record, own); got != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
}

// A learner gets its vote only if its Lease shows that it runs on its data. Each of the three conditions is needed: an agent withdraws its
// disk report and reports its ID in two patches, and a member ID can be the same in two raft groups.
func TestLeaseShowsThatAMemberRuns(t *testing.T) {
	identity := datadir.IdentityFile{ClusterID: 0xc, MemberID: 0xa}
	for name, test := range map[string]struct {
		change func(*leases.Member)
		want   bool
	}{
		"it runs":                        {func(*leases.Member) {}, true},
		"its disk report is still there": {func(m *leases.Member) { m.Disk = &leases.DiskReport{} }, false},
		"the ID that it had before":      {func(m *leases.Member) { m.ID = 0xb }, false},
		"the ID in another raft group":   {func(m *leases.Member) { m.ClusterID = 0xd }, false},
		"it never ran":                   {func(m *leases.Member) { m.ID, m.ClusterID = 0, 0 }, false},
	} {
		lease := leases.Member{ID: 0xa, ClusterID: 0xc}
		if test.change(&lease); ShowsRunning(lease, identity) != test.want {
			t.Errorf("%s: shows %t", name, !test.want)
		}
	}
}
