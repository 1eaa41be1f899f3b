package transport

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/stats"
)

// maxAge is how long a connection is used. Certificates are verified when a connection begins. So an agent notices
// within this time that a member's certificate has expired or has another authority. It is the longest time between two
// checks of the agent's own certificates, too. A leader of three members then makes less than one handshake per minute.
const maxAge = 10 * time.Minute

// errEnded means that the agent ends and dials no more.
var errEnded = errors.New("this agent ends")

// Clients lends clients of etcd members, and keeps their connections while they work. A client is lent again only
// while all of this is true:
//
//   - No user of it reported an error, and its connection did not end. A member that starts again, or another Pod
//     with the address of a member, gets a new connection.
//   - The agent has the certificates that it had when the client was made.
//   - It is younger than maxAge.
//
// A client that is not lent again is closed when its last user has given it back. It is safe for concurrent use.
type Clients struct {
	transport Transport
	age       time.Duration

	mu    sync.Mutex
	kept  map[string]*kept
	ended bool
}

// NewClients returns Clients that dial with t. It connects to nothing.
func NewClients(t Transport) *Clients {
	return &Clients{transport: t, age: maxAge, kept: map[string]*kept{}}
}

// Dial lends a client of the members at endpoints (membership.Dial). It connects on first use, so an error means that
// the configuration is wrong or the agent ends, never that a member is down. The caller calls done once, with the error
// of what it asked or with what is wrong about the answer. It then uses the client no more.
func (c *Clients) Dial(ctx context.Context, endpoints ...string) (client *clientv3.Client, done func(error), err error) {
	identity, key := c.transport.identity(), keyOf(endpoints)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return nil, nil, fmt.Errorf("dial etcd at %v: %w", endpoints, errEnded)
	}
	for _, k := range c.kept {
		if k.identity != identity {
			c.retire(k)
		}
	}
	k, found := c.kept[key]
	if found && !k.connects() {
		c.retire(k)
		found = false
	}
	if !found {
		k = &kept{owner: c, key: key, identity: identity}
		// Its users come and go: the client does not end with the context of the first one.
		if k.client, err = c.transport.etcd(context.WithoutCancel(ctx), endpoints, grpc.WithStatsHandler(k)); err != nil {
			return nil, nil, err
		}
		k.expiry = time.AfterFunc(c.age, func() { c.expire(k) })
		c.kept[key] = k
	}
	k.users++
	return k.client, func(err error) { c.giveBack(k, err) }, nil
}

// Keeps says whether Dial would lend a client that is connected to the members at endpoints.
func (c *Clients) Keeps(endpoints ...string) bool {
	identity := c.transport.identity()
	c.mu.Lock()
	defer c.mu.Unlock()
	k, found := c.kept[keyOf(endpoints)]
	return found && k.identity == identity && k.ready()
}

// Close closes all clients, those in use when they are given back. Dial fails from then on.
func (c *Clients) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	for _, k := range c.kept {
		c.retire(k)
	}
}

func keyOf(endpoints []string) string { return strings.Join(endpoints, " ") }

// giveBack ends one use. A client without a connection would try to connect for as long as it is kept.
func (c *Clients) giveBack(k *kept, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k.users--
	if err != nil || k.retired || !k.ready() {
		c.retire(k)
	}
}

// retire makes sure that the client is not lent again, and closes it as soon as it has no user. The caller holds the
// lock. The timer closes it, because a connection reports its end while gRPC holds locks of its own.
func (c *Clients) retire(k *kept) {
	if c.kept[k.key] == k {
		delete(c.kept, k.key)
	}
	k.retired = true
	if k.users == 0 && k.expiry != nil { // without a timer, the client is not made yet
		k.expiry.Reset(0)
	}
}

// expire is called by the timer: the client is too old, or was retired.
func (c *Clients) expire(k *kept) {
	c.mu.Lock()
	if !k.retired {
		c.retire(k)
	}
	closes := k.users == 0 && !k.closed
	k.closed = k.closed || closes
	c.mu.Unlock()
	if closes {
		_ = k.client.Close() // no call is in progress, so it has nothing to report
	}
}

// kept is one client and, as its stats.Handler, receives the end of its connection.
type kept struct {
	owner         *Clients
	key, identity string
	client        *clientv3.Client
	expiry        *time.Timer
	// users is how many have borrowed it. retired: it is not lent again. closed: it is closed, or about to be.
	users           int
	retired, closed bool
}

func (k *kept) ready() bool { return k.client.ActiveConnection().GetState() == connectivity.Ready }

// connects says whether a call would use or make a connection now. After a failed attempt it would wait for the next one.
func (k *kept) connects() bool {
	state := k.client.ActiveConnection().GetState()
	return state != connectivity.TransientFailure && state != connectivity.Shutdown
}

// HandleConn retires the client when its connection ends. A client would connect again by itself, possibly to another
// member.
func (k *kept) HandleConn(_ context.Context, event stats.ConnStats) {
	if _, ended := event.(*stats.ConnEnd); ended {
		k.owner.mu.Lock()
		defer k.owner.mu.Unlock()
		k.owner.retire(k)
	}
}

// TagConn, TagRPC and HandleRPC are part of the interface stats.Handler.
func (k *kept) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// TagRPC adds nothing.
func (k *kept) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// HandleRPC ignores calls: their callers report errors.
func (k *kept) HandleRPC(context.Context, stats.RPCStats) {}
