package crash_test

import (
	"context"
	"net/url"
	"os"
	"slices"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sys/unix"

	"github.com/etcd-druid/druid/test/machine"
)

// Members whose addresses are all of IPv6 form a cluster, back up, and replace a member that lost its disk.
func TestMembersOfIPv6(t *testing.T) {
	// Unique local addresses, as the Pods of a cluster of IPv6 have.
	hosts := []string{"fd00:7::1", "fd00:7::2", "fd00:7::3"}
	// A build can need the network of the machine.
	if _, err := built(); err != nil {
		t.Fatal(err)
	}
	if !machine.Apart(t, unix.CLONE_NEWNET|unix.CLONE_NEWNS) {
		return
	}
	machine.Loopback(t, hosts...)
	machine.ServeNames(t, "::1")
	c := newClusterAt(t, hosts...)
	c.form()
	c.advertises(hosts)

	lost := c.follower()
	before, err := c.store.Member(t.Context(), lost.name)
	c.must(err)
	lost.loseDisk()
	c.heals()
	if now, err := c.store.Member(t.Context(), lost.name); err != nil || now.ID == before.ID {
		t.Errorf("the member that lost its disk has the ID %x, and had %x: %v", now.ID, before.ID, err)
	}
	c.keeps("formed", "yes")
	c.advertises(hosts)

	path := t.TempDir()
	c.snapshotLeases()
	for _, p := range c.pods {
		p.backups = path
		p.configureBackups()
	}
	c.follower().savesOn()
}

// advertises checks that all URLs of all members have one of the hosts.
func (c *cluster) advertises(hosts []string) {
	c.t.Helper()
	c.must(c.etcd(c.names[0], func(ctx context.Context, client *clientv3.Client) error {
		list, err := client.MemberList(ctx)
		if err != nil {
			return err
		}
		for _, m := range list.Members {
			for _, text := range slices.Concat(m.ClientURLs, m.PeerURLs) {
				if u, err := url.Parse(text); err != nil || !slices.Contains(hosts, u.Hostname()) {
					c.t.Errorf("%s has the URL %s, want one of %v: %v", m.Name, text, hosts, err)
				}
			}
		}
		return nil
	}))
}

// loseDisk ends the member as a power cut does, and starts it again with an empty volume.
func (p *pod) loseDisk() {
	p.c.t.Helper()
	p.powerOff()
	p.c.must(os.RemoveAll(p.config.VolumePath))
	p.c.must(os.Mkdir(p.config.VolumePath, 0o700))
	p.startLaunch()
	p.startAgent("")
}
