package backups

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/etcd-druid/druid/membership"
)

// turnTimeout of one member: a second is a long time for an answer that costs nothing.
const turnTimeout = 2 * time.Second

// turn asks our own member who is there and who leads, and those that come before us whether they answer. Who is not sure
// waits: at the next look someone is.
func (d *Duty) turn(ctx context.Context, self Identity) Turn {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	client, err := d.Dial(ctx, d.Local)
	if err != nil {
		return TurnUnknown
	}
	defer func() { _ = client.Close() }() // it was only asked
	status, err := membership.ReadStatus(ctx, client, d.Local)
	if err != nil || status.ClusterID != self.ClusterID || status.MemberID != self.MemberID || status.Leader == 0 {
		return TurnUnknown
	}
	list, err := client.MemberList(ctx)
	if err != nil || list.Header.GetClusterId() != self.ClusterID {
		return TurnUnknown
	}
	var voters []voter
	for _, m := range list.Members {
		if !m.IsLearner {
			voters = append(voters, voter{m.ID, m.Name, m.ClientURLs})
		}
	}
	return turnOf(self.MemberID, status.Leader, voters, func(v voter) bool { return d.answers(ctx, v, self.ClusterID) })
}

type voter struct {
	id        uint64
	name      string
	endpoints []string
}

// turnOf: the first voter by its name that does not lead and answers; the leader, where there is no such one.
func turnOf(self, leader uint64, voters []voter, answers func(voter) bool) Turn {
	voters = slices.Clone(voters)
	slices.SortFunc(voters, func(a, b voter) int { return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.id, b.id)) })
	for _, v := range voters {
		switch {
		case v.id == leader:
		case v.id == self:
			return TurnOurs
		case answers(v):
			return TurnOthers
		}
	}
	if self == leader {
		return TurnOurs
	}
	return TurnOthers
}

func (d *Duty) answers(ctx context.Context, v voter, clusterID uint64) bool {
	if len(v.endpoints) == 0 {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, turnTimeout)
	defer cancel()
	client, err := d.Dial(ctx, v.endpoints[0])
	if err != nil {
		return false
	}
	defer func() { _ = client.Close() }() // it was only asked
	status, err := membership.ReadStatus(ctx, client, v.endpoints[0])
	return err == nil && status.ClusterID == clusterID && status.Healthy()
}
