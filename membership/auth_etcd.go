package membership

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/authpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// ErrDenied means that authentication is on, and etcd does not let the agent manage users.
var ErrDenied = errors.New("etcd does not admit the agent")

// Denied says whether etcd refused a request for lack of a user, or of a permission. A refusal came from an etcd that serves.
func Denied(err error) bool {
	return errors.Is(err, rpctypes.ErrPermissionDenied) || errors.Is(err, rpctypes.ErrUserEmpty)
}

// AuthSwitch is whether authentication is on, and etcd's revision of users and roles.
type AuthSwitch struct {
	Enabled  bool
	Revision uint64
	// Denied says that etcd does not admit the agent. Then authentication is on.
	Denied bool
}

// ReadAuthSwitch asks through raft. Since 3.7, etcd answers every client.
func ReadAuthSwitch(ctx context.Context, client *clientv3.Client) (AuthSwitch, error) {
	status, err := client.AuthStatus(ctx)
	switch {
	case unadmitted(err):
		return AuthSwitch{Enabled: true, Denied: true}, nil
	case err != nil:
		return AuthSwitch{}, fmt.Errorf("auth status: %w", err)
	}
	return AuthSwitch{Enabled: status.Enabled, Revision: status.AuthRevision}, nil
}

// unadmitted says whether etcd refused a request that only an administrator may make. The user that it may not find is that of
// the certificate.
func unadmitted(err error) bool { return Denied(err) || errors.Is(err, rpctypes.ErrUserNotFound) }

func denied(err error) error {
	if Denied(err) {
		return fmt.Errorf("%w: %w", ErrDenied, err)
	}
	return err
}

// ReadAuth reads the wanted users and roles. The passwords are unknown.
func ReadAuth(ctx context.Context, client *clientv3.Client, want AuthWanted, now AuthSwitch) (AuthState, error) {
	s := AuthState{Enabled: now.Enabled, Revision: now.Revision, Users: map[string]AuthUser{}, Roles: map[string]AuthPermissions{}}
	users, err := client.UserList(ctx)
	if unadmitted(err) {
		err = fmt.Errorf("%w: %w", ErrDenied, err)
	}
	if err != nil {
		return s, fmt.Errorf("user list: %w", err)
	}
	for _, name := range users.Users {
		if _, wanted := want.Users[name]; !wanted {
			if name != AuthRoot && name != AuthAgent {
				s.Unknown++
			}
			continue
		}
		user, err := client.UserGet(ctx, name)
		if errors.Is(err, rpctypes.ErrUserNotFound) {
			continue // deleted meanwhile
		}
		if err != nil {
			return s, fmt.Errorf("user get %s: %w", name, denied(err))
		}
		s.Users[name] = AuthUser{Roles: user.Roles}
	}
	roles, err := client.RoleList(ctx)
	if err != nil {
		return s, fmt.Errorf("role list: %w", denied(err))
	}
	for _, name := range roles.Roles {
		if _, wanted := want.Roles[name]; !wanted {
			continue
		}
		role, err := client.RoleGet(ctx, name)
		if errors.Is(err, rpctypes.ErrRoleNotFound) {
			continue // deleted meanwhile
		}
		if err != nil {
			return s, fmt.Errorf("role get %s: %w", name, denied(err))
		}
		permissions := AuthPermissions{}
		for _, p := range role.Perm {
			permissions[AuthRange{string(p.Key), string(p.RangeEnd)}] |= accessOf(p.PermType)
		}
		s.Roles[name] = permissions
	}
	return s, nil
}

// permissionTypes are etcd's types.
var permissionTypes = map[AuthAccess]authpb.Permission_Type{
	AuthReads: authpb.READ, AuthWrites: authpb.WRITE, AuthReads | AuthWrites: authpb.READWRITE,
}

func accessOf(t authpb.Permission_Type) AuthAccess {
	for access, of := range permissionTypes {
		if of == t {
			return access
		}
	}
	return 0
}

// noPasswordUser is the text of etcd's error for a user without a password. It has no code of its own
// (server/auth.ErrNoPasswordUser).
const noPasswordUser = "no password user"

// ComparePassword asks etcd to authenticate the user, which is the only way to compare a password, and the only one that
// stores nothing. It works only while authentication is on. The token of a successful attempt is not used. etcd spends
// about 60 ms of CPU time for each comparison (bcrypt).
func ComparePassword(ctx context.Context, client *clientv3.Client, name string, want WantedUser) (PasswordState, error) {
	password := string(want.Password)
	if want.Login == LoginCertificate {
		password = rand.Text() // a user without passwords is known by etcd's error
	}
	_, err := client.Authenticate(ctx, name, password)
	switch {
	case err == nil:
		return PasswordEqual, nil
	case errors.Is(err, rpctypes.ErrAuthFailed):
		return PasswordDiffers, nil
	case strings.Contains(err.Error(), noPasswordUser):
		return PasswordNone, nil
	default:
		return PasswordUnknown, fmt.Errorf("authenticate %s: %w", name, err)
	}
}

// alreadySo are errors of etcd that mean that a step was done before.
var alreadySo = []error{
	rpctypes.ErrRoleAlreadyExist, rpctypes.ErrUserAlreadyExist, rpctypes.ErrRoleNotGranted, rpctypes.ErrPermissionNotGranted,
}

// ApplyAuth makes one change. It succeeds if it was made before.
func ApplyAuth(ctx context.Context, client *clientv3.Client, s AuthStep) error {
	err := applyAuth(ctx, client, s)
	if err == nil || slices.ContainsFunc(alreadySo, func(known error) bool { return errors.Is(err, known) }) {
		return nil
	}
	if s.Kind == DeleteUser && errors.Is(err, rpctypes.ErrUserNotFound) {
		return nil
	}
	return fmt.Errorf("%s: %w", s, denied(err))
}

func applyAuth(ctx context.Context, client *clientv3.Client, s AuthStep) (err error) {
	switch s.Kind {
	case AddRole:
		_, err = client.RoleAdd(ctx, s.Role)
	case GrantPermission:
		_, err = client.RoleGrantPermission(ctx, s.Role, s.Range.Key, s.Range.End, clientv3.PermissionType(permissionTypes[s.Access]))
	case RevokePermission:
		_, err = client.RoleRevokePermission(ctx, s.Role, s.Range.Key, s.Range.End)
	case AddUser:
		_, err = client.UserAddWithOptions(ctx, s.User, string(s.Password), &clientv3.UserAddOptions{NoPassword: s.Password == ""})
	case DeleteUser:
		_, err = client.UserDelete(ctx, s.User)
	case ChangePassword:
		_, err = client.UserChangePassword(ctx, s.User, string(s.Password))
	case GrantRole:
		_, err = client.UserGrantRole(ctx, s.User, s.Role)
	case RevokeRole:
		_, err = client.UserRevokeRole(ctx, s.User, s.Role)
	default:
		err = fmt.Errorf("unknown step %q", s.Kind)
	}
	return err
}

// String describes the step without a password.
func (s AuthStep) String() string {
	switch s.Kind {
	case AddRole:
		return "role add " + s.Role
	case GrantPermission:
		return fmt.Sprintf("role grant-permission %s %q %q", s.Role, s.Range.Key, s.Range.End)
	case RevokePermission:
		return fmt.Sprintf("role revoke-permission %s %q %q", s.Role, s.Range.Key, s.Range.End)
	case AddUser:
		return "user add " + s.User
	case DeleteUser:
		return "user delete " + s.User
	case ChangePassword:
		return "user passwd " + s.User
	case GrantRole:
		return fmt.Sprintf("user grant-role %s %s", s.User, s.Role)
	case RevokeRole:
		return fmt.Sprintf("user revoke-role %s %s", s.User, s.Role)
	default:
		return string(s.Kind)
	}
}

// SwitchAuth turns authentication on or off. It succeeds if it is so already.
func SwitchAuth(ctx context.Context, client *clientv3.Client, on bool) (err error) {
	if on {
		if _, err = client.AuthEnable(ctx); err != nil {
			return fmt.Errorf("auth enable: %w", denied(err))
		}
		return nil
	}
	if _, err = client.AuthDisable(ctx); err != nil {
		return fmt.Errorf("auth disable: %w", denied(err))
	}
	return nil
}

// Password of a user. It prints as (password), so that no log and no error contains it.
type Password string

const redacted = "(password)"

// String returns no part of the password.
func (Password) String() string { return redacted }

// GoString returns no part of the password.
func (Password) GoString() string { return redacted }

// LogValue returns no part of the password.
func (Password) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalJSON returns no part of the password.
func (Password) MarshalJSON() ([]byte, error) { return []byte(`"` + redacted + `"`), nil }

// maxPassword is the number of bytes from which bcrypt, with which etcd stores a password, accepts none.
const maxPassword = 72

// Problem says why etcd would not accept the password, or returns an empty string.
func (p Password) Problem() string {
	switch {
	case p == "":
		return "is missing in the Secret, or empty"
	case len(p) > maxPassword:
		return fmt.Sprintf("has %d bytes, and etcd accepts at most %d", len(p), maxPassword)
	default:
		return ""
	}
}
