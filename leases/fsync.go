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
	// P99 is the upper bound of the bucket of etcd's histogram that has the 99th percentile. It is a power of two in
	// milliseconds, at most 8.192 s, which stands for all longer times too. It is of the last minutes. 0 means that they
	// had too few writes for a percentile, or that etcd did not serve its metrics: then Speed is an earlier verdict.
	P99 time.Duration
}

// Known says whether there is a verdict.
func (f Fsync) Known() bool { return f.Speed != "" }

// Fresh says whether the verdict is from the last minutes.
func (f Fsync) Fresh() bool { return f.Known() && f.P99 > 0 }

// format returns the annotation, empty if the verdict is unknown. It has a time only if the verdict is fresh.
func (f Fsync) format() string {
	if !f.Fresh() {
		return string(f.Speed)
	}
	return fmt.Sprintf("%s p99=%s", f.Speed, f.P99)
}

// ParseFsync reads the annotation. It ignores an unreadable one, which only means that the verdict is unknown.
func ParseFsync(s string) Fsync {
	speed, p99, fresh := strings.Cut(s, " p99=")
	if !slices.Contains(speeds, DiskSpeed(speed)) {
		return Fsync{}
	}
	if !fresh {
		return Fsync{Speed: DiskSpeed(speed)}
	}
	latency, err := time.ParseDuration(p99)
	if err != nil || latency <= 0 {
		return Fsync{}
	}
	return Fsync{DiskSpeed(speed), latency}
}
