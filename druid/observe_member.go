package druid

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/druid/policy"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/manifests"
)

// observeMembers collects the objects with each member's name.
func (r *Reconciler) observeMembers(ctx context.Context, o *observation) error {
	o.observed.LeaderLease = leaseState(o.cluster, o.leases[leases.LeaderName(o.cluster.Name)])
	names := map[string]bool{}
	for _, name := range o.observed.Record.Members {
		names[name] = true
	}
	for name, lease := range o.leases {
		if lease.Labels[leases.LabelComponent] == string(leases.ComponentMember) {
			names[name] = true
		}
	}
	for name := range maps.Keys(o.claims) {
		names[name] = true
	}
	for name := range maps.Keys(o.pods) {
		names[name] = true
	}
	for name := range names {
		m := policy.Member{Name: name, Listed: o.observed.Record.Lists(name)}
		if err := r.observeLease(ctx, o, &m); err != nil {
			return err
		}
		observeClaim(o, &m)
		if err := observePod(o, &m); err != nil {
			return err
		}
		if m.Claim == policy.ClaimUnwanted {
			m.ClaimUID = m.PodUID // the volume belongs to the Pod and is deleted with it
		}
		o.observed.Members = append(o.observed.Members, m)
	}
	slices.SortFunc(o.observed.Members, func(a, b policy.Member) int { return cmp.Compare(a.Name, b.Name) })
	claim, certain := o.observed.LeaderClaim()
	o.observed.LeaderStill = r.still(o, policy.Member{}, "leader", claim, certain, r.acknowledgeTimeout)
	return nil
}

func leaseState(cluster *v1alpha1.EtcdCluster, lease *coordinationv1.Lease) policy.LeaseState {
	switch {
	case lease == nil:
		return policy.LeaseAbsent
	case !ours(cluster, lease):
		return policy.LeaseForeign
	default:
		return policy.LeaseOurs
	}
}

func (r *Reconciler) observeLease(ctx context.Context, o *observation, m *policy.Member) error {
	lease := o.leases[m.Name]
	m.Lease, m.Liveness = leaseState(o.cluster, lease), leases.Unknown
	if m.Lease != policy.LeaseOurs {
		return nil
	}
	m.Created = lease.CreationTimestamp.Time
	if lease.Spec.RenewTime != nil {
		m.Renewed = lease.Spec.RenewTime.Time
	}
	if says, err := leases.DecodeMember(lease); err == nil {
		m.Reports, m.Readable = says, true
	}
	now := r.now()
	liveness, err := r.liveness(ctx, lease, now)
	if err != nil {
		return err
	}
	key := types.NamespacedName{Namespace: lease.Namespace, Name: lease.Name}
	m.Liveness = r.memory.remember(key, o.cluster.Name, liveness)
	if m.Liveness == leases.Stale {
		expiry, _ := r.memory.watcher.Expiry(key.Namespace, key.Name)
		grace := expiry.Add(staleGracePeriod).Sub(now)
		m.Expired = grace <= 0
		o.lookAgain(grace)
	}
	return nil
}

// staleGracePeriod is how long a member with a stale Lease counts as unknown before it counts as not ready. Together
// with the 45 s of the Lease, these are seven missed renewals.
const staleGracePeriod = time.Minute

// liveness judges a member Lease or a snapshot Lease by what druid saw. It reads a stale Lease again, live, because an
// observer that was suspended or whose watch hangs has an old copy.
func (r *Reconciler) liveness(ctx context.Context, lease *coordinationv1.Lease, now time.Time) (leases.Liveness, error) {
	liveness := r.memory.watcher.Observe(lease, now)
	if liveness != leases.Stale || r.memory.isConfirmed(lease) {
		return liveness, nil
	}
	var live coordinationv1.Lease
	if err := r.live.Get(ctx, keyOf(lease), &live); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return leases.Unknown, nil
		}
		return leases.Unknown, fmt.Errorf("get Lease %s: %w", lease.Name, err)
	}
	if liveness = r.memory.watcher.Observe(&live, now); liveness == leases.Stale {
		r.memory.confirm(&live)
	}
	return liveness, nil
}

func observeClaim(o *observation, m *policy.Member) {
	claim := o.claims[m.Name]
	m.ClaimOwned = claim != nil && ownedBy(o.cluster, claim)
	switch {
	case manifests.StoresInPods(o.cluster):
		m.Claim = policy.ClaimUnwanted
	case claim == nil:
		m.Claim = policy.ClaimAbsent
	case !ours(o.cluster, claim):
		m.Claim = policy.ClaimForeign
	case claim.DeletionTimestamp != nil:
		m.Claim, m.ClaimUID = policy.ClaimTerminating, string(claim.UID)
	default:
		m.Claim, m.ClaimUID = policy.ClaimPresent, string(claim.UID)
	}
}

// observeSeed finds a first member that does not start although another member does.
func (r *Reconciler) observeSeed(o *observation) {
	seed, other := false, false
	for _, m := range o.observed.Members {
		started := m.Pod == policy.PodLive
		if m.Name == o.observed.Record.Seed {
			seed = started
		} else {
			other = other || m.Listed && started
		}
	}
	stuck := o.observed.RecordState == policy.RecordForming && !seed && other
	lasts, left := r.memory.lasts(fact{o.cluster.UID, "seed " + o.observed.Record.Seed}, stuck, seedTimeout, r.now())
	o.observed.SeedStuck = rules.YesNoOf(lasts)
	o.lookAgain(left)
}

// seedTimeout is how long the first member can take to start after another member did. The kubelet pulls an image of a
// hundred megabytes in less. A change of the first member costs only a new start of the bootstrap.
const seedTimeout = time.Minute
