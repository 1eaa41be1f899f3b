package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// DefragmentationSpec says when the members' databases are defragmented. etcd keeps the space of deleted and compacted keys in
// the file for later; a defragmentation gives it back to the volume, and stops the member's reads and writes meanwhile: seconds per
// gigabyte. One member at a time is defragmented, only while all of them are healthy, the leader last and not before it handed leadership on.
// The only member of a cluster of one is defragmented in a window of the schedule and never without one.
//
// +kubebuilder:validation:XValidation:rule="!has(self.timeZone) || has(self.schedule)",message="timeZone needs schedule: without one any time will do"
// +kubebuilder:validation:XValidation:rule="!has(self.window) || has(self.schedule)",message="window needs schedule: without one any time will do"
type DefragmentationSpec struct {
	// disabled: no member is defragmented, but for what a person does.
	// +optional
	Disabled bool `json:"disabled,omitempty"`

	// schedule opens a window each time that it fires, and only in a window is a defragmentation begun: minute, hour, day of the
	// month, month, day of the week, as in a CronJob. Without it any time will do.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=100
	// +kubebuilder:validation:XValidation:rule="self.matches('(?i)^([*]|([0-5]?[0-9])(-([0-5]?[0-9]))?)(/[1-9][0-9]?)?(,([*]|([0-5]?[0-9])(-([0-5]?[0-9]))?)(/[1-9][0-9]?)?)* ([*]|([01]?[0-9]|2[0-3])(-([01]?[0-9]|2[0-3]))?)(/[1-9][0-9]?)?(,([*]|([01]?[0-9]|2[0-3])(-([01]?[0-9]|2[0-3]))?)(/[1-9][0-9]?)?)* ([*]|(0?[1-9]|[12][0-9]|3[01])(-(0?[1-9]|[12][0-9]|3[01]))?)(/[1-9][0-9]?)?(,([*]|(0?[1-9]|[12][0-9]|3[01])(-(0?[1-9]|[12][0-9]|3[01]))?)(/[1-9][0-9]?)?)* ([*]|(0?[1-9]|1[0-2]|JAN|FEB|MAR|APR|MAY|JUN|JUL|AUG|SEP|OCT|NOV|DEC)(-(0?[1-9]|1[0-2]|JAN|FEB|MAR|APR|MAY|JUN|JUL|AUG|SEP|OCT|NOV|DEC))?)(/[1-9][0-9]?)?(,([*]|(0?[1-9]|1[0-2]|JAN|FEB|MAR|APR|MAY|JUN|JUL|AUG|SEP|OCT|NOV|DEC)(-(0?[1-9]|1[0-2]|JAN|FEB|MAR|APR|MAY|JUN|JUL|AUG|SEP|OCT|NOV|DEC))?)(/[1-9][0-9]?)?)* ([*]|([0-6]|SUN|MON|TUE|WED|THU|FRI|SAT)(-([0-6]|SUN|MON|TUE|WED|THU|FRI|SAT))?)(/[1-9][0-9]?)?(,([*]|([0-6]|SUN|MON|TUE|WED|THU|FRI|SAT)(-([0-6]|SUN|MON|TUE|WED|THU|FRI|SAT))?)(/[1-9][0-9]?)?)*$')",message="schedule must be five fields of numbers (or names of months and days), like 0 3 * * SUN: minute, hour, day of the month, month, day of the week"
	// +optional
	Schedule string `json:"schedule,omitempty"`

	// timeZone of the schedule by its IANA name, like Europe/Berlin; UTC unless set.
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="timestamp('2026-01-01T00:00:00Z').getHours(self) >= 0 && self.matches('^[A-Za-z][A-Za-z0-9_+/-]*$')",message="timeZone must be an IANA name, like Europe/Berlin or UTC"
	// +optional
	TimeZone string `json:"timeZone,omitempty"`

	// window is how long each window is open, 1h unless set.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=20
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+(h|m|s))+$') && duration(self) >= duration('1m') && duration(self) <= duration('24h')",message="window must be a duration from 1m to 24h, like 1h30m"
	// +optional
	Window *metav1.Duration `json:"window,omitempty"`

	// minFreePercent of the database's file must be free before it is defragmented, and minFreeBytes too.
	// +kubebuilder:default=45
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=99
	// +optional
	MinFreePercent *int32 `json:"minFreePercent,omitempty"`

	// minFreeBytes must be free in the database's file before it is defragmented, and minFreePercent too.
	// +kubebuilder:default="100Mi"
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).compareTo(quantity('0')) >= 0",message="minFreeBytes must not be negative"
	// +optional
	MinFreeBytes *resource.Quantity `json:"minFreeBytes,omitempty"`

	// outOfSpace is what is done when a database reached etcd.quotaBackendBytes and etcd refuses all writes (alarm NOSPACE). With Compact, old
	// revisions are compacted where what is in use leaves no room: those that are at least five minutes old, and backed up where the cluster is.
	// A client that still wants to read or watch from them is told that they are compacted. Then the members are defragmented one at a time, at
	// any time of the day, also the only one, and the alarm is disarmed once every file is below 90 % of the quota. With Defragment the same is
	// done without compacting. With Nothing, or while disabled is set, all of it is left to a person.
	// +kubebuilder:default=Compact
	// +optional
	OutOfSpace OutOfSpaceAction `json:"outOfSpace,omitempty"`
}

// OutOfSpaceAction is what is done when etcd refuses writes for want of space.
//
// +kubebuilder:validation:Enum=Compact;Defragment;Nothing
type OutOfSpaceAction string

// What is done about the alarm NOSPACE.
const (
	OutOfSpaceCompact    OutOfSpaceAction = "Compact"
	OutOfSpaceDefragment OutOfSpaceAction = "Defragment"
	OutOfSpaceNothing    OutOfSpaceAction = "Nothing"
)
