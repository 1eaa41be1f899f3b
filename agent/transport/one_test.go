package transport

import (
	"context"
	"errors"
	"io"
	"net"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/etcd-druid/druid/test/member"
)

// A look at a member each second must not cost a connection each second.
func TestAMemberIsAskedOverOneConnection(t *testing.T) {
	m := member.Start(t, member.Minors[1], member.Options{Token: "one"})
	endpoint, accepted := counted(t, m.Endpoint)
	client, err := Transport{}.Etcd(t.Context(), endpoint)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for range 3 {
		_, err := client.Status(ctx, endpoint)
		_, err2 := client.HashKV(ctx, endpoint, 0)
		_, err3 := client.Get(ctx, "key")
		_, err4 := client.MemberList(ctx)
		_, err5 := client.AlarmList(ctx)
		_, err6 := client.Defragment(ctx, endpoint)
		if err := errors.Join(err, err2, err3, err4, err5, err6); err != nil {
			t.Fatal(err)
		}
	}
	if n := accepted.Load(); n > 3 { // of nine calls that name the endpoint; a slow machine may break the one
		t.Errorf("%d connections were made", n)
	}
}

// counted hands connections on to the endpoint, and counts them.
func counted(t *testing.T, endpoint string) (there string, accepted *atomic.Int64) {
	t.Helper()
	behind, err := url.Parse(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := Transport{}.Listen(t.Context(), "127.0.0.1", 0)
	if err != nil {
		t.Fatal(err)
	}
	accepted = &atomic.Int64{}
	var g errgroup.Group
	g.Go(func() error {
		for { // until it is closed
			front, err := listener.Accept()
			if err != nil {
				return err
			}
			accepted.Add(1)
			back, err := net.Dial("tcp", behind.Host)
			if err != nil {
				return errors.Join(err, front.Close())
			}
			for _, way := range [][2]net.Conn{{front, back}, {back, front}} {
				g.Go(func() error {
					_, _ = io.Copy(way[0], way[1]) // it ends with either of them
					return way[0].Close()
				})
			}
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		if err := g.Wait(); err != nil && !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	})
	return "http://" + listener.Addr().String(), accepted
}
