package bootstrap

import (
	"testing"

	"github.com/etcd-druid/druid/leases"
)

func TestTheDrainMarkOnOurLease(t *testing.T) {
	for name, tc := range map[string]struct {
		mark leases.Retirement
		want Lease
	}{
		"no mark":                     {leases.Retirement{}, Fresh},
		"asked, may be taken back":    {leases.Retirement{State: leases.RetireRequested}, Leaving},
		"the removal is claimed":      {leases.Retirement{State: leases.RetireRemoving}, Retired},
		"removed":                     {leases.Retirement{State: leases.RetireDone}, Retired},
		"a mark that no one can read": {leases.Retirement{State: leases.RetireUnreadable}, Retired},
	} {
		t.Run(name, func(t *testing.T) {
			if got, _ := classifyLease(us, ownLease{member: leases.Member{PodUID: us.PodUID, Retire: tc.mark}}); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

func TestWhoseTurnItIs(t *testing.T) {
	replacing := func(name string) *leases.Replacing { return &leases.Replacing{Member: name} }
	retiring := func(name string) *leases.Retiring { return &leases.Retiring{Member: name, Mark: "x"} }
	for name, tc := range map[string]struct {
		replacing *leases.Replacing
		retiring  *leases.Retiring
		want      Slot
	}{
		"nobody's":                             {nil, nil, SlotFree},
		"another replaces itself":              {replacing("c-b"), nil, SlotTaken},
		"we do":                                {replacing("c-a"), nil, SlotOurs},
		"one that is not desired any more did": {replacing("c-x"), nil, SlotFree},
		"another leaves":                       {nil, retiring("c-b"), SlotLeaving},
		"we leave, and our Lease does not say so":   {nil, retiring("c-a"), SlotLeaving},
		"one left that is not desired any more":     {nil, retiring("c-x"), SlotFree},
		"our replacement was begun before":          {replacing("c-a"), retiring("c-b"), SlotOurs},
		"a holder that is gone hides no drain":      {replacing("c-x"), retiring("c-b"), SlotLeaving},
		"a drain that is over hides no replacement": {replacing("c-b"), retiring("c-x"), SlotTaken},
	} {
		t.Run(name, func(t *testing.T) {
			record := leases.Record{Members: []string{"c-a", "c-b"}, Replacing: tc.replacing, Retiring: tc.retiring}
			if got, _ := classifySlot(us, record); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

func TestAMemberThatIsAskedToGoStaysWholeAndJoinsNoMore(t *testing.T) {
	member := Facts{
		Data: Intact, Listed: Voter, Own: OwnID, Record: Formed, Epoch: Current, Place: Desired, Lease: Leaving,
		Evidence: EvidenceUnknown, Peers: Answering, Backup: NoBackup, Order: NoOrder, Slot: SlotLeaving, Needs: Met, Joining: NotJoining,
	}
	with := func(change func(*Facts)) Facts { f := member; change(&f); return f }
	lost := func(f *Facts) { f.Data, f.Own = Empty, OtherID }
	for name, tc := range map[string]struct {
		facts Facts
		want  string
	}{
		"asked, restarts":                       {member, "resume"},
		"claimed, restarts":                     {with(func(f *Facts) { f.Lease = Retired }), "resume"},
		"asked, lost its data":                  {with(lost), "asked-to-go"},
		"taken back, lost its data":             {with(func(f *Facts) { lost(f); f.Lease, f.Slot = Fresh, SlotFree }), "data-lost"},
		"claimed, lost its data":                {with(func(f *Facts) { lost(f); f.Lease = Retired }), "retired"},
		"removed":                               {with(func(f *Facts) { f.Listed, f.Own, f.Lease = Unlisted, OtherID, Retired }), "retired"},
		"asked, never joined":                   {with(func(f *Facts) { lost(f); f.Listed = Unconfirmed }), "asked-to-go"},
		"another goes, a joiner waits":          {with(func(f *Facts) { lost(f); f.Lease, f.Listed = Fresh, Unconfirmed }), "await-drain"},
		"another goes, a replacement waits":     {with(func(f *Facts) { lost(f); f.Lease = Fresh }), "await-drain"},
		"another goes, a begun join goes on":    {with(func(f *Facts) { lost(f); f.Lease, f.Listed, f.Joining = Fresh, Unstarted, JoiningNow }), "finish-join"},
		"another goes, a removed one waits":     {with(func(f *Facts) { f.Lease, f.Listed, f.Own = Fresh, Unlisted, OtherID }), "await-drain"},
		"another goes, a good member restarts":  {with(func(f *Facts) { f.Lease = Fresh }), "resume"},
		"another goes, a majority restarts":     {with(func(f *Facts) { f.Lease, f.Listed = Fresh, NoQuorum }), "resume-majority"},
		"asked, all of them restart":            {with(func(f *Facts) { f.Listed = NoQuorum }), "resume-majority"},
		"asked, removed before it was claimed":  {with(func(f *Facts) { f.Listed, f.Own = Unlisted, OtherID }), "asked-to-go"},
		"taken back, and was removed meanwhile": {with(func(f *Facts) { f.Listed, f.Own, f.Lease, f.Slot = Unlisted, OtherID, Fresh, SlotFree }), "removed-while-down"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Decide(tc.facts); got.Rule != tc.want {
				t.Errorf("got %s, want %s", got.Rule, tc.want)
			}
		})
	}
}
