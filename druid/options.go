package druid

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/agent/config"
)

// Options are druid's start options.
type Options struct {
	// AgentImage is the image of the agents, with its tag. Empty: the image of druid's own Pod, which Pod names.
	AgentImage string
	// EtcdImageRepository is the image of etcd, without a tag, for clusters that leave spec.image at its default. Empty: that default.
	EtcdImageRepository string
	Pod                 types.NamespacedName
	// Namespaces to watch; all when empty.
	Namespaces []string
	// LeaderElect allows several replicas, one of which is active. Its Lease is in LeaderNamespace.
	LeaderElect bool
	// LeaderNamespace is druid's own namespace when it is empty.
	LeaderNamespace string
	// HealthAddress serves /healthz and /readyz, MetricsAddress /metrics; 0 switches either off.
	HealthAddress, MetricsAddress string
	// MetricsSecure serves /metrics over HTTPS, and only to owners of a token that may get it. MetricsCertDir has the certificate, as
	// tls.crt and tls.key; if it is empty, druid signs one itself.
	MetricsSecure  bool
	MetricsCertDir string
	// LogLevel is debug, info, warn or error.
	LogLevel string
	// Concurrency is the number of clusters that are worked on at once.
	Concurrency int
	// NotReadyGracePeriod is how long a member's etcd may be not ready before its Pod is restarted. It doubles after each
	// restart in a row, up to an hour. A Node must be gone for as long before it counts as lost.
	NotReadyGracePeriod time.Duration
	// AgentRenewInterval is how often an agent renews its member's Lease, and AgentLeaseDuration after how long without a renewal
	// observers call the Lease stale.
	AgentRenewInterval, AgentLeaseDuration time.Duration
	// SuperfluousGracePeriod is how long the leader's agent must have seen an etcd member that is not desired before it removes it,
	// and the least time between two such removals.
	SuperfluousGracePeriod time.Duration
	// ComparisonInterval is how often the leader's agent compares the data of all voters.
	ComparisonInterval time.Duration
	// ClusterDomain is the DNS domain of the Kubernetes cluster, for which certificates are valid. Empty: druid takes it from
	// its own resolv.conf.
	ClusterDomain string
}

// acknowledgeTimeout is how long the same member must be the only one that says that it leads before druid believes that its
// agent removed another member. A new leader's agent reports at once that its member leads, and again at its next renewal, so two
// intervals leave time for a report that failed once.
func (o Options) acknowledgeTimeout() time.Duration { return 2 * o.AgentRenewInterval }

// leaseTimeout is how long at least no Pod of a member comes before druid frees its slot, or removes a learner that never started. By then
// the Lease of a leader is not live any more, unless its agent reached the API server since and published the member list.
func (o Options) leaseTimeout() time.Duration { return o.AgentLeaseDuration + o.AgentRenewInterval }

// DefaultOptions are those of an installation that says nothing.
func DefaultOptions() Options {
	agents := config.DefaultReloadable()
	return Options{
		LeaderElect:    true,
		HealthAddress:  ":8081",
		MetricsAddress: ":8080",
		LogLevel:       "info",
		// A worker holds a cluster for the API calls of one pass, some milliseconds each: 32 keep up with hundreds of
		// clusters that are created at once, and cost nothing while they are idle.
		Concurrency: 32,
		// The replay of a log and the copy of a database take a minute or two on slow disks; etcd-druid's users know this
		// number.
		NotReadyGracePeriod:    5 * time.Minute,
		AgentRenewInterval:     time.Duration(agents.RenewInterval),
		AgentLeaseDuration:     time.Duration(agents.LeaseDuration),
		SuperfluousGracePeriod: time.Duration(agents.SuperfluousGracePeriod),
		ComparisonInterval:     time.Duration(agents.ComparisonInterval),
	}
}

// The flags of the agents' intervals.
const (
	flagRenewInterval    = "agent-renew-interval"
	flagLeaseDuration    = "agent-lease-duration"
	flagSuperfluousGrace = "superfluous-grace-period"
	flagComparison       = "comparison-interval"
)

// flagEtcdRepository is the flag of the image of etcd.
const flagEtcdRepository = "etcd-image-repository"

// The flags of the metrics.
const (
	flagMetricsSecure  = "metrics-secure"
	flagMetricsCertDir = "metrics-cert-dir"
)

// reloadable is what the agents of all clusters read from their configuration.
func (o Options) reloadable() config.Reloadable {
	r := config.DefaultReloadable()
	r.RenewInterval, r.LeaseDuration = config.Duration(o.AgentRenewInterval), config.Duration(o.AgentLeaseDuration)
	r.SuperfluousGracePeriod = config.Duration(o.SuperfluousGracePeriod)
	r.ComparisonInterval = config.Duration(o.ComparisonInterval)
	return r
}

// The leader election between replicas of druid. After a kill -9 the other one has seen the Lease unchanged for its
// duration, and asks again, at most 14 s + 1.2 × 4 s later (client-go's jitter): below the 20 s that are promised. Each
// replica asks once in retryPeriod, which is most of what an idle druid does.
const (
	leaseDuration = 14 * time.Second
	renewDeadline = 10 * time.Second
	retryPeriod   = 4 * time.Second
)

// minGracePeriod is what a member needs to start and to answer its first probes.
const minGracePeriod = 10 * time.Second

// AddFlags adds the options to set. What o holds is their default.
func (o *Options) AddFlags(set *pflag.FlagSet) {
	set.StringVar(&o.AgentImage, "agent-image", o.AgentImage, "image of the agents, with its tag; if empty, the image of the Pod of druid")
	set.StringVar(&o.EtcdImageRepository, flagEtcdRepository, o.EtcdImageRepository,
		"image of etcd, without a tag, for clusters that leave spec.image at its default, such as registry.example.com/etcd; no running Pod is replaced")
	set.StringSliceVar(&o.Namespaces, "namespaces", o.Namespaces, "namespaces to watch, all when empty")
	set.BoolVar(&o.LeaderElect, "leader-elect", o.LeaderElect, "enable leader election, which is required to run more than one replica")
	set.StringVar(&o.LeaderNamespace, "leader-namespace", o.LeaderNamespace, "namespace of the Lease for leader election, druid's own when empty")
	set.StringVar(&o.HealthAddress, "health-address", o.HealthAddress, "address of /healthz and /readyz, 0 for none")
	set.StringVar(&o.MetricsAddress, "metrics-address", o.MetricsAddress, "address of /metrics, 0 for none")
	set.BoolVar(&o.MetricsSecure, flagMetricsSecure, o.MetricsSecure,
		"serve /metrics over HTTPS, to callers whose token of Kubernetes permits to get /metrics")
	set.StringVar(&o.MetricsCertDir, flagMetricsCertDir, o.MetricsCertDir,
		"directory of the certificate for /metrics, as tls.crt and tls.key; if empty, druid signs one itself")
	set.StringVar(&o.LogLevel, "log-level", o.LogLevel, "debug, info, warn or error")
	set.DurationVar(&o.NotReadyGracePeriod, "not-ready-grace-period", o.NotReadyGracePeriod,
		"time that a member's etcd may be not ready before its Pod is restarted; doubles after each consecutive restart")
	set.DurationVar(&o.AgentRenewInterval, flagRenewInterval, o.AgentRenewInterval, "interval at which an agent renews its member's Lease")
	set.DurationVar(&o.AgentLeaseDuration, flagLeaseDuration, o.AgentLeaseDuration,
		"time without a renewal after which a member's Lease is stale; at least three renewal intervals")
	set.DurationVar(&o.SuperfluousGracePeriod, flagSuperfluousGrace, o.SuperfluousGracePeriod,
		"time before the leader's agent removes a member that is not desired, and between two such removals; "+
			"at least 10s and the agents' Lease duration")
	set.DurationVar(&o.ComparisonInterval, flagComparison, o.ComparisonInterval,
		"interval at which the leader's agent compares the data of all members by HashKV, for which each member reads its complete database")
	set.StringVar(&o.ClusterDomain, "cluster-domain", o.ClusterDomain,
		"DNS domain of the Kubernetes cluster, for which certificates are valid; if empty, druid reads it from its resolv.conf")
	set.IntVar(&o.Concurrency, "concurrency", o.Concurrency, "number of clusters that druid reconciles at the same time")
}

// Validate names every option that is missing or out of its range.
func (o Options) Validate() error {
	var errs []error
	if o.AgentImage == "" && (o.Pod.Namespace == "" || o.Pod.Name == "") {
		errs = append(errs, fmt.Errorf("--agent-image is empty, and the variables %s and %s do not name the Pod of druid; "+
			"set the image of the agents, or both variables by the downward API", variablePodNamespace, variablePodName))
	}
	if o.Concurrency < 1 || o.Concurrency > 1000 {
		errs = append(errs, fmt.Errorf("--concurrency is %d, want 1 to 1000", o.Concurrency))
	}
	if o.NotReadyGracePeriod < minGracePeriod {
		errs = append(errs, fmt.Errorf("--not-ready-grace-period is %s, want at least %s", o.NotReadyGracePeriod, minGracePeriod))
	}
	errs = append(errs, o.reloadable().ValidateIntervals(config.IntervalNames{
		Renew: "--" + flagRenewInterval, Lease: "--" + flagLeaseDuration, Grace: "--" + flagSuperfluousGrace, Comparison: "--" + flagComparison,
	}))
	if o.ClusterDomain != "" {
		if why := validation.IsDNS1123Subdomain(o.ClusterDomain); len(why) > 0 {
			errs = append(errs, fmt.Errorf("--cluster-domain is %q: %s", o.ClusterDomain, why[0]))
		}
	}
	if o.EtcdImageRepository != "" && !repositories.MatchString(o.EtcdImageRepository) {
		errs = append(errs, fmt.Errorf("--%s is %q, want a repository without a tag and without a digest, like registry.example.com/etcd",
			flagEtcdRepository, o.EtcdImageRepository))
	}
	for _, namespace := range o.Namespaces {
		if why := validation.IsDNS1123Label(namespace); len(why) > 0 {
			errs = append(errs, fmt.Errorf("--namespaces names %q: %s", namespace, why[0]))
		}
	}
	errs = append(errs, validAddress("--health-address", o.HealthAddress), validAddress("--metrics-address", o.MetricsAddress), o.validMetrics())
	return errors.Join(errs...)
}

// repositories matches what spec.image of an EtcdCluster may be: a colon stands only before the port of a registry.
var repositories = regexp.MustCompile(`^[a-z0-9][a-zA-Z0-9._-]*(:[0-9]+)?(/[a-zA-Z0-9._-]*[a-zA-Z0-9])+$`)

// validMetrics says what is wrong with the certificate of the metrics. Without this check, controller-runtime would sign one itself in
// place of a file that is missing.
func (o Options) validMetrics() error {
	if o.MetricsCertDir == "" {
		return nil
	}
	if !o.MetricsSecure {
		return fmt.Errorf("--%s needs --%s; set both, or neither", flagMetricsCertDir, flagMetricsSecure)
	}
	certificate, key := filepath.Join(o.MetricsCertDir, corev1.TLSCertKey), filepath.Join(o.MetricsCertDir, corev1.TLSPrivateKeyKey)
	if _, err := tls.LoadX509KeyPair(certificate, key); err != nil {
		return fmt.Errorf("--%s: read %s and %s: %w", flagMetricsCertDir, corev1.TLSCertKey, corev1.TLSPrivateKeyKey, err)
	}
	return nil
}

// resolvConf is where a kubelet writes the domain of the Kubernetes cluster for a Pod.
const resolvConf = "/etc/resolv.conf"

// clusterDomain returns the domain that the user gave, or the one in the search path of the resolver configuration:
// Kubernetes writes <namespace>.svc.<domain>, svc.<domain> and <domain> there. Without either it is cluster.local, the
// default of Kubernetes.
func (o Options) clusterDomain(resolver string) string {
	if o.ClusterDomain != "" {
		return o.ClusterDomain
	}
	for line := range strings.Lines(resolver) {
		fields := strings.Fields(line)
		if len(fields) == 0 || fields[0] != "search" {
			continue
		}
		for _, entry := range fields[1:] {
			if domain, found := strings.CutPrefix(entry, "svc."); found {
				return strings.TrimSuffix(domain, ".")
			}
		}
	}
	return "cluster.local"
}

func validAddress(flag, address string) error {
	if address == "0" {
		return nil
	}
	if _, _, err := net.SplitHostPort(address); err != nil {
		return fmt.Errorf("%s is %q, want host:port or 0", flag, address)
	}
	return nil
}

// The environment variables that name the Pod of druid. The Deployment sets them by the downward API.
const (
	variablePodNamespace = "POD_NAMESPACE"
	variablePodName      = "POD_NAME"
)

// ownContainer is the container of druid in its Pod.
const ownContainer = "druid"

// ownImageTimeout bounds the only request before druid starts: the kubelet restarts a druid that cannot reach the API server.
const ownImageTimeout = 30 * time.Second

// readImage sets the image of the agents to that of druid's own Pod, which also contains the agent. So a tool that changes the image of
// the Deployment, or a webhook that changes that of its Pods, changes that of the agents too.
func (o *Options) readImage(ctx context.Context, reader client.Reader) error {
	ctx, cancel := context.WithTimeout(ctx, ownImageTimeout)
	defer cancel()
	pod := &corev1.Pod{}
	if err := reader.Get(ctx, o.Pod, pod); err != nil {
		return fmt.Errorf("read the image of the agents from Pod %s of druid: %w; permit druid to get it, or set --agent-image", o.Pod, err)
	}
	for _, c := range pod.Spec.Containers {
		if c.Name == ownContainer {
			o.AgentImage = c.Image
			return nil
		}
	}
	return fmt.Errorf("read the image of the agents from Pod %s of druid: it has no container %s; set --agent-image", o.Pod, ownContainer)
}
