package start

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/etcd-druid/druid/agent/certificates"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
)

func TestWhenOthersCompareNames(t *testing.T) {
	for name, c := range map[string]struct {
		members, compare, unknown int
		want                      rules.Answer
	}{
		"the only member":                              {1, 0, 0, rules.No},
		"two members, and the other one compares":      {2, 1, 0, rules.Yes},
		"two members, and the other one is unknown":    {2, 0, 1, rules.Unknown},
		"three members, and both others compare":       {3, 2, 0, rules.Yes},
		"three members, and a lost one compared":       {3, 1, 0, rules.No},
		"three members, and one Lease is unknown":      {3, 1, 1, rules.Unknown},
		"three members, and none compares":             {3, 0, 0, rules.No},
		"three members, one unknown and none compares": {3, 0, 1, rules.No},
		"five members, and two lost ones compared":     {5, 2, 0, rules.No},
		"five members, and three others compare":       {5, 3, 1, rules.Yes},
		"no record of members":                         {0, 0, 0, rules.No},
	} {
		if got := OthersCompareNames(c.members, c.compare, c.unknown); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// The certificate for connecting to peers gets names while the members run, and the Pod of one of them is created
// again. Its etcd does not start, because the others would refuse it, and the agent says why. With the former
// certificate, or once no other member compares names, it starts.
func TestNewPodWaitsWhileOthersCompareNames(t *testing.T) {
	t.Parallel()
	names := []string{"c-a", "c-b", "c-c"}
	c := newCluster(t, "3.7.3", names...)
	c.withTLS()
	for _, m := range c.members {
		m.start()
	}
	before := c.voters(names...)
	reports := func(compare bool) {
		for _, name := range names[:2] {
			state := leases.TLSPlane{Issuer: "own", ComparesNames: compare}
			for _, s := range c.members[name].b.certs.States() {
				if compare && s.Plane == certificates.PlanePeer && !s.ComparesNames {
					t.Errorf("%s does not report that its etcd compares names", name)
				}
			}
			c.eventually(name+" reports how its etcd was started", func() error {
				_, err := c.store.PatchMember(t.Context(), name, leases.MemberPatch{Member: leases.Member{TLS: leases.TLS{}.With("peer", state)}})
				return err
			})
		}
	}
	reports(true)
	m := c.members["c-c"]
	good := m.read(certificates.PlanePeer)
	inNewPod := func(m *member, with files) {
		m.halt()
		m.write(certificates.PlanePeer, with)
		m.cfg.TLSDir = filepath.Join(c.t.TempDir(), "dir")
		m.start()
	}
	named := func(good files) files {
		return good.with(files{"client.crt": good["tls.crt"], "client.key": good["tls.key"]})
	}
	for _, repair := range []struct {
		name string
		make func()
	}{
		{"the former certificate", func() { m.write(certificates.PlanePeer, good) }},
		{"no other member compares names", func() {
			reports(false)
			for _, name := range names[:2] {
				inNewPod(c.members[name], named(c.members[name].read(certificates.PlanePeer)))
			}
		}},
	} {
		t.Run(repair.name, func(t *testing.T) {
			inNewPod(m, named(good))
			c.decides("c-c", RuleCertificates)
			if problem := m.problem(certificates.PlanePeer); !strings.Contains(problem, "subject alternative names") {
				t.Errorf("the problem is %q", problem)
			}
			repair.make()
			c.eventually("the agent reads the certificates again", func() error { m.b.certs.Load(t.Context()); return m.b.certs.Ready() })
			c.decides("c-c", "resume", "resume-majority") // the others can still be starting
			c.voters(names...)
		})
	}
	if after := c.voters(names...); !equalIDs(before, after) {
		t.Errorf("the members are %v, before %v", after, before)
	}
	// Both others are lost, and their Leases say what they did. Without an etcd here, no recovery could use this disk.
	for _, name := range names[:2] {
		c.members[name].halt()
		c.eventually(name+" reported that it compares names", func() error {
			_, err := c.store.PatchMember(t.Context(), name,
				leases.MemberPatch{Member: leases.Member{TLS: leases.TLS{}.With("peer", leases.TLSPlane{Issuer: "own", ComparesNames: true})}})
			return err
		})
	}
	inNewPod(m, named(good))
	c.decides("c-c", "resume-majority")
}
