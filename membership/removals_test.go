package membership

import (
	"fmt"
	"iter"
	"testing"

	"github.com/etcd-druid/druid/test/golden"
)

const decisions = "../docs/decisions.md"

func eachRemoval() iter.Seq[RemovalFacts] {
	return func(yield func(RemovalFacts) bool) {
		var f RemovalFacts
		more := func() bool { return eachAdopted(f, yield) }
		for f.Self = range golden.Bits(anyAnswer) {
			for f.Firm = range golden.Bits(anyAnswer) {
				for f.Desired = range golden.Bits(anyAnswer) {
					for f.Kind = range golden.Bits(anyKind) {
						for f.Coming = range golden.Bits(anyAnswer) {
							for f.Quorum = range golden.Bits(anyAnswer) {
								for f.Elapsed = range golden.Bits(anyAnswer) {
									for f.Turn = range golden.Bits(anyAnswer) {
										if !more() {
											return
										}
									}
								}
							}
						}
					}
				}
			}
		}
	}
}

// eachAdopted fills in what is said of a group that was joined.
func eachAdopted(f RemovalFacts, yield func(RemovalFacts) bool) bool {
	for f.Adopted = range golden.Bits(anyAnswer) {
		for f.Released = range golden.Bits(anyAnswer) {
			if !yield(f) {
				return false
			}
		}
	}
	return true
}

func TestRemovalsAreSafeForAllFacts(t *testing.T) {
	fired := map[string]int{}
	for f := range eachRemoval() {
		d := DecideRemoval(f)
		fired[d.Rule]++
		if d.Rule == "uncovered" {
			t.Errorf("%+v: no rule covers it", f)
		}
		if d.Verdict != RemoveMember {
			continue
		}
		switch {
		case f.Self != No:
			t.Errorf("%+v: a member removes itself: %+v", f, d)
		case f.Firm != Yes:
			t.Errorf("%+v: removed without a record that says who is desired: %+v", f, d)
		case f.Quorum != Yes:
			t.Errorf("%+v: the voters that are left may hold no healthy quorum: %+v", f, d)
		case f.Elapsed != Yes || f.Turn != Yes:
			t.Errorf("%+v: removed too early or too fast: %+v", f, d)
		case f.Desired == No && f.Adopted != No && f.Released != Yes:
			t.Errorf("%+v: removed from a group that was joined, without the user's word or before others take its place: %+v", f, d)
		case f.Desired == Unknown, f.Desired == Yes && (f.Kind != LearnerUnstarted || f.Coming != No):
			t.Errorf("%+v: a desired member is removed: %+v", f, d)
		}
	}
	var rows [][]string
	for _, r := range removals {
		if fired[r.name] == 0 {
			t.Errorf("row %s can never fire", r.name)
		}
		rows = append(rows, []string{
			r.name, golden.Cell(r.self, anyAnswer), golden.Cell(r.firm, anyAnswer), golden.Cell(r.desired, anyAnswer), golden.Cell(r.kind, anyKind),
			golden.Cell(r.adopted, anyAnswer), golden.Cell(r.released, anyAnswer),
			golden.Cell(r.coming, anyAnswer), golden.Cell(r.elapsed, anyAnswer), golden.Cell(r.turn, anyAnswer), golden.Cell(r.quorum, anyAnswer),
			"**" + string(r.verdict) + "**", r.why, fmt.Sprint(fired[r.name]),
		})
	}
	golden.Section(t, decisions, "removals", "## Members that nobody wants: membership.removals\n\n"+
		"Asked by the leader's agent for each entry of the member list.\n\n"+golden.Table([]string{
		"rule", "self", "firm record", "desired", "kind", "group was joined", "others may go", "Pod coming", "grace elapsed", "its turn", "quorum without it",
		"verdict", "why", "cases",
	}, rows))
}

func TestQuorumWithoutAMember(t *testing.T) {
	voter := func(id uint64) Member { return Member{ID: id, Name: fmt.Sprint(id)} }
	three := View{Members: []Member{voter(1), voter(2), voter(3), {ID: 9, Learner: true}}}
	tests := map[string]struct {
		view   View
		gone   uint64
		health map[uint64]Answer
		want   Answer
	}{
		"both others are healthy":                   {three, 3, map[uint64]Answer{1: Yes, 2: Yes}, Yes},
		"one of two is down":                        {three, 3, map[uint64]Answer{1: Yes, 2: No, 3: Yes}, No},
		"one of two is unknown":                     {three, 3, map[uint64]Answer{1: Yes, 3: Yes}, Unknown},
		"a learner goes, one voter is down":         {three, 9, map[uint64]Answer{1: Yes, 2: Yes, 3: No}, Yes},
		"a learner goes, two voters are down":       {three, 9, map[uint64]Answer{1: Yes, 2: No, 3: No}, No},
		"the last voter goes":                       {View{Members: []Member{voter(1)}}, 1, map[uint64]Answer{1: Yes}, No},
		"a learner's health does not make a quorum": {three, 3, map[uint64]Answer{1: Yes, 2: No, 9: Yes}, No},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := QuorumWithout(tc.view, tc.gone, tc.health); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

func TestDesiredByNameOrPeerURL(t *testing.T) {
	peerURL := func(name string) string { return "http://" + name + ":2380" }
	names := []string{"a", "b"}
	tests := map[string]struct {
		member Member
		want   Answer
	}{
		"started under a desired name":          {Member{Name: "a", PeerURLs: []string{"http://elsewhere:1"}}, Yes},
		"started under another name at our URL": {Member{Name: "x", PeerURLs: []string{"http://a:2380"}}, No},
		"unstarted at a desired peer URL":       {Member{PeerURLs: []string{"http://b:2380"}}, Yes},
		"unstarted elsewhere":                   {Member{PeerURLs: []string{"http://x:2380"}}, No},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := Desired(tc.member, names, peerURL); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}
