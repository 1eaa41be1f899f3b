package druid

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/manifests"
)

// restoredID is the cluster ID after a restore in place.
const restoredID = clusterID + 1

// restores are the scenarios of a restore in place, with one member.
var restores = map[string]scenario{
	"a restore in place": {
		replicas: 1, formed: true, restores: true,
		prepare: func(s *stage, _ []string) { s.backsUp() },
		change:  func(s *stage, _ []string) { s.patchCluster(restoreOn) },
		reached: func(s *stage, names []string) error {
			return errors.Join(s.restoredAs(v1alpha1.RecoveryRecovered, restoredID, 0), s.serving(names[0]))
		},
	},
	"a restore in place that is withdrawn": {
		replicas: 1, formed: true, restores: true, deaf: true,
		prepare: func(s *stage, _ []string) {
			s.backsUp()
			s.patchCluster(restoreOn)
			s.within("order the restore", s.beat, func() error {
				record, err := s.record("demo")
				if err == nil && !record.Order().Restores() {
					err = errors.New("no order to restore stands")
				}
				return err
			})
		},
		change: func(s *stage, _ []string) { s.patchCluster(`{"spec":{"recovery":null}}`) },
		reached: func(s *stage, names []string) error {
			return errors.Join(s.restoredAs("", clusterID, 2), s.serving(names[0]))
		},
	},
}

const restoreOn = `{"spec":{"recovery":{"restore":{"revision":1}}}}`

func (s *stage) backsUp() {
	s.Helper()
	s.patchCluster(backupsOn)
	s.within("backups begin", s.beat, func() error { return s.snapshotLeases(true) })
}

// restoredAs says what is missing until status and record are those after a restore that ended, and no request is open.
func (s *stage) restoredAs(phase v1alpha1.RecoveryPhase, cluster uint64, released uint32) error {
	var c v1alpha1.EtcdCluster
	if err := s.fetch("demo", &c); err != nil {
		return err
	}
	record, err := s.record("demo")
	switch {
	case err != nil:
		return err
	case record.Phase != leases.PhaseFormed || record.ClusterID != cluster || record.Released != released:
		return fmt.Errorf("the record is %+v", record)
	case released > 0 && record.Restore.Request.Nonce != "":
		return errors.New("the request for a plan stays")
	case c.Status.ClusterID != leases.FormatID(cluster):
		return fmt.Errorf("the status names cluster %s", c.Status.ClusterID)
	case phase != "" && (c.Status.Recovery == nil || c.Status.Recovery.Phase != phase):
		return fmt.Errorf("status.recovery is %+v", c.Status.Recovery)
	}
	return nil
}

// serving says whether clients are sent to the Pod.
func (s *stage) serving(name string) error {
	var pod corev1.Pod
	if err := s.fetch(name, &pod); err != nil {
		return err
	}
	if pod.Labels[manifests.LabelServing] == "" {
		return errors.New("no client is sent to " + name)
	}
	return nil
}

// restoreSecond is what the user and the agent of the only member do about a restore within a second. A deaf agent does not stop etcd.
// It returns whether etcd runs.
func (s *stage) restoreSecond(name string, deaf bool) bool {
	s.Helper()
	store := s.store("demo")
	record, version, err := store.Record(s.Context())
	if err != nil {
		return false
	}
	order := record.Order()
	switch {
	case order == nil && record.Restore.Open():
		_, err = store.AnswerRestore(s.Context(), version, leases.RestorePlan{
			Nonce: record.Restore.Request.Nonce, Lineage: record.Lineage, Full: "full", Deltas: 1, Revision: 1,
		})
	case order == nil:
		err = s.approveShown()
	case deaf:
		return true
	case order.Stage == leases.StagePrepare:
		s.kubelet(name, false)
		err = s.acknowledgeRestore(name, record)
	case order.Chosen == name:
		err = s.carryOut(record, version)
	}
	if err != nil && !errors.Is(err, leases.ErrConflict) {
		s.Log(err)
	}
	if order != nil {
		return false
	}
	var pod corev1.Pod
	if s.fetch(name, &pod) != nil {
		return false
	}
	if podCondition(&pod, corev1.PodReady).Status != corev1.ConditionTrue {
		s.kubelet(name, true)
	}
	s.withdrawClaim(name)
	return true
}

// withdrawClaim removes the claim of a member whose etcd starts.
func (s *stage) withdrawClaim(name string) {
	s.Helper()
	member, err := s.store("demo").Member(s.Context(), name)
	if err != nil || member.Disk == nil {
		return
	}
	if _, err := s.store("demo").PublishDiskReport(s.Context(), name, member.LeaseVersion, nil); err != nil {
		s.Log(err)
	}
}

// approveShown approves the plan that the status shows.
func (s *stage) approveShown() error {
	var c v1alpha1.EtcdCluster
	if err := s.fetch("demo", &c); err != nil {
		return err
	}
	r := c.Status.Recovery
	if r == nil || r.Phase != v1alpha1.RecoveryProposed || r.Plan == nil || c.Annotations[v1alpha1.RecoverAnnotation] == r.Plan.Hash {
		return nil
	}
	s.patchCluster(fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, v1alpha1.RecoverAnnotation, r.Plan.Hash))
	return nil
}

// acknowledgeRestore publishes the claim of a member that stopped for the order of the record.
func (s *stage) acknowledgeRestore(name string, record leases.Record) error {
	member, err := s.store("demo").Member(s.Context(), name)
	if err != nil || member.Disk != nil && member.Disk.Order == record.Order().Name() {
		return err
	}
	_, err = s.store("demo").PublishDiskReport(s.Context(), name, member.LeaseVersion, &leases.DiskReport{
		Pod: member.PodUID, Volume: member.VolumeUID, State: leases.DiskIntact, Cluster: leases.FormatID(record.ClusterID), Member: leases.FormatID(1),
		Epoch: record.FormedEpoch, Lineage: record.Lineage, Prepared: record.Order().Epoch, LastTerm: 2, Last: 9, Commit: 9, Applied: 9, Revision: 7,
		Voters: leases.FormatID(1), Orders: true, Order: record.Order().Name(),
	})
	return err
}

// carryOut records that the order formed the new raft group.
func (s *stage) carryOut(record leases.Record, version leases.Version) error {
	order := record.Order()
	attempt := leases.RecoveryAttempt{Order: order.Name(), Nonce: "0123456789abcdef", PodUID: "pod", ClusterID: leases.FormatID(restoredID)}
	record, err := record.Claimed(attempt)
	if err != nil {
		return err
	}
	fork := leases.Fork{Parent: record.Lineage, Revision: 1}
	record, err = record.Reformed(attempt, leases.Recovered{Epoch: order.Epoch, Mode: order.Mode, Member: order.Chosen, Revision: 1000}, fork)
	if err != nil {
		return err
	}
	_, err = s.store("demo").UpdateRecord(s.Context(), version, record)
	return err
}
