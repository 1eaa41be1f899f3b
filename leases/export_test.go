package leases

import "time"

// WithTimeout makes the Store as patient as a test on a busy machine has to be.
func (s *Store) WithTimeout(d time.Duration) *Store {
	s.timeout = d
	return s
}

// WithTimes makes an Election as quick as a test wants it, and its tries as frequent as a fifteenth of that.
func (e *Election) WithTimes(duration time.Duration) *Election {
	e.duration, e.renewDeadline, e.retryPeriod, e.hurry = duration, duration*2/3, duration/15, duration/15
	return e
}
