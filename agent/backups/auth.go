package backups

import (
	"time"

	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

// authPace is the pause between the newest full backup and one because users or roles changed. It doubles while they change all the time, so
// that these full backups are a few in a day, and retention by count keeps those that the schedule made. Like replacePace, it ends at four
// fulls in a day.
var authPace = pace{10 * time.Minute, 6 * time.Hour}

// authIdle is how many times as long as it took a full backup etcd rests before one because of users or roles. etcd reuses no free page of
// its database while it reads it for a backup.
const authIdle = 3

// authFacts is what authChanged decides about.
type authFacts struct {
	// now is what etcd has, and saved is what the Lease says about a full backup.
	now   membership.AuthSwitch
	saved leases.BackupAuth
	// full is the key of the newest full backup.
	full string
	// rested says that the pause since the newest full backup is over.
	rested bool
	// tried says that this session took a full backup with authentication on.
	tried bool
}

// authChanged says whether a full backup is due because of users, roles or authentication. Delta backups have none of them, so a restore has
// them as they were when the full backup was taken. If authentication was off then or that is unknown, and it is on now, a restored cluster
// would serve its data without it. Then the first full backup does not wait.
//
// etcd's revision of users and roles counts all changes, except that authentication is turned on
// (https://github.com/etcd-io/etcd/blob/v3.6.16/server/auth/store.go, AuthEnable).
func authChanged(f authFacts) bool {
	saved := f.saved
	if saved.Object != f.full {
		saved = leases.BackupAuth{Revision: unusedAuth}
	}
	if f.full == "" || f.now.Revision < saved.Revision {
		return false
	}
	enabled := f.now.Enabled && !saved.Enabled
	return enabled && !f.tried || (enabled || f.now.Revision > saved.Revision) && f.rested
}

// unusedAuth is etcd's revision of users and roles while there were never any.
const unusedAuth = 1

// authState is etcd's state of authentication in a raft group.
type authState struct {
	cluster uint64
	membership.AuthSwitch
}

// AuthIs takes the state of authentication that etcd has in the raft group with the cluster ID, from the duty of the leader that manages it.
// etcd had that state, or has it.
func (d *Duty) AuthIs(cluster uint64, now membership.AuthSwitch) {
	d.mu.Lock()
	defer d.mu.Unlock()
	read := authState{cluster, now}
	if d.auth != nil && *d.auth == read {
		return
	}
	d.auth = &read
	if d.session != nil {
		d.session.orders.wake() // no signal, which would end a listing of the store
	}
}

// authNow returns etcd's state of authentication, or nil while it is not known of the raft group of the session. An agent can lead several one
// after the other, with other users each: a restore in place forms another one.
func (s *session) authNow() *membership.AuthSwitch {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.auth == nil || s.auth.cluster != s.self.ClusterID {
		return nil
	}
	return &s.auth.AuthSwitch
}

// authFulls is what a session remembers of the full backups that it took.
type authFulls struct {
	pace
	// changes counts full backups in a row, each of which was soon followed by one because of users or roles.
	changes int
	// auth is what the last one has, next is when the next one because of users or roles may begin.
	auth leases.BackupAuth
	next time.Time
}

// taken notes a full backup that took some time, since the full backup before it. changed says that users or roles were the reason for it.
func (a *authFulls) taken(auth leases.BackupAuth, changed bool, now time.Time, took, since time.Duration) {
	switch {
	case auth.Object == "": // nothing is known of its users
		return
	case since >= 2*a.after(a.changes):
		a.changes = 1
	case changed:
		a.changes++
	}
	a.auth, a.next = auth, now.Add(max(a.after(a.changes), authIdle*took))
}

// authDue applies authChanged to the newest full backup. Nothing is due until the agent has read the Lease and etcd's state.
func (s *session) authDue(now time.Time) bool {
	auth := s.authNow()
	saved, read := s.reporter.savedAuth()
	return auth != nil && read && authChanged(authFacts{
		now: *auth, saved: saved, full: s.newest.Key, tried: s.authFulls.auth.Enabled,
		rested: !now.Before(s.newest.At.Add(s.authFulls.first)) && !now.Before(s.authFulls.next),
	})
}
