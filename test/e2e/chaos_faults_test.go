package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/test/e2e/harness"
	"github.com/etcd-druid/druid/test/rig/lab"
)

// costlyFaults take a member away for a time. So many happen at once that a quorum is left.
var costlyFaults = []chaosFault{
	{"an etcd is killed", killed(harness.Etcd)},
	{"a launch is killed", killed(harness.Launch)},
	{"a Pod is deleted", func(t *testing.T, ch *chaos, member string, _ *rand.Rand) {
		ch.api.RLock()
		defer ch.api.RUnlock()
		former := ch.cluster.MustPod(t, member).UID
		ch.cluster.Delete(t, &corev1.Pod{}, member)
		ch.awaitGone(t, member, former)
	}},
	{"a Pod is evicted", func(t *testing.T, ch *chaos, member string, _ *rand.Rand) {
		ch.api.RLock()
		defer ch.api.RUnlock()
		pod := ch.cluster.MustPod(t, member)
		harness.Eventually(t, healWithin, "the eviction of "+member, func(ctx context.Context) error {
			return rig.Kube.PolicyV1().Evictions(pod.Namespace).Evict(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}})
		})
		ch.awaitGone(t, member, pod.UID)
	}},
	{"an etcd is frozen and goes on", func(t *testing.T, ch *chaos, member string, draw *rand.Rand) {
		ch.freezes(t, member, harness.Etcd, time.Duration(1000+draw.IntN(7000))*time.Millisecond)
	}},
	{"a volume is wiped", func(t *testing.T, ch *chaos, member string, _ *rand.Rand) {
		ch.api.RLock()
		defer ch.api.RUnlock()
		volume := ch.cluster.VolumeOf(t, member)
		pid := ch.cluster.Process(t, member, harness.Etcd)
		volume.Wipe(t)
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatalf("kill etcd of %s: %v", member, err)
		}
	}},
	{"a log is truncated", func(t *testing.T, ch *chaos, member string, _ *rand.Rand) {
		ch.api.RLock()
		defer ch.api.RUnlock()
		hold := ch.cluster.HoldDown(t, member)
		ch.cluster.VolumeOf(t, member).TruncateWAL(t)
		hold.Release(t)
	}},
	{"all Pods are replaced", func(t *testing.T, ch *chaos, _ string, draw *rand.Rand) {
		ch.api.RLock()
		defer ch.api.RUnlock()
		ch.cluster.Edit(t, fmt.Sprintf(`{"spec":{"resources":{"requests":{"cpu":"%dm"}}}}`, 20+draw.IntN(60)))
		ch.cluster.AwaitCondition(t, scaleWithin, "Progressing", "False", "Reconciled")
	}},
}

// aloneFaults change the number of members, so no other costly fault happens meanwhile.
var aloneFaults = []chaosFault{
	{"a member is replaced", func(t *testing.T, ch *chaos, member string, _ *rand.Rand) {
		ch.api.RLock()
		defer ch.api.RUnlock()
		annotate(t, ch.cluster, v1alpha1.ReplaceAnnotation, member)
		harness.Eventually(t, scaleWithin, "another member takes the place of "+member, func(ctx context.Context) error {
			record, err := ch.cluster.Record(ctx)
			if err == nil && slices.Contains(record.Members, member) {
				err = fmt.Errorf("the record lists %v", record.Members)
			}
			return err
		})
	}},
	{"the cluster grows and shrinks", func(t *testing.T, ch *chaos, _ string, _ *rand.Rand) {
		ch.api.RLock()
		defer ch.api.RUnlock()
		ch.cluster.ScaleTo(t, ch.size+2, scaleWithin)
		ch.cluster.ScaleTo(t, ch.size, scaleWithin)
	}},
}

// cheapFaults take no member away. They happen besides the others.
var cheapFaults = []chaosFault{
	{"an agent is killed", func(t *testing.T, ch *chaos, _ string, draw *rand.Rand) {
		ch.api.RLock()
		defer ch.api.RUnlock()
		if member := anyOf(t, ch.cluster, draw); member != "" {
			ch.cluster.TryKill(t, member, harness.Agent)
		}
	}},
	{"leadership moves", func(t *testing.T, ch *chaos, _ string, draw *rand.Rand) {
		ch.api.RLock()
		defer ch.api.RUnlock()
		if member := anyOf(t, ch.cluster, draw); member != "" {
			ch.cluster.TryMoveLeader(t, member)
		}
	}},
	{"druid is killed", func(t *testing.T, ch *chaos, _ string, _ *rand.Rand) {
		ch.api.RLock()
		defer ch.api.RUnlock()
		rig.KillDruid(t)
	}},
	{"the API server is down", func(t *testing.T, ch *chaos, _ string, draw *rand.Rand) {
		ch.api.Lock()
		defer ch.api.Unlock()
		if err := rig.Lab.StopAPIServer(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := rig.Lab.StartAPIServer(context.WithoutCancel(t.Context())); err != nil {
				t.Error(err)
			}
		}()
		ch.lasts(t, time.Duration(1+draw.IntN(8))*time.Second)
	}},
	{"the backup store does not respond", func(t *testing.T, ch *chaos, _ string, draw *rand.Rand) {
		ch.api.RLock() // the store is in a Pod
		defer ch.api.RUnlock()
		defer ch.store.Freeze(t)()
		ch.lasts(t, time.Duration(1+draw.IntN(8))*time.Second)
	}},
	{"an agent is frozen past its Lease and goes on", func(t *testing.T, ch *chaos, _ string, draw *rand.Rand) {
		ch.api.RLock()
		member := anyOf(t, ch.cluster, draw)
		ch.api.RUnlock()
		ch.freezes(t, member, harness.Agent, 20*time.Second)
	}},
}

// nodeFaults take the member away that the node carries. They happen if each node carries one.
var nodeFaults = []chaosFault{
	{"a node is powered off and on", onNode((*lab.Lab).StopNode, (*lab.Lab).StartNode)},
	{"a node is frozen and goes on", onNode((*lab.Lab).Freeze, (*lab.Lab).Thaw)},
	{"a node is cut off", onNode(cutFrom(lab.All), func(l *lab.Lab, ctx context.Context, _ string) error { return l.Heal(ctx) })},
	{"a node is cut off from the API server", onNode(cutFrom(lab.ControlPlane), func(l *lab.Lab, ctx context.Context, _ string) error { return l.Heal(ctx) })},
}

func cutFrom(peer string) func(*lab.Lab, context.Context, string) error {
	return func(l *lab.Lab, ctx context.Context, node string) error { return l.Partition(ctx, node, peer) }
}

// onNode is a fault of the node that carries the member. It lasts up to 15 seconds: longer than a Lease of the rig.
func onNode(begin, end func(*lab.Lab, context.Context, string) error) func(*testing.T, *chaos, string, *rand.Rand) {
	return func(t *testing.T, ch *chaos, member string, draw *rand.Rand) {
		ch.api.RLock()
		node := ch.cluster.MustPod(t, member).Spec.NodeName
		ch.api.RUnlock()
		if err := begin(rig.Lab, t.Context(), node); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := end(rig.Lab, context.WithoutCancel(t.Context()), node); err != nil {
				t.Error(err)
			}
		}()
		ch.lasts(t, time.Duration(5+draw.IntN(10))*time.Second)
	}
}

// awaitGone waits until the member has another Pod. Until then its etcd can still respond, and be taken for one that is back.
func (ch *chaos) awaitGone(t *testing.T, member string, former types.UID) {
	t.Helper()
	harness.Eventually(t, healWithin, "another Pod of "+member, func(ctx context.Context) error {
		pod, err := ch.cluster.Pod(ctx, member)
		if err == nil && pod.UID == former {
			err = errors.New("the previous one is there")
		}
		return err
	})
}

// freezes stops a program of the member, and lets it go on later.
func (ch *chaos) freezes(t *testing.T, member string, program harness.Program, span time.Duration) {
	t.Helper()
	ch.api.RLock()
	pid := ch.cluster.Process(t, member, program)
	ch.api.RUnlock()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatalf("freeze %s of %s: %v", program, member, err)
	}
	defer func() {
		if err := syscall.Kill(pid, syscall.SIGCONT); err != nil && !errors.Is(err, syscall.ESRCH) {
			t.Errorf("let %s of %s go on: %v", program, member, err)
		}
	}()
	ch.lasts(t, span)
}

// killed is the end of a program of the member.
func killed(program harness.Program) func(*testing.T, *chaos, string, *rand.Rand) {
	return func(t *testing.T, ch *chaos, member string, _ *rand.Rand) {
		ch.api.RLock()
		defer ch.api.RUnlock()
		ch.cluster.TryKill(t, member, program)
	}
}
