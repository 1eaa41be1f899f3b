package config

import "time"

// Ports and paths that the Pod, the Services and the agent agree on.
const (
	ClientPort  = 2379
	PeerPort    = 2380
	MetricsPort = 2381 // etcd's own /readyz, /livez and /metrics, plain HTTP
	AgentPort   = 8080 // the agent's /healthz, /readyz, /livez, /metrics and /v1/status

	AgentDir   = "/druid" // emptyDir shared by install, agent and etcd
	AgentPath  = AgentDir + "/agent"
	SocketPath = AgentDir + "/s"
	VolumePath = "/var/lib/etcd" // the member's volume; the data dir is data/ in it
	ConfigDir  = "/etc/druid"
	ConfigFile = "config.yaml" // in ConfigDir
	EtcdPath   = "/usr/local/bin/etcd"
)

// Config holds the agent's start options. They are flags in the Pod, so that a change of one is a change of the Pod.
type Config struct {
	Namespace, Cluster, ClusterUID string
	// Member is the one name of Lease, PersistentVolumeClaim, Pod, hostname and etcd member.
	Member string
	// PodUID of this Pod, from the downward API.
	PodUID string
	// PeerService is the headless Service under which the members' names resolve.
	PeerService string
	// ClientService is the Service that clients dial.
	ClientService string
	// EtcdVersion is major.minor.patch of the image; it decides which flags etcd is given.
	EtcdVersion string
	// EtcdPath, VolumePath, SocketPath, ConfigPath: where things are in the containers.
	EtcdPath, VolumePath, SocketPath, ConfigPath string
	// Options of etcd; zero values leave etcd's own defaults.
	QuotaBackendBytes                  int64
	AutoCompactionMode                 string // periodic or revision
	AutoCompactionRetention            string
	SnapshotCount                      int64
	HeartbeatInterval, ElectionTimeout time.Duration
	ClientPort, PeerPort               int
	MetricsPort, AgentPort             int
	// Restore is what the first boot restores, as Restore.Encode writes it; empty for a cluster that begins empty.
	Restore string
	// Join are the client endpoints of a running cluster that the first boot joins, between commas; empty for a cluster that is
	// formed here.
	Join string
	// ListenHost is the address that the listeners bind, all addresses when empty.
	ListenHost string
}
