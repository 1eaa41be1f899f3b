package leases

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// annotationFsync on a member Lease is a Fsync. The member's agent writes it together with a renewal.
const annotationFsync = Prefix + "fsync"

// DiskSpeed is the verdict of an agent about the disk of its member.
type DiskSpeed string

// The verdicts.
const (
	// SpeedOK: the member writes its log fast enough for etcd.
	SpeedOK DiskSpeed = "OK"
	// SpeedSlow: one write in a hundred takes longer than the interval between two heartbeats of a leader.
	SpeedSlow DiskSpeed = "Slow"
	// SpeedVerySlow: one write in a hundred takes half of an election timeout or longer.
	SpeedVerySlow DiskSpeed = "VerySlow"
)

// speeds are all verdicts, for the strict reader.
var speeds = []DiskSpeed{SpeedOK, SpeedSlow, SpeedVerySlow}

// Fsync is how long the etcd of a member takes to write its log to the disk. The zero value is unknown.
type Fsync struct {
	Speed DiskSpeed
	// P99 is the upper bound of the bucket of etcd's histogram that has the 99th percentile. It is a power of two in milliseconds, at
	// most 8.192 s, which stands for all longer times too. It is as old as the last five minutes with enough writes.
	P99 time.Duration
}

// Known says whether there is a verdict.
func (f Fsync) Known() bool { return f.Speed != "" }

// format returns the annotation, empty if the verdict is unknown.
func (f Fsync) format() string {
	if !f.Known() {
		return ""
	}
	return fmt.Sprintf("%s p99=%s", f.Speed, f.P99)
}

// ParseFsync reads the annotation. It ignores an unreadable one, which only means that the verdict is unknown.
func ParseFsync(s string) Fsync {
	speed, p99, _ := strings.Cut(s, " p99=")
	latency, err := time.ParseDuration(p99)
	if err != nil || latency <= 0 || !slices.Contains(speeds, DiskSpeed(speed)) {
		return Fsync{}
	}
	return Fsync{DiskSpeed(speed), latency}
}
