package membership

import (
	"cmp"
	"fmt"
	"slices"
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
