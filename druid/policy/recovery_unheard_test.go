package policy

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
)

// outOfService declares the node of a member out of service: its volume is lost.
func (x *rescue) outOfService(i int) {
	x.away(i)
	x.member(i).Node = NodeOutOfService
}

// Members whose agents do not reach the API server can serve clients. If their nodes are declared out of service later, nothing shows when
// they stopped, so the announced loss is not all.
func TestLossThatNoAgentReported(t *testing.T) {
	const says = "did not reach the API server after 2026-11-24T12:00:00Z"
	for name, test := range map[string]struct {
		change    func(*rescue)
		says      string
		automatic bool
	}{
		"two nodes are out of service": {func(x *rescue) { x.outOfService(1); x.outOfService(2) }, "members demo-b, demo-c " + says, false},
		"one of two agents reports that its disk is empty": {
			func(x *rescue) { x.outOfService(1); x.report(2, leases.DiskEmpty) }, "", true},
		"one is away, and given up": {func(x *rescue) { x.outOfService(1); x.away(2) }, "members demo-b, demo-c " + says, false},
		"both agents report":        {func(x *rescue) { x.report(1, leases.DiskEmpty); x.report(2, leases.DiskEmpty) }, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			x := newRescue(3)
			x.d.Recovery.Automatic = true
			test.change(x)
			r := x.decide()
			if r.plan == nil || strings.Contains(r.plan.words(), says) != (test.says != "") || !strings.Contains(r.plan.words(), test.says) {
				t.Errorf("by rule %s, the plan is %+v", r.rule, r.plan)
			}
			if r.is(recoverPrepare) != test.automatic {
				t.Errorf("rule %s, want a recovery without an approval: %t", r.rule, test.automatic)
			}
		})
	}
}

// If druid sees the loss later than an expired Lease shows it, the cluster can have served meanwhile without the API server.
func TestLossThatDruidSawLate(t *testing.T) {
	for name, test := range map[string]struct {
		seen    time.Duration
		seconds int64
	}{
		"not known":                    {0, 15},
		"when the Leases expired":      {time.Minute, 15},
		"a moment later":               {2 * time.Minute, 15},
		"after five minutes":           {5 * time.Minute, 15 + 240},
		"when clocks differ":           {-time.Minute, 15},
		"after an hour without an API": {time.Hour, 15 + 3540},
	} {
		t.Run(name, func(t *testing.T) {
			x := newRescue(3)
			x.d.Recovery.Automatic, x.d.Recovery.Expiry = true, time.Minute
			if test.seen != 0 {
				x.o.LostSince = rescueStart.Add(test.seen)
			}
			x.report(1, leases.DiskEmpty)
			x.report(2, leases.DiskEmpty)
			r := x.decide()
			if r.plan == nil || r.plan.seconds != test.seconds {
				t.Fatalf("by rule %s, the plan is %+v, want a loss of %d s", r.rule, r.plan, test.seconds)
			}
			if within := test.seconds <= defaultMaxSeconds; r.plan.within(x.d.Recovery) != within {
				t.Errorf("the loss is within the bounds: %t", !within)
			}
		})
	}
}

// A druid that starts does not know for a while whether the quorum returned. The status keeps what it says, and the time of the loss.
func TestTimeOfALossIsKept(t *testing.T) {
	x := newRescue(3)
	x.o.LostSince = rescueStart.Add(time.Minute)
	x.report(1, leases.DiskEmpty)
	x.report(2, leases.DiskEmpty)
	status := func(before *v1alpha1.RecoveryStatus) *v1alpha1.RecoveryStatus {
		return recoveryStatus(Evaluate(x.d, x.o), before, metav1.NewTime(rescueStart))
	}
	shown := status(nil)
	if shown.Phase != v1alpha1.RecoveryProposed || shown.LostSince == nil || !shown.LostSince.Time.Equal(x.o.LostSince) {
		t.Fatalf("the status is %+v", shown)
	}
	x.d.Recovery.Automatic = true
	if s := status(shown); s == nil || s.LostSince == nil || !x.decide().is(recoverPrepare) {
		t.Errorf("the status is %+v while druid cannot write its order", s)
	}
	x.d.Recovery.Automatic, x.o.QuorumOverdue = false, false
	for i := range 3 {
		x.member(i).Liveness = leases.Unknown
	}
	if s := status(shown); s.Phase != shown.Phase || s.Message != shown.Message || s.LostSince == nil {
		t.Errorf("the status is %+v while druid does not know, want %+v", s, shown)
	}
	x.member(0).Liveness = leases.Live
	if s := status(shown); s != nil {
		t.Errorf("the status is %+v when the quorum is back", s)
	}
}

// The status can have the time of an earlier loss: the quorum returned and was lost again while druid did not run.
func TestEarlierLossIsNoTimeOfThisOne(t *testing.T) {
	x := newRescue(3)
	x.d.Recovery.Automatic, x.d.Recovery.Expiry, x.o.LostSince = true, time.Minute, rescueStart.Add(-2*time.Minute)
	x.report(1, leases.DiskEmpty)
	x.report(2, leases.DiskEmpty)
	if r := x.wants(t, "propose"); !strings.Contains(r.plan.words(), "the quorum served after 2026-11-24T11:58:00Z") {
		t.Errorf("the plan says %s", r.plan.words())
	}
}
