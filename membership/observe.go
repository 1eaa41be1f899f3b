package membership

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"
)

// Dial returns a client of the members at endpoints; the caller closes it.
type Dial func(ctx context.Context, endpoints ...string) (*clientv3.Client, error)

var (
	// ErrNoQuorum: no one answered a linearizable list. Nothing is known of the members.
	ErrNoQuorum = errors.New("no linearizable answer")
	// ErrOtherCluster: an endpoint answered for another cluster ID. Its list says nothing of ours.
	ErrOtherCluster = errors.New("answer of another cluster")
)

// Query says whom to ask for the member list, and for which cluster.
type Query struct {
	Endpoints []string
	// ClusterID that an answer must bear; 0 takes any, which only a caller that then decides nothing may do.
	ClusterID uint64
	// Timeout of one endpoint; all are asked at once.
	Timeout time.Duration
}

// Observe asks all endpoints at once for a linearizable member list and returns the first answer of the wanted cluster.
// Without one the error wraps ErrNoQuorum and every endpoint's own error, ErrOtherCluster among them.
func Observe(ctx context.Context, dial Dial, q Query) (View, error) {
	if len(q.Endpoints) == 0 {
		return View{}, fmt.Errorf("member list: %w: no one is known whom to ask", ErrNoQuorum)
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
	client, err := dial(ctx, endpoint)
	if err != nil {
		return View{}, fmt.Errorf("dial %s: %w", endpoint, err)
	}
	defer func() { err = errors.Join(err, closed(client)) }()
	// The position is read first, so that the list surely includes it.
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

// closed closes the client. That a call's context ended before is not an error of closing.
func closed(client *clientv3.Client) error {
	if err := client.Close(); err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("close client: %w", err)
	}
	return nil
}
