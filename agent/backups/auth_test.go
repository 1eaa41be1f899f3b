package backups

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

func TestFullDueByAuthentication(t *testing.T) {
	off, on := leases.BackupAuth{Object: "full", Revision: 7}, leases.BackupAuth{Object: "full", Revision: 7, Enabled: true}
	of := func(b leases.BackupAuth, object string) leases.BackupAuth { b.Object = object; return b }
	for name, test := range map[string]struct {
		now   membership.AuthSwitch
		saved leases.BackupAuth
		full  string
		age   time.Duration
		want  bool
	}{
		"no full backup yet":                           {membership.AuthSwitch{Enabled: true, Revision: 9}, off, "", time.Hour, false},
		"authentication was never used":                {membership.AuthSwitch{Revision: 1}, leases.BackupAuth{}, "full", time.Hour, false},
		"nothing changed, and it is off":               {membership.AuthSwitch{Revision: 7}, off, "full", time.Hour, false},
		"nothing changed, and it is on":                {membership.AuthSwitch{Enabled: true, Revision: 7}, on, "full", time.Hour, false},
		"it was turned on, which counts no revision":   {membership.AuthSwitch{Enabled: true, Revision: 7}, off, "full", 0, true},
		"it was turned off a minute after the backup":  {membership.AuthSwitch{Revision: 8}, on, "full", time.Minute, false},
		"it was turned off":                            {membership.AuthSwitch{Revision: 8}, on, "full", authPause, true},
		"a user changed a minute after the backup":     {membership.AuthSwitch{Enabled: true, Revision: 8}, on, "full", time.Minute, false},
		"a user changed":                               {membership.AuthSwitch{Enabled: true, Revision: 8}, on, "full", authPause, true},
		"what the agent read is older than the backup": {membership.AuthSwitch{Enabled: true, Revision: 6}, off, "full", time.Hour, false},
		"another full backup is unknown, and it is on": {membership.AuthSwitch{Enabled: true, Revision: 7}, of(on, "older"), "full", 0, true},
		"another full backup is unknown, and users are there": {
			membership.AuthSwitch{Revision: 7}, of(off, "older"), "full", authPause, true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := authChanged(test.now, test.saved, test.full, test.age); got != test.want {
				t.Errorf("a full backup is due: %t, want %t", got, test.want)
			}
		})
	}
}

// Delta backups have no users and roles. After authentication is turned on, the leader takes one full backup, and its successor takes none.
func TestAuthEnabledGetsAFull(t *testing.T) {
	t.Parallel()
	admin, namespace, agentOf := snapshotLeases(t)
	g := newGroup(t, 1)
	c := directory(t.TempDir())
	s := opened(t, c)
	run := func(now membership.AuthSwitch) (a *neighbour, stop func()) {
		a = agentOf(g, 0)
		a.AuthIs(now)
		a.Configure(c)
		return a, a.start()
	}
	saved := func(want leases.BackupAuth) {
		t.Helper()
		eventually(t, fmt.Sprintf("the Lease says %+v", want), func() error {
			b, err := decoded(t, admin, namespace, leases.FullSnapshotName("demo"))
			if err != nil {
				return err
			}
			fulls := history(t, s).Fulls
			if want.Object = fulls[len(fulls)-1].Key; b.Object != want.Object || b.Auth != want {
				return fmt.Errorf("the Lease says %+v of %s", b.Auth, b.Object)
			}
			return nil
		})
	}
	first, stop := run(membership.AuthSwitch{Revision: 1})
	savedUpTo(t, s, 1)
	saved(leases.BackupAuth{Revision: 1})
	enabled := membership.AuthSwitch{Enabled: true, Revision: 5}
	first.AuthIs(enabled)
	eventually(t, "a full backup because of authentication", func() error {
		if n := len(history(t, s).Fulls); n != 2 {
			return fmt.Errorf("%d full backups", n)
		}
		return nil
	})
	saved(leases.BackupAuth{Revision: 5, Enabled: true})
	if n := first.fired("due"); n != 1 {
		t.Errorf("a full backup was due %v times, want 1", n)
	}
	stop()
	second, _ := run(enabled)
	eventually(t, "the successor reads the Lease, and decides", func() error {
		session, _ := second.at()
		if session == nil {
			return errors.New("no session")
		}
		if _, read := session.reporter.savedAuth(); !read || second.fired("saved") == 0 {
			return errors.New("not yet")
		}
		return nil
	})
	savedUpTo(t, s, put(t, g.client(0), 1))
	if n := len(history(t, s).Fulls); n != 2 {
		t.Errorf("%d full backups after another agent leads, want 2", n)
	}
}
