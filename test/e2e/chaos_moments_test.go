package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/bbolt"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/backup/restore"
	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/backup/store/dir"
	"github.com/etcd-druid/druid/test/e2e/harness"
	"github.com/etcd-druid/druid/test/machine"
	"github.com/etcd-druid/druid/test/member"
)

// moments is how many revisions of a long history are restored.
const moments = 20

// restoresMoments draws so many revisions of the history, restores each of them from the backups, and compares the keys
// that an etcd then serves with those that the logs of the members had at that revision. The clients compact every two
// seconds, so revisions that were compacted while the leader's agent did not run are in no backup. No plan exists for
// them, and another revision is drawn.
func (ch *chaos) restoresMoments(t *testing.T, moments int, draw *rand.Rand) {
	t.Helper()
	c, h := ch.cluster, ch.history
	last := c.Revision(t)
	c.AwaitSaved(t, saveWithin, last)
	copied := filepath.Join(t.TempDir(), "bucket")
	ch.store.Copy(t, bucket, copied)
	backups, err := dir.Open(store.Directory{Path: copied})
	if err != nil {
		t.Fatal(err)
	}
	saved, err := catalog.Read(t.Context(), backups, c.Namespace+"/"+c.Name)
	if err != nil {
		t.Fatal(err)
	}
	var revisions []int64
	missing := 0
	for len(revisions) < moments && missing < 20*moments {
		revision := 2 + draw.Int64N(last-1)
		if _, err := saved.Plan(catalog.Target{Revision: revision}); errors.Is(err, catalog.ErrGap) || errors.Is(err, catalog.ErrOutside) {
			missing++
			continue
		}
		revisions = append(revisions, revision)
	}
	states := h.States(t, revisions)
	for _, revision := range revisions {
		got, err := restored(t, backups, saved, revision, ch.minor)
		if err != nil {
			t.Errorf("restore revision %d: %v", revision, err)
			continue
		}
		if diff := cmp.Diff(got, states[revision]); diff != "" {
			harness.Unsafe(t, "the backups restore revision %d with other keys than the members had (-restored +had)\n%s", revision, diff)
		}
	}
	t.Logf("%d revisions up to %d were restored from the backups and compared; %d others were compacted before an agent could save them",
		len(revisions), last, missing)
	if len(revisions) < moments {
		t.Errorf("only %d of %d drawn revisions are in the backups", len(revisions), len(revisions)+missing)
	}
}

// restored returns the keys of an etcd that runs on what the backups restore up to a revision.
func restored(t *testing.T, backups store.Store, saved catalog.Catalog, revision int64, minor string) (map[string]harness.Value, error) {
	t.Helper()
	at, url := filepath.Join(t.TempDir(), "data"), "http://"+machine.Address(t)
	for target := (catalog.Target{Revision: revision}); ; {
		plan, err := saved.Plan(target)
		if err != nil {
			return nil, err
		}
		_, err = restore.Run(t.Context(), restore.Config{
			Store: backups, Plan: plan, DataDir: at, Name: member.Name, PeerURLs: []string{url}, InitialCluster: member.Name + "=" + url,
			Token: fmt.Sprintf("revision-%d", revision), EtcdVersion: minor,
		})
		if errors.Is(err, restore.ErrTooNew) {
			target = target.Except(plan.Full.Key)
			continue
		}
		if err != nil {
			return nil, err
		}
		break
	}
	withoutAuthentication(t, at)
	m := member.Start(t, minor, member.Options{Dir: at, PeerURL: url})
	defer m.Stop(t)
	var keys map[string]harness.Value
	harness.Eventually(t, healWithin, fmt.Sprintf("the keys at revision %d", revision), func(ctx context.Context) error {
		answer, err := m.Client.Get(ctx, "", clientv3.WithPrefix())
		if err != nil {
			return err
		}
		if answer.Header.Revision != revision {
			return fmt.Errorf("etcd is at revision %d", answer.Header.Revision)
		}
		keys = harness.ValuesOf(answer)
		return nil
	})
	return keys, nil
}

// withoutAuthentication turns authentication off in a data directory, because the clients of this test have no certificate.
func withoutAuthentication(t *testing.T, dir string) {
	t.Helper()
	db, err := bbolt.Open(filepath.Join(dir, "member/snap/db"), 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error { return tx.Bucket([]byte("auth")).Put([]byte("authEnabled"), []byte{0}) })
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatalf("turn authentication off in %s: %v", dir, err)
	}
}
