package restore

import (
	"fmt"
	"time"
)

// paceAfter is how long a phase is watched before anything is said of how fast it goes.
const paceAfter = time.Second

// Pace reports from what is reported of a restore how fast it goes. Each phase has its own: what a phase that has not begun will take
// no one knows. The zero Pace has seen nothing.
type Pace struct {
	first Progress
	began time.Time
}

// Speed of a phase.
type Speed struct {
	// Part of the phase that is done, from 0 to 1.
	Part float64
	// PerSecond are bytes of the database while it is fetched or written, and events while they are read or applied; 0: not known yet.
	PerSecond float64
	// Left is how long the phase will still take if it goes on as it did; known says whether that can be reported.
	Left  time.Duration
	Known bool
}

// Observe takes what is reported, and when.
func (p *Pace) Observe(at Progress, now time.Time) Speed {
	if at.Phase != p.first.Phase || p.began.IsZero() {
		p.first, p.began = at, now
	}
	s := Speed{Part: at.part()}
	took := now.Sub(p.began)
	if took < paceAfter {
		return s
	}
	switch at.Phase {
	case Fetching:
		s.PerSecond = float64(at.Bytes-p.first.Bytes) / took.Seconds()
	case Applying, Surveying:
		s.PerSecond = float64(at.Events-p.first.Events) / took.Seconds()
	case Writing:
		s.PerSecond = float64(at.Bytes-p.first.Bytes) / took.Seconds()
	case Finishing:
	}
	if gained := s.Part - p.first.part(); gained > 0 {
		s.Left, s.Known = time.Duration(float64(took)*(1-s.Part)/gained).Round(time.Second), true
	}
	return s
}

// part of the phase that is done.
func (p Progress) part() float64 {
	part := func(n, of int64) float64 {
		if of <= 0 {
			return 0
		}
		return min(1, float64(n)/float64(of))
	}
	switch p.Phase {
	case Fetching, Writing:
		return part(p.Bytes, p.TotalBytes)
	case Applying, Surveying:
		return part(p.DeltaBytes, p.TotalDeltaBytes)
	case Finishing:
	}
	return 1
}

// Words say how far a restore is, how fast it goes, and when the phase ends; and that this is unknown, where it is.
func (s Speed) Words(at Progress) string {
	left := "time left unknown"
	if s.Known {
		left = fmt.Sprintf("about %s left", s.Left)
	}
	switch at.Phase {
	case Fetching:
		return fmt.Sprintf("full: %d of %d MiB, %s, %s; %d deltas follow", at.Bytes>>20, at.TotalBytes>>20,
			s.rate("%.1f MiB/s", 1<<20), left, at.TotalDeltas)
	case Applying:
		return fmt.Sprintf("deltas: %d of %d, %d events, %s, revision %d, %s", at.Deltas, at.TotalDeltas, at.Events,
			s.rate("%.0f events/s", 1), at.Revision, left)
	case Surveying:
		return fmt.Sprintf("deltas: %d of %d read, %d events, %s, revision %d, %s", at.Deltas, at.TotalDeltas, at.Events,
			s.rate("%.0f events/s", 1), at.Revision, left)
	case Writing:
		return fmt.Sprintf("what is alive: %d of %d MiB written, %s, %s", at.Bytes>>20, at.TotalBytes>>20, s.rate("%.1f MiB/s", 1<<20), left)
	case Finishing:
	}
	return fmt.Sprintf("revision %d is reached and being made durable, %s", at.Revision, left)
}

func (s Speed) rate(format string, unit float64) string {
	if s.PerSecond == 0 {
		return "rate unknown"
	}
	return fmt.Sprintf(format, s.PerSecond/unit)
}
