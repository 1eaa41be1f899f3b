package druid

import (
	"fmt"
	"testing"
	"time"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/manifests"
)

// newWait is a replacement of the authority of clients at the beginning of the wait for them, and the authority that signs until it ends.
func newWait(t *testing.T, hold time.Duration) (r *rotation, first string) {
	t.Helper()
	r = newRotation(t)
	r.patchCluster(fmt.Sprintf(`{"spec":{"tls":{"client":{"trustHold":%q}}}}`, hold))
	first = r.plane(manifests.PlaneClient).Authority
	r.annotate("client:1")
	r.until(manifests.PlaneClient, func(s v1alpha1.TLSPlaneStatus) bool { return s.Phase == v1alpha1.TLSWaitingForClients })
	return r, first
}

// passAfter lets druid work after some time in which the members renew their Leases.
func (r *rotation) passAfter(d time.Duration) {
	r.Helper()
	r.at = r.at.Add(d)
	for i := range r.names {
		r.renew(r.names, i)
	}
	r.pass()
}

// restartDruid lets another druid work, which knows nothing but what the API server has.
func (r *rotation) restartDruid() {
	r.Helper()
	r.Reconciler.memory = newMemory()
	r.pass()
}

// Each upgrade of druid costs the wait for clients at most the time between two of its notes in the status. The wait does not begin again.
func TestUpgradesDoNotRestartTheWait(t *testing.T) {
	const hold, look, looks = 2 * time.Hour, holdInterval / 2, 5
	r, first := newWait(t, hold)
	waited := time.Duration(0)
	for upgrades := 0; r.plane(manifests.PlaneClient).Authority == first && waited < 2*hold; upgrades++ {
		r.restartDruid()
		for range looks {
			r.passAfter(look)
			waited += look
		}
		t.Logf("after %d upgrades in %s, %v are counted", upgrades, waited, r.plane(manifests.PlaneClient).HeldFor)
	}
	// Each druid works for five looks, and its notes have four.
	if most := hold * looks / (looks - 1); waited < hold || waited > most {
		t.Errorf("the next authority signs after %s, want from %s to %s", waited, hold, most)
	}
}

// Only time counts for the wait for clients that druid saw pass. What passed before it restarted counts as far as the status has it.
func TestTheWaitForClientsTrustsNoClock(t *testing.T) {
	const hold = 24 * time.Hour
	r, first := newWait(t, hold)
	p := manifests.PlaneClient
	// The clock of druid's node is two days ahead of the one that wrote the status.
	began := r.at.Add(-2 * hold).UTC().Format(time.RFC3339)
	r.patchStatus(fmt.Sprintf(`{"status":{"tls":{"client":{"distributedAt":%q}}}}`, began))
	waited := time.Duration(0)
	wait := func(d time.Duration) {
		r.Helper()
		for range 10 {
			r.passAfter(d / 10)
		}
		waited += d
		if s := r.plane(p); s.Authority != first {
			r.Fatalf("the next authority signs after %s", waited)
		}
	}
	wait(hold / 2)
	s := r.plane(p)
	if s.HeldFor == nil || s.HeldFor.Duration < waited-holdInterval*12 || s.HeldFor.Duration > waited || s.DistributedAt.UTC().Format(time.RFC3339) != began {
		t.Fatalf("after %s, %v are counted since %v", waited, s.HeldFor, s.DistributedAt)
	}
	r.restartDruid()
	wait(hold/2 - time.Hour)
	for range 60 {
		if r.plane(p).Authority != first {
			break
		}
		r.passAfter(5 * time.Minute)
		waited += 5 * time.Minute
	}
	if r.plane(p).Authority == first || waited < hold {
		t.Errorf("after %s, the phase is %s", waited, r.plane(p).Phase)
	}
	t.Logf("the wait took %s", waited)
}
