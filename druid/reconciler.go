package druid

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/druid/control"
	"github.com/etcd-druid/druid/druid/policy"
	"github.com/etcd-druid/druid/internal/crash"
	"github.com/etcd-druid/druid/manifests"
)

// Reconciler brings one EtcdCluster at a time nearer to its spec. Passes for different clusters run at once and share
// nothing but memory, which no call holds while it waits.
type Reconciler struct {
	client    client.Client // reads from caches
	cached    source
	live      source
	leases    coordinationclient.CoordinationV1Interface
	manifests manifests.Options
	memory    *memory
	expiries  chan event.GenericEvent
	recorder  events.EventRecorder
	metrics   *metrics
	log       *slog.Logger
	now       func() time.Time
	// grace is how long etcd may be not ready before its Pod is restarted for the first time.
	grace time.Duration
	// acknowledgeTimeout and leaseTimeout are those of Options, and renewInterval is AgentRenewInterval.
	acknowledgeTimeout, leaseTimeout, renewInterval time.Duration
	// draw returns the random part of a member's name.
	draw func() string
}

// Reconcile observes, plans, takes the steps and writes the status if it changed. What it works towards is the spec that was
// adopted (see lock), never one that was edited a moment ago.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	cluster := &v1alpha1.EtcdCluster{}
	if err := r.client.Get(ctx, request.NamespacedName, cluster); err != nil {
		if apierrors.IsNotFound(err) {
			r.memory.forgetName(request.NamespacedName)
		}
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	cluster = r.memory.statuses.latest(cluster)
	if cluster.DeletionTimestamp != nil && !guarded(cluster) {
		r.memory.forgetCluster(cluster.UID)
		return reconcile.Result{}, nil // Kubernetes deletes what the cluster owns
	}
	// Each Pod that ends in a namespace that is being deleted requests a pass, and the pass could create nothing.
	if pause := r.memory.pauseOfNamespace(cluster.UID, r.now()); pause > 0 && cluster.DeletionTimestamp == nil {
		return reconcile.Result{RequeueAfter: pause}, nil
	}
	if handsOffEnded(cluster) {
		r.memory.forgetCluster(cluster.UID)
	}
	o, refused, stepErr := r.advance(ctx, cluster)
	if control.NamespaceEnds(stepErr) {
		r.memory.namespaceEnds(cluster.UID, r.now())
	}
	if o != nil {
		if err := r.writeStatus(ctx, o, refused); err != nil {
			stepErr = errors.Join(stepErr, err)
		}
		if len(refused) > 0 {
			o.lookAgain(control.NamePause)
		}
	}
	return r.result(ctx, cluster, o, stepErr)
}

// result says when the next pass is due, after a pass with an observation, if there was one, and its error.
func (r *Reconciler) result(ctx context.Context, cluster *v1alpha1.EtcdCluster, o *observation, err error) (reconcile.Result, error) {
	switch {
	case err == nil && o == nil: // it was let go
		return reconcile.Result{}, nil
	case err == nil:
		return reconcile.Result{RequeueAfter: o.again}, nil
	case control.Passing(err) > 0:
		return reconcile.Result{RequeueAfter: sooner(control.Passing(err), o)}, nil
	case r.goes(ctx, cluster):
		return reconcile.Result{}, nil // deleted while druid worked on it: what it needed went away
	default:
		return reconcile.Result{}, fmt.Errorf("reconcile EtcdCluster %s: %w", client.ObjectKeyFromObject(cluster), err)
	}
}

// sooner is the pause, or that after which the observation is to be made again, if there is one.
func sooner(pause time.Duration, o *observation) time.Duration {
	if o == nil {
		return pause
	}
	o.lookAgain(pause)
	return o.again
}

// maxPlans in one pass: one may hold the EtcdCluster, one may adopt the spec, one may make the record, one may add names to it, the
// last takes the steps.
const maxPlans = 5

// advance observes and takes steps until a plan leaves the spec and the record alone. Without an observation nothing was done
// by one, and err says why.
func (r *Reconciler) advance(ctx context.Context, cluster *v1alpha1.EtcdCluster) (o *observation, refused []policy.Problem, err error) {
	var record *coordinationv1.Lease
	for range maxPlans {
		r.memory.beginLook(client.ObjectKeyFromObject(cluster), cluster.UID)
		if o, err = r.observe(ctx, r.cached, cluster, record); err != nil {
			return nil, nil, err
		}
		r.memory.endLook(cluster.UID)
		switch written, over, err := r.guardDeletion(ctx, o); {
		case err != nil:
			return nil, nil, err
		case over && written != nil:
			return nil, nil, nil // it is let go
		case over:
			return o, nil, nil
		case written != nil:
			cluster = written
			continue
		}
		if o.lock.adoption.Rule != "" {
			if cluster, err = r.adopt(ctx, o); err != nil {
				return nil, nil, err
			}
			continue
		}
		if o.lock.waits() {
			return o, nil, nil
		}
		steps := policy.Steps(o.evaluation)
		if len(steps) == 0 || steps[0].Stage != policy.StageRecord {
			refused, err = r.apply(ctx, o, steps)
			return o, refused, err
		}
		if record, err = r.applyRecord(ctx, o, steps[0]); err != nil || record == nil {
			refused, err = classify(steps[0], err)
			return o, refused, err
		}
	}
	return o, nil, nil
}

// confirmed returns the observation and the step to take. If a step must be confirmed, druid plans again from live
// reads, and takes the step as the second plan has it. If the second plan does not have the step, confirmed returns no
// observation, and druid reconciles again soon.
//
// The objects that members share are not read again. They are no evidence for or against an irreversible step, and
// would be most of the reads.
func (r *Reconciler) confirmed(ctx context.Context, o *observation, step policy.Step) (*observation, policy.Step, error) {
	if !step.MustConfirm() {
		return o, step, nil
	}
	cluster := &v1alpha1.EtcdCluster{}
	if err := r.live.Get(ctx, client.ObjectKeyFromObject(o.cluster), cluster); client.IgnoreNotFound(err) != nil {
		return nil, step, err
	}
	if cluster.UID == o.cluster.UID {
		fresh, err := r.observe(ctx, source{unshared{r.live.Reader}, r.live.of}, cluster, nil)
		if err != nil {
			return nil, step, err
		}
		fresh.shared, fresh.observed.Objects = o.shared, o.observed.Objects
		fresh.observed.Budget, fresh.observed.BudgetMin, fresh.observed.BudgetExplanation = o.observed.Budget, o.observed.BudgetMin, o.observed.BudgetExplanation
		fresh.evaluate()
		steps := policy.Steps(fresh.evaluation)
		// If a spec is about to be accepted, its steps follow in the next pass.
		if i := slices.IndexFunc(steps, step.Same); i >= 0 && fresh.lock.adoption.Rule == "" {
			return fresh, steps[i], nil
		}
	}
	o.lookAgain(control.StaleCachePause)
	return nil, step, nil
}

// writeStatus writes the status once, and only if it changed.
func (r *Reconciler) writeStatus(ctx context.Context, o *observation, refused []policy.Problem) error {
	changed := o.cluster.DeepCopy()
	changed.Status = policy.Status(o.evaluation, o.cluster.Status, refused, o.lock.generation, metav1.NewTime(r.now()))
	changed.Status.Selector = metav1.FormatLabelSelector(&metav1.LabelSelector{MatchLabels: manifests.Selector(o.cluster.Name)})
	changed.Status.Endpoints, changed.Status.Binding = manifests.Endpoints(o.cluster), manifests.Binding(o.cluster)
	if equality.Semantic.DeepEqual(o.base.Status, changed.Status) {
		return nil
	}
	patch := client.MergeFromWithOptions(o.base, client.MergeFromWithOptimisticLock{})
	crash.Before("write-status")
	err := client.IgnoreNotFound(r.client.Status().Patch(ctx, changed, patch, client.FieldOwner(control.FieldOwner)))
	crash.After("write-status")
	if err != nil {
		return fmt.Errorf("patch status: %w", err)
	}
	r.memory.statuses.wrote(o.cluster.ResourceVersion, changed)
	if !equality.Semantic.DeepEqual(o.base.Status.TLS, changed.Status.TLS) {
		o.lookAgain(control.StaleCachePause) // the agents' configuration follows it
	}
	if e, waits := policy.PendingEvent(o.desired, o.base.Status); waits {
		r.event(o, e, "KeepSpec")
	}
	for _, e := range policy.Events(o.base.Status, changed.Status) {
		r.event(o, e, "WriteStatus")
	}
	return nil
}

// classify separates errors that need action by the user, which the status reports, from errors that druid retries.
func classify(step policy.Step, err error) ([]policy.Problem, error) {
	if err == nil {
		return nil, nil
	}
	var conflict *foreignError
	switch {
	case errors.As(err, &conflict):
		return []policy.Problem{{Reason: v1alpha1.ReasonObjectNotOwned, Member: step.Member, Message: conflict.Error()}}, nil
	case isRefusal(err):
		problem := policy.Problem{Reason: v1alpha1.ReasonAPIRequestRejected, Member: step.Member, Message: oneLine(err.Error())}
		return []policy.Problem{problem}, err
	default:
		return nil, err
	}
}

// isRefusal reports whether the API server or a webhook rejects the object. A webhook that rejects without a code
// results in a bad request. A webhook that does not respond results in an internal error of the API server.
func isRefusal(err error) bool {
	return apierrors.IsForbidden(err) && !control.NamespaceEnds(err) || apierrors.IsInvalid(err) ||
		apierrors.IsBadRequest(err) || apierrors.IsInternalError(err) && strings.Contains(err.Error(), "failed calling webhook")
}

func key(o *observation, name string) types.NamespacedName {
	return types.NamespacedName{Namespace: o.cluster.Namespace, Name: name}
}

// ours says whether the object is the cluster's: of this UID, and not of an EtcdCluster that bore the name before.
func ours(cluster *v1alpha1.EtcdCluster, object metav1.Object) bool {
	if claim, ok := object.(*corev1.PersistentVolumeClaim); ok {
		// Data may outlive the EtcdCluster: a claim says whose it is, whether it has an owner or not.
		return claim.Labels[manifests.LabelClusterUID] == string(cluster.UID)
	}
	return metav1.IsControlledBy(object, cluster)
}

// foreignError: an object has a name that the cluster needs, and is not the cluster's. druid never adopts one.
type foreignError struct{ kind, name string }

func (e *foreignError) Error() string {
	return fmt.Sprintf("%s %s exists and has another owner. If nothing uses it, delete it. Otherwise give this EtcdCluster another name", e.kind, e.name)
}

// statuses remembers each EtcdCluster as druid's own last status write left it, until the caches have it too. A pass that
// came sooner would compare with the status from before, write again, and lose the compare-and-set.
type statuses struct {
	mu    sync.Mutex
	after map[types.NamespacedName]written
}

// written is an EtcdCluster as the API server returned it from a write, and the versions that are older.
type written struct {
	cluster *v1alpha1.EtcdCluster
	over    []string
}

func newStatuses() *statuses { return &statuses{after: map[types.NamespacedName]written{}} }

// wrote notes what became of the version that was written over. The write was a compare-and-set: nothing is between them.
func (s *statuses) wrote(version string, cluster *v1alpha1.EtcdCluster) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := client.ObjectKeyFromObject(cluster)
	over := []string{version}
	if before := s.after[key]; before.cluster != nil && before.cluster.ResourceVersion == version {
		over = append(before.over, version)
	}
	s.after[key] = written{cluster: cluster.DeepCopy(), over: over}
}

// latest is the cluster, or what druid itself made of that very version.
func (s *statuses) latest(cached *v1alpha1.EtcdCluster) *v1alpha1.EtcdCluster {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := client.ObjectKeyFromObject(cached)
	w, known := s.after[key]
	if known && slices.Contains(w.over, cached.ResourceVersion) {
		return w.cluster.DeepCopy()
	}
	delete(s.after, key) // the caches have it, or what someone wrote after it
	return cached
}

// forget drops what is known of a cluster that is gone.
func (s *statuses) forget(key types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.after, key)
}
