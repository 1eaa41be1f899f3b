package leases

import "time"

// WithTimeout makes the Store as patient as a test on a busy machine has to be.
func (s *Store) WithTimeout(d time.Duration) *Store {
	s.timeout = d
	return s
}

// WithTimeout does the same for an Election.
func (e *Election) WithTimeout(d time.Duration) *Election {
	e.timeout = d
	return e
}
