package situations

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/internal/view"
	"github.com/etcd-druid/druid/leases"
)

func withoutBackup(o *view.Objects) {
	o.Cluster.Spec.Backup = nil
	unset(o, v1alpha1.ConditionBackupReady, v1alpha1.ConditionBackupVerified)
	o.Leases = o.Leases[:3]
}

// down is a member whose node is not ready, for some time.
func down(o *view.Objects, i int, since time.Duration) {
	o.Leases[i].Spec.RenewTime = &metav1.MicroTime{Time: ago(since)}
	o.Nodes[i].Status.Conditions[0].Status = corev1.ConditionUnknown
	m := &o.Cluster.Status.Members[i]
	m.Status, m.Reason, m.Role = v1alpha1.MemberNotReady, "PodNotReady", ""
	m.Message = "node " + nodes[i] + " is not ready"
	m.LastTransitionTime = metav1.Time{Time: ago(since - 45*time.Second)}
	o.Cluster.Status.ReadyReplicas--
}

func memberDown(o *view.Objects) {
	down(o, 2, 4*time.Minute)
	set(o, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonQuorate, "2 of 3 voters serve; a quorum is 2.", 47*time.Hour)
	set(o, v1alpha1.ConditionAllMembersReady, metav1.ConditionFalse, v1alpha1.ReasonMembersNotReady,
		"2 of 3 members ready. Member demo-sx47z: node n3 is not ready.", 3*time.Minute)
	tools(o, v1alpha1.ConditionReconciling, v1alpha1.ConditionAllMembersReady)
}

func quorumLost(o *view.Objects) {
	down(o, 0, 4*time.Minute)
	down(o, 1, 4*time.Minute)
	set(o, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonQuorumLost,
		"1 of 3 voters serve; a quorum is 2. etcd refuses writes and linearizable reads.", 3*time.Minute)
	set(o, v1alpha1.ConditionAllMembersReady, metav1.ConditionFalse, v1alpha1.ReasonMembersNotReady,
		"1 of 3 members ready. Member demo-bqdq7: node n1 is not ready.", 3*time.Minute)
	tools(o, v1alpha1.ConditionReconciling, v1alpha1.ConditionReady)
	o.Leases[4].Spec.RenewTime = &metav1.MicroTime{Time: ago(4 * time.Minute)}
	o.Events = append(o.Events, event("Warning", v1alpha1.EventQuorumLost,
		"1 of 3 voters serve; a quorum is 2. etcd refuses writes and linearizable reads.", 3*time.Minute))
	o.Cluster.Status.Recovery = &v1alpha1.RecoveryStatus{Phase: v1alpha1.RecoveryWaiting, Message: "The quorum was lost less than 5 minutes ago."}
}

// Approve is the command that approves the plan of quorum-lost-with-a-plan, and Hash the hash of that plan.
const (
	Hash    = "5d41402abc4b2a76"
	Approve = "kubectl annotate etcdcluster --namespace default demo --overwrite etcd.druid.dev/recover=" + Hash
)

func quorumLostWithPlan(o *view.Objects) {
	quorumLost(o)
	down(o, 0, 12*time.Minute)
	down(o, 1, 12*time.Minute)
	o.Cluster.Status.ReadyReplicas = 1
	o.Leases[4].Spec.RenewTime = &metav1.MicroTime{Time: ago(12 * time.Minute)}
	set(o, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonQuorumLost,
		"1 of 3 voters serve; a quorum is 2. etcd refuses writes and linearizable reads.", 11*time.Minute)
	set(o, v1alpha1.ConditionDegraded, metav1.ConditionTrue, v1alpha1.ReasonRecoveryProposed,
		"The quorum is lost, and the plan in status.recovery needs your approval: form the cluster again from the disk of member demo-sx47z.", 6*time.Minute)
	set(o, v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonRecoveryProposed,
		"The repair of the lost quorum waits for you. Bring members back, or approve the plan in status.recovery.", 6*time.Minute)
	tools(o, v1alpha1.ConditionStalled, v1alpha1.ConditionDegraded)
	o.Cluster.Status.Recovery = &v1alpha1.RecoveryStatus{
		Phase: v1alpha1.RecoveryProposed, Message: "Form the cluster again from the disk of member demo-sx47z: it gives up demo-bqdq7, demo-lgmkl, " +
			"and your approval asserts that their data is destroyed.",
		Approve: Approve,
		Plan: &v1alpha1.RecoveryPlan{
			Hash: Hash, Source: v1alpha1.RecoveryFromSurvivor, Member: "demo-sx47z", Revision: 48208, GiveUp: []string{"demo-bqdq7", "demo-lgmkl"},
			LostRevisions: new(int64(3)), LostSeconds: new(int64(15)),
		},
	}
}

func restoreWithPlan(o *view.Objects) {
	o.Cluster.Status.Recovery = &v1alpha1.RecoveryStatus{
		Phase: v1alpha1.RecoveryProposed, Message: "The restore needs your approval: restore revision 48000, up to revision 48000 of lineage " +
			lineage + "; at least 209 revisions are undone; clients are cut off meanwhile.",
		Approve: Approve,
		Plan: &v1alpha1.RecoveryPlan{
			Hash: Hash, Source: v1alpha1.RecoveryFromRestore, Target: "revision 48000", Backup: lineage + "@48000", Revision: 48000,
			Full: catalog.FullKey(prefix, lineage, 47872, ago(43*time.Hour)), Deltas: 3, LostRevisions: new(int64(209)),
		},
	}
}

func backupsFailing(o *view.Objects) {
	const failure = "operation error S3: PutObject, https response error StatusCode: 403, api error AccessDenied: Access Denied"
	delta := &o.Leases[4]
	delta.Spec.RenewTime = &metav1.MicroTime{Time: ago(12 * time.Minute)}
	delta.Annotations[leases.Prefix+"error"], delta.Annotations[leases.Prefix+"error-cause"] = failure, string(leases.BackupUnauthorized)
	delta.Annotations[leases.Prefix+"lag"] = "12m0s"
	set(o, v1alpha1.ConditionBackupReady, metav1.ConditionFalse, v1alpha1.ReasonDeltaBackupFailed,
		"Changes are not saved: Unauthorized: correct the credentials of the backup store, or their permissions. The error is: "+failure+
			". Until a backup succeeds, druid removes no member and allows no eviction.", 11*time.Minute)
	tools(o, v1alpha1.ConditionReconciling, v1alpha1.ConditionBackupReady)
}

func backupBroken(o *view.Objects) {
	full := o.Leases[3].Annotations
	full[leases.Prefix+"verdict"], full[leases.Prefix+"verify-trouble"] = string(leases.VerdictBroken), "the object "+delta+" has another SHA-256"
	set(o, v1alpha1.ConditionBackupVerified, metav1.ConditionFalse, v1alpha1.ReasonVerificationFailed,
		"The backups do not restore to a state that the cluster had: the object "+delta+" has another SHA-256.", 2*time.Hour)
	tools(o, v1alpha1.ConditionStalled, v1alpha1.ConditionBackupVerified)
}

func paused(o *view.Objects) {
	o.Cluster.Spec.Replicas, o.Cluster.Status.ReadyReplicas, o.Cluster.Status.ClusterSize = 0, 0, 1
	const why = "The cluster is paused. PersistentVolumeClaim demo-bqdq7 holds the data."
	for _, kind := range []string{v1alpha1.ConditionReady, v1alpha1.ConditionAllMembersReady, v1alpha1.ConditionProgressing} {
		set(o, kind, metav1.ConditionFalse, v1alpha1.ReasonPaused, why, 26*time.Hour)
	}
	for _, kind := range []string{v1alpha1.ConditionSpread, v1alpha1.ConditionBackupReady, v1alpha1.ConditionBackupVerified} {
		set(o, kind, metav1.ConditionUnknown, v1alpha1.ReasonPaused, why, 26*time.Hour)
	}
	o.Cluster.Status.Members = o.Cluster.Status.Members[:1]
	m := &o.Cluster.Status.Members[0]
	m.Status, m.Reason, m.Role = v1alpha1.MemberPaused, v1alpha1.ReasonPaused, ""
	o.Leases = append(o.Leases[:1], o.Leases[3:]...)
	for i := range o.Leases {
		o.Leases[i].Spec.RenewTime = &metav1.MicroTime{Time: ago(26 * time.Hour)}
	}
	o.Leases[1].Annotations[leases.Prefix+"taken"], o.Leases[1].Annotations[leases.Prefix+"verified-at"] = stamp(28*time.Hour), stamp(27*time.Hour)
	o.Pods, o.Nodes = nil, nil
}

func forming(o *view.Objects) {
	o.Cluster.Generation, o.Cluster.Status.ObservedGeneration, o.Cluster.CreationTimestamp = 1, 1, metav1.Time{Time: ago(20 * time.Second)}
	o.Cluster.Status.ClusterID, o.Cluster.Status.ReadyReplicas, o.Cluster.Status.Endpoints = "", 0, nil
	set(o, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonForming,
		"Member demo-bqdq7 bootstraps the cluster, and the other members join it.", 20*time.Second)
	set(o, v1alpha1.ConditionAllMembersReady, metav1.ConditionFalse, v1alpha1.ReasonMembersNotReady,
		"0 of 3 members ready. Member demo-bqdq7: there is no Pod.", 20*time.Second)
	set(o, v1alpha1.ConditionProgressing, metav1.ConditionTrue, v1alpha1.ReasonForming,
		"Member demo-bqdq7 bootstraps the cluster, and the other members join it.", 20*time.Second)
	tools(o, v1alpha1.ConditionReconciling, v1alpha1.ConditionProgressing)
	set(o, v1alpha1.ConditionBackupReady, metav1.ConditionUnknown, v1alpha1.ReasonUnknown, "The first full backup does not exist yet.", 20*time.Second)
	set(o, v1alpha1.ConditionBackupVerified, metav1.ConditionUnknown, v1alpha1.ReasonNotYetVerified, "No agent has verified the backups yet.", 20*time.Second)
	set(o, v1alpha1.ConditionSpread, metav1.ConditionUnknown, v1alpha1.ReasonMembersNotPlaced, "The node of a voter is unknown.", 20*time.Second)
	for i := range o.Cluster.Status.Members {
		m := &o.Cluster.Status.Members[i]
		*m = v1alpha1.MemberStatus{Name: m.Name, Status: v1alpha1.MemberNotReady, Reason: "PodNotReady", Message: "its etcd container is not ready"}
		o.Leases[i].Spec, o.Leases[i].Annotations = coordinationv1.LeaseSpec{LeaseDurationSeconds: new(int32(45))},
			prefixed(map[string]string{"agent-version": "v0.6.0", "data": leases.DataEmpty, "disk": `{"pod":"4c1d","state":"empty","orders":true}`})
	}
	for i := 3; i < 5; i++ {
		o.Leases[i].Spec, o.Leases[i].Annotations = coordinationv1.LeaseSpec{}, nil
	}
}

func withTLS(o *view.Objects) {
	o.Cluster.Spec.TLS = &v1alpha1.TLSSpec{
		Client: &v1alpha1.ClientTLS{Auto: &v1alpha1.AutoTLS{}, Clients: []v1alpha1.TLSClient{{Name: "app", CommonName: "app"}}},
		Peer:   &v1alpha1.PeerTLS{Auto: &v1alpha1.AutoTLS{}},
	}
	o.Cluster.Status.Endpoints = []string{"https://demo-client.default.svc:2379"}
	plane := func(ends time.Duration) *v1alpha1.TLSPlaneStatus {
		return &v1alpha1.TLSPlaneStatus{
			Stage: v1alpha1.TLSStageOn, Phase: v1alpha1.TLSStable, NotAfter: &metav1.Time{Time: Now.Add(ends)},
			AuthorityNotAfter: &metav1.Time{Time: Now.Add(3600 * 24 * time.Hour)},
		}
	}
	o.Cluster.Status.TLS = &v1alpha1.TLSStatus{Client: plane(60 * 24 * time.Hour), Peer: plane(61 * 24 * time.Hour)}
	set(o, v1alpha1.ConditionCertificatesReady, metav1.ConditionTrue, v1alpha1.ReasonCertificatesValid, "All members have good certificates.", 47*time.Hour)
}

func ownCertificates(o *view.Objects) {
	withTLS(o)
	o.Cluster.Spec.TLS.Client = &v1alpha1.ClientTLS{SecretRef: &v1alpha1.TLSSecretRef{Name: "demo-certificates"}}
	o.Cluster.Status.TLS.Client.AuthorityNotAfter, o.Cluster.Status.TLS.Client.Phase = nil, ""
}

func authorityLost(o *view.Objects) {
	withTLS(o)
	o.Cluster.Status.TLS.Client.NotAfter = &metav1.Time{Time: Now.Add(5 * 24 * time.Hour)}
	o.Cluster.Status.TLS.Client.Message = "The Secret demo-client-ca-1 is gone."
	set(o, v1alpha1.ConditionCertificatesReady, metav1.ConditionFalse, v1alpha1.ReasonAuthorityLost,
		"The Secret demo-client-ca-1 with the certificate authority is gone. druid cannot issue certificates.", 30*time.Minute)
	tools(o, v1alpha1.ConditionStalled, v1alpha1.ConditionCertificatesReady)
}

// silent is a cluster whose status druid does not update any more, and of which two agents do not renew.
func silent(o *view.Objects) {
	for _, i := range []int{0, 1} {
		o.Leases[i].Spec.RenewTime = &metav1.MicroTime{Time: ago(17 * time.Minute)}
	}
}

func notAccepted(o *view.Objects) {
	// The API server writes -1 until druid observes the EtcdCluster.
	o.Cluster.Status, o.Leases, o.Pods, o.Nodes = v1alpha1.EtcdClusterStatus{ObservedGeneration: -1}, nil, nil, nil
	o.Cluster.Generation, o.Cluster.CreationTimestamp = 1, metav1.Time{Time: ago(9 * time.Minute)}
}

func scalingUp(o *view.Objects) {
	o.Cluster.Spec.Replicas, o.Cluster.Generation = 5, 8
	set(o, v1alpha1.ConditionProgressing, metav1.ConditionTrue, v1alpha1.ReasonScalingUp, "3 of 5 members joined.", time.Minute)
	tools(o, v1alpha1.ConditionReconciling, v1alpha1.ConditionProgressing)
}

// leaving is an EtcdCluster that is deleted, and whose members leave the cluster that they joined.
func leaving(o *view.Objects) {
	o.Cluster.DeletionTimestamp, o.Cluster.Finalizers = &metav1.Time{Time: ago(time.Minute)}, []string{"etcd.druid.dev/join"}
	set(o, v1alpha1.ConditionProgressing, metav1.ConditionTrue, v1alpha1.ReasonLeavingJoinedCluster,
		"The EtcdCluster is deleted, and its members leave the joined cluster, one at a time.", time.Minute)
	tools(o, v1alpha1.ConditionReconciling, v1alpha1.ConditionProgressing)
}

// handsOff is a cluster that an annotation keeps druid off.
func handsOff(o *view.Objects) {
	const why = "druid takes no action until you remove annotation etcd.druid.dev/hands-off: moving the disks of n2."
	o.Cluster.Annotations = map[string]string{"etcd.druid.dev/hands-off": "moving the disks of n2"}
	set(o, v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonHandsOff, why, time.Hour)
	tools(o, v1alpha1.ConditionStalled, v1alpha1.ConditionProgressing)
}

// slowDisk is a cluster with a member on a very slow disk. Of another member, the agent cannot read the metrics of etcd.
func slowDisk(o *view.Objects) {
	const why = "its disk is very slow: one in a hundred writes to the log of etcd takes half a second or longer, so that a leader can lose the leadership. " +
		"Use a faster disk, or move other load away from it. See docs/how-to/rescue/slow-disk.md"
	o.Leases[2].Annotations[leases.Prefix+"fsync"] = string(leases.SpeedVerySlow) + " p99=1.024s"
	o.Cluster.Status.Members[2].Disk = string(leases.SpeedVerySlow)
	delete(o.Leases[1].Annotations, leases.Prefix+"fsync")
	set(o, v1alpha1.ConditionDegraded, metav1.ConditionTrue, v1alpha1.ReasonSlowDisk, "Member demo-sx47z: "+why+".", 20*time.Minute)
	tools(o, v1alpha1.ConditionReconciling, v1alpha1.ConditionDegraded)
}

// leasesNotReadable is what a user sees who may read EtcdClusters alone.
func leasesNotReadable(o *view.Objects) {
	o.Leases, o.Pods, o.Nodes = nil, nil, nil
	o.Unread = []view.Unread{
		{Kind: "Leases", Problem: `leases.coordination.k8s.io is forbidden: User "viewer" cannot list resource "leases" in API group ` +
			`"coordination.k8s.io" in the namespace "default"`},
	}
}
