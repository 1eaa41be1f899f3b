package backups

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/backup/catalog"
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

// oldUpload leaves an upload to a directory that did not end two days ago.
func oldUpload(t *testing.T, path string) (left string) {
	t.Helper()
	left = filepath.Join(path, prefix, string(lineage), "full", ".put-X7-0000000000000001-1.snap.zst")
	if err := errors.Join(os.MkdirAll(filepath.Dir(left), 0o700), os.WriteFile(left, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	before := time.Now().AddDate(0, 0, -2)
	if err := os.Chtimes(left, before, before); err != nil {
		t.Fatal(err)
	}
	return left
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// The cluster can have ended, and then the Pods of EtcdSnapshots are the only processes that remove its unfinished uploads.
func TestSaveRemovesOldUploads(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 1)
	put(t, g.client(0), 5)
	path := t.TempDir()
	save := saveOf(t, g, opened(t, directory(path)))
	old := oldUpload(t, path)
	recent := filepath.Join(filepath.Dir(old), ".put-X8-0000000000000001-1.snap.zst")
	if err := os.WriteFile(recent, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	a, err := save.Run(t.Context())
	if err != nil || exists(old) || !exists(recent) {
		t.Errorf("saved %+v, %v; the old upload exists %t, the recent one %t", a, err, exists(old), exists(recent))
	}
	oldUpload(t, path)
	if _, err := save.Drop(t.Context(), a.Key); err != nil || exists(old) || !exists(recent) {
		t.Errorf("dropped: %v; the old upload exists %t, the recent one %t", err, exists(old), exists(recent))
	}
}

// A doubt about the store blocks the deletion of backups, but not that of uploads which nothing continues.
func TestDoubtKeepsNoOldUploads(t *testing.T) {
	t.Parallel()
	_, _, agentOf := snapshotLeases(t)
	g := newGroup(t, 1)
	for name, test := range map[string]struct {
		whole, sound, sweeps bool
		fulls                int
	}{
		"incomplete":           {false, false, false, 3},
		"complete, with doubt": {true, false, true, 3},
		"complete":             {true, true, true, 2},
	} {
		path := t.TempDir()
		c := directory(path)
		c.Retention = config.Retention{Count: 1}
		files := opened(t, c)
		for revision := range int64(3) {
			mustPut(t, files, catalog.FullKey(prefix, lineage, revision+1, time.Now()), "full")
		}
		old := oldUpload(t, path)
		s, err := agentOf(g, 0).begin(t.Context(), *c, g.self(0))
		if err != nil {
			t.Fatal(err)
		}
		s.whole.Store(test.whole)
		s.sound.Store(test.sound)
		if work := s.deletions(); work != nil {
			err = work(t.Context())
		}
		if n := len(history(t, files).Fulls); err != nil || exists(old) == test.sweeps || n != test.fulls {
			t.Errorf("%s: %v; the old upload exists %t, and %d full backups are left, want %d", name, err, exists(old), n, test.fulls)
		}
	}
}
