package harness

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/etcd-druid/druid/leases"
)

// MakeSavedNamespace runs an S3 server with a bucket, and makes a namespace whose Secret has the credentials of the server.
func (r *Rig) MakeSavedNamespace(t testing.TB, bucket string) (s *S3, namespace string) {
	t.Helper()
	s = r.StartS3(t)
	s.MakeBucket(t, bucket)
	namespace = r.MakeNamespace(t)
	s.MakeSecret(t, namespace)
	return s, namespace
}

// Revision returns the revision of the key space, now.
func (c *Cluster) Revision(t testing.TB) (revision int64) {
	t.Helper()
	etcd := c.Etcd(t)
	Eventually(t, time.Minute, "the revision of "+c.String(), func(ctx context.Context) error {
		answer, err := etcd.Get(ctx, "revision")
		if err == nil {
			revision = answer.Header.Revision
		}
		return err
	})
	return revision
}

// AwaitSaved waits until the Lease of the delta backups says that a revision is saved.
func (c *Cluster) AwaitSaved(t testing.TB, within time.Duration, revision int64) {
	t.Helper()
	took := Eventually(t, within, fmt.Sprintf("revision %d is saved", revision), func(ctx context.Context) error {
		lease, err := c.Lease(ctx, leases.DeltaSnapshotName(c.Name))
		if err != nil {
			return err
		}
		saved, err := leases.DecodeBackup(lease)
		if err == nil && saved.Revision < revision {
			err = fmt.Errorf("saved is revision %d; last error: %q", saved.Revision, saved.Error)
		}
		return err
	})
	t.Logf("revision %d of %s was saved %s after it was asked for", revision, c, took.Round(time.Millisecond))
}
