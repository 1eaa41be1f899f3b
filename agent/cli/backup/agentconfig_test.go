package backup

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/backup/store"
)

// agentFile returns a configuration file of an agent.
func agentFile(t *testing.T, b *config.Backup) string {
	t.Helper()
	r := config.DefaultReloadable()
	r.Backup = b
	content, err := r.YAML()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), config.ConfigFile)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// In the container of an agent, its configuration has everything.
func TestTheConfigurationOfAnAgentIsTheStore(t *testing.T) {
	url, s := directory(t)
	if err := catalog.WriteBootstrap(t.Context(), s, demo, catalog.Formation{Lineage: first, ClusterID: "c", Created: time.Now()}); err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(store.Config{Directory: &store.Directory{Path: strings.TrimPrefix(url, "dir://")}})
	if err != nil {
		t.Fatal(err)
	}
	file := agentFile(t, &config.Backup{
		Store: raw, Prefix: demo, Full: config.Full{Schedule: "0 0 * * *"}, Delta: config.Delta{Period: config.Duration(10 * time.Second), MaxBytes: 8 << 20},
		Retention: config.Retention{Count: 1}, Verify: config.Verify{Schedule: "0 3 * * *"},
	})
	listed := decoded[timeline](t, ok(t, "list", "--agent-config", file, "-o", "json"))
	if listed.Prefix != demo || len(listed.Lineages) != 1 || listed.Lineages[0].Lineage != first {
		t.Errorf("got %+v", listed)
	}
	contains(t, ok(t, "show", "--agent-config", file), "LINEAGE")
	for want, args := range map[string][]string{
		"remove --store":             {"list", "--agent-config", file, "--store", url},
		"remove --store, --cred":     {"list", "--agent-config", file, "--prefix", demo},
		"in the container of an age": {"list", "--agent-config", file + "-absent"},
		"set spec.backup":            {"list", "--agent-config", agentFile(t, nil)},
		"unknown flag":               {"gc", "--agent-config", file},
	} {
		if out, code, failure := run(t, args...); code != 1 || !strings.Contains(failure+out, want) {
			t.Errorf("%v: exit code %d, %q, want %q", args, code, failure, want)
		}
	}
}
