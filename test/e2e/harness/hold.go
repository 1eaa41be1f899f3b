package harness

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// holdFinalizer keeps a deleted Pod's object, and with it its name, for as long as a test works on its volume.
const holdFinalizer = "e2e.druid.dev/hold"

// Hold is a member whose Pod is stopped and cannot come back before Release.
type Hold struct {
	cluster *Cluster
	member  string
	podUID  string
	once    sync.Once
}

// HoldDown deletes a member's Pod and returns when none of its processes is left. No successor can start: the finalizer
// keeps the name taken. The volume may be changed until Release.
func (c *Cluster) HoldDown(t testing.TB, member string) *Hold {
	t.Helper()
	pod := c.MustPod(t, member)
	h := &Hold{cluster: c, member: member, podUID: string(pod.UID)}
	patch := client.RawPatch("application/merge-patch+json",
		fmt.Appendf(nil, `{"metadata":{"uid":%q,"finalizers":[%q]}}`, pod.UID, holdFinalizer))
	if err := c.Rig.Client.Patch(t.Context(), pod, patch); err != nil {
		t.Fatalf("hold Pod %s: %v", member, err)
	}
	t.Cleanup(func() {
		if err := h.release(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("release Pod %s: %v", member, err)
		}
	})
	c.Delete(t, &corev1.Pod{}, member, client.Preconditions{UID: &pod.UID})
	Eventually(t, maxWait, "the processes of Pod "+member+" ended", func(context.Context) error {
		return h.stopped()
	})
	return h
}

// stopped says whether the Pod's programs have ended.
func (h *Hold) stopped() error {
	var all []error
	for _, program := range []Program{Etcd, Launch, Agent} {
		pids, err := Processes(h.podUID, program)
		if err != nil || len(pids) > 0 {
			all = append(all, fmt.Errorf("%s runs as %v (%w)", program, pids, err))
		}
	}
	return errors.Join(all...)
}

// Release lets the Pod go, so that druid may make its successor.
func (h *Hold) Release(t testing.TB) {
	t.Helper()
	if err := h.release(t.Context()); err != nil {
		t.Fatalf("release Pod %s: %v", h.member, err)
	}
}

func (h *Hold) release(ctx context.Context) (err error) {
	h.once.Do(func() {
		pod := &corev1.Pod{}
		pod.Namespace, pod.Name = h.cluster.Namespace, h.member
		patch := client.RawPatch("application/merge-patch+json",
			fmt.Appendf(nil, `{"metadata":{"uid":%q,"finalizers":null}}`, h.podUID))
		_, err = poll(ctx, maxWait, func(ctx context.Context) error {
			return client.IgnoreNotFound(h.cluster.Rig.Client.Patch(ctx, pod, patch))
		})
	})
	return err
}
