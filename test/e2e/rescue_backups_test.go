package e2e

import (
	"encoding/json"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/test/e2e/harness"
	"github.com/etcd-druid/druid/test/e2e/stories"
)

// The store refuses the credentials under a writer, and a scale-down waits for backups. One page cancels it. It is requested again, and the
// other page lets it continue without backups. The store is set again when it works, and then has all that was written.
func TestPagesOfFailingBackupsAreTrue(t *testing.T) {
	stories.Begin(t)
	s3, namespace := rig.MakeSavedNamespace(t, bucket)
	c := rig.ApplyIn(t, namespace, harness.Named(demo), backedUp(s3.Store(bucket)))
	view := c.Agree(t, 3, formWithin)
	w := harness.Write(t, c.EtcdService(t))
	awaitBackups(t, c)
	restore := s3.Revoke(t, c.Namespace)
	stories.Resting(t, func() {
		awaitCondition(t, c, v1alpha1.ConditionBackupReady, metav1.ConditionFalse, healWithin, "Unauthorized")
	})

	annotate(t, c, v1alpha1.LeaveFirstAnnotation, view.Leader())
	waitsForBackups(t, c)
	openPage(t, "how-to/rescue/stuck-scale-down.md", c).follow(t)
	c.AwaitCondition(t, scaleWithin, v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonReconciled)
	same(t, view, c.Agree(t, 3, scaleWithin))
	if cluster, err := c.Get(t.Context()); err != nil || cluster.Annotations[v1alpha1.LeaveFirstAnnotation] != "" {
		t.Errorf("the annotations are %v, %v; want that the page removed %s", cluster.Annotations, err, v1alpha1.LeaveFirstAnnotation)
	}

	waitsForBackups(t, c)
	p := openPage(t, "how-to/rescue/backups-failing.md", c)
	p.replaced["<member>"] = view.Leader()
	p.before[withoutBackups] = func() { waitsForBackups(t, c) } // spec.backup.whenFailing permits no removal
	p.follow(t)
	stayed(t, view, c.AwaitMembers(t, 1, scaleWithin), 1)

	restore()
	cluster := harness.Definition(namespace, backedUp(s3.Store(bucket)))
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"backup": cluster.Spec.Backup}})
	if err != nil {
		t.Fatal(err)
	}
	c.Edit(t, string(patch))
	w.Stop(t, c.EtcdService(t))
	c.AwaitSaved(t, healWithin, c.Revision(t))
	awaitBackups(t, c)
}

// withoutBackups is the command of the page that removes the store from the cluster.
const withoutBackups = `kubectl patch etcdcluster demo --type json -p '[{"op":"remove","path":"/spec/backup"}]'`

// waitsForBackups requests one member, and waits until druid says that backups fail and none is removed.
func waitsForBackups(t *testing.T, c *harness.Cluster) {
	t.Helper()
	c.Scale(t, 1)
	c.AwaitCondition(t, healWithin, v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonScaleDownBlocked,
		"3 members, 1 requested", "backups fail")
}
