package start

import (
	"os"
	"slices"
	"testing"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/agent/datadir/volume"
	"github.com/etcd-druid/druid/leases"
)

// Authentication is on in a backup. Without spec.auth no member begins anything, and says what is missing. Once spec.auth is set, the same
// processes restore it: the agents log in with their certificates, and the users of the backup are there.
func TestAuthBackupWaitsForSpecAuth(t *testing.T) {
	t.Parallel()
	for target, source := range map[string]string{"3.5.35": "3.5", "3.6.16": "3.5", "3.7.3": "3.6"} {
		t.Run(source+" to "+target[:3], func(t *testing.T) {
			t.Parallel()
			path := t.TempDir()
			last := savedFile(t, source, path, true)
			c := newCluster(t, target, "c-a", "c-b")
			c.withTLS()
			for _, m := range c.members {
				m.savedAt(path)
				m.restores(config.Restore{File: oldFile})
				m.start()
			}
			c.decides("c-a", RuleAuthRequired)
			for name, m := range c.members {
				m.mu.Lock()
				started := m.etcd != nil
				m.mu.Unlock()
				if _, err := os.Stat(volume.DataPath(m.cfg.VolumePath)); err == nil || started {
					t.Errorf("%s began with a cluster that the spec does not secure", name)
				}
			}
			if record, _ := c.record(); record.Phase != leases.PhaseForming || record.Executor != "" {
				t.Errorf("the record says %+v", record)
			}
			for _, m := range c.members {
				m.requiresAuth()
			}
			c.voters("c-a", "c-b")
			c.holdsWhatWasSaved("c-b", last)
			client := c.client("c-b")
			defer func() { _ = client.Close() }()
			if status, err := client.AuthStatus(t.Context()); err != nil || !status.Enabled {
				t.Errorf("authentication is %+v, %v", status, err)
			}
			agent, err := client.UserGet(t.Context(), "druid-agent")
			if err != nil || !slices.Contains(agent.Roles, "root") {
				t.Errorf("the user of the agents is %+v, %v", agent, err)
			}
			if _, err := client.Authenticate(t.Context(), "root", "secret"); err != nil {
				t.Errorf("a user of the backup cannot log in: %v", err)
			}
			c.outsidersStayOut()
		})
	}
}

// requiresAuth does what an edit of spec.auth does to the configuration of the agent.
func (m *member) requiresAuth() {
	m.c.t.Helper()
	r, err := config.ReadReloadable(m.cfg.ConfigPath)
	must(m.c.t, err)
	r.Auth = &config.Auth{Enabled: true}
	content, err := r.YAML()
	must(m.c.t, err)
	must(m.c.t, os.WriteFile(m.cfg.ConfigPath, content, 0o600))
}
