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
