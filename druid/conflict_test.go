package druid

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/druid/control"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/manifests"
)

func TestForeignObjectsAreNeverAdopted(t *testing.T) {
	t.Parallel()
	meta := func(s *stage, name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: s.namespace, Name: name}
	}
	tests := map[string]func(*stage) client.Object{
		"a Lease with the record's name": func(s *stage) client.Object {
			return &coordinationv1.Lease{ObjectMeta: meta(s, leases.RecordName("demo"))}
		},
		"a Lease with the leader's name": func(s *stage) client.Object {
			return &coordinationv1.Lease{ObjectMeta: meta(s, leases.LeaderName("demo"))}
		},
		"a Lease that says it is the cluster's": func(s *stage) client.Object {
			lease := &coordinationv1.Lease{ObjectMeta: meta(s, leases.RecordName("demo"))}
			lease.Labels = map[string]string{leases.LabelCluster: "demo"}
			return lease
		},
		"a Service with the client Service's name": func(s *stage) client.Object {
			return &corev1.Service{ObjectMeta: meta(s, manifests.ClientServiceName("demo")), Spec: corev1.ServiceSpec{
				ClusterIP: corev1.ClusterIPNone, Ports: []corev1.ServicePort{{Port: 80}},
			}}
		},
		"a ConfigMap of our name": func(s *stage) client.Object {
			return &corev1.ConfigMap{ObjectMeta: meta(s, manifests.AgentName("demo"))}
		},
	}
	for name, object := range tests {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			foreign := object(s)
			if err := s.Create(t.Context(), foreign); err != nil {
				t.Fatal(err)
			}
			s.startDruid()
			s.createCluster("demo", 1)
			condition := s.condition("demo", v1alpha1.ConditionDegraded, metav1.ConditionTrue, v1alpha1.ReasonObjectNotOwned)
			if !strings.Contains(condition.Message, foreign.GetName()) {
				t.Errorf("message %q does not name %s", condition.Message, foreign.GetName())
			}
			version := foreign.GetResourceVersion()
			if err := s.fetch(foreign.GetName(), foreign); err != nil || foreign.GetResourceVersion() != version {
				t.Errorf("the foreign object was changed (%v): %+v", err, foreign)
			}
		})
	}
}

func TestNonsenseInLeasesOrdersNothing(t *testing.T) {
	s := newStage(t)
	s.startDruid()
	names := s.whole(3)
	edit := func(name string, change func(*coordinationv1.Lease)) {
		var lease coordinationv1.Lease
		s.edit(name, &lease, func() { change(&lease) })
	}
	edit(names[1], func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = new("nonsense") })
	condition := s.condition("demo", v1alpha1.ConditionDegraded, metav1.ConditionTrue, v1alpha1.ReasonLeaseUnreadable)
	if !strings.Contains(condition.Message, names[1]) {
		t.Errorf("message %q does not name %s", condition.Message, names[1])
	}
	edit(leases.RecordName("demo"), func(l *coordinationv1.Lease) { l.Annotations["etcd.druid.dev/epoch"] = "many" })
	s.condition("demo", v1alpha1.ConditionDegraded, metav1.ConditionTrue, v1alpha1.ReasonRecordUnreadable)
	if deletes := s.calls.matching("DELETE", ""); len(deletes) != 0 {
		t.Errorf("druid deleted %v", deletes)
	}
	// The action that the message names.
	s.deleteLease(leases.RecordName("demo"))
	s.deleteLease(names[1])
	s.members("demo", 3)
	s.agent("demo", names[1], 2, leases.RoleMember)
	s.condition("demo", v1alpha1.ConditionDegraded, metav1.ConditionFalse, v1alpha1.ReasonAsExpected)
}

// TestUnorderedRecordChangeCorrected: a record that no recovery wrote is corrected.
// An administrator names another raft group in the record of a cluster that serves. druid takes it back before its status follows.
func TestUnorderedRecordChangeCorrected(t *testing.T) {
	s := newStage(t)
	s.startDruid()
	s.whole(3)
	before, err := s.record("demo")
	if err != nil {
		t.Fatal(err)
	}
	var lease coordinationv1.Lease
	s.edit(leases.RecordName("demo"), &lease, func() {
		lease.Spec.HolderIdentity = new("dead")
		lease.Annotations["etcd.druid.dev/epoch"], lease.Annotations["etcd.druid.dev/formed-epoch"] = "4294967295", "4294967295"
	})
	s.eventually("the record is as before", func() error {
		record, err := s.record("demo")
		if err == nil && (record.ClusterID != before.ClusterID || record.Epoch != before.Epoch || record.FormedEpoch != before.FormedEpoch ||
			record.Nonce != before.Nonce) {
			err = fmt.Errorf("it is %+v, and was %+v", record, before)
		}
		return err
	})
	if cluster := s.cluster(); cluster.Status.ClusterID != leases.FormatID(before.ClusterID) || cluster.Status.Epoch != int64(before.Epoch) {
		t.Errorf("the status follows the edit: %s, epoch %d", cluster.Status.ClusterID, cluster.Status.Epoch)
	}
}

func TestScaleUpAddsNamesAndKeepsThoseThatAre(t *testing.T) {
	s := newStage(t)
	s.startDruid()
	before := s.whole(1)
	var cluster v1alpha1.EtcdCluster
	s.edit("demo", &cluster, func() { cluster.Spec.Replicas = 3 })
	after := s.members("demo", 3)
	record, err := s.record("demo")
	if err != nil || !record.Lists(before[0]) || record.Phase != leases.PhaseFormed {
		t.Errorf("record is %+v, %v; want it Formed, with %s and two more than %v", record, err, before[0], after)
	}
	s.condition("demo", v1alpha1.ConditionProgressing, metav1.ConditionTrue, v1alpha1.ReasonScalingUp)
}

func TestTwoDruidsAtOnceMakeOneCluster(t *testing.T) {
	s := newStage(t)
	s.startDruid()
	s.startDruid()
	for i := range 5 {
		s.createCluster(fmt.Sprintf("demo-%d", i), 3)
	}
	for i := range 5 {
		s.members(fmt.Sprintf("demo-%d", i), 3)
	}
	var pods corev1.PodList
	if err := s.List(t.Context(), &pods, client.InNamespace(s.namespace)); err != nil {
		t.Fatal(err)
	}
	if len(pods.Items) != 15 {
		t.Errorf("%d Pods exist, want 15", len(pods.Items))
	}
}

func TestLeadershipIsHandedOver(t *testing.T) {
	s := newStage(t)
	elect := func(o *Options) { o.LeaderElect, o.LeaderNamespace = true, "druid-system" }
	stop := s.startDruid(elect)
	s.createCluster("first", 1)
	s.members("first", 1)
	s.startDruid(elect)
	stop()
	s.createCluster("second", 1)
	s.members("second", 1)
}

// TestBlockingEditsOfObjectsUndone edits by hand what the API server does not allow next to druid's own fields, and so
// refuses each apply of them: druid repairs the same object, and goes on with what comes after it.
func TestBlockingEditsOfObjectsUndone(t *testing.T) {
	s := newStage(t)
	stop := s.startDruid()
	names := s.whole(3)
	s.eventually("rest", func() error { return s.rests() })
	stop()

	budget, service := &policyv1.PodDisruptionBudget{}, &corev1.Service{}
	budgetName, serviceName := manifests.DisruptionBudgetName("demo"), manifests.ClientServiceName("demo")
	s.edit(budgetName, budget, func() {
		budget.Spec.MinAvailable, budget.Spec.MaxUnavailable = nil, new(intstr.FromInt32(3))
	})
	s.edit(serviceName, service, func() {
		service.Spec.Ports[0].Port = 2380
		service.Spec.Ports = append(service.Spec.Ports, corev1.ServicePort{Name: "more", Port: 80})
	})
	// What the stages after them are to repair.
	pod := &corev1.Pod{}
	s.edit(names[0], pod, func() { delete(pod.Labels, manifests.LabelVoter) })
	address := service.Spec.ClusterIP
	wasBudget, wasService := budget.UID, service.UID
	s.refused(budgetName, "PodDisruptionBudget", "policy/v1", `{"minAvailable":2}`)
	s.refused(serviceName, "Service", "v1", `{"ports":[{"name":"client","port":2379,"protocol":"TCP"}]}`)

	s.startDruid()
	s.beat = func() { s.renew(names) } // no member is live before it saw a renewal
	s.eventually("repair the budget", func() error {
		if err := s.fetch(budgetName, budget); err != nil {
			return err
		}
		if spec := budget.Spec; spec.MaxUnavailable != nil || spec.MinAvailable == nil || spec.MinAvailable.IntVal != 2 || budget.UID != wasBudget {
			return fmt.Errorf("it is %s, was %s: %+v", budget.UID, wasBudget, spec)
		}
		return nil
	})
	s.eventually("repair the Service", func() error {
		if err := s.fetch(serviceName, service); err != nil {
			return err
		}
		has := func(name string, number int32) bool {
			return slices.ContainsFunc(service.Spec.Ports, func(p corev1.ServicePort) bool { return p.Name == name && p.Port == number })
		}
		if spec := service.Spec; len(spec.Ports) != 2 || !has("client", config.ClientPort) || !has("more", 80) {
			return fmt.Errorf("its ports are %+v", spec.Ports)
		}
		if service.UID != wasService || service.Spec.ClusterIP != address {
			return fmt.Errorf("it is %s at %s, was %s at %s", service.UID, service.Spec.ClusterIP, wasService, address)
		}
		return nil
	})
	s.eventually("go on with the labels", func() error {
		if err := s.fetch(names[0], pod); err != nil {
			return err
		}
		if pod.Labels[manifests.LabelVoter] != manifests.LabelTrue {
			return errors.New("the Pod is not counted")
		}
		return nil
	})
	s.condition("demo", v1alpha1.ConditionDegraded, metav1.ConditionFalse, v1alpha1.ReasonAsExpected)
	s.beat = nil
	s.eventually("rest again", func() error { return s.rests() })
}

// refused makes sure that the API server does not take an apply of the spec, as druid makes it.
func (s *stage) refused(name, kind, version, spec string) {
	s.Helper()
	object := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: version, Kind: kind}}
	object.Name, object.Namespace = name, s.namespace
	patch := fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":%q,"namespace":%q},"spec":%s}`, version, kind, name, s.namespace, spec)
	err := s.Patch(s.Context(), object, client.RawPatch("application/apply-patch+yaml", []byte(patch)),
		client.FieldOwner(control.FieldOwner), client.ForceOwnership, client.DryRunAll)
	if !apierrors.IsInvalid(err) {
		s.Fatalf("an apply of %s %s: %v, want it to be refused as invalid", kind, name, err)
	}
}

func TestHandsOnSharedObjectsAreUndone(t *testing.T) {
	s := newStage(t)
	s.startDruid()
	s.whole(3)
	s.eventually("rest", func() error { return s.rests() })

	service, role := &corev1.Service{}, &rbacv1.Role{}
	configMap, budget := &corev1.ConfigMap{}, &policyv1.PodDisruptionBudget{}
	tests := map[string]struct {
		name   string
		object client.Object
		spoil  func()
		whole  func() bool
	}{
		"clients are sent to every member": {
			manifests.ClientServiceName("demo"), service,
			func() { delete(service.Spec.Selector, manifests.LabelServing) },
			func() bool { return service.Spec.Selector[manifests.LabelServing] == manifests.LabelTrue },
		},
		"agents may do more": {
			manifests.AgentName("demo"), role,
			func() { role.Rules[0].Verbs = append(role.Rules[0].Verbs, "delete") },
			func() bool { return len(role.Rules[0].Verbs) == 3 },
		},
		"the agents' configuration is nonsense": {
			manifests.AgentName("demo"), configMap,
			func() { configMap.Data[config.ConfigFile] = "nonsense" },
			func() bool { return configMap.Data[config.ConfigFile] != "nonsense" },
		},
		"all members may be evicted": {
			manifests.DisruptionBudgetName("demo"), budget,
			func() { budget.Spec.MinAvailable = new(intstr.FromInt32(0)) },
			func() bool { return budget.Spec.MinAvailable.IntVal == 2 },
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s.edit(test.name, test.object, test.spoil)
			s.eventually("undo", func() error {
				if err := s.fetch(test.name, test.object); err != nil {
					return err
				}
				if !test.whole() {
					return fmt.Errorf("it still is as it was edited")
				}
				return nil
			})
		})
	}
	s.eventually("rest again", func() error { return s.rests() })
}
