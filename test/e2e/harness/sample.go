package harness

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// look is what one member said of itself and of its group, or that it said nothing.
type look struct {
	begun   time.Time
	id      uint64
	group   uint64 // the raft group, that is the cluster ID of etcd
	leader  uint64 // 0 if it finds none
	applied uint64
	members []listed
	err     error
}

// listed is an entry of a member list.
type listed struct {
	id      uint64
	name    string // empty for one that never started
	learner bool
}

// lookAt asks the one member that etcd is connected to. Its list is its own: a quorum that is lost does not hide it.
func lookAt(ctx context.Context, etcd *clientv3.Client) look {
	begun := time.Now()
	ctx, cancel := context.WithTimeout(ctx, sampleTimeout)
	defer cancel()
	// The index before the list: the list is then at least as young as what it is judged by.
	own, err := etcdserverpb.NewMaintenanceClient(etcd.ActiveConnection()).Status(ctx, &etcdserverpb.StatusRequest{})
	if err != nil {
		return look{begun: begun, err: err}
	}
	list, err := etcdserverpb.NewClusterClient(etcd.ActiveConnection()).MemberList(ctx, &etcdserverpb.MemberListRequest{})
	if err != nil {
		return look{begun: begun, err: err}
	}
	return look{
		begun: begun, id: own.Header.MemberId, group: own.Header.ClusterId, leader: own.Leader, applied: own.RaftAppliedIndex, members: listOf(list.Members),
	}
}

func listOf(members []*etcdserverpb.Member) []listed {
	var list []listed
	for _, m := range members {
		list = append(list, listed{id: m.ID, name: m.Name, learner: m.IsLearner})
	}
	return list
}

// names of the members that ever started.
func names(members []listed) []string {
	var all []string
	for _, m := range members {
		if m.name != "" {
			all = append(all, m.name)
		}
	}
	return all
}

// verdict on one sample.
type verdict struct {
	spare    int // healthy voters above a quorum
	learners int
	down     []string // names of the voters that are not healthy
	err      error
}

// judge counts: of the voters that are listed a quorum must be healthy, and there must be at most so many learners.
func judge(members []listed, healthy map[uint64]bool, learnerLimit int) verdict {
	var v verdict
	voters, well := 0, 0
	for _, m := range members {
		switch {
		case m.learner:
			v.learners++
		case healthy[m.id]:
			voters++
			well++
		default:
			voters++
			v.down = append(v.down, m.name)
		}
	}
	quorum := voters/2 + 1
	v.spare = well - quorum
	if v.spare < 0 {
		v.err = fmt.Errorf("%d of %d voters are healthy, a quorum is %d; down: %v", well, voters, quorum, v.down)
	}
	if v.learners > learnerLimit {
		v.err = errors.Join(v.err, fmt.Errorf("%d learners, at most %d are allowed", v.learners, learnerLimit))
	}
	return v
}

// watched is what a sampler knows of one member.
type watched struct {
	stop  context.CancelFunc
	since time.Time
	looks int
	last  look
}

// looked saves a look. It returns an error if the raft group is not that of the cluster, and not that of the look before.
func (m *watched) looked(l look, name string, group uint64) error {
	before := m.last
	m.looks, m.last = m.looks+1, l
	switch {
	case l.err != nil:
		m.last.group = before.group // the last one that is known
	case l.group != group && l.group != before.group:
		return fmt.Errorf("at %s: member %s belongs to raft group %x, and the cluster is %x", l.begun.Format("15:04:05.000"), name, l.group, group)
	}
	return nil
}

// perSecond is how often the member was asked each second until now.
func (m *watched) perSecond(now time.Time) float64 {
	return float64(m.looks) / now.Sub(m.since).Seconds()
}

// stateSince says whether a look shows that the member was well, or was not, after a moment. What ended without an answer shows
// nothing, as a busy machine lets a healthy member wait; nor does a voter that has not heard yet that it is no learner, or one that had no
// leader when it was asked: it may have just been elected itself.
func (l look) stateSince(since time.Time) (well, known bool) {
	switch {
	case !l.begun.After(since), errors.Is(l.err, rpctypes.ErrGRPCNotSupportedForLearner):
		return false, false
	case errors.Is(l.err, rpctypes.ErrGRPCLeaderChanged), errors.Is(l.err, rpctypes.ErrGRPCNoLeader), errors.Is(l.err, rpctypes.ErrGRPCTimeoutDueToLeaderFail),
		errors.Is(l.err, rpctypes.ErrLeaderChanged), errors.Is(l.err, rpctypes.ErrNoLeader), errors.Is(l.err, rpctypes.ErrTimeoutDueToLeaderFail):
		return false, false
	case errors.Is(l.err, context.DeadlineExceeded), status.Code(l.err) == codes.DeadlineExceeded:
		return false, false
	case l.err != nil && strings.Contains(l.err.Error(), lateHandshake):
		return false, false
	}
	return l.err == nil, true
}

// lateHandshake is in the error of gRPC when a server accepted the connection and the TLS handshake ran out of time.
const lateHandshake = "authentication handshake failed: context deadline exceeded"

// refused says whether nothing listens where the member should be.
func (l look) refused() bool { return status.Code(l.err) == codes.Unavailable }

// sameVoters says whether two lists have the same voters.
func sameVoters(a, b []listed) bool { return slices.Equal(voterIDs(a), voterIDs(b)) }

func voterIDs(members []listed) []uint64 {
	var ids []uint64
	for _, m := range members {
		if !m.learner {
			ids = append(ids, m.id)
		}
	}
	slices.Sort(ids)
	return ids
}
