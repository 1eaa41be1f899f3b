package model

import (
	"strings"
	"testing"

	"github.com/etcd-druid/druid/agent/datadir"
)

// givesUp deletes the record after so many steps of a restore, takes one member away with its Lease as it was, and destroys the data of
// another one. The user gives up the member that is away, and it comes back later.
func givesUp(at int) (w *lostWorld, gaveUp bool) {
	w = newRestoreWorld(0, 0)
	w.requested()
	n := 0
	w.until(func() bool { n++; return n >= at }, allOf...)
	if w.newest > 0 { // the new raft group has one member at first
		return w, false
	}
	w.say("the record is deleted, %s is away, and the data of %s is lost", names[2], names[1])
	w.there, w.version, w.overdue, w.wish = false, w.version+1, false, nil
	w.off(2)
	m := &w.members[1]
	m.run, m.there, m.identity, m.built, m.acknowledged, m.step = false, false, datadir.IdentityFile{}, datadir.IdentityFile{}, "", lostLook
	formed := w.until(func() bool { return w.newest > 0 }, 0, 1)
	w.members[2].on = true
	if served := w.until(w.servesAll, allOf...); w.bad == "" && !(formed && served) {
		w.violate("formed again: %t, serves: %t, record %+v", formed, served, w.record)
	}
	return w, w.gaveUp > 0
}

// The order of a restore in place is lost with the record, and the user withdraws the restore and gives up a member. One raft
// group serves afterwards.
func TestAMemberIsGivenUpAtEachStepOfARestore(t *testing.T) {
	some := false
	for _, at := range restoreMoments() {
		w, gaveUp := givesUp(at)
		if some = some || gaveUp; w.bad != "" {
			t.Fatalf("before step %d: %s\n%s", at, w.bad, strings.Join(w.story, "\n"))
		}
	}
	if !some {
		t.Error("the user gives up no member")
	}
}
