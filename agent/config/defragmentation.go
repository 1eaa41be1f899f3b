package config

import (
	"fmt"
	"time"
)

// Defragmentation says when the leader's agent may defragment the members' databases, one after another.
type Defragmentation struct {
	// Enabled is false unless the file says so: an agent without its configuration stalls no one.
	Enabled bool `json:"enabled"`
	// Schedule opens a window each time that it fires: five fields, as in a CronJob. Empty: any time is one.
	Schedule string `json:"schedule,omitempty"`
	// TimeZone of the schedule by its IANA name; empty for UTC.
	TimeZone string `json:"timeZone,omitempty"`
	// Window is how long each window is open. A defragmentation is begun in it; it may end later.
	Window Duration `json:"window"`
	// MinFreePercent of the database's file, and MinFreeBytes, must be free before it is defragmented: both.
	MinFreePercent int64 `json:"minFreePercent"`
	MinFreeBytes   int64 `json:"minFreeBytes"`
	// Interval between two looks at the sizes of all databases, and so between two members' turns.
	Interval Duration `json:"interval"`
	// OutOfSpace is what is done when etcd raised the alarm NOSPACE.
	OutOfSpace OutOfSpace `json:"outOfSpace"`
	// HistoryWindow is how long a revision must have been there before it is compacted for that.
	HistoryWindow Duration `json:"historyWindow"`
}

// OutOfSpace is what the leader's agent does about the alarm NOSPACE.
type OutOfSpace string

// What it does. The words are those of the EtcdCluster.
const (
	OutOfSpaceCompact    OutOfSpace = "Compact"
	OutOfSpaceDefragment OutOfSpace = "Defragment"
	OutOfSpaceNothing    OutOfSpace = "Nothing"
)

// DefaultDefragmentation is what druid renders for a cluster that says nothing, but for Enabled. The thresholds are those of
// OpenShift's cluster-etcd-operator (pkg/operator/defragcontroller: 45 % and 100 MiB), which counts the bytes of the whole
// file; counting those that are free spares databases that would give little back. A minute after its turn a member is back
// with its clients, whose probes ask each second and whose Lease is renewed each 15 s; cluster-etcd-operator waits 36 s.
// Five minutes of history are what kube-apiserver leaves its watchers (storage/etcd3, compactInterval).
func DefaultDefragmentation() Defragmentation {
	return Defragmentation{
		Window: Duration(time.Hour), MinFreePercent: 45, MinFreeBytes: 100 << 20, Interval: Duration(time.Minute),
		OutOfSpace: OutOfSpaceCompact, HistoryWindow: Duration(5 * time.Minute),
	}
}

// validate names every field that is out of its range. A schedule that cannot be read is no error: it opens no window, and
// the rest of the file holds.
func (d Defragmentation) validate() (errs []error) {
	errs = append(errs, within("defragmentation.window", d.Window, time.Minute, 24*time.Hour))
	errs = append(errs, within("defragmentation.interval", d.Interval, 5*time.Second, time.Hour))
	if d.MinFreePercent < 1 || d.MinFreePercent > 99 {
		errs = append(errs, fmt.Errorf("defragmentation.minFreePercent is %d, want 1 to 99", d.MinFreePercent))
	}
	if d.MinFreeBytes < 0 {
		errs = append(errs, fmt.Errorf("defragmentation.minFreeBytes is %d, want 0 or more", d.MinFreeBytes))
	}
	errs = append(errs, within("defragmentation.historyWindow", d.HistoryWindow, time.Second, time.Hour))
	switch d.OutOfSpace {
	case OutOfSpaceCompact, OutOfSpaceDefragment, OutOfSpaceNothing:
	default:
		errs = append(errs, fmt.Errorf("defragmentation.outOfSpace is %q, want Compact, Defragment or Nothing", d.OutOfSpace))
	}
	return errs
}

// Open says whether a window is open at now: the schedule fired within the last Window, or there is none. An error says
// that the schedule or its time zone cannot be read.
func (d Defragmentation) Open(now time.Time) (bool, error) {
	if d.Schedule == "" {
		return true, nil
	}
	schedule, err := ParseSchedule(d.Schedule, d.TimeZone)
	if err != nil {
		return false, fmt.Errorf("defragmentation: %w", err)
	}
	fired, comes := schedule.Next(now.Add(-time.Duration(d.Window)))
	return comes && !fired.After(now), nil
}
