package membership

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"
)

// Role of a member in the raft group, as the member itself reports it.
type Role string

// The roles, as in member Leases.
const (
	RoleLeader  Role = "Leader"
	RoleMember  Role = "Member"
	RoleLearner Role = "Learner"
)

// Status is what one member reports about itself: a local answer, not that of a quorum.
type Status struct {
	ClusterID, MemberID uint64
	// Leader is the ID of the leader that the member knows, 0 for none.
	Leader uint64
	Role   Role
	// Version of the etcd binary, major.minor.patch.
	Version string
	// StorageVersion of the database, major.minor. It is empty before etcd 3.6.
	StorageVersion string
	// Downgrade is the version of a downgrade that was announced to etcd, empty for none and before etcd 3.6.
	Downgrade string
	// Revision of the key space; DBSize and DBSizeInUse in bytes.
	Revision, DBSize, DBSizeInUse int64
	// Quota of the database in bytes, 0 if etcd does not report it (before 3.6), negative for none.
	Quota               int64
	RaftTerm, RaftIndex uint64
	AppliedIndex        uint64
	// Errors are etcd's messages about the problems of the member: raised alarms, no leader.
	Errors []string
}

// Healthy says whether the member knows a leader and reports no error.
func (s Status) Healthy() bool { return s.Leader != 0 && len(s.Errors) == 0 }

// Serves is Healthy, but ignores the alarm NOSPACE: a member with that alarm still answers reads and votes.
func (s Status) Serves() bool {
	return s.Leader != 0 && !slices.ContainsFunc(s.Errors, func(e string) bool { return !strings.Contains(e, AlarmNoSpace) })
}

// Alarmed says whether the member reports any alarm, of any member.
func (s Status) Alarmed() bool { return slices.ContainsFunc(AlarmTypes, s.Raised) }

// Corrupt says whether a member's data is known to differ from that of the other members, that is, whether the alarm
// CORRUPT is raised.
func (s Status) Corrupt() bool { return s.Raised(AlarmCorrupt) }

// AlarmTypes are the alarms that etcd knows.
var AlarmTypes = []string{AlarmNoSpace, AlarmCorrupt}

// Raised says whether the member reports the alarm, its own or that of another member.
func (s Status) Raised(alarm string) bool {
	return slices.ContainsFunc(s.Errors, func(e string) bool { return strings.Contains(e, alarm) })
}

// ReadStatus asks the member at endpoint.
func ReadStatus(ctx context.Context, client *clientv3.Client, endpoint string) (Status, error) {
	resp, err := client.Status(ctx, endpoint)
	if err != nil {
		return Status{}, fmt.Errorf("status of %s: %w", endpoint, err)
	}
	s := Status{
		ClusterID: resp.Header.GetClusterId(), MemberID: resp.Header.GetMemberId(), Leader: resp.Leader, Role: RoleMember,
		Version: resp.Version, StorageVersion: resp.StorageVersion,
		Revision: resp.Header.GetRevision(), DBSize: resp.DbSize, DBSizeInUse: resp.DbSizeInUse, Quota: resp.DbSizeQuota,
		RaftTerm: resp.RaftTerm, RaftIndex: resp.RaftIndex, AppliedIndex: resp.RaftAppliedIndex, Errors: resp.Errors,
	}
	if info := resp.DowngradeInfo; info.GetEnabled() {
		s.Downgrade = info.GetTargetVersion()
	}
	switch {
	case resp.IsLearner:
		s.Role = RoleLearner
	case s.Leader == s.MemberID && s.MemberID != 0:
		s.Role = RoleLeader
	}
	return s, nil
}

// ErrOtherMember means that another member answered at a member's URL.
var ErrOtherMember = errors.New("another member answered")

// StatusOf asks the member at its published client URLs, one after another. It rejects answers from another member.
func StatusOf(ctx context.Context, dial Dial, clusterID uint64, m Member) (Status, error) {
	if len(m.ClientURLs) == 0 {
		return Status{}, fmt.Errorf("status of member %x: it never started", m.ID)
	}
	var errs []error
	for _, url := range m.ClientURLs {
		status, err := statusAt(ctx, dial, clusterID, m.ID, url)
		if err == nil {
			return status, nil
		}
		errs = append(errs, err)
	}
	return Status{}, errors.Join(errs...)
}

func statusAt(ctx context.Context, dial Dial, clusterID, id uint64, url string) (status Status, err error) {
	client, done, err := dial(ctx, url)
	if err != nil {
		return Status{}, err
	}
	defer func() { done(err) }()
	status, err = ReadStatus(ctx, client, url)
	if err == nil && (status.MemberID != id || status.ClusterID != clusterID) {
		err = fmt.Errorf("status of member %x: %w at %s: %x of cluster %x", id, ErrOtherMember, url, status.MemberID, status.ClusterID)
	}
	return status, err
}

// etcd's names of the alarms.
const (
	AlarmNoSpace = "NOSPACE"
	AlarmCorrupt = "CORRUPT"
)

// Alarm is one raised alarm.
type Alarm struct {
	MemberID uint64
	// Type is etcd's name: AlarmNoSpace or AlarmCorrupt.
	Type string
}

// Alarms lists the raised alarms of all members.
func Alarms(ctx context.Context, client *clientv3.Client) ([]Alarm, error) {
	resp, err := client.AlarmList(ctx)
	if err != nil {
		return nil, fmt.Errorf("alarm list: %w", err)
	}
	var alarms []Alarm
	for _, a := range resp.Alarms {
		if a.Alarm != etcdserverpb.AlarmType_NONE {
			alarms = append(alarms, Alarm{MemberID: a.MemberID, Type: a.Alarm.String()})
		}
	}
	return alarms, nil
}

// Linearizable verifies that the member behind client is connected to a quorum: it reads one key through raft.
func Linearizable(ctx context.Context, client *clientv3.Client) error {
	if _, err := client.Get(ctx, "health", clientv3.WithCountOnly()); err != nil {
		return fmt.Errorf("linearizable read: %w", err)
	}
	return nil
}

// Dial lends a client for the members at endpoints. The caller calls done once, when it uses the client no more, and says
// what went wrong with it: an error of a call, or an answer of another member than the one meant. A client is lent again
// only without an error.
type Dial func(ctx context.Context, endpoints ...string) (client *clientv3.Client, done func(error), err error)

var (
	// ErrNoQuorum: no endpoint answered a linearizable request for the member list. The members are unknown.
	ErrNoQuorum = errors.New("no linearizable answer")
	// ErrOtherCluster: an endpoint answered for another cluster ID. Its list says nothing about this cluster.
	ErrOtherCluster = errors.New("answer of another cluster")
)

// Query says which endpoints to ask for the member list, and for which cluster.
type Query struct {
	Endpoints []string
	// ClusterID that an answer must have. 0 accepts any; use it only if no decision follows from the answer.
	ClusterID uint64
	// Timeout of one endpoint. All are queried at once.
	Timeout time.Duration
}

// Observe asks all endpoints at once for a linearizable member list and returns the first answer of the wanted
// cluster. Without one, the error wraps ErrNoQuorum and the error of every endpoint, including ErrOtherCluster.
func Observe(ctx context.Context, dial Dial, q Query) (View, error) {
	if len(q.Endpoints) == 0 {
		return View{}, fmt.Errorf("member list: %w: no endpoint is known", ErrNoQuorum)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	views := make(chan View, len(q.Endpoints))
	errs := make([]error, len(q.Endpoints))
	var group errgroup.Group
	for i, endpoint := range q.Endpoints {
		group.Go(func() error {
			var view View
			if view, errs[i] = observeOne(ctx, dial, endpoint, q); errs[i] == nil {
				views <- view
				cancel() // the others need not answer any more
			}
			return nil
		})
	}
	_ = group.Wait() // each endpoint's error stands in errs
	select {
	case view := <-views:
		return view, nil
	default:
		return View{}, fmt.Errorf("member list: %w: %w", ErrNoQuorum, errors.Join(errs...))
	}
}

func observeOne(ctx context.Context, dial Dial, endpoint string, q Query) (view View, err error) {
	ctx, cancel := context.WithTimeout(ctx, q.Timeout)
	defer cancel()
	client, done, err := dial(ctx, endpoint)
	if err != nil {
		return View{}, fmt.Errorf("dial %s: %w", endpoint, err)
	}
	defer func() { done(err) }()
	// The position is read first, so that the list includes it.
	status, err := client.Status(ctx, endpoint)
	if err != nil {
		return View{}, fmt.Errorf("status of %s: %w", endpoint, err)
	}
	list, err := client.MemberList(ctx)
	if err != nil {
		return View{}, fmt.Errorf("member list of %s: %w", endpoint, err)
	}
	for _, id := range []uint64{list.Header.GetClusterId(), status.Header.GetClusterId()} {
		if q.ClusterID != 0 && id != q.ClusterID {
			return View{}, fmt.Errorf("member list of %s: %w: cluster %x, want %x", endpoint, ErrOtherCluster, id, q.ClusterID)
		}
	}
	return View{
		ClusterID: list.Header.GetClusterId(), Endpoint: endpoint, Answerer: list.Header.GetMemberId(),
		RaftTerm: status.RaftTerm, RaftIndex: status.RaftIndex, DBSizeInUse: status.DbSizeInUse,
		Members: members(list.Members),
	}, nil
}
