package e2e

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/manifests"
	"github.com/etcd-druid/druid/test/e2e/harness"
)

// chaosChanges are changes that replace all Pods and take minutes. A round begins with one of them at most, in a lane of costly faults, and
// the faults of the other lanes happen meanwhile.
var chaosChanges = []chaosFault{
	{"the minor version of etcd is raised", func(t *testing.T, ch *chaos, _ string, _ *rand.Rand) {
		ch.minor = "3.7"
		version := rig.EtcdVersion(t, ch.minor)
		ch.withAPI(func() { ch.cluster.Edit(t, fmt.Sprintf(`{"spec":{"version":%q}}`, version)) })
		harness.Eventually(t, ch.amongFaults(upgradeWithin), "all members run etcd "+version, func(ctx context.Context) error {
			cluster, err := ch.cluster.Get(ctx)
			if err != nil {
				return err
			}
			if len(cluster.Status.Members) != ch.size {
				return fmt.Errorf("there are %d members", len(cluster.Status.Members))
			}
			for _, m := range cluster.Status.Members {
				if m.Version != version {
					return fmt.Errorf("%s runs %q", m.Name, m.Version)
				}
			}
			return nil
		})
	}},
	{"both certificate authorities are replaced", func(t *testing.T, ch *chaos, _ string, _ *rand.Rand) {
		var before [2]string
		var former *x509.CertPool
		ch.withAPI(func() {
			before, former = authoritiesOf(t, ch.cluster), ch.authorities(t)
			annotate(t, ch.cluster, v1alpha1.RotateCAAnnotation, "in chaos")
		})
		t.Logf("the phases of the clients' authority: %v", awaitReplaced(t, ch.cluster, before, ch.amongFaults(rotateWithin)))
		ch.signedAgain(t, former)
	}},
}

// authorities are those that the Secret for clients has.
func (ch *chaos) authorities(t *testing.T) (pool *x509.CertPool) {
	t.Helper()
	harness.Eventually(t, healWithin, "the Secret for clients", func(ctx context.Context) (err error) {
		_, pool, err = ch.cluster.Connection(ctx, manifests.ConnectionName(ch.cluster.Name))
		return err
	})
	return pool
}

// signedAgain waits until each member shows a certificate that the authorities of now signed, and those from before did not.
func (ch *chaos) signedAgain(t *testing.T, former *x509.CertPool) {
	t.Helper()
	var now *x509.CertPool
	ch.withAPI(func() { now = ch.authorities(t) })
	for _, member := range ch.cluster.MemberNames(t) {
		harness.Eventually(t, healWithin, member+" has a certificate of another authority", func(ctx context.Context) error {
			var unknown x509.UnknownAuthorityError
			if err := ch.cluster.TrustedBy(ctx, member, now); err != nil {
				return err
			}
			if err := ch.cluster.TrustedBy(ctx, member, former); !errors.As(err, &unknown) {
				return fmt.Errorf("with the authorities from before: %w", cmp.Or(err, errors.New("it is trusted")))
			}
			return nil
		})
	}
}

// amongFaults is the time for a change alongside other faults, if it takes so long for three members without them. The
// kubelet restarts an agent later each time that it is killed, and druid waits for the members one after another.
func (ch *chaos) amongFaults(within time.Duration) time.Duration {
	return 2 * within * time.Duration(ch.size) / 3
}

// changeOf is the change that a seed gives: each with the same one of three seeds, and none with the others. A brief round has none.
func changeOf(seed uint64, scope chaosScope) []chaosFault {
	which := int(seed % 3)
	if scope.brief || which >= len(chaosChanges) {
		return nil
	}
	return chosen(chaosChanges[which : which+1])
}

// changeAmongFaults is how long faults of the other lanes meet a change.
const changeAmongFaults = 2 * time.Minute

// change lets the changes happen, and the faults of the other lanes go on until they are done.
func (ch *chaos) change(t *testing.T, faults []chaosFault) {
	t.Helper()
	began := time.Now()
	ch.changes(began, 0)
	defer func() { ch.changes(time.Time{}, time.Since(began)) }() // a cluster of three has no other lane of costly faults
	for _, f := range faults {
		ch.happen(t, f, "", nil)
		ch.cluster.Agree(t, ch.size, scaleWithin)
	}
}

// changes says since when a change is under way, or that none is, and makes the round longer.
func (ch *chaos) changes(since time.Time, longer time.Duration) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	ch.changing, ch.end = since, ch.end.Add(longer)
}

// renewed waits until the members that are still there have other certificates than at the start of a long round.
func (ch *chaos) renewed(t *testing.T, before map[string]leases.TLS) {
	t.Helper()
	if ch.brief {
		return
	}
	names := ch.cluster.MemberNames(t)
	for member := range before {
		if !slices.Contains(names, member) {
			delete(before, member)
		}
	}
	awaitRenewed(t, ch.cluster, healWithin, before)
}
