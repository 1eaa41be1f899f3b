package policy

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
)

// AuthWanted is what spec.auth requires.
type AuthWanted uint8

// What is required. The zero value means that spec.auth is not set.
const (
	AuthUnset AuthWanted = 1 << iota
	AuthOff
	AuthOn
)

func (a AuthWanted) String() string { return rules.Word(a, "not set", "off", "on") }

// authReport is what the leader's agent reports about authentication.
type authReport uint8

const (
	authSilent     authReport = 1 << iota // nothing, or something about another configuration
	authDone                              // everything is as the configuration requires
	authPending                           // it is about to act, or waits
	authIncomplete                        // something is missing for a user
	authDenied                            // etcd does not admit the agents
	authUnmanaged                         // authentication is on without a configuration
)

func (r authReport) String() string {
	return rules.Word(r, "nothing", "done", "pending", "incomplete", "denied", "not managed")
}

// authFacts is the complete input of authReadyRows.
type authFacts struct {
	wanted  AuthWanted  `fact:"spec.auth"`
	reports authReport  `fact:"the leader's agent reports"`
	refused rules.YesNo `fact:"a member's agent is refused"`
}

// authReadyRows decide condition AuthReady.
var authReadyRows = rules.New(conditionVerdict{metav1.ConditionUnknown, v1alpha1.ReasonAuthPending}, []rules.Row[authFacts, conditionVerdict]{
	{Name: "denied", When: authFacts{reports: authDenied}, Verdict: conditionVerdict{metav1.ConditionFalse, v1alpha1.ReasonAuthAccessDenied}},
	{Name: "refused", When: authFacts{refused: rules.Yes}, Verdict: conditionVerdict{metav1.ConditionFalse, v1alpha1.ReasonAuthAccessDenied}},
	{Name: "unmanaged", When: authFacts{wanted: AuthUnset, reports: authUnmanaged}, Verdict: conditionVerdict{metav1.ConditionTrue, v1alpha1.ReasonAuthUnmanaged}},
	{Name: "incomplete", When: authFacts{wanted: AuthOn, reports: authIncomplete},
		Verdict: conditionVerdict{metav1.ConditionFalse, v1alpha1.ReasonAuthIncomplete}},
	{Name: "enabled", When: authFacts{wanted: AuthOn, reports: authDone}, Verdict: conditionVerdict{metav1.ConditionTrue, v1alpha1.ReasonAuthEnabled}},
	{Name: "disabled", When: authFacts{wanted: AuthOff, reports: authDone}, Verdict: conditionVerdict{metav1.ConditionTrue, v1alpha1.ReasonAuthDisabled}},
	{Name: "pending", Verdict: conditionVerdict{metav1.ConditionUnknown, v1alpha1.ReasonAuthPending}},
})

// authReady is condition AuthReady. A cluster has it with spec.auth, and while authentication is on or etcd refuses an agent.
func authReady(p messageContext) (metav1.Condition, bool) {
	refused := p.refusals()
	f := authFacts{wanted: p.Auth, reports: p.authReport(), refused: rules.YesNoOf(len(refused) > 0)}
	if f.wanted == 0 {
		f.wanted = AuthUnset
	}
	if f.wanted == AuthUnset && f.reports == authSilent && f.refused == rules.No {
		return metav1.Condition{}, false
	}
	d := authReadyRows.Decide(f)
	return metav1.Condition{Status: d.Verdict.status, Reason: d.Verdict.reason, Message: authSentence(d.Rule, p, refused)}, true
}

// authReport classifies the report on the record. One about other users and roles does not count.
func (p messageContext) authReport() authReport {
	r := p.Record.Auth
	switch {
	case p.RecordState&usableRecord == 0:
		return authSilent
	case r.State == leases.AuthDenied:
		return authDenied
	case r.Config != p.AuthConfig:
		return authSilent
	}
	switch r.State {
	case leases.AuthDone:
		return authDone
	case leases.AuthIncomplete:
		return authIncomplete
	case leases.AuthUnmanaged:
		return authUnmanaged
	case "":
		return authSilent
	default:
		return authPending
	}
}

// refusals are the members whose etcd serves and refuses its agent.
func (p messageContext) refusals() (all []string) {
	for _, m := range p.listed {
		if m.Lease == LeaseOurs && m.Readable && m.Liveness == leases.Live && m.Reports.Refused != "" {
			all = append(all, m.Name)
		}
	}
	return all
}

func authSentence(rule string, p messageContext, refused []string) string {
	report := p.Record.Auth
	switch rule {
	case "refused":
		return refusedSentence(refused, p.AgentsLogIn)
	case "denied":
		return report.Message + ". Until then druid cannot repair, back up or upgrade the cluster"
	case "unmanaged", "incomplete":
		return report.Message
	case "enabled":
		return "authentication is on, and users and roles are as spec.auth requires"
	case "disabled":
		return "authentication is off"
	default:
		if report.Message != "" && report.Config == p.AuthConfig {
			return report.Message
		}
		return "the leader's agent has not applied spec.auth yet"
	}
}

// refusedSentence says what to do about members whose etcd refuses its agent. logIn says that agents can log in with a certificate.
func refusedSentence(refused []string, logIn bool) string {
	state := fmt.Sprintf("authentication is on, and the etcd of %s refuses its agent. The members serve, but druid cannot repair, back up or "+
		"upgrade the cluster. ",
		strings.Join(refused, ", "))
	if logIn {
		return state + "Give the user druid-agent the role root: etcdctl user add druid-agent --no-user-password; etcdctl user grant-role druid-agent root"
	}
	return state + "Agents cannot log in, because spec.tls.client is not set, or has the mode ServerOnly. Turn authentication off: etcdctl auth disable. " +
		"Then set spec.tls.client with the mode Mutual, spec.tls.peer and spec.auth"
}

// authStatus returns status.auth after before. What is unknown now stays as it was.
func authStatus(e Evaluation, before *v1alpha1.AuthStatus) *v1alpha1.AuthStatus {
	r := e.Record.Auth
	switch {
	case e.RecordState&usableRecord == 0:
		return before
	case r == (leases.AuthReport{}) && e.Auth&(AuthOn|AuthOff) == 0:
		return nil
	}
	return &v1alpha1.AuthStatus{Enabled: r.Enabled, Users: int32(r.Users), UnknownUsers: int32(r.Unknown), Message: r.Message}
}
