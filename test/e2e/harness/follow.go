package harness

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// FollowLogs reads a container's log of each member from now on. The returned function waits until all those containers
// have ended, and returns the lines of all of them: what a Pod did to its end is not to be had after it.
func (c *Cluster) FollowLogs(t testing.TB, container string) (ended func() string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	now := metav1.Now()
	var group errgroup.Group
	var mu sync.Mutex
	var all strings.Builder
	for _, member := range c.MemberNames(t) {
		stream, err := c.Rig.Kube.CoreV1().Pods(c.Namespace).
			GetLogs(member, &corev1.PodLogOptions{Container: container, Follow: true, SinceTime: &now}).Stream(ctx)
		if err != nil {
			cancel()
			t.Fatalf("follow the log of %s/%s: %v", member, container, err)
		}
		group.Go(func() error {
			defer stream.Close()
			text, err := io.ReadAll(stream)
			mu.Lock()
			defer mu.Unlock()
			fmt.Fprintf(&all, "---- log of %s/%s\n%s", member, container, text)
			return err
		})
	}
	t.Cleanup(cancel)
	return func() string {
		t.Helper()
		if err := group.Wait(); err != nil {
			t.Logf("a log broke off: %v", err)
		}
		return all.String()
	}
}
