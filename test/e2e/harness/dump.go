package harness

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/test/e2e/stories"
)

// dumpTimeout bounds what a failed test spends on finding out why.
const dumpTimeout = time.Minute

// logLines of each container that a failed test shows: on a busy cluster a few minutes.
const logLines = int64(500)

// applied are the clusters of the tests that run, by the tests' names.
var applied = struct {
	mu sync.Mutex
	by map[string][]*Cluster
}{by: map[string][]*Cluster{}}

// dumpAtTheEnd remembers that the cluster is its test's, and writes it down at the end of the test if that failed and nothing was
// written down before.
func (c *Cluster) dumpAtTheEnd(t testing.TB) {
	t.Helper()
	applied.mu.Lock()
	defer applied.mu.Unlock()
	applied.by[t.Name()] = append(applied.by[t.Name()], c)
	t.Cleanup(func() {
		if t.Failed() {
			c.dumpOnce(t)
		}
		applied.mu.Lock()
		defer applied.mu.Unlock()
		delete(applied.by, t.Name())
	})
}

// dumpNow writes down the clusters of a test that is about to fail: what is seen later has the clean-up of the test in it.
func dumpNow(t testing.TB) {
	t.Helper()
	var all []*Cluster
	applied.mu.Lock()
	for name := t.Name(); name != "" && all == nil; name = name[:max(0, strings.LastIndex(name, "/"))] {
		all = slices.Clone(applied.by[name])
	}
	applied.mu.Unlock()
	for _, c := range all {
		c.dumpOnce(t)
	}
}

// dumpOnce writes down all that can be known about the cluster, and about druid: into a file, so that the failure itself is found in
// the test's output.
func (c *Cluster) dumpOnce(t testing.TB) {
	t.Helper()
	if c.dumped.Swap(true) {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), dumpTimeout)
	defer cancel()
	text := fmt.Sprintf("==== %s at %s, CPU pressure of the story %.0f %%\n%s\n==== %s\n%s==== druid\n%s==== nodes\n%s", t.Name(),
		time.Now().UTC().Format(time.RFC3339), stories.Pressure(t), pressureNow(), c, c.Dump(ctx), c.Rig.dumpDruid(ctx), c.Rig.dumpNodes(ctx))
	name, _, _ := strings.Cut(t.Name(), "/")
	path, err := stories.KeepDump(t, name+"-"+c.Name, text)
	if err != nil {
		t.Logf("%v; so here it is:\n%s", err, text)
		return
	}
	t.Logf("all that is known of %s and druid is in %s", c, path)
}

// pressureNow is what the kernel says of those that waited for a CPU, for the disk and for memory.
func pressureNow() string {
	var b strings.Builder
	for _, of := range []string{"cpu", "io", "memory"} {
		text, err := os.ReadFile("/proc/pressure/" + of)
		if err != nil {
			text = []byte(err.Error())
		}
		fmt.Fprintf(&b, "pressure of %s: %s\n", of, strings.ReplaceAll(strings.TrimSpace(string(text)), "\n", "; "))
	}
	return b.String()
}

// dumpDruid describes druid's own Pods, Lease and logs.
func (r *Rig) dumpDruid(ctx context.Context) string {
	var b strings.Builder
	own := &Cluster{Rig: r, Namespace: DruidNamespace}
	own.dumpLeases(ctx, &b)
	own.dumpPods(ctx, &b)
	own.dumpEvents(ctx, &b)
	b.WriteString(r.logsOf(ctx, DruidNamespace, nil))
	return b.String()
}

func (r *Rig) dumpNodes(ctx context.Context) string {
	var b strings.Builder
	var nodes corev1.NodeList
	if err := r.Client.List(ctx, &nodes); err != nil {
		fmt.Fprintf(&b, "Nodes: %v\n", err)
	}
	for _, n := range nodes.Items {
		fmt.Fprintf(&b, "Node %s unschedulable=%t taints=%v\n", n.Name, n.Spec.Unschedulable, n.Spec.Taints)
		for _, condition := range n.Status.Conditions {
			fmt.Fprintf(&b, "  %s=%s since %s: %s\n", condition.Type, condition.Status, condition.LastTransitionTime.UTC().Format(time.TimeOnly), condition.Message)
		}
	}
	return b.String()
}

// Dump describes the cluster: status, Leases, Pods, claims, events, logs. What cannot be had is said in its place.
func (c *Cluster) Dump(ctx context.Context) string {
	var b strings.Builder
	if cluster, err := c.Get(ctx); err != nil {
		fmt.Fprintf(&b, "EtcdCluster: %v\n", err)
	} else {
		fmt.Fprintf(&b, "EtcdCluster generation %d: %s\n", cluster.Generation, describe(cluster.Status))
		if spec, err := json.Marshal(cluster.Spec); err == nil {
			fmt.Fprintf(&b, "spec: %s\n", spec)
		}
	}
	c.dumpLeases(ctx, &b)
	c.dumpPods(ctx, &b)
	c.dumpEvents(ctx, &b)
	b.WriteString(c.Rig.logsOf(ctx, c.Namespace, client.MatchingLabels{}))
	return b.String()
}

func (c *Cluster) dumpLeases(ctx context.Context, b *strings.Builder) {
	var list coordinationv1.LeaseList
	if err := c.Rig.Client.List(ctx, &list, client.InNamespace(c.Namespace)); err != nil {
		fmt.Fprintf(b, "Leases: %v\n", err)
	}
	for _, l := range list.Items {
		holder, renewed := "", ""
		if l.Spec.HolderIdentity != nil {
			holder = *l.Spec.HolderIdentity
		}
		if l.Spec.RenewTime != nil {
			renewed = l.Spec.RenewTime.UTC().Format(time.TimeOnly)
		}
		fmt.Fprintf(b, "Lease %s holder=%q renewed=%s", l.Name, holder, renewed)
		for _, key := range slices.Sorted(maps.Keys(l.Annotations)) {
			fmt.Fprintf(b, " %s=%q", strings.TrimPrefix(key, "etcd.druid.dev/"), l.Annotations[key])
		}
		b.WriteString("\n")
	}
}

func (c *Cluster) dumpPods(ctx context.Context, b *strings.Builder) {
	var pods corev1.PodList
	if err := c.Rig.Client.List(ctx, &pods, client.InNamespace(c.Namespace)); err != nil {
		fmt.Fprintf(b, "Pods: %v\n", err)
	}
	for _, p := range pods.Items {
		fmt.Fprintf(b, "Pod %s uid=%s node=%s ip=%s phase=%s deleting=%t labels=%v\n",
			p.Name, p.UID, p.Spec.NodeName, p.Status.PodIP, p.Status.Phase, p.DeletionTimestamp != nil, p.Labels)
		for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
			fmt.Fprintf(b, "  %s ready=%t restarts=%d state=%s\n", s.Name, s.Ready, s.RestartCount, stateOf(s.State))
		}
	}
	var claims corev1.PersistentVolumeClaimList
	if err := c.Rig.Client.List(ctx, &claims, client.InNamespace(c.Namespace)); err != nil {
		fmt.Fprintf(b, "PersistentVolumeClaims: %v\n", err)
	}
	for _, p := range claims.Items {
		fmt.Fprintf(b, "PersistentVolumeClaim %s uid=%s phase=%s volume=%s deleting=%t\n",
			p.Name, p.UID, p.Status.Phase, p.Spec.VolumeName, p.DeletionTimestamp != nil)
	}
}

func stateOf(s corev1.ContainerState) string {
	switch {
	case s.Running != nil:
		return "running since " + s.Running.StartedAt.UTC().Format(time.TimeOnly)
	case s.Waiting != nil:
		return "waiting: " + s.Waiting.Reason + " " + s.Waiting.Message
	case s.Terminated != nil:
		return fmt.Sprintf("ended with %d: %s %s", s.Terminated.ExitCode, s.Terminated.Reason, s.Terminated.Message)
	}
	return "unknown"
}

func (c *Cluster) dumpEvents(ctx context.Context, b *strings.Builder) {
	var events corev1.EventList
	if err := c.Rig.Client.List(ctx, &events, client.InNamespace(c.Namespace)); err != nil {
		fmt.Fprintf(b, "Events: %v\n", err)
	}
	for _, e := range events.Items {
		fmt.Fprintf(b, "Event %s %s/%s %s: %s\n", e.LastTimestamp.UTC().Format(time.TimeOnly),
			e.InvolvedObject.Kind, e.InvolvedObject.Name, e.Reason, e.Message)
	}
}

// logsOf returns the last lines of all containers of a namespace.
func (r *Rig) logsOf(ctx context.Context, namespace string, labels client.MatchingLabels) string {
	var b strings.Builder
	var pods corev1.PodList
	if err := r.Client.List(ctx, &pods, client.InNamespace(namespace), labels); err != nil {
		return fmt.Sprintf("logs of %s: %v\n", namespace, err)
	}
	for _, p := range pods.Items {
		for _, container := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
			fmt.Fprintf(&b, "---- log of %s/%s\n%s", p.Name, container.Name, r.logOf(ctx, &p, container.Name))
		}
	}
	return b.String()
}

// logOf a container, and of the one before it where it was restarted.
func (r *Rig) logOf(ctx context.Context, pod *corev1.Pod, container string) string {
	text := r.logFrom(ctx, pod, container, false)
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if s.Name == container && s.RestartCount > 0 {
			text = r.logFrom(ctx, pod, container, true) + "---- after a restart\n" + text
		}
	}
	return text
}

func (r *Rig) logFrom(ctx context.Context, pod *corev1.Pod, container string, previous bool) string {
	lines := logLines
	stream, err := r.Kube.CoreV1().Pods(pod.Namespace).
		GetLogs(pod.Name, &corev1.PodLogOptions{Container: container, TailLines: &lines, Previous: previous}).Stream(ctx)
	if err != nil {
		return err.Error() + "\n"
	}
	defer stream.Close()
	text, err := io.ReadAll(stream)
	if err != nil {
		return string(text) + err.Error() + "\n"
	}
	return string(text)
}
