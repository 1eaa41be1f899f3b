package start

import (
	"context"
	"net"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/etcd-druid/druid/test/machine"
)

// named is newCluster whose members connect to each other by their names.
func named(t *testing.T, server *machine.NameServer, version string, names ...string) *cluster {
	t.Helper()
	c := newCluster(t, version, names...)
	c.named = true
	for _, m := range c.members {
		host := PeerHost(m.cfg, m.name)
		server.Add(host, m.cfg.ListenHost)
		server.Add(strings.TrimPrefix(host, m.name+"."), m.cfg.ListenHost) // the headless Service
	}
	return c
}

// TestFormAndHealWithoutReverseLookup: members form and heal without reverse lookup.
// Members whose addresses have no names form a cluster with TLS of peers, and one that lost its disk joins it again. etcd compares the
// names in a certificate with the names of the address that it comes from, and there are none.
func TestFormAndHealWithoutReverseLookup(t *testing.T) {
	if !machine.Apart(t, unix.CLONE_NEWNS) {
		return
	}
	server := machine.ServeNames(t, machine.Network(t)+"53")
	for _, version := range []string{"3.5.35", "3.6.16", "3.7.3"} {
		for name, onePair := range map[string]bool{"peers have a certificate without names": false, "peers show the certificate of the members": true} {
			t.Run(version+": "+name, func(t *testing.T) {
				t.Parallel()
				c := named(t, server, version, "c-a", "c-b", "c-c")
				c.withTLS()
				c.secure.onePair = onePair
				c.formsAndHeals()
				for _, m := range c.members {
					if _, err := net.DefaultResolver.LookupAddr(context.WithoutCancel(t.Context()), m.cfg.ListenHost); err == nil {
						t.Errorf("the address of %s has a name", m.name)
					}
				}
				if server.Reverse.Load() == 0 {
					t.Error("the name server was asked nothing")
				}
				view, err := c.view("c-a")
				if err != nil || !strings.Contains(view.Members[0].PeerURLs[0], ".c-peer.") {
					t.Errorf("the members are not listed by name: %+v, %v", view.Members, err)
				}
				c.outsidersStayOut()
			})
		}
	}
}
