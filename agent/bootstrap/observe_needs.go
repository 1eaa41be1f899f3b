package bootstrap

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/etcd-druid/druid/agent/datadir/volume"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/membership"
)

// logRoom is what etcd writes next to its database: two preallocated WAL files of 64 MB and some snapshots.
const logRoom = 160 << 20

// observeNeeds looks whether everything that a member add will need is there. It is asked before a removal too, for a
// member that was removed and cannot come back is a member less.
func (b *Bootstrapper) observeNeeds(ctx context.Context, o *observation) {
	if o.Data == Intact && o.Own == OwnID && o.Epoch != Fenced {
		return // it resumes
	}
	for _, need := range []func(context.Context, *observation) error{b.needRoom, b.needSpace, b.needName, b.needQuorum} {
		if err := need(ctx, o); err != nil {
			o.note("needs", err.Error())
			return
		}
	}
	o.Needs = Met
}

// needRoom: the raft group's limit of learners, which our own old entry frees if it is one.
func (b *Bootstrapper) needRoom(_ context.Context, o *observation) error {
	limit := o.record.record.MaxLearners
	if learners, room := RoomOf(o.view, o.entry, o.Listed, limit); !room {
		return fmt.Errorf("%d learners are in the cluster, its limit is %d; it frees up as they are promoted", learners, limit)
	}
	return nil
}

// needSpace: the database of the cluster, and the log next to it.
func (b *Bootstrapper) needSpace(_ context.Context, o *observation) error {
	free, err := volume.Free(b.cfg.VolumePath)
	if err != nil {
		return err
	}
	if want := o.view.DBSizeInUse + o.view.DBSizeInUse/10 + logRoom; free < want {
		return fmt.Errorf("the volume has %d MiB free and %d MiB are needed; raise spec.storage.size", free>>20, want>>20)
	}
	return nil
}

// needName: our own peer name resolves to our own address, else the peers that dial us would remember it as missing.
func (b *Bootstrapper) needName(ctx context.Context, _ *observation) error {
	ctx, cancel := context.WithTimeout(ctx, endpointTimeout)
	defer cancel()
	own, err := b.ownAddresses()
	if err != nil {
		return err
	}
	host := b.host(b.cfg.Member)
	found, err := b.lookup(ctx, host)
	if err != nil {
		return fmt.Errorf("own peer name: %w", err)
	}
	if !slices.ContainsFunc(found, func(address string) bool { return slices.Contains(own, address) }) {
		return fmt.Errorf("own peer name %s resolves to %v and not to this Pod", host, found)
	}
	return nil
}

// needQuorum: the voters that are left when our old entry is gone are as many healthy ones as etcd asks for at an add,
// where the new member counts as down. A learner's removal takes no vote.
func (b *Bootstrapper) needQuorum(ctx context.Context, o *observation) error {
	left, want := QuorumForReplacing(o.view, o.entry, o.Listed)
	healthy := 0
	for _, health := range b.health(ctx, left) {
		if health == rules.Yes {
			healthy++
		}
	}
	if healthy < want {
		return fmt.Errorf("%d of the %d other voters are healthy, %d must be before this member is removed and added again",
			healthy, len(left), want)
	}
	return nil
}

// health asks each member itself: a healthy one knows a leader. No answer is unknown.
func (b *Bootstrapper) health(ctx context.Context, members []membership.Member) map[uint64]rules.Answer {
	ctx, cancel := context.WithTimeout(ctx, endpointTimeout)
	defer cancel()
	answers := make([]rules.Answer, len(members))
	var group errgroup.Group
	for i, m := range members {
		answers[i] = rules.Unknown
		if !m.Started() {
			continue
		}
		group.Go(func() error {
			for _, url := range b.urlsOf(m) {
				if status, err := b.status(ctx, url); err == nil && answers[i] != rules.Yes {
					answers[i] = rules.AnswerOf(status.Leader != 0 && status.MemberID == m.ID)
				}
			}
			return nil
		})
	}
	_ = group.Wait() // an error is an unknown answer
	health := make(map[uint64]rules.Answer, len(members))
	for i, m := range members {
		health[m.ID] = answers[i]
	}
	return health
}

func (b *Bootstrapper) status(ctx context.Context, endpoint string) (membership.Status, error) {
	client, err := b.dial(ctx, endpoint)
	if err != nil {
		return membership.Status{}, err
	}
	defer func() { _ = client.Close() }()
	return membership.ReadStatus(ctx, client, endpoint)
}
