package druid

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/druid/control"
	"github.com/etcd-druid/druid/druid/policy"
	"github.com/etcd-druid/druid/internal/crash"
	"github.com/etcd-druid/druid/manifests"
)

const (
	// defaultProgressDeadline is that of the API, for an EtcdCluster that was stored before there was one.
	defaultProgressDeadline = 600 * time.Second
	// restoreTimeout with a bootstrap from a backup whose words do not change: they do every five seconds, a store that does not
	// answer is asked again within minutes, and to make a large database durable takes no longer.
	restoreTimeout = 5 * time.Minute
	// restoreRule is the prefix of the agents' rules that form a cluster from a backup.
	restoreRule = "restore"
)

// lock is the current spec next to the accepted one, which is in the observation's EtcdCluster.
type lock struct {
	spec v1alpha1.EtcdClusterSpec
	edit policy.Edit
	// generation that the status answers.
	generation int64
	adoption   policy.Adoption
	// restore is the backup of the EtcdSnapshot that a new cluster starts with. It is kept with the accepted spec.
	restore *v1alpha1.ResolvedRestore
}

// waits says that no spec is accepted yet.
func (l lock) waits() bool { return l.edit.Seen == policy.SeenFirst && l.adoption.Rule == "" }

// lockedOf returns the EtcdCluster with the accepted spec, and the current spec next to it. If none is accepted yet,
// it uses the current one, which is about to be accepted.
func lockedOf(cluster *v1alpha1.EtcdCluster) (*v1alpha1.EtcdCluster, lock, error) {
	l := lock{spec: cluster.Spec, generation: cluster.Generation}
	l.edit.Seen, l.edit.Replicas = policy.SeenFirst, int(cluster.Spec.Replicas)
	adopted, err := cluster.Status.Adopted()
	if err != nil {
		return nil, l, fmt.Errorf("EtcdCluster %s/%s: %w", cluster.Namespace, cluster.Name, err)
	}
	switch {
	case adopted == nil:
		return cluster, l, nil
	case equality.Semantic.DeepEqual(*adopted, cluster.Spec):
		l.edit.Seen = policy.SeenSame
		return cluster, l, nil
	}
	l.edit.Seen, l.generation = policy.SeenEdited, cluster.Status.ObservedGeneration
	l.edit.Requested = cluster.Annotations[v1alpha1.ApplyNowAnnotation] == strconv.FormatInt(cluster.Generation, 10)
	locked := cluster.DeepCopy()
	locked.Spec = *adopted
	return locked, l, nil
}

// observeLock compares the spec with the accepted one.
func (r *Reconciler) observeLock(o *observation) {
	d := &o.desired
	d.Allowed = allowed(o.cluster)
	if d.Deleted {
		return // it is not worked towards any more
	}
	if o.lock.edit.Seen == policy.SeenEdited {
		d.Pending = o.lock.wanted(o.cluster).Generation
		o.observeEdit()
	}
	if o.cluster.Status.ProgressDeadline != nil && handsOffEnded(o.cluster) {
		o.cluster.Status.ProgressDeadline = new(metav1.NewTime(r.now().Add(d.Allowed).Truncate(time.Second)))
	}
	if deadline := o.cluster.Status.ProgressDeadline; deadline != nil {
		d.Deadline = deadline.Time
		left := deadline.Sub(r.now())
		d.Expired = left <= 0 && !r.restores(o)
		o.lookAgain(left)
	}
}

// handsOffEnded says that the status still reports that druid must not act, and the annotation is gone. The time for a change in progress
// and for members that are down then begins again: druid could not use what has passed.
func handsOffEnded(cluster *v1alpha1.EtcdCluster) bool {
	c := meta.FindStatusCondition(cluster.Status.Conditions, v1alpha1.ConditionProgressing)
	return c != nil && c.Reason == v1alpha1.ReasonHandsOff && handsOff(cluster) == ""
}

// handsOff is the reason why druid must not act for the cluster, or empty.
func handsOff(cluster *v1alpha1.EtcdCluster) string {
	return strings.TrimSpace(cluster.Annotations[v1alpha1.HandsOffAnnotation])
}

// wanted is the EtcdCluster with the current spec instead of the accepted one.
func (l lock) wanted(locked *v1alpha1.EtcdCluster) *v1alpha1.EtcdCluster {
	wanted := locked.DeepCopy()
	wanted.Spec = l.spec
	return wanted
}

func allowed(cluster *v1alpha1.EtcdCluster) time.Duration {
	return cmp.Or(time.Duration(cluster.Spec.ProgressDeadlineSeconds)*time.Second, defaultProgressDeadline)
}

// observeEdit compares what the change requests from the members with the accepted spec. A spec from which no Pod can
// be created counts as a different one.
func (o *observation) observeEdit() {
	wanted, e := o.lock.wanted(o.cluster), &o.lock.edit
	e.Grows = wanted.Spec.Storage.Size.Cmp(o.cluster.Spec.Storage.Size) > 0
	e.SamePods, e.Makes = true, map[string]policy.PodMake{}
	for _, p := range []manifests.Plane{manifests.PlaneClient, manifests.PlanePeer} {
		// The next Pods follow from the stage, and only the ones after them from the spec.
		e.SamePods = e.SamePods && manifests.TLSTarget(o.cluster, p) == manifests.TLSTarget(wanted, p)
	}
	for _, m := range o.observed.Members {
		if !m.Listed {
			continue
		}
		claim := o.claimOf(m.Name)
		is, err := manifests.SpecHash(manifests.OnVolume(o.cluster, claim))
		asked, errAsked := manifests.SpecHash(manifests.OnVolume(wanted, claim))
		e.SamePods = e.SamePods && err == nil && errAsked == nil && is == asked
		if pod := o.pods[m.Name]; pod != nil && errAsked == nil {
			e.Makes[m.Name] = makeOf(pod, asked)
		}
	}
}

// restores says whether the first member restores a backup and makes progress. A large restore can take longer than
// any deadline. Only druid's own clock counts, so that a druid that just started waits for the same time again.
func (r *Reconciler) restores(o *observation) bool {
	words, restores := "", false
	for _, m := range o.observed.Members {
		if m.Name == o.observed.Record.Seed && m.Readable {
			words, restores = m.Reports.Reason, strings.HasPrefix(m.Reports.Rule, restoreRule)
		}
	}
	restores = restores && o.observed.RecordState == policy.RecordForming
	f := fact{o.cluster.UID, "restore"}
	r.memory.note(f, words)
	stands, left := r.memory.lasts(f, restores, restoreTimeout, r.now())
	o.lookAgain(left)
	return restores && !stands
}

// adopt accepts the spec before druid acts on it. The write is a compare-and-set, so that druid accepts the spec in
// the API server and decides with the facts of its status.
func (r *Reconciler) adopt(ctx context.Context, o *observation) (*v1alpha1.EtcdCluster, error) {
	is := o.lock.wanted(o.base)
	status, err := o.lock.adoption.Adopted(is.Status, is.Spec, is.Generation, allowed(is), metav1.NewTime(r.now()))
	if err != nil {
		return nil, err
	}
	if err := status.KeepFormer(manifests.FormerTLS(manifests.TLSOf(o.cluster), is.Spec.TLS)); err != nil {
		return nil, err
	}
	if o.lock.restore != nil {
		if err := status.Resolve(*o.lock.restore); err != nil {
			return nil, err
		}
	}
	changed := is.DeepCopy()
	changed.Status = status
	patch := client.MergeFromWithOptions(is, client.MergeFromWithOptimisticLock{})
	crash.Before("adopt-spec")
	err = r.client.Status().Patch(ctx, changed, patch, client.FieldOwner(control.FieldOwner))
	crash.After("adopt-spec")
	if err != nil {
		return nil, fmt.Errorf("accept the spec (%s): %w", o.lock.adoption.Rule, err)
	}
	r.memory.statuses.wrote(is.ResourceVersion, changed)
	r.log.InfoContext(ctx, "spec accepted", "namespace", is.Namespace, "cluster", is.Name, "generation", is.Generation, "rule", o.lock.adoption.Rule)
	for _, e := range policy.Events(is.Status, changed.Status) {
		r.event(o, e, "AdoptSpec")
	}
	return changed, nil
}
