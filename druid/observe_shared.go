package druid

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/druid/policy"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/manifests"
)

// observeShared compares the objects that druid applies with what they should be.
func (r *Reconciler) observeShared(ctx context.Context, from source, o *observation) error {
	if _, unwanted := from.Reader.(unshared); unwanted {
		return nil
	}
	options := r.manifests
	options.Reloadable.Generation = o.lock.generation
	applied, err := manifests.Shared(o.cluster, o.observed.Record, options)
	if err != nil {
		return err
	}
	if err := observeUnwanted(ctx, from, o); err != nil {
		return err
	}
	for _, a := range applied {
		object := policy.Object{Kind: a.Kind.Kind, Name: a.Name, Stage: sharedStage(o.cluster.Name, a)}
		live, err := r.client.Scheme().New(a.Kind)
		if err != nil {
			return fmt.Errorf("create an empty %s: %w", a.Kind.Kind, err)
		}
		if object.State, err = objectState(ctx, from, o, live.(client.Object), a); err != nil {
			return err
		}
		o.shared[object.Kind+"/"+object.Name] = a
		o.observed.Objects = append(o.observed.Objects, object)
	}
	return observeBudget(ctx, from, o)
}

// optional is an object that the spec may request.
type optional struct {
	kind, name string
	wanted     bool
	// live receives the object.
	live client.Object
}

// optionals returns the optional objects of the cluster.
func optionals(cluster *v1alpha1.EtcdCluster) []optional {
	return []optional{
		{"NetworkPolicy", manifests.NetworkPolicyName(cluster.Name), cluster.Spec.NetworkPolicy != nil, &networkingv1.NetworkPolicy{}},
		{"Service", manifests.LeaderServiceName(cluster.Name), cluster.LeaderWanted(), &corev1.Service{}},
	}
}

// observeUnwanted finds the optional objects of a cluster whose spec requests them no more. One of another owner is not
// druid's.
func observeUnwanted(ctx context.Context, from client.Reader, o *observation) error {
	for _, object := range optionals(o.cluster) {
		if object.wanted {
			continue
		}
		name := types.NamespacedName{Namespace: o.cluster.Namespace, Name: object.name}
		err := from.Get(ctx, name, object.live)
		switch {
		case client.IgnoreNotFound(err) != nil:
			return fmt.Errorf("get %s %s: %w", object.kind, name, err)
		case err == nil && ours(o.cluster, object.live):
			o.observed.Objects = append(o.observed.Objects, policy.Object{
				Kind: object.kind, Name: name.Name, State: policy.ObjectUnwanted, Stage: policy.StageLate,
			})
		}
	}
	return nil
}

// sharedStage is when the object is applied: a Pod needs neither the Services for clients nor, to be created, what binds the Role.
// The API server refuses to bind a Role that it does not know yet.
func sharedStage(cluster string, a manifests.Applied) policy.Stage {
	switch {
	case a.Kind.Kind == "RoleBinding":
		return policy.StageBound
	case a.Name == manifests.ClientServiceName(cluster), a.Name == manifests.NodesServiceName(cluster), a.Name == manifests.LeaderServiceName(cluster):
		return policy.StageLate
	default:
		return policy.StageShared
	}
}

// objectState reads live and says how it was found. What druid would not write any more changes the hash, which is
// one of the fields that are compared; what someone changed by hand differs in its own field.
func objectState(ctx context.Context, from client.Reader, o *observation, live client.Object, a manifests.Applied) (policy.ObjectState, error) {
	err := from.Get(ctx, types.NamespacedName{Namespace: a.Namespace, Name: a.Name}, live)
	switch {
	case apierrors.IsNotFound(err):
		return policy.ObjectAbsent, nil
	case err != nil:
		return policy.ObjectAbsent, fmt.Errorf("get %s %s/%s: %w", a.Kind.Kind, a.Namespace, a.Name, err)
	case !ours(o.cluster, live):
		return policy.ObjectForeign, nil
	}
	held, err := a.HeldBy(live)
	if held {
		return policy.ObjectCurrent, err
	}
	return policy.ObjectOutdated, err
}

func observeBudget(ctx context.Context, from source, o *observation) error {
	var budget policyv1.PodDisruptionBudget
	// What the plan wants is not known yet, so the budget is compared with what it would be with the number and the
	// sentence that it has.
	a, err := manifests.DisruptionBudget(o.cluster, 0, "")
	if err != nil {
		return err
	}
	state, err := objectState(ctx, from, o, &budget, a)
	if err != nil {
		return err
	}
	if state == policy.ObjectOutdated && budget.Spec.MinAvailable != nil {
		explanation := budget.Annotations[manifests.AnnotationEvictions]
		if a, err = manifests.DisruptionBudget(o.cluster, budget.Spec.MinAvailable.IntVal, explanation); err != nil {
			return err
		}
		held, err := a.HeldBy(&budget)
		if err != nil {
			return err
		}
		if held {
			state = policy.ObjectCurrent
		}
		o.observed.BudgetMin, o.observed.BudgetExplanation = int(budget.Spec.MinAvailable.IntVal), explanation
	}
	o.observed.Budget = state
	return nil
}

// savingPause is the pause between two checks of the backups of a member that is about to stop.
const savingPause = 2 * time.Second

// observeSaving looks again while the last member's backup is awaited.
func observeSaving(o *observation) {
	if policy.Saving(o.desired, o.observed) {
		o.lookAgain(savingPause)
	}
}

// observePause drops what druid observed about the renewal of Leases during a pause, when no agent runs. A Lease
// without renewals during a pause must not count as stale when the cluster resumes.
func (r *Reconciler) observePause(o *observation) {
	if !policy.Paused(o.desired, o.observed) {
		return
	}
	for i := range o.observed.Members {
		m := &o.observed.Members[i]
		r.memory.forget(types.NamespacedName{Namespace: o.cluster.Namespace, Name: m.Name})
		m.Liveness, m.Expired = leases.Unknown, false
	}
	for _, component := range []leases.Component{leases.ComponentFullSnapshot, leases.ComponentDeltaSnapshot} {
		name := leases.SnapshotName(o.cluster.Name, component)
		r.memory.forget(types.NamespacedName{Namespace: o.cluster.Namespace, Name: name})
		r.memory.lasts(fact{o.cluster.UID, reportedNothing(name)}, false, 0, r.now())
	}
}

// observeBackup reads the two Leases in which the leader's agent reports backups. It also finds the Pods whose agents
// have no access to the store.
func (r *Reconciler) observeBackup(ctx context.Context, o *observation) error {
	if o.desired.Backup {
		for _, m := range o.observed.Members {
			if m.Listed && m.Pod&(policy.PodUnscheduled|policy.PodUnstarted|policy.PodLive) != 0 && !manifests.ReachesStore(o.cluster, o.pods[m.Name]) {
				o.observed.Unattached = append(o.observed.Unattached, m.Name)
			}
		}
	}
	err := r.observeStoreClaim(ctx, o)
	if err != nil {
		return err
	}
	if o.observed.Full, err = r.observeSnapshot(ctx, o, leases.ComponentFullSnapshot); err != nil {
		return err
	}
	o.observed.Delta, err = r.observeSnapshot(ctx, o, leases.ComponentDeltaSnapshot)
	return err
}

// storeClaimInterval between two looks at a claim of a backup store that does not exist. It is not watched, because it is the user's.
const storeClaimInterval = 10 * time.Second

// observeStoreClaim reads the claim that holds the backups. It reads live, because the caches have only claims of members.
func (r *Reconciler) observeStoreClaim(ctx context.Context, o *observation) error {
	backup := o.cluster.Spec.Backup
	if backup == nil || backup.Store.Directory == nil || backup.Store.Directory.ClaimName == "" {
		return nil
	}
	found := policy.StoreClaim{Name: backup.Store.Directory.ClaimName}
	var claim corev1.PersistentVolumeClaim
	err := r.live.Get(ctx, types.NamespacedName{Namespace: o.cluster.Namespace, Name: found.Name}, &claim)
	switch {
	case apierrors.IsForbidden(err):
		return nil // this installation may not read it: its state is unknown
	case client.IgnoreNotFound(err) != nil:
		return fmt.Errorf("get PersistentVolumeClaim %s/%s: %w", o.cluster.Namespace, found.Name, err)
	case err != nil || claim.DeletionTimestamp != nil:
		found.Missing = true
		o.lookAgain(storeClaimInterval)
	}
	for _, mode := range claim.Spec.AccessModes {
		found.Modes = append(found.Modes, string(mode))
	}
	o.observed.StoreClaim = found
	return nil
}

// reportedNothing is the key of the fact that a Lease was never renewed.
func reportedNothing(lease string) string { return "nothing reported by " + lease }

func (r *Reconciler) observeSnapshot(ctx context.Context, o *observation, component leases.Component) (policy.Snapshot, error) {
	lease := o.leases[leases.SnapshotName(o.cluster.Name, component)]
	s := policy.Snapshot{Lease: leaseState(o.cluster, lease), Liveness: leases.Unknown}
	if s.Lease != policy.LeaseOurs || !o.desired.Backup {
		return s, nil
	}
	paused := policy.Paused(o.desired, o.observed)
	if says, err := leases.DecodeBackup(lease); err == nil {
		s.Reports = says
	}
	if renewed := lease.Spec.RenewTime; renewed != nil {
		s.Renewed = renewed.Time
	}
	if component == leases.ComponentFullSnapshot {
		var unreadable error
		s.Verified, unreadable = leases.DecodeVerification(lease)
		s.Unreadable = unreadable != nil
	}
	if paused {
		return s, nil
	}
	liveness, err := r.liveness(ctx, lease, r.now())
	if err != nil {
		return s, err
	}
	s.Liveness = r.memory.remember(keyOf(lease), o.cluster.Name, liveness)
	// The agents may begin when the cluster has formed and they reach the store, and with deltas when there is a full.
	due := s.Liveness == leases.Never && o.observed.RecordState == policy.RecordFormed && len(o.observed.Unattached) == 0 &&
		(component == leases.ComponentFullSnapshot || o.observed.Full.Reports.EverSaved())
	lasts, left := r.memory.lasts(fact{o.cluster.UID, reportedNothing(lease.Name)}, due, leases.DurationOf(lease), r.now())
	o.lookAgain(left)
	if lasts {
		s.Liveness = leases.Stale
	}
	return s, nil
}

// endpointsPause between two looks at the endpoints of a member that leaves. They are not watched, because they are needed
// for a few seconds of a cluster's life; kube-controller-manager writes them within about a second. The pause is short
// because every member that leaves pays for it.
const endpointsPause = 250 * time.Millisecond

// observeEndpoints finds out whether the client Service still sends clients to the member that is about to leave. It reads
// live, and only before the member's Lease is marked.
func (r *Reconciler) observeEndpoints(ctx context.Context, o *observation) error {
	leaving := o.observed.Record.PendingRemoval
	if leaving == nil {
		return nil
	}
	for i := range o.observed.Members {
		m := &o.observed.Members[i]
		if m.Name != leaving.Member || !m.Listed || leaving.Orders(m.Name, m.Reports.Removal) {
			continue
		}
		routed, err := r.routed(ctx, o, m.Name)
		if err != nil {
			return err
		}
		if m.Routed = routed; routed {
			o.lookAgain(endpointsPause)
		}
	}
	return nil
}

func (r *Reconciler) routed(ctx context.Context, o *observation, member string) (bool, error) {
	var slices discoveryv1.EndpointSliceList
	service := manifests.ClientServiceName(o.cluster.Name)
	err := r.live.List(ctx, &slices, client.InNamespace(o.cluster.Namespace), client.MatchingLabels{discoveryv1.LabelServiceName: service})
	if err != nil {
		return false, fmt.Errorf("list the endpoints of Service %s/%s: %w", o.cluster.Namespace, service, err)
	}
	addresses := map[string]bool{}
	if pod := o.pods[member]; pod != nil {
		for _, ip := range pod.Status.PodIPs {
			addresses[ip.IP] = true
		}
	}
	for _, slice := range slices.Items {
		for _, endpoint := range slice.Endpoints {
			if endpoint.TargetRef != nil && endpoint.TargetRef.Kind == "Pod" && endpoint.TargetRef.Name == member {
				return true, nil
			}
			for _, address := range endpoint.Addresses {
				if addresses[address] {
					return true, nil
				}
			}
		}
	}
	return false, nil
}
