package plan

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/rules"
)

var (
	expansionWords = []string{"not looked at", "allows it", "refuses it"}
	roomWords      = []string{"not known", "is enough", "grows", "grows when mounted", "stays small"}
	growWords      = map[verdict]string{keep: "Keep", wait: "Wait", held: "Held", create: "Grow"}
)

func TestClaimsGrowOnlyWhereTheyMayAndMust(t *testing.T) {
	count := map[string]int{}
	for _, claim := range bits(anyClaim) {
		for _, leaves := range bits(anyAnswer) {
			for _, asks := range bits(anyAnswer) {
				for _, bound := range bits(anyAnswer) {
					for _, expands := range bits(anyExpansion) {
						f := growFacts{claim, leaves, asks, bound, expands}
						v, rule := judgeGrowth(f)
						count[rule]++
						may := claim == ClaimPresent && bound == rules.Yes && expands == ExpansionAllowed
						switch {
						case v == create && !may:
							t.Errorf("%+v: %s asks for what the API server refuses, or of a claim that is not the cluster's", f, rule)
						case v == create && (asks == rules.Yes || leaves == rules.Yes):
							t.Errorf("%+v: %s grows what is large enough, or of no use any more", f, rule)
						case v != create && may && asks == rules.No && leaves == rules.No:
							t.Errorf("%+v: %s leaves a claim small that may grow", f, rule)
						}
					}
				}
			}
		}
	}
	var names []string
	var rows [][]string
	for _, r := range growRows {
		names = append(names, r.name)
		rows = append(rows, []string{
			r.name, cell(r.claim, anyClaim, claimWords), answer(r.leaves), answer(r.asks), answer(r.bound),
			cell(r.expands, anyExpansion, expansionWords), bold(growWords[r.verdict]), r.why,
		})
	}
	fired(t, count, names...)
	section(t, "grow", "The size that a claim requests: druid/plan.growRows",
		[]string{"claim", "leaves", "requests enough", "bound", "StorageClass", "verdict", "why"}, rows, count)
}

func TestGrowth(t *testing.T) {
	small := func(o *Observed) {
		for i := range o.Members {
			m := &o.Members[i]
			m.ClaimSmall, m.ClaimBound, m.Expands, m.Room, m.Settled, m.Make = true, true, ExpansionAllowed, RoomGrows, true, MakeCurrent
		}
	}
	asked := func(o *Observed) {
		small(o)
		for i := range o.Members {
			o.Members[i].ClaimSmall, o.Members[i].Expands = false, ExpansionUnknown
		}
	}
	tests := map[string]struct {
		o             Observed
		want          []string
		reason, words string
	}{
		"all claims at once, and evictions stay allowed": {
			o:      whole(small),
			want:   []string{"GrowClaim claim-small c-a", "GrowClaim claim-small c-b", "GrowClaim claim-small c-c"},
			reason: v1alpha1.ReasonRollingUpdate, words: "0 of 3 members updated: the volume of member c-a grows to spec.storage.size",
		},
		"a class that refuses": {
			o: whole(small, func(o *Observed) {
				for i := range o.Members {
					o.Members[i].Expands, o.Members[i].Room = ExpansionRefused, RoomStays
				}
			}),
			want: []string{}, reason: v1alpha1.ReasonReconciled, words: "3 members, as asked for",
		},
		"it waits for the drivers": {
			o: whole(asked), want: []string{}, reason: v1alpha1.ReasonRollingUpdate,
			words: "0 of 3 members updated: the volume of member c-a grows to spec.storage.size",
		},
		"an outdated Pod waits for its volume": {
			o: edited(func(o *Observed) { o.Members[0].Room = RoomGrows }), want: []string{}, reason: v1alpha1.ReasonRollingUpdate,
			words: "0 of 3 members updated: the volume of member c-a grows to spec.storage.size",
		},
		"also the leader's": {
			o: edited(brought(0), brought(2), func(o *Observed) {
				o.Members[1].Room = RoomGrows
			}), want: []string{}, reason: v1alpha1.ReasonRollingUpdate, words: "2 of 3 members updated: the volume of member c-b grows to spec.storage.size",
		},
		"but not for one that stays small": {
			o:    edited(func(o *Observed) { o.Members[0].Room = RoomStays }),
			want: []string{"LabelPod leaving c-a serving=false", "DeletePod outdated c-a"}, reason: v1alpha1.ReasonRollingUpdate,
			words: "0 of 3 members updated: member c-a is started again",
		},
		"nor for one that another Pod makes grow": {
			o:    edited(func(o *Observed) { o.Members[0].Room = RoomMounts }),
			want: []string{"LabelPod leaving c-a serving=false", "DeletePod outdated c-a"}, reason: v1alpha1.ReasonRollingUpdate,
			words: "0 of 3 members updated: member c-a is started again",
		},
		"one without etcd is replaced while its volume grows": {
			o: edited(func(o *Observed) {
				m := &o.Members[2]
				m.EtcdReady, m.Settled, m.Idle, m.Blocked, m.Room = false, false, true, true, RoomGrows
			}),
			want: []string{"LabelPod leaving c-c serving=false", "DeletePod outdated-idle c-c"}, reason: v1alpha1.ReasonRollingUpdate,
			words: "0 of 3 members updated: member c-c is started again",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			d := Desired{Replicas: 3}
			if diff := cmp.Diff(test.want, short(Steps(d, test.o))); diff != "" {
				t.Errorf("steps (-want +got):\n%s", diff)
			}
			s := Status(d, test.o, v1alpha1.EtcdClusterStatus{ClusterID: "9"}, nil, 1, metav1.Time{})
			if c := condition(s, v1alpha1.ConditionProgressing); c.Reason != test.reason || c.Message != test.words {
				t.Errorf("condition is %s %q, want %s %q", c.Reason, c.Message, test.reason, test.words)
			}
		})
	}
}
