package plugin

import (
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/test/env"
	"github.com/etcd-druid/druid/test/situations"
)

// progressing is a change of an EtcdCluster: druid works on it, or waits.
func progressing(status metav1.ConditionStatus, reason, message string) func(*v1alpha1.EtcdCluster) {
	return func(c *v1alpha1.EtcdCluster) {
		meta.SetStatusCondition(&c.Status.Conditions, metav1.Condition{
			Type: v1alpha1.ConditionProgressing, Status: status, Reason: reason, Message: message,
		})
	}
}

// statesOf checks a state after each change of a situation. A want is a text, "" for one that says nothing, "end: " and the last text,
// or "error: " and a part of the error.
func statesOf(t *testing.T, situated string, of func(v1alpha1.EtcdCluster) waitState, begin func(*v1alpha1.EtcdCluster),
	all map[string]func(*v1alpha1.EtcdCluster)) {
	t.Helper()
	for want, change := range all {
		c := situation(t, situated).Cluster
		begin(&c)
		change(&c)
		s := of(c)
		got := s.text
		switch {
		case s.err != nil:
			got = "error: " + s.err.Error()
		case s.ended:
			got = "end: " + s.text
		}
		if got != want && (s.err == nil || !strings.HasPrefix(got, want)) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestWaitStateOfAReplacement(t *testing.T) {
	const member = "demo-lgmkl"
	statesOf(t, "serving", func(c v1alpha1.EtcdCluster) waitState { return replaceState(c, member) },
		func(c *v1alpha1.EtcdCluster) { c.Annotations = map[string]string{v1alpha1.ReplaceAnnotation: member} },
		map[string]func(*v1alpha1.EtcdCluster){
			"":                                     func(*v1alpha1.EtcdCluster) {},
			"A new member joins.":                  progressing(metav1.ConditionTrue, v1alpha1.ReasonReplacingMember, "a new member joins"),
			"Backups fail.":                        progressing(metav1.ConditionFalse, v1alpha1.ReasonReplaceBlocked, "backups fail"),
			"end: Member " + member + " has left.": func(c *v1alpha1.EtcdCluster) { c.Status.Members = c.Status.Members[:1] },
			"error: the request was withdrawn":     func(c *v1alpha1.EtcdCluster) { c.Annotations = nil },
			"error: the EtcdCluster is paused":     func(c *v1alpha1.EtcdCluster) { c.Spec.Replicas = 0 },
			"error: druid stopped: too long":       progressing(metav1.ConditionFalse, v1alpha1.ReasonDeadlineExceeded, "too long"),
		})
}

func TestWaitStateOfAnUpgrade(t *testing.T) {
	const to = "3.7.3"
	changed := func(c *v1alpha1.EtcdCluster) {
		for i := range c.Status.Members {
			c.Status.Members[i].Version = to
		}
	}
	statesOf(t, "serving", func(c v1alpha1.EtcdCluster) waitState { return upgradeState(c, to) },
		func(c *v1alpha1.EtcdCluster) { c.Spec.Version, c.Status.ObservedGeneration = to, c.Generation },
		map[string]func(*v1alpha1.EtcdCluster){
			"":                                 func(*v1alpha1.EtcdCluster) {},
			"end: All members run etcd 3.7.3.": changed,
			"The leader changes last.": func(c *v1alpha1.EtcdCluster) {
				changed(c)
				progressing(metav1.ConditionTrue, v1alpha1.ReasonUpgrading, "the leader changes last")(c)
			},
			"error: spec.version is 3.6.16 now":  func(c *v1alpha1.EtcdCluster) { c.Spec.Version = "3.6.16" },
			"error: druid stopped: no more time": progressing(metav1.ConditionFalse, v1alpha1.ReasonDeadlineExceeded, "no more time"),
		})
	c := situation(t, "serving").Cluster
	changed(&c)
	c.Spec.Version, c.Status.ObservedGeneration = to, c.Generation-1
	if s := upgradeState(c, to); s.ended {
		t.Error("a change that druid has not seen has ended")
	}
	progressing(metav1.ConditionFalse, v1alpha1.ReasonDeadlineExceeded, "an earlier change")(&c)
	if s := upgradeState(c, to); s.ended || s.err != nil {
		t.Errorf("a change that druid has not seen failed: %+v", s)
	}
}

func TestWaitStateOfARecovery(t *testing.T) {
	const before = 1
	in := func(phase v1alpha1.RecoveryPhase, message string) func(*v1alpha1.EtcdCluster) {
		return func(c *v1alpha1.EtcdCluster) { c.Status.Recovery.Phase, c.Status.Recovery.Message = phase, message }
	}
	statesOf(t, "quorum-lost-with-a-plan", func(c v1alpha1.EtcdCluster) waitState { return recoverState(c, before, situations.Hash) },
		func(c *v1alpha1.EtcdCluster) {
			c.Status.Epoch, c.Annotations = before, map[string]string{v1alpha1.RecoverAnnotation: situations.Hash}
		},
		map[string]func(*v1alpha1.EtcdCluster){
			"": func(*v1alpha1.EtcdCluster) {},
			"Proposed: Read it.": func(c *v1alpha1.EtcdCluster) {
				c.Annotations = nil
				in(v1alpha1.RecoveryProposed, "read it")(c)
			},
			"Saving: A backup is made.":                    in(v1alpha1.RecoverySaving, "a backup is made"),
			"Preparing: Agents stop etcd.":                 in(v1alpha1.RecoveryPreparing, "agents stop etcd"),
			"Executing: One agent works.":                  in(v1alpha1.RecoveryExecuting, "one agent works"),
			"error: druid refuses: no source":              in(v1alpha1.RecoveryRefused, "no source"),
			"error: there is no plan any more. The quorum": func(c *v1alpha1.EtcdCluster) { c.Status.Recovery = nil },
			"error: there is no plan any more. ":           in(v1alpha1.RecoveryRecovered, ""),
			"error: druid has another plan now":            func(c *v1alpha1.EtcdCluster) { c.Status.Recovery.Plan.Hash = "other" },
			"Executing: Two epochs.": func(c *v1alpha1.EtcdCluster) {
				c.Status.Epoch = before + 1
				in(v1alpha1.RecoveryExecuting, "two epochs")(c)
			},
			"end: The cluster was formed again.": func(c *v1alpha1.EtcdCluster) {
				c.Status.Epoch = before + 1
				in(v1alpha1.RecoveryRecovered, "")(c)
			},
		})
}

// druidDoes plays druid: when the EtcdCluster has the annotation, it changes the status.
func (s *stage) druidDoes(annotation string, change func(*v1alpha1.EtcdCluster)) error {
	s.eventually(func() bool {
		object := s.read()
		if object.GetAnnotations()[annotation] == "" {
			return false
		}
		c, err := convert[v1alpha1.EtcdCluster](*object)
		if err != nil {
			return false
		}
		change(&c)
		if object.Object["status"], err = runtime.DefaultUnstructuredConverter.ToUnstructured(&c.Status); err != nil {
			return false
		}
		_, err = s.dynamic.Resource(clusterResource).Namespace(s.namespace).UpdateStatus(s.Context(), object, metav1.UpdateOptions{})
		return err == nil
	})
	return nil
}

func TestCommandsWaitForTheEnd(t *testing.T) {
	const member = "demo-lgmkl"
	for _, one := range []struct {
		situation, annotation string
		args                  []string
		druid                 func(*v1alpha1.EtcdCluster)
		code                  int
		says                  string
	}{
		{"serving", v1alpha1.ReplaceAnnotation, []string{"replace", "demo", member, "--wait"},
			func(c *v1alpha1.EtcdCluster) { c.Status.Members = c.Status.Members[:1] }, 0, "Member " + member + " has left."},
		{"serving", v1alpha1.ReplaceAnnotation, []string{"replace", "demo", member, "--wait"},
			progressing(metav1.ConditionFalse, v1alpha1.ReasonDeadlineExceeded, "it took too long"), 1,
			"the replacement of member " + member + " of EtcdCluster "},
		{"quorum-lost-with-a-plan", v1alpha1.RecoverAnnotation, []string{"recover", "demo", "--approve", situations.Hash, "--wait"},
			func(c *v1alpha1.EtcdCluster) { c.Status.Epoch, c.Status.Recovery = c.Status.Epoch+1, nil }, 0, "The cluster was formed again."},
		{"quorum-lost-with-a-plan", v1alpha1.RecoverAnnotation, []string{"recover", "demo", "--approve", situations.Hash, "--wait"},
			func(c *v1alpha1.EtcdCluster) { c.Status.Recovery.Phase = v1alpha1.RecoveryRefused }, 1, "druid refuses"},
		{"serving", v1alpha1.ReplaceAnnotation, []string{"replace", "demo", member, "--wait", "--timeout", "1ms"},
			func(*v1alpha1.EtcdCluster) {}, 1, "It continues without this command: kubectl druid"},
	} {
		s := newStage(t, env.APIServer(t))
		s.put(situation(t, one.situation))
		var druid errgroup.Group
		druid.Go(func() error { return s.druidDoes(one.annotation, one.druid) })
		out, errs, code := s.run(one.args...)
		if err := druid.Wait(); err != nil {
			t.Fatal(err)
		}
		if contains(t, out+errs, one.says); code != one.code {
			t.Errorf("%v: exit code %d, want %d: %s%s", one.args, code, one.code, out, errs)
		}
	}
}

func TestAWaitNeedsARequest(t *testing.T) {
	s := newStage(t, env.APIServer(t))
	s.put(situation(t, "serving"))
	for says, args := range map[string][]string{
		"--wait needs --apply":   {"upgrade", "demo", "3.7.3", "--wait"},
		"--wait needs --approve": {"recover", "demo", "--wait"},
		"none of the others can": {"replace", "demo", "--cancel", "--wait"},
	} {
		if _, errs, code := s.run(args...); code != 1 || !strings.Contains(errs, says) {
			t.Errorf("%v: exit code %d, %s", args, code, errs)
		}
	}
	if _, errs, code := s.run("restore", "demo", "--latest", "--wait"); code != 1 || !strings.Contains(errs, "--wait needs --apply") {
		t.Errorf("restore: exit code %d, %s", code, errs)
	}
	if w := (waiting{timeout: time.Hour}); w.needs(nil, "apply") != nil {
		t.Error("without --wait, a request is needed")
	}
}
