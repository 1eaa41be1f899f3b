package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/test/e2e/harness"
	"github.com/etcd-druid/druid/test/e2e/stories"
)

// TestRolloutStopsAtBadImage: a cluster rolls under load and a bad image stops it.
func TestRolloutStopsAtBadImage(t *testing.T) {
	stories.Begin(t)
	c := rig.Apply(t)
	view := c.AwaitMembers(t, 3, formWithin)
	w, s := harness.Load(t, c.EtcdService(t)), c.Sample(t)
	e := c.Evict(t, s)
	t.Run("an edit replaces one Pod after another", func(t *testing.T) {
		before := podsOf(t, c, view)
		begun := time.Now()
		w.Gap()
		c.Edit(t, requests("101m"))
		harness.Eventually(t, scaleWithin, "Pods that request what the spec asks for", func(ctx context.Context) error {
			for member := range view.Members {
				pod, err := c.Pod(ctx, member)
				if err != nil {
					return err
				}
				if got := pod.Spec.Containers[0].Resources.Requests.Cpu().String(); got != "101m" {
					return fmt.Errorf("Pod %s requests %s", member, got)
				}
			}
			return nil
		})
		c.AwaitCondition(t, scaleWithin, "Progressing", "False", "Reconciled")
		view = stableAs(t, c, view)
		t.Logf("all three were replaced after %s", time.Since(begun).Round(100*time.Millisecond))
		servedOn(t, w)
		for member, uid := range podsOf(t, c, view) {
			if uid == before[member] {
				t.Errorf("Pod %s is the one that was there before", member)
			}
		}
	})
	t.Run("an image that does not exist takes down one member until the deadline and after it, and is corrected", func(t *testing.T) {
		before := podsOf(t, c, view)
		cluster, err := c.Get(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		w.Gap()
		// The kubelet reports the image after up to half a minute: the deadline must not come first.
		c.Edit(t, `{"spec":{"image":"registry.invalid/etcd","progressDeadlineSeconds":90}}`)
		c.AwaitCondition(t, scaleWithin, "Progressing", "False", "RollingUpdateBlocked", "registry.invalid/etcd")
		c.AwaitCondition(t, scaleWithin, "Degraded", "True", "ImagePullFailed", "registry.invalid/etcd")
		w.AwaitWrites(t, 200, scaleWithin)
		c.AwaitCondition(t, scaleWithin, "Progressing", "False", v1alpha1.ReasonDeadlineExceeded, "registry.invalid/etcd")
		announces(t, c, v1alpha1.ReasonDeadlineExceeded, "at the deadline")
		down := podsOf(t, c, view)
		maps.DeleteFunc(down, func(member, uid string) bool { return uid == before[member] })
		if len(down) != 1 {
			t.Errorf("%d Pods were replaced by such that cannot start, want 1: %v", len(down), down)
		}
		c.Edit(t, fmt.Sprintf(`{"spec":{"image":%q,"progressDeadlineSeconds":null}}`, cluster.Spec.Image))
		reportsAs(t, c, corev1.EventTypeNormal, v1alpha1.ReasonRetryAfterDeadline, "was accepted")
		c.AwaitCondition(t, scaleWithin, "Progressing", "False", "Reconciled")
		view = stableAs(t, c, view)
		servedOn(t, w)
		for member, uid := range podsOf(t, c, view) {
			if _, wasDown := down[member]; uid != before[member] && !wasDown {
				t.Errorf("Pod %s was replaced although it ran what the spec asks for in the end", member)
			}
		}
	})
	e.Stop(t)
	s.Stop(t)
	w.Stop(t, c.Etcd(t))
}

// TestFiveEditsEndInTheLast: five edits in the middle of an update end in the last.
func TestFiveEditsEndInTheLast(t *testing.T) {
	stories.Begin(t)
	c := rig.Apply(t)
	view := c.AwaitMembers(t, 3, formWithin)
	w, s := harness.Load(t, c.EtcdService(t)), c.Sample(t)
	e := c.Evict(t, s)
	begun := time.Now()
	w.Gap()
	before := podsOf(t, c, view)
	c.Edit(t, requests("102m"))
	harness.Eventually(t, scaleWithin, "the first Pod is replaced", func(context.Context) error {
		if after := podsOf(t, c, view); maps.Equal(before, after) {
			return errors.New("all Pods are those of before")
		}
		return nil
	})
	for _, edit := range []string{requests("103m"), `{"spec":{"replicas":5}}`, `{"spec":{"env":[{"name":"GOGC","value":"90"}]}}`,
		`{"spec":{"replicas":1}}`, requests("104m")} {
		c.Edit(t, edit)
	}
	seen := map[string]bool{}
	harness.Eventually(t, 2*scaleWithin, "the last edit is reached", func(ctx context.Context) error {
		record, err := c.Record(ctx)
		if err != nil {
			return err
		}
		if len(record.Members) != len(view.Members) {
			t.Errorf("the record lists %v", record.Members)
		}
		for member := range view.Members {
			if pod, err := c.Pod(ctx, member); err == nil {
				seen[pod.Spec.Containers[0].Resources.Requests.Cpu().String()] = true
			}
		}
		_, err = asAsked(ctx, c)
		return err
	})
	view = stableAs(t, c, view)
	t.Logf("reached after %s", time.Since(begun).Round(100*time.Millisecond))
	servedOn(t, w)
	delete(seen, "100m") // what druid adds, and was there before
	if want := map[string]bool{"102m": true, "104m": true}; !maps.Equal(seen, want) {
		t.Errorf("Pods requested %v, want only the first edit and the last, %v", seen, want)
	}
	for member := range view.Members {
		if got := c.MustPod(t, member).Spec.Containers[0]; got.Resources.Requests.Cpu().String() != "104m" || len(got.Env) > 0 {
			t.Errorf("Pod %s is not what the last edit asks for: %v %v", member, got.Resources.Requests, got.Env)
		}
	}
	e.Stop(t)
	s.Stop(t)
	w.Stop(t, c.Etcd(t))
}

// requests is an edit that needs other Pods, and takes back what others asked for.
func requests(cpu string) string {
	return fmt.Sprintf(`{"spec":{"replicas":3,"env":null,"resources":{"requests":{"cpu":%q}}}}`, cpu)
}

func stableAs(t *testing.T, c *harness.Cluster, before harness.View) harness.View {
	t.Helper()
	after := c.AwaitMembers(t, len(before.Members), scaleWithin)
	same(t, before, after)
	return after
}

// podsOf are the UIDs of the members' Pods.
func podsOf(t *testing.T, c *harness.Cluster, view harness.View) map[string]string {
	t.Helper()
	uids := map[string]string{}
	for member := range view.Members {
		harness.Eventually(t, healWithin, "Pod "+member, func(ctx context.Context) error {
			pod, err := c.Pod(ctx, member)
			if err != nil {
				return err
			}
			uids[member] = string(pod.UID)
			return nil
		})
	}
	return uids
}
