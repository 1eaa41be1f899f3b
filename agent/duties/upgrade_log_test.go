package duties

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	clientv3 "go.etcd.io/etcd/client/v3"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/etcd-druid/druid/agent/transport"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
	"github.com/etcd-druid/druid/test/env"
	"github.com/etcd-druid/druid/test/member"
)

func performUpgrades(t *testing.T, store *leases.Store, local string, self func() (Cluster, bool),
	peerURL func(string) string) (decided func(rule string) error) {
	t.Helper()
	seen := prometheus.NewRegistry()
	decisions := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "upgrades_total", Help: "Decisions."}, []string{"table", "rule"})
	seen.MustRegister(decisions)
	duties := New(Options{
		Store: store, Dial: transport.NewClients(transport.Transport{}).Dial, Local: local, Decisions: decisions, Self: self, PeerURL: peerURL,
		Grace: func() time.Duration { return time.Hour }, Log: slog.New(slog.DiscardHandler),
	})
	duties.poll, duties.comparePause = 100*time.Millisecond, 100*time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- duties.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("duties: %v", err)
		}
	})
	return func(rule string) error {
		families, err := seen.Gather()
		if err != nil {
			return err
		}
		for _, family := range families {
			for _, metric := range family.Metric {
				for _, label := range metric.Label {
					if label.GetValue() == rule {
						return nil
					}
				}
			}
		}
		return fmt.Errorf("rule %s has not decided", rule)
	}
}

// upgradesOf runs the duties for a single member, and returns a func that requests a comparison and waits for it.
func upgradesOf(t *testing.T, m *member.Member) (agrees func(leases.UpgradeOrder)) {
	t.Helper()
	answered, says := answersOf(t, m)
	says(10_000, "mine")
	return func(order leases.UpgradeOrder) { t.Helper(); answered(order, leases.UpgradeAgree, "") }
}

// answersOf is upgradesOf for answers of any kind. says writes what the member's agent reports about etcd's snapshot
// count, from within a Pod.
func answersOf(t *testing.T, m *member.Member) (answered func(order leases.UpgradeOrder, want leases.UpgradeVerdict, why string),
	says func(count uint64, pod string)) {
	t.Helper()
	status, err := membership.ReadStatus(t.Context(), m.Client, m.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	config := env.APIServer(t)
	api := kubernetes.NewForConfigOrDie(config).CoordinationV1().Leases(env.Namespace(t, config))
	record := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: leases.RecordName("demo")}}
	if err := (leases.Record{
		Phase: leases.PhaseFormed, ClusterID: status.ClusterID, Epoch: 1, FormedEpoch: 1, Members: []string{member.Name},
		MaxLearners: leases.MaxLearners35,
	}).Encode(record); err != nil {
		t.Fatal(err)
	}
	own := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: member.Name, Annotations: map[string]string{leases.AnnotationPodUID: "mine"}}}
	for _, lease := range []*coordinationv1.Lease{record, own} {
		if _, err := api.Create(t.Context(), lease, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	store := leases.NewStore(api, "demo")
	self := Cluster{ClusterID: status.ClusterID, MemberID: status.MemberID, Member: member.Name, PodUID: "mine"}
	performUpgrades(t, store, m.Endpoint, func() (Cluster, bool) { return self, true }, func(string) string { return m.PeerURL })
	answered = func(order leases.UpgradeOrder, want leases.UpgradeVerdict, why string) {
		t.Helper()
		orderUpgrade(t, api, order)
		eventually(t, order.Nonce, func() error {
			a, err := answerTo(t.Context(), store, order.Nonce, want)
			if err == nil && !strings.Contains(a.Why, why) {
				err = fmt.Errorf("answered %+v, want %q", a, why)
			}
			return err
		})
	}
	says = func(count uint64, pod string) {
		t.Helper()
		eventually(t, "the member's Lease says its snapshot count", func() error {
			said := leases.Member{ID: status.MemberID, ClusterID: status.ClusterID, Role: leases.RoleLeader, Snapshots: leases.Snapshots{Entries: count, PodUID: pod}}
			_, err := store.PatchMember(t.Context(), member.Name, leases.MemberPatch{Member: said})
			return err
		})
	}
	return answered, says
}

// writtenBy35 starts etcd 3.6, with more flags, on data that 3.5 wrote. put is the answer to the write.
func writtenBy35(t *testing.T, args ...string) (m *member.Member, put *clientv3.PutResponse) {
	t.Helper()
	m = member.Start(t, "3.5", member.Options{})
	put, err := m.Client.Put(t.Context(), "kept", "yes")
	if err != nil {
		t.Fatal(err)
	}
	m.Stop(t)
	return member.Start(t, "3.6", member.Options{Dir: m.Dir, PeerURL: m.PeerURL, Args: args}), put
}

// TestEntriesOfMinorBeforeLeftBehind: what the minor before the last wrote is left behind.
// etcd 3.7 panics on what 3.5 left in the log, unless 3.6 took a snapshot since then.
func TestEntriesOfMinorBeforeLeftBehind(t *testing.T) {
	t.Parallel()
	m, put := writtenBy35(t)
	upgradesOf(t, m)(leases.UpgradeOrder{Nonce: "on", Version: "3.7.99"})
	m.Stop(t)
	holdsAfterUpgrade(t, m, put)
}

// The snapshot counts that the agents report decide, not the one of the leader. Nothing continues before the count is
// known, while it is too large, or based on the report of an earlier Pod. A smaller count is enough later, without
// another wait.
func TestLargestSnapshotCountDecides(t *testing.T) {
	t.Parallel()
	m, put := writtenBy35(t, "--snapshot-count=1500")
	answered, says := answersOf(t, m)
	answered(leases.UpgradeOrder{Nonce: "unknown", Version: "3.7.99"}, leases.UpgradeUnknown, "has not reported yet")
	says(1_000, "earlier")
	answered(leases.UpgradeOrder{Nonce: "of an earlier Pod", Version: "3.7.99"}, leases.UpgradeUnknown, "has not reported yet")
	says(longestLog+1, "mine")
	answered(leases.UpgradeOrder{Nonce: "large", Version: "3.7.99"}, leases.UpgradeAwaitsEdit, "100000 or less")
	says(1_500, "mine")
	answered(leases.UpgradeOrder{Nonce: "small", Version: "3.7.99"}, leases.UpgradeAgree, "")
	m.Stop(t)
	holdsAfterUpgrade(t, m, put)
}

// TestSecondNextMinorRequestLeavesLog: a second request for the next minor leaves the log behind again.
// A member that returned to 3.5 in the meantime can have written what 3.7 cannot read. So a second request for 3.7
// counts from its own start.
func TestSecondNextMinorRequestLeavesLog(t *testing.T) {
	t.Parallel()
	m := member.Start(t, "3.5", member.Options{})
	m.Stop(t)
	m = member.Start(t, "3.6", member.Options{Dir: m.Dir, PeerURL: m.PeerURL, Args: []string{"--snapshot-count=200"}})
	answered, says := answersOf(t, m)
	says(200, "mine")
	agrees := func(order leases.UpgradeOrder) { t.Helper(); answered(order, leases.UpgradeAgree, "") }
	index := func() uint64 {
		t.Helper()
		status, err := membership.ReadStatus(t.Context(), m.Client, m.Endpoint)
		if err != nil {
			t.Fatal(err)
		}
		return status.RaftIndex
	}
	agrees(leases.UpgradeOrder{Nonce: "first", Version: "3.7.99"})
	agrees(leases.UpgradeOrder{Nonce: "taken back", Version: "3.6.99"})
	before := index()
	agrees(leases.UpgradeOrder{Nonce: "second", Version: "3.7.99"})
	if grown := index() - before; grown < 200 {
		t.Errorf("the log grew by %d entries for the second request, want 200 at least", grown)
	}
}

// holdsAfterUpgrade starts etcd 3.7 on the member's data.
func holdsAfterUpgrade(t *testing.T, m *member.Member, put *clientv3.PutResponse) {
	t.Helper()
	m = member.Start(t, "3.7", member.Options{Dir: m.Dir, PeerURL: m.PeerURL})
	got, err := m.Client.Get(t.Context(), "kept")
	if err != nil || len(got.Kvs) != 1 || got.Kvs[0].ModRevision != put.Header.Revision {
		t.Errorf("etcd 3.7 has %+v, %v", got, err)
	}
}
