package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AutoCompactionMode is etcd's --auto-compaction-mode.
//
// +kubebuilder:validation:Enum=Periodic;Revision
type AutoCompactionMode string

// The modes of etcd's automatic compaction.
const (
	AutoCompactionPeriodic AutoCompactionMode = "Periodic"
	AutoCompactionRevision AutoCompactionMode = "Revision"
)

// EtcdOptions are the options of etcd that you can set. druid sets all other flags.
//
// +kubebuilder:validation:XValidation:rule="duration(has(self.electionTimeout) ? self.electionTimeout : '1s').getMilliseconds() >= 5 * duration(has(self.heartbeatInterval) ? self.heartbeatInterval : '100ms').getMilliseconds()",message="electionTimeout (default 1s) must be at least 5 times heartbeatInterval (default 100ms): otherwise etcd does not start"
// +kubebuilder:validation:XValidation:rule="!has(self.autoCompactionMode) || has(self.autoCompactionRetention)",message="autoCompactionMode needs autoCompactionRetention, which is a duration in mode Periodic and a number of revisions in mode Revision"
// +kubebuilder:validation:XValidation:rule="!has(self.autoCompactionRetention) || (has(self.autoCompactionMode) && self.autoCompactionMode == 'Revision') || self.autoCompactionRetention.matches('^([0-9]+(h|m|s))+$')",message="autoCompactionRetention must be a duration like 1h30m in mode Periodic (the default)"
// +kubebuilder:validation:XValidation:rule="!has(self.autoCompactionRetention) || !has(self.autoCompactionMode) || self.autoCompactionMode != 'Revision' || self.autoCompactionRetention.matches('^[1-9][0-9]{0,17}$')",message="autoCompactionRetention must be a number of revisions like 10000 in mode Revision"
type EtcdOptions struct {
	// quotaBackendBytes is the size of the database at which etcd refuses writes. If not set, it is half of
	// storage.size, but at most 2Gi, which is etcd's own default.
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).isGreaterThan(quantity('0'))",message="quotaBackendBytes must be greater than zero"
	// +optional
	QuotaBackendBytes *resource.Quantity `json:"quotaBackendBytes,omitempty"`

	// autoCompactionMode is the unit of autoCompactionRetention: time (Periodic) or revisions (Revision). If not set,
	// it is Periodic.
	// +optional
	AutoCompactionMode AutoCompactionMode `json:"autoCompactionMode,omitempty"`

	// autoCompactionRetention is how much history etcd keeps: a duration like 1h in mode Periodic, or a number of
	// revisions in mode Revision. If not set, it is 1h: each hour, etcd compacts what is older than an hour. A client that
	// lost its connection, and a backup whose store does not answer, have that long to continue. kube-apiserver by
	// itself compacts every five minutes what is older than that, and needs no other value. 0s turns automatic
	// compaction off, which is the default of etcd itself: the database then grows until clients compact it. A Pod that
	// an older druid created without this field does not compact. druid does not replace it for that reason.
	// +kubebuilder:validation:MaxLength=20
	// +optional
	AutoCompactionRetention string `json:"autoCompactionRetention,omitempty"`

	// snapshotCount is the number of raft entries after which etcd writes a raft snapshot.
	// +kubebuilder:validation:Minimum=100
	// +kubebuilder:validation:Maximum=100000000
	// +optional
	SnapshotCount *int64 `json:"snapshotCount,omitempty"`

	// heartbeatInterval is the interval of raft heartbeats, as an integer number of milliseconds. If not set, etcd uses 100ms.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=20
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+([.][0-9]{1,3})?s|[0-9]+ms)$') && duration(self) >= duration('1ms')",message="heartbeatInterval must be an integer number of milliseconds greater than zero, like 100ms or 1.5s"
	// +optional
	HeartbeatInterval *metav1.Duration `json:"heartbeatInterval,omitempty"`

	// electionTimeout is the election timeout of raft, as an integer number of milliseconds. It must be at least 5 times
	// heartbeatInterval and at most 50s. If not set, etcd uses 1s.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=20
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+([.][0-9]{1,3})?s|[0-9]+ms)$') && duration(self) >= duration('1ms')",message="electionTimeout must be an integer number of milliseconds greater than zero, like 1s or 1500ms"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^([0-9]+([.][0-9]{1,3})?s|[0-9]+ms)$') || duration(self) <= duration('50s')",message="electionTimeout must be at most 50s: with more, etcd does not start"
	// +optional
	ElectionTimeout *metav1.Duration `json:"electionTimeout,omitempty"`
}

// MaxDefaultQuotaBytes is the largest quota of a database that the spec does not set: that of etcd itself
// (etcd: server/storage, DefaultQuotaBytes).
const MaxDefaultQuotaBytes = 2 << 30

// QuotaBytes returns the quota that the spec sets, or half the volume up to MaxDefaultQuotaBytes. The other half is for
// the write-ahead log and for the copy during a defragmentation. etcd must reach its quota before the volume is full.
func (s *EtcdClusterSpec) QuotaBytes() int64 {
	if quota := s.Etcd.QuotaBackendBytes; quota != nil {
		return quota.Value()
	}
	return min(s.Storage.Size.Value()/2, MaxDefaultQuotaBytes)
}

// DefragmentationSpec configures when the agents defragment the databases. etcd keeps the space of deleted and
// compacted keys in its file. A defragmentation returns it to the volume. Meanwhile the member serves no reads and
// writes, for seconds per gigabyte. The agents defragment one member at a time, only while all members are healthy,
// and the leader last, after it moved leadership. The only member of a cluster of one is defragmented in a window of
// the schedule, and never without a schedule.
//
// +kubebuilder:validation:XValidation:rule="!has(self.timeZone) || has(self.schedule)",message="timeZone needs schedule"
// +kubebuilder:validation:XValidation:rule="!has(self.window) || has(self.schedule)",message="window needs schedule"
type DefragmentationSpec struct {
	// disabled turns automatic defragmentation off.
	// +optional
	Disabled bool `json:"disabled,omitempty"`

	// schedule opens a window each time it fires. A defragmentation starts only in a window. The fields are minute,
	// hour, day of month, month and day of week, as in a CronJob. If not set, a defragmentation can start at any time.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=100
	// +kubebuilder:validation:XValidation:rule="self.matches('(?i)^([*]|([0-5]?[0-9])(-([0-5]?[0-9]))?)(/[1-9][0-9]?)?(,([*]|([0-5]?[0-9])(-([0-5]?[0-9]))?)(/[1-9][0-9]?)?)* ([*]|([01]?[0-9]|2[0-3])(-([01]?[0-9]|2[0-3]))?)(/[1-9][0-9]?)?(,([*]|([01]?[0-9]|2[0-3])(-([01]?[0-9]|2[0-3]))?)(/[1-9][0-9]?)?)* ([*]|(0?[1-9]|[12][0-9]|3[01])(-(0?[1-9]|[12][0-9]|3[01]))?)(/[1-9][0-9]?)?(,([*]|(0?[1-9]|[12][0-9]|3[01])(-(0?[1-9]|[12][0-9]|3[01]))?)(/[1-9][0-9]?)?)* ([*]|(0?[1-9]|1[0-2]|JAN|FEB|MAR|APR|MAY|JUN|JUL|AUG|SEP|OCT|NOV|DEC)(-(0?[1-9]|1[0-2]|JAN|FEB|MAR|APR|MAY|JUN|JUL|AUG|SEP|OCT|NOV|DEC))?)(/[1-9][0-9]?)?(,([*]|(0?[1-9]|1[0-2]|JAN|FEB|MAR|APR|MAY|JUN|JUL|AUG|SEP|OCT|NOV|DEC)(-(0?[1-9]|1[0-2]|JAN|FEB|MAR|APR|MAY|JUN|JUL|AUG|SEP|OCT|NOV|DEC))?)(/[1-9][0-9]?)?)* ([*]|([0-6]|SUN|MON|TUE|WED|THU|FRI|SAT)(-([0-6]|SUN|MON|TUE|WED|THU|FRI|SAT))?)(/[1-9][0-9]?)?(,([*]|([0-6]|SUN|MON|TUE|WED|THU|FRI|SAT)(-([0-6]|SUN|MON|TUE|WED|THU|FRI|SAT))?)(/[1-9][0-9]?)?)*$')",message="schedule must be five fields of numbers (or names of months and days), like 0 3 * * SUN: minute, hour, day of the month, month, day of the week"
	// +optional
	Schedule string `json:"schedule,omitempty"`

	// timeZone of the schedule, as an IANA name such as Europe/Berlin. If not set, it is UTC.
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="timestamp('2026-01-01T00:00:00Z').getHours(self) >= 0 && self.matches('^[A-Za-z][A-Za-z0-9_+/-]*$')",message="timeZone must be an IANA name like Europe/Berlin or UTC"
	// +optional
	TimeZone string `json:"timeZone,omitempty"`

	// window is how long each window stays open. If not set, it is 1h.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=20
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+(h|m|s))+$') && duration(self) >= duration('1m') && duration(self) <= duration('24h')",message="window must be a duration from 1m to 24h, like 1h30m"
	// +optional
	Window *metav1.Duration `json:"window,omitempty"`

	// minFreePercent is the share of the database file that must be free before a defragmentation. minFreeBytes
	// applies too. Defaults to 45.
	// +kubebuilder:default=45
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=99
	// +optional
	MinFreePercent *int32 `json:"minFreePercent,omitempty"`

	// minFreeBytes is the size that must be free in the database file before a defragmentation. minFreePercent applies
	// too. Defaults to 100Mi.
	// +kubebuilder:default="100Mi"
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).compareTo(quantity('0')) >= 0",message="minFreeBytes must not be negative"
	// +optional
	MinFreeBytes *resource.Quantity `json:"minFreeBytes,omitempty"`

	// outOfSpace is what the agents do when a database reaches etcd.quotaBackendBytes and etcd refuses all writes
	// (alarm NOSPACE). Compact: if the keys in use leave no room, the leader's agent compacts revisions that are at
	// least five minutes old. If the cluster is backed up, they are also saved. A client that reads or watches from these
	// revisions gets the error that they are compacted. Then the agents defragment one member at a time, at any time
	// of the day, including the only member. The alarm is disarmed when every file is below 90 % of the quota.
	// Defragment: the same without a compaction. Nothing, or disabled: you resolve the alarm yourself. Defaults to
	// Compact.
	// +kubebuilder:default=Compact
	// +optional
	OutOfSpace OutOfSpaceAction `json:"outOfSpace,omitempty"`
}

// OutOfSpaceAction is what the agents do when etcd refuses writes because its database is full.
//
// +kubebuilder:validation:Enum=Compact;Defragment;Nothing
type OutOfSpaceAction string

// What is done about the alarm NOSPACE.
const (
	OutOfSpaceCompact    OutOfSpaceAction = "Compact"
	OutOfSpaceDefragment OutOfSpaceAction = "Defragment"
	OutOfSpaceNothing    OutOfSpaceAction = "Nothing"
)
