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
	is := func(revision uint64, enabled bool) membership.AuthSwitch {
		return membership.AuthSwitch{Revision: revision, Enabled: enabled}
	}
	for name, test := range map[string]struct {
		facts authFacts
		want  bool
	}{
		"no full backup yet":                            {authFacts{is(9, true), off, "", true, false}, false},
		"authentication was never used":                 {authFacts{is(1, false), leases.BackupAuth{}, "full", true, false}, false},
		"nothing changed, and it is off":                {authFacts{is(7, false), off, "full", true, false}, false},
		"nothing changed, and it is on":                 {authFacts{is(7, true), on, "full", true, true}, false},
		"it was turned on, which counts no revision":    {authFacts{is(7, true), off, "full", false, false}, true},
		"it was turned on, and a full backup had it":    {authFacts{is(7, true), off, "full", false, true}, false},
		"it was turned on, had one, and the pause ends": {authFacts{is(7, true), off, "full", true, true}, true},
		"it was turned off a minute after the backup":   {authFacts{is(8, false), on, "full", false, true}, false},
		"it was turned off":                             {authFacts{is(8, false), on, "full", true, true}, true},
		"a user changed a minute after the backup":      {authFacts{is(8, true), on, "full", false, true}, false},
		"a user changed":                                {authFacts{is(8, true), on, "full", true, true}, true},
		"what the agent read is older than the backup":  {authFacts{is(6, true), off, "full", true, false}, false},
		"another full backup is unknown, and it is on":  {authFacts{is(7, true), of(on, "older"), "full", false, false}, true},
		"another one is unknown, and users are there":   {authFacts{is(7, false), of(off, "older"), "full", true, false}, true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := authChanged(test.facts); got != test.want {
				t.Errorf("a full backup is due: %t, want %t", got, test.want)
			}
		})
	}
}

// While users change all the time, the pause doubles, and ends after they rest for twice as long. A long backup is followed by a longer pause.
func TestPauseOfFullsForUsersGrows(t *testing.T) {
	a, now := authFulls{pace: authPace}, time.Now()
	has := leases.BackupAuth{Object: "full", Revision: 2}
	for i, step := range []struct {
		auth              leases.BackupAuth
		changed           bool
		took, since, want time.Duration
	}{
		{has, true, time.Second, 24 * time.Hour, 10 * time.Minute},
		{has, true, time.Second, 10 * time.Minute, 20 * time.Minute},
		{leases.BackupAuth{}, true, time.Second, 10 * time.Minute, 20 * time.Minute},
		{has, false, time.Second, 20 * time.Minute, 20 * time.Minute},
		{has, true, time.Second, 30 * time.Minute, 40 * time.Minute},
		{has, true, time.Second, 79 * time.Minute, 80 * time.Minute},
		{has, true, 2 * time.Hour, 2 * time.Hour, 6 * time.Hour},
		{has, true, time.Second, 3 * time.Hour, 320 * time.Minute},
		{has, true, time.Second, 6 * time.Hour, 6 * time.Hour},
		{has, true, time.Second, 6 * time.Hour, 6 * time.Hour},
		{has, true, time.Second, 12 * time.Hour, 10 * time.Minute},
	} {
		a.taken(step.auth, step.changed, now, step.took, step.since)
		if got := a.next.Sub(now); got != step.want {
			t.Fatalf("after full backup %d the pause is %s, want %s", i+1, got, step.want)
		}
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
		a.AuthIs(g.self(0).ClusterID, now)
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
	first.AuthIs(g.self(0).ClusterID, enabled)
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

// After a restore in place, an agent that led before knows the users of the raft group before. It claims nothing of a full backup until it
// knows those of the new one.
func TestAuthOfEarlierGroupIsUnknown(t *testing.T) {
	t.Parallel()
	admin, namespace, agentOf := snapshotLeases(t)
	g := newGroup(t, 1)
	c := directory(t.TempDir())
	a, now := agentOf(g, 0), membership.AuthSwitch{Enabled: true, Revision: 5}
	reports := func(want leases.BackupAuth, fulls int) {
		t.Helper()
		eventually(t, fmt.Sprintf("the Lease of %d full backups says %+v", fulls, want), func() error {
			b, err := decoded(t, admin, namespace, leases.FullSnapshotName("demo"))
			if err != nil {
				return err
			}
			all := history(t, opened(t, c)).Fulls
			if want != (leases.BackupAuth{}) {
				want.Object = b.Object
			}
			if len(all) != fulls || b.Object != all[fulls-1].Key || b.Auth != want {
				return fmt.Errorf("it says %+v of %s; there are %d", b.Auth, b.Object, len(all))
			}
			return nil
		})
	}
	a.AuthIs(g.self(0).ClusterID+1, membership.AuthSwitch{Enabled: true, Revision: 99})
	a.Configure(c)
	a.start()
	reports(leases.BackupAuth{}, 1)
	a.AuthIs(g.self(0).ClusterID, now)
	reports(leases.BackupAuth{Revision: 5, Enabled: true}, 2)
}
