package bench

import (
	"context"
	"testing"
	"time"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/test/e2e/harness"
)

// secured is a cluster with TLS on both planes and with authentication.
func secured(c *v1alpha1.EtcdCluster) {
	harness.TLS(90 * 24 * time.Hour)(c)
	c.Spec.Auth = &v1alpha1.AuthSpec{Enabled: true, Users: []v1alpha1.AuthUser{{Name: "client", CertificateCN: "client", Roles: []string{"root"}}}}
}

// BenchmarkSecurity measures what TLS and authentication cost: a cluster with both and one with neither, formed in turn five times, then
// at rest at the same time.
func BenchmarkSecurity(b *testing.B) {
	// Formations alternate, so that what else the machine does meets both kinds.
	const formations, span = 5, 3 * time.Minute
	kinds := []struct {
		name, forms, agent string
		options            []harness.Option
	}{
		{"no TLS", "", "", nil},
		{"TLS and authentication", "≤ 1.5 s more", "≤ 2 MiB and ≤ 0.05 % of a core more", []harness.Option{secured}},
	}
	for b.Loop() {
		clusters := make([]*harness.Cluster, len(kinds))
		for range formations {
			for i, k := range kinds {
				if clusters[i] != nil {
					clusters[i].Destroy(b)
				}
				clusters[i] = rig.Apply(b, k.options...)
				report.seconds(k.name+": apply → three voters Ready", k.forms, clusters[i].AwaitReady(b, 3, within))
			}
		}
		clusters[1].AwaitCondition(b, within, v1alpha1.ConditionAuthReady, "True")
		harness.Consistently(b, time.Minute, "rest", func(context.Context) error { return nil })
		begun, before := time.Now(), make([]map[string]harness.Usage, len(kinds))
		for i, c := range clusters {
			before[i] = usages(b, c, c.MemberNames(b))
		}
		harness.Consistently(b, span, "rest", func(context.Context) error { return nil })
		for i, c := range clusters {
			k := kinds[i]
			after := usages(b, c, c.MemberNames(b))
			for _, program := range []string{"agent", "etcd"} {
				want := ""
				if program == "agent" {
					want = k.agent
				}
				report.add(k.name+": "+program+": RSS", want, "MiB", float64(after[program].RSS)/(1<<20))
				report.add(k.name+": "+program+": CPU", want, "% of a core",
					100*(after[program].CPU-before[i][program].CPU).Seconds()/time.Since(begun).Seconds())
			}
			druid := rig.Since(b, begun, harness.DruidNamespace, "")
			report.add(k.name+": druid: API writes for the cluster in 3 min", "0", "", float64(len(druid.In(c.Namespace).Writes())))
		}
		for _, c := range clusters {
			c.Destroy(b)
		}
	}
}
