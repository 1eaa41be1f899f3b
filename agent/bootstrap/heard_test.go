package bootstrap

import (
	"errors"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/etcd-druid/druid/agent/launch"
	"github.com/etcd-druid/druid/leases"
)

func TestWhatSpokeAgainstTheDataIsNotForgotten(t *testing.T) {
	lease := leases.Member{ID: 0xa, ClusterID: 0xc, VolumeUID: "vol", PodUID: "pod", Floor: leases.Raft{Term: 3, Committed: 50}}
	with := func(change func(*leases.Member)) ownLease { m := lease; change(&m); return ownLease{member: m} }
	formed := func(id uint64) recordState {
		return recordState{record: leases.Record{Phase: leases.PhaseFormed, ClusterID: id, Epoch: 2, FormedEpoch: 2}}
	}
	lost := errors.New("timeout")
	unread, unreadRecord := ownLease{err: lost}, recordState{err: lost}
	behind := with(func(m *leases.Member) { m.Floor.Committed = 51 })
	for name, tc := range map[string]struct {
		ownBefore, own       ownLease
		recordBefore, record recordState
		rule, says           string
	}{
		"nothing was read":                     {unread, unread, unreadRecord, unreadRecord, "resume-majority", ""},
		"nothing spoke against it":             {with(func(*leases.Member) {}), unread, formed(0xc), unreadRecord, "resume-majority", ""},
		"it went back in time":                 {behind, unread, unreadRecord, unreadRecord, "lease-unread", "timeout"},
		"it is another volume's":               {with(func(m *leases.Member) { m.VolumeUID = "x" }), unread, unreadRecord, unreadRecord, "lease-unread", "timeout"},
		"another Pod bears the name":           {with(func(m *leases.Member) { m.PodUID = "x" }), unread, unreadRecord, unreadRecord, "superseded", "names the Pod with UID x"},
		"it is of a group that was lost":       {unread, unread, formed(0xd), unreadRecord, "lease-unread", "timeout"},
		"it went back, and that is taken back": {behind, with(func(*leases.Member) {}), unreadRecord, unreadRecord, "resume-majority", ""},
		"it was lost, and that is taken back":  {unread, unread, formed(0xd), formed(0xc), "resume-majority", ""},
		"it went back, by a Lease of no Pod":   {with(func(m *leases.Member) { m.Floor.Committed = 51 }), with(func(m *leases.Member) { m.PodUID, m.Floor.Committed = "", 51 }), unreadRecord, unreadRecord, "lease-unread", "has not written"},
	} {
		var h heard
		h.hear(tc.ownBefore, tc.recordBefore)
		h.hear(tc.own, tc.record)
		f, details := classify(us, ourData, tc.own, tc.record)
		h.against(us, ourData, &f, func(fact, detail string) { details[fact] = detail })
		o := observation{Facts: f, details: details}
		if d := Decide(f); d.Rule != tc.rule || !strings.Contains(o.reason(d), tc.says) {
			t.Errorf("%s: got %s (%s), want %s (%s)", name, d.Rule, o.reason(d), tc.rule, tc.says)
		}
	}
}

// A Lease that was read a moment ago and cannot be read now: the volume is as old as it was.
func TestAVolumeThatWentBackInTimeStaysSoWhileTheLeaseCannotBeRead(t *testing.T) {
	noOne, err := leases.NewClient(&rest.Config{Host: "http://127.0.0.1:1"}, "default")
	must(t, err)
	b := alone(t)
	b.cfg.PodUID = us.PodUID
	b.store = leases.NewStore(noOne, "c")
	volume := ourData
	b.inspects = &volume
	b.lease = ownLease{member: leases.Member{ID: 0xa, ClusterID: 0xc, VolumeUID: "vol", PodUID: "pod", Floor: leases.Raft{Term: 3, Committed: 51}}}
	b.leaseAt = time.Now().Add(time.Hour) // however long the test takes
	for _, fresh := range []bool{false, true} {
		o := b.observe(t.Context(), launch.Report{}, fresh)
		if o.Data != Stale || (o.own.err != nil) != fresh || Decide(o.Facts).Mode != ModeWait {
			t.Errorf("read again: %t (%v): the data is %s, and so %+v", fresh, o.own.err, o.Data, Decide(o.Facts))
		}
	}
}
