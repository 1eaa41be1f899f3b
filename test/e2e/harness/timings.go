package harness

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/manifests"
)

// Timings are the agents' intervals that stories wait for.
type Timings struct{ RenewInterval, LeaseDuration, SuperfluousGrace time.Duration }

// AgentTimings are those that druid has configured the cluster's agents with: the rig's profile decides.
func (c *Cluster) AgentTimings(t testing.TB) (timings Timings) {
	t.Helper()
	Eventually(t, patience, "the configuration of the agents of "+c.String(), func(ctx context.Context) error {
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
