package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/etcd-druid/druid/internal/loop"
	"github.com/etcd-druid/druid/membership"
	"github.com/etcd-druid/druid/test/member"
)

// ask borrows a client for one call.
func ask(t *testing.T, c *Clients, endpoint string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), maxWait)
	defer cancel()
	client, done, err := c.Dial(ctx, endpoint)
	must(t, err)
	_, err = membership.ReadStatus(ctx, client, endpoint)
	done(err)
	must(t, err)
}

func lentFrom(t *testing.T) (*Clients, *relay, *member.Member) {
	t.Helper()
	m := member.Start(t, member.Minors[1], member.Options{Token: strings.ReplaceAll(t.Name(), "/", "-")})
	c := NewClients(Transport{})
	t.Cleanup(c.Close)
	return c, newRelay(t, m.Endpoint), m
}

func TestAMemberIsDialedOnce(t *testing.T) {
	c, r, _ := lentFrom(t)
	if c.Keeps(r.endpoint) {
		t.Error("a client is kept that was not made yet")
	}
	ask(t, c, r.endpoint)
	var users errgroup.Group
	for range 20 {
		users.Go(func() error {
			ask(t, c, r.endpoint)
			return nil
		})
	}
	must(t, users.Wait())
	r.made(1)
	if !c.Keeps(r.endpoint) {
		t.Error("the client is not kept")
	}
}

// The context of the first user ends, and the client serves the next one.
func TestAClientOutlivesItsFirstUser(t *testing.T) {
	c, r, _ := lentFrom(t)
	ctx, cancel := context.WithCancel(t.Context())
	client, done, err := c.Dial(ctx, r.endpoint)
	must(t, err)
	must(t, membership.Linearizable(ctx, client))
	done(nil)
	cancel()
	client, done, err = c.Dial(t.Context(), r.endpoint)
	must(t, err)
	defer done(nil)
	must(t, client.Ctx().Err())
	must(t, membership.Linearizable(t.Context(), client))
	r.made(1)
}

// Each of these ends the use of a connection. It is closed, and the next user gets a new one.
func TestAConnectionIsNotUsedAgain(t *testing.T) {
	for name, drop := range map[string]func(t *testing.T, c *Clients, r *relay, m *member.Member){
		"after an error": func(t *testing.T, c *Clients, r *relay, _ *member.Member) {
			_, done, err := c.Dial(t.Context(), r.endpoint)
			must(t, err)
			done(membership.ErrOtherMember)
		},
		"after the certificates changed": func(_ *testing.T, c *Clients, _ *relay, _ *member.Member) {
			c.transport.Identity = func() string { return "renewed" }
		},
		"after the member started again": func(t *testing.T, _ *Clients, r *relay, m *member.Member) {
			m.Stop(t)
			r.has(0)
			m.Restart(t)
			for start := time.Now(); ; loop.Sleep(t.Context(), time.Millisecond) {
				err := Transport{}.Reach(t.Context(), strings.TrimPrefix(m.Endpoint, "http://"))
				if err == nil {
					return
				}
				if time.Since(start) > maxWait {
					t.Fatal(err)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, r, m := lentFrom(t)
			ask(t, c, r.endpoint)
			drop(t, c, r, m)
			if c.Keeps(r.endpoint) {
				t.Error("the client is still kept")
			}
			ask(t, c, r.endpoint)
			r.made(2)
			r.has(1)
		})
	}
}

// Nothing else ends it: there is no request, and no certificate of the agent changes.
func TestAConnectionHasAnAge(t *testing.T) {
	c, r, _ := lentFrom(t)
	c.age = time.Second
	ask(t, c, r.endpoint)
	r.has(0)
	client, done, err := c.Dial(t.Context(), r.endpoint)
	must(t, err)
	must(t, membership.Linearizable(t.Context(), client))
	for start := time.Now(); c.Keeps(r.endpoint); loop.Sleep(t.Context(), time.Millisecond) {
		if time.Since(start) > maxWait {
			t.Fatal("the client is still kept")
		}
	}
	must(t, membership.Linearizable(t.Context(), client)) // it is in use
	r.made(2)
	done(nil)
	r.has(0)
}

// A renewal takes the connections to all members out of use, not only that to the member that is dialed next.
func TestARenewalEndsAllConnections(t *testing.T) {
	c, first, m := lentFrom(t)
	second := newRelay(t, m.Endpoint)
	identity := "before"
	c.transport.Identity = func() string { return identity }
	ask(t, c, first.endpoint)
	ask(t, c, second.endpoint)
	identity = "after"
	ask(t, c, first.endpoint)
	second.has(0)
	first.has(1)
	first.made(2)
}

// TestAnswerOfOtherMemberEndsConn: the answer of another member ends the connection.
// An address that belonged to a member of another cluster is dialed again as soon as the answer shows it.
func TestAnswerOfOtherMemberEndsConn(t *testing.T) {
	c, r, m := lentFrom(t)
	other := member.Start(t, member.Minors[1], member.Options{Token: "other"})
	ctx, cancel := context.WithTimeout(t.Context(), maxWait)
	defer cancel()
	status, err := m.Client.Status(ctx, m.Endpoint)
	must(t, err)
	wanted := membership.Member{ID: status.Header.MemberId, ClientURLs: []string{r.endpoint}}
	r.point(other.Endpoint)
	if _, err := membership.StatusOf(ctx, c.Dial, status.Header.ClusterId, wanted); !errors.Is(err, membership.ErrOtherMember) {
		t.Fatalf("status: %v, want %v", err, membership.ErrOtherMember)
	}
	r.has(0)
	r.point(m.Endpoint)
	if _, err := membership.StatusOf(ctx, c.Dial, status.Header.ClusterId, wanted); err != nil {
		t.Errorf("the address belongs to the member again: %v", err)
	}
	r.made(2)
}

// A kept connection delays no error: a call to a member that hangs ends when its time is over. The next call does not
// wait for the same connection.
func TestAMemberThatHangsHoldsNoOne(t *testing.T) {
	const within = 1500 * time.Millisecond
	c, r, _ := lentFrom(t)
	ask(t, c, r.endpoint)
	r.gate.Lock()
	thaw := sync.OnceFunc(r.gate.Unlock)
	defer thaw()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	client, done, err := c.Dial(ctx, r.endpoint)
	must(t, err)
	began := time.Now()
	_, err = membership.ReadStatus(ctx, client, r.endpoint)
	done(err)
	if took := time.Since(began); err == nil || took > within+10*time.Second {
		t.Errorf("the call ended after %s with %v, want an error after %s", took, err, within)
	}
	if c.Keeps(r.endpoint) {
		t.Error("the client is still kept")
	}
	thaw()
	ask(t, c, r.endpoint)
	r.made(2)
}

// Others use the client when one reports an error. Their calls end undisturbed.
func TestAClientInUseIsNotClosed(t *testing.T) {
	c, r, _ := lentFrom(t)
	client, done, err := c.Dial(t.Context(), r.endpoint)
	must(t, err)
	must(t, membership.Linearizable(t.Context(), client))
	_, failed, err := c.Dial(t.Context(), r.endpoint)
	must(t, err)
	failed(errors.New("no answer"))
	ask(t, c, r.endpoint) // over a new connection
	r.made(2)
	must(t, membership.Linearizable(t.Context(), client))
	r.has(2)
	done(nil)
	r.has(1)
}

// TestUnreachedNotDialedWithoutCaller: a member that is not reached is not dialed without a user.
// A client would try to connect again each second, for as long as it is kept. Here the TLS handshakes fail.
func TestUnreachedNotDialedWithoutCaller(t *testing.T) {
	_, r, _ := lentFrom(t)
	c := NewClients(Transport{Client: &tls.Config{MinVersion: tls.VersionTLS12}})
	t.Cleanup(c.Close)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	client, done, err := c.Dial(ctx, r.endpoint)
	must(t, err)
	if err := membership.Linearizable(ctx, client); err == nil {
		t.Error("a member without TLS has answered over TLS")
	}
	done(nil) // as one does who has no use for the error
	if r.tried.Load() == 0 {
		t.Error("the member was not dialed")
	}
	r.rests()
}

// TestEndedConnStaysWithoutCaller: a connection that ended is not replaced without a user.
// The same for a client that has a connection and no user when the member ends. The address can belong to another member
// then.
func TestEndedConnStaysWithoutCaller(t *testing.T) {
	c, r, m := lentFrom(t)
	other := member.Start(t, member.Minors[1], member.Options{Token: "other"})
	ask(t, c, r.endpoint)
	m.Stop(t)
	r.point(other.Endpoint)
	r.rests()
	r.has(0)
}

func TestNothingOutlivesClose(t *testing.T) {
	_, r, _ := lentFrom(t)
	before := runtime.NumGoroutine()
	c := NewClients(Transport{})
	ask(t, c, r.endpoint)
	client, done, err := c.Dial(t.Context(), r.endpoint)
	must(t, err)
	c.Close()
	if err := membership.Linearizable(t.Context(), client); err != nil {
		t.Errorf("a client in use was closed: %v", err)
	}
	done(nil)
	r.has(0)
	for start := time.Now(); runtime.NumGoroutine() > before; loop.Sleep(t.Context(), time.Millisecond) {
		if time.Since(start) > maxWait {
			stacks := make([]byte, 1<<20)
			t.Fatalf("%d goroutines, want %d:\n%s", runtime.NumGoroutine(), before, stacks[:runtime.Stack(stacks, true)])
		}
	}
	if _, _, err := c.Dial(t.Context(), r.endpoint); !errors.Is(err, errEnded) {
		t.Errorf("dial after the end: %v, want %v", err, errEnded)
	}
}
