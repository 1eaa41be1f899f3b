package bench

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/test/e2e/harness"
)

// bareName is a Lease without a member, so that the agent in the bare Pod has nothing to do but to wait.
const bareName = "bare"

// barePod is the reference for what joins and for what leaves: a Pod and a claim like those of a member, whose etcd starts
// at once as a cluster of its own. It returns what the Pod's end and start take together.
func barePod(b *testing.B, c *harness.Cluster, like string) (both time.Duration) {
	b.Helper()
	pod, claim := bareCopy(b, c, like)
	begun := time.Now()
	if err := rig.Client.Create(b.Context(), claim); err != nil {
		b.Fatal(err)
	}
	if err := rig.Client.Create(b.Context(), pod); err != nil {
		b.Fatal(err)
	}
	harness.Eventually(b, within, "the bare Pod ready", func(ctx context.Context) error {
		p, err := c.Pod(ctx, bareName)
		if err != nil {
			return err
		}
		for _, condition := range p.Status.Conditions {
			if condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue {
				return nil
			}
		}
		return fmt.Errorf("phase %s", p.Status.Phase)
	})
	started := time.Since(begun)
	report.seconds("reference: a member's Pod and claim with a bare etcd, create → Ready", "", started)
	begun = time.Now()
	c.Delete(b, &corev1.Pod{}, bareName)
	harness.Eventually(b, within, "the end of the bare Pod", func(ctx context.Context) error {
		_, err := c.Pod(ctx, bareName)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(err, errors.New("it is there"))
	})
	ended := time.Since(begun)
	report.seconds("reference: that Pod deleted → gone", "", ended)
	c.Delete(b, &corev1.PersistentVolumeClaim{}, bareName)
	return started + ended
}

// bareCopy makes the Pod and the claim like those of a member, without what makes them the member's.
func bareCopy(b *testing.B, c *harness.Cluster, like string) (*corev1.Pod, *corev1.PersistentVolumeClaim) {
	b.Helper()
	claim := &corev1.PersistentVolumeClaim{}
	if err := rig.Client.Get(b.Context(), harness.Key(c.Namespace, like), claim); err != nil {
		b.Fatal(err)
	}
	meta := metav1.ObjectMeta{Namespace: c.Namespace, Name: bareName}
	claim.ObjectMeta, claim.Status, claim.Spec.VolumeName = meta, corev1.PersistentVolumeClaimStatus{}, ""
	pod := c.MustPod(b, like)
	pod.ObjectMeta, pod.Status = meta, corev1.PodStatus{}
	pod.Spec.NodeName, pod.Spec.Hostname = "", bareName
	for i := range pod.Spec.Volumes {
		if v := pod.Spec.Volumes[i].PersistentVolumeClaim; v != nil {
			v.ClaimName = bareName
		}
	}
	for i := range pod.Spec.InitContainers {
		command := pod.Spec.InitContainers[i].Command
		for j := range command {
			command[j] = strings.ReplaceAll(command[j], like, bareName)
		}
	}
	etcd := &pod.Spec.Containers[0]
	etcd.Args, etcd.Command = nil, []string{
		"/usr/local/bin/etcd", "--data-dir=/var/lib/etcd/data", "--listen-client-urls=http://0.0.0.0:2379",
		"--advertise-client-urls=http://127.0.0.1:2379", "--listen-metrics-urls=http://0.0.0.0:2381",
	}
	return pod, claim
}
