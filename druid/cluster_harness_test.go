package druid

import (
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/manifests"
)

func (s *stage) newCluster(name string, replicas int32) *v1alpha1.EtcdCluster {
	cluster := &v1alpha1.EtcdCluster{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.namespace},
		Spec: v1alpha1.EtcdClusterSpec{
			Replicas: replicas, Version: "3.7.3", Image: "gcr.io/etcd-development/etcd",
			Storage: v1alpha1.StorageSpec{Size: resource.MustParse("4Gi")},
		},
	}
	if s.joins {
		cluster.Spec.Bootstrap = &v1alpha1.BootstrapSpec{Join: &v1alpha1.JoinSpec{Endpoints: []v1alpha1.JoinEndpoint{"http://etcd-0.old:2379"}}}
	}
	return cluster
}

func (s *stage) createCluster(name string, replicas int32) {
	s.Helper()
	cluster := s.newCluster(name, replicas)
	if err := s.Create(s.Context(), cluster); err != nil {
		s.Fatalf("create EtcdCluster %s: %v", name, err)
	}
}

func (s *stage) record(cluster string) (leases.Record, error) {
	var lease coordinationv1.Lease
	if err := s.fetch(leases.RecordName(cluster), &lease); err != nil {
		return leases.Record{}, err
	}
	return leases.DecodeRecord(&lease)
}

// members waits until the record lists count names and each has a Pod that its Lease names.
func (s *stage) members(cluster string, count int) []string {
	s.Helper()
	var names []string
	s.eventually("members", func() error {
		record, err := s.record(cluster)
		if err != nil {
			return err
		}
		if len(record.Members) != count {
			return fmt.Errorf("the record lists %v, want %d names", record.Members, count)
		}
		for _, name := range record.Members {
			if err := s.marked(name); err != nil {
				return err
			}
		}
		names = record.Members
		return nil
	})
	return names
}

// marked says whether the member's Lease names its Pod and its claim.
func (s *stage) marked(name string) error {
	var (
		lease coordinationv1.Lease
		claim corev1.PersistentVolumeClaim
		pod   corev1.Pod
	)
	for _, object := range []client.Object{&lease, &claim, &pod} {
		if err := s.fetch(name, object); err != nil {
			return err
		}
	}
	m, err := leases.DecodeMember(&lease)
	if err != nil {
		return err
	}
	if m.PodUID != string(pod.UID) || m.VolumeUID != string(claim.UID) {
		return fmt.Errorf("Lease %s names Pod %q and volume %q, want %s and %s", name, m.PodUID, m.VolumeUID, pod.UID, claim.UID)
	}
	return nil
}

// binder is what binds the member's claim to a volume.
func (s *stage) binder(name string) {
	s.Helper()
	s.eventually("bind claim "+name, func() error {
		var claim corev1.PersistentVolumeClaim
		if err := s.fetch(name, &claim); err != nil {
			return err
		}
		claim.Status.Phase = corev1.ClaimBound
		return s.Status().Update(s.Context(), &claim)
	})
}

// end is what a kubelet does when a deleted Pod's containers have ended: the Pod is gone.
func (s *stage) end(name string) {
	s.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name}}
	// One that no node has taken may be gone already: druid's own deletion ends it.
	if err := s.Delete(s.Context(), pod, client.GracePeriodSeconds(0)); client.IgnoreNotFound(err) != nil {
		s.Fatalf("end Pod %s: %v", name, err)
	}
}

// nodeName is the Node of all Pods that the test binds to none of its own. It is there if the test makes it.
func (s *stage) nodeName() string { return s.namespace + "-node" }

// kubelet reports that the Pod's containers run, and whether its etcd is ready.
func (s *stage) kubelet(name string, ready bool) {
	s.Helper()
	s.eventually("bind and report Pod "+name, func() error {
		var pod corev1.Pod
		if err := s.fetch(name, &pod); err != nil {
			return err
		}
		if pod.Spec.NodeName == "" {
			binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.namespace},
				Target: corev1.ObjectReference{Kind: "Node", Name: s.nodeName()}}
			if err := s.SubResource("binding").Create(s.Context(), &pod, binding); err != nil {
				return err
			}
			if err := s.fetch(name, &pod); err != nil {
				return err
			}
		}
		status := corev1.ConditionFalse
		if ready {
			status = corev1.ConditionTrue
		}
		pod.Status.Phase = corev1.PodRunning
		pod.Status.Conditions = []corev1.PodCondition{
			{Type: corev1.PodReady, Status: status}, {Type: corev1.ContainersReady, Status: status},
		}
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: manifests.ContainerEtcd, Ready: ready, Image: "etcd", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}},
		}}
		return s.Status().Update(s.Context(), &pod)
	})
}

const clusterID = 0xcdf818194e3a8c32

// agent renews the member's Lease, for longer than any test runs: none is about a Lease that goes stale.
func (s *stage) agent(cluster, name string, id uint64, role leases.Role) {
	s.Helper()
	now := time.Now()
	group, epoch := uint64(clusterID), uint32(1)
	if record, err := s.record(cluster); err == nil && record.ClusterID == restoredID {
		group, epoch = restoredID, record.FormedEpoch
	}
	patch := leases.MemberPatch{
		Member: leases.Member{
			ID: id, Role: role, ClusterID: group, Epoch: epoch, Lineage: leases.LineageOf(epoch, "0123456789abcdef"), Version: "3.7.3",
			Data: "Intact", Rule: "resume", Raft: leases.Raft{Term: 2, Committed: uint64(now.UnixNano()), LastTerm: 2, LastIndex: 9},
		},
		RenewTime: &now, Duration: time.Hour,
	}
	s.eventually("renew "+name, func() error {
		_, err := s.store(cluster).PatchMember(s.Context(), name, patch)
		return err
	})
}

func (s *stage) store(cluster string) *leases.Store {
	c, err := coordinationclient.NewForConfig(s.config)
	if err != nil {
		s.Fatal(err)
	}
	return leases.NewStore(c.Leases(s.namespace), cluster)
}

// form does what the agents of a new cluster do: the seed claims and forms, the others join, all renew.
func (s *stage) form(cluster string, names []string) {
	s.Helper()
	s.eventually("form", func() error {
		record, version, err := s.store(cluster).Record(s.Context())
		if err != nil {
			return err
		}
		record.Phase, record.ClusterID, record.FormedEpoch = leases.PhaseFormed, clusterID, record.Epoch
		record.Nonce, record.Lineage, record.Executor = "0123456789abcdef", leases.LineageOf(1, "0123456789abcdef"), "executor"
		if s.joins {
			record.MaxLearners = leases.MaxLearnersAdopted
			alongside(&record, "etcd-0", "etcd-1", "etcd-2")
		}
		_, err = s.store(cluster).UpdateRecord(s.Context(), version, record)
		return err
	})
	for i, name := range names {
		s.binder(name)
		s.kubelet(name, true)
		s.agent(cluster, name, uint64(i+1), map[bool]leases.Role{true: leases.RoleLeader, false: leases.RoleMember}[i == 0])
	}
}

// condition waits until the EtcdCluster has the condition.
func (s *stage) condition(cluster, kind string, status metav1.ConditionStatus, reason string) metav1.Condition {
	s.Helper()
	var found metav1.Condition
	s.eventually("condition "+kind, func() error {
		var c v1alpha1.EtcdCluster
		if err := s.fetch(cluster, &c); err != nil {
			return err
		}
		condition := meta.FindStatusCondition(c.Status.Conditions, kind)
		if condition == nil || condition.Status != status || condition.Reason != reason {
			return fmt.Errorf("is %+v, want %s %s", condition, status, reason)
		}
		found = *condition
		return nil
	})
	return found
}

// whole makes a formed cluster called demo of count members and waits until druid has nothing left to do.
func (s *stage) whole(count int32) []string {
	s.Helper()
	const cluster = "demo"
	s.createCluster(cluster, count)
	names := s.members(cluster, int(count))
	s.form(cluster, names)
	s.condition(cluster, v1alpha1.ConditionAllMembersReady, metav1.ConditionTrue, v1alpha1.ReasonAllReady)
	s.condition(cluster, v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonReconciled)
	return names
}

func (s *stage) createClusterWith(name string, change func(*v1alpha1.EtcdCluster)) *v1alpha1.EtcdCluster {
	s.Helper()
	cluster := s.newCluster(name, 1)
	change(cluster)
	if err := s.Create(s.Context(), cluster); err != nil {
		s.Fatal(err)
	}
	return cluster
}
