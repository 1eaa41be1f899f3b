package plan

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
)

var (
	witnessWords = []string{"a member of the group", "removed", "there is no Lease", "nothing that counts"}
	entryWords   = []string{"there", "missing", "not published"}
)

func TestOnlyNamesThatTheGroupMissesAreBroughtBack(t *testing.T) {
	count := map[string]int{}
	for _, witness := range bits(anyWitness) {
		for _, entry := range bits(anyEntry) {
			for i := range 16 {
				f := lostFacts{witness, entry, rules.YesNoOf(i&1 != 0), rules.YesNoOf(i&2 != 0), rules.YesNoOf(i&4 != 0), rules.YesNoOf(i&8 != 0)}
				lost, rule := judgeLost(f)
				count[rule]++
				switch {
				case lost == rules.Yes && f.witness&(witnessOut|witnessElse) != 0:
					t.Errorf("%+v: %s brings back a name that was removed, or of which nothing is known", f, rule)
				case lost == rules.Yes && f.witness == witnessMute && f.body == rules.No:
					t.Errorf("%+v: %s brings back a name that nothing bears", f, rule)
				case lost == rules.No && f.witness == witnessOwn && (f.entry == entryThere || f.live == rules.Yes):
					t.Errorf("%+v: %s forgets a member of the group", f, rule)
				}
			}
		}
	}
	var rows []string
	var table [][]string
	for _, r := range lostRows {
		rows = append(rows, r.name)
		table = append(table, []string{
			r.name, cell(r.witness, anyWitness, witnessWords), cell(r.entry, anyEntry, entryWords), answer(r.slot), answer(r.live), answer(r.body),
			answer(r.empty), bold(map[rules.YesNo]string{rules.Yes: "Relist", rules.No: "Leave"}[r.lost]),
		})
	}
	fired(t, count, rows...)
	section(t, "lost", "Which names were taken out of a Formed record by hand: druid/plan.lostRows", []string{
		"its Lease says", "in the member list", "a slot names it", "its Lease is renewed", "an object bears it", "the record lists nobody", "verdict",
	}, table, count)
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
