package config

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"sigs.k8s.io/yaml"
)

// Reloadable is the content of the configuration file: the options that can change without a restart.
type Reloadable struct {
	// LogLevel is debug, info, warn or error.
	LogLevel string `json:"logLevel"`
	// RenewInterval of the member Lease. LeaseDuration is the time after which observers consider it stale.
	RenewInterval Duration `json:"renewInterval"`
	LeaseDuration Duration `json:"leaseDuration"`
	// SuperfluousGracePeriod is how long one leader must see an etcd member that is not desired before it removes it.
	SuperfluousGracePeriod Duration `json:"superfluousGracePeriod"`
	// ComparisonInterval is how often the leader's agent compares the data of all voters.
	ComparisonInterval Duration `json:"comparisonInterval"`
	// Backup is nil for a cluster without backups.
	Backup *Backup `json:"backup,omitempty"`
	// RemoveExternalMembers is the user's permission to remove external members of a joined cluster. It has no effect in a
	// cluster that was formed here.
	RemoveExternalMembers bool `json:"removeExternalMembers,omitempty"`
	// Defragmentation says when the leader's agent may defragment the members' databases.
	Defragmentation Defragmentation `json:"defragmentation"`
	// Issuers are the certificate authorities that the members of the formed cluster use.
	Issuers Issuers `json:"issuers,omitzero"`
	// APIClients are the common names of the client certificates whose owners may have the agents act.
	APIClients []string `json:"apiClients,omitempty"`
	// Auth are the users and roles in etcd, nil if druid does not manage them. Generation is that of the spec that it comes
	// from.
	Auth       *Auth `json:"auth,omitempty"`
	Generation int64 `json:"generation,omitempty"`
}

// Issuers are the fingerprints of the certificate authorities whose certificates the members of a formed cluster trust, by
// plane, separated by commas. A plane without any is not restricted.
type Issuers struct {
	// Provided are the planes whose certificates a user provides, separated by commas.
	Provided string `json:"provided,omitempty"`
	Client   string `json:"client,omitempty"`
	Peer     string `json:"peer,omitempty"`
}

// Of returns the fingerprints of the plane called name: client or peer.
func (i Issuers) Of(name string) []string {
	text := map[string]string{"client": i.Client, "peer": i.Peer}[name]
	if text == "" {
		return nil
	}
	return strings.Split(text, ",")
}

// DefaultReloadable has the values that apply without a configuration file, and for every key that the file omits.
func DefaultReloadable() Reloadable {
	return Reloadable{
		LogLevel: "info",
		// 15 s and 45 s: a thousand members cost the API server 67 writes per second.
		RenewInterval: Duration(15 * time.Second),
		LeaseDuration: Duration(45 * time.Second),
		// The duration of the leader's Lease. After that time, a previous leader, which might act on an older list of
		// the desired members, no longer holds it (docs/explanation/adr/20261123-intervals-of-agents.md).
		SuperfluousGracePeriod: Duration(time.Minute),
		// Each member reads its complete database. etcd suggests the same order for its own periodic check, and a
		// database of 8 GiB takes about a minute.
		ComparisonInterval: Duration(4 * time.Hour),
		Defragmentation:    DefaultDefragmentation(),
	}
}

// ParseReloadable reads the configuration file. It ignores unknown keys, because the file can be newer than the agent.
// Missing keys get their defaults.
func ParseReloadable(content []byte) (Reloadable, error) {
	r := DefaultReloadable()
	if err := yaml.Unmarshal(content, &r); err != nil {
		return Reloadable{}, fmt.Errorf("parse: %w", err)
	}
	if err := r.Validate(); err != nil {
		return Reloadable{}, err
	}
	return r, nil
}

// ReadReloadable reads the current configuration file. A missing file means the defaults. Use it instead of Live where
// a decision must not be based on an earlier content.
func ReadReloadable(path string) (Reloadable, error) {
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return DefaultReloadable(), nil
	}
	if err != nil {
		return Reloadable{}, fmt.Errorf("configuration file: %w", err)
	}
	r, err := ParseReloadable(content)
	if err != nil {
		return Reloadable{}, fmt.Errorf("configuration file %s: %w", path, err)
	}
	return r, nil
}

// YAML renders the configuration file.
func (r Reloadable) YAML() ([]byte, error) { return yaml.Marshal(r) }

// Validate returns an error for every field that is out of range.
func (r Reloadable) Validate() error {
	var errs []error
	switch r.LogLevel {
	case "debug", "info", "warn", "error":
	default:
		errs = append(errs, fmt.Errorf("logLevel is %q, want debug, info, warn or error", r.LogLevel))
	}
	errs = append(errs, r.ValidateIntervals(
		IntervalNames{Renew: "renewInterval", Lease: "leaseDuration", Grace: "superfluousGracePeriod", Comparison: "comparisonInterval"}))
	errs = append(errs, r.Backup.Validate())
	errs = append(errs, r.Defragmentation.validate()...)
	errs = append(errs, r.Auth.Validate())
	return errors.Join(errs...)
}

func within(field string, value Duration, low, high time.Duration) error {
	if time.Duration(value) < low || time.Duration(value) > high {
		return fmt.Errorf("%s is %s, want %s to %s", field, value, low, high)
	}
	return nil
}

// reloadInterval is how often the file is read. The kubelet updates a changed ConfigMap in a Pod only about every
// minute. Reading a few hundred bytes costs less than watching the links that the kubelet swaps.
const reloadInterval = 10 * time.Second

// Live is the current configuration file. If its content is invalid, the previous content stays in effect.
type Live struct {
	path string
	log  *slog.Logger
	// Loaded is called for every content that was tried. The error is nil if the content is now in effect. Loaded may
	// be nil.
	Loaded func(Reloadable, error)

	current atomic.Pointer[Reloadable]
	// tried is the last content, or the error of reading it.
	tried string
}

// NewLive returns the configuration at path. The defaults are in effect until Run has read the file.
func NewLive(path string, log *slog.Logger) *Live {
	l := &Live{path: path, log: log}
	initial := DefaultReloadable()
	l.current.Store(&initial)
	return l
}

// Current is the configuration in effect.
func (l *Live) Current() Reloadable { return *l.current.Load() }

// Run reads the file now and after each change, until ctx ends.
func (l *Live) Run(ctx context.Context) error {
	ticker := time.NewTicker(reloadInterval)
	defer ticker.Stop()
	for {
		l.load(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// load acts only if the content or the error has changed.
func (l *Live) load(ctx context.Context) {
	content, err := os.ReadFile(l.path)
	seen := "content:" + string(content)
	if err != nil {
		seen = "error:" + err.Error()
	}
	if seen == l.tried {
		return
	}
	l.tried = seen
	if errors.Is(err, fs.ErrNotExist) {
		l.log.InfoContext(ctx, "configuration file absent", "path", l.path)
		return
	}
	var next Reloadable
	if err == nil {
		next, err = ParseReloadable(content)
	}
	if err != nil {
		l.log.ErrorContext(ctx, "configuration file invalid, keeping the previous one", "path", l.path, "err", err)
	} else {
		l.current.Store(&next)
		l.log.InfoContext(ctx, "configuration file loaded", "path", l.path)
	}
	if l.Loaded != nil {
		l.Loaded(next, err)
	}
}

// The limits of the intervals (docs/explanation/adr/20261123-intervals-of-agents.md).
const (
	// A renewal more often than every second overloads the API server. One less often than every five minutes says
	// nothing about a member.
	minRenewInterval, maxRenewInterval = time.Second, 5 * time.Minute
	// leaseRenewals fit into the duration of a Lease. A member still counts as alive after two consecutive lost
	// renewals.
	leaseRenewals    = 3
	maxLeaseDuration = time.Hour
	// minSuperfluousGrace is twice the 5 s for which etcd protects changed members, and two checks of the member list
	// by the leader's agent.
	minSuperfluousGrace, maxSuperfluousGrace = 10 * time.Second, 24 * time.Hour
	// minComparison is the pause between two attempts of a comparison. A difference that is found after a week may be in
	// all backups.
	minComparison, maxComparison = 10 * time.Second, 7 * 24 * time.Hour
)

// IntervalNames are the names of the intervals for errors: keys of the file, or flags of druid.
type IntervalNames struct{ Renew, Lease, Grace, Comparison string }

// ValidateIntervals returns an error for every interval that is out of range, with a valid value.
func (r Reloadable) ValidateIntervals(names IntervalNames) error {
	var errs []error
	add := func(err error, advice string) {
		if err != nil {
			errs = append(errs, fmt.Errorf("%w: %s", err, advice))
		}
	}
	add(within(names.Renew, r.RenewInterval, minRenewInterval, maxRenewInterval), "15s is the default")
	add(within(names.Lease, r.LeaseDuration, leaseRenewals*time.Duration(r.RenewInterval), maxLeaseDuration),
		"set it to three times "+names.Renew+" or more, so that a Lease survives two lost renewals")
	if time.Duration(r.LeaseDuration)%time.Second != 0 {
		errs = append(errs, fmt.Errorf("%s is %s, want a multiple of 1s, because a Lease counts in seconds", names.Lease, r.LeaseDuration))
	}
	add(within(names.Grace, r.SuperfluousGracePeriod, max(minSuperfluousGrace, time.Duration(r.LeaseDuration)), maxSuperfluousGrace),
		"set it to "+names.Lease+" or more, and to at least 10s, so that no member is removed because of outdated information")
	add(within(names.Comparison, r.ComparisonInterval, minComparison, maxComparison), "4h is the default")
	return errors.Join(errs...)
}

// Defragmentation says when the leader's agent may defragment the databases of the members, one after another.
type Defragmentation struct {
	// Enabled is false unless the file sets it, because an agent without its configuration must not block a member.
	Enabled bool `json:"enabled"`
	// Schedule opens a window each time that it fires: five fields, as in a CronJob. Empty: any time is one.
	Schedule string `json:"schedule,omitempty"`
	// TimeZone of the schedule by its IANA name; empty for UTC.
	TimeZone string `json:"timeZone,omitempty"`
	// Window is how long each window is open. A defragmentation must begin in it, and can end later.
	Window Duration `json:"window"`
	// MinFreePercent of the file of the database and MinFreeBytes must both be free before it is defragmented.
	MinFreePercent int64 `json:"minFreePercent"`
	MinFreeBytes   int64 `json:"minFreeBytes"`
	// Interval between two checks of the sizes of all databases, and so between the defragmentations of two members.
	Interval Duration `json:"interval"`
	// OutOfSpace is the reaction to etcd's alarm NOSPACE.
	OutOfSpace OutOfSpace `json:"outOfSpace"`
	// HistoryWindow is the minimum age of a revision that this reaction compacts.
	HistoryWindow Duration `json:"historyWindow"`
}

// OutOfSpace is how the leader's agent reacts to the alarm NOSPACE.
type OutOfSpace string

// What it does. The words are those of the EtcdCluster.
const (
	OutOfSpaceCompact    OutOfSpace = "Compact"
	OutOfSpaceDefragment OutOfSpace = "Defragment"
	OutOfSpaceNothing    OutOfSpace = "Nothing"
)

// DefaultDefragmentation is what druid renders for a cluster without settings, except Enabled. The thresholds are
// those of OpenShift's cluster-etcd-operator (pkg/operator/defragcontroller: 45 % and 100 MiB). That operator counts
// the bytes of the complete file. druid counts the free bytes, and so skips databases that would shrink little. A
// minute after its defragmentation, a member serves its clients again: probes run each second and its Lease is renewed
// every 15 s. cluster-etcd-operator waits 36 s. Five minutes of history are what kube-apiserver leaves its watchers
// (storage/etcd3, compactInterval).
func DefaultDefragmentation() Defragmentation {
	return Defragmentation{
		Window: Duration(time.Hour), MinFreePercent: 45, MinFreeBytes: 100 << 20, Interval: Duration(time.Minute),
		OutOfSpace: OutOfSpaceCompact, HistoryWindow: Duration(5 * time.Minute),
	}
}

// validate returns an error for every field that is out of range. A schedule that cannot be read is not an error: it
// opens no window, and the rest of the file applies.
func (d Defragmentation) validate() (errs []error) {
	errs = append(errs, within("defragmentation.window", d.Window, time.Minute, 24*time.Hour))
	errs = append(errs, within("defragmentation.interval", d.Interval, 5*time.Second, time.Hour))
	if d.MinFreePercent < 1 || d.MinFreePercent > 99 {
		errs = append(errs, fmt.Errorf("defragmentation.minFreePercent is %d, want 1 to 99", d.MinFreePercent))
	}
	if d.MinFreeBytes < 0 {
		errs = append(errs, fmt.Errorf("defragmentation.minFreeBytes is %d, want 0 or more", d.MinFreeBytes))
	}
	errs = append(errs, within("defragmentation.historyWindow", d.HistoryWindow, time.Second, time.Hour))
	switch d.OutOfSpace {
	case OutOfSpaceCompact, OutOfSpaceDefragment, OutOfSpaceNothing:
	default:
		errs = append(errs, fmt.Errorf("defragmentation.outOfSpace is %q, want Compact, Defragment or Nothing", d.OutOfSpace))
	}
	return errs
}

// Open reports whether a window is open at now: the schedule fired within the last Window, or there is no schedule. An
// error says that the schedule or its time zone cannot be read.
func (d Defragmentation) Open(now time.Time) (bool, error) {
	if d.Schedule == "" {
		return true, nil
	}
	schedule, err := ParseSchedule(d.Schedule, d.TimeZone)
	if err != nil {
		return false, fmt.Errorf("defragmentation: %w", err)
	}
	fired, comes := schedule.Next(now.Add(-time.Duration(d.Window)))
	return comes && !fired.After(now), nil
}
