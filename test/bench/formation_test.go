package bench

import (
	"testing"
	"time"

	"github.com/etcd-druid/druid/test/e2e/harness"
)

const within = 3 * time.Minute

func BenchmarkFormation(b *testing.B) {
	for b.Loop() {
		namespace := rig.MakeNamespace(b)
		stop := rig.WatchFormation(b, namespace, 3)
		c := rig.ApplyIn(b, namespace)
		took := c.AwaitReady(b, 3, within)
		steps := stop()
		report.seconds("apply → three voters Ready", "≤ 10 s", took)
		for _, s := range steps {
			report.seconds("· "+s.Name, "", s.At)
		}
		c.Destroy(b)
	}
}

func BenchmarkFormationOfOne(b *testing.B) {
	for b.Loop() {
		c := rig.Apply(b, harness.Replicas(1))
		report.seconds("apply → one voter Ready", "≤ 4 s", c.AwaitReady(b, 1, within))
		c.Destroy(b)
	}
}

// BenchmarkReference is the bare run next to which the others are read: three etcds without any operator, as a StatefulSet
// whose Pods start at once with a static member list and a probe every second.
func BenchmarkReference(b *testing.B) {
	for b.Loop() {
		namespace := rig.MakeNamespace(b)
		report.seconds("reference: StatefulSet of three bare etcds, apply → Ready", "", formBare(b, namespace, 3, persistent))
		harness.DestroyNamespace(b, rig, namespace)
	}
}
