package main

import (
	"math"
	"time"

	"golang.org/x/time/rate"
)

// pace is how fast the clients are. A record can last longer than planned, because a fault on a busy machine does, and the time that its
// validation needs grows faster than the number of its operations.
type pace struct {
	perSecond int // at the start
	about     int // operations of a record, however long it lasts, but for the slowest rate
	slowest   int // per second
}

// slowDown halves the rate in steps until done. Each step permits half of the operations that are left.
func (p pace) slowDown(limiter *rate.Limiter, done <-chan struct{}) {
	ticker := time.NewTicker(p.span())
	defer ticker.Stop()
	for step := 1; ; step++ {
		select {
		case <-done:
			return
		case <-ticker.C:
			limiter.SetLimit(p.after(step))
		}
	}
}

// span is the time between two steps.
func (p pace) span() time.Duration {
	return time.Duration(float64(p.about) / float64(2*p.perSecond) * float64(time.Second))
}

// after is the rate after so many steps.
func (p pace) after(steps int) rate.Limit {
	return rate.Limit(max(math.Ldexp(float64(p.perSecond), -steps), float64(min(p.slowest, p.perSecond))))
}
