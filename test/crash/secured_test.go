package crash_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/agent/transport"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

// Members that require no certificate of clients serve those that use TLS, and the agents do all their work. Without TLS, and with an
// authority that did not sign the certificate of the members, there is no connection.
func TestServeClientsWithoutCertificates(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	s := c.secureAll(config.TLSServer)
	backups := t.TempDir()
	c.snapshotLeases()
	c.configureAll(backups, nil, 1)
	c.form()
	if len(c.tls.Certificates) > 0 {
		t.Fatal("the clients of the test show a certificate")
	}
	c.served("without a certificate")
	s.refuses("plain text", nil)
	s.refuses("another authority", &tls.Config{MinVersion: tls.VersionTLS12})
	s.renewed()
	c.works(backups)
	c.served("after it")
}

// appOnly is spec.auth with a user that has a password and a role. The password is in a file of this directory.
func (c *cluster) appOnly(passwords, password string) *config.Auth {
	c.t.Helper()
	c.must(os.MkdirAll(passwords, 0o700))
	c.must(os.WriteFile(filepath.Join(passwords, "app"), []byte(password), 0o600))
	return &config.Auth{
		Enabled: true, Passwords: passwords,
		Users: []config.AuthUser{{Name: "app", PasswordKey: "app", Roles: []string{"app"}}},
		Roles: []config.AuthRole{{Name: "app", Permissions: []config.AuthPermission{{Key: []byte("/app/"), RangeEnd: []byte("/app0"), Read: true, Write: true}}}},
	}
}

// reports waits until the record says that authentication is on, and how it is.
func (c *cluster) reports(state leases.AuthState, message string) {
	c.t.Helper()
	c.eventually(fmt.Sprintf("the leader's agent reports %s", state), func() error {
		record, _, err := c.store.Record(c.t.Context())
		if r := record.Auth; err == nil && (r.State != state || !r.Enabled || !strings.Contains(r.Message, message)) {
			err = fmt.Errorf("it reports %+v", r)
		}
		return err
	})
}

// With authentication on, the agents of three members do all their work: they defragment, compare the data and replace the member that
// differs, remove a member and prove it, and back up on demand.
func TestAgentsWorkWithAuthentication(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	s := c.secureAll(config.TLSMutual)
	backups := t.TempDir()
	c.snapshotLeases()
	c.configureAll(backups, c.appOnly(t.TempDir(), "first"), 1)
	c.form()
	c.reports(leases.AuthDone, "")
	c.deniesOutsiders(s)
	c.works(backups)
	c.served("after it")
	s.renewed()
	c.reports(leases.AuthDone, "")
	c.deniesOutsiders(s)
}

// deniesOutsiders checks that a client with a certificate, and without a user, reads nothing from any member.
func (c *cluster) deniesOutsiders(s *secured) {
	c.t.Helper()
	settings := c.tls.Clone()
	settings.Certificates = []tls.Certificate{s.login("outsider")}
	for _, name := range c.names {
		client, err := transport.Transport{Client: settings}.Etcd(c.t.Context(), c.endpoint(name))
		c.must(err)
		ctx, cancel := context.WithTimeout(c.t.Context(), 10*time.Second)
		_, err = client.Get(ctx, "formed")
		cancel()
		if !membership.Denied(err) {
			c.t.Errorf("an unknown user reads from %s: %v", name, err)
		}
		_ = client.Close()
	}
}

// TestAuthByHandHandedOver: authentication turned on by hand is handed over.
// A user turns authentication on by hand and admits no agent. The Leases are renewed, the members are healthy and serve, and the record
// says what to do. After the agents were admitted they do all their work. Then spec.auth takes over.
func TestAuthByHandHandedOver(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	s := c.secureAll(config.TLSMutual)
	backups := t.TempDir()
	c.snapshotLeases()
	c.configureAll(backups, nil, 1)
	c.form()
	agents := c.tls
	c.tls = agents.Clone()
	c.tls.Certificates = []tls.Certificate{s.login("root")}
	c.must(c.etcd(c.names[0], func(ctx context.Context, client *clientv3.Client) error {
		_, err1 := client.RoleAdd(ctx, "root")
		_, err2 := client.UserAddWithOptions(ctx, "root", "", &clientv3.UserAddOptions{NoPassword: true})
		_, err3 := client.UserGrantRole(ctx, "root", "root")
		_, err4 := client.AuthEnable(ctx)
		return errors.Join(err1, err2, err3, err4)
	}))
	c.reports(leases.AuthDenied, "etcdctl user add druid-agent")
	c.processes()     // each agent reports a healthy etcd
	c.renewing(false) // a member list needs a certificate and no user
	c.served("while no agent is admitted")
	c.must(c.etcd(c.names[0], func(ctx context.Context, client *clientv3.Client) error {
		_, err := client.UserAddWithOptions(ctx, "druid-agent", "", &clientv3.UserAddOptions{NoPassword: true})
		_, granted := client.UserGrantRole(ctx, "druid-agent", "root")
		return errors.Join(err, granted)
	}))
	c.reports(leases.AuthUnmanaged, "set spec.auth")
	c.tls = agents
	c.works(backups)
	c.configureAll(backups, c.appOnly(t.TempDir(), "first"), 2)
	c.reports(leases.AuthDone, "")
	c.logsIn("app", "first")
}

// logsIn waits until a user can log in with a password.
func (c *cluster) logsIn(user, password string) {
	c.t.Helper()
	c.eventually(user+" logs in", func() error {
		return c.etcd(c.names[0], func(ctx context.Context, client *clientv3.Client) error {
			_, err := client.Authenticate(ctx, user, password)
			return err
		})
	})
}

// Without certificates of clients etcd admits no agent, also with TLS of the members alone. Each agent reports the
// refusal in its Lease, which it renews, and calls its member healthy. When the user turns authentication off, the
// agents go on.
func TestAuthenticationWithoutLoginIsReported(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]config.TLSMode{"plain text": config.TLSOff, "members with certificates": config.TLSServer} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, 3)
			if mode != config.TLSOff {
				c.secureAll(mode)
			}
			c.form()
			c.must(c.etcd(c.names[0], func(ctx context.Context, client *clientv3.Client) error {
				_, err1 := client.RoleAdd(ctx, "root")
				_, err2 := client.UserAdd(ctx, "root", "secret")
				_, err3 := client.UserGrantRole(ctx, "root", "root")
				_, err4 := client.AuthEnable(ctx)
				return errors.Join(err1, err2, err3, err4)
			}))
			c.renewing(true)
			c.processes() // each agent reports a healthy etcd
			root, err := clientv3.New(clientv3.Config{Endpoints: []string{c.endpoint(c.names[1])}, TLS: c.tls, Username: "root", Password: "secret",
				DialTimeout: maxWait})
			c.must(err)
			defer func() { _ = root.Close() }()
			_, err = root.Put(t.Context(), "of", "root")
			c.must(err)
			_, err = root.AuthDisable(t.Context())
			c.must(err)
			c.renewing(false)
			c.heals()
			c.keeps("of", "root")
		})
	}
}

// renewing waits until each member's Lease is renewed twice, and says whether etcd refuses its agent.
func (c *cluster) renewing(refused bool) {
	c.t.Helper()
	for _, name := range c.names {
		var last string
		seen := 0
		c.eventually(fmt.Sprintf("the Lease of %s is renewed, and reports a refusal: %t", name, refused), func() error {
			lease, err := c.admin.CoordinationV1().Leases(c.namespace).Get(c.t.Context(), name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if at := lease.Spec.RenewTime.String(); at != last {
				last, seen = at, seen+1
			}
			member, err := c.store.Member(c.t.Context(), name)
			if err != nil || seen < 3 || (member.Refused != "") != refused {
				return fmt.Errorf("it was renewed %d times, and reports %q: %w", seen-1, member.Refused, err)
			}
			return nil
		})
	}
}
