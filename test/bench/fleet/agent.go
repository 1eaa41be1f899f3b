package fleet

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"github.com/etcd-druid/druid/leases"
)

const (
	// renewInterval and leaseDuration are the agents' own defaults (agent/config).
	renewInterval = 15 * time.Second
	leaseDuration = 45 * time.Second
	// progressInterval is how often a member's raft log is seen to have grown.
	progressInterval = 5 * time.Second
)

// agent plays the agent of one member: a start as the start decision has it, then nothing but renewals.
type agent struct {
	group   *group
	store   *leases.Store
	renewer *leases.Renewer
	name    string
	podUID  string
	ready   func(context.Context)
	member  leases.Member
}

func (f *Fleet) agent(ctx context.Context, g *group, pod *corev1.Pod, ready func(context.Context)) error {
	log := slog.New(slog.DiscardHandler)
	store := leases.NewStore(f.kube.CoordinationV1().Leases(f.namespace), g.cluster)
	settings := func() leases.Settings { return leases.Settings{Interval: renewInterval, Duration: leaseDuration} }
	a := &agent{
		group: g, store: store, name: pod.Name, podUID: string(pod.UID), ready: ready,
		renewer: leases.NewRenewer(store, pod.Name, string(pod.UID), settings, log),
		member:  leases.Member{AgentVersion: "played", Data: "empty"},
	}
	var group errgroup.Group
	group.Go(func() error { return a.renewer.Run(ctx) })
	group.Go(func() error {
		seed, ok := a.begin(ctx)
		if !ok {
			return nil
		}
		if seed {
			// The Pod that formed the group leads it for good.
			election := leases.NewElection(store, a.name, log)
			group.Go(func() error { return election.Run(ctx, func(ctx context.Context) { a.lead(ctx) }) })
		}
		a.serve(ctx)
		return nil
	})
	if err := group.Wait(); err != nil {
		return fmt.Errorf("agent of %s: %w", a.name, err)
	}
	return nil
}

// begin brings the member into its group, and says whether it is the seed and whether it came that far.
func (a *agent) begin(ctx context.Context) (seed, ok bool) {
	var record leases.Record
	ok = until(ctx, func(ctx context.Context) (err error) {
		own, err := a.store.Member(ctx, a.name)
		if err == nil && own.PodUID != a.podUID {
			err = leases.ErrSuperseded // druid has not marked the Lease yet
		}
		if err != nil {
			return err
		}
		record, _, err = a.store.Record(ctx)
		return err
	})
	if !ok {
		return false, false
	}
	if record.Seed == a.name {
		a.says("first-boot", "", "")
		return true, until(ctx, a.form) && a.joined(ctx, leases.RoleLeader)
	}
	a.says("await-seed", "the seed has not formed the cluster yet", "")
	if !a.group.awaitFormed(ctx) {
		return false, false
	}
	a.says("join", "", leases.RoleLearner)
	a.group.join(a.name)
	return false, a.group.awaitWhole(ctx) && a.joined(ctx, leases.RoleMember)
}

// form claims the bootstrap and records it, as the seed's agent does before and after etcd first starts.
func (a *agent) form(ctx context.Context) error {
	record, version, err := a.store.Record(ctx)
	if err != nil {
		return err
	}
	record.Epoch, record.Nonce, record.Executor = record.FormedEpoch+1, fmt.Sprintf("%016x", rand.Uint64()), a.podUID
	record.Lineage, record.MaxLearners = leases.LineageOf(record.Epoch, record.Nonce), leases.MaxLearners
	record.ClusterID = rand.Uint64() | 1
	if version, err = a.store.UpdateRecord(ctx, version, record); err != nil {
		return err
	}
	record.Phase, record.FormedEpoch = leases.PhaseFormed, record.Epoch
	if _, err := a.store.UpdateRecord(ctx, version, record); err != nil {
		return err
	}
	a.group.form(record)
	a.group.join(a.name)
	return nil
}

// joined: the member votes and its etcd is ready.
func (a *agent) joined(ctx context.Context, role leases.Role) bool {
	a.says("resume", "", role)
	a.ready(ctx)
	return ctx.Err() == nil
}

// says publishes what the member is now. A member with a role is in the group, and alive.
func (a *agent) says(rule, reason string, role leases.Role) {
	a.member.Rule, a.member.Reason, a.member.Role = rule, reason, role
	if role != "" && a.member.ID == 0 {
		record := a.group.recorded()
		a.member.ID, a.member.ClusterID, a.member.Epoch, a.member.Lineage = rand.Uint64()|1, record.ClusterID, record.Epoch, record.Lineage
		a.member.Version, a.member.Data, a.member.DBSize = "3.6.16", "intact", 1<<20
	}
	a.renewer.Publish(leases.Fact{Member: a.member, Alive: role != ""})
}

// serve lets the member's raft log grow, which every renewal reports, until ctx ends.
func (a *agent) serve(ctx context.Context) {
	ticker := time.NewTicker(progressInterval)
	defer ticker.Stop()
	for {
		a.member.Revision++
		a.member.Raft = leases.Raft{Term: 2, Committed: uint64(a.member.Revision)}
		a.renewer.Publish(leases.Fact{Member: a.member, Alive: true})
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// lead publishes the member list in the record when the group is whole, and then leads until ctx ends.
func (a *agent) lead(ctx context.Context) {
	if !a.group.awaitWhole(ctx) {
		return
	}
	until(ctx, func(ctx context.Context) error {
		record, version, err := a.store.Record(ctx)
		if err != nil {
			return err
		}
		list := &leases.MemberList{RaftTerm: 2, RaftIndex: 10}
		for _, name := range slices.Sorted(slices.Values(record.Members)) {
			list.Members = append(list.Members, leases.ListedMember{ID: leases.FormatID(rand.Uint64()), Name: name, PeerURL: "http://" + name + ":2380"})
		}
		record.MemberList = list
		_, err = a.store.UpdateRecord(ctx, version, record)
		return err
	})
	<-ctx.Done()
}
