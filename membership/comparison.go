package membership

import (
	"context"
	"fmt"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcd-druid/druid/internal/rules"
)

// Content is what a hash reports about the data of one member at a revision.
type Content struct {
	MemberID uint64
	// Revision that was hashed, and CompactRevision, below which history is compacted. Hashes can be compared only if
	// both are equal.
	Revision, CompactRevision int64
	Hash                      uint32
}

// ReadContent asks the member at endpoint for a hash of its complete data at revision. The member reads its complete
// database.
func ReadContent(ctx context.Context, client *clientv3.Client, endpoint string, clusterID uint64, revision int64) (Content, error) {
	r, err := client.HashKV(ctx, endpoint, revision)
	if err != nil {
		return Content{}, fmt.Errorf("hash of revision %d: %w", revision, err)
	}
	if id := r.Header.GetClusterId(); id != clusterID {
		return Content{}, fmt.Errorf("hash of revision %d: %w: %x", revision, ErrOtherCluster, id)
	}
	// etcd 3.5 does not report which revision it hashed.
	if r.HashRevision != 0 && r.HashRevision != revision {
		return Content{}, fmt.Errorf("hash of revision %d: the member hashed revision %d", revision, r.HashRevision)
	}
	return Content{MemberID: r.Header.GetMemberId(), Revision: revision, CompactRevision: r.CompactRevision, Hash: r.Hash}, nil
}

// Verdict is the result of a comparison of all voters.
type Verdict string

// The verdicts.
const (
	// VerdictSame: all voters have the same data.
	VerdictSame Verdict = "Same"
	// VerdictDiffering: the data of a voter differs from that of a majority of all voters.
	VerdictDiffering Verdict = "Differing"
	// VerdictTie: data differs, and no majority of all voters has the same.
	VerdictTie Verdict = "Tie"
	// VerdictUnknown: nothing is known to differ, and not all voters could be compared.
	VerdictUnknown Verdict = "Unknown"
)

// VerdictFacts is the complete input of verdicts.
type VerdictFacts struct {
	// Differs: two hashes at the same revision and the same compaction differ. If there is a majority, one of them is its hash.
	Differs rules.YesNo `fact:"comparable hashes differ"`
	// Majority: more than half of all voters, also of those without an answer, have the same hash at the same revision and
	// the same compaction.
	Majority rules.YesNo `fact:"a majority of all voters agrees"`
	// Whole: the hash of every voter is comparable.
	Whole rules.YesNo `fact:"all voters are comparable"`
}

// verdicts is the complete policy on the result of a comparison. The first match wins.
var verdicts = rules.New(VerdictUnknown, []rules.Row[VerdictFacts, Verdict]{
	{Name: "differing", When: VerdictFacts{Differs: rules.Yes, Majority: rules.Yes}, Verdict: VerdictDiffering,
		Why: "a majority of all voters has the same data, and another voter has other data"},
	{Name: "tie", When: VerdictFacts{Differs: rules.Yes, Majority: rules.No}, Verdict: VerdictTie,
		Why: "voters have different data, and no majority of all voters has the same data"},
	{Name: "same", When: VerdictFacts{Differs: rules.No, Majority: rules.Yes, Whole: rules.Yes}, Verdict: VerdictSame,
		Why: "all voters have the same data"},
	{Name: "incomplete", When: VerdictFacts{Differs: rules.No}, Verdict: VerdictUnknown,
		Why: "a voter did not answer, or answered for another revision or another compaction"},
})

// Comparison is the result of a comparison of all voters.
type Comparison struct {
	Verdict Verdict
	// Rule is the row of the table that decided.
	Rule string
	// Contents is what the voters reported, at Revision.
	Contents []Content
	Revision int64
	// Differing are the voters whose data differs from that of the majority, if the verdict is Differing.
	Differing []Content
	// Majority is the data that more than half of all voters have. The member ID is that of one of them.
	Majority Content
	// Confirmed is the revision of an earlier comparison with the same result, 0 for none.
	Confirmed int64
}

// Judge compares the data that members reported. voters is the number of all voters of the raft group, also of those that
// did not report.
func Judge(voters int, contents []Content) Comparison {
	c, f := Comparison{Contents: contents}, VerdictFacts{Differs: rules.No, Majority: rules.No, Whole: rules.No}
	compared := 0
	for _, one := range contents {
		c.Revision = one.Revision
		same := slices.DeleteFunc(slices.Clone(contents), func(other Content) bool { return !one.comparesWith(other) || one.Hash != other.Hash })
		if 2*len(same) > voters {
			f.Majority, c.Majority = rules.Yes, one
		}
	}
	for _, one := range contents {
		switch {
		case f.Majority == rules.No:
			if slices.ContainsFunc(contents, func(other Content) bool { return one.comparesWith(other) && one.Hash != other.Hash }) {
				f.Differs = rules.Yes
			}
		case one.comparesWith(c.Majority):
			if compared++; one.Hash != c.Majority.Hash {
				f.Differs, c.Differing = rules.Yes, append(c.Differing, one)
			}
		}
	}
	f.Whole = rules.YesNoOf(compared == voters)
	d := verdicts.Decide(f)
	c.Verdict, c.Rule = d.Verdict, d.Rule
	return c
}

func (c Content) comparesWith(other Content) bool {
	return c.Revision == other.Revision && c.CompactRevision == other.CompactRevision
}

// Confirm returns what two comparisons at different revisions have in common. A difference that only one of them found is
// unknown.
func Confirm(first, second Comparison) Comparison {
	unknown := Comparison{Verdict: VerdictUnknown, Rule: "not-confirmed"}
	switch {
	case first.Verdict == VerdictSame, first.Verdict == VerdictUnknown:
		return first
	case first.Verdict != second.Verdict, first.Revision == second.Revision:
		return unknown
	}
	second.Confirmed = first.Revision
	if second.Verdict == VerdictTie {
		return second
	}
	second.Differing = slices.DeleteFunc(slices.Clone(second.Differing), func(c Content) bool { return !first.Names(c.MemberID) })
	if len(second.Differing) == 0 {
		return unknown
	}
	return second
}

// Agreeing returns the IDs of the voters that have the data of the majority, none without a majority.
func (c Comparison) Agreeing() (ids []uint64) {
	for _, one := range c.Contents {
		if c.Majority.MemberID != 0 && one.comparesWith(c.Majority) && one.Hash == c.Majority.Hash {
			ids = append(ids, one.MemberID)
		}
	}
	return ids
}

// Names says whether the member with id is one of the differing ones.
func (c Comparison) Names(id uint64) bool {
	return slices.ContainsFunc(c.Differing, func(differing Content) bool { return differing.MemberID == id })
}
