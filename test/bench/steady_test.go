package bench

import (
	"context"
	"testing"
	"time"

	"github.com/etcd-druid/druid/test/e2e/harness"
)

// BenchmarkSteady watches a cluster without changes: what it costs, per member, and what druid costs.
func BenchmarkSteady(b *testing.B) {
	const span = 3 * time.Minute
	c := rig.Apply(b)
	c.Agree(b, 3, within)
	members := c.MemberNames(b)
	for b.Loop() {
		harness.Consistently(b, 30*time.Second, "rest", func(context.Context) error { return nil })
		begun, before := time.Now(), usages(b, c, members)
		harness.Consistently(b, span, "rest", func(context.Context) error { return nil })
		after := usages(b, c, members)
		for name, u := range after {
			report.add(name+": RSS", wants[name].rss, "MiB", float64(u.RSS)/(1<<20))
			report.add(name+": CPU", wants[name].cpu, "% of a core", 100*(u.CPU-before[name].CPU).Seconds()/time.Since(begun).Seconds())
		}
		agents := rig.Since(b, begun, c.Namespace, "")
		report.add("agents: API requests per second and member", "≤ 0.1", "", float64(len(agents))/span.Seconds()/float64(len(members)))
		druid := rig.Since(b, begun, harness.DruidNamespace, "")
		report.add("druid: API writes for the cluster in 3 min", "0", "", float64(len(druid.In(c.Namespace).Writes())))
		report.add("druid: all API requests in 3 min", "", "", float64(len(druid)))
	}
	c.Destroy(b)
}

// wants are the budgets of the programs.
var wants = map[string]struct{ rss, cpu string }{
	"agent": {"≤ 30 MiB", "≤ 1 %"}, "launch": {"≤ 12 MiB", ""}, "druid": {"≤ 50 MiB", "≤ 0.06 % (0.1 s in 3 min)"},
}

// usages are the largest of each program's processes.
func usages(b *testing.B, c *harness.Cluster, members []string) map[string]harness.Usage {
	b.Helper()
	largest := map[string]harness.Usage{}
	note := func(name string, pid int) {
		u, err := harness.UsageOf(pid)
		if err != nil {
			b.Fatal(err)
		}
		if u.CPU >= largest[name].CPU {
			largest[name] = harness.Usage{CPU: u.CPU, RSS: max(u.RSS, largest[name].RSS)}
		}
	}
	for _, m := range members {
		note("agent", c.Process(b, m, harness.Agent))
		note("launch", c.Process(b, m, harness.Launch))
		note("etcd", c.Process(b, m, harness.Etcd))
	}
	pods, err := rig.DruidPods(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	for _, p := range pods {
		pids, err := harness.Processes(string(p.UID), harness.Druid)
		if err != nil || len(pids) != 1 {
			b.Fatalf("druid runs as %v (%v)", pids, err)
		}
		note("druid", pids[0])
	}
	return largest
}
