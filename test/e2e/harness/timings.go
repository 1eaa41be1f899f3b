package harness

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/manifests"
)

// Pace is how soon the agents say that they are there, and remove what is superfluous.
type Pace string

// The paces. Production is what druid does without flags.
const (
	Fast       Pace = "fast"
	Production Pace = "production"
)

// flags of druid for a pace. The fast one has the shortest grace that a Lease of three renewals allows; the renewals are those
// that a machine with two cores bears next to twelve etcds.
func (p Pace) flags() ([]string, error) {
	switch p {
	case Fast:
		return []string{"--agent-renew-interval=5s", "--agent-lease-duration=15s", "--superfluous-grace-period=15s"}, nil
	case Production:
		return nil, nil
	}
	return nil, fmt.Errorf("there are no agents of pace %q: say %q or %q", p, Fast, Production)
}

// Flags are the flags of druid with which the rig installs it.
func (r *Rig) Flags(t testing.TB) []string {
	t.Helper()
	flags, err := r.agents.flags()
	if err != nil {
		t.Fatal(err)
	}
	return flags
}

// overlay writes a kustomization of the install with these flags of druid into folder, as a user would.
func overlay(folder, install string, flags []string) error {
	// kustomize takes no absolute path, and follows no link out of a folder.
	folder, err := filepath.EvalSymlinks(folder)
	if err != nil {
		return err
	}
	if install, err = filepath.EvalSymlinks(install); err != nil {
		return err
	}
	base, err := filepath.Rel(folder, install)
	if err != nil {
		return err
	}
	var text strings.Builder
	fmt.Fprintf(&text, "resources: [%s]\n", base)
	for i, flag := range flags {
		if i == 0 {
			fmt.Fprintf(&text, "patches:\n- target: {kind: Deployment, name: %s}\n  patch: |-\n", druidDeployment)
		}
		fmt.Fprintf(&text, "    - {op: add, path: /spec/template/spec/containers/0/args/-, value: %q}\n", flag)
	}
	return os.WriteFile(filepath.Join(folder, "kustomization.yaml"), []byte(text.String()), 0o600)
}

// Timings are the agents' intervals that stories wait for.
type Timings struct{ RenewInterval, LeaseDuration, SuperfluousGrace time.Duration }

// AgentTimings are those that druid has configured the cluster's agents with: the rig's pace decides.
func (c *Cluster) AgentTimings(t testing.TB) (timings Timings) {
	t.Helper()
	Eventually(t, maxWait, "the configuration of the agents of "+c.String(), func(ctx context.Context) error {
		object := &corev1.ConfigMap{}
		if err := c.Rig.Client.Get(ctx, Key(c.Namespace, manifests.AgentName(c.Name)), object); err != nil {
			return err
		}
		read, err := config.ParseReloadable([]byte(object.Data[config.ConfigFile]))
		if err != nil {
			return fmt.Errorf("read the configuration of the agents of %s: %w", c, err)
		}
		timings = Timings{
			RenewInterval: time.Duration(read.RenewInterval), LeaseDuration: time.Duration(read.LeaseDuration),
			SuperfluousGrace: time.Duration(read.SuperfluousGracePeriod),
		}
		return nil
	})
	return timings
}
