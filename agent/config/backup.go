package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	_ "time/tzdata" // druid and the agent must use the same time zone data, independent of their images

	"github.com/robfig/cron/v3"
)

// Where the volumes of a backup store stand in the agent's container: below BackupDir those of the store that is written,
// below RestoreDir those of the one that a new cluster is restored from, if that is another. The kubelet brings a changed
// Secret into the running Pod. A Pod that was made before the cluster had a backup store does not have them.
const (
	BackupDir  = "/backup"
	RestoreDir = "/restore"
	// ScratchDir is an emptyDir into which backups are restored for verification.
	ScratchDir = "/scratch"

	CredentialsSubdir = "credentials" // a Secret: its keys are files
	CASubdir          = "ca"
	CAFile            = "ca.crt"
	KeySubdir         = "sse"
	KeysSubdir        = "keys" // a Secret: its keys are files, one of which encrypts backups
	KeyFile           = "key"
	StoreSubdir       = "store" // a store that is a directory
)

// Backup says what is backed up, where, and what is kept. All of it may change at any time.
type Backup struct {
	// Store is the configuration that ParseConfig of package backup/store reads. ParseConfig rejects unknown fields:
	// to ignore one could mean to store data in plain text that should be encrypted.
	Store json.RawMessage `json:"store"`
	// Prefix of the cluster's keys in the store, without slashes at its ends: <namespace>/<cluster>.
	Prefix    string    `json:"prefix"`
	Full      Full      `json:"full"`
	Delta     Delta     `json:"delta"`
	Retention Retention `json:"retention"`
	Verify    Verify    `json:"verify"`
	// Compression of new backups.
	Compression Compression `json:"compression,omitzero"`
}

// Compression says how much CPU is used to make backups smaller.
type Compression struct {
	// Level is one of CompressionLevels. Empty means the first.
	Level string `json:"level,omitempty"`
}

// CompressionLevels are the levels of zstd, from the fastest to the smallest.
func CompressionLevels() []string { return []string{"Fastest", "Default", "Better", "Best"} }

// Verify says when backups are verified: restored into a scratch directory, and compared.
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
	// MaxAge of the newest full backup. If it is older, another one follows at once. 0 means that only the schedule
	// counts.
	MaxAge Duration `json:"maxAge,omitempty"`
}

// Delta says how changes are backed up between full backups.
type Delta struct {
	// Period is the maximum time until changes are backed up. MaxBytes of changes are backed up earlier.
	Period   Duration `json:"period"`
	MaxBytes int64    `json:"maxBytes"`
}

// Retention says which backups are kept. Set either Count or the other fields.
type Retention struct {
	// KeepAll keeps all backups of this time span, so that every moment in it can be restored. With 0, no delta backup
	// is kept because of its age.
	KeepAll Duration `json:"keepAll,omitempty"`
	// Hourly, Daily, Weekly and Monthly keep one full backup for each of that many hours, days, weeks and months.
	Hourly  int `json:"hourly,omitempty"`
	Daily   int `json:"daily,omitempty"`
	Weekly  int `json:"weekly,omitempty"`
	Monthly int `json:"monthly,omitempty"`
	// Count keeps that many full backups, and the delta backups after the oldest of them.
	Count int `json:"count,omitempty"`
}

const (
	// minLeaseDuration is the duration of a member Lease: it survives two lost renewals.
	minLeaseDuration = 45 * time.Second
	// FullGrace is how long a full backup may take, with one failed attempt before it, until the previous one counts
	// as too old. It is twice the half hour that 8 GiB take at 5 MB/s. etcd recommends no larger database.
	FullGrace = time.Hour
)

// DeltaLeaseDuration is how long the delta Lease is valid without a renewal. It is renewed at least three times in
// that duration, whenever all changes up to a moment are known to be backed up, even if there were none.
func (b Backup) DeltaLeaseDuration() time.Duration {
	return max(2*time.Duration(b.Delta.Period), minLeaseDuration)
}

// FullDue returns when a full backup must follow the one from taken.
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

// FullLeaseDuration is how long the full Lease is valid after a renewal at now, when the newest full backup is from
// taken: until the next one is due, plus its grace period. Both times are from one clock. The result is 0 or less if
// the full backup is overdue by the complete grace period. The Lease must then not be renewed.
func (b Backup) FullLeaseDuration(taken, now time.Time) (time.Duration, error) {
	due, err := b.FullDue(taken)
	if err != nil {
		return 0, err
	}
	return due.Add(FullGrace).Sub(now), nil
}

// Validate returns an error for every field that is out of range. It does not check the store, because the package
// that opens it does.
func (b *Backup) Validate() error {
	if b == nil {
		return nil
	}
	var errs []error
	if len(b.Store) == 0 {
		errs = append(errs, errors.New("backup.store is empty, want the configuration of a backup store"))
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
		return errors.New("backup.retention has a negative number")
	}
	buckets := r.KeepAll != 0 || r.Hourly+r.Daily+r.Weekly+r.Monthly > 0
	switch {
	case r.Count > 0 && buckets:
		return errors.New("backup.retention sets count and other fields, want only one kind")
	case r.Count == 0 && !buckets:
		return errors.New("backup.retention is empty, want count or one of the other fields")
	}
	return nil
}

// Schedule is a cron schedule in its time zone.
type Schedule struct {
	times cron.Schedule
	zone  *time.Location
}

// ParseSchedule reads the five fields of cron, or a word like @daily, and the name of a time zone of the IANA
// database. An empty time zone means UTC. A schedule without any date is an error.
func ParseSchedule(expression, timeZone string) (Schedule, error) {
	// cron's parser also accepts a time zone in the expression, and panics on some invalid ones.
	if strings.Contains(expression, "=") {
		return Schedule{}, fmt.Errorf("schedule %q: set the time zone in its own field", expression)
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
		return nil, errors.New("time zone \"Local\" can differ between nodes: use an IANA name, like Europe/Berlin")
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		return nil, fmt.Errorf("time zone %q is unknown: use an IANA name, like Europe/Berlin", name)
	}
	return zone, nil
}

// Next returns the first time of the schedule after t, and false if there is none within five years. A time that the
// clock of the zone skips is left out. A time that it shows twice counts once.
func (s Schedule) Next(t time.Time) (time.Time, bool) {
	next := s.times.Next(t.In(s.zone))
	return next, !next.IsZero()
}
