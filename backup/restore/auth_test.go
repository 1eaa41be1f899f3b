package restore

import (
	"errors"
	"slices"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/storage/schema"

	"github.com/etcd-druid/druid/test/member"
)

// A backup in which authentication is on is restored with all its users, and with the user of the agents.
func TestTheAgentsAreAdmittedToRestoredData(t *testing.T) {
	for _, minor := range member.Minors {
		for name, known := range map[string]bool{"without the user": false, "with the user, which has another role": true} {
			t.Run(minor+" "+name, func(t *testing.T) {
				t.Parallel()
				s := newSource(t, minor, 3)
				s.put("color", "blue")
				users := s.m.Client
				_, err1 := users.RoleAdd(t.Context(), "root")
				_, err2 := users.UserAdd(t.Context(), "root", "secret")
				_, err3 := users.UserGrantRole(t.Context(), "root", "root")
				_, err4 := users.RoleAdd(t.Context(), "a-role")
				if known {
					_, err := users.UserAddWithOptions(t.Context(), "druid-agent", "", &clientv3.UserAddOptions{NoPassword: true})
					_, more := users.UserGrantRole(t.Context(), "druid-agent", "a-role")
					err4 = errors.Join(err4, err, more)
				}
				if err := errors.Join(err1, err2, err3, err4); err != nil {
					t.Fatal(err)
				}
				file := s.fileOf("auth.db", changed(t, s.saved(), put(schema.Auth, schema.AuthEnabledKeyName, "\x01")))
				g := newTarget(t)
				c := g.ofFile(s, file, minor)
				c.Auth, c.Bump = RefuseAuth, 1000
				if _, err := Run(t.Context(), c); !errors.Is(err, ErrAuth) {
					t.Fatalf("without spec.auth: %v", err)
				}
				c.Auth = AdmitAgent
				if _, err := Run(t.Context(), c); err != nil {
					t.Fatal(err)
				}
				m := g.start(minor, member.Options{User: "root", Password: "secret"})
				status, err := m.Client.AuthStatus(t.Context())
				if err != nil || !status.Enabled {
					t.Fatalf("authentication is %+v: %v", status, err)
				}
				agent, err := m.Client.UserGet(t.Context(), "druid-agent")
				if err != nil || !slices.Contains(agent.Roles, "root") || slices.Contains(agent.Roles, "a-role") != known {
					t.Errorf("the user of the agents is %+v: %v", agent, err)
				}
				if got, err := m.Client.Get(t.Context(), "color"); err != nil || len(got.Kvs) != 1 {
					t.Errorf("the key is lost: %v", err)
				}
			})
		}
	}
}
