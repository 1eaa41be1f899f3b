package duties

import (
	"context"
	"errors"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/membership"
)

// AuthMode is what the configuration requires.
type AuthMode uint8

// The modes.
const (
	// AuthUnmanaged: users and roles are not those of the configuration.
	AuthUnmanaged AuthMode = 1 << iota
	AuthOn
	AuthOff
)

func (m AuthMode) String() string { return rules.Word(m, "not managed", "on", "off") }

// authFacts is the complete input of authRules.
type authFacts struct {
	// Mode that the configuration requires.
	Mode AuthMode `fact:"required"`
	// Current: the configuration is not older than the one that a leader's agent applied before.
	Current rules.Answer `fact:"configuration current"`
	// Authoritative is as in membership.DefragFacts.
	Authoritative rules.Answer `fact:"record authoritative"`
	// Enabled: authentication is on. Admitted: etcd lets the agent manage users.
	Enabled  rules.Answer `fact:"on"`
	Admitted rules.Answer `fact:"agent admitted"`
	// Equal: no user and no role must be changed. Complete: nothing is missing for a user, such as its password.
	Equal    rules.Answer
	Complete rules.Answer
	// Certified: the Lease of every member shows that its agent has a client certificate.
	Certified rules.Answer `fact:"all agents have certificates"`
}

// authVerdict is the next step of the leader's agent.
type authVerdict string

// The verdicts.
const (
	authKeep      authVerdict = "Keep"
	authWait      authVerdict = "Wait"
	authProvision authVerdict = "Provision" // change users and roles
	authEnable    authVerdict = "Enable"
	authDisable   authVerdict = "Disable"
)

// notYes is an answer that is not yes.
const notYes = rules.No | rules.Unknown

// authDecision includes the name of the rule.
type authDecision = rules.Decision[authVerdict]

// authRules is the complete policy on authentication. The first match wins. The default is to wait. The progress is read from
// etcd, so that the next leader's agent can continue.
var authRules = rules.New(authWait, []rules.Row[authFacts, authVerdict]{
	{Name: "auth-unknown", When: authFacts{Enabled: rules.Unknown}, Verdict: authWait,
		Why: "etcd did not answer whether authentication is on"},
	{Name: "auth-outdated", When: authFacts{Current: notYes}, Verdict: authWait,
		Why: "the agent has an older configuration than the one that was applied; the kubelet updates it within about a minute"},
	{Name: "auth-denied", When: authFacts{Enabled: rules.Yes, Admitted: rules.No}, Verdict: authWait,
		Why: "authentication is on, and etcd does not admit the agents; give the user druid-agent the role root: etcdctl user add druid-agent --no-user-password; " +
			"etcdctl user grant-role druid-agent root"},
	{Name: "auth-unread", When: authFacts{Admitted: notYes}, Verdict: authWait,
		Why: "the users and roles could not be read"},
	{Name: "auth-unmanaged", When: authFacts{Mode: AuthUnmanaged, Enabled: rules.Yes}, Verdict: authKeep,
		Why: "authentication was turned on by hand; set spec.auth to let druid manage users and roles"},
	{Name: "auth-not-wanted", When: authFacts{Mode: AuthUnmanaged}, Verdict: authKeep,
		Why: "authentication is off, and is not configured"},
	{Name: "auth-record", When: authFacts{Authoritative: notYes}, Verdict: authWait,
		Why: "the members are certain only with a cluster record that was read just now, has the phase Formed and lists the deciding member"},
	{Name: "auth-disable", When: authFacts{Mode: AuthOff, Enabled: rules.Yes}, Verdict: authDisable,
		Why: "the configuration turns authentication off"},
	{Name: "auth-off", When: authFacts{Mode: AuthOff}, Verdict: authKeep,
		Why: "authentication is off"},
	{Name: "auth-provision", When: authFacts{Equal: rules.No}, Verdict: authProvision,
		Why: "a user or a role differs from the configuration"},
	{Name: "auth-compare", When: authFacts{Equal: rules.Unknown}, Verdict: authWait,
		Why: "the users and roles could not be compared"},
	{Name: "auth-incomplete", When: authFacts{Enabled: rules.No, Complete: notYes}, Verdict: authWait,
		Why: "a user cannot be created yet, and without it its clients would lose access", Detail: "missing"},
	{Name: "auth-certificates", When: authFacts{Enabled: rules.No, Certified: notYes}, Verdict: authWait,
		Why: "the Lease of a member does not show a client certificate, and its agent would lose access", Detail: "member"},
	{Name: "auth-enable", When: authFacts{Enabled: rules.No}, Verdict: authEnable,
		Why: "users and roles are complete, and the agents have their certificates"},
	{Name: "auth-missing", When: authFacts{Complete: notYes}, Verdict: authKeep,
		Why: "a user is not as configured", Detail: "missing"},
	{Name: "auth-ready", Verdict: authKeep,
		Why: "authentication is on, and users and roles are as configured"},
})

// authObservation is one look.
type authObservation struct {
	policy  AuthPolicy
	enabled bool
	facts   authFacts
	have    membership.AuthState
	steps   []membership.AuthStep
	// missing is what a user lacks. member is the one whose Lease shows no certificate.
	missing []string
	member  string
	// err is what could not be read.
	err error
}

// observe reads what the decision needs. What cannot be read is unknown.
func (r *authentication) observe(ctx context.Context, client *clientv3.Client, self Cluster, now membership.AuthSwitch, o *authObservation) {
	o.facts = authFacts{
		Mode: o.policy.Mode, Enabled: rules.AnswerOf(now.Enabled), Admitted: rules.Unknown, Equal: rules.Unknown,
		Complete: rules.Unknown, Certified: rules.Unknown, Authoritative: r.authoritative(self),
		Current: rules.AnswerOf(o.policy.Generation >= r.record.Auth.Generation),
	}
	if now.Denied {
		o.facts.Admitted = rules.No
		return
	}
	o.have, o.err = membership.ReadAuth(ctx, client, o.policy.Want, now)
	switch {
	case errors.Is(o.err, membership.ErrDenied):
		o.facts.Admitted, o.err = rules.No, nil
		return
	case o.err != nil:
		return
	}
	o.facts.Admitted = rules.Yes
	if o.policy.Mode != AuthOn || o.facts.Current != rules.Yes {
		return
	}
	if now.Enabled {
		if o.err = r.compare(ctx, client, o); o.err != nil {
			return
		}
	}
	o.steps, o.missing = membership.PlanAuth(o.policy.Want, o.have)
	o.facts.Equal, o.facts.Complete = rules.AnswerOf(len(o.steps) == 0), rules.AnswerOf(len(o.missing) == 0)
	if !now.Enabled && len(o.steps) == 0 {
		o.facts.Certified, o.member = r.certified(ctx)
	}
}

// compare fills in how the passwords compare. It compares each once for a revision, and again when the wanted one changed.
func (r *authentication) compare(ctx context.Context, client *clientv3.Client, o *authObservation) error {
	if r.revision != o.have.Revision || !samePolicy(o.policy, r.last) || r.compared == nil {
		r.compared = map[string]membership.PasswordState{}
	}
	r.revision, r.last = o.have.Revision, o.policy
	r.held = false
	hold := o.policy.Passwords == r.first && time.Since(r.began) < r.authHold
	for name, want := range o.policy.Want.Users {
		user, exists := o.have.Users[name]
		if !exists || want.Login == membership.LoginAny || want.Login == membership.LoginPassword && want.Password.Problem() != "" {
			continue
		}
		state, known := r.compared[name]
		if !known {
			var err error
			if state, err = membership.ComparePassword(ctx, client, name, want); err != nil {
				return err
			}
			r.compared[name] = state
		}
		user.Password = state
		if hold && want.Login == membership.LoginPassword && state == membership.PasswordDiffers {
			user.Password = membership.PasswordUnknown
			r.held = true
		}
		o.have.Users[name] = user
	}
	return nil
}

// certified says whether the Lease of every member shows that its agent has a certificate. It returns the name of one that does
// not.
func (r *authentication) certified(ctx context.Context) (all rules.Answer, member string) {
	if others, listed := r.record.Others(); r.record.Adopted() && (!listed || len(others) > 0) {
		return rules.Unknown, "of the joined cluster" // it admits no agent then
	}
	for _, name := range r.record.Members {
		lease, err := r.Store.Member(ctx, name)
		switch {
		case err != nil:
			return rules.Unknown, name
		case lease.TLS.Client.Issuer == "":
			return rules.No, name
		}
	}
	return rules.AnswerOf(len(r.record.Members) > 0), ""
}
