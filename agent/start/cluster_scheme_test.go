package start

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/agent/transport"
	"github.com/etcd-druid/druid/internal/loop"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

// renew gives the member a new Pod that uses TLS as its arguments say. Its volume stays.
func (m *member) renew(client, peer config.TLSMode, clientPlain, peerPlain bool) {
	m.c.t.Helper()
	m.halt()
	m.cfg.ClientTLS, m.cfg.PeerTLS, m.cfg.ClientPlaintext, m.cfg.PeerPlaintext = client, peer, clientPlain, peerPlain
	m.cfg.ClientService, m.renewed = "c-client", true
	m.cfg.TLSSource, m.cfg.TLSDir = m.c.t.TempDir(), m.c.t.TempDir()
	if client != config.TLSOff || peer != config.TLSOff {
		m.mount()
	}
	m.start()
}

// serves says how a member can be reached.
func (m *member) serves(plain, secure bool) error {
	var errs []error
	for _, protocol := range []struct {
		name string
		dial transport.Transport
		want bool
	}{{"plain text", transport.Transport{}, plain}, {"TLS", m.c.secure.dial, secure}} {
		_, err := membership.Observe(m.c.t.Context(), transport.NewClients(protocol.dial).Dial, membership.Query{
			Endpoints: []string{protocol.dial.ClientURL(m.cfg.ListenHost, config.ClientPort)}, Timeout: 3 * time.Second,
		})
		if (err == nil) != protocol.want {
			errs = append(errs, fmt.Errorf("%s can be reached with %s: %t, want %t: %w", m.name, protocol.name, err == nil, protocol.want, err))
		}
	}
	return errors.Join(errs...)
}

// TLS of clients and of peers is turned on and off, one member after the other as a rolling update does it, under a writer. No ID
// changes, and no write is lost. In the middle a member loses its disk.
func TestTLSIsTurnedOnAndOffMemberByMember(t *testing.T) {
	for _, version := range []string{"3.5.35", "3.6.16", "3.7.3"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			names := []string{"c-a", "c-b", "c-c"}
			c := newCluster(t, version, names...)
			for _, name := range names {
				c.members[name].start()
			}
			ids := c.voters(names...)
			c.withTLS()
			settings := c.secure.dial.Client
			w := c.write(names)
			for _, step := range []struct {
				name                   string
				client, peer           config.TLSMode
				clientPlain, peerPlain bool
				plain, secure          bool
				scheme                 string
			}{
				{"certificates are added", config.TLSMutual, config.TLSMutual, true, true, true, true, "http"},
				{"TLS only", config.TLSMutual, config.TLSMutual, false, false, false, true, "https"},
				{"plain text is allowed again", config.TLSMutual, config.TLSMutual, true, true, true, true, "http"},
				{"certificates are removed", config.TLSOff, config.TLSOff, false, false, true, false, "http"},
			} {
				for i, name := range names {
					m := c.members[name]
					m.renew(step.client, step.peer, step.clientPlain, step.peerPlain)
					c.eventually(step.name+": "+name, func() error { return m.serves(step.plain, step.secure) })
					c.secure.dial = transport.Transport{Client: settings, Plaintext: true}
					after := c.voters(names...)
					c.secure.dial = transport.Transport{Client: settings}
					for _, each := range names {
						if after[each] != ids[each] {
							t.Fatalf("%s of %s: %s has ID %x, before %x", step.name, name, each, after[each], ids[each])
						}
					}
					c.eventually(step.name+": its peer URL", func() error {
						got, err := c.schemeOf(name)
						if err == nil && got != step.scheme {
							err = fmt.Errorf("%s is listed with %s, want %s", name, got, step.scheme)
						}
						return err
					})
					if i == 0 && step.scheme == "https" { // its peers still connect in plain text
						m.halt()
						m.wipe()
						m.start()
						c.secure.dial = transport.Transport{Client: settings, Plaintext: true}
						c.eventually("it heals in the middle", func() error {
							view, err := c.view("c-c")
							if e, ok := view.Find(name, ""); !ok || e.ID == ids[name] || e.Learner || !e.Started() {
								return fmt.Errorf("c-c sees %+v, err %w", view.Members, err)
							}
							return nil
						})
						ids = c.voters(names...)
						c.secure.dial = transport.Transport{Client: settings}
					}
				}
			}
			w.check()
		})
	}
}

// Members join and leave while TLS is turned on, and while it is turned off: a member with TLS only joins others that connect to peers in
// plain text, one with plain text joins others that use TLS, and one of the previous kind is removed. No write is lost.
func TestScaleWhileTLSChanges(t *testing.T) {
	t.Parallel()
	all := []string{"c-a", "c-b", "c-c", "c-d", "c-e"}
	c := newCluster(t, "3.6.16", all...)
	now := all[:3]
	c.desires(now...) // no learner is promoted before all desired members have joined
	for _, name := range now {
		c.members[name].start()
	}
	c.voters(now...)
	c.withTLS()
	settings := c.secure.dial.Client
	c.secure.dial = transport.Transport{Client: settings, Plaintext: true}
	w := c.write([]string{"c-a", "c-c"}) // these stay
	both := func(name string) { c.members[name].renew(config.TLSMutual, config.TLSMutual, true, true) }
	secure := func(name string) { c.members[name].renew(config.TLSMutual, config.TLSMutual, false, false) }
	listed := func(scheme string, names ...string) {
		t.Helper()
		c.voters(now...)
		for _, name := range names {
			c.eventually(name+" is listed with "+scheme, func() error {
				got, err := c.schemeOf(name)
				if err != nil || got != scheme {
					return fmt.Errorf("it is listed with %s: %w", got, err)
				}
				return nil
			})
		}
	}
	for _, name := range now {
		both(name)
		listed("http", name)
	}
	secure("c-a")
	listed("https", "c-a")
	now = []string{"c-a", "c-b", "c-c", "c-d"}
	c.desires(now...)
	secure("c-d") // it joins three members, of which two connect to peers in plain text
	listed("https", "c-a", "c-d")
	c.leaves("c-b", "c-a") // it still connects to peers in plain text
	now = []string{"c-a", "c-c", "c-d"}
	secure("c-c")
	listed("https", now...)

	both("c-a")
	listed("http", "c-a")
	now = []string{"c-a", "c-c", "c-d", "c-e"}
	c.desires(now...)
	both("c-e") // it joins three members, of which two connect to peers with TLS
	listed("http", "c-a", "c-e")
	c.leaves("c-d", "c-a")
	now = []string{"c-a", "c-c", "c-e"}
	both("c-c")
	listed("http", now...)
	for _, name := range now {
		c.members[name].renew(config.TLSOff, config.TLSOff, false, false)
		listed("http", name)
	}
	w.check()
}

// desires writes the names of the members to the record, as druid does.
func (c *cluster) desires(names ...string) {
	c.t.Helper()
	c.eventually("the record lists the members", func() error {
		record, version := c.record()
		record.Members = slices.Sorted(slices.Values(names))
		_, err := c.store.UpdateRecord(c.t.Context(), version, record)
		return err
	})
}

// leaves removes a member, through another one, as the leader's agent does. Its Pod ends.
func (c *cluster) leaves(name, through string) {
	c.t.Helper()
	view, err := c.view(through)
	entry, listed := view.Find(name, "")
	if err != nil || !listed {
		c.t.Fatalf("%s sees %+v, err %v", through, view.Members, err)
	}
	record, _ := c.record()
	c.desires(slices.DeleteFunc(record.Members, func(each string) bool { return each == name })...)
	client := c.client(through)
	defer func() { _ = client.Close() }()
	c.eventually(name+" is removed", func() error {
		ctx, cancel := context.WithTimeout(c.t.Context(), 5*time.Second)
		defer cancel()
		if err := membership.Remove(ctx, client, entry.ID); err != nil && !errors.Is(err, membership.ErrNotFound) {
			return err
		}
		return nil
	})
	c.members[name].crash()
}

// schemeOf returns the scheme with which a quorum lists the member.
func (c *cluster) schemeOf(name string) (string, error) {
	c.t.Helper()
	dial := transport.Transport{Client: c.secure.dial.Client, Plaintext: true}
	view, err := membership.Observe(c.t.Context(), transport.NewClients(dial).Dial, membership.Query{
		Endpoints: []string{dial.ClientURL(c.members[name].cfg.ListenHost, config.ClientPort)}, Timeout: 5 * time.Second,
	})
	if err != nil {
		return "", err
	}
	m, ok := view.Find(name, "")
	if !ok || len(m.PeerURLs) != 1 {
		return "", fmt.Errorf("it is listed as %+v", m)
	}
	scheme, _, _ := strings.Cut(m.PeerURLs[0], "://")
	return scheme, nil
}

// writer puts numbered keys until it is checked, at whichever member answers, and remembers those that were acknowledged.
type writer struct {
	c     *cluster
	names []string
	stop  context.CancelFunc
	group errgroup.Group
	last  int
	gap   time.Duration
}

func (c *cluster) write(names []string) *writer {
	c.t.Helper()
	ctx, stop := context.WithCancel(c.t.Context())
	w := &writer{c: c, names: names, stop: stop}
	dial := transport.Transport{Client: c.secure.dial.Client, Plaintext: true}
	w.group.Go(func() error {
		before := time.Now()
		for i := 0; ctx.Err() == nil; i++ {
			if err := w.put(ctx, dial, names[i%len(names)], w.last+1); err == nil {
				w.last++
				w.gap = max(w.gap, time.Since(before))
				before = time.Now()
			}
			loop.Sleep(ctx, 10*time.Millisecond)
		}
		return nil
	})
	c.t.Cleanup(stop)
	return w
}

func (w *writer) put(ctx context.Context, dial transport.Transport, name string, n int) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	client, err := dial.Etcd(ctx, dial.ClientURL(w.c.members[name].cfg.ListenHost, config.ClientPort))
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	_, err = client.Put(ctx, fmt.Sprintf("n/%06d", n), "x")
	return err
}

// check ends the writer, and checks that every acknowledged write is there.
func (w *writer) check() {
	w.c.t.Helper()
	w.stop()
	_ = w.group.Wait()
	plain, err := transport.Transport{}.Etcd(w.c.t.Context(), "http://"+net.JoinHostPort(w.c.members[w.names[0]].cfg.ListenHost, fmt.Sprint(config.ClientPort)))
	if err != nil {
		w.c.t.Fatal(err)
	}
	defer func() { _ = plain.Close() }()
	found, err := plain.Get(w.c.t.Context(), "n/", clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil || found.Count < int64(w.last) || w.last == 0 {
		w.c.t.Errorf("%d of %d writes are there, err %v", found.Count, w.last, err)
	}
	w.c.t.Logf("%d writes, none lost; longest time without one %s", w.last, w.gap)
}

// All members end at once, and two come back in Pods that are to use TLS. Neither finds a quorum that could change the
// list, so both listen as the list says. They would not reach each other otherwise.
func TestMembersWithoutAQuorumListenAsBefore(t *testing.T) {
	for _, version := range []string{"3.5.35", "3.6.16", "3.7.3"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			names := []string{"c-a", "c-b", "c-c"}
			c := newCluster(t, version, names...)
			for _, name := range names {
				c.members[name].start()
			}
			ids := c.voters(names...)
			c.put("c-a", "color", "blue")
			c.withTLS()
			c.secure.dial = transport.Transport{}
			for _, name := range names {
				c.members[name].renew(config.TLSOff, config.TLSMutual, false, true)
				c.voters(names...)
			}
			for _, name := range names {
				c.members[name].crash()
			}
			for _, name := range names[:2] {
				c.members[name].renew(config.TLSOff, config.TLSMutual, false, false)
			}
			for _, name := range names[:2] {
				c.eventually(name+" sees a quorum", func() error {
					_, err := c.view(name)
					return err
				})
				if got, err := c.schemeOf(name); err != nil || got != leases.SchemePlain {
					t.Errorf("%s is listed with %s (%v), want %s", name, got, err, leases.SchemePlain)
				}
			}
			for _, name := range names[:2] {
				view, err := c.view(name)
				if m, ok := view.Member(ids[name]); err != nil || !ok || m.Name != name || c.get(name, "color") != "blue" {
					t.Errorf("%s sees %+v (%v), with %v before", name, view.Members, err, ids)
				}
			}
		})
	}
}

// The only member cannot ask another one for a change of the member list. It listens with the new scheme first.
func TestTheOnlyMemberTurnsTLSOfPeersOnAndOff(t *testing.T) {
	for _, version := range []string{"3.5.35", "3.6.16", "3.7.3"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, version, "c-a")
			only := c.members["c-a"]
			only.start()
			before := c.voters("c-a")
			c.put("c-a", "color", "blue")
			c.eventually("the leader publishes the member list", func() error { // its agent completes the record at the same time
				r, at := c.record()
				r.MemberList = &leases.MemberList{Members: []leases.ListedMember{
					{ID: leases.FormatID(before["c-a"]), Name: "c-a", PeerURL: "http://" + only.cfg.ListenHost + ":2380"}}}
				_, err := c.store.UpdateRecord(t.Context(), at, r)
				return err
			})
			c.withTLS()
			c.secure.dial = transport.Transport{}
			for _, want := range []string{"http", "https", "http"} {
				only.renew(config.TLSOff, config.TLSMutual, false, want == "http")
				c.eventually("it is listed with "+want, func() error {
					got, err := c.schemeOf("c-a")
					if err == nil && got != want {
						err = fmt.Errorf("it is listed with %s", got)
					}
					return err
				})
				if after := c.voters("c-a"); after["c-a"] != before["c-a"] || c.get("c-a", "color") != "blue" {
					t.Errorf("with %s it has ID %x, before %x", want, after["c-a"], before["c-a"])
				}
			}
		})
	}
}
