package policy

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
)

func TestAuthIsReadyOnlyWhenAnAgentReportsIt(t *testing.T) {
	checkTable(t, authReadyRows, "auth-ready", "Condition AuthReady: druid/policy.authReadyRows",
		func(f authFacts, d rules.Decision[conditionVerdict]) string {
			switch status := d.Verdict.status; {
			case status == metav1.ConditionTrue && f.reports&(authDone|authUnmanaged) == 0:
				return "what no agent reports is called ready"
			case status == metav1.ConditionTrue && f.refused == rules.Yes:
				return "a cluster whose agents are refused is called ready"
			case d.Verdict.reason == v1alpha1.ReasonAuthEnabled && f.wanted != AuthOn:
				return "authentication is called enabled although it is not required"
			}
			return ""
		})
}

func TestConditionAuthReadyNamesWhatIsWrong(t *testing.T) {
	report := func(state leases.AuthState, config, message string) func(*Desired, *Observed) {
		return func(d *Desired, o *Observed) {
			d.Auth, d.AuthConfig = AuthOn, "new"
			o.Record.Auth = leases.AuthReport{Config: config, Enabled: true, Users: 2, Unknown: 1, State: state, Message: message}
		}
	}
	refuses := func(logIn bool) func(*Desired, *Observed) {
		return func(d *Desired, o *Observed) {
			d.AgentsLogIn, o.Members[0].Reports.Refused = logIn, "user name is empty"
		}
	}
	for name, c := range map[string]struct {
		change func(d *Desired, o *Observed)
		status metav1.ConditionStatus
		reason string
		says   string
	}{
		"all is done": {report(leases.AuthDone, "new", ""), metav1.ConditionTrue, v1alpha1.ReasonAuthEnabled,
			"Authentication is on, and users and roles are as spec.auth requires."},
		"a report about older users": {report(leases.AuthDone, "old", ""), metav1.ConditionUnknown, v1alpha1.ReasonAuthPending,
			"The leader's agent has not applied spec.auth yet."},
		"the agent waits":          {report(leases.AuthPending, "new", "it waits"), metav1.ConditionUnknown, v1alpha1.ReasonAuthPending, "It waits."},
		"a state of a newer agent": {report("Other", "new", "it waits"), metav1.ConditionUnknown, v1alpha1.ReasonAuthPending, "It waits."},
		"a password is missing": {report(leases.AuthIncomplete, "new", "a password is missing"), metav1.ConditionFalse,
			v1alpha1.ReasonAuthIncomplete, "A password is missing."},
		"the agents are not admitted": {report(leases.AuthDenied, "old", "add the user"), metav1.ConditionFalse, v1alpha1.ReasonAuthAccessDenied,
			"Add the user. Until then"},
		"an etcd refuses its agent, which has a certificate": {refuses(true), metav1.ConditionFalse, v1alpha1.ReasonAuthAccessDenied,
			"the etcd of c-a refuses its agent. The members serve, but druid cannot repair, back up or upgrade the cluster. Give the user druid-agent the role root: "},
		"an etcd refuses its agent, which has no certificate": {refuses(false), metav1.ConditionFalse, v1alpha1.ReasonAuthAccessDenied,
			"Agents cannot log in, because spec.tls.client is not set, or has the mode ServerOnly. Turn authentication off: etcdctl auth disable. Then set"},
		"authentication is off, as wanted": {func(d *Desired, o *Observed) {
			report(leases.AuthDone, "new", "")(d, o)
			d.Auth, o.Record.Auth.Enabled = AuthOff, false
		}, metav1.ConditionTrue, v1alpha1.ReasonAuthDisabled, "Authentication is off."},
		"someone turned it on": {func(d *Desired, o *Observed) {
			report(leases.AuthUnmanaged, "", "set spec.auth")(d, o)
			d.Auth, d.AuthConfig = AuthUnset, ""
		}, metav1.ConditionTrue, v1alpha1.ReasonAuthUnmanaged, "Set spec.auth."},
	} {
		t.Run(name, func(t *testing.T) {
			d := Desired{Replicas: 1, Auth: AuthUnset}
			o := Observed{RecordState: RecordFormed, Record: leases.Record{Phase: leases.PhaseFormed, Members: []string{"c-a"}}}
			o.Members = []Member{{Name: "c-a", Listed: true, Lease: LeaseOurs, Readable: true, Liveness: leases.Live}}
			c.change(&d, &o)
			e := Evaluate(d, o)
			got, applies := authReady(messageContext{Evaluation: e})
			if message := AsSentences(got.Message); !applies || got.Status != c.status || got.Reason != c.reason || !strings.Contains(message, c.says) {
				t.Errorf("the condition is %s %s: %s", got.Status, got.Reason, message)
			}
			if s := authStatus(e, nil); o.Record.Auth.Users > 0 && (s == nil || s.Users != 2 || s.UnknownUsers != 1 || s.Enabled != o.Record.Auth.Enabled) {
				t.Errorf("the status is %+v", s)
			}
		})
	}
	e := Evaluate(Desired{}, Observed{RecordState: RecordFormed})
	if _, applies := authReady(messageContext{Evaluation: e}); applies || authStatus(e, &v1alpha1.AuthStatus{}) != nil {
		t.Error("a cluster without authentication has the condition, or the status")
	}
}
