package backups

import (
	"time"

	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

// authPause is the minimum time between the newest full backup and one because users or roles changed. A program that changes them all the
// time then causes at most six full backups an hour.
const authPause = 10 * time.Minute

// authChanged says whether a full backup is due because of users, roles or authentication. Delta backups have none of them, so a restore has
// them as they were when the full backup was taken. If authentication was off then or that is unknown, and it is on now, a restored cluster
// would serve its data without it. Then the full backup does not wait.
//
// now is what etcd has, and saved is what the Lease says about a full backup. full is the key of the newest full backup, and age is how long
// ago etcd made it. etcd's revision of users and roles counts all changes, except that authentication is turned on
// (https://github.com/etcd-io/etcd/blob/v3.6.16/server/auth/store.go, AuthEnable).
func authChanged(now membership.AuthSwitch, saved leases.BackupAuth, full string, age time.Duration) bool {
	if saved.Object != full {
		saved = leases.BackupAuth{Revision: unusedAuth}
	}
	switch {
	case full == "", now.Revision < saved.Revision:
		return false
	case now.Enabled && !saved.Enabled:
		return true
	default:
		return now.Revision > saved.Revision && age >= authPause
	}
}

// unusedAuth is etcd's revision of users and roles while there were never any.
const unusedAuth = 1

// AuthIs takes etcd's state of authentication from the duty of the leader that manages it. Call it when the agent read the state and changed
// nothing of it.
func (d *Duty) AuthIs(now membership.AuthSwitch) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.auth != nil && *d.auth == now {
		return
	}
	d.auth = &now
	d.notify()
}

// authNow returns etcd's state of authentication, or nil while that is not known.
func (d *Duty) authNow() *membership.AuthSwitch {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.auth
}

// authDue applies authChanged to the newest full backup. Nothing is due until the agent has read the Lease and etcd's state.
func (s *session) authDue(now time.Time) bool {
	auth := s.authNow()
	saved, read := s.reporter.savedAuth()
	return auth != nil && read && authChanged(*auth, saved, s.newest.Key, now.Sub(s.newest.At))
}
