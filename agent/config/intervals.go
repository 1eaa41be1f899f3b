package config

import (
	"errors"
	"fmt"
	"time"
)

// The limits of the intervals (docs/explanation/adr/20261123-intervals-of-agents.md).
const (
	// A renewal more often than every second floods the API server. One less often than every five minutes says nothing of a member.
	minRenewInterval, maxRenewInterval = time.Second, 5 * time.Minute
	// leaseRenewals fit into a Lease's duration: with two lost renewals in a row a member still counts as alive.
	leaseRenewals    = 3
	maxLeaseDuration = time.Hour
	// minSuperfluousGrace is twice what etcd's guard of changed members takes (5 s), and two looks of the leader's agent at the list.
	minSuperfluousGrace, maxSuperfluousGrace = 10 * time.Second, 24 * time.Hour
)

// IntervalNames are what the reader of an error knows the intervals by: keys of the file, or druid's flags.
type IntervalNames struct{ Renew, Lease, Grace string }

// ValidateIntervals names every interval that is out of its range, and what to set it to.
func (r Reloadable) ValidateIntervals(names IntervalNames) error {
	var errs []error
	add := func(err error, advice string) {
		if err != nil {
			errs = append(errs, fmt.Errorf("%w: %s", err, advice))
		}
	}
	add(within(names.Renew, r.RenewInterval, minRenewInterval, maxRenewInterval), "15s is the default")
	add(within(names.Lease, r.LeaseDuration, leaseRenewals*time.Duration(r.RenewInterval), maxLeaseDuration),
		"set it to three times "+names.Renew+" or more, so that two lost renewals end no Lease")
	if time.Duration(r.LeaseDuration)%time.Second != 0 {
		errs = append(errs, fmt.Errorf("%s is %s, want whole seconds, which is how a Lease counts", names.Lease, r.LeaseDuration))
	}
	add(within(names.Grace, r.SuperfluousGracePeriod, max(minSuperfluousGrace, time.Duration(r.LeaseDuration)), maxSuperfluousGrace),
		"set it to "+names.Lease+" or more, and to 10s at least, so that no member is removed by what is not reported yet")
	return errors.Join(errs...)
}
