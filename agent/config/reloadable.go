package config

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"sigs.k8s.io/yaml"
)

// Reloadable is the content of the configuration file: what may change without a restart.
type Reloadable struct {
	// LogLevel is debug, info, warn or error.
	LogLevel string `json:"logLevel"`
	// RenewInterval of the member Lease, and LeaseDuration after which observers call it stale.
	RenewInterval Duration `json:"renewInterval"`
	LeaseDuration Duration `json:"leaseDuration"`
	// SuperfluousGracePeriod is how long one leader must have seen an etcd member that is not desired before it removes
	// it.
	SuperfluousGracePeriod Duration `json:"superfluousGracePeriod"`
	// Backup is nil for a cluster that is not backed up.
	Backup *Backup `json:"backup,omitempty"`
	// RemoveOthers is the user's word that anyone who was in a cluster that was joined, and is no desired member, may go. It means
	// nothing for a cluster that was formed here.
	RemoveOthers bool `json:"removeOthers,omitempty"`
	// Defragmentation says when the leader's agent may defragment the members' databases.
	Defragmentation Defragmentation `json:"defragmentation"`
}

// DefaultReloadable is what holds without a configuration file, and for every key that it leaves out.
func DefaultReloadable() Reloadable {
	return Reloadable{
		LogLevel: "info",
		// 15 s and 45 s: a thousand members cost the API server 67 writes per second.
		RenewInterval: Duration(15 * time.Second),
		LeaseDuration: Duration(45 * time.Second),
		// The duration of the leader's Lease, within which a former leader, who may act on an older list of the desired members,
		// has lost it (docs/explanation/adr/20261123-intervals-of-agents.md).
		SuperfluousGracePeriod: Duration(time.Minute),
		Defragmentation:        DefaultDefragmentation(),
	}
}

// ParseReloadable reads the configuration file. Keys that it does not know are left alone, because the file may be
// younger than the agent; keys that are absent have their default.
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

// ReadReloadable reads the configuration file as it stands now; one that is absent says nothing. Where nothing may be
// decided by what holds in the meantime, that is what is asked for, and not Live.
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

// YAML writes the configuration file.
func (r Reloadable) YAML() ([]byte, error) { return yaml.Marshal(r) }

// Validate names every field that is out of its range.
func (r Reloadable) Validate() error {
	var errs []error
	switch r.LogLevel {
	case "debug", "info", "warn", "error":
	default:
		errs = append(errs, fmt.Errorf("logLevel is %q, want debug, info, warn or error", r.LogLevel))
	}
	errs = append(errs, r.ValidateIntervals(IntervalNames{Renew: "renewInterval", Lease: "leaseDuration", Grace: "superfluousGracePeriod"}))
	errs = append(errs, r.Backup.Validate())
	errs = append(errs, r.Defragmentation.validate()...)
	return errors.Join(errs...)
}

func within(field string, value Duration, low, high time.Duration) error {
	if time.Duration(value) < low || time.Duration(value) > high {
		return fmt.Errorf("%s is %s, want %s to %s", field, value, low, high)
	}
	return nil
}

// reloadInterval is how often the file is looked at. The kubelet itself brings a changed ConfigMap into a Pod only every
// minute or so; reading some hundred bytes costs less than a watch of the links that it swaps.
const reloadInterval = 10 * time.Second

// Live is the configuration file as it stands now. Content that cannot be used leaves the former one in force.
type Live struct {
	path string
	log  *slog.Logger
	// Loaded is informed of every content that was tried: nil for one that is in force now. It may be nil.
	Loaded func(Reloadable, error)

	current atomic.Pointer[Reloadable]
	// tried is what was last looked at: the content, or the error that came instead of it.
	tried string
}

// NewLive returns the configuration at path, with the defaults in force until Run has read it.
func NewLive(path string, log *slog.Logger) *Live {
	l := &Live{path: path, log: log}
	initial := DefaultReloadable()
	l.current.Store(&initial)
	return l
}

// Current is the configuration in force.
func (l *Live) Current() Reloadable { return *l.current.Load() }

// Run reads the file now and whenever it has changed, until ctx ends.
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

// load does something only when what it sees is not what it saw before.
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
		l.log.ErrorContext(ctx, "configuration file refused", "path", l.path, "err", err)
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

// Defragmentation says when the leader's agent may defragment the members' databases, one after another.
type Defragmentation struct {
	// Enabled is false unless the file says so: an agent without its configuration stalls no one.
	Enabled bool `json:"enabled"`
	// Schedule opens a window each time that it fires: five fields, as in a CronJob. Empty: any time is one.
	Schedule string `json:"schedule,omitempty"`
	// TimeZone of the schedule by its IANA name; empty for UTC.
	TimeZone string `json:"timeZone,omitempty"`
	// Window is how long each window is open. A defragmentation is begun in it; it may end later.
	Window Duration `json:"window"`
	// MinFreePercent of the database's file, and MinFreeBytes, must be free before it is defragmented: both.
	MinFreePercent int64 `json:"minFreePercent"`
	MinFreeBytes   int64 `json:"minFreeBytes"`
	// Interval between two looks at the sizes of all databases, and so between two members' turns.
	Interval Duration `json:"interval"`
	// OutOfSpace is what is done when etcd raised the alarm NOSPACE.
	OutOfSpace OutOfSpace `json:"outOfSpace"`
	// HistoryWindow is how long a revision must have been there before it is compacted for that.
	HistoryWindow Duration `json:"historyWindow"`
}

// OutOfSpace is what the leader's agent does about the alarm NOSPACE.
type OutOfSpace string

// What it does. The words are those of the EtcdCluster.
const (
	OutOfSpaceCompact    OutOfSpace = "Compact"
	OutOfSpaceDefragment OutOfSpace = "Defragment"
	OutOfSpaceNothing    OutOfSpace = "Nothing"
)

// DefaultDefragmentation is what druid renders for a cluster that says nothing, but for Enabled. The thresholds are those of
// OpenShift's cluster-etcd-operator (pkg/operator/defragcontroller: 45 % and 100 MiB), which counts the bytes of the whole
// file; counting those that are free spares databases that would give little back. A minute after its turn a member is back
// with its clients, whose probes ask each second and whose Lease is renewed each 15 s; cluster-etcd-operator waits 36 s.
// Five minutes of history are what kube-apiserver leaves its watchers (storage/etcd3, compactInterval).
func DefaultDefragmentation() Defragmentation {
	return Defragmentation{
		Window: Duration(time.Hour), MinFreePercent: 45, MinFreeBytes: 100 << 20, Interval: Duration(time.Minute),
		OutOfSpace: OutOfSpaceCompact, HistoryWindow: Duration(5 * time.Minute),
	}
}

// validate names every field that is out of its range. A schedule that cannot be read is no error: it opens no window, and
// the rest of the file holds.
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

// Open says whether a window is open at now: the schedule fired within the last Window, or there is none. An error says
// that the schedule or its time zone cannot be read.
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
