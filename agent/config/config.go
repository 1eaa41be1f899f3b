package config

import (
	"cmp"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/pflag"
)

// Ports and paths that the Pod, the Services and the agent agree on.
const (
	ClientPort  = 2379
	PeerPort    = 2380
	MetricsPort = 2381 // etcd's own /readyz, /livez and /metrics, plain HTTP
	AgentPort   = 8080 // the agent's /healthz, /readyz, /livez, /metrics and /v1/status, plain HTTP
	APIPort     = 8443 // the agent's API, which acts: HTTPS, where clients use TLS

	AgentDir   = "/druid" // emptyDir shared by install, agent and etcd
	AgentPath  = AgentDir + "/agent"
	SocketPath = AgentDir + "/s"
	VolumePath = "/var/lib/etcd" // the member's volume; the data dir is data/ in it
	ConfigDir  = "/etc/druid"
	ConfigFile = "config.yaml" // in ConfigDir
	// ServingFile, in ConfigDir, has the value of the label by which Services send clients to the Pod, and is empty without it.
	ServingFile = "serving"
	EtcdPath    = "/usr/local/bin/etcd"

	// The certificates, in a directory for each plane: TLSSource has the mounted Secrets, TLSDir what the agent found to
	// be good. TLSDir is memory that the agent and etcd share.
	TLSSource = "/run/druid/secrets"
	TLSDir    = "/run/druid/tls"
	// JoinSubdir, in TLSSource, has the Secret for the client port of the cluster to join.
	JoinSubdir = "join"
)

// TLSMode says how the connections of one kind are secured.
type TLSMode string

// The modes.
const (
	TLSOff    TLSMode = ""
	TLSServer TLSMode = "server" // only the member shows a certificate
	TLSMutual TLSMode = "mutual" // both sides do
)

// PeersSecure says whether the peers are to connect with TLS.
func (c *Config) PeersSecure() bool { return c.PeerTLS != TLSOff && !c.PeerPlaintext }

// DefaultQuotaBytes is the maximum size of a database in bytes if no quota is set (etcd: server/storage, DefaultQuotaBytes).
const DefaultQuotaBytes = 2 << 30

// Quota returns the maximum size of the database, in bytes.
func (c *Config) Quota() int64 { return cmp.Or(c.QuotaBackendBytes, DefaultQuotaBytes) }

// Config holds the start options of the agent. They are flags in the Pod, so that a change of one is a change of the
// Pod.
type Config struct {
	Namespace, Cluster, ClusterUID string
	// Member is the name of the Lease, the PersistentVolumeClaim, the Pod, the host and the etcd member.
	Member string
	// PodUID of this Pod, from the downward API.
	PodUID string
	// PeerService is the headless Service that resolves the members' names.
	PeerService string
	// ClientService is the Service that clients connect to.
	ClientService string
	// EtcdVersion is the major.minor.patch version of the image. It decides which flags etcd gets.
	EtcdVersion string
	// EtcdPath, VolumePath, SocketPath, ConfigPath: paths in the containers.
	EtcdPath, VolumePath, SocketPath, ConfigPath string
	// Options of etcd; zero values leave etcd's own defaults.
	QuotaBackendBytes                  int64
	AutoCompactionMode                 string // periodic or revision
	AutoCompactionRetention            string
	SnapshotCount                      int64
	HeartbeatInterval, ElectionTimeout time.Duration
	ClientPort, PeerPort               int
	MetricsPort, AgentPort, APIPort    int
	// Restore is what the first start restores, in the format of Restore.Encode. It is empty for a cluster that begins
	// empty.
	Restore string
	// Join are the comma-separated client endpoints of a running cluster that the first start joins. It is empty for a
	// cluster that is formed here.
	Join string
	// JoinTLS is the directory with the certificates for that cluster. It is empty if its clients use plain text.
	JoinTLS string
	// ListenHost is the address that the listeners bind. Empty means all addresses.
	ListenHost string
	// ClientTLS and PeerTLS say how the connections of clients and of peers are secured. Peers have no TLSServer.
	ClientTLS, PeerTLS TLSMode
	// ClientPlaintext says that etcd serves clients in plain text too, on the same port, and that other members possibly do not use
	// TLS yet. PeerPlaintext says that peers connect in plain text although they have certificates.
	ClientPlaintext, PeerPlaintext bool
	// TLSSource is the directory with the mounted certificates, TLSDir the one for those that are in effect.
	TLSSource, TLSDir string
}

// Default is the configuration of an agent in a Pod of druid. Fields that differ between members are empty.
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
		APIPort:     APIPort,
	}
}

// flag is one start option. AddFlags, Args and the documentation use the same list.
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
		{"peer-service", "headless Service that resolves the members' names", &c.PeerService},
		{"client-service", "Service that clients connect to", &c.ClientService},
		{"etcd-version", "version of the etcd image, major.minor.patch", &c.EtcdVersion},
		{"etcd", "path of the etcd binary in the etcd container", &c.EtcdPath},
		{"volume", "path of the member's volume", &c.VolumePath},
		{"socket", "path of the Unix socket between launch and the agent", &c.SocketPath},
		{"config", "path of the configuration file; the agent reloads it when it changes", &c.ConfigPath},
		{"quota-backend-bytes", "etcd's --quota-backend-bytes; 0 for etcd's default", &c.QuotaBackendBytes},
		{"auto-compaction-mode", "etcd's --auto-compaction-mode: periodic or revision", &c.AutoCompactionMode},
		{"auto-compaction-retention", "etcd's --auto-compaction-retention", &c.AutoCompactionRetention},
		{"snapshot-count", "etcd's --snapshot-count; 0 for etcd's default", &c.SnapshotCount},
		{"heartbeat-interval", "etcd's --heartbeat-interval; 0 for etcd's default", &c.HeartbeatInterval},
		{"election-timeout", "etcd's --election-timeout; 0 for etcd's default", &c.ElectionTimeout},
		{"restore", "restore at the first start of a new cluster, as JSON; a formed cluster ignores it", &c.Restore},
		{"join", "comma-separated client endpoints of the running cluster that a new cluster joins at its first start", &c.Join},
		{"join-tls", "directory with the certificates for the client port of that cluster; empty for plain text", &c.JoinTLS},
		{"client-port", "port of etcd's client listener", &c.ClientPort},
		{"peer-port", "port of etcd's peer listener", &c.PeerPort},
		{"metrics-port", "port of etcd's metrics and probes", &c.MetricsPort},
		{"agent-port", "port of the agent's probes, metrics and status", &c.AgentPort},
		{"api-port", "port of the agent's API over HTTPS; not used without TLS of clients", &c.APIPort},
		{"listen-host", "address that the listeners bind; all addresses if empty", &c.ListenHost},
		{"client-tls", "TLS of clients: mutual, server, or empty for none", (*string)(&c.ClientTLS)},
		{"peer-tls", "TLS of peers: mutual, or empty for none", (*string)(&c.PeerTLS)},
		{"client-plaintext", "serve clients in plain text too, and reach members that do not use TLS yet", &c.ClientPlaintext},
		{"peer-plaintext", "connect to peers in plain text although they have certificates", &c.PeerPlaintext},
		{"tls-source", "directory with the mounted certificates", &c.TLSSource},
		{"tls-dir", "directory for the certificates in effect, which etcd reads", &c.TLSDir},
	}
}

// AddFlags adds the start options to set. The values in c are the defaults.
func (c *Config) AddFlags(set *pflag.FlagSet) {
	for _, f := range c.flags() {
		switch p := f.value.(type) {
		case *string:
			set.StringVar(p, f.name, *p, f.usage)
		case *bool:
			set.BoolVar(p, f.name, *p, f.usage)
		case *int:
			set.IntVar(p, f.name, *p, f.usage)
		case *int64:
			set.Int64Var(p, f.name, *p, f.usage)
		case *time.Duration:
			set.DurationVar(p, f.name, *p, f.usage)
		}
	}
}

// Args returns the flags for this configuration. They include every option that is set, defaults too: an agent of
// another version in the same Pod must not use its own defaults.
func (c Config) Args() []string {
	var args []string
	for _, f := range c.flags() {
		var text string
		switch p := f.value.(type) {
		case *string:
			text = *p
		case *bool:
			if *p {
				text = "true"
			}
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

// Duration is a time.Duration in text form, like 15s.
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
