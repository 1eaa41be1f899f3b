package druid

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/manifests"
	"github.com/etcd-druid/druid/test/certmanager"
)

// A scenario is what druid is in the middle of when it dies. The eve is reached with a druid that nothing happens to; then
// none runs while something changes; the next one ends at the point, and the one after that has to end where a druid
// would have that nothing happened to.
type scenario struct {
	// replicas and whether the cluster is formed on the eve. With 0 replicas there is no cluster yet.
	replicas int32
	formed   bool
	// prepare is what the druid of the eve still does; it may be nil.
	prepare func(s *stage, names []string)
	// change is what druid is to answer.
	change func(s *stage, names []string)
	// reached says what is missing until druid has answered.
	reached func(s *stage, names []string) error
	// joins says that the cluster joins one that runs, and secured that druid issues certificates for its one member.
	joins, secured bool
	// deaf agents answer no request to remove a member, and do not stop etcd for an order.
	deaf bool
	// ends: kubelets also end the Pods of listed members that are deleted, and no agent renews without its Pod.
	ends bool
	// restores: the user approves the plan of a restore in place, and the agent carries out its order.
	restores bool
}

var crashScenarios = map[string]scenario{
	"creation": {
		change:  func(s *stage, _ []string) { s.createCluster("demo", 3) },
		reached: func(s *stage, _ []string) error { return s.grown(3) },
	},
	"certificates": {
		change:  func(s *stage, _ []string) { s.createSecured() },
		reached: func(s *stage, _ []string) error { return errors.Join(s.grown(1), s.issued()) },
	},
	"certificates of cert-manager": {
		change:  func(s *stage, _ []string) { certmanager.Install(s, s); s.createRequesting() },
		reached: func(s *stage, _ []string) error { return errors.Join(s.grown(1), s.certificatesRequested()) },
	},
	"service": {
		replicas: 3,
		change:   func(s *stage, names []string) { s.form("demo", names) },
		reached:  func(s *stage, _ []string) error { return s.served() },
	},
	"growth": {
		replicas: 1, formed: true,
		change:  func(s *stage, _ []string) { s.patchCluster(`{"spec":{"replicas":3}}`) },
		reached: func(s *stage, _ []string) error { return s.grown(3) },
	},
	"a record that learns its cluster": {
		replicas: 1, formed: true,
		change:  func(s *stage, _ []string) { s.forgetClusterID() },
		reached: func(s *stage, _ []string) error { return s.knowsCluster() },
	},
	"a record that comes back": {
		replicas: 1, formed: true,
		change:  func(s *stage, _ []string) { s.deleteLease(leases.RecordName("demo")) },
		reached: func(s *stage, _ []string) error { return s.knowsCluster() },
	},
	"a lost label": {
		replicas: 1, formed: true,
		change: func(s *stage, names []string) { s.unlabel(names[0]) },
		reached: func(s *stage, names []string) error {
			var lease coordinationv1.Lease
			if err := s.fetch(names[0], &lease); err != nil || lease.Labels[leases.LabelCluster] != "" {
				return err
			}
			return errors.New("the label is lost")
		},
	},
	"a lost volume": {
		replicas: 3, formed: true,
		change: func(s *stage, names []string) {
			claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: names[2]}}
			if err := s.Delete(s.Context(), claim); err != nil {
				s.Fatal(err)
			}
		},
		reached: func(s *stage, names []string) error { return s.terminating(names[2]) },
	},
	"scale-down": {
		replicas: 3, formed: true,
		change:  func(s *stage, _ []string) { s.patchCluster(`{"spec":{"replicas":1}}`) },
		reached: func(s *stage, names []string) error { return s.drained(names[1:]) },
	},
	"scale-down that keeps the claims": {
		replicas: 3, formed: true,
		change: func(s *stage, _ []string) {
			s.patchCluster(`{"spec":{"replicas":1,"storage":{"persistentVolumeClaimRetentionPolicy":{"whenScaled":"Retain"}}}}`)
		},
		reached: func(s *stage, names []string) error { return s.drained(names[1:]) },
	},
	"scale-down that is taken back": {
		replicas: 3, formed: true, deaf: true,
		prepare: func(s *stage, _ []string) {
			s.patchCluster(`{"spec":{"replicas":1}}`)
			s.requested()
		},
		change: func(s *stage, _ []string) { s.patchCluster(`{"spec":{"replicas":3}}`) },
		reached: func(s *stage, _ []string) error {
			if record, err := s.record("demo"); err != nil || record.PendingRemoval == nil {
				return err
			}
			return errors.New("the slot is taken")
		},
	},
	"claims that go with the cluster": {
		replicas: 1, formed: true,
		change:  func(s *stage, _ []string) { s.retain("Delete") },
		reached: func(s *stage, names []string) error { return s.owned(names, 1) },
	},
	"claims that outlive the cluster": {
		replicas: 1, formed: true,
		prepare: func(s *stage, names []string) {
			s.retain("Delete")
			s.eventually("own the claims", func() error { return s.owned(names, 1) })
		},
		change:  func(s *stage, _ []string) { s.retain("Retain") },
		reached: func(s *stage, names []string) error { return s.owned(names, 0) },
	},
	"a cluster that joins": {
		joins:  true,
		change: func(s *stage, _ []string) { s.createCluster("demo", 3) },
		reached: func(s *stage, _ []string) error {
			return errors.Join(s.grown(3), s.isHeld(true))
		},
	},
	// Of several it depends on the moment who goes last.
	"a deletion next to others": {
		replicas: 1, formed: true, joins: true,
		change: func(s *stage, _ []string) { s.deleteLingering() },
		reached: func(s *stage, names []string) error {
			record, err := s.record("demo")
			if err == nil && len(record.Members) > 0 {
				err = fmt.Errorf("the record lists %v", record.Members)
			}
			return errors.Join(err, s.isHeld(false))
		},
	},
	"a larger volume": {
		replicas: 1, formed: true,
		prepare: func(s *stage, names []string) { s.expandable(names, true) },
		change:  func(s *stage, _ []string) { s.patchCluster(`{"spec":{"storage":{"size":"8Gi"}}}`) },
		// No driver makes it larger here.
		reached: func(s *stage, names []string) error { return s.requests(names, "8Gi") },
	},
	"backups that begin": {
		replicas: 1, formed: true,
		change:  func(s *stage, _ []string) { s.patchCluster(backupsOn) },
		reached: func(s *stage, _ []string) error { return s.snapshotLeases(true) },
	},
	"backups that end": {
		replicas: 1, formed: true,
		prepare: func(s *stage, _ []string) {
			s.patchCluster(backupsOn)
			s.eventually("backups begin", func() error { return s.snapshotLeases(true) })
		},
		change:  func(s *stage, _ []string) { s.patchCluster(backupsOff) },
		reached: func(s *stage, _ []string) error { return s.snapshotLeases(false) },
	},
	"backups on demand": {
		replicas: 1, formed: true,
		prepare: func(s *stage, _ []string) {
			s.patchCluster(backupsOn)
			s.eventually("backups begin", func() error { return s.snapshotLeases(true) })
		},
		change: func(s *stage, _ []string) {
			s.snapshot("kept", v1alpha1.SnapshotFull, nil)
			s.snapshot("passing", v1alpha1.SnapshotFull, new(int32(0)))
		},
		reached: func(s *stage, _ []string) error {
			_, err := s.stable("kept", v1alpha1.SnapshotSucceeded)
			return errors.Join(err, s.gone("passing", &v1alpha1.EtcdSnapshot{}), s.ordered(full, ""))
		},
	},
	"a backup in its own store": {
		replicas: 1, formed: true,
		change: func(s *stage, _ []string) { s.asks(inOwnStore(s.namespace, "own")) },
		reached: func(s *stage, _ []string) error {
			var pods corev1.PodList
			err := s.List(s.Context(), &pods, client.InNamespace(s.namespace), client.MatchingLabels{leases.LabelComponent: string(leases.ComponentSnapshot)})
			if err == nil && len(pods.Items) > 0 {
				err = errors.New("its Pod exists")
			}
			_, open := s.stable("own", v1alpha1.SnapshotSucceeded)
			return errors.Join(err, open)
		},
	},
	"a backup that goes along": {
		replicas: 1, formed: true,
		prepare: func(s *stage, _ []string) {
			s.patchCluster(backupsOn)
			s.eventually("backups begin", func() error { return s.snapshotLeases(true) })
		},
		change: func(s *stage, _ []string) {
			snapshot := etcdSnapshot(s.namespace, "along", v1alpha1.SnapshotFull)
			snapshot.Spec.TTLSecondsAfterFinished, snapshot.Spec.DeletionPolicy = new(int32(0)), v1alpha1.SnapshotDelete
			s.asks(snapshot)
		},
		reached: func(s *stage, _ []string) error {
			return errors.Join(s.gone("along", &v1alpha1.EtcdSnapshot{}), s.ordered(full, ""))
		},
	},
	"an edited spec": {
		replicas: 3, formed: true,
		change: func(s *stage, _ []string) { s.patchCluster(`{"spec":{"resources":{"requests":{"cpu":"123m"}}}}`) },
		// Nothing ends the Pod here. After a while, druid reports it, and then makes no more changes.
		reached: func(s *stage, names []string) error {
			return errors.Join(s.terminating(names[1]), s.progressingBy(v1alpha1.ReasonRollingUpdateBlocked))
		},
	},
	"an edited version": {
		replicas: 3, formed: true,
		prepare: func(s *stage, _ []string) {
			s.patchCluster(backupsOn)
			s.eventually("backups begin", func() error { return s.snapshotLeases(true) })
		},
		change: func(s *stage, _ []string) { s.patchCluster(`{"spec":{"version":"3.7.4"}}`) },
		// As above, after a verified backup and a comparison.
		reached: func(s *stage, names []string) error {
			return errors.Join(s.terminating(names[1]), s.progressingBy(v1alpha1.ReasonUpgradeBlocked))
		},
	},
	"a Pod that does not report its spec": {
		replicas: 1, formed: true,
		change: func(s *stage, names []string) { s.specHash(names[0], nil) },
		reached: func(s *stage, names []string) error {
			var pod corev1.Pod
			if err := s.fetch(names[0], &pod); err != nil || pod.Annotations[manifests.AnnotationSpecHash] != "" {
				return err
			}
			return errors.New("the Pod is not marked")
		},
	},
	"a pause": {
		replicas: 1, formed: true, ends: true,
		prepare: func(s *stage, names []string) { s.alone(names[0]) },
		change:  func(s *stage, _ []string) { s.patchCluster(`{"spec":{"replicas":0}}`) },
		reached: func(s *stage, names []string) error {
			return errors.Join(s.gone(names[0], &corev1.Pod{}), s.gone(manifests.DisruptionBudgetName("demo"), &policyv1.PodDisruptionBudget{}), s.paused(names[0]))
		},
	},
	"another agent image": {
		replicas: 1, formed: true,
		change: func(s *stage, names []string) {
			s.patchPod(names[0], `{"metadata":{"annotations":{"`+manifests.AnnotationAgentImage+`":"older"}}}`)
		},
		reached: func(s *stage, names []string) error { return s.agentGiven(names[0]) },
	},
	"a stuck member": {
		replicas: 3, formed: true,
		change: func(s *stage, names []string) {
			s.node(s.nodeName(), true)
			s.kubelet(names[2], false)
		},
		reached: func(s *stage, names []string) error { return s.terminating(names[2]) },
	},
}

func (s *stage) patchCluster(patch string) {
	s.Helper()
	cluster := s.newCluster("demo", 1)
	if err := s.Patch(s.Context(), cluster, client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
		s.Fatal(err)
	}
}

// specHash writes for which spec the Pod was made, or with nil takes that away.
func (s *stage) specHash(name string, value *string) {
	s.Helper()
	raw, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{manifests.AnnotationSpecHash: value}}})
	if err != nil {
		s.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name}}
	if err := s.Patch(s.Context(), pod, client.RawPatch("application/merge-patch+json", raw)); err != nil {
		s.Fatal(err)
	}
}

// progressingBy says whether the status reports what is under way by that reason.
func (s *stage) progressingBy(reason string) error {
	var c v1alpha1.EtcdCluster
	if err := s.fetch("demo", &c); err != nil {
		return err
	}
	p := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionProgressing)
	if p == nil || p.Reason != reason {
		return fmt.Errorf("Progressing is %+v", p)
	}
	return nil
}

func (s *stage) forgetClusterID() {
	s.Helper()
	var lease coordinationv1.Lease
	s.edit(leases.RecordName("demo"), &lease, func() { lease.Spec.HolderIdentity = nil })
}

func (s *stage) unlabel(name string) {
	s.Helper()
	raw, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]any{leases.LabelCluster: nil}}})
	if err != nil {
		s.Fatal(err)
	}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name}}
	if err := s.Patch(s.Context(), lease, client.RawPatch("application/merge-patch+json", raw)); err != nil {
		s.Fatal(err)
	}
}

// grown says whether there are as many members, each with all its objects.
func (s *stage) grown(count int) error {
	record, err := s.record("demo")
	if err != nil {
		return err
	}
	if len(record.Members) != count {
		return fmt.Errorf("the record lists %v", record.Members)
	}
	for _, name := range record.Members {
		if err := s.marked(name); err != nil {
			return err
		}
	}
	return nil
}

func (s *stage) knowsCluster() error {
	record, err := s.record("demo")
	if err == nil && record.ClusterID != clusterID {
		err = fmt.Errorf("the record is %+v", record)
	}
	return err
}

func (s *stage) terminating(name string) error {
	var pod corev1.Pod
	if err := s.fetch(name, &pod); err != nil || pod.DeletionTimestamp != nil {
		return err
	}
	return fmt.Errorf("Pod %s runs on", name)
}

// drained says whether nothing but a claim is left of the members.
func (s *stage) drained(names []string) error {
	var errs []error
	for _, name := range names {
		errs = append(errs, s.gone(name, &coordinationv1.Lease{}), s.gone(name, &corev1.Pod{}))
	}
	return errors.Join(errs...)
}

// owned says whether each claim has as many owners.
func (s *stage) owned(names []string, count int) error {
	owners := s.owners("demo")
	for _, name := range names {
		if len(owners[name]) != count {
			return fmt.Errorf("claim %s is owned by %+v", name, owners[name])
		}
	}
	return nil
}

// second is one in the life of the cluster: the agents of formed members renew, the leader's removes whom it is asked to
// remove, and kubelets and the volumes' protection release what belongs to no listed member.
func (s *stage) second(names []string, scenario scenario) {
	s.Helper()
	record, err := s.record("demo")
	for i, name := range names {
		if err == nil && !record.Lists(name) {
			s.sweep(name)
			continue
		}
		if scenario.ends {
			if s.sweep(name); s.gone(name, &corev1.Pod{}) == nil {
				continue
			}
		}
		role := leases.RoleMember
		if i == 0 && !(err == nil && record.Leaving && len(record.Members) == 1) { // the last one leaves when an external member leads
			role = leases.RoleLeader
		}
		s.agentComes(name)
		if scenario.restores && !s.restoreSecond(name, scenario.deaf) {
			continue
		}
		s.agent("demo", name, uint64(i+1), role)
		if scenario.secured {
			s.useCertificates(name)
		}
	}
	s.serveOrders()
	s.savePods()
	s.compares(leases.UpgradeAgree, "")
	if slot := record.PendingRemoval; slot != nil && !scenario.deaf {
		if mark := s.mark(slot.Member); mark.State == leases.RemovalRequested && slot.Orders(slot.Member, mark) {
			s.answer(slot.Member, done)
		}
	}
}

// sweep ends the Pod and the claim of that name if they were deleted.
func (s *stage) sweep(name string) {
	s.Helper()
	var pod corev1.Pod
	if s.fetch(name, &pod) == nil && pod.DeletionTimestamp != nil {
		s.end(name)
	}
	var claim corev1.PersistentVolumeClaim
	if s.fetch(name, &claim) == nil && claim.DeletionTimestamp != nil && len(claim.Finalizers) > 0 {
		claim.Finalizers = nil
		if err := s.Update(s.Context(), &claim); err != nil && !strings.Contains(err.Error(), "not found") {
			s.Fatal(err)
		}
	}
}
