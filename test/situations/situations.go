package situations

import (
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/internal/view"
	"github.com/etcd-druid/druid/leases"
)

// Now is the time at which the situations are looked at.
var Now = time.Date(2026, 11, 24, 3, 0, 0, 0, time.UTC)

// Members of the EtcdCluster demo, and the nodes that they run on.
var (
	Members = []string{"demo-bqdq7", "demo-lgmkl", "demo-sx47z"}
	nodes   = []string{"n1", "n2", "n3"}
	ids     = []string{"a98359f6f7ec8af8", "3528ddf74efa69b3", "661ba0a2080d4f34"}
)

// lineage has the backups of demo, prefix is what their keys begin with, and delta is the key of the newest delta backup.
const (
	lineage = "00000001-9f31c2d4"
	prefix  = "default/demo"
)

var delta = catalog.DeltaKey(prefix, lineage, 48102, 48211, ago(6*time.Second))

// Situation is a state of an EtcdCluster.
type Situation struct {
	Name    string
	Objects view.Objects
}

// All returns every situation. Each call makes new objects.
func All() []Situation {
	makers := []struct {
		name   string
		change func(*view.Objects)
	}{
		{"serving", func(*view.Objects) {}},
		{"without-backup", withoutBackup},
		{"member-down", memberDown},
		{"quorum-lost", quorumLost},
		{"quorum-lost-with-a-plan", quorumLostWithPlan},
		{"restore-with-a-plan", restoreWithPlan},
		{"backups-failing", backupsFailing},
		{"backup-broken", backupBroken},
		{"paused", paused},
		{"forming", forming},
		{"tls", withTLS},
		{"own-certificates", ownCertificates},
		{"hands-off", handsOff},
		{"slow-disk", slowDisk},
		{"authority-lost", authorityLost},
		{"druid-and-agents-silent", silent},
		{"not-accepted", notAccepted},
		{"scaling-up", scalingUp},
		{"leaving-a-joined-cluster", leaving},
		{"leases-not-readable", leasesNotReadable},
	}
	all := make([]Situation, 0, len(makers))
	for _, m := range makers {
		o := Serving()
		m.change(&o)
		all = append(all, Situation{m.name, o})
	}
	return all
}

// Views returns every situation as the plugin shows it, each in a namespace of its own, the worst first.
func Views() (all []view.Cluster) {
	for _, one := range All() {
		one.Objects.Cluster.Namespace = one.Name
		all = append(all, view.Of(one.Objects, Now))
	}
	view.Sort(all)
	return all
}

// Serving is a healthy EtcdCluster of three members with backups.
func Serving() view.Objects {
	o := view.Objects{Cluster: v1alpha1.EtcdCluster{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "EtcdCluster"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "demo", Generation: 7, UID: "4b0f5c9e-3c3f-4d53-9a53-9d4f4f0b2a11", CreationTimestamp: metav1.Time{Time: ago(48 * time.Hour)},
		},
		Spec: v1alpha1.EtcdClusterSpec{
			Replicas: 3, Version: "3.6.16", Image: "gcr.io/etcd-development/etcd", Storage: v1alpha1.StorageSpec{Size: resource.MustParse("5Gi")},
			Backup: &v1alpha1.BackupSpec{Store: v1alpha1.BackupStore{S3: &v1alpha1.S3Store{Bucket: "backups", Region: "eu-central-1"}}},
		},
		Status: v1alpha1.EtcdClusterStatus{
			ObservedGeneration: 7, ClusterID: "e7e42b2a87bb6d62", Epoch: 1, ClusterSize: 3, ReadyReplicas: 3, Selector: "etcd.druid.dev/cluster=demo",
			Endpoints: []string{"http://demo-client.default.svc:2379"},
		},
	}}
	set(&o, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonQuorate, "3 of 3 voters serve; a quorum is 2.", 47*time.Hour)
	set(&o, v1alpha1.ConditionAllMembersReady, metav1.ConditionTrue, v1alpha1.ReasonAllReady, "3 of 3 members ready.", 47*time.Hour)
	set(&o, v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonReconciled, "3 members as requested.", 47*time.Hour)
	set(&o, v1alpha1.ConditionDegraded, metav1.ConditionFalse, v1alpha1.ReasonAsExpected, "No problem is known.", 47*time.Hour)
	set(&o, v1alpha1.ConditionSpread, metav1.ConditionTrue, v1alpha1.ReasonMembersSpread, "Each voter runs on a node of its own.", 47*time.Hour)
	set(&o, v1alpha1.ConditionBackupReady, metav1.ConditionTrue, v1alpha1.ReasonDeltaBackupSucceeded,
		"A full backup and all changes since then are saved, within spec.backup.delta.period.", 47*time.Hour)
	set(&o, v1alpha1.ConditionBackupVerified, metav1.ConditionTrue, v1alpha1.ReasonVerificationSucceeded,
		"An agent restored the backups, and they hold what etcd reported.", 46*time.Hour)
	o.Events = []corev1.Event{
		event("Normal", v1alpha1.EventClusterFormed, "The raft group exists.", 47*time.Hour),
		event("Normal", v1alpha1.EventMemberReady, "Member demo-sx47z is ready.", 47*time.Hour),
	}
	for i, name := range Members {
		role := leases.RoleMember
		if i == 0 {
			role = leases.RoleLeader
		}
		o.Cluster.Status.Members = append(o.Cluster.Status.Members, v1alpha1.MemberStatus{
			Name: name, ID: ids[i], Role: string(role), Status: v1alpha1.MemberReady, Reason: "LeaseSucceeded", Version: "3.6.16",
			LastTransitionTime: metav1.Time{Time: ago(47 * time.Hour)},
		})
		o.Leases = append(o.Leases, memberLease(i, role))
		o.Pods = append(o.Pods, corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{leases.LabelCluster: "demo", leases.LabelMember: name}},
			Spec:       corev1.PodSpec{NodeName: nodes[i], Containers: []corev1.Container{{Name: "etcd", Image: "gcr.io/etcd-development/etcd:v3.6.16"}}},
		})
		o.Nodes = append(o.Nodes, corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: nodes[i], Labels: map[string]string{corev1.LabelTopologyZone: "z" + nodes[i][1:]}},
			Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
		})
	}
	o.Leases = append(o.Leases, backupLease(leases.ComponentFullSnapshot, "47900", 6*time.Second, map[string]string{
		"object": catalog.FullKey(prefix, lineage, 47900, ago(3*time.Hour)), "size": "207618048", "taken": stamp(3 * time.Hour),
		"restorable-since": stamp(47 * time.Hour),
		"verdict":          string(leases.VerdictVerified), "verified-at": stamp(2 * time.Hour), "verified-revision": "47991", "verified-lineage": lineage,
	}), backupLease(leases.ComponentDeltaSnapshot, "48211", 6*time.Second, map[string]string{
		"object": delta, "size": "18211", "taken": stamp(6 * time.Second),
	}))
	return o
}

func ago(d time.Duration) time.Time { return Now.Add(-d) }

func stamp(d time.Duration) string { return ago(d).Format(time.RFC3339) }

// set sets a condition that last changed some time ago.
func set(o *view.Objects, kind string, status metav1.ConditionStatus, reason, message string, since time.Duration) {
	condition := metav1.Condition{
		Type: kind, Status: status, Reason: reason, Message: message, ObservedGeneration: o.Cluster.Generation, LastTransitionTime: metav1.Time{Time: ago(since)},
	}
	if old := meta.FindStatusCondition(o.Cluster.Status.Conditions, kind); old != nil {
		*old = condition
		return
	}
	o.Cluster.Status.Conditions = append(o.Cluster.Status.Conditions, condition)
}

// tools sets the condition for tools that wait, with the reason and the message of another condition, and removes the other one for tools.
func tools(o *view.Objects, kind, from string) {
	unset(o, v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled)
	c := *meta.FindStatusCondition(o.Cluster.Status.Conditions, from)
	set(o, kind, metav1.ConditionTrue, c.Reason, c.Message, Now.Sub(c.LastTransitionTime.Time))
}

// unset removes conditions.
func unset(o *view.Objects, kinds ...string) {
	for _, kind := range kinds {
		meta.RemoveStatusCondition(&o.Cluster.Status.Conditions, kind)
	}
}

// event is an Event that druid emitted some time ago.
func event(kind, reason, message string, since time.Duration) corev1.Event {
	return corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: "default", Name: "demo." + strings.ToLower(reason)},
		InvolvedObject: corev1.ObjectReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: "EtcdCluster", Namespace: "default", Name: "demo"},
		Type:           kind, Reason: reason, Message: message, EventTime: metav1.MicroTime{Time: ago(since)}, ReportingController: "druid",
		ReportingInstance: "druid-0", Action: reason,
	}
}

func memberLease(i int, role leases.Role) coordinationv1.Lease {
	return coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: Members[i],
			Labels: map[string]string{leases.LabelCluster: "demo", leases.LabelComponent: string(leases.ComponentMember), leases.LabelMember: Members[i]},
			Annotations: prefixed(map[string]string{
				"cluster-id": "e7e42b2a87bb6d62", "epoch": "1", "lineage": lineage,
				"raft":     leases.Raft{Term: 4, Committed: 90144 - uint64(i), LastTerm: 4, LastIndex: 90144 - uint64(i)}.String(),
				"revision": []string{"48211", "48211", "48208"}[i], "db-size": []string{"222298112", "222298112", "220200960"}[i],
				"db-size-in-use": "180355072", "volume-free": "4831838208", "version": "3.6.16", "fsync": "OK p99=4ms",
				"agent-version": "v0.6.0", "data": "intact", "rule": "resume",
			}),
		},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: new(ids[i] + ":" + string(role)), LeaseDurationSeconds: new(int32(45)),
			RenewTime: &metav1.MicroTime{Time: ago(time.Duration(4+3*i) * time.Second)},
		},
	}
}

func backupLease(component leases.Component, revision string, renewed time.Duration, annotations map[string]string) coordinationv1.Lease {
	annotations["lineage"] = lineage
	return coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: leases.SnapshotName("demo", component),
			Labels:      map[string]string{leases.LabelCluster: "demo", leases.LabelComponent: string(component)},
			Annotations: prefixed(annotations),
		},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &revision, LeaseDurationSeconds: new(int32(600)), RenewTime: &metav1.MicroTime{Time: ago(renewed)}},
	}
}

func prefixed(annotations map[string]string) map[string]string {
	all := map[string]string{}
	for key, value := range annotations {
		all[leases.Prefix+key] = value
	}
	return all
}
