package druid

import (
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/etcd-druid/druid/druid/control"
	"github.com/etcd-druid/druid/leases"
)

// memory is what druid saw and when, by its own clock. It is lost with the process, and then its clocks start again:
// an observer that just started judges no member.
type memory struct {
	watcher  *leases.Watcher
	statuses *statuses
	// certificates are the Secrets with certificates as druid last read them.
	certificates certificateMemory
	// requests are the Certificates of cert-manager as druid last read them.
	requests requestMemory

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
	// looks counts the looks at each cluster, and seen has for each of its facts the last one that cared for it.
	looks map[types.UID]uint64
	seen  map[types.UID]map[fact]uint64
	// ending has when the API server last refused an object of a cluster because the namespace is being deleted.
	ending map[types.UID]time.Time
	// names are the clusters of the facts: of one that is gone druid is given its name alone.
	names map[types.NamespacedName]types.UID
}

// firstRenewal is the state of a Lease when druid first saw the value of about.
type firstRenewal struct {
	about   string
	renewal renewal
}

// renewal identifies one state of a Lease, or only the version of the agent in it.
type renewal struct {
	uid       types.UID
	renewTime time.Time
	version   string
}

// fact is something about a cluster that druid tolerates for a limited time.
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
		looks:     map[types.UID]uint64{},
		seen:      map[types.UID]map[fact]uint64{},
		ending:    map[types.UID]time.Time{},
		names:     map[types.NamespacedName]types.UID{},
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

// remember stores the liveness of the Lease in this pass, and returns it.
func (m *memory) remember(key types.NamespacedName, cluster string, l leases.Liveness) leases.Liveness {
	m.mu.Lock()
	defer m.mu.Unlock()
	j := m.judged[key]
	j.cluster, j.liveness = types.NamespacedName{Namespace: key.Namespace, Name: cluster}, l
	m.judged[key] = j
	return l
}

// took is the liveness of the Lease in the last pass, or 0 if no pass looked at it.
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

// forget drops what is known about a deleted Lease.
func (m *memory) forget(key types.NamespacedName) {
	m.watcher.Forget(key.Namespace, key.Name)
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.judged, key)
	delete(m.confirmed, key)
}

// lasts says whether f has held for at least maxWait, and otherwise how much time is left. A call with holds false
// forgets f.
func (m *memory) lasts(f fact, holds bool, maxWait time.Duration, now time.Time) (lasts bool, left time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.touch(f)
	if !holds {
		delete(m.since, f)
		return false, 0
	}
	began, known := m.since[f]
	if !known {
		m.since[f], began = now, now
	}
	left = maxWait - now.Sub(began)
	return left <= 0, max(left, 0)
}

// began is when f began to hold, zero if it does not.
func (m *memory) began(f fact) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.since[f]
}

// note forgets since when f holds if it was about another value.
func (m *memory) note(f fact, value string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.touch(f)
	if m.values[f] != value {
		m.values[f] = value
		delete(m.since, f)
	}
}

// renewedSince says whether the Lease was renewed after druid first saw the value of about. It stores nothing while
// the fact does not hold.
func (m *memory) renewedSince(f fact, about string, holds bool, now renewal) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.touch(f)
	first, known := m.renewals[f]
	if !known || first.about != about {
		if holds {
			m.renewals[f] = firstRenewal{about, now}
		}
		return false
	}
	return first.renewal != now
}

// touch notes that the current look uses f.
func (m *memory) touch(f fact) {
	facts := m.seen[f.cluster]
	if facts == nil {
		facts = map[fact]uint64{}
		m.seen[f.cluster] = facts
	}
	facts[f] = m.looks[f.cluster]
}

// beginLook starts a look at a cluster. It forgets an earlier cluster with the same name.
func (m *memory) beginLook(key types.NamespacedName, uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if before, known := m.names[key]; known && before != uid {
		m.drop(before)
	}
	m.names[key] = uid
	m.looks[uid]++
}

// endLook ends a complete look at a cluster. A fact that the look did not use no longer holds, because its member is
// gone or nothing waits for it. So no clock continues after a wait has ended.
func (m *memory) endLook(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for f, look := range m.seen[uid] {
		if look != m.looks[uid] {
			m.dropFact(f)
		}
	}
}

func (m *memory) dropFact(f fact) {
	delete(m.since, f)
	delete(m.values, f)
	delete(m.renewals, f)
	delete(m.seen[f.cluster], f)
}

func (m *memory) drop(uid types.UID) {
	m.certificates.forgetCluster(uid)
	m.requests.forget(uid)
	for f := range m.seen[uid] {
		m.dropFact(f)
	}
	delete(m.seen, uid)
	delete(m.looks, uid)
	delete(m.ending, uid)
}

// namespaceEnds notes that the API server refused an object of the cluster because its namespace is being deleted.
func (m *memory) namespaceEnds(uid types.UID, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ending[uid] = now
}

// pauseOfNamespace returns how long druid leaves the cluster alone after such a refusal, and 0 if it need not.
func (m *memory) pauseOfNamespace(uid types.UID, now time.Time) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	refused, known := m.ending[uid]
	if !known {
		return 0
	}
	return max(control.NamePause-now.Sub(refused), 0)
}

// forgetCluster drops the facts of a deleted cluster.
func (m *memory) forgetCluster(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.drop(uid)
}

// forgetName drops everything about a deleted cluster and its Leases.
func (m *memory) forgetName(key types.NamespacedName) {
	m.statuses.forget(key)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.drop(m.names[key])
	delete(m.names, key)
	for lease, j := range m.judged {
		if j.cluster == key {
			delete(m.judged, lease)
			delete(m.confirmed, lease)
			m.watcher.Forget(lease.Namespace, lease.Name)
		}
	}
}
