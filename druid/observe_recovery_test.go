package druid

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
)

// The status keeps when druid first saw a loss. Where it does not say that, druid does not take the present for that time.
func TestLossBeganWhenDruidFirstSawIt(t *testing.T) {
	seen, shown := time.Date(2026, 11, 28, 12, 0, 0, 5, time.UTC), time.Date(2026, 11, 28, 11, 0, 0, 0, time.UTC)
	phase := func(p v1alpha1.RecoveryPhase) *v1alpha1.RecoveryStatus { return &v1alpha1.RecoveryStatus{Phase: p} }
	for name, test := range map[string]struct {
		recovery *v1alpha1.RecoveryStatus
		ready    string
		seen     time.Time
		want     time.Time
	}{
		"no loss":                           {nil, v1alpha1.ReasonQuorate, time.Time{}, time.Time{}},
		"the first look at a loss":          {nil, v1alpha1.ReasonQuorate, seen, seen.Truncate(time.Second)},
		"after an earlier recovery":         {phase(v1alpha1.RecoveryRecovered), v1alpha1.ReasonQuorate, seen, seen.Truncate(time.Second)},
		"the status says it":                {&v1alpha1.RecoveryStatus{LostSince: &metav1.Time{Time: shown}}, v1alpha1.ReasonQuorumLost, seen, shown},
		"an earlier version wrote it":       {phase(v1alpha1.RecoveryProposed), v1alpha1.ReasonQuorumLost, seen, time.Time{}},
		"after a restore that was released": {phase(v1alpha1.RecoveryPreparing), v1alpha1.ReasonQuorumLost, seen, time.Time{}},
		"after a pause":                     {nil, v1alpha1.ReasonResuming, seen, time.Time{}},
	} {
		status := v1alpha1.EtcdClusterStatus{Recovery: test.recovery, Conditions: []metav1.Condition{{Type: v1alpha1.ConditionReady, Reason: test.ready}}}
		if got := lostSince(status, test.seen); !got.Equal(test.want) {
			t.Errorf("%s: got %s, want %s", name, got, test.want)
		}
	}
}
