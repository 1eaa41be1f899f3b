package membership

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/etcd-druid/druid/internal/rules"
)

// The users and the role that every cluster with authentication has. etcd requires that the user root has the role root.
const (
	AuthRoot  = "root"
	AuthAgent = "druid-agent"
)

// AuthAccess is what a permission permits.
type AuthAccess uint8

// The kinds of access, as bits.
const (
	AuthReads AuthAccess = 1 << iota
	AuthWrites
)

// AuthRange is a range of keys: from Key up to End, which is not part of it. Without End it is Key alone.
type AuthRange struct{ Key, End string }

// AuthPermissions is what a role permits.
type AuthPermissions map[AuthRange]AuthAccess

// AuthLogin is how a user authenticates.
type AuthLogin uint8

// The ways of a user.
const (
	// LoginAny: druid sets no password, and leaves one alone.
	LoginAny AuthLogin = iota
	LoginCertificate
	LoginPassword
)

// WantedUser is a user as it should be.
type WantedUser struct {
	Login    AuthLogin
	Password Password
	// Roles of the user. MoreRoles leaves other roles alone.
	Roles     []string
	MoreRoles bool
}

// AuthWanted are the users and roles that a cluster should have.
type AuthWanted struct {
	Users map[string]WantedUser
	Roles map[string]AuthPermissions
}

// PasswordState compares the password that etcd has with the wanted one.
type PasswordState uint8

// The states.
const (
	// PasswordUnknown: etcd cannot tell, because authentication is off, or was not asked.
	PasswordUnknown PasswordState = iota
	PasswordEqual
	// PasswordDiffers: the user has another password, or one that it should not have.
	PasswordDiffers
	// PasswordNone: the user has no password, and etcd gives it none any more.
	PasswordNone
)

// AuthUser is a user in etcd.
type AuthUser struct {
	Roles    []string
	Password PasswordState
}

// AuthState is what etcd has. Users and Roles contain only the wanted ones.
type AuthState struct {
	Enabled bool
	// Revision is etcd's revision of users and roles. Every change of them increases it.
	Revision uint64
	Users    map[string]AuthUser
	Roles    map[string]AuthPermissions
	// Unknown is the number of users that are not in the spec.
	Unknown int
}

// AuthStepKind is a change of users and roles.
type AuthStepKind string

// The changes.
const (
	AddRole          AuthStepKind = "AddRole"
	GrantPermission  AuthStepKind = "GrantPermission"
	RevokePermission AuthStepKind = "RevokePermission"
	AddUser          AuthStepKind = "AddUser"
	DeleteUser       AuthStepKind = "DeleteUser"
	ChangePassword   AuthStepKind = "ChangePassword"
	GrantRole        AuthStepKind = "GrantRole"
	RevokeRole       AuthStepKind = "RevokeRole"
)

// AuthStep is one change.
type AuthStep struct {
	Kind       AuthStepKind
	User, Role string
	Range      AuthRange
	Access     AuthAccess
	// Password of a user that is added or changed. A user without one authenticates by certificate.
	Password Password
}

// PlanAuth returns the changes that lead from what etcd has to what is wanted, in their order, and what cannot be done now.
// It changes nothing that is equal, because every change invalidates the tokens of all clients. A permission or a role is
// granted before another one is taken away, so that no client lacks access meanwhile. It depends on nothing else.
func PlanAuth(want AuthWanted, have AuthState) (steps []AuthStep, missing []string) {
	for _, role := range sorted(want.Roles) {
		steps = append(steps, planRole(role, want.Roles[role], have.Roles)...)
	}
	for _, user := range sorted(want.Users) {
		more, problem := planUser(user, want.Users[user], have)
		steps = append(steps, more...)
		if problem != "" {
			missing = append(missing, problem)
		}
	}
	return steps, missing
}

func planRole(name string, want AuthPermissions, roles map[string]AuthPermissions) (steps []AuthStep) {
	have, exists := roles[name]
	if !exists {
		steps = append(steps, AuthStep{Kind: AddRole, Role: name})
	}
	if name == AuthRoot {
		return steps // it permits everything, whatever its permissions are
	}
	for _, r := range sortedRanges(want) {
		if have[r] == want[r] {
			continue
		}
		if have[r] != 0 && sharesKey(have, r) {
			// etcd finds a permission that it changes by its key alone, and would add a second one.
			steps = append(steps, AuthStep{Kind: RevokePermission, Role: name, Range: r})
		}
		steps = append(steps, AuthStep{Kind: GrantPermission, Role: name, Range: r, Access: want[r]})
	}
	for _, r := range sortedRanges(have) {
		if want[r] == 0 {
			steps = append(steps, AuthStep{Kind: RevokePermission, Role: name, Range: r})
		}
	}
	return steps
}

func sharesKey(have AuthPermissions, r AuthRange) bool {
	for other := range have {
		if other.Key == r.Key && other != r {
			return true
		}
	}
	return false
}

// planUser returns the changes of a user, and what cannot be done.
func planUser(name string, want WantedUser, have AuthState) (steps []AuthStep, problem string) {
	user, exists := have.Users[name]
	if want.Login == LoginPassword {
		if problem = want.Password.Problem(); problem != "" {
			problem = fmt.Sprintf("the password of user %s %s", name, problem)
			if !exists {
				return nil, problem
			}
		}
	}
	switch {
	case !exists:
		steps, user = append(steps, AuthStep{Kind: AddUser, User: name, Password: want.Password}), AuthUser{}
	case problem != "" || want.Login == LoginAny:
	case replaced(want.Login, user.Password):
		if name == AuthRoot && have.Enabled {
			return rolesOf(name, want, user), "user root has no password, and etcd gives it one only while authentication is off"
		}
		steps = append(steps, AuthStep{Kind: DeleteUser, User: name}, AuthStep{Kind: AddUser, User: name, Password: want.Password})
		user = AuthUser{}
	case want.Login == LoginPassword && user.Password == PasswordDiffers:
		steps = append(steps, AuthStep{Kind: ChangePassword, User: name, Password: want.Password})
	}
	return append(steps, rolesOf(name, want, user)...), problem
}

// replaced says whether the user must be deleted and added again: etcd takes no password away, and gives none to a user that
// was added without one.
func replaced(login AuthLogin, state PasswordState) bool {
	return login == LoginPassword && state == PasswordNone || login == LoginCertificate && (state == PasswordDiffers || state == PasswordEqual)
}

func rolesOf(name string, want WantedUser, have AuthUser) (steps []AuthStep) {
	for _, role := range slices.Sorted(slices.Values(want.Roles)) {
		if !slices.Contains(have.Roles, role) {
			steps = append(steps, AuthStep{Kind: GrantRole, User: name, Role: role})
		}
	}
	for _, role := range slices.Sorted(slices.Values(have.Roles)) {
		if !want.MoreRoles && !slices.Contains(want.Roles, role) {
			steps = append(steps, AuthStep{Kind: RevokeRole, User: name, Role: role})
		}
	}
	return steps
}

// sorted returns the names, those that etcd needs first.
func sorted[T any](all map[string]T) []string {
	names := make([]string, 0, len(all))
	for name := range all {
		names = append(names, name)
	}
	rank := map[string]int{AuthRoot: -2, AuthAgent: -1}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(rank[a], rank[b]), cmp.Compare(a, b)) })
	return names
}

func sortedRanges(all AuthPermissions) []AuthRange {
	ranges := make([]AuthRange, 0, len(all))
	for r := range all {
		ranges = append(ranges, r)
	}
	slices.SortFunc(ranges, func(a, b AuthRange) int { return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.End, b.End)) })
	return ranges
}

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

// AuthFacts is the complete input of DecideAuth.
type AuthFacts struct {
	// Mode that the configuration requires.
	Mode AuthMode `fact:"required"`
	// Current: the configuration is not older than the one that a leader's agent applied before.
	Current rules.Answer `fact:"configuration current"`
	// Authoritative is as in DefragFacts.
	Authoritative rules.Answer `fact:"firm record"`
	// Enabled: authentication is on. Admitted: etcd lets the agent manage users.
	Enabled  rules.Answer `fact:"on"`
	Admitted rules.Answer `fact:"agent admitted"`
	// Equal: no user and no role must be changed. Complete: nothing is missing for a user, such as its password.
	Equal    rules.Answer
	Complete rules.Answer
	// Certified: the Lease of every member shows that its agent has a client certificate.
	Certified rules.Answer `fact:"all agents have certificates"`
}

// AuthVerdict is the next step of the leader's agent.
type AuthVerdict string

// The verdicts.
const (
	AuthKeep      AuthVerdict = "Keep"
	AuthWait      AuthVerdict = "Wait"
	AuthProvision AuthVerdict = "Provision" // change users and roles
	AuthEnable    AuthVerdict = "Enable"
	AuthDisable   AuthVerdict = "Disable"
)

// AuthDecision includes the name of the rule.
type AuthDecision = rules.Decision[AuthVerdict]

// authRules is the complete policy on authentication. The first match wins. The default is to wait. The progress is read from
// etcd, so that the next leader's agent can continue.
var authRules = rules.New(AuthWait, []rules.Row[AuthFacts, AuthVerdict]{
	{Name: "auth-unknown", When: AuthFacts{Enabled: rules.Unknown}, Verdict: AuthWait,
		Why: "etcd did not answer whether authentication is on"},
	{Name: "auth-outdated", When: AuthFacts{Current: notYes}, Verdict: AuthWait,
		Why: "the agent has an older configuration than the one that was applied; the kubelet updates it within about a minute"},
	{Name: "auth-denied", When: AuthFacts{Enabled: rules.Yes, Admitted: rules.No}, Verdict: AuthWait,
		Why: "authentication is on, and etcd does not admit the agents; give the user druid-agent the role root: etcdctl user add druid-agent --no-user-password; " +
			"etcdctl user grant-role druid-agent root"},
	{Name: "auth-unread", When: AuthFacts{Admitted: notYes}, Verdict: AuthWait,
		Why: "the users and roles could not be read"},
	{Name: "auth-unmanaged", When: AuthFacts{Mode: AuthUnmanaged, Enabled: rules.Yes}, Verdict: AuthKeep,
		Why: "authentication was turned on by hand; set spec.auth to let druid manage users and roles"},
	{Name: "auth-not-wanted", When: AuthFacts{Mode: AuthUnmanaged}, Verdict: AuthKeep,
		Why: "authentication is off, and is not configured"},
	{Name: "auth-record", When: AuthFacts{Authoritative: notYes}, Verdict: AuthWait,
		Why: "the members are certain only with a cluster record that was read just now, has the phase Formed and lists the deciding member"},
	{Name: "auth-disable", When: AuthFacts{Mode: AuthOff, Enabled: rules.Yes}, Verdict: AuthDisable,
		Why: "the configuration turns authentication off"},
	{Name: "auth-off", When: AuthFacts{Mode: AuthOff}, Verdict: AuthKeep,
		Why: "authentication is off"},
	{Name: "auth-provision", When: AuthFacts{Equal: rules.No}, Verdict: AuthProvision,
		Why: "a user or a role differs from the configuration"},
	{Name: "auth-compare", When: AuthFacts{Equal: rules.Unknown}, Verdict: AuthWait,
		Why: "the users and roles could not be compared"},
	{Name: "auth-incomplete", When: AuthFacts{Enabled: rules.No, Complete: notYes}, Verdict: AuthWait,
		Why: "a user cannot be created yet, and without it its clients would lose access", Detail: "missing"},
	{Name: "auth-certificates", When: AuthFacts{Enabled: rules.No, Certified: notYes}, Verdict: AuthWait,
		Why: "the Lease of a member does not show a client certificate, and its agent would lose access", Detail: "member"},
	{Name: "auth-enable", When: AuthFacts{Enabled: rules.No}, Verdict: AuthEnable,
		Why: "users and roles are complete, and the agents have their certificates"},
	{Name: "auth-missing", When: AuthFacts{Complete: notYes}, Verdict: AuthKeep,
		Why: "a user is not as configured", Detail: "missing"},
	{Name: "auth-ready", Verdict: AuthKeep,
		Why: "authentication is on, and users and roles are as configured"},
})

// DecideAuth returns a decision for every combination of facts.
func DecideAuth(f AuthFacts) AuthDecision { return authRules.Decide(f) }
