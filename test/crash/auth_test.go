package crash_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/internal/pki"
	"github.com/etcd-druid/druid/leases"
)

// Users and roles are created, and authentication is turned on at last: each point has a cluster of its own.
var auths = map[string]scenario{
	"users and roles": {members: 1, newborn: true, leads: true, eve: func(c *cluster) *pod {
		p := seed(c)
		p.secure()
		c.form()
		p.killAgent()
		p.requireAuth()
		return p
	}, aftermath: func(c *cluster, _ *pod) {
		c.eventually("authentication is on, with the user and its role", func() error {
			return c.etcd(c.names[0], func(ctx context.Context, client *clientv3.Client) error {
				status, err := client.AuthStatus(ctx)
				if err != nil || !status.Enabled {
					return fmt.Errorf("it is %+v: %w", status, err)
				}
				if _, err := client.Authenticate(ctx, "app", "first"); err != nil {
					return err
				}
				user, err := client.UserGet(ctx, "app")
				if err == nil && (len(user.Roles) != 1 || user.Roles[0] != "app") {
					err = fmt.Errorf("the user has the roles %v", user.Roles)
				}
				return err
			})
		})
	}},
	// The leader's agent ends while it provisions three members. Meanwhile a user edits the password, and then all agents run.
	"users and roles, and a password that is edited": {members: 3, newborn: true, leads: true, eve: func(c *cluster) *pod {
		c.secureAll(config.TLSMutual)
		c.form()
		p := c.leaderAlone()
		c.configureAuth("first", 2)
		return p
	}, between: func(c *cluster, _ *pod) {
		c.configureAuth("second", 2)
	}, aftermath: func(c *cluster, _ *pod) {
		c.startOtherAgents()
		c.reports(leases.AuthDone, "")
		// A new leader's agent leaves a password alone for two minutes: the kubelet of its node can be late (agent/duties, authHold).
		c.logsIn("app", "second")
		c.must(c.etcd(c.names[0], func(ctx context.Context, client *clientv3.Client) error {
			if _, err := client.Authenticate(ctx, "app", "first"); !errors.Is(err, rpctypes.ErrAuthFailed) {
				return fmt.Errorf("the former password: %w", err)
			}
			user, err := client.UserGet(ctx, "app")
			if err == nil && (len(user.Roles) != 1 || user.Roles[0] != "app") {
				err = fmt.Errorf("the user has the roles %v", user.Roles)
			}
			return err
		}))
	}},
}

// configureAuth writes a configuration with a user and a role for all agents, and the password of the user.
func (c *cluster) configureAuth(password string, generation int64) {
	c.t.Helper()
	auth := c.appOnly(filepath.Join(filepath.Dir(c.pods[c.names[0]].config.VolumePath), "passwords"), password)
	for _, p := range c.pods {
		r := quick()
		r.Generation, r.Auth = generation, auth
		content, err := r.YAML()
		c.must(err)
		c.must(os.WriteFile(p.config.ConfigPath, content, 0o600))
	}
}

// secure gives the member TLS of clients, before its first start.
func (p *pod) secure() {
	t, dir := p.c.t, filepath.Dir(p.config.VolumePath)
	t.Helper()
	authority, err := pki.NewAuthority("crash", time.Now(), time.Hour)
	p.c.must(err)
	signer, err := pki.ParseAuthority(authority, time.Now())
	p.c.must(err)
	cfg := &p.config
	cfg.ClientTLS, cfg.ClientService = config.TLSMutual, clusterName+"-client"
	cfg.TLSSource, cfg.TLSDir = filepath.Join(dir, "secrets"), filepath.Join(dir, "tls")
	host := cfg.ClientService + "." + cfg.Namespace + ".svc"
	issue := func(r pki.Request) pki.Pair {
		r.Lifetime = time.Hour
		pair, err := signer.Issue(r, time.Now())
		p.c.must(err)
		return pair
	}
	server := issue(pki.Request{CommonName: "etcd", DNSNames: []string{host}, IPs: []net.IP{net.ParseIP(cfg.ListenHost)}, Server: true, Client: true})
	client := issue(pki.Request{CommonName: "druid-agent", Client: true})
	source := filepath.Join(cfg.TLSSource, "client")
	p.c.must(os.MkdirAll(source, 0o700))
	for name, content := range map[string][]byte{
		"ca.crt": authority.Certificate, "tls.crt": server.Certificate, "tls.key": server.Key, "client.crt": client.Certificate, "client.key": client.Key,
	} {
		p.c.must(os.WriteFile(filepath.Join(source, name), content, 0o600))
	}
	pair, err := tls.X509KeyPair(client.Certificate, client.Key)
	p.c.must(err)
	p.c.tls = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pki.Pool([]*x509.Certificate{signer.Certificate}), Certificates: []tls.Certificate{pair}}
	p.certify()
}

// requireAuth writes a configuration with a user and a role, and the user's password.
func (p *pod) requireAuth() {
	dir := filepath.Join(filepath.Dir(p.config.VolumePath), "passwords")
	p.c.must(os.MkdirAll(dir, 0o700))
	p.c.must(os.WriteFile(filepath.Join(dir, "app"), []byte("first"), 0o600))
	r := quick()
	r.Generation = 2
	r.Auth = &config.Auth{
		Enabled: true, Passwords: dir,
		Users: []config.AuthUser{{Name: "app", PasswordKey: "app", Roles: []string{"app"}}},
		Roles: []config.AuthRole{{Name: "app", Permissions: []config.AuthPermission{{Key: []byte("/app/"), RangeEnd: []byte("/app0"), Read: true, Write: true}}}},
	}
	content, err := r.YAML()
	p.c.must(err)
	p.c.must(os.WriteFile(p.config.ConfigPath, content, 0o600))
}
