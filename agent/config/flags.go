package config

import (
	"strconv"
	"time"

	"github.com/spf13/pflag"
)

// Default is the configuration of an agent in a Pod that druid made; what differs from member to member is empty.
func Default() Config {
	return Config{
		EtcdPath:    EtcdPath,
		VolumePath:  VolumePath,
		SocketPath:  SocketPath,
		ConfigPath:  ConfigDir + "/" + ConfigFile,
		ClientPort:  ClientPort,
		PeerPort:    PeerPort,
		MetricsPort: MetricsPort,
		AgentPort:   AgentPort,
	}
}

// flag is one start option: AddFlags, Args and the documentation come from the one list.
type flag struct {
	name, usage string
	value       any
}

func (c *Config) flags() []flag {
	return []flag{
		{"namespace", "namespace of the cluster", &c.Namespace},
		{"cluster", "name of the EtcdCluster", &c.Cluster},
		{"cluster-uid", "UID of the EtcdCluster", &c.ClusterUID},
		{"member", "name of this member: of its Lease, PersistentVolumeClaim, Pod, hostname and etcd member", &c.Member},
		{"pod-uid", "UID of this Pod", &c.PodUID},
		{"peer-service", "headless Service under which the members' names resolve", &c.PeerService},
		{"client-service", "Service that clients dial", &c.ClientService},
		{"etcd-version", "version of the etcd image, major.minor.patch", &c.EtcdVersion},
		{"etcd", "path of the etcd binary in the etcd container", &c.EtcdPath},
		{"volume", "path of the member's volume", &c.VolumePath},
		{"socket", "path of the unix socket on which launch asks", &c.SocketPath},
		{"config", "path of the configuration file, which is read again when it changes", &c.ConfigPath},
		{"quota-backend-bytes", "etcd's --quota-backend-bytes; 0 for etcd's default", &c.QuotaBackendBytes},
		{"auto-compaction-mode", "etcd's --auto-compaction-mode: periodic or revision", &c.AutoCompactionMode},
		{"auto-compaction-retention", "etcd's --auto-compaction-retention", &c.AutoCompactionRetention},
		{"snapshot-count", "etcd's --snapshot-count; 0 for etcd's default", &c.SnapshotCount},
		{"heartbeat-interval", "etcd's --heartbeat-interval; 0 for etcd's default", &c.HeartbeatInterval},
		{"election-timeout", "etcd's --election-timeout; 0 for etcd's default", &c.ElectionTimeout},
		{"restore", "what the first boot of a new cluster restores, as JSON; a cluster that has formed ignores it", &c.Restore},
		{"join", "client endpoints of a running cluster that the first boot of a new cluster joins, between commas", &c.Join},
		{"client-port", "port of etcd's client listener", &c.ClientPort},
		{"peer-port", "port of etcd's peer listener", &c.PeerPort},
		{"metrics-port", "port of etcd's metrics and probes", &c.MetricsPort},
		{"agent-port", "port of the agent's probes, metrics and status", &c.AgentPort},
		{"listen-host", "address that the listeners bind; all when empty", &c.ListenHost},
	}
}

// AddFlags adds the start options to set. What c holds is their default.
func (c *Config) AddFlags(set *pflag.FlagSet) {
	for _, f := range c.flags() {
		switch p := f.value.(type) {
		case *string:
			set.StringVar(p, f.name, *p, f.usage)
		case *int:
			set.IntVar(p, f.name, *p, f.usage)
		case *int64:
			set.Int64Var(p, f.name, *p, f.usage)
		case *time.Duration:
			set.DurationVar(p, f.name, *p, f.usage)
		}
	}
}

// Args writes the flags that make this configuration. They name every option that is set, also the defaults: an agent of
// another version in the same Pod must not fall back to defaults of its own.
func (c Config) Args() []string {
	var args []string
	for _, f := range c.flags() {
		var text string
		switch p := f.value.(type) {
		case *string:
			text = *p
		case *int:
			text = nonZero(int64(*p))
		case *int64:
			text = nonZero(*p)
		case *time.Duration:
			if *p != 0 {
				text = p.String()
			}
		}
		if text != "" {
			args = append(args, "--"+f.name+"="+text)
		}
	}
	return args
}

// Parse reads what Args wrote.
func Parse(args []string) (Config, error) {
	c := Default()
	set := pflag.NewFlagSet("agent", pflag.ContinueOnError)
	c.AddFlags(set)
	if err := set.Parse(args); err != nil {
		return Config{}, err
	}
	return c, nil
}

func nonZero(n int64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}
