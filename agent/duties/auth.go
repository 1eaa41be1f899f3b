package duties

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcd-druid/druid/internal/crash"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

const (
	// authTable is the name of the decisions about authentication in the metric of all decisions.
	authTable = "agent/duties.authRules"
	// authInterval is the pause between two looks at etcd's revision of users and roles while nothing is to be done. Each look
	// is an entry of the raft log.
	authInterval = 30 * time.Second
	// authHold is how long a new leader's agent leaves a password alone that differs from its Secret, unless the Secret
	// changed meanwhile: the kubelet of its node can be later than that of the previous leader's agent. Kubelets update a
	// mounted Secret within a minute, plus the time to live of their cache, by default another one.
	authHold = 2 * time.Minute
	// authTimeout bounds the calls of one look. There can be 64 users and 64 roles, a call takes milliseconds, and the
	// comparison of a password 60 ms of CPU time of etcd.
	authTimeout = 30 * time.Second
)

// AuthPolicy is the configuration in force for authentication in etcd.
type AuthPolicy struct {
	Mode AuthMode
	// Config identifies the users and roles. Generation is that of the spec that they come from.
	Config     string
	Generation int64
	// Certificates says that clients, and so the agents, show a certificate. Without it, etcd cannot admit an agent.
	Certificates bool
	Want         membership.AuthWanted
	// Passwords is a version of the mounted Secret, which differs after each change.
	Passwords string
}

// authentication is the duty that makes the users and roles in etcd equal to those of the configuration.
type authentication struct {
	*round
	began time.Time
	// first is the version of the passwords when this leadership began.
	first  string
	opened bool
	// lookedAt is when etcd was asked last, and matches says that nothing was to be done for the policy then, at the
	// revision.
	lookedAt time.Time
	matches  bool
	last     AuthPolicy
	revision uint64
	// compared are the passwords that were compared at the revision.
	compared map[string]membership.PasswordState
	// held says that a password differs, and that the agent waits before it sets it back.
	held     bool
	rule     string
	reported leases.AuthReport
}

// Run looks at etcd's users and roles when the configuration changed, and each authInterval. All changes of one look are made
// together: each of them is idempotent, and what is left after an interruption is found by the next look.
func (r *authentication) Run(ctx context.Context, self Cluster, _ membership.View) (again bool, err error) {
	if r.Auth == nil || r.version == "" {
		return false, nil
	}
	policy := r.Auth()
	if policy.Mode == AuthUnmanaged && !policy.Certificates && !r.record.Auth.Enabled {
		return false, nil // an agent without a certificate learns of authentication because it is refused
	}
	if !r.opened {
		r.first, r.opened = policy.Passwords, true
	}
	if r.matches && samePolicy(policy, r.last) && time.Since(r.lookedAt) < r.authEvery {
		return false, nil
	}
	r.lookedAt = time.Now()
	ctx, cancel := context.WithTimeout(ctx, authTimeout)
	defer cancel()
	return r.converge(ctx, self, policy)
}

// samePolicy says whether two policies require the same. The version of the passwords stands for their content.
func samePolicy(a, b AuthPolicy) bool {
	return a.Mode == b.Mode && a.Config == b.Config && a.Passwords == b.Passwords
}

func (r *authentication) converge(ctx context.Context, self Cluster, policy AuthPolicy) (again bool, err error) {
	client, done, err := r.Dial(ctx, r.Local)
	if err != nil {
		return false, err
	}
	defer func() { done(err) }()
	now, err := membership.ReadAuthSwitch(ctx, client)
	if err != nil {
		return false, err
	}
	if r.matches && samePolicy(policy, r.last) && now.Revision == r.revision && now.Enabled == r.reported.Enabled {
		return false, nil
	}
	o := &authObservation{policy: policy, enabled: now.Enabled}
	r.observe(ctx, client, self, now, o)
	d := authRules.Decide(o.facts)
	r.noteAuth(ctx, d, o)
	acted, err := r.act(ctx, client, d, o)
	if r.AuthRead != nil && !acted && !now.Denied {
		r.AuthRead(self.ClusterID, now)
	}
	if err != nil || acted {
		r.matches = false
		return err == nil, err
	}
	r.matches = d.Verdict == authKeep && !r.held && len(o.missing) == 0 && o.facts.Admitted == rules.Yes
	r.last, r.revision = policy, now.Revision
	return false, errors.Join(o.err, r.report(ctx, d, o))
}

// act carries out the decision.
func (r *authentication) act(ctx context.Context, client *clientv3.Client, d authDecision, o *authObservation) (acted bool, err error) {
	switch d.Verdict {
	case authProvision:
		for _, step := range o.steps {
			crash.Before("change-auth")
			err := membership.ApplyAuth(ctx, client, step)
			crash.After("change-auth")
			if err != nil {
				return false, err
			}
			r.Log.InfoContext(ctx, "users and roles changed", "step", step.String(), "rule", d.Rule)
		}
		return true, nil
	case authEnable, authDisable:
		on := d.Verdict == authEnable
		crash.Before("switch-auth")
		err := membership.SwitchAuth(ctx, client, on)
		crash.After("switch-auth")
		if err != nil {
			return false, err
		}
		r.Log.WarnContext(ctx, "authentication switched", "enabled", on, "rule", d.Rule)
		return true, nil
	case authKeep, authWait:
	}
	return false, nil
}

// noteAuth counts and logs a decision once per change.
func (r *authentication) noteAuth(ctx context.Context, d authDecision, o *authObservation) {
	if r.rule == d.Rule {
		return
	}
	if r.rule = d.Rule; d.Rule == "auth-not-wanted" {
		return // as in every cluster without authentication
	}
	r.Decisions.WithLabelValues(authTable, d.Rule).Inc()
	r.Log.InfoContext(ctx, "authentication decided", "mode", string(d.Verdict), "rule", d.Rule, "reason", o.message(d))
}

// message completes the reason of a decision.
func (o *authObservation) message(d authDecision) string {
	switch d.Detail {
	case "missing":
		return d.Why + ": " + strings.Join(o.missing, "; ")
	case "member":
		return fmt.Sprintf("%s: %s", d.Why, o.member)
	default:
		return d.Why
	}
}

// report writes the state to the record, where druid reads it, if it differs from what the record has.
func (r *authentication) report(ctx context.Context, d authDecision, o *authObservation) error {
	if d.Rule == "auth-outdated" {
		return nil // the report of a newer configuration stands
	}
	r.reported = r.reportOf(d, o).Bounded()
	if r.Authenticated != nil {
		r.Authenticated(r.reported)
	}
	if r.reported == r.record.Auth {
		return nil
	}
	crash.Before("report-auth")
	version, err := r.Store.ReportAuth(ctx, r.version, r.reported)
	crash.After("report-auth")
	if err != nil {
		r.matches = false
		return r.notWritten(err)
	}
	r.version, r.record.Auth = version, r.reported
	return nil
}

// authStates are the states by the rule that decided. The others are pending.
var authStates = map[string]leases.AuthState{
	"auth-ready": leases.AuthDone, "auth-off": leases.AuthDone, "auth-denied": leases.AuthDenied, "auth-unmanaged": leases.AuthUnmanaged,
	"auth-missing": leases.AuthIncomplete, "auth-incomplete": leases.AuthIncomplete,
}

func (r *authentication) reportOf(d authDecision, o *authObservation) leases.AuthReport {
	if d.Rule == "auth-not-wanted" {
		return leases.AuthReport{}
	}
	report, before := leases.AuthReport{Config: o.policy.Config, Generation: o.policy.Generation, Enabled: o.enabled}, r.record.Auth
	if before.Config == report.Config {
		report.Generation = before.Generation // other changes of the spec cost no write
	}
	report.Users, report.Unknown = before.Users, before.Unknown
	if o.facts.Admitted == rules.Yes {
		report.Users, report.Unknown = len(o.have.Users), o.have.Unknown
		for _, name := range []string{membership.AuthRoot, membership.AuthAgent} {
			if _, exists := o.have.Users[name]; exists {
				report.Users--
			}
		}
	}
	var known bool
	if report.State, known = authStates[d.Rule]; !known {
		report.State = leases.AuthPending
	}
	if report.State != leases.AuthDone {
		report.Message = o.message(d)
	}
	return report
}
