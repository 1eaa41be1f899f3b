package plugin

import (
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/test/env"
	"github.com/etcd-druid/druid/test/golden"
	"github.com/etcd-druid/druid/test/situations"
)

// step is a command, its exit code, what it says, and the annotation after it.
type step struct {
	args []string
	code int
	says []string
	left string
}

// steps runs commands one after another. A command that fails must not write.
func (s *stage) steps(annotation string, all ...step) {
	s.Helper()
	for _, step := range all {
		before := s.read().GetResourceVersion()
		out, errs, code := s.run(step.args...)
		contains(s.T, out+errs, step.says...)
		after := s.read()
		if got := after.GetAnnotations()[annotation]; code != step.code || got != step.left {
			s.Errorf("%v: exit code %d, annotation %q, want %d, %q\n%s%s", step.args, code, got, step.code, step.left, out, errs)
		}
		if code != 0 && after.GetResourceVersion() != before {
			s.Errorf("%v failed and wrote the EtcdCluster", step.args)
		}
	}
}

func TestAMemberIsReplacedOnRequest(t *testing.T) {
	s := newStage(t, env.APIServer(t))
	s.put(situation(t, "serving"))
	out, _, code := s.run("replace", "demo", "demo-lgmkl")
	if code != 0 {
		t.Fatalf("exit code %d", code)
	}
	golden.File(t, "testdata/replace.txt", s.neutral(out))
	s.steps(v1alpha1.ReplaceAnnotation,
		step{[]string{"replace", "demo", "demo-lgmkl"}, 1, []string{"is requested already", "Nothing was changed"}, "demo-lgmkl"},
		step{[]string{"replace", "demo", "demo-sx47z"}, 1, []string{"the replacement of member demo-lgmkl is requested already", "--cancel"}, "demo-lgmkl"},
		step{[]string{"replace", "demo", "demo-aaaaa"}, 1,
			[]string{`"demo-aaaaa" is no member of it. Its members are demo-bqdq7, demo-lgmkl, demo-sx47z`}, "demo-lgmkl"},
		step{[]string{"replace", "demo"}, 1, []string{"got 1 arguments, want the name of one EtcdCluster and of one of its members"}, "demo-lgmkl"},
		step{[]string{"replace", "demo", "demo-sx47z", "--cancel"}, 1, []string{"is to replace member demo-lgmkl, and not demo-sx47z"}, "demo-lgmkl"},
		step{[]string{"replace", "demo", "--cancel"}, 0, []string{"You withdrew the request to replace member demo-lgmkl", "A removal that has begun continues"}, ""},
		step{[]string{"replace", "demo", "--cancel"}, 1, []string{"has no request to replace a member"}, ""},
		step{[]string{"hands-off", "demo", "--reason", "disk copy"}, 0, nil, ""},
		step{[]string{"replace", "demo", "demo-sx47z"}, 0, []string{"It waits: druid is kept off the cluster: disk copy"}, "demo-sx47z"},
		step{[]string{"replace", "demo", "demo-sx47z", "--cancel"}, 0, []string{"You withdrew"}, ""},
	)
}

func TestWhatCannotBeReplacedIsRefused(t *testing.T) {
	for want, change := range map[string]func(*v1alpha1.EtcdCluster){
		"the EtcdCluster is being deleted":  func(c *v1alpha1.EtcdCluster) { c.DeletionTimestamp = &metav1.Time{Time: time.Now()} },
		"its status has no members yet":     func(c *v1alpha1.EtcdCluster) { c.Status.Members = nil },
		"the EtcdCluster is paused. Resume": func(c *v1alpha1.EtcdCluster) { c.Spec.Replicas = 0 },
		"no quorum serves, and without one no m": func(c *v1alpha1.EtcdCluster) {
			meta.SetStatusCondition(&c.Status.Conditions, metav1.Condition{
				Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonQuorumLost,
			})
		},
		`"demo-bqdq7" is no member of it. Its `: func(c *v1alpha1.EtcdCluster) { c.Status.Members = c.Status.Members[1:] },
		"the replacement of member demo-sx47z i": func(c *v1alpha1.EtcdCluster) {
			c.Annotations = map[string]string{v1alpha1.ReplaceAnnotation: "demo-sx47z"}
		},
	} {
		c := situation(t, "serving").Cluster
		// A name that was replaced before stays in the annotation.
		c.Annotations = map[string]string{v1alpha1.ReplaceAnnotation: "demo-gone1"}
		if err := selection("").replaceable(c, "demo-bqdq7"); err != nil {
			t.Fatal(err)
		}
		change(&c)
		if err := selection("").replaceable(c, "demo-bqdq7"); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func TestMembersThatLeaveFirst(t *testing.T) {
	s := newStage(t, env.APIServer(t))
	s.put(situation(t, "serving"))
	s.steps(v1alpha1.LeaveFirstAnnotation,
		step{[]string{"leave-first", "demo"}, 1, []string{"got 1 arguments, want the name of one EtcdCluster and of its members"}, ""},
		step{[]string{"leave-first", "demo", "demo-lgmkl", "demo-aaaaa"}, 1, []string{`"demo-aaaaa" is no member`, "Nothing was changed"}, ""},
		step{[]string{"leave-first", "demo", "demo-sx47z", "demo-lgmkl"}, 0,
			[]string{"these leave first: demo-sx47z, demo-lgmkl.", "--replicas NUMBER"}, "demo-sx47z,demo-lgmkl"},
		step{[]string{"leave-first", "demo", "demo-lgmkl", "--clear"}, 1, []string{"with --clear"}, "demo-sx47z,demo-lgmkl"},
		step{[]string{"leave-first", "demo", "--clear"}, 0, []string{"druid selects"}, ""},
	)
	out, _, _ := s.run("__complete", "leave-first", "--kubeconfig", s.kubeconfig, "demo", "demo-lgmkl", "")
	contains(t, out, "demo-bqdq7\ndemo-sx47z\n:4")
	out, _, _ = s.run("__complete", "replace", "--kubeconfig", s.kubeconfig, "")
	contains(t, out, "demo\n:4")
}

func TestDruidIsKeptOffACluster(t *testing.T) {
	s := newStage(t, env.APIServer(t))
	s.put(situation(t, "serving"))
	const reason = "disk copy on n2, ask Kim"
	s.steps(v1alpha1.HandsOffAnnotation,
		step{[]string{"hands-off", "demo"}, 1, []string{"at least one of the flags in the group [reason end] is required"}, ""},
		step{[]string{"hands-off", "demo", "--reason", " "}, 1, []string{"--reason is empty"}, ""},
		step{[]string{"hands-off", "demo", "--end"}, 1, []string{"druid is not kept off EtcdCluster"}, ""},
	)
	out, _, code := s.run("hands-off", "demo", "--reason", reason)
	if code != 0 {
		t.Fatalf("exit code %d", code)
	}
	golden.File(t, "testdata/hands-off.txt", s.neutral(out))
	s.steps(v1alpha1.HandsOffAnnotation,
		step{[]string{"hands-off", "demo", "--reason", "mine"}, 1, []string{"already: " + reason + ". Nothing was changed", "--end"}, reason},
		step{[]string{"hands-off", "demo", "--reason", "mine", "--end"}, 1, []string{"none of the others can be"}, reason},
		step{[]string{"hands-off", "demo", "--end"}, 0, []string{"again. The reason was: " + reason + "."}, ""},
	)
}

func TestARestoreKeepsClientsCutOffMeanwhile(t *testing.T) {
	s := newStage(t, env.APIServer(t))
	o := situation(t, "serving")
	o.Cluster.Status.Recovery = &v1alpha1.RecoveryStatus{Phase: v1alpha1.RecoverySaving}
	s.put(o)
	s.steps(v1alpha1.HandsOffAnnotation,
		step{[]string{"hands-off", "demo", "--reason", "work"}, 0, []string{"Clients are cut off", "stay cut off until"}, "work"},
	)
}

// TestReplaceRefusesChangedCluster: an EtcdCluster that changed after the check is not written.
// What was checked must be what is written.
func TestReplaceRefusesChangedCluster(t *testing.T) {
	s := newStage(t, env.APIServer(t))
	s.put(situation(t, "serving"))
	read, err := convert[v1alpha1.EtcdCluster](*s.read())
	if err != nil {
		t.Fatal(err)
	}
	if _, _, code := s.run("replace", "demo", "demo-lgmkl"); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	cmd := &cobra.Command{}
	cmd.SetContext(t.Context())
	err = (&kube{dynamic: s.dynamic, namespace: s.namespace}).annotate(cmd, read, v1alpha1.ReplaceAnnotation, "demo-sx47z")
	if err == nil || !strings.Contains(err.Error(), "nothing was written. Run the command again") {
		t.Errorf("got %v", err)
	}
	if got := s.read().GetAnnotations()[v1alpha1.ReplaceAnnotation]; got != "demo-lgmkl" {
		t.Errorf("the annotation is %q", got)
	}
}

func TestTheClaimOfAReplacedMemberCanStay(t *testing.T) {
	c := situation(t, "serving").Cluster
	contains(t, claimToo(c, false), "and its PersistentVolumeClaim")
	contains(t, claimToo(c, true), "Its PersistentVolumeClaim stays")
	c.Spec.Storage.PersistentVolumeClaimRetentionPolicy.WhenScaled = v1alpha1.RetainPersistentVolumeClaim
	contains(t, claimToo(c, false), "Its PersistentVolumeClaim stays")
	for _, medium := range []v1alpha1.StorageMedium{v1alpha1.StorageMemory, v1alpha1.StorageDisk} {
		c.Spec.Storage.Medium = medium
		if got := claimToo(c, false); got != " with its data" {
			t.Errorf("%s: %q", medium, got)
		}
	}
}

// What a member's owner needs, and no more.
func TestAnnotationsNeedGetAndPatch(t *testing.T) {
	s := newStage(t, env.APIServer(t))
	s.put(situation(t, "serving"))
	s.grant("operator", rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"etcdclusters"}, Verbs: []string{"get", "patch"}})
	s.eventually(func() bool {
		_, _, code := s.run("replace", "demo", situations.Members[0], "--as", "operator")
		return code == 0
	})
	for _, args := range [][]string{{"leave-first", "demo", situations.Members[0]}, {"hands-off", "demo", "--reason", "work"}} {
		if _, errs, code := s.run(append(args, "--as", "operator")...); code != 0 {
			t.Errorf("%v: %s", args, errs)
		}
	}
}
