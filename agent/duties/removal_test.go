package duties

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/agent/transport"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/test/member"
)

// TestLostLeasesRemoveNoMember: Leases that vanish before the Pods remove no member.
// When the EtcdCluster is deleted, its Leases, its Role and its Pods disappear in any order. Here the Leases disappear
// first, at the worst time: according to the last record, two members are superfluous, and their grace period ends
// just then.
func TestLostLeasesRemoveNoMember(t *testing.T) {
	t.Parallel()
	tests := map[string]func(leader string) []string{
		"the record":    func(string) []string { return []string{leases.RecordName("demo")} },
		"the own Lease": func(leader string) []string { return []string{leader} },
		"both":          func(leader string) []string { return []string{leases.RecordName("demo"), leader} },
	}
	for name, gone := range tests {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			leader := c.mustLead()
			c.leases(leader, []string{leader})
			var over atomic.Bool
			log := c.dutiesUntil(leader, &over)
			c.decided("grace")
			for _, lease := range gone(leader) {
				if err := c.admin.CoordinationV1().Leases(c.namespace).Delete(t.Context(), lease, metav1.DeleteOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			over.Store(true)
			c.eventually("the duties find that the Leases are gone", func() error {
				if !strings.Contains(log.String(), leases.ErrAbsent.Error()) {
					return errors.New("not yet")
				}
				return nil
			})
			// The wait is ten times what a rightful leader needs for the removal.
			timer := time.NewTimer(time.Second)
			<-timer.C
			if ids := c.listed(leader); len(ids) != 3 {
				t.Errorf("%d members are listed, want all 3", len(ids))
			}
		})
	}
}

// dutiesUntil runs the leader's duties with a grace period that never ends before over, and returns their log.
func (c *cluster) dutiesUntil(leader string, over *atomic.Bool) *member.Buffer {
	c.t.Helper()
	c.decisions = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "decisions_total", Help: "Decisions."}, []string{"table", "rule"})
	server, log := c.members[leader].Server, &member.Buffer{}
	self := Cluster{ClusterID: uint64(server.Cluster().ID()), MemberID: uint64(server.MemberID()), Member: leader, PodUID: "mine"}
	d := New(Options{
		Store: c.store, Dial: transport.NewClients(transport.Transport{}).Dial, Local: c.endpoint(leader), Decisions: c.decisions,
		Self:    func() (Cluster, bool) { return self, true },
		PeerURL: func(name string) string { return "http://" + name + ".demo-peer:2380" },
		Grace: func() time.Duration {
			if over.Load() {
				return 0
			}
			return time.Hour
		},
		Log: slog.New(slog.NewTextHandler(log, nil)),
	})
	d.poll = 100 * time.Millisecond
	ctx, cancel := context.WithCancel(c.t.Context())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	c.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			c.t.Errorf("duties: %v", err)
		}
	})
	return log
}

// TestUnstartedLearnerRemovedIfNamed: a learner that never starts is removed only when druid names it.
func TestUnstartedLearnerRemovedIfNamed(t *testing.T) {
	c := newCluster(t)
	leader := c.mustLead()
	const joiner = "demo-d"
	c.leases(leader, append(slices.Clone(names), joiner))
	var learner uint64
	c.eventually("add a learner", func() error { // etcd refuses for 5 s after its members connected
		resp, err := c.client(leader).MemberAddAsLearner(t.Context(), []string{"http://" + joiner + ".demo-peer:2380"})
		if err == nil {
			learner = resp.Member.ID
		}
		return err
	})
	api := c.admin.CoordinationV1().Leases(c.namespace)
	say := func(id uint64) *coordinationv1.Lease {
		value, err := leases.Repairing{NotComing: leases.FormatID(id)}.Encode()
		if err != nil {
			t.Fatal(err)
		}
		return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: joiner, Annotations: map[string]string{leases.AnnotationRepairing: value}}}
	}
	c.duties(leader, "mine")
	c.decided("desired-starting")
	lease, err := api.Create(t.Context(), say(learner+1), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	// The wait is twice what the removal of a member without a coming Pod needs.
	timer := time.NewTimer(2 * grace)
	<-timer.C
	if ids := c.listed(leader); !slices.Contains(ids, learner) {
		t.Fatalf("listed: %x; a learner was removed by a word that names another", ids)
	}
	lease.Annotations = say(learner).Annotations
	if _, err := api.Update(t.Context(), lease, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.decided("unstarted-learner")
	c.eventually("the learner is removed", func() error {
		if ids := c.listed(leader); slices.Contains(ids, learner) || len(ids) != len(names) {
			return fmt.Errorf("listed: %x", ids)
		}
		return nil
	})
}

// TestStrayVoterRemovalNeedsQuorum: a stray voter goes only when a healthy quorum is left.
func TestStrayVoterRemovalNeedsQuorum(t *testing.T) {
	c := newCluster(t)
	leader := c.mustLead()
	others := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == leader })
	stray, away := others[0], others[1]
	strayID := uint64(c.members[stray].Server.MemberID())
	c.leases(leader, []string{leader, away})
	c.stop(away)
	began := time.Now()
	c.duties(leader, "mine")
	c.decided("quorum")
	if took := time.Since(began); took < grace {
		t.Errorf("the quorum was asked after %s, want the grace period first", took)
	}
	if ids := c.listed(leader); len(ids) != 3 {
		t.Fatalf("%d members are listed, want 3: a removal would have cost the quorum", len(ids))
	}
	c.start(away)
	c.eventually("the stray voter is removed", func() error {
		if ids := c.listed(leader); slices.Contains(ids, strayID) {
			return fmt.Errorf("listed: %x", ids)
		}
		return nil
	})
	if ids := c.listed(leader); len(ids) != 2 {
		t.Errorf("%d members are listed, want the two desired ones", len(ids))
	}
	c.eventually("the list is published", func() error {
		record, _, err := c.store.Record(t.Context())
		if err == nil && (record.MemberList == nil || len(record.MemberList.Members) != 2) {
			err = fmt.Errorf("published: %+v", record.MemberList)
		}
		return err
	})
}

func TestASupersededLeaderRemovesNoMember(t *testing.T) {
	c := newCluster(t)
	leader := c.mustLead()
	c.leases(leader, []string{leader})
	c.duties(leader, "another Pod's")
	c.decided("record-not-authoritative")
	// The wait is twice what a rightful leader needs for the first removal.
	timer := time.NewTimer(2 * grace)
	<-timer.C
	if ids := c.listed(leader); len(ids) != 3 {
		t.Errorf("%d members are listed, want all 3", len(ids))
	}
}

func TestARecordOfAnotherClusterIsNotTouched(t *testing.T) {
	c := newCluster(t)
	leader := c.mustLead()
	c.leasesOf(1, leader, []string{leader})
	before, _, err := c.store.Record(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c.duties(leader, "mine")
	c.decided("record-not-authoritative")
	timer := time.NewTimer(2 * grace)
	<-timer.C
	after, _, err := c.store.Record(t.Context())
	if diff := cmp.Diff(after, before); err != nil || diff != "" {
		t.Errorf("%v (-got +want)\n%s", err, diff)
	}
	if ids := c.listed(leader); len(ids) != 3 {
		t.Errorf("%d members are listed, want all 3", len(ids))
	}
}
