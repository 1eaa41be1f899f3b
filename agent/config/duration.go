package config

import (
	"fmt"
	"time"
)

// Duration is a time.Duration that is written as text, like 15s.
type Duration time.Duration

// String writes the duration as Go does.
func (d Duration) String() string { return time.Duration(d).String() }

// MarshalText writes the duration as Go does.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads what time.ParseDuration reads.
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("duration %q: want a number with a unit, like 15s or 2m", text)
	}
	*d = Duration(parsed)
	return nil
}
