package duties

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
	"github.com/etcd-druid/druid/test/member"
)

func eachMinor(t *testing.T, test func(*testing.T, *authCluster)) {
	t.Helper()
	t.Parallel()
	for _, minor := range member.Minors {
		t.Run(minor, func(t *testing.T) {
			t.Parallel()
			test(t, newAuthCluster(t, minor))
		})
	}
}

// appAndCert requires a user with a password and one with a certificate.
func appAndCert(password membership.Password) func(*AuthPolicy) {
	return func(p *AuthPolicy) {
		p.Mode, p.Want, p.Passwords = AuthOn, wanted(), string("version of "+password[:1])
		p.Want.Users["app"] = membership.WantedUser{Login: membership.LoginPassword, Password: password, Roles: []string{"app"}}
		p.Want.Users["cert"] = membership.WantedUser{Login: membership.LoginCertificate, Roles: []string{"app"}}
		p.Want.Roles["app"] = membership.AuthPermissions{{Key: "/app/", End: "/app0"}: membership.AuthReads | membership.AuthWrites}
	}
}

func TestAuthenticationIsTurnedOnAndOff(t *testing.T) {
	eachMinor(t, func(t *testing.T, c *authCluster) {
		stop := c.lead(time.Hour)
		defer stop()
		c.require(func(p *AuthPolicy) {
			appAndCert("1-first")(p)
			p.Want.Users["app"] = membership.WantedUser{Login: membership.LoginPassword}
		})
		c.reports(leases.AuthIncomplete, false, "the password of user app is missing")
		c.require(appAndCert("1-first"))
		c.reports(leases.AuthPending, false, "does not show a client certificate, and its agent would lose access: m")
		if c.status().Enabled {
			t.Fatal("authentication is on before the agents have certificates")
		}
		c.certify()
		if r := c.reports(leases.AuthDone, true, ""); r.Users != 2 || r.Unknown != 0 {
			t.Errorf("it reports %+v", r)
		}
		c.leaves(c.status())
		c.may("app by its password", c.mustBe("outsider", "app", "1-first"))
		c.may("cert by its certificate", c.mustBe("cert", "", ""))
		c.mayNot(c.mustBe("outsider", "", ""))
		if _, err := c.as("outsider", "app", "wrong"); !errors.Is(err, rpctypes.ErrAuthFailed) {
			t.Errorf("a wrong password: %v", err)
		}
		c.require(func(p *AuthPolicy) { p.Mode = AuthOff })
		c.reports(leases.AuthDone, false, "")
		c.leaves(c.status())
		c.may("anyone", c.mustBe("outsider", "", ""))
		stop()
		if strings.Contains(c.log.String(), "1-first") || strings.Contains(c.etcd.Log(), "1-first") {
			t.Error("a log has the password")
		}
	})
}

// What is equal is never written, no matter which member leads, and drift is corrected.
func TestAuthenticationConverges(t *testing.T) {
	eachMinor(t, func(t *testing.T, c *authCluster) {
		c.certify()
		c.require(appAndCert("1-first"))
		stop := c.lead(0)
		c.reports(leases.AuthDone, true, "")
		token := c.mustBe("outsider", "app", "1-first")
		c.may("app", token)
		before := c.status().Revision
		stop()
		stop = c.lead(0)
		c.looksAgain()
		if after := c.status().Revision; after != before {
			t.Errorf("the revision of users and roles went from %d to %d, and nothing had changed", before, after)
		}
		c.may("app with the same token", token)

		root := c.mustBe("root", "", "")
		ctx := t.Context()
		for name, drift := range map[string]func() error{
			"a role too many": func() error { _, err := root.UserGrantRole(ctx, "cert", "root"); return err },
			"a role too few":  func() error { _, err := root.UserRevokeRole(ctx, "app", "app"); return err },
			"a permission too many": func() error {
				_, err := root.RoleGrantPermission(ctx, "app", "/", "0", clientv3.PermissionType(clientv3.PermRead))
				return err
			},
			"a permission too few": func() error { _, err := root.RoleRevokePermission(ctx, "app", "/app/", "/app0"); return err },
			"another type": func() error {
				_, err := root.RoleGrantPermission(ctx, "app", "/app/", "/app0", clientv3.PermissionType(clientv3.PermRead))
				return err
			},
			"a deleted user":   func() error { _, err := root.UserDelete(ctx, "cert"); return err },
			"a deleted role":   func() error { _, err := root.RoleDelete(ctx, "app"); return err },
			"another password": func() error { _, err := root.UserChangePassword(ctx, "app", "other"); return err },
			"a user with a password that should have none": func() error {
				for { // the leader's agent can add the user between the two
					_, err1 := root.UserDelete(ctx, "cert")
					_, err2 := root.UserAdd(ctx, "cert", "other")
					if !errors.Is(err2, rpctypes.ErrUserAlreadyExist) {
						return errors.Join(err1, err2)
					}
				}
			},
		} {
			if err := drift(); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			c.eventually(name+" is corrected", func() error { return c.asWanted("1-first") })
		}
		if _, err := c.as("outsider", "cert", "other"); err == nil {
			t.Error("the password of a user that should have none works")
		}

		if _, err := root.UserAdd(ctx, "foreign", "x"); err != nil {
			t.Fatal(err)
		}
		c.eventually("the unknown user is counted", func() error {
			if r := c.report(); r.Unknown != 1 || r.Users != 2 {
				return fmt.Errorf("it reports %+v", r)
			}
			return nil
		})
		if _, err := root.UserGet(ctx, "foreign"); err != nil {
			t.Errorf("the unknown user is gone: %v", err)
		}
		stop()
	})
}

// The password follows the Secret. A new leader's agent whose kubelet is late leaves a newer password alone.
func TestAPasswordFollowsItsSecret(t *testing.T) {
	eachMinor(t, func(t *testing.T, c *authCluster) {
		c.certify()
		c.require(appAndCert("1-first"))
		stop := c.lead(time.Hour)
		c.reports(leases.AuthDone, true, "")
		c.mustBe("outsider", "app", "1-first")
		secret := func(password membership.Password) {
			c.mu.Lock()
			defer c.mu.Unlock()
			appAndCert(password)(&c.policy)
		}
		secret("2-second")
		c.eventually("the new password works", func() error { _, err := c.as("outsider", "app", "2-second"); return err })
		if _, err := c.as("outsider", "app", "1-first"); !errors.Is(err, rpctypes.ErrAuthFailed) {
			t.Errorf("the old password: %v", err)
		}
		stop()
		secret("1-first") // as the kubelet of another node has it
		before := c.status().Revision
		stop = c.lead(time.Hour)
		c.looksAgain()
		if after := c.status().Revision; after != before {
			t.Error("an agent whose Secret is late changed users or roles")
		}
		secret("2-second")
		c.looksAgain()
		if after := c.status().Revision; after != before {
			t.Error("a password was written that was equal")
		}
		stop()
	})
}

// An agent whose configuration is older than the one that was applied changes nothing.
func TestAnOlderConfigurationIsNotApplied(t *testing.T) {
	t.Parallel()
	c := newAuthCluster(t, "3.7")
	c.certify()
	c.require(appAndCert("1-first"))
	older := c.policy
	c.require(func(p *AuthPolicy) { p.Want.Users["late"] = membership.WantedUser{Login: membership.LoginCertificate} })
	stop := c.lead(0)
	c.reports(leases.AuthDone, true, "")
	stop()
	report, before := c.report(), c.status().Revision
	c.mu.Lock()
	older.Mode = AuthOff
	c.policy = older
	c.mu.Unlock()
	stop = c.lead(0)
	defer stop()
	c.looksAgain()
	if after := c.status(); !after.Enabled || after.Revision != before || c.report() != report {
		t.Errorf("after an older configuration: %+v, report %+v", after, c.report())
	}
}

// Someone turned authentication on by hand. The leader's agent says so, and takes over when spec.auth says so.
func TestAuthEnabledByHandReported(t *testing.T) {
	eachMinor(t, func(t *testing.T, c *authCluster) {
		ctx := t.Context()
		_, err1 := c.etcd.Client.RoleAdd(ctx, "root")
		_, err2 := c.etcd.Client.UserAddWithOptions(ctx, "root", "", &clientv3.UserAddOptions{NoPassword: true})
		_, err3 := c.etcd.Client.UserGrantRole(ctx, "root", "root")
		_, err4 := c.etcd.Client.UserAdd(ctx, "someone", "x")
		_, err5 := c.etcd.Client.AuthEnable(ctx)
		if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
			t.Fatal(err)
		}
		stop := c.lead(0)
		defer stop()
		c.reports(leases.AuthDenied, true, "etcdctl user add druid-agent")
		root := c.mustBe("root", "", "")
		_, err1 = root.UserAddWithOptions(ctx, "druid-agent", "", &clientv3.UserAddOptions{NoPassword: true})
		_, err2 = root.UserGrantRole(ctx, "druid-agent", "root")
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		if r := c.reports(leases.AuthUnmanaged, true, "set spec.auth"); r.Unknown != 1 || r.Users != 0 {
			t.Errorf("it reports %+v", r)
		}
		c.certify()
		c.require(appAndCert("1-first"))
		if r := c.reports(leases.AuthDone, true, ""); r.Unknown != 1 || r.Users != 2 {
			t.Errorf("it reports %+v", r)
		}
		if _, err := c.as("outsider", "someone", "x"); err != nil {
			t.Errorf("the user that was there before: %v", err)
		}
	})
}
