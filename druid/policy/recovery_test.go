package policy

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
)

func TestOnlyEvidenceMakesAQuorumLost(t *testing.T) {
	checkTable(t, recoveryRows, "recovery", "A lost quorum: druid/policy.recoveryRows", func(f recoveryFacts, d rules.Decision[recoveryVerdict]) string {
		final := d.Verdict&(recoverPropose|recoverRefuse) != 0
		switch {
		case d.Verdict != recoverNothing && (f.applies == rules.No || f.quorum != rules.No):
			return "reports a loss that is not known"
		case final && (f.returns != returnsNot || f.overdue == rules.No):
			return "calls a quorum lost for good that may return"
		case d.Verdict == recoverPropose && f.source == rules.No:
			return "proposes a source that is not known"
		}
		return ""
	})
}

// rescue is a cluster that lost its quorum.
type rescue struct {
	d Desired
	o Observed
}

var rescueStart = time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)

const rescueLineage = "00000001-aa"

func newRescue(members int) *rescue {
	x := &rescue{
		d: Desired{Replicas: members, ClusterID: 7},
		o: Observed{RecordState: RecordFormed, QuorumOverdue: true, Record: leases.Record{
			ClusterID: 7, Phase: leases.PhaseFormed, Epoch: 1, FormedEpoch: 1, Nonce: "aa", Lineage: rescueLineage, MaxLearners: 16, MemberList: &leases.MemberList{},
		}},
	}
	for i := range members {
		name := fmt.Sprintf("demo-%c", 'a'+i)
		x.o.Record.Members = append(x.o.Record.Members, name)
		x.o.Record.MemberList.Members = append(x.o.Record.MemberList.Members, leases.ListedMember{ID: leases.FormatID(uint64(10 + i)), Name: name})
		x.o.Members = append(x.o.Members, Member{
			Name: name, Listed: true, Lease: LeaseOurs, Readable: true, Liveness: leases.Stale, Pod: PodLive, PodUID: "pod-" + name,
			Claim: ClaimPresent, ClaimUID: "vol-" + name, Renewed: rescueStart,
			Reports: leases.Member{
				ID: uint64(10 + i), Role: leases.RoleMember, ClusterID: 7, Epoch: 1, Lineage: rescueLineage, PodUID: "pod-" + name, VolumeUID: "vol-" + name,
				Revision: 100, Raft: leases.Raft{Term: 2, Committed: 50, LastTerm: 2, LastIndex: 50}, Data: "intact",
			},
		})
	}
	return x
}

func (x *rescue) member(i int) *Member { return &x.o.Members[i] }

// reports makes the agent of member i wait with data in this state.
func (x *rescue) reports(i int, data string) {
	x.member(i).Reports.Data, x.member(i).Reports.Reason = data, "no quorum responds"
}

// claim makes the agent of member i report what its disk holds.
func (x *rescue) claim(i int, state leases.DiskState) *leases.Claim {
	m := x.member(i)
	c := &leases.Claim{Pod: m.PodUID, Volume: m.ClaimUID, State: state}
	if state != leases.DiskEmpty {
		c.Cluster, c.Member, c.Epoch, c.Lineage = "7", leases.FormatID(m.Reports.ID), 1, rescueLineage
		c.LastTerm, c.Last, c.Commit, c.Applied, c.Revision = 2, 50, 50, 50, 100
		c.Voters = strings.Join(publishedVoters(x.o), ",")
	}
	m.Reports.Disk = c
	return c
}

func (x *rescue) away(i int) {
	m := x.member(i)
	m.NodeLost, m.Node, m.Volume = true, NodeAway, VolumeLocal
}

func (x *rescue) outOfService(i int) {
	x.away(i)
	x.member(i).Node = NodeOutOfService
}

func (x *rescue) decide() recovery { return recoveryOf(x.d, x.o, x.o.listed()) }

func TestWhatDruidReportsAboutALostQuorum(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*rescue)
		rule   string
		words  string
	}{
		"two volumes are wiped": {func(x *rescue) { x.reports(1, "empty"); x.reports(2, "empty") }, "propose",
			"the best source is the disk of member demo-a; as far as the members reported, it lacks 0 revisions, and at most 15 seconds of writes"},
		"two of three in memory": {func(x *rescue) {
			for i := range 3 {
				x.member(i).Claim = ClaimUnwanted
			}
			x.reports(1, "empty")
			x.reports(2, "empty")
		}, "propose", "Keep its Pod, which holds the data in memory"},
		"two nodes are out of service": {func(x *rescue) { x.outOfService(1); x.outOfService(2) }, "propose", "the disk of member demo-a"},
		"two nodes are away":           {func(x *rescue) { x.away(1); x.away(2) }, "majority-may-return", "away: demo-b, demo-c; here with data: demo-a"},
		"one is away and one is wiped": {func(x *rescue) { x.away(1); x.reports(2, "empty") }, "majority-may-return", "lost: demo-c"},
		"all etcds run without leader": {func(*rescue) {}, "majority-may-return", "here with data: demo-a, demo-b, demo-c"},
		"two volumes are deleted": {func(x *rescue) {
			for i := range 2 {
				x.member(i).Claim, x.member(i).Pod = ClaimAbsent, PodAbsent
			}
		}, "propose", "the disk of member demo-c"},
		"the survivor was silent for longer": {func(x *rescue) {
			x.reports(1, "empty")
			x.reports(2, "corrupt (bad-page)")
			x.member(0).Renewed, x.member(1).Reports.Revision = rescueStart.Add(-time.Minute), 104
		}, "propose", "it lacks 4 revisions, and at most 75 seconds of writes"},
		"all volumes are wiped": {func(x *rescue) {
			for i := range 3 {
				x.reports(i, "empty")
			}
		}, "no-source", ""},
		"all are wiped, and there is a backup": {func(x *rescue) {
			for i := range 3 {
				x.reports(i, "empty")
			}
			x.d.Backup, x.o.SavedUntil = true, rescueStart.Add(-30*time.Second)
			x.o.Full.Reports = leases.Backup{Revision: 90, Lineage: rescueLineage}
			x.o.Delta.Reports = leases.Backup{Revision: 98, Lineage: rescueLineage}
		}, "propose", "the backup of lineage 00000001-aa, up to revision 98; as far as the members reported, it lacks 2 revisions, and at most 45 seconds of writes"},
		"the backup has less than the survivor": {func(x *rescue) {
			x.reports(1, "empty")
			x.reports(2, "empty")
			x.d.Backup, x.o.Full.Reports = true, leases.Backup{Revision: 90, Lineage: rescueLineage}
		}, "propose", "the disk of member demo-a"},
		"a backup of an earlier lineage": {func(x *rescue) {
			for i := range 3 {
				x.reports(i, "empty")
			}
			x.d.Backup, x.o.Full.Reports = true, leases.Backup{Revision: 90, Lineage: "00000000-zz"}
		}, "no-source", ""},
		"the claim says that the survivor is stale": {func(x *rescue) {
			x.claim(0, leases.DiskStale)
			x.claim(1, leases.DiskEmpty)
			x.claim(2, leases.DiskEmpty)
		}, "propose", "what it lacks is unknown; its disk is older"},
		"the tail of the log holds more": {func(x *rescue) {
			c := x.claim(0, leases.DiskIntact)
			c.Revision, c.Tail = 90, 10
			x.claim(1, leases.DiskEmpty)
			x.claim(2, leases.DiskEmpty)
		}, "propose", "it lacks 0 revisions"},
		"an etcd ends again and again": {func(x *rescue) {
			x.claim(0, leases.DiskFailing)
			x.claim(1, leases.DiskEmpty)
			x.claim(2, leases.DiskEmpty)
		}, "no-source", ""},
		"a claim of another Pod": {func(x *rescue) {
			x.claim(1, leases.DiskEmpty).Pod = "other"
			x.claim(2, leases.DiskEmpty)
		}, "majority-may-return", "lost: demo-c"},
		"a Pod that its Lease does not name": {func(x *rescue) {
			x.reports(1, "empty")
			x.reports(2, "empty")
			x.member(1).Reports.PodUID = "before"
		}, "majority-may-return", "lost: demo-c"},
		"one voter renews": {func(x *rescue) {
			x.reports(1, "empty")
			x.reports(2, "empty")
			x.member(0).Liveness = leases.Live
		}, "quorum-serves", ""},
		"druid just started":      {func(x *rescue) { x.reports(1, "empty"); x.reports(2, "empty"); x.member(0).Liveness = leases.Unknown }, "quorum-unknown", ""},
		"kubelets see two ready":  {func(x *rescue) { x.member(0).EtcdReady, x.member(1).EtcdReady = true, true }, "quorum-serves", ""},
		"it is paused":            {func(x *rescue) { x.d.Replicas = 0 }, "not-ours", ""},
		"it has external members": {func(x *rescue) { x.o.Record.Externals = []string{"a"} }, "not-ours", ""},
		"no list was published":   {func(x *rescue) { x.o.Record.MemberList = nil }, "voters-unknown", "no list of its voters is known"},
		"a moment ago":            {func(x *rescue) { x.o.QuorumOverdue = false }, "not-yet", "within a minute"},
		"a member that is away reported more": {func(x *rescue) {
			*x = *newRescue(5)
			for i := range 3 {
				x.reports(i, "empty")
			}
			x.away(4)
			x.member(4).Reports.Raft.LastIndex = 60
		}, "propose", "member demo-e is away and reported more"},
	} {
		t.Run(name, func(t *testing.T) {
			x := newRescue(3)
			test.change(x)
			r := x.decide()
			if r.rule != test.rule {
				t.Fatalf("rule %s, want %s: %+v", r.rule, test.rule, r.facts)
			}
			status := r.status()
			if none := r.is(recoverNothing); none != (status == nil) || none && test.words != "" || !none && !strings.Contains(status.Message, test.words) {
				t.Errorf("status %+v, want the words %q", status, test.words)
			}
			_, problem := r.problem()
			if problem != r.is(recoverPropose|recoverRefuse) || r.is(recoverPropose) != (status != nil && status.Plan != nil) {
				t.Errorf("rule %s: problem %t, status %+v", r.rule, problem, status)
			}
		})
	}
}

// Whatever three members report, a quorum that may return is never called lost for good.
func TestAMajorityThatMayReturnIsNeverCalledLost(t *testing.T) {
	kinds := []string{"running", "away", "out of service", "gone", "empty", "corrupt (torn-wal)", "stale", "foreign", "unread", "intact"}
	proposed := 0
	for n := range len(kinds) * len(kinds) * len(kinds) {
		x, left, words := newRescue(3), 0, []string{}
		for i, m := 0, n; i < 3; i, m = i+1, m/len(kinds) {
			kind := kinds[m%len(kinds)]
			words = append(words, kind)
			switch kind {
			case "running":
			case "away":
				x.away(i)
			case "out of service":
				x.outOfService(i)
			case "gone":
				x.member(i).Claim, x.member(i).Pod = ClaimAbsent, PodAbsent
			default:
				x.reports(i, kind)
			}
			if slices.Contains([]string{"running", "away", "foreign", "unread", "intact"}, kind) {
				left++
			}
		}
		r := x.decide()
		if lost := r.is(recoverPropose | recoverRefuse); lost != (left < 2) {
			t.Errorf("%v: rule %s", words, r.rule)
		}
		if r.is(recoverPropose) {
			proposed++
			if s := r.status(); s.Plan.Source != v1alpha1.RecoveryFromSurvivor || s.Plan.Member == "" {
				t.Errorf("%v: plan %+v", words, s.Plan)
			}
		}
	}
	if proposed < 50 {
		t.Errorf("only %d combinations have a plan", proposed)
	}
}
