package start

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/agent/launch"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/test/rulestest"
)

func brokenByClients(f clientFacts, d rules.Decision[clientVerdict]) string {
	switch {
	case f.served == rules.No && (f.votes == rules.Yes || f.serving == servingYes):
		return rulestest.Impossible
	case f.proxies == rules.Yes && (f.votes == rules.Yes || f.serving == servingYes):
		return rulestest.Impossible // the time counts from the first look without either
	case d.Verdict == clientsJoin && f.votes == rules.Yes:
		return "druid would send clients to a learner"
	case d.Verdict == clientsJoin && f.serving == servingYes && f.overdue == rules.No:
		return "a learner gets clients"
	case d.Verdict == clientsJoin && f.serving != servingYes && f.served == rules.Yes && f.proxies == rules.No:
		return "a learner gets clients of a node that is late"
	case d.Verdict != clientsJoin && f.votes == rules.No && f.overdue == rules.Yes && f.proxies == rules.Yes:
		return "a member never joins"
	case d.Verdict == clientsWait && f.served == rules.No:
		return "a member of a new Pod waits"
	}
	return ""
}

func TestNoLearnerGetsClients(t *testing.T) {
	cases := rulestest.Check(t, clientRules, brokenByClients)
	rulestest.Section(t, "../../docs/reference/decisions.md", "clients", "When a member joins as a learner: "+clientsTable,
		"A learner refuses most requests of clients. So the agent waits until no clients are sent to its Pod. It sees the label that makes the "+
			"Services select the Pod in a file that the kubelet writes.",
		clientRules, cases)
}

// labelled writes the label of the Pod as the kubelet does.
func (m *member) labelled(value string) {
	m.c.t.Helper()
	if err := os.WriteFile(filepath.Join(filepath.Dir(m.cfg.ConfigPath), config.ServingFile), []byte(value), 0o600); err != nil {
		m.c.t.Fatal(err)
	}
}

// A member that served clients lost its data. Until the Pod left the client Service, no learner is added.
func TestLearnerStartsAfterPodLeftService(t *testing.T) {
	c, before := formed(t)
	lost := c.members["c-b"]
	lost.halt()
	c.floor("c-c") // the Lease of another member does not matter
	c.mark("c-b", leases.FormatID(before["c-b"])+":Member")
	lost.wipe()
	lost.cfg.ConfigPath = filepath.Join(t.TempDir(), config.ConfigFile)
	lost.labelled("true")

	ctx, cancel := context.WithTimeout(t.Context(), maxWait)
	defer cancel()
	var left time.Time
	order, err := lost.boot().Next(ctx, launch.Idle{}, func(o launch.Order) {
		if !strings.Contains(o.Reason, "druid has not removed this Pod from the client Service") {
			return
		}
		if view, err := c.view("c-a"); err != nil || len(view.Members) != 2 {
			t.Errorf("before the Pod left the Service, c-a lists %+v, err %v", view.Members, err)
		}
		lease, err := c.store.Member(t.Context(), "c-b")
		if err != nil || lease.Role != leases.RoleLearner || lease.ID != before["c-b"] {
			t.Errorf("while the Pod is in the Service, the Lease says %x %s, err %v", lease.ID, lease.Role, err)
		}
		left = time.Now()
		lost.labelled("")
	})
	if err != nil || order.Kind != launch.OrderStart {
		t.Fatalf("the agent orders %+v, err %v", order, err)
	}
	if took := time.Since(left); left.IsZero() || took < proxyLag {
		t.Errorf("etcd starts %s after the Pod left the Service, want at least %s", took, proxyLag)
	}
	if view, err := c.view("c-a"); err != nil || len(view.Learners()) != 1 {
		t.Errorf("c-a lists %+v, err %v", view.Members, err)
	}
}

func TestWhatIsKnownOfClients(t *testing.T) {
	voter, learner := leases.Member{Role: leases.RoleMember}, leases.Member{Role: leases.RoleLearner}
	type look struct {
		after time.Duration
		lease leases.Member
		label serving
		want  clientVerdict
	}
	for name, looks := range map[string][]look{
		"a member that never voted":                  {{0, leases.Member{}, servingNo, clientsJoin}},
		"a member without the file that never voted": {{0, leases.Member{}, servingUnknown, clientsJoin}},
		"a learner that starts again":                {{0, learner, servingNo, clientsJoin}},
		"a new Pod of a voter": {{0, voter, servingNo, clientsReport}, {1, learner, servingNo, clientsWait},
			{proxyLag + 1, learner, servingNo, clientsJoin}},
		"a Pod without the file": {{0, voter, servingUnknown, clientsReport}, {1, learner, servingUnknown, clientsWait},
			{proxyLag + 1, learner, servingUnknown, clientsWait}, {unseenLag + 1, learner, servingUnknown, clientsJoin}},
		"a Pod that serves": {{0, voter, servingYes, clientsReport}, {1, learner, servingYes, clientsWait},
			{time.Minute, learner, servingYes, clientsJoin}},
		"a Lease that the agent wrote again": {{0, voter, servingNo, clientsReport}, {1, learner, servingNo, clientsWait},
			{proxyLag, voter, servingNo, clientsReport}, {proxyLag + 2, learner, servingNo, clientsWait}},
		"an agent that began while the Pod was in the Service": {{0, learner, servingYes, clientsWait}, {1, learner, servingNo, clientsWait},
			{proxyLag + 1, learner, servingNo, clientsJoin}},
	} {
		t.Run(name, func(t *testing.T) {
			var seen clientsLeaving
			began := time.Now()
			for i, l := range looks {
				if got := clientRules.Decide(seen.facts(began.Add(l.after), l.lease, l.label)); got.Verdict != l.want {
					t.Errorf("look %d: %s by %s, want %s", i, got.Verdict, got.Rule, l.want)
				}
			}
		})
	}
}
