package config

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// PasswordsDir is where the agent has the Secret with the passwords of etcd's users.
const PasswordsDir = "/run/druid/passwords"

// Auth is what spec.auth requires of the users and roles in etcd. It has no passwords.
type Auth struct {
	Enabled bool `json:"enabled"`
	// Passwords is the directory with the mounted Secret, empty if there is none.
	Passwords string     `json:"passwords,omitempty"`
	Users     []AuthUser `json:"users,omitempty"`
	Roles     []AuthRole `json:"roles,omitempty"`
}

// AuthUser is a user of etcd.
type AuthUser struct {
	// Name is that of the user in etcd.
	Name string `json:"name"`
	// PasswordKey is the name of the file with the password, empty for a user that authenticates by certificate.
	PasswordKey string   `json:"passwordKey,omitempty"`
	Roles       []string `json:"roles,omitempty"`
}

// AuthRole is a role of etcd.
type AuthRole struct {
	Name        string           `json:"name"`
	Permissions []AuthPermission `json:"permissions,omitempty"`
}

// AuthPermission permits the access to Key, or to the keys from Key up to RangeEnd, which is not part of the range.
type AuthPermission struct {
	Key      []byte `json:"key"`
	RangeEnd []byte `json:"rangeEnd,omitempty"`
	Read     bool   `json:"read,omitempty"`
	Write    bool   `json:"write,omitempty"`
}

// Hash identifies the users and roles. It is empty if druid does not manage them.
func (a *Auth) Hash() string {
	if a == nil {
		return ""
	}
	raw, err := json.Marshal(a)
	if err != nil {
		return "" // strings and bytes always have a form in JSON
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:8])
}

// reserved are the users that every cluster with authentication has. The first one is also a role.
var reserved = []string{"root", "druid-agent"}

// Validate returns an error for users and roles that would lock the agents out, or that etcd cannot have.
func (a *Auth) Validate() error {
	if a == nil {
		return nil
	}
	var errs []error
	for _, user := range a.Users {
		if user.Name == "" || slices.Contains(reserved, user.Name) {
			errs = append(errs, fmt.Errorf("auth.users has %q, want a name other than root and druid-agent", user.Name))
		}
	}
	for _, role := range a.Roles {
		if role.Name == "" || role.Name == reserved[0] {
			errs = append(errs, fmt.Errorf("auth.roles has %q, want a name other than root", role.Name))
		}
		for _, p := range role.Permissions {
			if len(p.Key) == 0 || !p.Read && !p.Write {
				errs = append(errs, fmt.Errorf("auth.roles has a permission of role %q without a key or an access", role.Name))
			}
		}
	}
	return errors.Join(errs...)
}
