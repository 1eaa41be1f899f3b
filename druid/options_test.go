package druid

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/manifests"
	"github.com/etcd-druid/druid/test/env"
)

func optionsOf(t *testing.T, args ...string) Options {
	t.Helper()
	o := DefaultOptions()
	set := pflag.NewFlagSet("druid", pflag.ContinueOnError)
	o.AddFlags(set)
	if err := set.Parse(append(args, "--agent-image=example.com/druid:1")); err != nil {
		t.Fatal(err)
	}
	return o
}

func TestFlagsDecideTheIntervalsOfTheAgents(t *testing.T) {
	if diff := cmp.Diff(optionsOf(t).reloadable(), config.DefaultReloadable()); diff != "" {
		t.Errorf("without flags the agents have other intervals than by default (-got +want)\n%s", diff)
	}
	o := optionsOf(t, "--agent-renew-interval=5s", "--agent-lease-duration=15s", "--superfluous-grace-period=20s")
	if err := o.Validate(); err != nil {
		t.Fatal(err)
	}
	want := config.DefaultReloadable()
	want.RenewInterval, want.LeaseDuration = config.Duration(5*time.Second), config.Duration(15*time.Second)
	want.SuperfluousGracePeriod = config.Duration(20 * time.Second)
	if diff := cmp.Diff(o.reloadable(), want); diff != "" {
		t.Errorf("(-got +want)\n%s", diff)
	}
}

func TestRepositoryOfEtcdIsValidated(t *testing.T) {
	for repository, want := range map[string]bool{
		"registry.example.com/etcd": true, "r:5000/a/b/etcd": true,
		"r/etcd:v3.6.16": false, "r/etcd@sha256:0": false, "etcd ": false, "r/": false, "https://r/etcd": false,
	} {
		err := optionsOf(t, "--etcd-image-repository="+repository).Validate()
		if (err == nil) != want {
			t.Errorf("%q: %v", repository, err)
		}
	}
}

// TestBadAgentIntervalsRefused: intervals that no agent would take are refused at the start.
func TestBadAgentIntervalsRefused(t *testing.T) {
	for name, test := range map[string]struct{ arg, want string }{
		"renewals that flood the API server": {"--agent-renew-interval=500ms", "--agent-renew-interval is 500ms, want 1s to 5m0s"},
		"renewals that say nothing":          {"--agent-renew-interval=1h", "--agent-renew-interval is 1h0m0s, want 1s to 5m0s"},
		"a Lease that two lost renewals end": {
			"--agent-lease-duration=30s", "--agent-lease-duration is 30s, want 45s to 1h0m0s: set it to three times --agent-renew-interval or more",
		},
		"a grace below a Lease's duration": {
			"--superfluous-grace-period=30s", "--superfluous-grace-period is 30s, want 45s to 24h0m0s: set it to --agent-lease-duration or more",
		},
	} {
		t.Run(name, func(t *testing.T) {
			err := optionsOf(t, test.arg).Validate()
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q in it", err, test.want)
			}
		})
	}
}

// TestAgentIntervalsNeedNoNewPod: intervals of the agents change without a new Pod.
// The agents read their file again: no Pod is replaced for it.
func TestAgentIntervalsNeedNoNewPod(t *testing.T) {
	s := newStage(t)
	stop := s.startDruid()
	names := s.whole(3)
	before := s.uids(names, &corev1.Pod{})
	stop()

	s.startDruid(func(o *Options) {
		o.AgentRenewInterval, o.AgentLeaseDuration, o.SuperfluousGracePeriod = 5*time.Second, 15*time.Second, 20*time.Second
	})
	s.eventually("the agents' configuration", func() error {
		var object corev1.ConfigMap
		if err := s.fetch(manifests.AgentName("demo"), &object); err != nil {
			return err
		}
		got, err := config.ParseReloadable([]byte(object.Data[config.ConfigFile]))
		if err != nil {
			return err
		}
		if got.RenewInterval != config.Duration(5*time.Second) || got.LeaseDuration != config.Duration(15*time.Second) ||
			got.SuperfluousGracePeriod != config.Duration(20*time.Second) {
			return fmt.Errorf("it has %s, %s and %s, want 5s, 15s and 20s", got.RenewInterval, got.LeaseDuration, got.SuperfluousGracePeriod)
		}
		return nil
	})
	s.eventually("rest", func() error { return s.rests() })
	for name, uid := range s.uids(names, &corev1.Pod{}) {
		if uid != before[name] {
			t.Errorf("Pod %s is another one since the intervals changed", name)
		}
	}
}

// TestDruidLimitedToNamespaces: druid works in the namespaces that it is given.
// A druid for some namespaces has its ClusterRole there alone, and next to it only what it reads of things without a namespace.
func TestDruidLimitedToNamespaces(t *testing.T) {
	first := newStage(t)
	first.user = "system:serviceaccount:druid-system:druid-of-" + first.namespace
	second, other := *first, *first
	second.namespace, other.namespace = env.Namespace(t, first.config), env.Namespace(t, first.config)
	first.may("druid-cluster", "")
	for _, s := range []*stage{first, &second} {
		s.may("druid", s.namespace)
	}
	first.startDruid(func(o *Options) { o.Namespaces = []string{first.namespace, second.namespace} })
	for _, s := range []*stage{first, &second, &other} {
		s.createCluster("demo", 3)
	}
	for _, s := range []*stage{first, &second} {
		names := s.members("demo", 3)
		s.form("demo", names)
		s.eventually("serve", s.served)
	}
	var cluster v1alpha1.EtcdCluster
	if err := other.fetch("demo", &cluster); err != nil || len(cluster.Status.Conditions) > 0 {
		t.Errorf("in another namespace the status is %+v, %v", cluster.Status, err)
	}
	for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE"} {
		if got := first.calls.matching(method, "/namespaces/"+other.namespace+"/"); len(got) > 0 {
			t.Errorf("in another namespace druid asked for %v", got)
		}
	}
}

// may binds the ClusterRole of the install to who druid is: in a namespace, or in all.
func (s *stage) may(role, namespace string) {
	s.Helper()
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}
	subjects := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: s.user}}
	name := metav1.ObjectMeta{Name: role + "-of-" + s.namespace, Namespace: namespace}
	var err error
	if namespace == "" {
		err = s.Create(s.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: name, RoleRef: ref, Subjects: subjects})
	} else {
		err = s.Create(s.Context(), &rbacv1.RoleBinding{ObjectMeta: name, RoleRef: ref, Subjects: subjects})
	}
	if err != nil {
		s.Fatal(err)
	}
}

// writeNames edits the names in the record by hand.
func (s *stage) writeNames(names ...string) {
	s.Helper()
	var lease coordinationv1.Lease
	s.edit(leases.RecordName("demo"), &lease, func() { lease.Annotations[leases.Prefix+"members"] = strings.Join(names, ",") })
}

// TestRemovedNamesReturnToRecord: names that are taken out of the record come back.
func TestRemovedNamesReturnToRecord(t *testing.T) {
	s := newStage(t)
	s.startDruid()
	names := s.whole(3)
	pods, claims := s.uids(names, &corev1.Pod{}), s.uids(names, &corev1.PersistentVolumeClaim{})
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, seed))
	listed := func(want func([]string) bool) {
		t.Helper()
		s.eventually("the members' names in the record", func() error {
			record, err := s.record("demo")
			if err == nil && !want(record.Members) {
				return fmt.Errorf("the record lists %v, and the members are %v", record.Members, names)
			}
			return err
		})
	}
	for range 20 {
		var left []string
		for _, name := range names {
			if random.IntN(2) == 0 {
				left = append(left, name)
			}
		}
		random.Shuffle(len(left), func(i, j int) { left[i], left[j] = left[j], left[i] })
		s.writeNames(left...)
		listed(func(is []string) bool { return slices.Equal(is, names) || len(left) == len(names) })
	}
	s.writeNames()
	listed(func(is []string) bool { return slices.Equal(is, names) })
	if diff := cmp.Diff(pods, s.uids(names, &corev1.Pod{})); diff != "" {
		t.Errorf("Pods changed (-before +after):\n%s", diff)
	}
	if diff := cmp.Diff(claims, s.uids(names, &corev1.PersistentVolumeClaim{})); diff != "" {
		t.Errorf("claims changed (-before +after):\n%s", diff)
	}
	if made := s.calls.creations("/pods"); len(made) != len(names) {
		t.Errorf("druid made %d Pods, want the %d of the members: no name is drawn", len(made), len(names))
	}
	if deletes := s.calls.matching("DELETE", ""); len(deletes) > 0 {
		t.Errorf("druid deleted %v", deletes)
	}
}

// A name that was mistyped stands for one more member; that which it was typed over comes back.
func TestAMistypedNameTakesNoMemberAway(t *testing.T) {
	s := newStage(t)
	s.startDruid()
	names := s.whole(3)
	pods := s.uids(names, &corev1.Pod{})
	s.writeNames(names[0], names[1], "demo-typed")
	s.eventually("the mistyped name's member is listed again", func() error {
		record, err := s.record("demo")
		if err == nil && !record.Lists(names[2]) {
			return fmt.Errorf("the record lists %v", record.Members)
		}
		return err
	})
	if diff := cmp.Diff(pods, s.uids(names, &corev1.Pod{})); diff != "" {
		t.Errorf("Pods changed (-before +after):\n%s", diff)
	}
}
