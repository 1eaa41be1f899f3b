package config

import (
	"errors"
	"fmt"
	"strings"
	"time"
	_ "time/tzdata" // druid and the agent must agree on what a time zone is, whatever their images hold

	"github.com/robfig/cron/v3"
)

// Schedule is a cron schedule in its time zone.
type Schedule struct {
	times cron.Schedule
	zone  *time.Location
}

// ParseSchedule reads the five fields of cron, or a word like @daily, and the name of a time zone as the IANA database has
// it, UTC when it is empty. A schedule that never comes is an error.
func ParseSchedule(expression, timeZone string) (Schedule, error) {
	// cron's parser takes a time zone in the expression too, and panics on some that are none.
	if strings.Contains(expression, "=") {
		return Schedule{}, fmt.Errorf("schedule %q: the time zone stands in a field of its own", expression)
	}
	times, err := cron.ParseStandard(expression)
	if err != nil {
		return Schedule{}, fmt.Errorf("schedule %q: %w", expression, err)
	}
	zone := time.UTC
	if timeZone != "" {
		if zone, err = loadZone(timeZone); err != nil {
			return Schedule{}, err
		}
	}
	s := Schedule{times: times, zone: zone}
	if _, comes := s.Next(time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)); !comes {
		return Schedule{}, fmt.Errorf("schedule %q: no date ever matches it", expression)
	}
	return s, nil
}

func loadZone(name string) (*time.Location, error) {
	if strings.EqualFold(name, "local") {
		return nil, errors.New("time zone \"Local\" would be another one on each node: name it, like Europe/Berlin")
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		return nil, fmt.Errorf("time zone %q is not known: name it as the IANA database does, like Europe/Berlin", name)
	}
	return zone, nil
}

// Next is the first time of the schedule after t, false when there is none within five years. A time that the clock of the
// zone leaps over does not come; one that it shows twice comes once.
func (s Schedule) Next(t time.Time) (time.Time, bool) {
	next := s.times.Next(t.In(s.zone))
	return next, !next.IsZero()
}
