package v1alpha1

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// EtcdClusterStatus is the state of the cluster that druid last observed. It does not change while the cluster is
// stable: values that change by themselves, such as the revision, sizes and the raft index, are in the Leases.
type EtcdClusterStatus struct {
	// observedGeneration is the generation of the spec that druid accepted and that this status describes. While it
	// differs from metadata.generation, a spec change is pending.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// observed is the spec that druid works towards, of generation observedGeneration. druid accepts all of a spec
	// change together: at once if it can be combined with the change in progress, otherwise when that change is complete
	// or its deadline has passed. If not set, druid accepts spec as it is.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	Observed *runtime.RawExtension `json:"observed,omitempty"`

	// restore is the backup that spec.bootstrap.restore.from.snapshotRef named when druid first accepted the spec:
	// store, cluster, lineage and state. druid does not read the EtcdSnapshot or its EtcdCluster again.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	Restore *runtime.RawExtension `json:"restore,omitempty"`

	// progressDeadline is the time until which druid works on the change in progress, by druid's clock. It is absent
	// if no change is in progress. A time in the past, including one that you set, ends the change: druid accepts the
	// pending spec change, or stops until the next one. A later time, or none, lets druid continue.
	// +optional
	ProgressDeadline *metav1.Time `json:"progressDeadline,omitempty"`

	// clusterID is etcd's cluster ID. druid sets it when the cluster has formed. Only a recovery from lost quorum changes it.
	// +optional
	ClusterID string `json:"clusterID,omitempty"`

	// epoch counts the raft groups of the cluster, from 1. clusterID belongs to it.
	// +optional
	Epoch int64 `json:"epoch,omitempty"`

	// recovery is the state of a recovery from a lost quorum, or of a restore in place. It is absent while no quorum is lost, no restore
	// is requested, and none took place.
	// +optional
	Recovery *RecoveryStatus `json:"recovery,omitempty"`

	// clusterSize is the number of members in the cluster record.
	// +optional
	ClusterSize int32 `json:"clusterSize"`

	// readyReplicas is the number of ready members.
	// +optional
	ReadyReplicas int32 `json:"readyReplicas"`

	// readyMembers is readyReplicas and the number of replicas in the accepted spec, such as 3/3.
	// +optional
	ReadyMembers string `json:"readyMembers,omitempty"`

	// endpoints are the URLs at which clients in the Kubernetes cluster reach etcd.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +optional
	Endpoints []string `json:"endpoints,omitempty"`

	// binding names the Secret with what a client needs to connect: the certificates, the certificate authorities and the endpoints. A
	// ServiceBinding of servicebinding.io that names this EtcdCluster finds the Secret here. It is absent unless druid or cert-manager
	// issues the certificates of clients.
	// +optional
	Binding *corev1.LocalObjectReference `json:"binding,omitempty"`

	// backup says from when on the cluster can be restored. It is absent without spec.backup, and before the first full backup.
	// +optional
	Backup *BackupStatus `json:"backup,omitempty"`

	// tls is the state of TLS and of the certificates. It is absent while no member uses TLS or is to use it.
	// +optional
	TLS *TLSStatus `json:"tls,omitempty"`

	// auth is the state of authentication in etcd. It is absent while authentication is off and spec.auth is not set.
	// +optional
	Auth *AuthStatus `json:"auth,omitempty"`

	// formerTLS has what you removed from spec.tls, until no member uses it any more.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	FormerTLS *runtime.RawExtension `json:"formerTLS,omitempty"`

	// selector selects the Pods of the cluster. The scale subresource shows it.
	// +optional
	Selector string `json:"selector,omitempty"`

	// conditions are Ready, AllMembersReady, Progressing, Degraded and Spread. If spec.backup is set, BackupReady and
	// BackupVerified are added, and if spec.tls is set, CertificatesReady. AuthReady is added if spec.auth is set or
	// authentication is on. Reconciling or Stalled is added while the cluster does not match its spec.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// members lists the members in the order of their names.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=1000
	// +optional
	Members []MemberStatus `json:"members,omitempty"`
}

// BackupStatus has the times of the backups that change at most with each full backup. Those of delta backups are in the Leases.
type BackupStatus struct {
	// lastFullTime is when the newest full backup was saved.
	// +optional
	LastFullTime *metav1.Time `json:"lastFullTime,omitempty"`
	// restorableFrom is the beginning of the restorable window: each state from then on can be restored. It moves when retention deletes
	// full backups, and begins again when changes were not saved. kubectl druid backups shows earlier windows.
	// +optional
	RestorableFrom *metav1.Time `json:"restorableFrom,omitempty"`
	// restorableTo is the end of the restorable window while backups fail, or while the cluster is paused. It is absent while backups
	// succeed: the window then ends at most spec.backup.delta.period ago.
	// +optional
	RestorableTo *metav1.Time `json:"restorableTo,omitempty"`
}

// MemberStatus is the state of one member that druid last observed.
type MemberStatus struct {
	// name of the member's Lease, PersistentVolumeClaim and Pod.
	// +required
	Name string `json:"name"`
	// id is etcd's member ID. It is empty for a member that never was in the cluster.
	// +optional
	ID string `json:"id,omitempty"`
	// role in the raft group: Leader, Member or Learner.
	// +optional
	Role string `json:"role,omitempty"`
	// status is Ready, NotReady, Unknown or Paused. A paused member has no Pod, and the PersistentVolumeClaim of this
	// name holds its data.
	// +required
	Status MemberState `json:"status"`
	// reason of the status.
	// +optional
	Reason string `json:"reason,omitempty"`
	// message says what the member waits for, if it waits.
	// +optional
	Message string `json:"message,omitempty"`
	// leaving is how far the removal of the member has progressed. It is empty for a member that stays.
	// +optional
	Leaving MemberLeaving `json:"leaving,omitempty"`
	// version of etcd that the member runs.
	// +kubebuilder:validation:MaxLength=256
	// +optional
	Version string `json:"version,omitempty"`
	// disk is OK, Slow or VerySlow: how long the etcd of the member took to write its log in the last five minutes. It is empty before
	// there were enough writes, and while the agent of the member is silent.
	// +optional
	Disk string `json:"disk,omitempty"`
	// lastTransitionTime is when the status last changed.
	// +optional
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitempty,omitzero"`
}

// MemberState is the health of a member.
type MemberState string

// The states of a member.
const (
	MemberReady    MemberState = "Ready"
	MemberNotReady MemberState = "NotReady"
	MemberUnknown  MemberState = "Unknown"
	// MemberPaused is a member without a Pod in a paused cluster. Its PersistentVolumeClaim holds its data.
	MemberPaused MemberState = "Paused"
)

// MemberLeaving is how far the removal of a member has progressed.
type MemberLeaving string

// The stations of the way out. Until Removing a revert of the spec takes it back.
const (
	// DrainingClients means that clients are led to other members.
	DrainingClients MemberLeaving = "DrainingClients"
	// LeaveRequested means that druid requested the removal.
	LeaveRequested MemberLeaving = "Requested"
	// LeaveRemoving means that the leader's agent removes the member.
	LeaveRemoving MemberLeaving = "Removing"
	// LeaveRemoved means that the member is not in the raft group any more.
	LeaveRemoved MemberLeaving = "Removed"
)

// Adopted returns the spec that druid works towards, from status.observed. It returns nil before druid accepted a
// spec.
func (s *EtcdClusterStatus) Adopted() (*EtcdClusterSpec, error) {
	spec, err := decode[EtcdClusterSpec](s.Observed)
	if err != nil {
		return nil, fmt.Errorf("status.observed cannot be understood; remove it, and druid adopts spec as it is: %w", err)
	}
	return spec, nil
}

// Adopt writes spec to status.observed as the one that druid works towards.
func (s *EtcdClusterStatus) Adopt(spec EtcdClusterSpec) error {
	raw, err := encode(spec)
	if err != nil {
		return fmt.Errorf("write the spec into status.observed: %w", err)
	}
	s.Observed = raw
	return nil
}

// ResolvedRestore is the backup that an EtcdSnapshot names, as status.restore records it.
type ResolvedRestore struct {
	// SnapshotUID is the UID of the EtcdSnapshot.
	SnapshotUID types.UID `json:"snapshotUID"`
	// RestoreSpec without a snapshotRef.
	RestoreSpec `json:",inline"`
	// Lineage of the backup. It is empty if the EtcdSnapshot does not have it.
	Lineage string `json:"lineage,omitempty"`
}

// ResolvedRestore returns the backup that the cluster starts from. It returns nil before druid read the EtcdSnapshot.
func (s *EtcdClusterStatus) ResolvedRestore() (*ResolvedRestore, error) {
	resolved, err := decode[ResolvedRestore](s.Restore)
	if err != nil {
		return nil, fmt.Errorf("status.restore cannot be understood: %w", err)
	}
	return resolved, nil
}

// Resolve writes the backup that an EtcdSnapshot names to status.restore.
func (s *EtcdClusterStatus) Resolve(resolved ResolvedRestore) error {
	raw, err := encode(resolved)
	if err != nil {
		return fmt.Errorf("write what is restored into status.restore: %w", err)
	}
	s.Restore = raw
	return nil
}

// decode returns what a field of the status holds, or nil if it is empty.
func decode[T any](field *runtime.RawExtension) (*T, error) {
	if field == nil || len(field.Raw) == 0 {
		return nil, nil
	}
	value := new(T)
	if err := json.Unmarshal(field.Raw, value); err != nil {
		return nil, err
	}
	return value, nil
}

func encode(value any) (*runtime.RawExtension, error) {
	raw, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	return &runtime.RawExtension{Raw: raw}, nil
}
