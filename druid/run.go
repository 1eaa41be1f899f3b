package druid

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/kubernetes/scheme"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	crmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	crsource "sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/druid/control"
	"github.com/etcd-druid/druid/druid/snapshot"
	"github.com/etcd-druid/druid/internal/cli"
	"github.com/etcd-druid/druid/internal/crash"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/manifests"
)

const (
	// firstRetry and lastRetry bound the pause after an error, which doubles each time. controller-runtime's own goes up to 1000 s:
	// what a webhook or a quota refused would wait for that long after it was repaired.
	firstRetry = 5 * time.Millisecond
	lastRetry  = control.NamePause
)

// leaderElectionID is the name of the Lease for which druid's replicas campaign.
const leaderElectionID = "druid"

// Druid is the controller with its caches and servers.
type Druid struct {
	manager manager.Manager
	fleet   *fleet
	log     *slog.Logger
}

// New makes a druid that talks to the API server of restConfig. Nothing runs before Run.
func New(ctx context.Context, restConfig *rest.Config, o Options, log *slog.Logger) (*Druid, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	restConfig = rest.CopyConfig(restConfig)
	// The API server's own priority and fairness limits druid; a limit here would make clusters wait for one another.
	restConfig.QPS = -1
	mgr, err := manager.New(restConfig, managerOptions(o, log))
	if err != nil {
		return nil, fmt.Errorf("create the manager: %w", err)
	}
	if o.AgentImage == "" {
		if err := o.readImage(ctx, mgr.GetAPIReader()); err != nil {
			return nil, err
		}
		log.InfoContext(ctx, "image of the agents read from the own Pod", "image", o.AgentImage)
	}
	r, err := newReconciler(mgr, restConfig, o, log)
	if err != nil {
		return nil, err
	}
	if err := watch(ctx, mgr, r, o); err != nil {
		return nil, err
	}
	if err := snapshotsOf(r).Watch(ctx, mgr, o.Concurrency); err != nil {
		return nil, err
	}
	if err := addChecks(mgr); err != nil {
		return nil, err
	}
	return &Druid{manager: mgr, fleet: newFleet(mgr.GetClient(), mgr.Elected(), log), log: log}, nil
}

// Run works until ctx ends, then gives the leadership away.
func (d *Druid) Run(ctx context.Context) error {
	// The registry is the process's: another druid in it, as in tests, goes uncounted, and this one is counted while it runs.
	if err := crmetrics.Registry.Register(d.fleet); err == nil {
		defer crmetrics.Registry.Unregister(d.fleet)
	} else if !errors.As(err, &prometheus.AlreadyRegisteredError{}) {
		return fmt.Errorf("register the metrics of all clusters: %w", err)
	}
	d.log.InfoContext(ctx, "druid started")
	if err := d.manager.Start(ctx); err != nil {
		return fmt.Errorf("run druid: %w", err)
	}
	d.log.InfoContext(ctx, "druid stopped")
	return nil
}

func managerOptions(o Options, log *slog.Logger) manager.Options {
	return manager.Options{
		Scheme:                        newScheme(),
		Logger:                        logr.FromSlogHandler(log.Handler()),
		Cache:                         cacheOptions(o.Namespaces),
		LeaderElection:                o.LeaderElect,
		LeaderElectionID:              leaderElectionID,
		LeaderElectionNamespace:       o.LeaderNamespace,
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 new(leaseDuration),
		RenewDeadline:                 new(renewDeadline),
		RetryPeriod:                   new(retryPeriod),
		HealthProbeBindAddress:        o.HealthAddress,
		Metrics:                       metricsOptions(o, log),
	}
}

func metricsOptions(o Options, log *slog.Logger) metricsserver.Options {
	m := metricsserver.Options{BindAddress: o.MetricsAddress}
	if o.MetricsSecure {
		m.SecureServing, m.CertDir, m.FilterProvider = true, o.MetricsCertDir, scrapersOnly(log)
	}
	return m
}

func newScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	// Neither can fail: both only fill maps.
	_ = scheme.AddToScheme(s)
	_ = v1alpha1.AddToScheme(s)
	return s
}

// watched are the kinds of the objects of a cluster, except Leases.
var watched = []client.Object{
	&corev1.Pod{}, &corev1.PersistentVolumeClaim{}, &policyv1.PodDisruptionBudget{}, &corev1.Service{},
	&corev1.ServiceAccount{}, &corev1.ConfigMap{}, &rbacv1.Role{}, &rbacv1.RoleBinding{}, &networkingv1.NetworkPolicy{},
}

// cacheOptions restricts the caches to objects with the cluster label, so that they do not hold every Pod and Lease of
// the Kubernetes cluster.
func cacheOptions(namespaces []string) cache.Options {
	o := cache.Options{
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject:         map[client.Object]cache.ByObject{},
	}
	for _, namespace := range namespaces {
		if o.DefaultNamespaces == nil {
			o.DefaultNamespaces = map[string]cache.Config{}
		}
		o.DefaultNamespaces[namespace] = cache.Config{}
	}
	// The key is a constant and valid.
	requirement, _ := labels.NewRequirement(leases.LabelCluster, selection.Exists, nil)
	selector := labels.NewSelector().Add(*requirement)
	o.ByObject[&coordinationv1.Lease{}] = cache.ByObject{Label: selector}
	for _, object := range watched {
		o.ByObject[object] = cache.ByObject{Label: selector}
	}
	return o
}

func newReconciler(mgr manager.Manager, restConfig *rest.Config, o Options, log *slog.Logger) (*Reconciler, error) {
	coordination, err := coordinationclient.NewForConfigAndClient(restConfig, mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("create a client for Leases: %w", err)
	}
	metrics, err := newMetrics(crmetrics.Registry)
	if err != nil {
		return nil, fmt.Errorf("register the metrics: %w", err)
	}
	return &Reconciler{
		client: mgr.GetClient(),
		cached: source{mgr.GetClient(), func(cluster string) client.ListOption {
			return client.MatchingFields{clusterIndex: cluster}
		}},
		live: source{mgr.GetAPIReader(), func(cluster string) client.ListOption {
			return client.MatchingLabels{leases.LabelCluster: cluster}
		}},
		leases: coordination,
		manifests: manifests.Options{AgentImage: o.AgentImage, EtcdRepository: o.EtcdImageRepository,
			ClusterDomain: o.clusterDomain(resolver()), Reloadable: o.reloadable()},
		memory:             newMemory(),
		expiries:           make(chan event.GenericEvent),
		recorder:           mgr.GetEventRecorder("druid"),
		metrics:            metrics,
		log:                log,
		now:                time.Now,
		grace:              o.NotReadyGracePeriod,
		acknowledgeTimeout: o.acknowledgeTimeout(),
		leaseTimeout:       o.leaseTimeout(),
		renewInterval:      o.AgentRenewInterval,
		draw:               func() string { return utilrand.String(nameLetters) },
	}, nil
}

// resolver returns the resolver configuration, empty if there is none, as outside of a Pod.
func resolver() string {
	raw, err := os.ReadFile(resolvConf)
	if err != nil {
		return ""
	}
	return string(raw)
}

// snapshotsOf returns the controller of EtcdSnapshots that works with what r works with.
func snapshotsOf(r *Reconciler) *snapshot.Reconciler {
	return &snapshot.Reconciler{
		Client: r.client, Live: r.live, Leases: r.leases, Recorder: r.recorder, Steps: r.metrics.steps, Events: r.metrics.events, Log: r.log, Now: r.now,
		Manifests: r.manifests,
	}
}

const (
	// clusterIndex finds a cluster's objects in the caches without a look at those of all others.
	clusterIndex = "cluster"
	// nameLetters behind the cluster's name in a member's name, as in the names of a ReplicaSet's Pods.
	nameLetters = 5
)

func watch(ctx context.Context, mgr manager.Manager, r *Reconciler, o Options) error {
	indexed := []client.Object{&coordinationv1.Lease{}, &corev1.Pod{}, &corev1.PersistentVolumeClaim{}}
	for _, object := range indexed {
		err := mgr.GetFieldIndexer().IndexField(ctx, object, clusterIndex, func(o client.Object) []string {
			return []string{o.GetLabels()[leases.LabelCluster]}
		})
		if err != nil {
			return fmt.Errorf("index %T by cluster: %w", object, err)
		}
	}
	b := builder.ControllerManagedBy(mgr).
		Named("etcdcluster").
		For(&v1alpha1.EtcdCluster{}, builder.WithPredicates(control.SpecChanged)).
		Watches(&coordinationv1.Lease{}, r.leaseHandler()).
		// One that druid made itself is waited for: the verified backup before a change of version.
		Watches(&v1alpha1.EtcdSnapshot{}, handler.EnqueueRequestForOwner(mgr.GetScheme(), mgr.GetRESTMapper(), &v1alpha1.EtcdCluster{})).
		WatchesRawSource(crsource.Channel(r.expiries, &handler.EnqueueRequestForObject{})).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: o.Concurrency,
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, lastRetry),
			// A replica that waits for the leadership watches too, so that it knows which Leases are alive when it gets it.
			EnableWarmup: new(true),
			// The name is a label of metrics, and the tests run two druids in one process.
			SkipNameValidation: new(true),
		})
	for _, object := range watched {
		b = b.Watches(object, handler.EnqueueRequestsFromMapFunc(control.ToCluster))
	}
	if err := b.Complete(r); err != nil {
		return fmt.Errorf("create the controller: %w", err)
	}
	if err := mgr.Add(manager.RunnableFunc(r.watchExpiries)); err != nil {
		return fmt.Errorf("add the watch for expired Leases: %w", err)
	}
	return nil
}

// addChecks: alive is who answers; ready is who has the caches, also without the leadership.
func addChecks(mgr manager.Manager) error {
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return fmt.Errorf("add the health check: %w", err)
	}
	synced := func(request *http.Request) error {
		ctx, cancel := context.WithTimeout(request.Context(), time.Second)
		defer cancel()
		if !mgr.GetCache().WaitForCacheSync(ctx) {
			return errors.New("the caches are not synced yet")
		}
		return nil
	}
	if err := mgr.AddReadyzCheck("caches", synced); err != nil {
		return fmt.Errorf("add the readiness check: %w", err)
	}
	return nil
}

// NewCommand is druid's command line. level decides what log writes.
func NewCommand(log *slog.Logger, level *slog.LevelVar) *cobra.Command {
	o := DefaultOptions()
	cmd := &cobra.Command{
		Use:   "druid",
		Short: "Run etcd clusters on Kubernetes",
		Long: "druid watches EtcdClusters and creates the Leases, PersistentVolumeClaims and Pods of their members. It connects\n" +
			"only to Kubernetes. An agent next to each etcd decides how that etcd starts.",
		Example: "  druid --health-address=:8081 --metrics-address=:8080\n  druid --namespaces team-a,team-b --log-level debug",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			parsed, err := cli.ParseLevel(o.LogLevel)
			if err != nil {
				return fmt.Errorf("--log-level: %w", err)
			}
			level.Set(parsed)
			o.Pod = types.NamespacedName{Namespace: os.Getenv(variablePodNamespace), Name: os.Getenv(variablePodName)}
			// client-go writes to it too. Without one, its first message is a stack trace.
			ctrllog.SetLogger(logr.FromSlogHandler(log.Handler()))
			if err := crash.Arm(crash.Druid); err != nil {
				return err
			}
			restConfig, err := config.GetConfig()
			if err != nil {
				return fmt.Errorf("load the configuration for the Kubernetes API server: %w", err)
			}
			d, err := New(cmd.Context(), restConfig, o, log)
			if err != nil {
				return err
			}
			return d.Run(cmd.Context())
		},
	}
	o.AddFlags(cmd.Flags())
	cmd.AddCommand(cli.VersionCommand("  kubectl -n druid-system exec deployment/druid -- druid version"))
	return cmd
}
