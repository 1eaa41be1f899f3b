package harness

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/test/rig/binaries"
)

// dumpTimeout bounds what a failed test spends on telling why.
const dumpTimeout = 30 * time.Second

// logLines of each container that a failed test shows.
const logLines = int64(80)

// dumpIfFailed writes down all that can be known about the cluster when its test failed: into a file, so that the failure
// itself is found in the test's output. The next failure of the test replaces it.
func (c *Cluster) dumpIfFailed(t testing.TB) {
	t.Helper()
	if !t.Failed() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), dumpTimeout)
	defer cancel()
	text := fmt.Sprintf("==== %s\n%s==== druid\n%s", c, c.Dump(ctx), c.Rig.logsOf(ctx, DruidNamespace, nil))
	path, err := keepDump(strings.ReplaceAll(t.Name(), "/", "_")+"-"+c.Name+".txt", text)
	if err != nil {
		t.Logf("%v; so here it is:\n%s", err, text)
		return
	}
	t.Logf("all that is known of %s and druid is in %s", c, path)
}

func keepDump(name, text string) (string, error) {
	cache, err := binaries.CacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "failed")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("keep what a failed test tells: %w", err)
	}
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return "", fmt.Errorf("keep what a failed test tells: %w", err)
	}
	return path, nil
}

// Dump describes the cluster: status, Leases, Pods, claims, events, logs. What cannot be had is said in its place.
func (c *Cluster) Dump(ctx context.Context) string {
	var b strings.Builder
	if cluster, err := c.Get(ctx); err != nil {
		fmt.Fprintf(&b, "EtcdCluster: %v\n", err)
	} else {
		fmt.Fprintf(&b, "EtcdCluster generation %d: %s\n", cluster.Generation, describe(cluster.Status))
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

func (r *Rig) logOf(ctx context.Context, pod *corev1.Pod, container string) string {
	lines := logLines
	stream, err := r.Kube.CoreV1().Pods(pod.Namespace).
		GetLogs(pod.Name, &corev1.PodLogOptions{Container: container, TailLines: &lines}).Stream(ctx)
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
