package harness

import (
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/test/rig/lab"
)

// DruidNamespace and druidDeployment are where the install manifests put druid; druidLease is for which its replicas
// campaign.
const (
	DruidNamespace  = "druid-system"
	druidDeployment = "druid"
	druidLease      = "druid"
)

// StopDruid scales druid to nothing and waits until none of it runs. druid comes back at the end of the test.
func (r *Rig) StopDruid(t testing.TB) {
	t.Helper()
	t.Cleanup(func() {
		if err := r.scaleDruid(context.WithoutCancel(t.Context()), 2); err != nil {
			t.Errorf("start druid again: %v", err)
		}
	})
	if err := r.scaleDruid(t.Context(), 0); err != nil {
		t.Fatalf("stop druid: %v", err)
	}
	Eventually(t, maxWait, "no Pod of druid", func(ctx context.Context) error {
		pods, err := r.DruidPods(ctx)
		if err != nil || len(pods) > 0 {
			return errors.Join(err, fmt.Errorf("%d Pods of druid", len(pods)))
		}
		return nil
	})
}

// StartDruid scales druid to its two replicas and waits until they are ready.
func (r *Rig) StartDruid(t testing.TB) {
	t.Helper()
	if err := r.scaleDruid(t.Context(), 2); err != nil {
		t.Fatalf("start druid: %v", err)
	}
	Eventually(t, maxWait, "druid ready", r.druidReady)
}

// UpgradeDruid lets druid run, and give the agents, these images, as a new version of the install manifests would.
func (r *Rig) UpgradeDruid(t testing.TB, image, agents string) {
	t.Helper()
	if err := r.setDruid(t.Context(), image, agents); err != nil {
		t.Fatalf("upgrade druid to %s, with agents of %s: %v", image, agents, err)
	}
}

// RestoreDruid lets druid run the image that the rig installed, and waits until it does.
func (r *Rig) RestoreDruid(t testing.TB) {
	t.Helper()
	if err := r.setDruid(context.WithoutCancel(t.Context()), lab.DruidImage, lab.DruidImage); err != nil {
		t.Errorf("restore druid: %v", err)
	}
}

func (r *Rig) setDruid(ctx context.Context, image, agents string) error {
	_, err := poll(ctx, maxWait, func(ctx context.Context) error {
		deployment := &appsv1.Deployment{}
		if err := r.Client.Get(ctx, Key(DruidNamespace, druidDeployment), deployment); err != nil {
			return err
		}
		container := &deployment.Spec.Template.Spec.Containers[0]
		container.Image = image
		container.Args = slices.DeleteFunc(container.Args, func(arg string) bool { return strings.HasPrefix(arg, "--agent-image=") })
		if agents != image {
			container.Args = append(container.Args, "--agent-image="+agents)
		}
		return r.Client.Update(ctx, deployment)
	})
	if err != nil {
		return err
	}
	_, err = poll(ctx, installTimeout, r.druidReady)
	return err
}

func (r *Rig) scaleDruid(ctx context.Context, replicas int) error {
	deployment := &appsv1.Deployment{}
	deployment.Namespace, deployment.Name = DruidNamespace, druidDeployment
	patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas))
	_, err := poll(ctx, maxWait, func(ctx context.Context) error { return r.Client.Patch(ctx, deployment, patch) })
	return err
}

func (r *Rig) druidReady(ctx context.Context) error {
	deployment := &appsv1.Deployment{}
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: DruidNamespace, Name: druidDeployment}, deployment)
	if err != nil {
		return err
	}
	s := deployment.Status
	if s.ObservedGeneration != deployment.Generation || s.ReadyReplicas != *deployment.Spec.Replicas || s.UpdatedReplicas != s.Replicas {
		return differ("druid's Deployment", fmt.Sprintf("%+v", s), fmt.Sprint(*deployment.Spec.Replicas, " ready"))
	}
	return nil
}

// DruidPods are druid's Pods.
func (r *Rig) DruidPods(ctx context.Context) ([]corev1.Pod, error) {
	var pods corev1.PodList
	err := r.Client.List(ctx, &pods, client.InNamespace(DruidNamespace))
	if err != nil {
		return nil, err
	}
	var found []corev1.Pod
	for _, p := range pods.Items {
		if strings.HasPrefix(p.Name, druidDeployment+"-") {
			found = append(found, p)
		}
	}
	return found, nil
}

// DruidLeader is the Pod of the druid that works.
func (r *Rig) DruidLeader(t testing.TB) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{}
	Eventually(t, time.Minute, "a druid that leads", func(ctx context.Context) error {
		holder, err := r.druidHolder(ctx)
		if err != nil {
			return err
		}
		// client-go's identity is <Pod name>_<UUID>.
		name, _, _ := strings.Cut(holder, "_")
		return r.Client.Get(ctx, Key(DruidNamespace, name), pod)
	})
	return pod
}

// druidMetricsPort is that of the install.
const druidMetricsPort = 8080

// AwaitDruidMetric waits until the druid that works reports the series.
func (r *Rig) AwaitDruidMetric(t testing.TB, within time.Duration, series *regexp.Regexp) {
	t.Helper()
	Eventually(t, within, "the metric "+series.String(), func(ctx context.Context) error {
		page, err := r.druidMetrics(ctx, r.DruidLeader(t))
		if err == nil && !series.MatchString(page) {
			err = errors.New("druid does not report it")
		}
		return err
	})
}

func (r *Rig) druidMetrics(ctx context.Context, pod *corev1.Pod) (string, error) {
	dial := func(ctx context.Context, address string) (net.Conn, error) { return r.Dial(ctx, "tcp", address) }
	return fetchPage(ctx, dial, net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(druidMetricsPort)), "/metrics")
}

// druidHolder holds druid's own Lease.
func (r *Rig) druidHolder(ctx context.Context) (string, error) {
	lease := &coordinationv1.Lease{}
	if err := r.Client.Get(ctx, Key(DruidNamespace, druidLease), lease); err != nil {
		return "", err
	}
	if lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" {
		return "", errors.New("druid's Lease has no holder")
	}
	return *lease.Spec.HolderIdentity, nil
}

// KillDruid kills the druid that works, as the kernel does when memory is short, and returns how long it took until
// another process worked in its place.
func (r *Rig) KillDruid(t testing.TB) time.Duration {
	t.Helper()
	var pids []int
	Eventually(t, 2*time.Minute, "a druid that works", func(context.Context) (err error) { // one that lost its Lease ends
		pids, err = Processes(string(r.DruidLeader(t).UID), Druid)
		if err == nil && len(pids) != 1 {
			err = fmt.Errorf("it runs as %v", pids)
		}
		return err
	})
	before, err := r.druidHolder(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pids[0], syscall.SIGKILL); err != nil {
		t.Fatalf("kill druid (%d): %v", pids[0], err)
	}
	return Eventually(t, 2*time.Minute, "another druid leads", func(ctx context.Context) error {
		holder, err := r.druidHolder(ctx)
		if err == nil && holder == before {
			return fmt.Errorf("%s still does", holder)
		}
		return err
	})
}

// KillDruids kills all druids that run at once, the one that works and the other. It does not wait until their containers start again.
func (r *Rig) KillDruids(t testing.TB) {
	t.Helper()
	Eventually(t, 2*time.Minute, "the druids are killed", func(ctx context.Context) error {
		pods, err := r.DruidPods(ctx)
		if err != nil {
			return err
		}
		killed := 0
		for _, pod := range pods {
			pids, err := Processes(string(pod.UID), Druid)
			if err != nil {
				return err
			}
			for _, pid := range pids {
				if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
					return fmt.Errorf("kill druid (%d): %w", pid, err)
				}
				killed++
			}
		}
		if killed == 0 {
			return errors.New("no druid runs")
		}
		return nil
	})
}
