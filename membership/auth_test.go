package membership

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// perms reads permissions like "r /a", "w /a /b" and "rw /a".
func perms(words ...string) AuthPermissions {
	p := AuthPermissions{}
	for _, w := range words {
		part := append(strings.Fields(w), "")
		p[AuthRange{part[1], part[2]}] = map[string]AuthAccess{"r": AuthReads, "w": AuthWrites, "rw": AuthReads | AuthWrites}[part[0]]
	}
	return p
}

// converged is what etcd has when it equals wanted.
func wantedAndConverged() (AuthWanted, AuthState) {
	admin := WantedUser{Roles: []string{"root"}, MoreRoles: true}
	want := AuthWanted{
		Users: map[string]WantedUser{
			"root": admin, "druid-agent": admin,
			"app":  {Login: LoginPassword, Password: "secret", Roles: []string{"reader", "writer"}},
			"cert": {Login: LoginCertificate, Roles: []string{"reader"}},
		},
		Roles: map[string]AuthPermissions{"root": nil, "reader": perms("r /a /b"), "writer": perms("rw /a /b", "w /lock")},
	}
	have := AuthState{
		Enabled: true,
		Users: map[string]AuthUser{
			"root": {Roles: []string{"root"}}, "druid-agent": {Roles: []string{"root"}},
			"app":  {Roles: []string{"writer", "reader"}, Password: PasswordEqual},
			"cert": {Roles: []string{"reader"}, Password: PasswordNone},
		},
		Roles: map[string]AuthPermissions{"root": {}, "reader": perms("r /a /b"), "writer": perms("rw /a /b", "w /lock")},
	}
	return want, have
}

func TestPlanAuthChangesOnlyWhatDiffers(t *testing.T) {
	user := func(name string, change func(*AuthUser)) func(*AuthWanted, *AuthState) {
		return func(_ *AuthWanted, s *AuthState) {
			u := s.Users[name]
			change(&u)
			s.Users[name] = u
		}
	}
	for name, test := range map[string]struct {
		change  func(*AuthWanted, *AuthState)
		want    []string
		missing string
	}{
		"nothing differs":              {change: func(*AuthWanted, *AuthState) {}},
		"authentication is off":        {change: func(_ *AuthWanted, s *AuthState) { s.Enabled = false }},
		"more roles of administrators": {change: user("druid-agent", func(u *AuthUser) { u.Roles = []string{"root", "x"} })},
		"an administrator without its role": {
			change: user("druid-agent", func(u *AuthUser) { u.Roles = []string{"x"} }), want: []string{"user grant-role druid-agent root"},
		},
		"a role too many": {
			change: user("cert", func(u *AuthUser) { u.Roles = []string{"reader", "x"} }), want: []string{"user revoke-role cert x"},
		},
		"another role is granted before one is revoked": {
			change: user("cert", func(u *AuthUser) { u.Roles = []string{"x"} }), want: []string{"user grant-role cert reader", "user revoke-role cert x"},
		},
		"a password that differs": {change: user("app", func(u *AuthUser) { u.Password = PasswordDiffers }), want: []string{"user passwd app"}},
		"a password that is not known": {
			change: user("app", func(u *AuthUser) { u.Password = PasswordUnknown }),
		},
		"a user that was added without a password": {
			change: user("app", func(u *AuthUser) { u.Password = PasswordNone }),
			want:   []string{"user delete app", "user add app", "user grant-role app reader", "user grant-role app writer"},
		},
		"a user that should have no password": {
			change: user("cert", func(u *AuthUser) { u.Password = PasswordDiffers }),
			want:   []string{"user delete cert", "user add cert", "user grant-role cert reader"},
		},
		"a user that is absent": {
			change: func(_ *AuthWanted, s *AuthState) { delete(s.Users, "cert") }, want: []string{"user add cert", "user grant-role cert reader"},
		},
		"a user whose password is missing": {
			change: func(w *AuthWanted, s *AuthState) {
				w.Users["app"] = WantedUser{Login: LoginPassword, Roles: []string{"reader", "writer"}}
				delete(s.Users, "app")
			},
			missing: "the password of user app is missing in the Secret, or empty",
		},
		"a user that exists, whose password is missing": {
			change: func(w *AuthWanted, s *AuthState) {
				w.Users["app"] = WantedUser{Login: LoginPassword, Roles: []string{"reader"}}
			},
			want: []string{"user revoke-role app writer"}, missing: "the password of user app is missing in the Secret, or empty",
		},
		"a password that etcd does not accept": {
			change: func(w *AuthWanted, s *AuthState) {
				w.Users["app"] = WantedUser{Login: LoginPassword, Password: Password(strings.Repeat("x", 73)), Roles: []string{"reader", "writer"}}
			},
			missing: "the password of user app has 73 bytes, and etcd accepts at most 72",
		},
		"a password for root that was added without one": {
			change: func(w *AuthWanted, s *AuthState) {
				w.Users["root"] = WantedUser{Login: LoginPassword, Password: "x", Roles: []string{"root"}, MoreRoles: true}
				s.Users["root"] = AuthUser{Roles: []string{"root"}, Password: PasswordNone}
			},
			missing: "user root has no password, and etcd gives it one only while authentication is off",
		},
		"a role that is absent": {
			change: func(_ *AuthWanted, s *AuthState) { delete(s.Roles, "reader") },
			want:   []string{"role add reader", `role grant-permission reader "/a" "/b"`},
		},
		"a permission that is absent": {
			change: func(_ *AuthWanted, s *AuthState) { delete(s.Roles["writer"], AuthRange{"/lock", ""}) },
			want:   []string{`role grant-permission writer "/lock" ""`},
		},
		"a permission of another type": {
			change: func(_ *AuthWanted, s *AuthState) { s.Roles["writer"][AuthRange{"/lock", ""}] = AuthReads },
			want:   []string{`role grant-permission writer "/lock" ""`},
		},
		"a permission of another type whose key has two": {
			change: func(_ *AuthWanted, s *AuthState) {
				s.Roles["reader"] = perms("rw /a /b", "r /a")
			},
			want: []string{
				`role revoke-permission reader "/a" "/b"`, `role grant-permission reader "/a" "/b"`, `role revoke-permission reader "/a" ""`,
			},
		},
		"a permission too many": {
			change: func(_ *AuthWanted, s *AuthState) { s.Roles["reader"][AuthRange{"/x", ""}] = AuthReads },
			want:   []string{`role revoke-permission reader "/x" ""`},
		},
		"nothing is there": {
			change: func(w *AuthWanted, s *AuthState) {
				*s = AuthState{}
				w.Users, w.Roles = maps.Clone(w.Users), map[string]AuthPermissions{"root": nil}
				delete(w.Users, "app")
				w.Users["cert"] = WantedUser{Login: LoginCertificate}
			},
			want: []string{
				"role add root", "user add root", "user grant-role root root", "user add druid-agent", "user grant-role druid-agent root", "user add cert",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			want, have := wantedAndConverged()
			test.change(&want, &have)
			steps, missing := PlanAuth(want, have)
			var got []string
			for _, s := range steps {
				got = append(got, s.String())
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("steps (-want +got):\n%s", diff)
			}
			if m := strings.Join(missing, "; "); m != test.missing {
				t.Errorf("missing %q, want %q", m, test.missing)
			}
			// Whatever is there, the steps lead to what is wanted, and then there is nothing left to do.
			for _, s := range steps {
				take(&have, s)
			}
			if again, _ := PlanAuth(want, have); len(again) != 0 {
				t.Errorf("steps are left: %v", again)
			}
		})
	}
}

// take does to the state what etcd does.
func take(s *AuthState, step AuthStep) {
	if s.Users == nil {
		s.Users, s.Roles = map[string]AuthUser{}, map[string]AuthPermissions{}
	}
	u := s.Users[step.User]
	switch step.Kind {
	case AddRole:
		s.Roles[step.Role] = AuthPermissions{}
		return
	case GrantPermission:
		s.Roles[step.Role][step.Range] = step.Access
		return
	case RevokePermission:
		delete(s.Roles[step.Role], step.Range)
		return
	case DeleteUser:
		delete(s.Users, step.User)
		return
	case AddUser:
		u = AuthUser{Password: PasswordNone}
		if step.Password != "" {
			u.Password = PasswordEqual
		}
	case ChangePassword:
		u.Password = PasswordEqual
	case GrantRole:
		u.Roles = append(slices.Clone(u.Roles), step.Role)
	case RevokeRole:
		u.Roles = slices.DeleteFunc(slices.Clone(u.Roles), func(r string) bool { return r == step.Role })
	}
	s.Users[step.User] = u
}

func TestPasswordsAreNotPrinted(t *testing.T) {
	want := AuthWanted{Users: map[string]WantedUser{"app": {Login: LoginPassword, Password: "geheim"}}}
	steps, _ := PlanAuth(want, AuthState{})
	var log strings.Builder
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "want", want, "steps", steps, "password", want.Users["app"].Password)
	raw, err := json.Marshal(want.Users)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{fmt.Sprint(want, steps), fmt.Sprintf("%+v %#v %q", want, steps, steps), log.String(), string(raw)} {
		if strings.Contains(text, "geheim") {
			t.Errorf("the password is printed: %s", text)
		}
	}
}
