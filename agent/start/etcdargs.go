package start

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/etcd-druid/druid/agent/certificates"
	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/agent/datadir/volume"
	"github.com/etcd-druid/druid/agent/transport"
	"github.com/etcd-druid/druid/leases"
)

// watchProgressNotify is how often etcd sends the revision to idle watchers. Kubernetes recommends this value for its
// watch cache.
const watchProgressNotify = 5 * time.Second

// start has the start parameters that do not come from the configuration.
type start struct {
	// fresh: form a new cluster. Else etcd refuses to form one, also when it finds the volume empty.
	fresh bool
	// cluster is --initial-cluster, token is --initial-cluster-token. etcd ignores both if there is a log.
	cluster, token string
	maxLearners    int
	// skipPeerNames: etcd does not compare the names in the certificate of a peer with the address of the peer.
	skipPeerNames bool
	// unchecked: etcd starts although the data of another member differs.
	unchecked bool
}

// argv returns the command line of etcd. It sets every flag that can differ from the default of etcd, so that a start
// does not depend on the environment.
func argv(cfg config.Config, peerURL string, clientHost string, s start) ([]string, error) {
	minor, err := minorOf(cfg.EtcdVersion)
	if err != nil {
		return nil, err
	}
	state := "existing"
	if s.fresh {
		state = "new"
	}
	host := listenHost(cfg)
	args := []string{
		cfg.EtcdPath,
		"--name=" + cfg.Member,
		"--data-dir=" + volume.DataPath(cfg.VolumePath),
		"--initial-advertise-peer-urls=" + peerURL,
		"--listen-peer-urls=" + transport.URL(isSecure(peerURL), host, cfg.PeerPort),
		"--advertise-client-urls=" + clientURLs(cfg, clientHost),
		"--listen-client-urls=" + clientURLs(cfg, host),
		// Probes and metrics stay plain HTTP: they hold no data, and the kubelet has no client certificate.
		"--listen-metrics-urls=" + transport.URL(false, host, cfg.MetricsPort),
		"--initial-cluster-state=" + state,
		"--initial-cluster=" + s.cluster,
		"--initial-cluster-token=" + s.token,
		"--strict-reconfig-check=true",
		"--pre-vote=true",
		"--logger=zap",
		"--log-outputs=stderr",
	}
	args = append(args, certificates.Args(cfg)...)
	args = append(args, options(cfg)...)
	if s.skipPeerNames {
		args = append(args, skipPeerNames(minor))
	}
	return append(args, ofMinor(minor, s)...), nil
}

// clientURLs returns the URLs of the client port: with plain text with TLS, one for each. etcd serves both on one port. The first
// one is plain text, because agents without certificates use the first one that a member advertises.
func clientURLs(cfg config.Config, host string) string {
	if cfg.ClientPlaintext {
		return transport.URL(false, host, cfg.ClientPort) + "," + transport.URL(true, host, cfg.ClientPort)
	}
	return transport.URL(cfg.ClientTLS != config.TLSOff, host, cfg.ClientPort)
}

func isSecure(url string) bool { return strings.HasPrefix(url, leases.SchemeSecure+"://") }

// options returns the flags from the user's configuration. A zero value keeps the default of etcd.
func options(cfg config.Config) []string {
	var args []string
	number := func(flag string, n int64) {
		if n != 0 {
			args = append(args, fmt.Sprintf("--%s=%d", flag, n))
		}
	}
	number("quota-backend-bytes", cfg.QuotaBackendBytes)
	number("snapshot-count", cfg.SnapshotCount)
	number("heartbeat-interval", cfg.HeartbeatInterval.Milliseconds())
	number("election-timeout", cfg.ElectionTimeout.Milliseconds())
	if cfg.AutoCompactionRetention != "" {
		args = append(args, "--auto-compaction-retention="+cfg.AutoCompactionRetention)
	}
	if cfg.AutoCompactionMode != "" {
		args = append(args, "--auto-compaction-mode="+cfg.AutoCompactionMode)
	}
	return args
}

// ofMinor returns the flags whose name or existence depends on the minor version of etcd.
func ofMinor(minor int, s start) []string {
	check := strconv.FormatBool(!s.unchecked)
	if minor <= 5 {
		return []string{
			"--experimental-initial-corrupt-check=" + check,
			"--experimental-compact-hash-check-enabled=true",
			"--experimental-watch-progress-notify-interval=" + watchProgressNotify.String(),
		}
	}
	return []string{
		"--feature-gates=InitialCorruptCheck=" + check + ",CompactHashCheck=true",
		"--watch-progress-notify-interval=" + watchProgressNotify.String(),
		"--max-learners=" + strconv.Itoa(s.maxLearners),
		"--log-format=json",
	}
}

// skipPeerNames returns the flag with which etcd does not compare the names in the certificate of a peer with its address.
func skipPeerNames(minor int) string {
	if minor <= 5 {
		return "--experimental-peer-skip-client-san-verification=true"
	}
	return "--peer-skip-client-san-verification=true"
}

// minorOf returns the minor of an etcd version 3.minor.patch.
func minorOf(version string) (int, error) {
	parts := strings.Split(strings.TrimPrefix(version, "v"), ".")
	if len(parts) < 2 || parts[0] != "3" {
		return 0, fmt.Errorf("etcd version %q: want 3.minor.patch", version)
	}
	minor, err := strconv.Atoi(parts[1])
	if err != nil {
		return 0, fmt.Errorf("etcd version %q: want 3.minor.patch", version)
	}
	return minor, nil
}

// listenHost is the address that etcd binds. If the Pod has an IPv4 address, it is 0.0.0.0: a Pod network can have
// IPv6 disabled, and a bind to [::] then fails.
func listenHost(cfg config.Config) string {
	if cfg.ListenHost != "" {
		return cfg.ListenHost
	}
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return "0.0.0.0"
	}
	for _, a := range addresses {
		if ip, ok := a.(*net.IPNet); ok && ip.IP.IsGlobalUnicast() && ip.IP.To4() != nil {
			return "0.0.0.0"
		}
	}
	return "::"
}
