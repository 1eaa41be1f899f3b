package backups

import (
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/leases"
)

// TestNoDeletionDuringRestoreRequest: nothing is deleted while a restore is requested.
// The final backup before a restore in place makes older ones superfluous. They stay until the restore is over.
func TestNoDeletionDuringRestoreRequest(t *testing.T) {
	t.Parallel()
	g, c, files := threeFulls(t)
	admin, namespace, agentOf := snapshotLeases(t)
	record := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: leases.RecordName("demo")}}
	formed := leases.Record{Phase: leases.PhaseFormed, ClusterID: 7, Epoch: 1, FormedEpoch: 1, Nonce: "aa", Seed: "demo-a",
		Members: []string{"demo-a"}, MaxLearners: 1}
	if err := formed.Encode(record); err != nil {
		t.Fatal(err)
	}
	record.Annotations[leases.AnnotationRestoreRequest] = `{"nonce":"aa","target":{"revision":1}}`
	created, err := admin.CoordinationV1().Leases(namespace).Create(t.Context(), record, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := agentOf(g, 0).begin(t.Context(), *c, g.self(0))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.retain(t.Context()); err != nil {
		t.Error(err)
	}
	if n := len(history(t, files).Fulls); n != 3 {
		t.Errorf("%d fulls are left of 3", n)
	}
	delete(created.Annotations, leases.AnnotationRestoreRequest)
	if _, err := admin.CoordinationV1().Leases(namespace).Update(t.Context(), created, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := s.retain(t.Context()); err != nil {
		t.Error(err)
	}
	if n := len(history(t, files).Fulls); n != 2 {
		t.Errorf("%d fulls are left, want the one that counts and the one before it", n)
	}
}
