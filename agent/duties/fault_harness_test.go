package duties

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"

	"github.com/etcd-druid/druid/agent/transport"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

// fault says where an agent dies: before the call that point names, or after it with its answer lost.
type fault struct {
	point string // removing, done: a mark that is written; remove, defragment: the call to etcd
	after bool
	crash context.CancelFunc
	// hang, if not nil, means that the agent lives and the call is never made. It is closed when the agent waits for
	// the answer.
	hang chan struct{}

	mu   sync.Mutex
	dead bool
}

var errCrashed = errors.New("the agent is dead")

// hit makes the call unless the agent dies before it, and loses the answer if the agent dies after it.
func (f *fault) hit(point string, call func() error) error {
	if f == nil || f.point != point || f.hang != nil {
		return call()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.after && !f.dead {
		if err := call(); refusedByEtcd(err) {
			return err // the agent lives to ask again
		}
		// After any other error it is unknown whether etcd made the change, as with a lost answer.
	}
	f.dead = true
	f.crash()
	return errCrashed
}

// refusedByEtcd says whether etcd answered that it changed nothing. etcd refuses each change for 5 s after it formed.
func refusedByEtcd(err error) bool {
	return errors.Is(err, rpctypes.ErrGRPCUnhealthy) || errors.Is(err, rpctypes.ErrGRPCMemberNotEnoughStarted)
}

// hangs says, once, whether the call is one that is never answered.
func (f *fault) hangs(point string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.hang == nil || f.point != point || f.dead {
		return false
	}
	f.dead = true
	close(f.hang)
	return true
}

type roundTripper func(*http.Request) (*http.Response, error)

func (r roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return r(request) }

// storeWith returns the store of an agent that dies at f.
func (d *drainCluster) storeWith(f *fault) *leases.Store {
	d.t.Helper()
	config := rest.CopyConfig(d.config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (response *http.Response, err error) {
			point := ""
			if request.Method == http.MethodPatch {
				raw, err := io.ReadAll(request.Body)
				if err != nil {
					return nil, err
				}
				request.Body = io.NopCloser(bytes.NewReader(raw))
				for _, state := range []string{"removing", "done"} {
					if strings.Contains(string(raw), `\"state\":\"`+state) {
						point = state
					}
				}
			}
			err = f.hit(point, func() error {
				response, err = next.RoundTrip(request) //nolint:bodyclose // closed below, or by who gets it
				return err
			})
			if err != nil && response != nil {
				_ = response.Body.Close()
				response = nil
			}
			return response, err
		})
	})
	client, err := coordinationclient.NewForConfig(config)
	if err != nil {
		d.t.Fatal(err)
	}
	return leases.NewStore(client.Leases(d.namespace), "demo")
}

func dialWith(f *fault) membership.Dial {
	if f == nil {
		return transport.NewClients(transport.Transport{}).Dial
	}
	intercept := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		point := ""
		switch {
		case strings.HasSuffix(method, "/MemberRemove"):
			point = "remove"
		case strings.HasSuffix(method, "/Defragment"):
			point = "defragment"
		}
		if f.hangs(point) {
			<-ctx.Done()
			return ctx.Err()
		}
		return f.hit(point, func() error { return invoke(ctx, method, req, reply, cc, opts...) })
	}
	return func(ctx context.Context, endpoints ...string) (*clientv3.Client, func(error), error) {
		client, err := clientv3.New(clientv3.Config{
			Context: ctx, Endpoints: endpoints, DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(intercept)},
		})
		return client, func(error) { _ = client.Close() }, err
	}
}
