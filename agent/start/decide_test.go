package start

import (
	"errors"
	"fmt"
	"hash/fnv"
	"testing"
	"time"

	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/test/golden"
	"github.com/etcd-druid/druid/test/rulestest"
)

// broken returns the guarantee that a decision violates, or an empty string.
func broken(f Facts, d Decision) string {
	continues := f.Data == Intact && f.Epoch&(Fenced|Prepared) == 0
	storeAnswer := d.Mode == ModeNew || d.Mode == ModeRestore || d.Mode == ModeRecover
	changes := storeAnswer || d.Mode == ModeJoin || d.Mode == ModeReplaceSelf || d.Mode == ModeRejoin
	// A removal ends when the quorum is lost: an order has no slot for it.
	leaves := f.Lease&(Leaving|RemovalAcknowledged) != 0 && (d.Mode == ModeRecover || d.Mode == ModePlace)
	switch {
	// Above the table.
	case changes && (f.Lease != Fresh && !leaves || f.Record&(RecordUnread|RecordAbsent) != 0):
		return "R1: acts without a fresh record and a Lease that is ours"
	case d.Mode == ModeResume && f.Lease == Superseded:
		return "R1: two Pods of one name run"
	case d.Mode == ModeResume && f.Data == Differing && f.Listed == NoQuorum:
		return "" // its vote counts, and it is replaced when a quorum responds
	case d.Mode == ModeResume && f.Data != Intact:
		return "R3: starts on data that is not intact"
	case d.Mode == ModeResume && f.Epoch == Prepared && f.Listed&isListed == 0:
		return "starts on a volume that acknowledges an order"
	case d.Mode == ModeResume && f.Epoch == Fenced:
		return "a start under an old raft ID of a fenced group"
	case d.Mode == ModeResume && f.Listed != NoQuorum && (f.Listed&isListed == 0 || f.Own != OwnID):
		return "R4: starts an ID that the quorum does not list as ours"
	case d.Mode == ModeRejoin && f.Listed != Unlisted:
		return "R5: gives up data on the word of less than two lists"
	// One EtcdCluster never forms two clusters.
	case storeAnswer && f.Listed != NoQuorum:
		return "a second cluster next to one that answers"
	case d.Mode == ModeNew && (f.Record&isForming == 0 || f.Place != Seed):
		return "a bootstrap that the record does not give to us"
	case d.Mode == ModeNew && (f.Evidence != NeverFormed || f.Peers != Silent || f.Backup != NoBackup || f.Order != NoOrder):
		return "a bootstrap although a cluster may have been formed"
	case (d.Mode == ModeNew || d.Mode == ModeRestore) && continues:
		return "a bootstrap over data that could be continued"
	case storeAnswer && f.Record&(Formed|FormedIncomplete) != 0:
		return "a second bootstrap of a formed cluster"
	case d.Mode == ModeRestore && (f.Order != OrderRestore || f.Backup != BackupPresent):
		return "an order that was not given"
	case d.Mode == ModeRecover && (f.Order != OrderForm || f.Record != Recovering),
		d.Mode == ModePrepare && (f.Order != OrderPrepare || f.Record != Recovering):
		return "a recovery that was not ordered"
	case d.Mode == ModePlace && (f.Order != OrderPlace || f.Record&(Formed|FormedIncomplete) == 0 || f.Lease&isOurs == 0):
		return "uses data that the record does not name"
	case (d.Mode == ModeRecover || d.Mode == ModePrepare && f.Restores == rules.No || d.Mode == ModePlace) && f.Listed != NoQuorum:
		return "recovers a cluster that serves"
	case f.Record == Recovering && f.Restores == rules.Yes && f.Order&(OrderWait|OrderForm) != 0 && d.Mode == ModeResume:
		return "serves again although it acknowledged that the cluster is restored"
	case d.Mode == ModePrepare && f.Lease&(Superseded|LeaseUnread) != 0:
		return "acknowledges for a volume that is not ours"
	case f.Order == OrderPrepare && f.Record == Recovering && (f.Listed == NoQuorum || f.Restores == rules.Yes) && f.Lease&isOurs != 0 &&
		d.Mode != ModePrepare && f.Data&(Foreign|Newer|DataUnread) == 0:
		return "an order waits for a member that can acknowledge it"
	case storeAnswer && f.Record&isForming != 0 && f.Backup&(BackupUnusable|StoreUnreachable) != 0:
		return "a bootstrap although it is not known what the store holds"
	// The agent never reduces the voters below a quorum.
	case d.Mode == ModeReplaceSelf && f.Listed&isListed == 0:
		return "removes a member that no quorum lists"
	case d.Mode == ModeReplaceSelf && (f.Slot&(SlotTaken|SlotLeaving) != 0 || f.Needs != Met):
		return "removes a member that cannot come back, or a second one at once"
	case (d.Mode == ModeJoin || d.Mode == ModeRejoin) && f.Slot == SlotLeaving && f.Joining != JoiningNow:
		return "joins next to a member that is on its way out"
	case d.Mode == ModeReplaceSelf && continues && f.Own == OwnID:
		return "removes a member whose data is good"
	case (d.Mode == ModeJoin || d.Mode == ModeReplaceSelf) && (f.Record != Formed || f.Place == Undesired):
		return "joins a cluster that is not formed, or that does not want it"
	case d.Mode == ModeJoin && continues:
		return "joins although its data could be continued"
	case d.Mode == ModeJoin && f.Listed&isListed != 0 && f.Joining != JoiningNow:
		return "R4: starts a listed ID without its data"
	// A member that can come back does so in every state of Kubernetes.
	case f.Data == Intact && f.Epoch != Fenced && f.Lease != Superseded && !restored(f) && f.Listed&isListed != 0 && f.Own == OwnID && d.Mode != ModeResume:
		return "a good member of a quorum does not come back"
	case continues && f.Lease != Superseded && f.Listed == NoQuorum && f.Record != Recovering && d.Mode != ModeResume && d.Mode != ModePlace:
		return "a majority that restarts does not re-form"
	case f.Data == Differing && f.Listed&isListed != 0 && d.Mode == ModeResume:
		return "data that differs serves again"
	case f.Data&(Foreign|Newer|DataUnread) != 0 && d.Mode != ModeRefuse:
		return "touches data that is not ours to touch"
	}
	return ""
}

// restored says whether an order to restore concerns a member that knows of it, so that the member does not come back.
func restored(f Facts) bool {
	acknowledges := f.Order == OrderPrepare && f.Lease&isOurs != 0
	return f.Record == Recovering && f.Restores == rules.Yes && (acknowledges || f.Order&(OrderWait|OrderForm) != 0)
}

// TestDecideIsSafeForAllFacts also fixes the content of the table: its rows, the number of combinations that each row
// decides, and a hash over all decisions.
func TestDecideIsSafeForAllFacts(t *testing.T) {
	type tally struct {
		cases map[string]int
		hash  uint64
	}
	index := map[string]byte{}
	for i, name := range Rules() {
		index[name] = byte(i)
	}
	tallies := map[Data]*tally{}
	t.Run("enumerate", func(t *testing.T) {
		for all := range rules.Cases(struct{ Data Data }{}) {
			one := &tally{}
			tallies[all.Data] = one
			t.Run(all.Data.String(), func(t *testing.T) {
				t.Parallel()
				hash := fnv.New64a()
				buffer := make([]byte, 0, 1<<16)
				rule, number := "", byte(0)
				one.cases = rulestest.Count(t, startRules, Facts{Data: all.Data}, func(f Facts, d rules.Decision[Mode]) string {
					if d.Rule != rule {
						rule, number = d.Rule, index[d.Rule]
					}
					if buffer = append(buffer, number); len(buffer) == cap(buffer) {
						_, _ = hash.Write(buffer)
						buffer = buffer[:0]
					}
					return broken(f, decisionOf(d))
				})
				_, _ = hash.Write(buffer)
				one.hash = hash.Sum64()
			})
		}
	})
	cases, all, hash := map[string]int{}, 0, fnv.New64a()
	for f := range rules.Cases(struct{ Data Data }{}) {
		for name, n := range tallies[f.Data].cases {
			cases[name] += n
			all += n
		}
		_, _ = fmt.Fprint(hash, tallies[f.Data].hash)
	}
	rulestest.Reachable(t, startRules, cases)
	golden.Section(t, "../../docs/reference/decisions.md", "start", "### How a member starts: "+startTable+"\n\n"+
		"The agent of each member uses this table when its etcd does not run. The reason of a Wait or a Refuse says what the member waits for. The "+
		"reason of another "+
		"decision says why it is safe. The agent "+
		"queries a backup store only if the decision would be first-boot without one.\n\n"+rulestest.Render("start", startRules, cases)+
		fmt.Sprintf("\n%d combinations of facts; hash of all decisions %016x.\n", all, hash.Sum64()))
}

// TestFallbacksAreSafeForAllFacts also fixes the content of the table.
func TestFallbacksAreSafeForAllFacts(t *testing.T) {
	cases := rulestest.Check(t, fallbacks, brokenByFallback)
	rulestest.Section(t, "../../docs/reference/decisions.md", "fallbacks", "A bootstrap from backups that are damaged: agent/start.fallbacks",
		"The agent of the seed uses this table for the plan that leads to the target of spec.bootstrap.restore. Damaged objects are those that "+
			"earlier attempts of the same process found.", fallbacks, cases)
}

// brokenByFallback returns the guarantee that a decision violates, or an empty string.
func brokenByFallback(f FallbackFacts, d rules.Decision[Course]) string {
	switch {
	case d.Verdict == CourseFallback && f.Rest != RestEqual && f.Rest != RestVain:
		return "restores less than was asked for"
	case d.Verdict != CourseDirect && f.Damage == Unharmed:
		return "does without what is not known to be damaged"
	case d.Verdict == CourseDirect && f.Damage == DamageNew:
		return "reads again what was found damaged just now"
	case f.Damage == DamageOld && d.Verdict != CourseDirect && f.Rest != RestEqual:
		return "never finds out that damage was repaired"
	case d.Verdict == CourseNone && f.Rest == RestEqual:
		return "waits for an operator, and all is there"
	case d.Verdict == CourseDirect && f.Damage != Unharmed && f.Rest == RestEqual:
		return "tries what is damaged, and all is elsewhere"
	}
	return ""
}

func TestWhereTheRestOfTheBackupsLeads(t *testing.T) {
	until := time.Unix(1000, 0)
	plan := func(change func(*catalog.Plan)) catalog.Plan {
		p := catalog.Plan{Full: catalog.Full{Lineage: "00000002-a", Key: "f"}, Revision: 90, Until: until, Reach: 70}
		change(&p)
		return p
	}
	for name, tc := range map[string]struct {
		change func(*catalog.Plan)
		err    error
		want   Rest
	}{
		"to the same by another full":            {func(p *catalog.Plan) { p.Full.Key = "g"; p.Deltas = []catalog.Delta{{Key: "d"}} }, nil, RestEqual},
		"further, to be cut back":                {func(p *catalog.Plan) { p.Reach = 71 }, nil, RestEqual},
		"the same moment of another zone":        {func(p *catalog.Plan) { p.Until = until.In(time.FixedZone("", 3600)) }, nil, RestEqual},
		"one revision less":                      {func(p *catalog.Plan) { p.Reach = 69 }, nil, RestLess},
		"to as much of another lineage":          {func(p *catalog.Plan) { p.Full.Lineage = "00000001-a" }, nil, RestLess},
		"to be cut at another fork":              {func(p *catalog.Plan) { p.Revision = 80 }, nil, RestLess},
		"to be cut nowhere":                      {func(p *catalog.Plan) { p.Revision = 0 }, nil, RestLess},
		"to another moment":                      {func(p *catalog.Plan) { p.Until = until.Add(-time.Second) }, nil, RestLess},
		"nowhere, whatever the plan is reported": {func(*catalog.Plan) {}, errors.New("gap"), RestNone},
		"by what was tried":                      {func(p *catalog.Plan) { p.Full.Key = "vain" }, nil, RestVain},
		"by what was tried, and less":            {func(p *catalog.Plan) { p.Full.Key, p.Reach = "vain", 69 }, nil, RestLess},
	} {
		vain := plan(func(p *catalog.Plan) { p.Full.Key, p.Notes = "vain", []string{"which says more"} })
		if got := restOf(plan(func(*catalog.Plan) {}), plan(tc.change), vain, tc.err); got != tc.want {
			t.Errorf("%s: got %d, want %d", name, got, tc.want)
		}
	}
}

// A running etcd is stopped only for a record that calls for it. With a quorum, it is stopped only if a later raft group exists or
// if the cluster is restored.
func TestWhichRunningEtcdIsStopped(t *testing.T) {
	cases := rulestest.Check(t, runRules, func(f RunFacts, d rules.Decision[RunVerdict]) string {
		switch {
		case d.Verdict == StopEtcd && f.Serves != rules.No && f.Calls&(CallsLater|CallsRestore) == 0:
			return "stops an etcd that serves"
		case d.Verdict == StopEtcd && f.Calls&(CallsNothing|CallsUnknown) != 0:
			return "stops an etcd for nothing"
		case d.Verdict == KeepRunning && (f.Serves == rules.No && f.Calls == CallsOrder || f.Calls == CallsRestore):
			return "an order is never acknowledged"
		case d.Verdict == KeepRunning && f.Calls == CallsLater:
			return "two raft groups serve"
		}
		return ""
	})
	rulestest.Section(t, "../../docs/reference/decisions.md", "runs", "An etcd that runs while the record has an order: "+runTable,
		"The agent of each member uses this table while its etcd runs.", runRules, cases)
}
