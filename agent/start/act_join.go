package start

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/etcd-druid/druid/agent/datadir"
	"github.com/etcd-druid/druid/agent/launch"
	"github.com/etcd-druid/druid/internal/crash"
	"github.com/etcd-druid/druid/internal/loop"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

const (
	// maxJoinAttempts is how often etcd is started as the same learner, including the first start. etcd exits without
	// a log if another member was added at the same time. After the last attempt, the learner is replaced.
	maxJoinAttempts = 4
	// changeTimeout bounds a change of the member list. Afterwards, the agent reads the list again. raft drops a
	// change that is proposed before the last one is applied, and etcd lets the caller wait 7 s for it. A change that
	// raft accepts returns after a few disk writes.
	changeTimeout = 1500 * time.Millisecond
	// joinStagger prevents the joining members of a forming cluster from proposing at the same moment.
	joinStagger = 150 * time.Millisecond
	// turnLooks is how often the list is read before the agent asks Kubernetes again whether it may still join.
	turnLooks = 10
	// startMaxWait is the grace period for another learner to start: several times the usual duration of a start.
	startMaxWait = 5 * time.Second
	// agreeTimeout bounds the wait for two member lists that agree.
	agreeTimeout = 5 * time.Second
)

// join adds this member as a learner when no clients are sent to its Pod, unless this process did so already. Then it
// starts etcd with the current member list.
func (b *Bootstrapper) join(ctx context.Context, o *observation) (*launch.Order, error) {
	if err := b.quarantine(ctx, o, o.quarantineReason("removed")); err != nil {
		return nil, err
	}
	if err := b.awaitClients(ctx, o); err != nil {
		return nil, err
	}
	id := o.entry.ID
	if o.Joining != JoiningNow {
		var err error
		if id, err = b.addLearner(ctx, o); err != nil {
			return nil, err
		}
	}
	b.joining.id = id
	view, err := b.agreedList(ctx, o, id)
	if err != nil {
		return nil, err
	}
	b.joining.attempts++
	record := o.record.record
	// The group that responded is the record's, because the request named its cluster ID.
	identityFile := b.identityFile(o, record, view.ClusterID, id)
	crash.Before("identity-file-join")
	err = datadir.WriteIdentityFile(b.cfg.VolumePath, identityFile)
	crash.After("identity-file-join")
	if err != nil {
		return nil, err
	}
	return b.order(identityFile, start{
		cluster: b.initialCluster(view, record.Members, id), token: identityFile.Token, maxLearners: record.MaxLearners,
	})
}

// addLearner asks a voter to add this member. If the result stays unknown, the next observation shows it.
func (b *Bootstrapper) addLearner(ctx context.Context, o *observation) (id uint64, err error) {
	if err := b.awaitTurn(ctx, o); err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	client, done, err := b.dial(ctx, o.view.Endpoint)
	if err != nil {
		return 0, err
	}
	defer func() { done(err) }()
	b.joining = joining{asked: true}
	crash.Before("add-learner")
	member, err := membership.AddLearner(ctx, client, b.peerURL(b.cfg.Member))
	crash.After("add-learner")
	if err != nil {
		return 0, err
	}
	b.log.InfoContext(ctx, "learner added", "memberID", leases.FormatID(member.ID), "clusterID", leases.FormatID(o.view.ClusterID))
	return member.ID, nil
}

// errNotYet: another joining member is about to start. The next observation checks again.
var errNotYet = errors.New("another member is joining; this member waits for it")

// awaitTurn makes members join one after another. A joining etcd asks every listed peer for its version before it
// serves. It waits 7 s for a peer that has opened its port and does not serve yet, so two members that join at once
// wait for each other.
func (b *Bootstrapper) awaitTurn(ctx context.Context, o *observation) error {
	if !loop.Sleep(ctx, time.Duration(b.rank(o))*joinStagger) {
		return context.Cause(ctx)
	}
	for range turnLooks {
		view, err := b.list(ctx, o.record.record, o.view.ClusterID)
		if err != nil {
			return err
		}
		if o.view = view; !b.otherStarts(view) {
			return nil
		}
		if !loop.Sleep(ctx, finishInterval) {
			return context.Cause(ctx)
		}
	}
	return errNotYet
}

// otherStarts reports whether a learner was added recently and has not started yet. A learner that never starts blocks
// the others only for startMaxWait.
func (b *Bootstrapper) otherStarts(view membership.View) bool {
	for _, m := range view.Learners() {
		if m.Started() {
			continue
		}
		since, known := b.unstarted[m.ID]
		if !known {
			since = time.Now()
			b.unstarted[m.ID] = since
		}
		if time.Since(since) < startMaxWait {
			return true
		}
	}
	return false
}

// rank returns how many desired members before this one in the record are not listed yet. They are joining now too.
func (b *Bootstrapper) rank(o *observation) int {
	rank := 0
	for _, name := range o.record.record.Members {
		if name == b.cfg.Member {
			break
		}
		if _, listed := o.view.Find(name, b.peerURL(name)); !listed {
			rank++
		}
	}
	return rank
}

// agreedList reads the member list until two consecutive reads agree with each other and with the peer that etcd will
// query.
func (b *Bootstrapper) agreedList(ctx context.Context, o *observation, id uint64) (membership.View, error) {
	ctx, cancel := context.WithTimeout(ctx, agreeTimeout)
	defer cancel()
	var last membership.View
	for {
		view, err := b.list(ctx, o.record.record, o.view.ClusterID)
		if err != nil {
			return view, err
		}
		if _, ok := view.Member(id); !ok {
			return view, fmt.Errorf("join: member %x is no longer listed", id)
		}
		disagreement := errNotYet
		if view.Same(last) {
			if disagreement = b.firstPeerAgrees(ctx, view, id); disagreement == nil {
				return view, nil
			}
		}
		last = view
		if !loop.Sleep(ctx, finishInterval) {
			return view, fmt.Errorf("join: the member list keeps changing: %w", disagreement)
		}
	}
}

// initialCluster formats the list for --initial-cluster. A member that never started has no name yet. It gets the name
// that the record has for its peer URL, otherwise its ID. etcd checks the URLs and requires different names.
func (b *Bootstrapper) initialCluster(view membership.View, desired []string, self uint64) string {
	var pairs []string
	for _, m := range view.Members {
		name := m.Name
		if i := slices.IndexFunc(desired, func(d string) bool { return m.Is(d, b.peerURL(d)) }); name == "" && i >= 0 {
			name = desired[i]
		}
		switch {
		case m.ID == self:
			name = b.cfg.Member
		case name == "" || name == b.cfg.Member:
			name = leases.FormatID(m.ID)
		}
		for _, url := range m.PeerURLs {
			pairs = append(pairs, name+"="+url)
		}
	}
	slices.Sort(pairs)
	return strings.Join(pairs, ",")
}

// replaceSelf takes the replacement slot, quarantines the data and removes exactly the observed ID. The slot names for
// a later Pod what to remove, and for druid which vote the published member list can have too much. After the removal,
// the next observation joins. The slot is released when this member votes.
func (b *Bootstrapper) replaceSelf(ctx context.Context, o *observation) error {
	id := leases.FormatID(o.entry.ID)
	record := o.record.record
	want := leases.Replacing{Member: b.cfg.Member, PodUID: b.cfg.PodUID, MemberID: id}
	if record.Replacing == nil || *record.Replacing != want {
		list := leases.MemberList{RaftTerm: o.view.RaftTerm, RaftIndex: o.view.RaftIndex}
		for _, m := range o.view.Members {
			list.Add(m.ID, m.Name, m.PeerURLs, m.Learner)
		}
		taken, err := record.Replace(want, list)
		if err != nil {
			return err
		}
		crash.Before("take-slot")
		version, err := b.store.UpdateRecord(ctx, o.record.version, taken)
		crash.After("take-slot")
		if errors.Is(err, leases.ErrConflict) {
			return nil // look again: another agent or druid wrote
		}
		if err != nil {
			return fmt.Errorf("write the replacement of member %s to the cluster record: %w", id, err)
		}
		o.record.version, o.record.record = version, taken
	}
	if err := b.quarantine(ctx, o, o.quarantineReason("other-id")); err != nil {
		return err
	}
	return b.removeOwn(ctx, o)
}

// removeOwn removes exactly the ID with which a quorum lists this member.
func (b *Bootstrapper) removeOwn(ctx context.Context, o *observation) (err error) {
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	client, done, err := b.dial(ctx, o.view.Endpoint)
	if err != nil {
		return err
	}
	defer func() { done(err) }()
	crash.Before("remove-self")
	err = membership.Remove(ctx, client, o.entry.ID)
	crash.After("remove-self")
	if err != nil && !errors.Is(err, membership.ErrNotFound) {
		return err
	}
	b.joining = joining{}
	b.log.InfoContext(ctx, "member removed", "memberID", leases.FormatID(o.entry.ID), "member", b.cfg.Member)
	return nil
}
