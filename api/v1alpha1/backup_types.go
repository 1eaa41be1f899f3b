package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// BackupSpec configures where the cluster is backed up, how often, and which backups are kept. You can change it at
// any time without a restart of etcd. A Secret or a volume that you add reaches a member only with its next Pod.
type BackupSpec struct {
	// store holds the backups. Set exactly one kind. The keys of the cluster start with <prefix>/<namespace>/<name>,
	// so clusters can share a store.
	// +required
	Store BackupStore `json:"store"`

	// full configures full backups. A full backup is the complete database in one object.
	// +kubebuilder:default={}
	// +optional
	Full FullBackup `json:"full,omitempty,omitzero"`

	// delta configures delta backups. The agent saves what changed since the last backup, continuously.
	// +kubebuilder:default={}
	// +optional
	Delta DeltaBackup `json:"delta,omitempty,omitzero"`

	// retention configures which backups are kept. If not set, druid keeps every backup of the last 7 days and one
	// full backup of each of the last 30 days. The newest full backup is never deleted, nor is a backup that a kept
	// backup needs.
	// +kubebuilder:default={keepAll: "168h", daily: 30}
	// +optional
	Retention BackupRetention `json:"retention,omitempty,omitzero"`

	// verify configures when backups are verified. An agent restores the newest backups into a scratch directory and
	// compares them with what etcd reported. The condition BackupVerified shows the result.
	// +kubebuilder:default={}
	// +optional
	Verify BackupVerification `json:"verify,omitempty,omitzero"`

	// encryption configures encryption of the backups by the agents before they send them. If not set, the store holds
	// the backups as etcd wrote them, unless the store itself encrypts. You can turn it on at any time. Existing
	// backups stay as they are and remain readable.
	// +optional
	Encryption *BackupEncryption `json:"encryption,omitempty"`

	// compression configures the compression of the backups.
	// +kubebuilder:default={}
	// +optional
	Compression BackupCompression `json:"compression,omitempty,omitzero"`

	// whenFailing configures what druid does while backups fail. Block: druid replaces no Pod and allows no eviction.
	// Continue: it replaces Pods one at a time and allows evictions, because their volumes stay. In both cases druid removes
	// no member. A pause, a change of the etcd version and a restore in place still wait for the backup that they need.
	// Continue cannot be combined with storage.medium. Defaults to Block.
	// +kubebuilder:default=Block
	// +optional
	WhenFailing WhenFailing `json:"whenFailing,omitempty"`
}

// WhenFailing is what druid does while backups fail.
//
// +kubebuilder:validation:Enum=Block;Continue
type WhenFailing string

// What druid does while backups fail.
const (
	WhenFailingBlock    WhenFailing = "Block"
	WhenFailingContinue WhenFailing = "Continue"
)

// BackupEncryption configures encryption by the agents. Without a key, a reader of the store sees only names, sizes
// and times.
type BackupEncryption struct {
	// keySecretRef names a Secret in the namespace of the cluster. Each of its entries is an age identity, as
	// age-keygen prints it. The entry named current holds the name of the entry that encrypts. To change the key, add
	// an entry and name it in current. Older backups stay readable while their identities are in the Secret. A backup
	// whose identity is lost cannot be read. The agent reads the Secret for each object. While the Secret has no usable
	// current identity, no backup is made.
	// +required
	KeySecretRef SecretRef `json:"keySecretRef"`
}

// BackupCompression configures how much work is spent to make backups small.
type BackupCompression struct {
	// level of zstd: Fastest, Default, Better or Best. A higher level takes more CPU and memory of the agent (Best
	// about 70 MiB). It rarely makes backups of etcd data much smaller.
	// +kubebuilder:default=Fastest
	// +optional
	Level CompressionLevel `json:"level,omitempty"`
}

// CompressionLevel is a level of zstd, by the names of its Go library.
//
// +kubebuilder:validation:Enum=Fastest;Default;Better;Best
type CompressionLevel string

// The levels.
const (
	CompressionFastest CompressionLevel = "Fastest"
	CompressionDefault CompressionLevel = "Default"
	CompressionBetter  CompressionLevel = "Better"
	CompressionBest    CompressionLevel = "Best"
)

// BackupVerification configures when backups are verified.
type BackupVerification struct {
	// schedule in cron syntax, such as 0 3 * * *, or @hourly, @daily, @weekly or @monthly. The first verification does
	// not wait for the schedule, nor does the first one after a broken backup was replaced. A verification needs as
	// much disk space on the node as the database, and is postponed while less is free. If the agent cannot parse the
	// schedule, the condition BackupReady reports it, and 0 3 * * * is used. Defaults to 0 3 * * *, so that each full
	// backup of the default schedule is verified before the next one is due.
	// +kubebuilder:default="0 3 * * *"
	// +kubebuilder:validation:MaxLength=100
	// +kubebuilder:validation:XValidation:rule="self.matches('^(@(hourly|daily|midnight|weekly|monthly|yearly|annually)|[0-9*]\\\\S*( +\\\\S+){4})$') && !self.contains('=')",message="schedule must be five cron fields like 0 3 * * *, or @hourly, @daily, @weekly or @monthly"
	// +optional
	Schedule string `json:"schedule,omitempty"`

	// timeZone of the schedule, as an IANA name such as Europe/Berlin. If not set, it is UTC.
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z][A-Za-z0-9+_/-]*$') && self.lowerAscii() != 'local'",message="timeZone must be an IANA name like Europe/Berlin"
	// +optional
	TimeZone string `json:"timeZone,omitempty"`
}

// BackupStore is a bucket or a directory.
//
// +kubebuilder:validation:XValidation:rule="has(self.s3) != has(self.directory)",message="exactly one of s3 and directory must be set"
type BackupStore struct {
	// s3 is a bucket of AWS S3 or of a compatible store.
	// +optional
	S3 *S3Store `json:"s3,omitempty"`
	// directory is a volume that the Pods of all members mount.
	// +optional
	Directory *DirectoryStore `json:"directory,omitempty"`
}

// S3Store is a bucket.
//
// +kubebuilder:validation:XValidation:rule="!has(self.sse) || self.sse.mode != 'CustomerKey' || !has(self.endpoint) || self.endpoint.startsWith('https://')",message="sse.mode CustomerKey needs an https endpoint: otherwise the agent would send the key in plain text"
type S3Store struct {
	// bucket is the name of an existing bucket.
	// +kubebuilder:validation:MinLength=3
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-zA-Z0-9][a-zA-Z0-9._-]*$')",message="bucket must be the name of a bucket: put a path into prefix, a host into endpoint"
	// +required
	Bucket string `json:"bucket"`

	// prefix of all keys, without slashes at its ends.
	// +kubebuilder:validation:MaxLength=200
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-zA-Z0-9_-][a-zA-Z0-9._-]*(/[a-zA-Z0-9_-][a-zA-Z0-9._-]*)*$')",message="prefix must be words of letters, digits, dots, dashes and underscores between slashes, like backups/etcd"
	// +optional
	Prefix string `json:"prefix,omitempty"`

	// region of the bucket. For a store without regions, use the value from its documentation, usually us-east-1.
	// Defaults to us-east-1.
	// +kubebuilder:default=us-east-1
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +optional
	Region string `json:"region,omitempty"`

	// endpoint is the URL of a store other than AWS, or of a private endpoint of AWS.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^https?://[^/?#@ ]+(/[^?#@ ]*)?$')",message="endpoint must be a URL like https://s3.example.com:9000"
	// +optional
	Endpoint string `json:"endpoint,omitempty"`

	// forcePathStyle puts the bucket into the path of the URL instead of the host name. Most stores other than AWS
	// need it.
	// +optional
	ForcePathStyle bool `json:"forcePathStyle,omitempty"`

	// credentialsSecretRef names a Secret in the namespace of the cluster with the entries accessKeyID and
	// secretAccessKey, and optionally sessionToken. The names AWS_ACCESS_KEY_ID and so on work too. The agent reads
	// the Secret for each request, so you can change credentials at any time. If not set, the agent uses the ambient
	// identity: web identity, Pod identity or the identity of the node. Put the annotations that these need on the
	// ServiceAccount <name>-agent.
	// +optional
	CredentialsSecretRef *SecretRef `json:"credentialsSecretRef,omitempty"`

	// caSecretRef names the PEM certificates that the agent trusts instead of those in its image.
	// +optional
	CASecretRef *SecretKeyRef `json:"caSecretRef,omitempty"`

	// sse is encryption by the store. If the store does not confirm the encryption, the agent sends nothing.
	// +optional
	SSE *S3Encryption `json:"sse,omitempty"`

	// objectLock protects each object from deletion for a number of days. Object lock must be enabled on the bucket.
	// +optional
	ObjectLock *S3ObjectLock `json:"objectLock,omitempty"`

	// checksum is when S3 checksums are sent: WhenSupported, or WhenRequired for stores that refuse unknown checksums.
	// Defaults to WhenSupported.
	// +kubebuilder:default=WhenSupported
	// +optional
	Checksum S3Checksum `json:"checksum,omitempty"`
}

// S3Checksum is when S3 checksums are sent and verified. The values are those of AWS.
//
// +kubebuilder:validation:Enum=WhenSupported;WhenRequired
type S3Checksum string

// When S3's own checksums are sent and verified.
const (
	ChecksumWhenSupported S3Checksum = "WhenSupported"
	ChecksumWhenRequired  S3Checksum = "WhenRequired"
)

// S3EncryptionMode is whose keys encrypt the objects.
//
// +kubebuilder:validation:Enum=AES256;KMS;CustomerKey
type S3EncryptionMode string

// The modes of encryption by the store.
const (
	// SSEAES256 uses keys of the store.
	SSEAES256 S3EncryptionMode = "AES256"
	// SSEKMS uses a key of a key management service.
	SSEKMS S3EncryptionMode = "KMS"
	// SSECustomerKey uses a key that the agent sends with each request, and that the store does not keep.
	SSECustomerKey S3EncryptionMode = "CustomerKey"
)

// S3Encryption is encryption by the store.
//
// +kubebuilder:validation:XValidation:rule="has(self.keySecretRef) == (self.mode == 'CustomerKey')",message="keySecretRef must be set with mode CustomerKey, and only then"
// +kubebuilder:validation:XValidation:rule="!has(self.kmsKeyID) || self.mode == 'KMS'",message="kmsKeyID must be set only with mode KMS"
type S3Encryption struct {
	// mode is whose keys are used: AES256, KMS or CustomerKey.
	// +required
	Mode S3EncryptionMode `json:"mode"`
	// kmsKeyID is the ID, ARN or alias of a key. If not set, the default key of the store is used.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	// +optional
	KMSKeyID string `json:"kmsKeyID,omitempty"`
	// keySecretRef names 32 bytes, or those bytes in base64. Backups that were made with another key cannot be read
	// with this key.
	// +optional
	KeySecretRef *SecretKeyRef `json:"keySecretRef,omitempty"`
}

// S3LockMode is who can remove a lock.
//
// +kubebuilder:validation:Enum=Governance;Compliance
type S3LockMode string

// The modes of S3's object lock.
const (
	// LockGovernance can be removed by users with the necessary permission.
	LockGovernance S3LockMode = "Governance"
	// LockCompliance cannot be removed by any user.
	LockCompliance S3LockMode = "Compliance"
)

// S3ObjectLock protects each object for a number of days after it was written.
type S3ObjectLock struct {
	// mode is who can remove a lock. Governance: users with the necessary permission. Compliance: no user.
	// +required
	Mode S3LockMode `json:"mode"`
	// days for which an object is locked.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=36500
	// +required
	Days int32 `json:"days"`
}

// DirectoryStore is a volume that the Pods of all members mount.
//
// +kubebuilder:validation:XValidation:rule="has(self.claimName) != has(self.hostPath)",message="exactly one of claimName and hostPath must be set"
type DirectoryStore struct {
	// claimName is the name of an existing PersistentVolumeClaim. It must be ReadWriteMany unless all members run on
	// one node.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +optional
	ClaimName string `json:"claimName,omitempty"`
	// hostPath is a directory that exists on every node and that user 65532 can write to. Use it only for tests: a
	// backup that was written on one node is readable on another node only if both mount the same file system. You can
	// set it only if you may create Pods in the namespace.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.startsWith('/')",message="hostPath must be an absolute path"
	// +optional
	HostPath string `json:"hostPath,omitempty"`
}

// SecretRef names a Secret in the namespace of the cluster.
type SecretRef struct {
	// name of the Secret.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +required
	Name string `json:"name"`
}

// SecretKeyRef names an entry of a Secret in the namespace of the cluster.
type SecretKeyRef struct {
	// name of the Secret.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +required
	Name string `json:"name"`
	// key is the name of the entry in the Secret.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +required
	Key string `json:"key"`
}

// FullBackup configures when full backups are taken.
type FullBackup struct {
	// schedule in cron syntax, such as 0 */6 * * *, or @hourly, @daily, @weekly or @monthly. If the agent cannot parse
	// it, the condition BackupReady reports it, and 0 0 * * * is used. Defaults to 0 0 * * *.
	// +kubebuilder:default="0 0 * * *"
	// +kubebuilder:validation:MaxLength=100
	// +kubebuilder:validation:XValidation:rule="self.matches('^(@(hourly|daily|midnight|weekly|monthly|yearly|annually)|[0-9*]\\\\S*( +\\\\S+){4})$') && !self.contains('=')",message="schedule must be five cron fields like 0 */6 * * *, or @hourly, @daily, @weekly or @monthly"
	// +optional
	Schedule string `json:"schedule,omitempty"`

	// timeZone of the schedule, as an IANA name such as Europe/Berlin. If not set, it is UTC. A time that the clock
	// skips in spring does not occur.
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z][A-Za-z0-9+_/-]*$') && self.lowerAscii() != 'local'",message="timeZone must be an IANA name like Europe/Berlin"
	// +optional
	TimeZone string `json:"timeZone,omitempty"`

	// maxAge of the newest full backup. When it is older, the agent takes another at once, regardless of the schedule.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=20
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+(h|m|s))+$') && duration(self) >= duration('1m') && duration(self) <= duration('876000h')",message="maxAge must be a duration from 1m to 876000h, like 24h"
	// +optional
	MaxAge *metav1.Duration `json:"maxAge,omitempty"`
}

// DeltaBackup configures how changes are saved between full backups.
type DeltaBackup struct {
	// period is the longest time until a change is saved. This is how much time is lost if all members are lost at
	// once. Defaults to 10s.
	// +kubebuilder:default="10s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=20
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+(h|m|s))+$') && duration(self) >= duration('1s') && duration(self) <= duration('1h')",message="period must be a duration from 1s to 1h"
	// +optional
	Period *metav1.Duration `json:"period,omitempty"`

	// maxBytes is the size of compressed changes that the agent saves before the period ends. The agent holds them in
	// memory. Defaults to 8Mi.
	// +kubebuilder:default="8Mi"
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).compareTo(quantity('64Ki')) >= 0 && quantity(string(self)).compareTo(quantity('64Mi')) <= 0",message="maxBytes must be from 64Ki to 64Mi"
	// +optional
	MaxBytes *resource.Quantity `json:"maxBytes,omitempty"`
}

// BackupRetention configures which backups are kept, by age or by number.
//
// +kubebuilder:validation:XValidation:rule="has(self.count) || has(self.keepAll) || has(self.hourly) || has(self.daily) || has(self.weekly) || has(self.monthly)",message="retention must set at least one field"
// +kubebuilder:validation:XValidation:rule="!has(self.count) || !(has(self.keepAll) || has(self.hourly) || has(self.daily) || has(self.weekly) || has(self.monthly))",message="retention.count must not be combined with other fields"
type BackupRetention struct {
	// keepAll is the time for which every backup is kept. You can restore every moment of it.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=20
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+(h|m|s))+$') && duration(self) >= duration('1m') && duration(self) <= duration('876000h')",message="keepAll must be a duration from 1m to 876000h, like 168h"
	// +optional
	KeepAll *metav1.Duration `json:"keepAll,omitempty"`
	// hourly is the number of hours for each of which one full backup is kept.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000
	// +optional
	Hourly int32 `json:"hourly,omitempty"`
	// daily is the number of days for each of which one full backup is kept.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000
	// +optional
	Daily int32 `json:"daily,omitempty"`
	// weekly is the number of weeks for each of which one full backup is kept.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000
	// +optional
	Weekly int32 `json:"weekly,omitempty"`
	// monthly is the number of months for each of which one full backup is kept.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000
	// +optional
	Monthly int32 `json:"monthly,omitempty"`
	// count is the number of full backups that are kept, with the delta backups that follow the oldest of them.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000
	// +optional
	Count int32 `json:"count,omitempty"`
}

// BootstrapSpec configures how a new cluster starts: empty, from a backup, or as further members of a running etcd
// cluster. After the cluster has formed, only join.removeOthers has an effect.
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
