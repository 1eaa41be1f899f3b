package crash_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/agent/transport"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
	"github.com/etcd-druid/druid/test/member"
)

// joining makes the cluster one that is to join a running one.
func (c *cluster) joining(running []*member.Member) {
	c.t.Helper()
	for _, p := range c.pods {
		p.config.Join = config.JoinOf(endpointsOf(running))
		p.certify()
	}
}

func endpointsOf(running []*member.Member) []string {
	var endpoints []string
	for _, m := range running {
		endpoints = append(endpoints, m.Endpoint)
	}
	return endpoints
}

// release is the user's word that the members of the cluster that was joined may go.
func (c *cluster) release() {
	c.t.Helper()
	r := quick()
	r.RemoveExternalMembers = true
	content, err := r.YAML()
	c.must(err)
	for _, p := range c.pods {
		c.must(os.WriteFile(p.config.ConfigPath, content, 0o600))
	}
}

// adopting is a seed whose first boot joins a running cluster, which may be left behind at once.
func adopting(c *cluster) *pod {
	c.joining(member.StartCluster(c.t, "3.6", 1))
	c.release()
	return seed(c)
}

// writer puts one key after another and remembers what was acknowledged.
type writer struct {
	acknowledged int
	gap          time.Duration
	stop         context.CancelFunc
	done         chan struct{}
}

func (c *cluster) startWriter(endpoints []string) *writer {
	c.t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	w := &writer{stop: stop, done: make(chan struct{})}
	client, err := transport.Transport{}.Etcd(ctx, endpoints...)
	c.must(err)
	go func() {
		defer close(w.done)
		defer client.Close()
		for last := time.Now(); ctx.Err() == nil; {
			attempt, cancel := context.WithTimeout(ctx, time.Second)
			n := strconv.Itoa(w.acknowledged)
			_, err := client.Put(attempt, "w/"+n, n)
			if cancel(); err == nil {
				w.acknowledged++
				w.gap, last = max(w.gap, time.Since(last)), time.Now()
			}
		}
	}()
	return w
}

// end stops the writer, and checks that everything that it was instructed to be written is there.
func (w *writer) end(c *cluster) {
	c.t.Helper()
	w.endAt(c, c.endpoint(c.names[0]))
}

// endAt is end, where the writes are read at an endpoint.
func (w *writer) endAt(c *cluster, endpoint string) {
	c.t.Helper()
	w.stop()
	<-w.done
	held := map[string]bool{}
	c.eventually("read what was written", func() error {
		return c.etcdAt(endpoint, func(ctx context.Context, client *clientv3.Client) error {
			got, err := client.Get(ctx, "w/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
			if err != nil {
				return err
			}
			for _, kv := range got.Kvs {
				held[string(kv.Key)] = true
			}
			return nil
		})
	})
	for n := range w.acknowledged {
		if !held["w/"+strconv.Itoa(n)] {
			c.t.Fatalf("write %d of %d was acknowledged and is lost", n, w.acknowledged)
		}
	}
	c.t.Logf("%d writes, the longest gap %s", w.acknowledged, w.gap)
}

// A cluster moves in: its data and its writers stay, its members go when the user lets them, and not before.
func TestARunningClusterMovesIn(t *testing.T) {
	t.Parallel()
	running := member.StartCluster(t, "3.6", 3)
	c := newCluster(t, 3)
	c.joining(running)
	endpoints := endpointsOf(running)
	for _, name := range c.names {
		endpoints = append(endpoints, c.endpoint(name))
	}
	w := c.startWriter(endpoints)
	for _, name := range c.names {
		c.pods[name].startAgent("")
	}
	record := c.sharesWith(len(running))

	// The record is lost, and druid makes it again out of what it knows. Whom the group had before, a member reports it.
	c.changeRecord(func(r *leases.Record) {
		r.Nonce, r.Lineage, r.MaxLearners, r.Externals, r.MemberList = "", "", 0, nil, nil
	})
	c.eventually("the record reports again whom the group had", func() error {
		got, _, err := c.store.Record(t.Context())
		if err != nil || !slices.Equal(got.Externals, record.Externals) || got.MaxLearners != record.MaxLearners {
			return fmt.Errorf("%+v: %w", got, err)
		}
		return nil
	})

	// They are looked at for longer than any unknown member is let be.
	looked := time.Now()
	c.eventually("they are let be", func() error {
		if took := time.Since(looked); took < 2*time.Duration(quick().SuperfluousGracePeriod) {
			return fmt.Errorf("%s are too short to report", took)
		}
		return nil
	})
	c.sharesWith(len(running))

	c.release()
	if group := c.heals(); group != record.ClusterID {
		t.Errorf("the cluster is %x, was %x", group, record.ClusterID)
	}
	w.end(c)
}

// sharesWith waits until the desired members vote next to so many others, one of the desired ones leads, and its agent has reported so.
func (c *cluster) sharesWith(others int) (record leases.Record) {
	c.t.Helper()
	c.eventually("the members vote next to the others, and lead", func() error {
		var err error
		if record, _, err = c.store.Record(c.t.Context()); err != nil {
			return err
		}
		view, err := c.view(c.names[0])
		if err != nil {
			return err
		}
		list, listed := record.Others()
		if len(view.Voters()) != len(c.names)+others || !listed || len(list) != others {
			return fmt.Errorf("voters %+v, the record lists %+v", view.Voters(), record.MemberList)
		}
		for _, name := range c.names {
			lease, err := c.store.Member(c.t.Context(), name)
			if err == nil && lease.Role == leases.RoleLeader && lease.ID != 0 {
				return c.etcd(name, func(ctx context.Context, client *clientv3.Client) error {
					status, err := membership.ReadStatus(ctx, client, c.endpoint(name))
					if err == nil && status.Role != membership.RoleLeader {
						err = errors.New("it leads no more")
					}
					return err
				})
			}
		}
		return errors.New("none of the members leads")
	})
	return record
}
