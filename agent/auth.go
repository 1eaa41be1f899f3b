package agent

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/agent/duties"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

// passwords reads the mounted Secret with the passwords of etcd's users, again only after it changed.
type passwords struct {
	mu   sync.Mutex
	dir  string
	link string
	// content is by the name of the file.
	content map[string]membership.Password
}

// in returns the passwords in a directory, and a version that differs after each change. Without a directory there are none.
// A file that cannot be read counts as absent: the user that needs it waits.
func (p *passwords) in(dir string) (content map[string]membership.Password, version string) {
	if dir == "" {
		return nil, ""
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	// The kubelet replaces this link when the Secret changes.
	link, err := os.Readlink(filepath.Join(dir, "..data"))
	if err == nil && dir == p.dir && link == p.link {
		return p.content, link
	}
	p.dir, p.link, p.content = dir, link, map[string]membership.Password{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, ""
	}
	sum := sha256.New()
	for _, entry := range entries {
		raw, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			continue // a directory of the kubelet
		}
		p.content[entry.Name()] = membership.Password(raw)
		_, _ = fmt.Fprintf(sum, "%q %q ", entry.Name(), raw) // a hash takes everything
	}
	if link == "" { // not mounted by a kubelet
		return p.content, string(sum.Sum(nil))
	}
	return p.content, link
}

// authPolicy returns what the configuration in force requires of users and roles in etcd.
func (a *Agent) authPolicy() duties.AuthPolicy {
	live := a.live.Current()
	p := duties.AuthPolicy{
		Mode: duties.AuthUnmanaged, Config: live.Auth.Hash(), Generation: live.Generation,
		Certificates: a.options.Config.ClientTLS == config.TLSMutual,
	}
	auth := live.Auth
	if auth == nil {
		p.Want = wantedAuth(&config.Auth{}, nil)
		return p
	}
	p.Mode = duties.AuthOff
	if auth.Enabled {
		p.Mode = duties.AuthOn
	}
	content, version := a.passwords.in(auth.Passwords)
	p.Want, p.Passwords = wantedAuth(auth, content), version
	return p
}

// wantedAuth returns the users and roles that etcd should have, with those that every cluster has. The passwords are by the name
// of the file. That of the user root is root.
func wantedAuth(a *config.Auth, passwords map[string]membership.Password) membership.AuthWanted {
	root := []string{membership.AuthRoot}
	administrator := membership.WantedUser{Roles: root, MoreRoles: true}
	want := membership.AuthWanted{
		Users: map[string]membership.WantedUser{membership.AuthRoot: administrator, membership.AuthAgent: administrator},
		Roles: map[string]membership.AuthPermissions{membership.AuthRoot: nil},
	}
	if p := passwords[membership.AuthRoot]; p != "" {
		administrator.Login, administrator.Password = membership.LoginPassword, p
		want.Users[membership.AuthRoot] = administrator
	}
	for _, user := range a.Users {
		wanted := membership.WantedUser{Login: membership.LoginCertificate, Roles: slices.Clone(user.Roles)}
		if user.PasswordKey != "" {
			wanted.Login, wanted.Password = membership.LoginPassword, passwords[user.PasswordKey]
		}
		want.Users[user.Name] = wanted
	}
	for _, role := range a.Roles {
		permissions := membership.AuthPermissions{}
		for _, p := range role.Permissions {
			permissions[membership.AuthRange{Key: string(p.Key), End: string(p.RangeEnd)}] |= accessOf(p)
		}
		want.Roles[role.Name] = permissions
	}
	return want
}

func accessOf(p config.AuthPermission) (access membership.AuthAccess) {
	if p.Read {
		access |= membership.AuthReads
	}
	if p.Write {
		access |= membership.AuthWrites
	}
	return access
}

// authenticated is called when the leader's agent reports another state of authentication.
func (a *Agent) authenticated(r leases.AuthReport) {
	a.metrics.auth.Set(number(r.Enabled))
	a.metrics.unknownUsers.Set(float64(r.Unknown))
}
