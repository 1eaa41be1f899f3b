package policy

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/rules"
)

func TestClaimsGrowOnlyWhereTheyMayAndMust(t *testing.T) {
	checkTable(t, growRows, "grow", "The size that a PVC requests: druid/policy.growRows", func(f growFacts, d rules.Decision[growVerdict]) string {
		v := d.Verdict
		may := f.claim == ClaimPresent && f.bound == rules.Yes && f.expands == ExpansionAllowed
		switch {
		case v == growClaim && !may:
			return "asks for what the API server refuses, or of a claim that is not the cluster's"
		case v == growClaim && (f.asks == rules.Yes || f.leaves == rules.Yes):
			return "grows what is large enough, or of no use any more"
		case v != growClaim && may && f.asks == rules.No && f.leaves == rules.No:
			return "leaves a claim small that may grow"
		}
		return ""
	})
}

func TestGrowth(t *testing.T) {
	small := func(o *Observed) {
		for i := range o.Members {
			m := &o.Members[i]
			m.ClaimSmall, m.ClaimBound, m.Expands, m.Room, m.Stable, m.Make = true, true, ExpansionAllowed, RoomGrows, true, MakeCurrent
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
			want: []string{}, reason: v1alpha1.ReasonReconciled, words: "3 members as requested",
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
			words: "0 of 3 members updated: member c-a is being restarted",
		},
		"nor for one that another Pod makes grow": {
			o:    edited(func(o *Observed) { o.Members[0].Room = RoomMounts }),
			want: []string{"LabelPod leaving c-a serving=false", "DeletePod outdated c-a"}, reason: v1alpha1.ReasonRollingUpdate,
			words: "0 of 3 members updated: member c-a is being restarted",
		},
		"one without etcd is replaced while its volume grows": {
			o: edited(func(o *Observed) {
				m := &o.Members[2]
				m.EtcdReady, m.Stable, m.Idle, m.Blocked, m.Room = false, false, true, true, RoomGrows
			}),
			want: []string{"LabelPod leaving c-c serving=false", "DeletePod outdated-idle c-c"}, reason: v1alpha1.ReasonRollingUpdate,
			words: "0 of 3 members updated: member c-c is being restarted",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			d := Desired{Replicas: 3}
			checkSteps(t, test.want, short(Steps(Evaluate(d, test.o))))
			s := Status(Evaluate(d, test.o), v1alpha1.EtcdClusterStatus{ClusterID: "9"}, nil, 1, metav1.Time{})
			if c := condition(s, v1alpha1.ConditionProgressing); c.Reason != test.reason || c.Message != AsSentences(test.words) {
				t.Errorf("condition is %s %q, want %s %q", c.Reason, c.Message, test.reason, test.words)
			}
		})
	}
}
