package druid

import (
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/etcd-druid/druid/leases"
)

// memory is what druid saw and when, by its own clock. It is lost with the process, and then its clocks start again: an
// observer that just started judges nobody.
type memory struct {
	watcher  *leases.Watcher
	statuses *statuses

	mu sync.Mutex
	// judged is what the last pass took a member Lease for.
	judged map[types.NamespacedName]judgement
	// confirmed is the renewal at which a live read showed a stale Lease unchanged.
	confirmed map[types.NamespacedName]renewal
	// since is when something that may pass by itself was first seen.
	since map[fact]time.Time
	// values are what facts were about that hold only as long as that stays the same.
	values map[fact]string
	// renewals are the states of Leases at which facts were first seen.
	renewals map[fact]firstRenewal
}

// firstRenewal is the state of a Lease when what about says was first seen.
type firstRenewal struct {
	about   string
	renewal renewal
}

// renewal identifies one state of a Lease.
type renewal struct {
	uid       types.UID
	renewTime time.Time
}

// fact is something about a cluster that druid is patient with.
type fact struct {
	cluster types.UID
	what    string
}

func newMemory() *memory {
	return &memory{
		watcher:   leases.NewWatcher(),
		statuses:  newStatuses(),
		judged:    map[types.NamespacedName]judgement{},
		confirmed: map[types.NamespacedName]renewal{},
		since:     map[fact]time.Time{},
		values:    map[fact]string{},
		renewals:  map[fact]firstRenewal{},
	}
}

func keyOf(lease *coordinationv1.Lease) types.NamespacedName {
	return types.NamespacedName{Namespace: lease.Namespace, Name: lease.Name}
}

func renewalOf(lease *coordinationv1.Lease) renewal {
	r := renewal{uid: lease.UID}
	if lease.Spec.RenewTime != nil {
		r.renewTime = lease.Spec.RenewTime.Time
	}
	return r
}

// remember notes what a pass over its cluster took the Lease for, and returns it.
func (m *memory) remember(key types.NamespacedName, cluster string, l leases.Liveness) leases.Liveness {
	m.mu.Lock()
	defer m.mu.Unlock()
	j := m.judged[key]
	j.cluster, j.liveness = types.NamespacedName{Namespace: key.Namespace, Name: cluster}, l
	m.judged[key] = j
	return l
}

// took is what the last pass took the Lease for, 0 if none looked at it.
func (m *memory) took(key types.NamespacedName) leases.Liveness {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.judged[key].liveness
}

func (m *memory) confirm(lease *coordinationv1.Lease) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.confirmed[keyOf(lease)] = renewalOf(lease)
}

func (m *memory) isConfirmed(lease *coordinationv1.Lease) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.confirmed[keyOf(lease)] == renewalOf(lease)
}

// forget drops what is known of a Lease that is gone.
func (m *memory) forget(key types.NamespacedName) {
	m.watcher.Forget(key.Namespace, key.Name)
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.judged, key)
	delete(m.confirmed, key)
}

// lasts says whether f has held for at least patience, and else how long is left of it. A fact that does not hold any
// more is forgotten by passing holds false.
func (m *memory) lasts(f fact, holds bool, patience time.Duration, now time.Time) (lasts bool, left time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !holds {
		delete(m.since, f)
		return false, 0
	}
	began, known := m.since[f]
	if !known {
		m.since[f], began = now, now
	}
	left = patience - now.Sub(began)
	return left <= 0, max(left, 0)
}

// note forgets since when f holds if it was about something else than value.
func (m *memory) note(f fact, value string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.values[f] != value {
		m.values[f] = value
		delete(m.since, f)
	}
}

// renewedSince says whether the Lease was renewed after what was about that first. As long as it does not hold nothing is noted.
func (m *memory) renewedSince(f fact, about string, holds bool, now renewal) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	first, known := m.renewals[f]
	if !known || first.about != about {
		if holds {
			m.renewals[f] = firstRenewal{about, now}
		}
		return false
	}
	return first.renewal != now
}

// forgetCluster drops the facts of a cluster that is gone.
func (m *memory) forgetCluster(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for f := range m.since {
		if f.cluster == uid {
			delete(m.since, f)
		}
	}
	for f := range m.values {
		if f.cluster == uid {
			delete(m.values, f)
		}
	}
	for f := range m.renewals {
		if f.cluster == uid {
			delete(m.renewals, f)
		}
	}
}
