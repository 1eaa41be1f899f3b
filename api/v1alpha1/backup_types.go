package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// BackupSpec says where the cluster is backed up, how often, and what is kept. Everything in it may be changed at any time,
// without a restart of a member; but a Secret or a volume that is named anew reaches a member only with its next Pod.
type BackupSpec struct {
	// store where the backups are kept: exactly one kind is set. The cluster's own backups stand in it under
	// <prefix>/<namespace>/<name>, so that clusters may share a store.
	// +required
	Store BackupStore `json:"store"`

	// full backups: the whole database in one object.
	// +kubebuilder:default={}
	// +optional
	Full FullBackup `json:"full,omitempty,omitzero"`

	// delta backups: what changed since, saved continuously.
	// +kubebuilder:default={}
	// +optional
	Delta DeltaBackup `json:"delta,omitempty,omitzero"`

	// retention says what is kept; unless set, everything of the last 7 days and one full backup of each of the last 30
	// days. The newest full backup is never deleted, nor what a kept one needs.
	// +kubebuilder:default={keepAll: "168h", daily: 30}
	// +optional
	Retention BackupRetention `json:"retention,omitempty,omitzero"`

	// verify says when backups are proven: an agent restores the newest ones into a scratch directory, and compares them with
	// what etcd said that it held. Condition BackupVerified tells what it found.
	// +kubebuilder:default={}
	// +optional
	Verify BackupVerification `json:"verify,omitempty,omitzero"`

	// encryption of the backups by the agents, before they are sent. Without it they stand in the store as etcd holds them,
	// unless the store itself encrypts. It may be turned on at any time; what is in the store already stays as it is, and is
	// read all the same.
	// +optional
	Encryption *BackupEncryption `json:"encryption,omitempty"`

	// compression of the backups.
	// +kubebuilder:default={}
	// +optional
	Compression BackupCompression `json:"compression,omitempty,omitzero"`
}

// BackupEncryption is encryption by the agents: whoever reads the store without a key learns names, sizes and times alone.
type BackupEncryption struct {
	// keySecretRef names a Secret in the cluster's namespace. Each of its entries is a key: the entry's name, of at most 64
	// characters, is the key's ID, and its value 32 random bytes, or those in base64. Entry current has the ID of the key that
	// encrypts. To change the key, add another entry and name it in current: each backup tells which key it needs, and older
	// ones stay readable as long as their keys are in the Secret. Nobody can read a backup whose key is lost. The Secret is read
	// anew for each object; while it has no key that can be used, nothing is backed up.
	// +required
	KeySecretRef SecretRef `json:"keySecretRef"`
}

// BackupCompression says how much work is spent on small backups.
type BackupCompression struct {
	// level of zstd: Fastest, Default, Better or Best. A slower one takes more CPU and memory of the agent (Best some 70 MiB),
	// and seldom gains much on what etcd holds.
	// +kubebuilder:default=Fastest
	// +optional
	Level CompressionLevel `json:"level,omitempty"`
}

// CompressionLevel is one of zstd's, by the names that its library for Go has.
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

// BackupVerification says when backups are proven.
type BackupVerification struct {
	// schedule as cron has it, like 0 3 * * *, or @hourly, @daily, @weekly or @monthly; daily unless set, so that each full
	// backup of the default schedule is proven before the next one is due. Until the first proof, and after backups that were
	// found to be broken and made anew, it is not waited for. A proof takes as much disk of the node as the database, and is put
	// off while less is free. Condition BackupReady tells of a schedule that cannot be understood, and 0 3 * * * is used instead.
	// +kubebuilder:default="0 3 * * *"
	// +kubebuilder:validation:MaxLength=100
	// +kubebuilder:validation:XValidation:rule="self.matches('^(@(hourly|daily|midnight|weekly|monthly|yearly|annually)|[0-9*]\\\\S*( +\\\\S+){4})$') && !self.contains('=')",message="schedule must be five fields of cron, like 0 3 * * *, or @hourly, @daily, @weekly or @monthly"
	// +optional
	Schedule string `json:"schedule,omitempty"`

	// timeZone of the schedule, as the IANA database names it, like Europe/Berlin; UTC unless set.
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z][A-Za-z0-9+_/-]*$') && self.lowerAscii() != 'local'",message="timeZone must be a name of the IANA database, like Europe/Berlin"
	// +optional
	TimeZone string `json:"timeZone,omitempty"`
}

// BackupStore is a bucket or a directory.
//
// +kubebuilder:validation:XValidation:rule="has(self.s3) != has(self.directory)",message="exactly one of s3 and directory must be set"
type BackupStore struct {
	// s3 is a bucket of AWS, or of any store that speaks its language.
	// +optional
	S3 *S3Store `json:"s3,omitempty"`
	// directory is a volume that the Pods of all members mount.
	// +optional
	Directory *DirectoryStore `json:"directory,omitempty"`
}

// S3Store is a bucket.
//
// +kubebuilder:validation:XValidation:rule="!has(self.sse) || self.sse.mode != 'CustomerKey' || !has(self.endpoint) || self.endpoint.startsWith('https://')",message="sse.mode CustomerKey needs an https endpoint: the key would be sent in plain"
type S3Store struct {
	// bucket that exists already.
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

	// region of the bucket. For stores that have none it is what their documentation says, mostly us-east-1.
	// +kubebuilder:default=us-east-1
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +optional
	Region string `json:"region,omitempty"`

	// endpoint is the URL of a store that is not AWS, or of a private way to AWS.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^https?://[^/?#@ ]+(/[^?#@ ]*)?$')",message="endpoint must be a URL like https://s3.example.com:9000"
	// +optional
	Endpoint string `json:"endpoint,omitempty"`

	// forcePathStyle puts the bucket into the URL's path and not into the host name; most stores that are not AWS need it.
	// +optional
	ForcePathStyle bool `json:"forcePathStyle,omitempty"`

	// credentialsSecretRef names a Secret in the cluster's namespace with accessKeyID and secretAccessKey, perhaps
	// sessionToken, or the same as AWS_ACCESS_KEY_ID and so on. It is read anew for each request, so that credentials can be
	// changed at any time. Without it the identity is ambient: web identity, Pod identity or the node's, for which the
	// annotations that they need go on ServiceAccount <name>-agent.
	// +optional
	CredentialsSecretRef *SecretRef `json:"credentialsSecretRef,omitempty"`

	// caSecretRef names the certificates that are trusted instead of the image's, as PEM.
	// +optional
	CASecretRef *SecretKeyRef `json:"caSecretRef,omitempty"`

	// sse is encryption by the store. A store that does not confirm it gets nothing.
	// +optional
	SSE *S3Encryption `json:"sse,omitempty"`

	// objectLock keeps each object from being deleted by anybody for some days. The bucket must have object lock enabled.
	// +optional
	ObjectLock *S3ObjectLock `json:"objectLock,omitempty"`

	// checksum says when S3's own checksums are sent: WhenSupported, or WhenRequired for stores that refuse what they do not
	// know.
	// +kubebuilder:default=WhenSupported
	// +optional
	Checksum S3Checksum `json:"checksum,omitempty"`
}

// S3Checksum says when S3's own checksums are sent and verified. The words are AWS'.
//
// +kubebuilder:validation:Enum=WhenSupported;WhenRequired
type S3Checksum string

// When S3's own checksums are sent and verified.
const (
	ChecksumWhenSupported S3Checksum = "WhenSupported"
	ChecksumWhenRequired  S3Checksum = "WhenRequired"
)

// S3EncryptionMode says whose keys encrypt the objects.
//
// +kubebuilder:validation:Enum=AES256;KMS;CustomerKey
type S3EncryptionMode string

// The modes of encryption by the store.
const (
	// SSEAES256: keys of the store's own.
	SSEAES256 S3EncryptionMode = "AES256"
	// SSEKMS: a key of a key management service.
	SSEKMS S3EncryptionMode = "KMS"
	// SSECustomerKey: a key that is sent with each request, and that the store forgets.
	SSECustomerKey S3EncryptionMode = "CustomerKey"
)

// S3Encryption is encryption by the store.
//
// +kubebuilder:validation:XValidation:rule="has(self.keySecretRef) == (self.mode == 'CustomerKey')",message="keySecretRef belongs to mode CustomerKey, and to no other"
// +kubebuilder:validation:XValidation:rule="!has(self.kmsKeyID) || self.mode == 'KMS'",message="kmsKeyID belongs to mode KMS"
type S3Encryption struct {
	// mode says whose keys are used: AES256, KMS or CustomerKey.
	// +required
	Mode S3EncryptionMode `json:"mode"`
	// kmsKeyID is the ID, ARN or alias of a key; without it the store's default key is used.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	// +optional
	KMSKeyID string `json:"kmsKeyID,omitempty"`
	// keySecretRef names 32 bytes, or those in base64. Backups that were made under another key cannot be read with it.
	// +optional
	KeySecretRef *SecretKeyRef `json:"keySecretRef,omitempty"`
}

// S3LockMode says who may lift a lock.
//
// +kubebuilder:validation:Enum=Governance;Compliance
type S3LockMode string

// The modes of S3's object lock.
const (
	// LockGovernance can be lifted by those with the right to.
	LockGovernance S3LockMode = "Governance"
	// LockCompliance can be lifted by nobody.
	LockCompliance S3LockMode = "Compliance"
)

// S3ObjectLock keeps each object for some days after it was put.
type S3ObjectLock struct {
	// mode says who may lift a lock: Governance, those with the right to; Compliance, nobody.
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
	// claimName of a PersistentVolumeClaim that exists. It must be ReadWriteMany unless all members run on one node.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +optional
	ClaimName string `json:"claimName,omitempty"`
	// hostPath is a directory that exists on every node, writable by user 65532. It is for labs: what is written on one node
	// is read on another only if it is the same file system.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.startsWith('/')",message="hostPath must be an absolute path"
	// +optional
	HostPath string `json:"hostPath,omitempty"`
}

// SecretRef names a Secret in the cluster's namespace.
type SecretRef struct {
	// name of the Secret.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +required
	Name string `json:"name"`
}

// SecretKeyRef names a key of a Secret in the cluster's namespace.
type SecretKeyRef struct {
	// name of the Secret.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +required
	Name string `json:"name"`
	// key in the Secret.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +required
	Key string `json:"key"`
}

// FullBackup says when full backups are taken.
type FullBackup struct {
	// schedule as cron has it, like 0 */6 * * *, or @hourly, @daily, @weekly or @monthly. Condition BackupReady tells of one
	// that cannot be understood, and 0 0 * * * is used instead.
	// +kubebuilder:default="0 0 * * *"
	// +kubebuilder:validation:MaxLength=100
	// +kubebuilder:validation:XValidation:rule="self.matches('^(@(hourly|daily|midnight|weekly|monthly|yearly|annually)|[0-9*]\\\\S*( +\\\\S+){4})$') && !self.contains('=')",message="schedule must be five fields of cron, like 0 */6 * * *, or @hourly, @daily, @weekly or @monthly"
	// +optional
	Schedule string `json:"schedule,omitempty"`

	// timeZone of the schedule, as the IANA database names it, like Europe/Berlin; UTC unless set. A time that the clock
	// leaps over in spring does not come.
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z][A-Za-z0-9+_/-]*$') && self.lowerAscii() != 'local'",message="timeZone must be a name of the IANA database, like Europe/Berlin"
	// +optional
	TimeZone string `json:"timeZone,omitempty"`

	// maxAge of the newest full backup: an older one is followed by another at once, whatever the schedule says.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=20
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+(h|m|s))+$') && duration(self) >= duration('1m') && duration(self) <= duration('876000h')",message="maxAge must be a duration of at least a minute and at most 876000h, like 24h"
	// +optional
	MaxAge *metav1.Duration `json:"maxAge,omitempty"`
}

// DeltaBackup says how changes are saved between full backups.
type DeltaBackup struct {
	// period after which changes are saved at the latest: how much time is lost with all members at once.
	// +kubebuilder:default="10s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=20
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+(h|m|s))+$') && duration(self) >= duration('1s') && duration(self) <= duration('1h')",message="period must be a duration from 1s to 1h"
	// +optional
	Period *metav1.Duration `json:"period,omitempty"`

	// maxBytes of changes, compressed, that are saved before the period is over. The agent holds them in memory.
	// +kubebuilder:default="8Mi"
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).compareTo(quantity('64Ki')) >= 0 && quantity(string(self)).compareTo(quantity('64Mi')) <= 0",message="maxBytes must be 64Ki to 64Mi"
	// +optional
	MaxBytes *resource.Quantity `json:"maxBytes,omitempty"`
}

// BackupRetention says which backups are kept: by their age, or by their number.
//
// +kubebuilder:validation:XValidation:rule="has(self.count) || has(self.keepAll) || has(self.hourly) || has(self.daily) || has(self.weekly) || has(self.monthly)",message="retention must say what is kept"
// +kubebuilder:validation:XValidation:rule="!has(self.count) || !(has(self.keepAll) || has(self.hourly) || has(self.daily) || has(self.weekly) || has(self.monthly))",message="retention.count goes with none of the others"
type BackupRetention struct {
	// keepAll of the last so long: every moment of it can be restored.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=20
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+(h|m|s))+$') && duration(self) >= duration('1m') && duration(self) <= duration('876000h')",message="keepAll must be a duration of at least a minute and at most 876000h, like 168h"
	// +optional
	KeepAll *metav1.Duration `json:"keepAll,omitempty"`
	// hourly keeps one full backup of each of the last so many hours.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000
	// +optional
	Hourly int32 `json:"hourly,omitempty"`
	// daily keeps one full backup of each of the last so many days.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000
	// +optional
	Daily int32 `json:"daily,omitempty"`
	// weekly keeps one full backup of each of the last so many weeks.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000
	// +optional
	Weekly int32 `json:"weekly,omitempty"`
	// monthly keeps one full backup of each of the last so many months.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000
	// +optional
	Monthly int32 `json:"monthly,omitempty"`
	// count keeps so many full backups, with the deltas after the oldest of them.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000
	// +optional
	Count int32 `json:"count,omitempty"`
}

// BootstrapSpec says how a new cluster begins: empty, from a backup, or as more members of an etcd that runs. Once the cluster has
// formed, only join.removeOthers means anything.
//
// +kubebuilder:validation:XValidation:rule="!has(self.restore) || !has(self.join)",message="bootstrap.restore and bootstrap.join must not both be set: a cluster begins from a backup or joins one that runs"
type BootstrapSpec struct {
	// restore lets the cluster begin with the data of a backup.
	// +optional
	Restore *RestoreSpec `json:"restore,omitempty"`
	// join lets the cluster begin as members of an etcd cluster that runs elsewhere, which moves in that way without a pause.
	// +optional
	Join *JoinSpec `json:"join,omitempty"`
}

// RestoreSpec says what a new cluster is restored from, and to which state.
//
// +kubebuilder:validation:XValidation:rule="!has(self.to) || !has(self.from) || !has(self.from.file) && !has(self.from.snapshotRef)",message="to goes neither with from.file nor with from.snapshotRef: each of them holds one state"
type RestoreSpec struct {
	// from says whose backups, and where; or which file, or EtcdSnapshot. Without it, those of an earlier EtcdCluster of the same name, in spec.backup.store.
	// +optional
	From *RestoreSource `json:"from,omitempty"`
	// to says which state. Without it, the newest.
	// +optional
	To *RestoreTarget `json:"to,omitempty"`
}

// RestoreSource says whose backups are restored, and where they are.
//
// +kubebuilder:validation:XValidation:rule="!has(self.file) || !has(self.namespace) && !has(self.name) && !has(self.encryption)",message="file goes with store alone: it is of no cluster's backups, and etcdctl does not encrypt it, so leave out namespace, name and encryption"
// +kubebuilder:validation:XValidation:rule="!has(self.snapshotRef) || !has(self.namespace) && !has(self.name) && !has(self.file)",message="snapshotRef says whose backup it is: leave out namespace, name and file"
// +kubebuilder:validation:XValidation:rule="!has(self.encryption) || has(self.store)",message="encryption goes with store: without a store, both are those of spec.backup"
type RestoreSource struct {
	// store where the backups are; spec.backup.store unless set. It is only read.
	// +optional
	Store *BackupStore `json:"store,omitempty"`
	// encryption of the backups in store: the keys that they were encrypted with. Without it, backups that are not encrypted
	// are restored.
	// +optional
	Encryption *BackupEncryption `json:"encryption,omitempty"`
	// namespace of the cluster that made them; that of this cluster unless set.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?$')",message="namespace must be the name of a namespace"
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// name of the cluster that made them; that of this cluster unless set.
	// +kubebuilder:validation:MaxLength=50
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z]([a-z0-9-]*[a-z0-9])?$')",message="name must be the name of an EtcdCluster"
	// +optional
	Name string `json:"name,omitempty"`
	// file is the key in store of what etcdctl snapshot save wrote, below the store's prefix: for a directory its path there. It is not
	// compressed, and ends with etcd's checksum, so that a copy of member/snap/db is refused.
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-zA-Z0-9_-][a-zA-Z0-9._-]*(/[a-zA-Z0-9_-][a-zA-Z0-9._-]*)*$')",message="file must be words of letters, digits, dots, dashes and underscores between slashes, like old/snapshot.db"
	// +optional
	File string `json:"file,omitempty"`
	// snapshotRef names an EtcdSnapshot in the namespace of the cluster, whose backup is restored: a Full as it is, a Delta to its
	// revision. The cluster waits until it has succeeded, and keeps in status.restore what it was. Without store, the EtcdCluster that
	// the backup is of tells where it is, so it must still be there.
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

// RestoreTarget is one state of the history.
//
// +kubebuilder:validation:XValidation:rule="(has(self.revision) ? 1 : 0) + (has(self.time) ? 1 : 0) + (has(self.name) ? 1 : 0) == 1",message="exactly one of revision, time and name must be set; leave out the whole of to for the newest state"
type RestoreTarget struct {
	// revision of etcd: the state right after that revision.
	// +kubebuilder:validation:Minimum=1
	// +optional
	Revision int64 `json:"revision,omitempty"`
	// time: the state as of that moment, as the clock of the member that saved it had it.
	// +optional
	Time *metav1.Time `json:"time,omitempty"`
	// name of a full backup: the last part of its key in the store.
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9a-f]{16}-[0-9]+[.](snap|final)[.]zst$')",message="name must be that of a full backup, like 00000000000004d2-1795287240000.snap.zst"
	// +optional
	Name string `json:"name,omitempty"`
}
