package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	_ "time/tzdata" // druid and the agent must agree on what a time zone is, whatever their images hold

	"github.com/robfig/cron/v3"
)

// Where the volumes of a backup store stand in the agent's container: below BackupDir those of the store that is written,
// below RestoreDir those of the one that a new cluster is restored from, if that is another. The kubelet brings a changed
// Secret into the running Pod. A Pod that was made before the cluster had a backup store does not have them.
const (
	BackupDir  = "/backup"
	RestoreDir = "/restore"
	// ScratchDir is an emptyDir in which backups are restored to be proven.
	ScratchDir = "/scratch"

	CredentialsSubdir = "credentials" // a Secret: its keys are files
	CASubdir          = "ca"
	CAFile            = "ca.crt"
	KeySubdir         = "sse"
	KeysSubdir        = "keys" // a Secret: its keys are files, one of which seals backups
	KeyFile           = "key"
	StoreSubdir       = "store" // a store that is a directory
)

// Backup is what is saved, where, and what is kept of it. All of it may change at any time.
type Backup struct {
	// Store is the configuration of package backup/store, whose ParseConfig reads it. What the agent does not know in it,
	// that refuses: a part of it that is ignored could mean to store in plain what was to be encrypted.
	Store json.RawMessage `json:"store"`
	// Prefix of the cluster's keys in the store, without slashes at its ends: <namespace>/<cluster>.
	Prefix    string    `json:"prefix"`
	Full      Full      `json:"full"`
	Delta     Delta     `json:"delta"`
	Retention Retention `json:"retention"`
	Verify    Verify    `json:"verify"`
	// Compression of what is saved from now on.
	Compression Compression `json:"compression,omitzero"`
}

// Compression says how much work is spent on small backups.
type Compression struct {
	// Level is one of CompressionLevels; empty for the first.
	Level string `json:"level,omitempty"`
}

// CompressionLevels of zstd, from the fastest to the smallest.
func CompressionLevels() []string { return []string{"Fastest", "Default", "Better", "Best"} }

// Verify says when backups are proven: restored into a scratch directory, and compared.
type Verify struct {
	// Schedule and TimeZone are what ParseSchedule reads. An empty schedule never comes.
	Schedule string `json:"schedule,omitempty"`
	TimeZone string `json:"timeZone,omitempty"`
}

// Full says when full backups are taken.
type Full struct {
	// Schedule and TimeZone are what ParseSchedule reads.
	Schedule string `json:"schedule"`
	TimeZone string `json:"timeZone,omitempty"`
	// MaxAge of the newest full: an older one is followed by another at once. 0 leaves it to the schedule.
	MaxAge Duration `json:"maxAge,omitempty"`
}

// Delta says how changes are saved between full backups.
type Delta struct {
	// Period after which changes are saved at the latest, and MaxBytes of them that are saved before it is over.
	Period   Duration `json:"period"`
	MaxBytes int64    `json:"maxBytes"`
}

// Retention says which backups stay. Either Count is set or the others are.
type Retention struct {
	// KeepAll keeps everything of so long back: each of its moments can be restored. 0 keeps no deltas for their age.
	KeepAll Duration `json:"keepAll,omitempty"`
	// Hourly, Daily, Weekly and Monthly keep one full of each of so many hours, days, weeks and months.
	Hourly  int `json:"hourly,omitempty"`
	Daily   int `json:"daily,omitempty"`
	Weekly  int `json:"weekly,omitempty"`
	Monthly int `json:"monthly,omitempty"`
	// Count keeps so many fulls, with the deltas after the oldest of them.
	Count int `json:"count,omitempty"`
}

const (
	// minLeaseDuration is that of a member's Lease: two renewals may be lost.
	minLeaseDuration = 45 * time.Second
	// FullGrace is how long a full backup may take, with a failed try before it, until the one before it counts as too old:
	// twice the half hour that 8 GiB take at 5 MB/s. More is not recommended for etcd's database.
	FullGrace = time.Hour
)

// DeltaLeaseDuration is how long the delta Lease lasts without a renewal. It is renewed whenever all changes up to a
// moment are known to be saved, also when there were none: at least three times in that duration.
func (b Backup) DeltaLeaseDuration() time.Duration {
	return max(2*time.Duration(b.Delta.Period), minLeaseDuration)
}

// FullDue is when the full backup that was taken at taken is to be followed by another.
func (b Backup) FullDue(taken time.Time) (time.Time, error) {
	schedule, err := ParseSchedule(b.Full.Schedule, b.Full.TimeZone)
	if err != nil {
		return time.Time{}, err
	}
	next, comes := schedule.Next(taken)
	if oldest := taken.Add(time.Duration(b.Full.MaxAge)); b.Full.MaxAge > 0 && (!comes || oldest.Before(next)) {
		return oldest, nil
	}
	if !comes {
		return time.Time{}, fmt.Errorf("schedule %q: no date matches it within five years", b.Full.Schedule)
	}
	return next, nil
}

// FullRenewInterval is how often the full Lease is renewed at least, as long as FullLeaseDuration allows it: a druid that
// just started believes only what it saw change, and until then reports what was reported before.
const FullRenewInterval = 5 * time.Minute

// FullLeaseDuration is how long the full Lease lasts that is renewed at now, when the newest full was taken at taken:
// until the next one is due, and the grace that it has. Both times are of one clock. It is not above 0 for a full that is
// overdue by the whole grace: then the Lease is not to be renewed.
func (b Backup) FullLeaseDuration(taken, now time.Time) (time.Duration, error) {
	due, err := b.FullDue(taken)
	if err != nil {
		return 0, err
	}
	return due.Add(FullGrace).Sub(now), nil
}

// Validate names every field that is out of its range. It leaves the store to the one who opens it.
func (b *Backup) Validate() error {
	if b == nil {
		return nil
	}
	var errs []error
	if len(b.Store) == 0 {
		errs = append(errs, errors.New("backup.store is empty, want where backups are kept"))
	}
	if b.Prefix == "" {
		errs = append(errs, errors.New("backup.prefix is empty, want <namespace>/<cluster>"))
	}
	if _, err := ParseSchedule(b.Full.Schedule, b.Full.TimeZone); err != nil {
		errs = append(errs, fmt.Errorf("backup.full: %w", err))
	}
	if b.Verify.Schedule != "" {
		if _, err := ParseSchedule(b.Verify.Schedule, b.Verify.TimeZone); err != nil {
			errs = append(errs, fmt.Errorf("backup.verify: %w", err))
		}
	}
	if l := b.Compression.Level; l != "" && !slices.Contains(CompressionLevels(), l) {
		errs = append(errs, fmt.Errorf("backup.compression.level is %q, want one of %v", l, CompressionLevels()))
	}
	if b.Full.MaxAge != 0 {
		errs = append(errs, within("backup.full.maxAge", b.Full.MaxAge, time.Minute, 100*365*24*time.Hour))
	}
	errs = append(errs, within("backup.delta.period", b.Delta.Period, time.Second, time.Hour))
	if b.Delta.MaxBytes < MinDeltaBytes || b.Delta.MaxBytes > MaxDeltaBytes {
		errs = append(errs, fmt.Errorf("backup.delta.maxBytes is %d, want %d to %d", b.Delta.MaxBytes, MinDeltaBytes, MaxDeltaBytes))
	}
	return errors.Join(append(errs, b.Retention.validate())...)
}

// Limits of a delta, in bytes: it is gathered in the agent's memory, and one per write would cost a request for each.
const (
	MinDeltaBytes = 64 << 10
	MaxDeltaBytes = 64 << 20
)

func (r Retention) validate() error {
	if min(r.Hourly, r.Daily, r.Weekly, r.Monthly, r.Count) < 0 || r.KeepAll < 0 {
		return errors.New("backup.retention has a number below 0")
	}
	buckets := r.KeepAll != 0 || r.Hourly+r.Daily+r.Weekly+r.Monthly > 0
	switch {
	case r.Count > 0 && buckets:
		return errors.New("backup.retention has count next to others, want either")
	case r.Count == 0 && !buckets:
		return errors.New("backup.retention is empty, want what is to be kept")
	}
	return nil
}

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
