package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// BootstrapSpec configures how a new cluster starts: empty, from a backup, or as further members of a running etcd
// cluster. After the cluster has formed, only join.removeExternalMembers has an effect.
//
// +kubebuilder:validation:XValidation:rule="!has(self.restore) || !has(self.join)",message="bootstrap.restore and bootstrap.join must not both be set: a cluster starts from a backup or joins a running cluster"
type BootstrapSpec struct {
	// restore starts the cluster with the data of a backup.
	// +optional
	Restore *RestoreSpec `json:"restore,omitempty"`
	// join starts the cluster as members of an etcd cluster that runs elsewhere. That cluster migrates without
	// downtime.
	// +optional
	Join *JoinSpec `json:"join,omitempty"`
}

// JoinSpec configures which running etcd cluster the members join. The members join as learners, one at a time, and
// become voters when they have caught up. Leadership moves to them. The external members stay until removeExternalMembers is
// set. The running cluster must run the minor version of spec.version, must be healthy, and must not use
// authentication. If its peers use TLS, set spec.tls.peer.secretRef to certificates that its members trust.
//
// +kubebuilder:validation:XValidation:rule="self.endpoints.all(e, e.startsWith('https:') == has(self.tls))",message="the endpoints of join must be https URLs with join.tls, and http URLs without it"
type JoinSpec struct {
	// endpoints are client URLs of the running cluster, such as http://etcd-0.etcd-headless.legacy.svc:2379. The URLs
	// of some members are enough, but druid's members must be able to reach every member at the client URLs that it
	// advertises.
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=9
	// +required
	Endpoints []JoinEndpoint `json:"endpoints"`
	// tls is how druid's members connect to the client port of the running cluster. Set it if that port uses TLS.
	// +optional
	TLS *JoinTLS `json:"tls,omitempty"`
	// removeExternalMembers removes the external members, one at a time, when all members of this EtcdCluster are healthy
	// voters. Set it when no client connects to the external members any more. A removed member does not come
	// back. While external members are left, you can set it to false again. It is the only field of bootstrap that you can
	// change.
	// +optional
	RemoveExternalMembers bool `json:"removeExternalMembers,omitempty"`
}

// JoinTLS configures TLS to a running cluster.
type JoinTLS struct {
	// secretRef names a Secret in the namespace of the cluster. Its key ca.crt has the certificate authorities of the
	// running cluster. The keys tls.crt and tls.key have a client certificate that the running cluster accepts. Leave
	// both out if it accepts clients without one. Keep the Secret until no external member is left. The agents use a
	// changed content without a restart.
	// +required
	SecretRef SecretRef `json:"secretRef"`
}

// JoinEndpoint is a client URL of an etcd member.
//
// +kubebuilder:validation:MaxLength=300
// +kubebuilder:validation:XValidation:rule="self.matches('^https?://([a-zA-Z0-9]([a-zA-Z0-9.-]*[a-zA-Z0-9])?|[[][0-9a-fA-F:.]+[]]):[0-9]{1,5}$')",message="an endpoint of join must be a client URL with a port and no path, like http://etcd-0.etcd-headless.legacy.svc:2379"
type JoinEndpoint string

// RestoreSpec configures which backup a new cluster is restored from, and to which state.
//
// +kubebuilder:validation:XValidation:rule="!has(self.to) || !has(self.from) || !has(self.from.file) && !has(self.from.snapshotRef)",message="to must not be combined with from.file or from.snapshotRef: each of them holds one state"
type RestoreSpec struct {
	// from is the source of the backup: the backups of a cluster, a file, or an EtcdSnapshot. If not set, the backups
	// of an earlier EtcdCluster of the same name in spec.backup.store are used.
	// +optional
	From *RestoreSource `json:"from,omitempty"`
	// to is the state to restore. If not set, the newest state is restored.
	// +optional
	To *RestoreTarget `json:"to,omitempty"`
}

// RestoreSource configures whose backups are restored, and where they are.
//
// +kubebuilder:validation:XValidation:rule="!has(self.file) || !has(self.namespace) && !has(self.name) && !has(self.encryption)",message="file must not be combined with namespace, name or encryption: a file of etcdctl belongs to no cluster and is not encrypted"
// +kubebuilder:validation:XValidation:rule="!has(self.snapshotRef) || !has(self.namespace) && !has(self.name) && !has(self.file)",message="snapshotRef must not be combined with namespace, name or file: the EtcdSnapshot names the backup"
// +kubebuilder:validation:XValidation:rule="!has(self.encryption) || has(self.store)",message="encryption needs store: without store, spec.backup applies to both"
type RestoreSource struct {
	// store that holds the backups. If not set, spec.backup.store is used. The agent only reads it.
	// +optional
	Store *BackupStore `json:"store,omitempty"`
	// encryption holds the keys with which the backups in store were encrypted. If not set, the backups must not be
	// encrypted.
	// +optional
	Encryption *BackupEncryption `json:"encryption,omitempty"`
	// namespace of the cluster that made the backups. If not set, the namespace of this cluster is used.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?$')",message="namespace must be the name of a namespace"
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// name of the cluster that made the backups. If not set, the name of this cluster is used.
	// +kubebuilder:validation:MaxLength=50
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z]([a-z0-9-]*[a-z0-9])?$')",message="name must be the name of an EtcdCluster"
	// +optional
	Name string `json:"name,omitempty"`
	// file is the key of a file that `etcdctl snapshot save` wrote, relative to the prefix of the store. For a
	// directory it is the path in the directory. The file must not be compressed, and must end with etcd's checksum. A
	// copy of member/snap/db is therefore refused.
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-zA-Z0-9_-][a-zA-Z0-9._-]*(/[a-zA-Z0-9_-][a-zA-Z0-9._-]*)*$')",message="file must be words of letters, digits, dots, dashes and underscores between slashes, like old/snapshot.db"
	// +optional
	File string `json:"file,omitempty"`
	// snapshotRef names an EtcdSnapshot in the namespace of the cluster. A Full is restored as it is. A Delta is
	// restored to its revision. The cluster waits until the EtcdSnapshot has succeeded, and records the result in
	// status.restore. Without store, druid reads the location from the EtcdSnapshot. If that has no store, druid reads it
	// from the EtcdCluster of the backup, which must still exist.
	// +optional
	SnapshotRef *SnapshotReference `json:"snapshotRef,omitempty"`
}

// SnapshotReference names an EtcdSnapshot.
type SnapshotReference struct {
	// name of the EtcdSnapshot.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +required
	Name string `json:"name"`
}

// RestoreTarget is one state in the history of a cluster.
//
// +kubebuilder:validation:XValidation:rule="(has(self.revision) ? 1 : 0) + (has(self.time) ? 1 : 0) + (has(self.name) ? 1 : 0) == 1",message="exactly one of revision, time and name must be set; leave out to for the newest state"
type RestoreTarget struct {
	// revision of etcd. The state right after that revision is restored.
	// +kubebuilder:validation:Minimum=1
	// +optional
	Revision int64 `json:"revision,omitempty"`
	// time is a moment, by the clock of the member that saved the backup. The state at that moment is restored.
	// +optional
	Time *metav1.Time `json:"time,omitempty"`
	// name of a full backup: the last part of its key in the store.
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9a-f]{16}-[0-9]+[.](snap|final)[.]zst$')",message="name must be that of a full backup, like 00000000000004d2-1795287240000.snap.zst"
	// +optional
	Name string `json:"name,omitempty"`
}
