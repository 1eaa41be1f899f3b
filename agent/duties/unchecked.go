package duties

import (
	"context"
	"fmt"

	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

// uncheckedTable is the name of the decisions about a member that started without etcd's own check in the metric of all decisions.
const uncheckedTable = "membership.uncheckedStarts"

// resolve takes the step that a comparison by a member permits that started without etcd's own check.
func (o *DifferingMember) resolve(ctx context.Context, self Cluster, view membership.View, found membership.Comparison,
	d rules.Decision[membership.UncheckedVerdict]) error {
	if o.reported.To(d.Rule) {
		o.Decisions.WithLabelValues(uncheckedTable, d.Rule).Inc()
		o.Log.InfoContext(ctx, "data of this member compared after its start", "mode", d.Verdict, "rule", d.Rule, "reason", d.Why, "verdict", string(found.Verdict),
			"revision", found.Revision, "hashes", hashesOf(view, found.Contents))
	}
	switch d.Verdict {
	case membership.UncheckedMark:
		return markDiffering(ctx, o.Store, self.Member, self.MemberID, found)
	case membership.UncheckedLead:
		if err := o.lead(ctx, self, view); err != nil {
			return err
		}
		o.Compared()
	case membership.UncheckedDone:
		o.Compared()
	case membership.UncheckedWait:
	}
	return nil
}

// lead moves leadership to the own member, whose agent then compares all voters and marks the differing one. It does nothing if the own member
// leads: its agent compared when it began to lead.
func (o *DifferingMember) lead(ctx context.Context, self Cluster, view membership.View) error {
	ctx, cancel := context.WithTimeout(ctx, transferTimeout)
	defer cancel()
	status, err := membership.StatusOf(ctx, o.Dial, self.ClusterID, membership.Member{ID: self.MemberID, ClientURLs: []string{o.Local}})
	if err != nil || status.Leader == self.MemberID {
		return err
	}
	leader, listed := view.Member(status.Leader)
	if !listed || len(leader.ClientURLs) == 0 {
		return fmt.Errorf("move leadership to member %s: its etcd knows no leader", leases.FormatID(self.MemberID))
	}
	_, err = TransferTo(ctx, o.Dial, leader.ClientURLs[0], self.Member)
	return err
}
