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
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/manifests"
	"github.com/etcd-druid/druid/test/e2e/harness"
)

// costlyFaults take a member away for a time. So many happen at once that a quorum is left.
var costlyFaults = []chaosFault{
	{"an etcd is killed", func(t *testing.T, ch *chaos, member string, _ *rand.Rand) {
		ch.signals(t, is(member), harness.Etcd, syscall.SIGKILL, harness.Ended)
	}},
	{"a launch is killed", func(t *testing.T, ch *chaos, member string, _ *rand.Rand) {
		ch.signals(t, is(member), harness.Launch, syscall.SIGKILL, harness.Ended)
	}},
	{"a kubelet is killed, and a launch on its node", kubeletKilled},
	{"a Pod is deleted", func(t *testing.T, ch *chaos, member string, _ *rand.Rand) {
		former := ch.uidOf(t, member)
		ch.withAPI(func() { ch.cluster.Delete(t, &corev1.Pod{}, member) })
		ch.awaitGone(t, member, former)
	}},
	{"a Pod is evicted", func(t *testing.T, ch *chaos, member string, _ *rand.Rand) {
		former := ch.uidOf(t, member)
		harness.Eventually(t, healWithin, "the eviction of "+member, func(ctx context.Context) error {
			return rig.Kube.PolicyV1().Evictions(ch.cluster.Namespace).Evict(ctx,
				&policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: ch.cluster.Namespace, Name: member}})
		})
		ch.awaitGone(t, member, former)
	}},
	{"an etcd is frozen and goes on", func(t *testing.T, ch *chaos, member string, draw *rand.Rand) {
		ch.freezes(t, is(member), harness.Etcd, time.Duration(1000+draw.IntN(7000))*time.Millisecond)
	}},
	{"a volume is wiped", func(t *testing.T, ch *chaos, member string, _ *rand.Rand) {
		former := ch.idOf(t, member)
		ch.withAPI(func() { ch.cluster.VolumeOf(t, member).Wipe(t) })
		ch.signals(t, is(member), harness.Etcd, syscall.SIGKILL, harness.Ended)
		ch.awaitAnotherID(t, member, former)
	}},
	{"a log is truncated", damaged(harness.Volume.TruncateWAL)},
	{"a byte of a log is flipped", damaged(harness.Volume.FlipLog)},
}

// longFaults are costly faults that take longer than half a minute.
var longFaults = []chaosFault{
	{"a disk is full", diskFull},
	{"all Pods are replaced", func(t *testing.T, ch *chaos, _ string, draw *rand.Rand) {
		requests := fmt.Sprintf("%dm", 20+draw.IntN(60))
		ch.withAPI(func() {
			ch.cluster.Edit(t, fmt.Sprintf(`{"spec":{"resources":{"requests":{"cpu":%q}}}}`, requests))
		})
		// Another fault can edit the spec again meanwhile.
		harness.Eventually(t, ch.amongFaults(scaleWithin), "all Pods request the CPU of the spec", func(ctx context.Context) error {
			cluster, err := ch.cluster.Get(ctx)
			if err != nil {
				return err
			}
			want := cluster.Spec.Resources.Requests.Cpu()
			return ch.eachPod(ctx, func(pod *corev1.Pod) error {
				for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
					if got := c.Resources.Requests.Cpu(); c.Name == harness.ContainerEtcd && got.Cmp(*want) != 0 {
						return fmt.Errorf("%s requests %s, want %s", pod.Name, got, want)
					}
				}
				return nil
			})
		})
	}},
}

// diskFull fills the disk under a member, whose etcd then starts again without space. The volumes of the rig are directories of one large
// disk, so the member moves to a small one before, and back afterwards.
func diskFull(t *testing.T, ch *chaos, member string, draw *rand.Rand) {
	var disk *harness.SmallDisk
	ch.withAPI(func() {
		node := ch.cluster.MustPod(t, member).Spec.NodeName
		hold := ch.cluster.HoldDown(t, member)
		disk = hold.OnSmallDisk(t, node)
		hold.Release(t)
	})
	ch.cluster.Agree(t, ch.size, scaleWithin)
	disk.Fill(t)
	ch.signals(t, is(member), harness.Etcd, syscall.SIGKILL, harness.Ended)
	ch.lasts(t, time.Duration(5+draw.IntN(10))*time.Second)
	harness.Eventually(t, healWithin, "the disk is full", disk.Full)
	disk.Free(t)
	ch.cluster.Agree(t, ch.size, scaleWithin)
	ch.withAPI(func() {
		hold := ch.cluster.HoldDown(t, member)
		disk.Back(t)
		hold.Release(t)
	})
}

// aloneFaults change the number of members, so no other costly fault happens meanwhile.
var aloneFaults = []chaosFault{
	{"a member is replaced", func(t *testing.T, ch *chaos, member string, _ *rand.Rand) {
		ch.withAPI(func() { annotate(t, ch.cluster, v1alpha1.ReplaceAnnotation, member) })
		harness.Eventually(t, scaleWithin, "another member takes the place of "+member, func(ctx context.Context) error {
			record, err := ch.cluster.Record(ctx)
			if err == nil && slices.Contains(record.Members, member) {
				err = fmt.Errorf("the record lists %v", record.Members)
			}
			return err
		})
	}},
	{"the cluster grows and shrinks", func(t *testing.T, ch *chaos, _ string, _ *rand.Rand) {
		ch.withAPI(func() { ch.cluster.Scale(t, int32(ch.size+2)) })
		ch.cluster.AwaitMembers(t, ch.size+2, scaleWithin)
		ch.withAPI(func() { ch.cluster.Scale(t, int32(ch.size)) })
		ch.cluster.AwaitMembers(t, ch.size, scaleWithin)
	}},
}

// agentFaults and groundFaults take no member away. Each kind happens in a lane besides the others.
var agentFaults = []chaosFault{
	{"an agent is killed", func(t *testing.T, ch *chaos, _ string, draw *rand.Rand) {
		ch.signals(t, ch.anyMember(draw), harness.Agent, syscall.SIGKILL, harness.Ended)
	}},
	{"an agent is frozen past its Lease and goes on", func(t *testing.T, ch *chaos, _ string, draw *rand.Rand) {
		ch.freezes(t, ch.anyMember(draw), harness.Agent, 20*time.Second)
	}},
	{leadershipMoves, func(t *testing.T, ch *chaos, _ string, draw *rand.Rand) {
		harness.Eventually(t, healWithin, "another member leads", func(ctx context.Context) error {
			return ch.cluster.TakeLeadership(ctx, t, ch.anyMember(draw)())
		})
	}},
}

var groundFaults = []chaosFault{
	{"druid is killed", func(t *testing.T, ch *chaos, _ string, _ *rand.Rand) {
		ch.awaitDruids(t)
		ch.withAPI(func() { rig.KillDruid(t) })
	}},
	{"the API server is down", func(t *testing.T, ch *chaos, _ string, draw *rand.Rand) {
		ch.awaitDruids(t) // the one that works can lose its Lease, and ends then
		ch.api.Lock()
		defer ch.api.Unlock()
		if err := rig.Lab.StopAPIServer(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer startAPIServer(t)
		if _, err := ch.cluster.Get(t.Context()); err == nil {
			t.Error("the API server responds")
		}
		ch.lasts(t, time.Duration(1+draw.IntN(8))*time.Second)
	}},
	{"the backup store does not respond", func(t *testing.T, ch *chaos, _ string, draw *rand.Rand) {
		ch.api.RLock() // the store is in a Pod
		defer ch.api.RUnlock()
		defer ch.store.Freeze(t)()
		ch.lasts(t, time.Duration(1+draw.IntN(8))*time.Second)
	}},
	{clientsCutOff, func(t *testing.T, ch *chaos, _ string, draw *rand.Rand) {
		serve := func(yes bool) {
			ch.withAPI(func() { ch.cluster.Edit(t, fmt.Sprintf(`{"spec":{"clientService":{"serving":%t}}}`, yes)) })
			harness.Eventually(t, scaleWithin, fmt.Sprintf("members in the client Service: %t", yes), func(ctx context.Context) error {
				n, err := ch.serving(ctx)
				if err == nil && (n > 0) != yes {
					err = fmt.Errorf("there are %d", n)
				}
				return err
			})
		}
		serve(false)
		ch.lasts(t, time.Duration(1+draw.IntN(5))*time.Second)
		serve(true)
	}},
}

// awaitDruids waits until all druids run, so that one is left when another ends. The kubelet waits up to five minutes before it starts one
// again that ended often.
func (ch *chaos) awaitDruids(t *testing.T) {
	t.Helper()
	harness.Eventually(t, 7*time.Minute, "all druids are ready", func(ctx context.Context) error {
		pods, err := rig.DruidPods(ctx)
		if err != nil {
			return err
		}
		for _, pod := range pods {
			for _, c := range pod.Status.ContainerStatuses {
				if !c.Ready {
					return fmt.Errorf("%s was started %d times", pod.Name, c.RestartCount+1)
				}
			}
		}
		return nil
	})
}

// steadyFaults are those of both kinds that need no quorum.
func steadyFaults() []chaosFault {
	return slices.DeleteFunc(slices.Concat(agentFaults, groundFaults), func(f chaosFault) bool { return f.name == leadershipMoves || f.name == clientsCutOff })
}

const (
	leadershipMoves = "leadership moves"
	clientsCutOff   = "clients are cut off and admitted again"
)

// damaged is damage to the volume of a member that is down. The member does not vote with what is left: it gets another ID.
func damaged(damage func(harness.Volume, testing.TB)) func(*testing.T, *chaos, string, *rand.Rand) {
	return func(t *testing.T, ch *chaos, member string, _ *rand.Rand) {
		former := ch.idOf(t, member)
		ch.withAPI(func() {
			hold := ch.cluster.HoldDown(t, member)
			damage(ch.cluster.VolumeOf(t, member), t)
			hold.Release(t)
		})
		ch.awaitAnotherID(t, member, former)
	}
}

// withAPI does what needs the API server.
func (ch *chaos) withAPI(do func()) {
	ch.api.RLock()
	defer ch.api.RUnlock()
	do()
}

// is picks the one member.
func is(member string) func() string { return func() string { return member } }

// signals sends a signal to a program of the member that pick names, and waits until it had its effect. A program that is just not there is
// asked for again.
func (ch *chaos) signals(t *testing.T, pick func() string, program harness.Program, signal syscall.Signal, effect func(int) error) (pid int) {
	t.Helper()
	harness.Eventually(t, healWithin, fmt.Sprintf("%s gets %s", program, signal), func(ctx context.Context) error {
		member := pick()
		pids, err := ch.processes(ctx, member, program)
		if err != nil || len(pids) != 1 {
			return errors.Join(err, fmt.Errorf("processes %v of %s", pids, member))
		}
		pid = pids[0]
		return syscall.Kill(pid, signal)
	})
	harness.Eventually(t, healWithin, fmt.Sprintf("%s of %s (%d) shows", signal, program, pid), func(context.Context) error { return effect(pid) })
	return pid
}

// processes are those of a program in the member's present Pod, or in its last known one while the API server does not answer.
func (ch *chaos) processes(ctx context.Context, member string, program harness.Program) ([]int, error) {
	uid := ch.about(member).podUID
	if pod, err := ch.cluster.Pod(ctx, member); err == nil {
		uid = string(pod.UID)
	}
	return harness.Processes(uid, program)
}

// freezes stops a program of the member that pick names, and lets it go on later.
func (ch *chaos) freezes(t *testing.T, pick func() string, program harness.Program, span time.Duration) {
	t.Helper()
	pid := ch.signals(t, pick, program, syscall.SIGSTOP, func(pid int) error {
		if err := harness.Stopped(pid); err != nil && harness.Ended(pid) != nil {
			return err
		}
		return nil // stopped, or ended by another fault
	})
	defer func() {
		if err := syscall.Kill(pid, syscall.SIGCONT); err != nil && !errors.Is(err, syscall.ESRCH) {
			t.Errorf("let %s (%d) go on: %v", program, pid, err)
		}
	}()
	ch.lasts(t, span)
}

// uidOf is the UID of a member's Pod, and idOf the raft ID of the member.
func (ch *chaos) uidOf(t *testing.T, member string) (uid string) {
	t.Helper()
	ch.withAPI(func() { uid = string(ch.cluster.MustPod(t, member).UID) })
	return uid
}

func (ch *chaos) idOf(t *testing.T, member string) (id uint64) {
	t.Helper()
	harness.Eventually(t, healWithin, "the Lease of "+member, func(ctx context.Context) error {
		m, err := ch.cluster.Member(ctx, member)
		id = uint64(m.ID)
		return err
	})
	return id
}

// awaitGone waits until the member has another Pod. Until then its etcd can still respond, and be taken for one that is back.
func (ch *chaos) awaitGone(t *testing.T, member, former string) {
	t.Helper()
	harness.Eventually(t, healWithin, "another Pod of "+member, func(ctx context.Context) error {
		pod, err := ch.cluster.Pod(ctx, member)
		if err == nil && string(pod.UID) == former {
			err = errors.New("the previous one is there")
		}
		return err
	})
}

// awaitAnotherID waits until the member votes or learns under another raft ID.
func (ch *chaos) awaitAnotherID(t *testing.T, member string, former uint64) {
	t.Helper()
	harness.Eventually(t, healWithin, member+" has another ID", func(ctx context.Context) error {
		m, err := ch.cluster.Member(ctx, member)
		if err == nil && (m.ID == 0 || uint64(m.ID) == former) {
			err = fmt.Errorf("it has ID %x, and had %x", m.ID, former)
		}
		return err
	})
}

// eachPod looks at the Pods of all members in the record.
func (ch *chaos) eachPod(ctx context.Context, look func(*corev1.Pod) error) error {
	record, err := ch.cluster.Record(ctx)
	if err != nil {
		return err
	}
	for _, member := range record.Members {
		pod, err := ch.cluster.Pod(ctx, member)
		if err == nil {
			err = look(pod)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// serving is how many Pods of the cluster the client Service selects.
func (ch *chaos) serving(ctx context.Context) (int, error) {
	var pods corev1.PodList
	err := rig.Client.List(ctx, &pods, client.InNamespace(ch.cluster.Namespace), client.MatchingLabels{manifests.LabelServing: "true"})
	return len(pods.Items), err
}
