package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
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
