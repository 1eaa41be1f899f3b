package backups

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/leases"
)

// While backups are to be verified and no verified one is known, each of them can be the only intact one.
func TestNoDeletionWithoutVerifiedFull(t *testing.T) {
	t.Parallel()
	g, c, files := threeFulls(t)
	c.Verify.Schedule = "@daily"
	admin, namespace, agentOf := snapshotLeases(t)
	s, err := agentOf(g, 0).begin(t.Context(), *c, g.self(0))
	if err != nil {
		t.Fatal(err)
	}
	retains := func(what string, want int) {
		t.Helper()
		if err := s.retain(t.Context()); err != nil {
			t.Error(err)
		}
		if n := len(history(t, files).Fulls); n != want {
			t.Errorf("%s: %d full backups are left, want %d", what, n, want)
		}
	}
	fulls := history(t, files).Fulls
	oldest, newest := fulls[0].Key, fulls[2].Key
	retains("never verified", 3)
	for what, v := range map[string]leases.Verification{
		"no result":         {Lineage: string(lineage), Trouble: "the disk is full"},
		"broken":            {Verdict: leases.VerdictBroken, Lineage: string(lineage), Full: newest, Broken: newest},
		"deleted since":     {Verdict: leases.VerdictVerified, Lineage: string(lineage), VerifiedFull: newest + "x"},
		"found broken then": {Verdict: leases.VerdictBroken, Lineage: string(lineage), VerifiedFull: oldest, KnownBroken: []string{oldest}, Broken: newest},
	} {
		if err := s.Leases.ReportVerification(t.Context(), v); err != nil {
			t.Fatal(err)
		}
		retains(what, 3)
	}
	// It does not matter of which lineage the verified one is: it leads to this one.
	if err := s.Leases.ReportVerification(t.Context(), leases.Verification{Lineage: "00000000-other", VerifiedFull: newest}); err != nil {
		t.Fatal(err)
	}
	retains("verified", 2)

	mustPut(t, files, oldest, "full")
	if err := admin.CoordinationV1().Leases(namespace).Delete(t.Context(), leases.FullSnapshotName("demo"), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	retains("the Lease was deleted", 3)
	s.config.Verify.Schedule = ""
	retains("backups are not verified", 2)
}
