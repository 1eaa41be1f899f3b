package config

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"time"
)

// versionPattern is major.minor.patch of an etcd whose flags the agent knows.
var versionPattern = regexp.MustCompile(`^3\.[567]\.(0|[1-9][0-9]?)$`)

// Limits of etcd's own (server/v3/embed): the election timeout is at most 50 s and at least five heartbeats.
const (
	maxElectionTimeout     = 50 * time.Second
	heartbeatsPerElection  = 5
	defaultHeartbeat       = 100 * time.Millisecond
	defaultElectionTimeout = time.Second
)

// Validate returns an error for every field that is missing or out of range.
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

// validateBootstrap checks how a new cluster begins.
func (c Config) validateBootstrap() error {
	_, restore := c.RestoreOrder()
	_, join := c.JoinEndpoints()
	var both error
	switch {
	case c.Join != "" && c.Restore != "":
		both = errors.New("--join and --restore are both set: set only one of them")
	case c.JoinTLS != "" && c.Join == "":
		both = errors.New("--join-tls is set without --join: set both or none of them")
	case c.JoinTLS != "" && !filepath.IsAbs(c.JoinTLS):
		both = fmt.Errorf("--join-tls is %q, want an absolute path", c.JoinTLS)
	}
	return errors.Join(restore, join, both)
}

// The options that druid sets in every Pod, and those that are absolute paths.
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
	default:
		return fmt.Errorf("--auto-compaction-mode is %q, want periodic or revision", c.AutoCompactionMode)
	}
	return errors.Join(c.validatePlaintext(), c.validateTLS())
}

func (c Config) validatePlaintext() error {
	if c.ClientPlaintext && c.ClientTLS == TLSOff || c.PeerPlaintext && c.PeerTLS == TLSOff {
		return errors.New("--client-plaintext needs --client-tls, and --peer-plaintext needs --peer-tls: without TLS all connections are in plain text")
	}
	return nil
}

func (c Config) validateTLS() error {
	switch c.ClientTLS {
	case TLSOff, TLSServer, TLSMutual:
	default:
		return fmt.Errorf("--client-tls is %q, want mutual or server, or none", c.ClientTLS)
	}
	switch {
	case c.ClientTLS == TLSOff && c.PeerTLS == TLSOff:
		return nil
	case !filepath.IsAbs(c.TLSSource) || !filepath.IsAbs(c.TLSDir):
		return fmt.Errorf("--tls-source is %q and --tls-dir is %q, want absolute paths", c.TLSSource, c.TLSDir)
	case c.PeerTLS != TLSOff && c.PeerTLS != TLSMutual:
		return fmt.Errorf("--peer-tls is %q, want mutual, or none", c.PeerTLS)
	case c.ClientTLS != TLSOff && c.ClientService == "":
		return errors.New("--client-service is empty, but --client-tls needs it: certificates are valid for this Service")
	}
	return nil
}

func (c Config) validateTimes() error {
	heartbeat, election := defaultHeartbeat, defaultElectionTimeout
	if c.HeartbeatInterval != 0 {
		heartbeat = c.HeartbeatInterval
	}
	if c.ElectionTimeout != 0 {
		election = c.ElectionTimeout
	}
	// etcd accepts both only in milliseconds.
	if heartbeat < time.Millisecond || heartbeat%time.Millisecond != 0 {
		return fmt.Errorf("--heartbeat-interval is %s, want a multiple of 1ms, at least 1ms", heartbeat)
	}
	if election > maxElectionTimeout || election < heartbeatsPerElection*heartbeat || election%time.Millisecond != 0 {
		return fmt.Errorf("--election-timeout is %s, want a multiple of 1ms, %s (%d heartbeats) to %s",
			election, heartbeatsPerElection*heartbeat, heartbeatsPerElection, maxElectionTimeout)
	}
	return nil
}

// validatePorts checks that the ports differ, because all listeners of a member share one network namespace.
func (c Config) validatePorts() error {
	seen := map[int]string{}
	for _, p := range []struct {
		name string
		port int
	}{
		{"client-port", c.ClientPort}, {"peer-port", c.PeerPort},
		{"metrics-port", c.MetricsPort}, {"agent-port", c.AgentPort}, {"api-port", c.APIPort},
	} {
		if other, ok := seen[p.port]; ok {
			return fmt.Errorf("--%s is %d, the same as --%s: use different ports", p.name, p.port, other)
		}
		seen[p.port] = p.name
	}
	return nil
}
