package policy

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
)

func TestALostQuorumIsAlwaysAProblem(t *testing.T) {
	checkTable(t, quorumRows, "quorum", "What Degraded says about a lost quorum without a plan: druid/policy.quorumRows",
		func(f quorumFacts, d rules.Decision[quorumNotice]) string {
			switch said := d.Verdict != noticeNone; {
			case said && f.missed == rules.No:
				return "calls a quorum lost that is not, or only restarts"
			case said && f.resumes == rules.Yes:
				return "calls the start of a paused cluster a problem"
			case !said && f.missed == rules.Yes && f.resumes == rules.No:
				return "hides a lost quorum"
			}
			return ""
		})
}

func TestDegradedNamesALostQuorum(t *testing.T) {
	down := func(o *Observed) {
		for i := range 2 {
			o.Members[i].EtcdReady = false
		}
		for i := range o.Members {
			o.Members[i].Liveness = leases.Stale
		}
	}
	renewed := func(o *Observed) { o.Members[0].Liveness = leases.Live }
	missed := func(o *Observed) { o.QuorumMissed = true }
	three := Desired{Replicas: 3, ClusterID: 9}
	tests := map[string]struct {
		desired Desired
		change  []func(*Observed)
		reason  string
		words   string
	}{
		"it serves":     {three, nil, v1alpha1.ReasonAsExpected, "no problem is known"},
		"a restart":     {three, []func(*Observed){down}, v1alpha1.ReasonAsExpected, ""},
		"it may return": {three, []func(*Observed){down, missed}, v1alpha1.ReasonQuorumLost, "it returns when enough members are ready again"},
		"an agent goes on renewing its Lease": {three, []func(*Observed){down, missed, renewed}, v1alpha1.ReasonQuorumLost,
			"druid has no plan for a recovery. Repair the members that status.members shows"},
		"a cause is known": {three, []func(*Observed){down, missed, func(o *Observed) {
			o.Problems = []Problem{{Reason: v1alpha1.ReasonNodeLost, Member: "c-a", Message: "gone"}}
		}}, v1alpha1.ReasonNodeLost, "member c-a: gone; the quorum is lost."},
		"a member cannot start": {three, []func(*Observed){down, missed, func(o *Observed) {
			o.Problems = []Problem{{Reason: v1alpha1.ReasonMemberStuck, Member: "c-a", Message: "stuck"}}
		}}, v1alpha1.ReasonQuorumLost, "status.recovery; member c-a: stuck"},
		"a pause ends": {Desired{Replicas: 3, ClusterID: 9, PauseReported: true}, []func(*Observed){down, missed}, v1alpha1.ReasonAsExpected, ""},
		"a recovery is under way": {three, []func(*Observed){down, missed, func(o *Observed) {
			o.RecordState, o.Record.Phase = RecordRecovering, leases.PhaseRecovering
			o.Record.Recovery = &leases.Recovery{Epoch: 2, Nonce: "a", Mode: leases.RecoverSurvivor, Stage: leases.StagePrepare, Chosen: "c-c"}
		}}, v1alpha1.ReasonQuorumLost, "a recovery is under way: see status.recovery"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			status := Status(Evaluate(test.desired, whole(test.change...)), v1alpha1.EtcdClusterStatus{ClusterID: "9"}, nil, 1, metav1.Now())
			got := condition(status, v1alpha1.ConditionDegraded)
			if got.Reason != test.reason || !strings.Contains(strings.ToLower(got.Message), strings.ToLower(test.words)) {
				t.Errorf("got %s %q, want %s %q", got.Reason, got.Message, test.reason, test.words)
			}
		})
	}
}

// TestWhatALostQuorumWaitsFor: Progressing says what the repair waits for, and Degraded does not repeat what each member tried.
func TestWhatALostQuorumWaitsFor(t *testing.T) {
	const tried = "no quorum responds, and this member has no data that it can resume: dial 10.0.0.7: refused"
	for name, test := range map[string]struct {
		change      func(*rescue)
		progressing metav1.ConditionStatus
		reason      string
		words       string
		degraded    string
	}{
		"a plan needs your approval": {func(x *rescue) { x.backedUp().report(0, leases.DiskEmpty) }, metav1.ConditionFalse, v1alpha1.ReasonRecoveryProposed,
			"Bring members back, or approve the plan in status.recovery.", v1alpha1.ReasonRecoveryProposed},
		"there is nothing to recover from": {func(x *rescue) { x.report(0, leases.DiskEmpty) }, metav1.ConditionFalse, v1alpha1.ReasonRecoveryRefused,
			"Condition Degraded says what to do.", v1alpha1.ReasonRecoveryRefused},
		"it was lost a moment ago": {func(x *rescue) { x.backedUp().o.QuorumOverdue = false }, metav1.ConditionTrue, v1alpha1.ReasonRepairingMember,
			"Member demo-a is being restarted or replaced.", v1alpha1.ReasonQuorumLost},
	} {
		t.Run(name, func(t *testing.T) {
			x := newRescue(3)
			x.gone(1)
			x.gone(2)
			x.o.QuorumMissed = true
			x.member(0).Reports.Rule, x.member(0).Reports.Reason = ruleAwaitQuorum, tried
			x.o.Problems = []Problem{{Reason: v1alpha1.ReasonMemberCannotStart, Member: "demo-a", Message: tried}}
			test.change(x)
			status := Status(Evaluate(x.d, x.o), v1alpha1.EtcdClusterStatus{ClusterID: "7"}, nil, 1, metav1.Now())
			is := condition(status, v1alpha1.ConditionProgressing)
			if is.Status != test.progressing || is.Reason != test.reason || !strings.Contains(is.Message, test.words) {
				t.Errorf("Progressing is %s %s %q, want %s %s %q", is.Status, is.Reason, is.Message, test.progressing, test.reason, test.words)
			}
			if is := condition(status, v1alpha1.ConditionDegraded); is.Reason != test.degraded || strings.Contains(is.Message, "dial") {
				t.Errorf("Degraded is %s %q, want %s", is.Reason, is.Message, test.degraded)
			}
			x.member(0).Reports.Rule = "volume-unusable"
			status = Status(Evaluate(x.d, x.o), v1alpha1.EtcdClusterStatus{ClusterID: "7"}, nil, 1, metav1.Now())
			if is := condition(status, v1alpha1.ConditionDegraded); !strings.Contains(is.Message, tried) {
				t.Errorf("Degraded is %q, want the reason of a member that does not wait for a quorum", is.Message)
			}
		})
	}
}

func TestAPauseIsNoLostQuorum(t *testing.T) {
	down := func(o *Observed) {
		for i := range o.Members {
			o.Members[i].EtcdReady = false
		}
	}
	for name, test := range map[string]struct {
		desired Desired
		change  func(*Observed)
		want    bool
	}{
		"members are down":   {Desired{Replicas: 3}, down, true},
		"it serves":          {Desired{Replicas: 3}, func(*Observed) {}, false},
		"it is paused":       {Desired{}, down, false},
		"it is deleted":      {Desired{Replicas: 3, Deleted: true}, down, false},
		"it never formed":    {Desired{Replicas: 3}, func(o *Observed) { down(o); o.RecordState = RecordForming }, false},
		"nodes do not reply": {Desired{Replicas: 3}, func(o *Observed) { down(o); o.Members[0].NodeLost, o.Members[1].NodeLost = true, true }, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := QuorumMissing(test.desired, whole(test.change)); got != test.want {
				t.Errorf("missing: %t, want %t", got, test.want)
			}
		})
	}
}
