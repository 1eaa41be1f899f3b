package plan

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
)

func TestOnlyNamesThatTheGroupMissesAreBroughtBack(t *testing.T) {
	checkTable(t, lostRows, "lost", "Which names were taken out of a Formed record by hand: druid/plan.lostRows", func(f lostFacts, d rules.Decision[lostVerdict]) string {
		lost := d.Verdict
		switch {
		case lost == lostRelist && f.witness&(witnessOut|witnessElse) != 0:
			return "brings back a name that was removed, or of which nothing is known"
		case lost == lostRelist && f.witness == witnessMute && f.body == rules.No:
			return "brings back a name that nothing bears"
		case lost == lostLeave && f.witness == witnessOwn && (f.entry == entryThere || f.live == rules.Yes):
			return "forgets a member of the group"
		}
		return ""
	})
}

func TestLostNames(t *testing.T) {
	out := func(o *Observed, i int) {
		o.Record.Members = append(append([]string{}, o.Record.Members[:i]...), o.Record.Members[i+1:]...)
		o.Members[i].Listed = false
	}
	none := func(o *Observed) {
		o.Record.Members = nil
		for i := range o.Members {
			o.Members[i].Listed = false
		}
	}
	for name, test := range map[string]struct {
		desired Desired
		change  func(*Observed)
		want    []string
	}{
		"all names are there":        {change: func(*Observed) {}},
		"all names were taken out":   {change: none, want: []string{"c-a", "c-b", "c-c"}},
		"one name was taken out":     {change: func(o *Observed) { out(o, 1) }, want: []string{"c-b"}},
		"the record forms":           {change: func(o *Observed) { none(o); o.RecordState = RecordForming }},
		"the EtcdCluster is deleted": {desired: Desired{Deleted: true}, change: none},
		"one was removed, and its Lease is about to go": {change: func(o *Observed) {
			out(o, 1)
			o.Members[1].Says.Retire = leases.Retirement{State: leases.RetireDone, Mark: "m", ClusterID: "9"}
		}},
		"one was taken out while it was being removed": {change: func(o *Observed) {
			out(o, 1)
			o.Record.Retiring = &leases.Retiring{Member: "c-b", Mark: "m"}
			o.Members[1].Says.Retire = leases.Retirement{State: leases.RetireRemoving, Mark: "m"}
		}, want: []string{"c-b"}},
		"a name that was never in the cluster": {change: func(o *Observed) {
			out(o, 1)
			o.Members[1].Says = leases.Member{}
		}},
		"a member of another group":   {change: func(o *Observed) { out(o, 1); o.Members[1].Says.ClusterID = 8 }},
		"a Lease that cannot be read": {change: func(o *Observed) { out(o, 1); o.Members[1].Readable = false }},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, lostNames(test.desired, whole(test.change))); diff != "" {
				t.Errorf("names (-want +got):\n%s", diff)
			}
		})
	}
}
