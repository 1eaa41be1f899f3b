package membership

import "testing"

// TestOnlyAComparedMemberAgrees tries each combination of answers of up to four voters at two revisions: none, one of
// two contents, or one at another compaction. Member 9 is a learner.
func TestOnlyAComparedMemberAgrees(t *testing.T) {
	const kinds, learner = 4, 9
	judged := func(voters, n int, revision int64) (Comparison, []int) {
		var of []int
		var answers []Content
		for id := 1; id <= voters; id, n = id+1, n/kinds {
			kind := n % kinds
			of = append(of, kind)
			if kind > 0 {
				answers = append(answers, Content{MemberID: uint64(id), Revision: revision, CompactRevision: int64(kind / 3), Hash: uint32(kind)})
			}
		}
		return Judge(voters, answers), of
	}
	agree := 0
	for voters := 1; voters <= 4; voters++ {
		total := 1
		for range voters {
			total *= kinds
		}
		for n := range total * total {
			first, _ := judged(voters, n%total, 8)
			second, of := judged(voters, n/total, 9)
			c := Confirm(first, second)
			if c.Revision == 8 {
				_, of = judged(voters, n%total, 8)
			}
			if got := OwnDataOf(c, learner); got != OwnUndecided {
				t.Fatalf("%d voters, answers %v: a learner is %s", voters, of, got)
			}
			for i, kind := range of {
				own := OwnDataOf(c, uint64(i+1))
				if own != OwnAgrees {
					continue
				}
				agree++
				same := 0
				for _, other := range of {
					if other == kind {
						same++
					}
				}
				if kind == 0 || 2*same <= voters {
					t.Fatalf("%d voters, answers %v: member %d agrees", voters, of, i+1)
				}
			}
		}
	}
	if agree == 0 {
		t.Error("no member ever agrees")
	}
}

func TestTheOwnDataOfMembersThatDiffer(t *testing.T) {
	at := func(id uint64, compaction int64, hash uint32) Content {
		return Content{MemberID: id, Revision: 9, CompactRevision: compaction, Hash: hash}
	}
	differing := Judge(5, []Content{at(1, 2, 7), at(2, 2, 7), at(3, 2, 7), at(4, 2, 8), at(5, 1, 9)})
	for id, want := range map[uint64]OwnData{1: OwnAgrees, 4: OwnDiffering, 5: OwnUndecided, 6: OwnUndecided} {
		if got := OwnDataOf(differing, id); differing.Verdict != VerdictDiffering || got != want {
			t.Errorf("%s: member %d is %s, want %s", differing.Verdict, id, got, want)
		}
	}
	later := Confirm(Judge(3, []Content{{MemberID: 1, Revision: 8, Hash: 7}, {MemberID: 2, Revision: 8, Hash: 7}, {MemberID: 3, Revision: 8, Hash: 8}}),
		Judge(3, []Content{at(1, 0, 7), at(2, 0, 7), at(3, 0, 8)}))
	for id, want := range map[uint64]OwnData{1: OwnAgrees, 2: OwnAgrees, 3: OwnDiffering} {
		if got := OwnDataOf(later, id); got != want {
			t.Errorf("confirmed: member %d is %s, want %s", id, got, want)
		}
	}
}
