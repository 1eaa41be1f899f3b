package policy

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
)

// whole is a formed cluster of three in which nothing is left to do.
func whole(change ...func(*Observed)) Observed {
	o := Observed{
		RecordState: RecordFormed,
		Record: leases.Record{
			Phase: leases.PhaseFormed, ClusterID: 9, Epoch: 1, FormedEpoch: 1, Nonce: "n", Members: []string{"c-a", "c-b", "c-c"},
		},
		LeaderLease: LeaseOurs,
		Objects: []Object{{Kind: "Role", Name: "c-agent", State: ObjectCurrent, Stage: StageShared},
			{Kind: "Service", Name: "c-client", State: ObjectCurrent, Stage: StageLate}},
		Budget: ObjectCurrent, BudgetMin: 2,
		SeedStuck: rules.No,
	}
	for i, name := range o.Record.Members {
		says := leases.Member{
			ID: uint64(i + 1), Role: leases.RoleMember, ClusterID: 9, Epoch: 1, Lineage: leases.LineageOf(1, "n"),
			PodUID: "pod-" + name, VolumeUID: "claim-" + name,
		}
		o.Members = append(o.Members, Member{
			Name: name, Listed: true, Lease: LeaseOurs, Readable: true, Reports: says, Liveness: leases.Live,
			Claim: ClaimPresent, ClaimUID: "claim-" + name,
			Pod: PodLive, PodUID: "pod-" + name, EtcdReady: true, Serving: true, Voter: true,
		})
	}
	for _, f := range change {
		f(&o)
	}
	return o
}

// short leaves out steps that change only the sentence of a budget (TestBudgetIsExplained).
func short(steps []Step) []string {
	words := []string{}
	for _, s := range steps {
		if s.Rule == ruleExplained {
			continue
		}
		w := []string{string(s.Kind), s.Rule, s.Member + s.Object}
		for label, set := range map[string]*bool{"serving": s.Serving, "voter": s.Voter} {
			if set != nil && label == "serving" {
				w = append(w, fmt.Sprintf("serving=%t", *set))
			}
		}
		if s.Kind == ApplyBudget {
			w = append(w, fmt.Sprint(s.MinAvailable))
		}
		words = append(words, strings.Join(w, " "))
	}
	return words
}

// checkSteps compares steps in short.
func checkSteps(t *testing.T, want, got []string) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
}

// checkProgress compares condition Progressing, whose message begins with words.
func checkProgress(t *testing.T, d Desired, o Observed, reason, words string) {
	t.Helper()
	s := Status(Evaluate(d, o), v1alpha1.EtcdClusterStatus{ClusterID: "9"}, nil, 1, metav1.Time{})
	c := condition(s, v1alpha1.ConditionProgressing)
	if c.Reason != reason || !strings.HasPrefix(c.Message, strings.TrimSuffix(AsSentences(words), ".")) {
		t.Errorf("condition is %s %q, want %s %q", c.Reason, c.Message, reason, words)
	}
}

func TestSteps(t *testing.T) {
	tests := map[string]struct {
		desired Desired
		change  func(*Observed)
		want    []string
	}{
		"a whole cluster has none": {change: func(*Observed) {}},
		"a cluster that is deleted has none, whatever is missing": {
			desired: Desired{Deleted: true},
			change:  func(o *Observed) { o.Members[0].Pod = PodAbsent },
		},
		"an unreadable record orders nothing": {
			change: func(o *Observed) {
				o.RecordState, o.Record = RecordUnreadable, leases.Record{}
				for i := range o.Members {
					o.Members[i].Listed, o.Members[i].Pod = false, PodAbsent
				}
			},
		},
		"a lost Pod comes back and no eviction is allowed meanwhile": {
			change: func(o *Observed) {
				o.Members[1].Pod, o.Members[1].PodUID, o.Members[1].EtcdReady = PodAbsent, "", false
				o.Members[1].Serving, o.Members[1].Voter = false, false
			},
			want: []string{"CreatePod pod-missing c-b"},
		},
		"a lost member comes back whole, in the order of need": {
			change: func(o *Observed) {
				o.Members[2] = Member{Name: "c-c", Listed: true, Lease: LeaseAbsent, Liveness: leases.Unknown, Claim: ClaimAbsent, Pod: PodAbsent}
			},
			want: []string{"CreateMemberLease lease-missing c-c", "CreateClaim claim-missing c-c", "CreatePod pod-missing c-c"},
		},
		"a Pod keeps its deleted claim from going: it leaves the Service, then it goes": {
			change: func(o *Observed) { o.Members[0].Claim = ClaimTerminating },
			want:   []string{"LabelPod leaving c-a serving=false", "DeletePod volume-lost c-a"},
		},
		"all claims deleted: one member at a time": {
			change: func(o *Observed) {
				for i := range o.Members {
					o.Members[i].Claim = ClaimTerminating
				}
			},
			want: []string{"LabelPod leaving c-a serving=false", "DeletePod volume-lost c-a"},
		},
		"all claims deleted and one member down: that one first": {
			change: func(o *Observed) {
				for i := range o.Members {
					o.Members[i].Claim = ClaimTerminating
				}
				o.Members[1].EtcdReady, o.Members[1].Serving = false, false
			},
			want: []string{"DeletePod volume-lost c-b"},
		},
		"a claim deleted while another member is down: held": {
			change: func(o *Observed) {
				o.Members[0].Claim = ClaimTerminating
				o.Members[1].EtcdReady, o.Members[1].Serving = false, false
			},
		},
		"a claim deleted while the node of another member is not reachable: held": {
			change: func(o *Observed) {
				o.Members[0].Claim = ClaimTerminating
				o.Members[1].NodeLost, o.Members[1].Liveness = true, leases.Stale
			},
			want: []string{"LabelPod node-lost c-b serving=false"},
		},
		"a claim deleted while another member only learns: held": {
			change: func(o *Observed) {
				o.Members[0].Claim = ClaimTerminating
				o.Members[1].Reports.Role, o.Members[1].Serving, o.Members[1].Voter = leases.RoleLearner, false, false
			},
		},
		"two of three nodes not reachable: no member leaves the Service": {
			change: func(o *Observed) {
				for i := range 2 {
					o.Members[i].NodeLost, o.Members[i].Liveness = true, leases.Stale
				}
			},
		},
		"two of three etcds known not to serve: both leave the Service": {
			change: func(o *Observed) {
				for i := range 2 {
					o.Members[i].EtcdReady, o.Members[i].Liveness = false, leases.Stale
				}
			},
			want: []string{"LabelPod etcd-not-ready c-a serving=false", "LabelPod etcd-not-ready c-b serving=false"},
		},
		"a dead agent next to a serving etcd: nothing": {
			change: func(o *Observed) { o.Members[0].Liveness = leases.Stale },
		},
		"half of the members unknown: the other half stays as it is": {
			change: func(o *Observed) {
				o.Members, o.Record.Members = o.Members[:2], o.Record.Members[:2]
				o.Members[0].Liveness = leases.Unknown
				o.Members[1].Reports.Role = leases.RoleLearner
				o.Members[1].Voter = false
				o.BudgetMin = 1
			},
			desired: Desired{Replicas: 2},
		},
		"a new Pod is made known to its Lease": {
			change: func(o *Observed) { o.Members[0].PodUID = "other" },
			want:   []string{"MarkLease pod-not-on-lease c-a"},
		},
		"all Leases deleted: they come back and no Pod loses a label": {
			desired: Desired{ClusterID: 9},
			change: func(o *Observed) {
				o.LeaderLease = LeaseAbsent
				for i := range o.Members {
					m := &o.Members[i]
					m.Lease, m.Readable, m.Reports, m.Liveness = LeaseAbsent, false, leases.Member{}, leases.Unknown
				}
			},
			want: []string{
				"CreateLeaderLease leader-lease-missing ", "CreateMemberLease lease-missing c-a", "CreateMemberLease lease-missing c-b",
				"CreateMemberLease lease-missing c-c",
			},
		},
		"the record and all Leases deleted: the record alone, first": {
			desired: Desired{ClusterID: 9, Known: []string{"c-a", "c-b", "c-c"}},
			change:  func(o *Observed) { o.RecordState, o.Record = RecordAbsent, leases.Record{} },
			want:    []string{"CreateRecord record-lost "},
		},
		"a new voter: the budget is raised before it is labelled": {
			change: func(o *Observed) {
				o.BudgetMin = 1
				o.Members[2].Serving, o.Members[2].Voter = false, false
			},
			want: []string{"ApplyBudget budget-raised  2", "LabelPod voter-serves c-c serving=true"},
		},
		"a voter that became a learner: the budget is lowered after it lost the label": {
			change: func(o *Observed) {
				o.BudgetMin = 3
				o.Members[2].Reports.Role = leases.RoleLearner
			},
			want: []string{"LabelPod lease-says-otherwise c-c serving=false", "ApplyBudget budget-lowered  2"},
		},
		"fewer names than replicas: names first": {
			desired: Desired{Replicas: 5},
			change:  func(*Observed) {},
			want:    []string{"UpdateRecord scale-up "},
		},
		"a record rolled back to Forming": {
			desired: Desired{ClusterID: 9},
			change: func(o *Observed) {
				o.RecordState, o.Record.Phase, o.Record.FormedEpoch = RecordForming, leases.PhaseForming, 0
			},
			want: []string{"UpdateRecord record-rolled-back "},
		},
		"an object that the spec does not request any more": {
			change: func(o *Observed) { o.Objects[1].State = ObjectUnwanted },
			want:   []string{"DeleteObject object-unwanted Service/c-client"},
		},
		"an object changed by hand": {
			change: func(o *Observed) { o.Objects[0].State, o.Objects[1].State = ObjectOutdated, ObjectAbsent },
			want:   []string{"ApplyObject object-outdated Role/c-agent", "ApplyObject object-missing Service/c-client"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			d := test.desired
			if d.Replicas == 0 {
				d.Replicas = 3
			}
			checkSteps(t, test.want, short(Steps(Evaluate(d, whole(test.change)))))
		})
	}
}

func TestRecreatedRecord(t *testing.T) {
	all := whole()
	tests := map[string]struct {
		desired  Desired
		observed Observed
		want     leases.Record
	}{
		"member Leases know everything, the highest epoch wins": {
			observed: Observed{RecordState: RecordAbsent, Members: []Member{
				all.Members[0],
				{Name: "c-b", Lease: LeaseOurs, Readable: true, Reports: leases.Member{ID: 2, ClusterID: 9, Epoch: 3, Lineage: leases.LineageOf(3, "m")}},
			}},
			want: leases.Record{
				ClusterID: 9, Phase: leases.PhaseFormed, Epoch: 3, FormedEpoch: 3, Nonce: "m", Lineage: leases.LineageOf(3, "m"),
				Members: []string{"c-a", "c-b"},
			},
		},
		"without Leases the status reports the ID, and Pods and claims the names": {
			desired: Desired{ClusterID: 9, Known: []string{"c-a"}},
			observed: Observed{RecordState: RecordAbsent, Members: []Member{
				{Name: "c-b", Lease: LeaseAbsent, Claim: ClaimAbsent, Pod: PodLive}, {Name: "c-c", Lease: LeaseAbsent, Claim: ClaimPresent, Pod: PodAbsent},
				{Name: "x", Lease: LeaseForeign, Claim: ClaimForeign, Pod: PodForeign},
			}},
			want: leases.Record{ClusterID: 9, Phase: leases.PhaseFormed, Members: []string{"c-a", "c-b", "c-c"}},
		},
		"an acknowledgement on a Lease omits no name: without the slot, druid cannot know who wrote it": {
			desired: Desired{ClusterID: 9},
			observed: Observed{RecordState: RecordAbsent, Members: []Member{
				{Name: "c-a", Lease: LeaseOurs, Readable: true, Reports: leases.Member{
					ID: 2, ClusterID: 9, Epoch: 1, Removal: leases.RemovalRequest{State: leases.RemovalDone, Mark: "m", By: "pod-c-b", ClusterID: "9",
						RaftTerm: 2, RaftIndex: 10},
				}},
			}},
			want: leases.Record{ClusterID: 9, Phase: leases.PhaseFormed, Epoch: 1, FormedEpoch: 1, Members: []string{"c-a"}},
		},
		"a Lease of another group than the status knows reports nothing": {
			desired: Desired{ClusterID: 9},
			observed: Observed{RecordState: RecordAbsent, Members: []Member{
				{Name: "c-a", Lease: LeaseOurs, Readable: true, Reports: leases.Member{ID: 2, ClusterID: 8, Epoch: 7, Lineage: leases.LineageOf(7, "m")}},
			}},
			want: leases.Record{ClusterID: 9, Phase: leases.PhaseFormed, Members: []string{"c-a"}},
		},
		"no raft group is known: Formed all the same, so that no member forms one": {
			observed: Observed{RecordState: RecordAbsent, Members: []Member{{Name: "c-a", Claim: ClaimPresent}}},
			want:     leases.Record{Phase: leases.PhaseFormed, Members: []string{"c-a"}},
		},
		"a Formed record that lost its ID keeps the limit of its group": {
			desired:  Desired{ClusterID: 9},
			observed: Observed{RecordState: RecordFormed, Record: leases.Record{Phase: leases.PhaseFormed, MaxLearners: 1}},
			want:     leases.Record{ClusterID: 9, Phase: leases.PhaseFormed, MaxLearners: 1},
		},
		"a record rolled back to Forming may be older than the group: its limit is not believed": {
			desired:  Desired{ClusterID: 9},
			observed: Observed{RecordState: RecordForming, Record: leases.Record{Phase: leases.PhaseForming, MaxLearners: 16}},
			want:     leases.Record{ClusterID: 9, Phase: leases.PhaseFormed},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, recreated(test.desired, test.observed)); diff != "" {
				t.Errorf("record (-want +got):\n%s", diff)
			}
		})
	}
}

// TestSeedMovesOnlyBeforeClaim: the seed moves only before anything was claimed.
func TestSeedMovesOnlyBeforeClaim(t *testing.T) {
	stuck := whole(func(o *Observed) {
		o.RecordState, o.Record.Phase, o.Record.Seed, o.SeedStuck = RecordForming, leases.PhaseForming, "c-b", rules.Yes
		o.Record.ClusterID, o.Record.FormedEpoch = 0, 0
		o.Members[1].Pod = PodUnstarted
		for i := range o.Members {
			o.Members[i].Reports = leases.Member{}
		}
	})
	steps := Steps(Evaluate(Desired{Replicas: 3}, stuck))
	if len(steps) != 1 || steps[0].Rule != "seed-stuck" || steps[0].Seed != "c-c" {
		t.Errorf("got %+v, want the seed to move to the next member that started", steps)
	}
	stuck.Record.Executor = "pod"
	for _, s := range Steps(Evaluate(Desired{Replicas: 3}, stuck)) {
		if s.Kind == UpdateRecord {
			t.Errorf("a claimed seed was moved: %+v", s)
		}
	}
}
