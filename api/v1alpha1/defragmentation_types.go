package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

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
	// least five minutes old and, if the cluster is backed up, saved. A client that reads or watches from these
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
