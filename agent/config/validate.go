package config

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"time"
)

// versionPattern is major.minor.patch of an etcd that the agent knows the flags of.
var versionPattern = regexp.MustCompile(`^3\.[567]\.(0|[1-9][0-9]?)$`)

// Limits of etcd's own (server/v3/embed): the election timeout is at most 50 s and at least five heartbeats.
const (
	maxElectionTimeout     = 50 * time.Second
	heartbeatsPerElection  = 5
	defaultHeartbeat       = 100 * time.Millisecond
	defaultElectionTimeout = time.Second
)

// Validate names every field that is missing or out of its range.
func (c Config) Validate() error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	for _, f := range c.flags() {
		switch p := f.value.(type) {
		case *string:
			if *p == "" && required[f.name] {
				fail("--%s is empty; druid sets it in every Pod", f.name)
			}
			if paths[f.name] && !filepath.IsAbs(*p) {
				fail("--%s is %q, want an absolute path", f.name, *p)
			}
		case *int:
			if *p < 1 || *p > 65535 {
				fail("--%s is %d, want 1 to 65535", f.name, *p)
			}
		case *int64:
			if *p < 0 {
				fail("--%s is %d, want 0 (etcd's default) or more", f.name, *p)
			}
		}
	}
	return errors.Join(append(errs, c.validateBootstrap(), c.validateWords(), c.validateTimes(), c.validatePorts())...)
}

// validateBirth checks how a new cluster is to begin.
func (c Config) validateBootstrap() error {
	_, restore := c.RestoreOrder()
	_, join := c.JoinEndpoints()
	var both error
	if c.Join != "" && c.Restore != "" {
		both = errors.New("--join and --restore are both set: a cluster begins in one way")
	}
	return errors.Join(restore, join, both)
}

var (
	required = map[string]bool{
		"namespace": true, "cluster": true, "cluster-uid": true, "member": true, "pod-uid": true,
		"peer-service": true, "etcd-version": true,
	}
	paths = map[string]bool{"etcd": true, "volume": true, "socket": true, "config": true}
)

func (c Config) validateWords() error {
	if c.EtcdVersion != "" && !versionPattern.MatchString(c.EtcdVersion) {
		return fmt.Errorf("--etcd-version is %q, want 3.5.x, 3.6.x or 3.7.x", c.EtcdVersion)
	}
	switch c.AutoCompactionMode {
	case "", "periodic", "revision":
		return nil
	default:
		return fmt.Errorf("--auto-compaction-mode is %q, want periodic or revision", c.AutoCompactionMode)
	}
}

func (c Config) validateTimes() error {
	heartbeat, election := defaultHeartbeat, defaultElectionTimeout
	if c.HeartbeatInterval != 0 {
		heartbeat = c.HeartbeatInterval
	}
	if c.ElectionTimeout != 0 {
		election = c.ElectionTimeout
	}
	// etcd takes both as whole milliseconds.
	if heartbeat < time.Millisecond || heartbeat%time.Millisecond != 0 {
		return fmt.Errorf("--heartbeat-interval is %s, want whole milliseconds, at least 1ms", heartbeat)
	}
	if election > maxElectionTimeout || election < heartbeatsPerElection*heartbeat || election%time.Millisecond != 0 {
		return fmt.Errorf("--election-timeout is %s, want whole milliseconds, %s (%d heartbeats) to %s",
			election, heartbeatsPerElection*heartbeat, heartbeatsPerElection, maxElectionTimeout)
	}
	return nil
}

// validatePorts: all listeners of a member share one network namespace.
func (c Config) validatePorts() error {
	seen := map[int]string{}
	for _, p := range []struct {
		name string
		port int
	}{
		{"client-port", c.ClientPort}, {"peer-port", c.PeerPort},
		{"metrics-port", c.MetricsPort}, {"agent-port", c.AgentPort},
	} {
		if other, ok := seen[p.port]; ok {
			return fmt.Errorf("--%s is %d, the same as --%s; want a port of its own", p.name, p.port, other)
		}
		seen[p.port] = p.name
	}
	return nil
}
