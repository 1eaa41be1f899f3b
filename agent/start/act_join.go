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
	// maxJoinAttempts of a learner, the first and three more, while its etcd ends without a log: it lost the race with another joiner's add. After
	// that the learner is replaced.
	maxJoinAttempts = 4
	// changeTimeout of a change of the member list, after which the list is looked at again. raft drops a change that is
	// proposed while another one is not applied yet, and etcd lets its caller wait out 7 s for it; a change that raft takes
	// is answered within a few writes to disk.
	changeTimeout = 1500 * time.Millisecond
	// joinStagger keeps joiners of a forming cluster from proposing at the same moment.
	joinStagger = 150 * time.Millisecond
	// turnLooks at the list are taken before Kubernetes is asked again whether we may still join.
	turnLooks = 10
	// startPatience with another's learner that has not started: several times what a start takes.
	startMaxWait = 5 * time.Second
	// agreeTimeout bounds the wait for two member lists that agree.
	agreeTimeout = 5 * time.Second
)

// join adds us as a learner, unless this process did so already, and starts etcd with the list as it stands then.
func (b *Bootstrapper) join(ctx context.Context, o *observation) (*launch.Order, error) {
	if err := b.quarantine(ctx, o, o.Data.String()); err != nil {
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
	// The record's group is the one that answered: its cluster ID was asked for.
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

// addLearner asks a voter to add us. Its outcome may stay unknown; the next look shows it.
func (b *Bootstrapper) addLearner(ctx context.Context, o *observation) (uint64, error) {
	if err := b.awaitTurn(ctx, o); err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	client, err := b.dial(ctx, o.view.Endpoint)
	if err != nil {
		return 0, err
	}
	defer func() { _ = client.Close() }()
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

// errNotYet: another joiner is about to start; the next look asks again.
var errNotYet = errors.New("another member joins right now")

// awaitTurn lets joiners come one after another. An etcd that joins asks every listed peer for its version before it
// serves, and waits 7 s for one that has opened its port and does not serve yet: two that join at once wait for each other.
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

// otherStarts says whether a learner was added just now that has not started yet. One that does not start blocks no one.
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

// rank is how many desired members before us in the record are not listed yet: they join now too.
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

// agreedList reads the member list until two readings, a moment apart, agree, and so does the peer whom etcd will ask.
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
			return view, fmt.Errorf("join: member %x is not listed any more", id)
		}
		unsettled := errNotYet
		if view.Same(last) {
			if unsettled = b.firstPeerAgrees(ctx, view, id); unsettled == nil {
				return view, nil
			}
		}
		last = view
		if !loop.Sleep(ctx, finishInterval) {
			return view, fmt.Errorf("join: the member list does not settle: %w", unsettled)
		}
	}
}

// initialCluster renders a list as etcd wants it. Members that never started have no name yet: they get the name that
// the record has for their peer URL, else their ID; etcd checks the URLs and wants the names to differ.
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

// replaceSelf takes the slot, which reports a successor of ours what is to be removed, moves the data aside and removes
// exactly the ID that was seen. The next look then joins. The slot is given back once we vote.
func (b *Bootstrapper) replaceSelf(ctx context.Context, o *observation) error {
	id := leases.FormatID(o.entry.ID)
	record := o.record.record
	want := leases.Replacing{Member: b.cfg.Member, PodUID: b.cfg.PodUID, MemberID: id}
	if record.Replacing == nil || *record.Replacing != want {
		record.Replacing = &want
		crash.Before("take-slot")
		version, err := b.store.UpdateRecord(ctx, o.record.version, record)
		crash.After("take-slot")
		if errors.Is(err, leases.ErrConflict) {
			return nil // look again: someone else wrote
		}
		if err != nil {
			return fmt.Errorf("take the slot to replace member %s: %w", id, err)
		}
		o.record.version, o.record.record = version, record
	}
	reason := o.Data.String()
	if o.Data == Intact {
		reason = "other-id"
	}
	if err := b.quarantine(ctx, o, reason); err != nil {
		return err
	}
	return b.removeOwn(ctx, o)
}

// removeOwn removes exactly the ID under which a quorum lists us.
func (b *Bootstrapper) removeOwn(ctx context.Context, o *observation) error {
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	client, err := b.dial(ctx, o.view.Endpoint)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
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
