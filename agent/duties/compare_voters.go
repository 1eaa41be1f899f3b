package duties

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

// errNoMajority says that no majority of all voters is known to have the same data.
var errNoMajority = errors.New("no majority of all voters is known to have the same data")

// Majority returns the IDs of the voters whose data is that of a majority of all voters. It asks each voter for the hash of its complete
// data. Without such a majority, it returns an error, and differ says whether voters have different data. Otherwise too many did not answer.
func Majority(ctx context.Context, dial membership.Dial, local string, clusterID uint64) (ids []uint64, differ bool, err error) {
	view, err := membership.Observe(ctx, dial, membership.Query{Endpoints: []string{local}, ClusterID: clusterID, Timeout: callTimeout})
	if err != nil {
		return nil, false, err
	}
	found, silent := compareAt(ctx, dial, view, 0)
	if ids = found.Agreeing(); len(ids) == 0 {
		return nil, found.Verdict != membership.VerdictUnknown, errors.Join(errNoMajority, silent)
	}
	return ids, false, nil
}

// compareVoters asks each voter for the hash of its complete data at a revision that all voters that answer have. If
// something differs, it asks again at another revision. A voter that does not answer is unknown, never equal. The error names
// such voters.
func compareVoters(ctx context.Context, dial membership.Dial, view membership.View) (membership.Comparison, error) {
	first, err := compareAt(ctx, dial, view, 0)
	if first.Verdict != membership.VerdictDiffering && first.Verdict != membership.VerdictTie {
		return first, err
	}
	second, err := compareAt(ctx, dial, view, first.Revision)
	return membership.Confirm(first, second), err
}

// compareAt compares at the present revision. If that is the revision of an earlier comparison, it takes the revision before.
func compareAt(ctx context.Context, dial membership.Dial, view membership.View, earlier int64) (membership.Comparison, error) {
	return compareAmong(ctx, dial, view, view.Voters(), earlier)
}

// compareAmong compares some voters of a view only.
func compareAmong(ctx context.Context, dial membership.Dial, view membership.View, voters []membership.Member, earlier int64) (membership.Comparison, error) {
	revisions, contents, errs := make([]int64, len(voters)), make([]membership.Content, len(voters)), make([]error, len(voters))
	each(voters, func(i int, m membership.Member) {
		var status membership.Status
		status, errs[i] = statusOf(ctx, dial, view.ClusterID, m)
		revisions[i] = status.Revision
	})
	revision := int64(0)
	for i := range voters {
		if errs[i] == nil && (revision == 0 || revisions[i] < revision) {
			revision = revisions[i]
		}
	}
	if revision == earlier {
		revision--
	}
	if revision < 1 {
		return membership.Judge(len(voters), nil), errors.Join(errs...)
	}
	each(voters, func(i int, m membership.Member) {
		if errs[i] == nil {
			contents[i], errs[i] = contentOf(ctx, dial, view.ClusterID, m, revision)
		}
	})
	answered := slices.DeleteFunc(contents, func(c membership.Content) bool { return c.MemberID == 0 })
	return membership.Judge(len(voters), answered), errors.Join(errs...)
}

func each(members []membership.Member, do func(i int, m membership.Member)) {
	var group errgroup.Group
	for i, m := range members {
		group.Go(func() error {
			do(i, m)
			return nil
		})
	}
	_ = group.Wait() // do keeps its errors
}

// contentOf asks one voter for its hash, at its published URL. It rejects the answer of another member.
func contentOf(ctx context.Context, dial membership.Dial, clusterID uint64, m membership.Member, revision int64) (c membership.Content, err error) {
	ctx, cancel := context.WithTimeout(ctx, hashTimeout)
	defer cancel()
	client, done, err := dial(ctx, m.ClientURLs[0])
	if err != nil {
		return membership.Content{}, err
	}
	defer func() { done(err) }()
	c, err = membership.ReadContent(ctx, client, m.ClientURLs[0], clusterID, revision)
	if err == nil && c.MemberID != m.ID {
		return membership.Content{}, fmt.Errorf("%w: %s", membership.ErrOtherMember, leases.FormatID(c.MemberID))
	}
	return c, err
}
