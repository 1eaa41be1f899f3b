package druid

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/druid/policy"
	"github.com/etcd-druid/druid/druid/snapshot"
	"github.com/etcd-druid/druid/manifests"
)

// originInterval is the pause between two looks at an EtcdSnapshot that a cluster waits for, in the caches. Its events
// do not reach the cluster that waits.
const originInterval = 5 * time.Second

// observeOrigin finds the backup of the EtcdSnapshot that a new cluster restores, before the spec is accepted. The
// result is stored and not looked up again.
func observeOrigin(ctx context.Context, from source, o *observation) error {
	b := o.cluster.Spec.Bootstrap
	if o.lock.edit.Seen != policy.SeenFirst || o.cluster.Status.Restore != nil || b == nil || b.Restore == nil || b.Restore.From == nil ||
		b.Restore.From.SnapshotRef == nil {
		return nil
	}
	named := originOf{from: b.Restore.From, namespace: o.cluster.Namespace}
	if err := named.read(ctx, from); err != nil {
		return err
	}
	facts, resolved := named.resolve()
	if o.observed.Origin = policy.JudgeOrigin(facts, named.words); o.observed.Origin.Words != "" {
		o.lookAgain(originInterval)
		return nil
	}
	o.lock.restore = &resolved
	return nil
}

// originOf is an EtcdSnapshot that a new cluster restores and the EtcdCluster that it belongs to. Each can be absent.
type originOf struct {
	from      *v1alpha1.RestoreSource
	namespace string
	snapshot  *v1alpha1.EtcdSnapshot
	cluster   *v1alpha1.EtcdCluster
}

func (n *originOf) read(ctx context.Context, from client.Reader) error {
	var found v1alpha1.EtcdSnapshot
	err := from.Get(ctx, types.NamespacedName{Namespace: n.namespace, Name: n.from.SnapshotRef.Name}, &found)
	switch {
	case apierrors.IsNotFound(err), err == nil && found.DeletionTimestamp != nil:
		return nil
	case err != nil:
		return fmt.Errorf("get EtcdSnapshot %s: %w", n.from.SnapshotRef.Name, err)
	}
	n.snapshot = &found
	n.cluster, err = snapshot.ClusterOf(ctx, from, types.NamespacedName{Namespace: n.namespace, Name: found.Spec.ClusterRef.Name})
	if err != nil {
		return fmt.Errorf("get EtcdCluster %s: %w", found.Spec.ClusterRef.Name, err)
	}
	return nil
}

// resolve returns what is known and, if everything is known, what to restore.
func (n *originOf) resolve() (policy.OriginFacts, v1alpha1.ResolvedRestore) {
	facts := policy.OriginFacts{Snapshot: policy.OriginAbsent, Place: policy.OriginGone}
	if n.snapshot == nil {
		return facts, v1alpha1.ResolvedRestore{}
	}
	artifact := n.snapshot.Status.Artifact
	switch n.snapshot.Status.Phase {
	case v1alpha1.SnapshotSucceeded:
		if facts.Snapshot = policy.OriginSaved; artifact == nil || artifact.Revision == 0 || n.lineage() == "" {
			facts.Snapshot = policy.OriginBlank
		}
	case v1alpha1.SnapshotFailed:
		facts.Snapshot = policy.OriginFailed
	default:
		facts.Snapshot = policy.OriginUnfinished
	}
	if facts.Snapshot != policy.OriginSaved {
		return facts, v1alpha1.ResolvedRestore{}
	}
	resolved := v1alpha1.ResolvedRestore{SnapshotUID: n.snapshot.UID, Lineage: n.lineage()}
	resolved.From = &v1alpha1.RestoreSource{Namespace: n.namespace, Name: n.snapshot.Spec.ClusterRef.Name}
	resolved.To = &v1alpha1.RestoreTarget{Revision: artifact.Revision}
	if n.snapshot.Spec.Type == v1alpha1.SnapshotFull {
		resolved.To = &v1alpha1.RestoreTarget{Name: path.Base(artifact.Key)}
	}
	facts.Place, resolved.From.Store, resolved.From.Encryption = n.place(artifact)
	return facts, resolved
}

// lineage of the backup. It is empty for a Delta for which everything was saved before. A revision alone is not
// enough: the name of the cluster can have the lineage of another cluster now.
func (n *originOf) lineage() string {
	below, ok := strings.CutPrefix(n.snapshot.Status.Artifact.Key, n.namespace+"/"+n.snapshot.Spec.ClusterRef.Name+"/")
	lineage, _, object := strings.Cut(below, "/")
	if !ok || !object {
		return ""
	}
	return lineage
}

// place is the location of the backup: the store of the EtcdSnapshot, or else that of its EtcdCluster. The latter is valid
// as long as the URI of the backup matches.
func (n *originOf) place(artifact *v1alpha1.SnapshotArtifact) (policy.OriginPlace, *v1alpha1.BackupStore, *v1alpha1.BackupEncryption) {
	switch {
	case n.from.Store != nil:
		return policy.OriginReported, n.from.Store.DeepCopy(), n.from.Encryption.DeepCopy()
	case n.snapshot.Spec.Store != nil:
		return policy.OriginOwn, n.snapshot.Spec.Store.DeepCopy(), n.snapshot.Spec.Encryption.DeepCopy()
	case n.cluster == nil:
		return policy.OriginGone, nil, nil
	}
	place := policy.OriginUnsaved
	for _, backup := range backupsOf(n.cluster) {
		if manifests.StoreURI(&backup.Store, artifact.Key) == artifact.URI {
			return policy.OriginOwn, backup.Store.DeepCopy(), backup.Encryption.DeepCopy()
		}
		place = policy.OriginMoved
	}
	return place, nil, nil
}

// backupsOf are the backup configurations that the agents of a cluster can have: the accepted one and the current one.
func backupsOf(cluster *v1alpha1.EtcdCluster) (all []*v1alpha1.BackupSpec) {
	if adopted, err := cluster.Status.Adopted(); err == nil && adopted != nil && adopted.Backup != nil {
		all = append(all, adopted.Backup)
	}
	if cluster.Spec.Backup != nil {
		all = append(all, cluster.Spec.Backup)
	}
	return all
}

// words say what the cluster waits for.
func (n *originOf) words(rule string) string {
	name := n.from.SnapshotRef.Name
	if n.snapshot == nil {
		return fmt.Sprintf("the cluster restores EtcdSnapshot %s, which does not exist in this namespace. The cluster starts when the EtcdSnapshot has succeeded",
			name)
	}
	status, of := n.snapshot.Status, n.snapshot.Spec.ClusterRef.Name
	newAgain := ". Create this EtcdCluster again with spec.bootstrap.restore.from.store, the location of the backup"
	switch rule {
	case "snapshot-failed":
		return fmt.Sprintf("EtcdSnapshot %s has failed (%s), so there is nothing to restore. Create this EtcdCluster again with another one", name,
			oneLine(status.Message))
	case "snapshot-blank":
		return fmt.Sprintf("EtcdSnapshot %s has succeeded, and its status.artifact names no object. Create this EtcdCluster again with another one", name)
	case "cluster-gone":
		return fmt.Sprintf("EtcdSnapshot %s belongs to EtcdCluster %s, which does not exist any more%s, or create that one again with its spec.backup",
			name, of, newAgain)
	case "cluster-unsaved":
		return fmt.Sprintf("EtcdSnapshot %s belongs to EtcdCluster %s, which has no spec.backup any more%s", name, of, newAgain)
	case "backup-moved":
		return fmt.Sprintf("EtcdSnapshot %s was saved as %s, and EtcdCluster %s is backed up to another store now%s", name, status.Artifact.URI, of, newAgain)
	}
	return fmt.Sprintf("the cluster restores EtcdSnapshot %s when that has succeeded. Its phase is %s: %s", name, cmp.Or(string(status.Phase), "new"),
		cmp.Or(oneLine(status.Message), "no agent has responded yet"))
}
