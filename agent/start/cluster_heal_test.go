package start

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"

	"github.com/etcd-druid/druid/agent/datadir"
	"github.com/etcd-druid/druid/agent/datadir/volume"
	"github.com/etcd-druid/druid/agent/transport"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
	"github.com/etcd-druid/druid/test/machine"
)

// formed is a cluster of three voters with one key, for a parallel test.
func formed(t *testing.T) (*cluster, map[string]uint64) {
	t.Helper()
	t.Parallel()
	c := newCluster(t, "3.7.3", "c-a", "c-b", "c-c")
	for _, m := range c.members {
		m.start()
	}
	ids := c.voters("c-a", "c-b", "c-c")
	c.put("c-a", "color", "blue")
	return c, ids
}

func TestEtcdThatWasKilledResumes(t *testing.T) {
	c, before := formed(t)
	c.members["c-b"].kill()
	c.decides("c-b", "resume", "resume-majority")
	if after := c.voters("c-a", "c-b", "c-c"); after["c-b"] != before["c-b"] {
		t.Errorf("it came back as %x, was %x", after["c-b"], before["c-b"])
	}
}

func TestSeedWhoseDiskIsLostReplacesItself(t *testing.T) {
	c, before := formed(t)
	seed := c.members["c-a"]
	seed.halt()
	seed.wipe()
	seed.start()
	began := time.Now()
	c.eventually("it votes under a new ID", func() error {
		view, err := c.view("c-b")
		if m, ok := view.Find("c-a", ""); !ok || m.ID == before["c-a"] || m.Learner || !m.Started() {
			return fmt.Errorf("c-b sees %+v, err %w", view.Members, err)
		}
		return nil
	})
	t.Logf("it votes after %s", time.Since(began))
	if c.voters("c-a", "c-b", "c-c"); c.get("c-a", "color") != "blue" {
		t.Error("the key is lost")
	}
	c.stable("c-a")
	if rules := seed.rules(); slices.Contains(rules, "first-boot") || !slices.Contains(rules, "data-lost") {
		t.Errorf("it decided by %v", rules)
	}
}

func TestMemberThatWasRemovedWhileDownRejoins(t *testing.T) {
	c, before := formed(t)
	down := c.members["c-c"]
	down.halt()
	client := c.client("c-a")
	defer func() { _ = client.Close() }()
	c.eventually("it is removed", func() error { // which etcd refuses while it takes it for connected
		if err := membership.Remove(t.Context(), client, before["c-c"]); !errors.Is(err, membership.ErrNotFound) {
			return err
		}
		return nil
	})
	down.start()
	if after := c.voters("c-a", "c-b", "c-c"); after["c-c"] == before["c-c"] {
		t.Error("it came back under its removed ID")
	}
	if rules := down.rules(); !slices.Contains(rules, "removed-while-down") {
		t.Errorf("it decided by %v", rules)
	}
	c.eventually("the old data is pruned", func() error {
		if quarantined, err := datadir.AllQuarantined(down.cfg.VolumePath); err != nil || len(quarantined) > 0 {
			return fmt.Errorf("%v, err %w", quarantined, err)
		}
		return nil
	})
}

func TestVolumeThatWentBackInTimeDoesNotVote(t *testing.T) {
	c, before := formed(t)
	back := c.members["c-b"]
	back.halt()
	old := filepath.Join(t.TempDir(), "old")
	if err := os.CopyFS(old, os.DirFS(back.cfg.VolumePath)); err != nil {
		t.Fatal(err)
	}
	back.start()
	c.decides("c-b", "resume", "resume-majority")
	c.voters("c-a", "c-b", "c-c")
	for i := range 20 {
		c.put("c-b", "color", fmt.Sprint("green", i))
	}
	c.floor("c-b")
	back.halt()
	c.members["c-c"].halt()
	back.wipe()
	if err := os.CopyFS(back.cfg.VolumePath, os.DirFS(old)); err != nil {
		t.Fatal(err)
	}
	back.start()
	c.decides("c-b", "await-quorum")
	if said := back.last(); said.Data != "stale" {
		t.Errorf("its data is said to be %s", said.Data)
	}
	c.members["c-c"].start()
	if after := c.voters("c-a", "c-b", "c-c"); after["c-b"] == before["c-b"] {
		t.Error("it came back under its old ID")
	}
	if got := c.get("c-b", "color"); got != "green19" {
		t.Errorf("it serves %s", got)
	}
}

// floor publishes the position of the member as the durable position of its volume, as the agent does one interval
// later.
func (c *cluster) floor(name string) {
	c.t.Helper()
	client := c.client(name)
	defer func() { _ = client.Close() }()
	status, err := membership.ReadStatus(c.t.Context(), client, client.Endpoints()[0])
	if err != nil {
		c.t.Fatal(err)
	}
	lease, err := c.leases.Get(c.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	holder := leases.FormatID(status.MemberID) + ":Member"
	lease.Spec.HolderIdentity = &holder
	lease.Annotations[leases.Prefix+"cluster-id"] = leases.FormatID(status.ClusterID)
	lease.Annotations[leases.Prefix+"raft-floor"] = leases.Raft{Term: status.RaftTerm, Committed: status.RaftIndex}.String()
	if _, err := c.leases.Update(c.t.Context(), lease, metav1.UpdateOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

func (m *member) last() Published {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.said) == 0 {
		return Published{}
	}
	return m.said[len(m.said)-1]
}

// TestEmptySeedFormsNoSecondCluster: an emptied seed of a cluster that is down never forms another.
func TestEmptySeedFormsNoSecondCluster(t *testing.T) {
	c, _ := formed(t)
	for _, m := range c.members {
		m.halt()
	}
	seed := c.members["c-a"]
	seed.wipe()
	seed.start()
	c.decides("c-a", "await-quorum")
	if err := c.leases.Delete(t.Context(), leases.RecordName("c"), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.decides("c-a", "record-absent")
	// The record was created again as if there had been no cluster, while a member Lease shows that there was one.
	c.mark("c-b", "beef:Member")
	c.createRecord(leases.Record{Phase: leases.PhaseForming, Seed: "c-a", Epoch: 1, Members: []string{"c-a", "c-b", "c-c"}})
	c.decides("c-a", "formed-before")
	if rules := seed.rules(); slices.Contains(rules, "first-boot") {
		t.Errorf("it decided by %v", rules)
	}
}

func (c *cluster) mark(name, holder string) {
	c.t.Helper()
	lease, err := c.leases.Get(c.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	lease.Spec.HolderIdentity = &holder
	if _, err := c.leases.Update(c.t.Context(), lease, metav1.UpdateOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

// unreached is an API server at an address where nothing listens: every call is refused.
func (c *cluster) unreached() *leases.Store {
	c.t.Helper()
	noOne, err := coordinationclient.NewForConfig(&rest.Config{Host: "http://" + net.JoinHostPort(c.members["c-a"].cfg.ListenHost, "1")})
	if err != nil {
		c.t.Fatal(err)
	}
	return leases.NewStore(noOne.Leases(c.ns), "c")
}

func TestMajorityRestartsWithoutKubernetes(t *testing.T) {
	c, before := formed(t)
	for _, m := range c.members {
		m.halt()
	}
	c.store = c.unreached()
	for _, m := range c.members {
		m.start()
	}
	if after := c.voters("c-a", "c-b", "c-c"); after["c-a"] != before["c-a"] || c.get("c-a", "color") != "blue" {
		t.Errorf("they came back as %x, were %x", after, before)
	}
}

// TestForeignAndSupersededRefused: foreign and superseded members are refused.
func TestForeignAndSupersededRefused(t *testing.T) {
	c, _ := formed(t)
	b, other := c.members["c-b"], c.members["c-c"]
	b.halt()
	other.halt()
	mine := b.cfg.VolumePath
	b.cfg.VolumePath = other.cfg.VolumePath
	b.start()
	c.decides("c-b", "mismatched-data")
	b.halt()
	b.cfg.VolumePath = mine
	identity := filepath.Join(mine, volume.IdentityFileName)
	if err := os.Rename(identity, identity+".aside"); err != nil {
		t.Fatal(err)
	}
	b.start()
	c.decides("c-b", "mismatched-data")
	if says := b.last().Reason; !strings.Contains(says, "identity file") {
		t.Errorf("without its identity file, it says %q", says)
	}
	b.halt()
	if err := os.Rename(identity+".aside", identity); err != nil {
		t.Fatal(err)
	}
	b.cfg.PodUID = "pod-of-yesterday"
	b.start()
	c.decides("c-b", "superseded")
}

// TestRecreatedRecordCompletedByMember: a record that was made again is completed by a member.
func TestRecreatedRecordCompletedByMember(t *testing.T) {
	c, _ := formed(t)
	want, _ := c.record()
	if err := c.leases.Delete(t.Context(), leases.RecordName("c"), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.createRecord(leases.Record{
		Phase: leases.PhaseFormed, ClusterID: want.ClusterID, Epoch: 1, FormedEpoch: 1, Members: want.Members,
	})
	lost := c.members["c-c"]
	lost.halt()
	lost.wipe()
	lost.start()
	c.decides("c-c", "record-incomplete")
	found, version := c.record()
	got, lacked := c.members["c-a"].b.CompleteRecord(found)
	if !lacked {
		t.Fatal("nothing is said to be lacking")
	}
	if _, err := c.store.UpdateRecord(t.Context(), version, got); err != nil {
		t.Fatal(err)
	}
	if got.Nonce != want.Nonce || got.Lineage != want.Lineage || got.MaxLearners != want.MaxLearners {
		t.Errorf("the record says %+v, was %+v", got, want)
	}
	c.voters("c-a", "c-b", "c-c")
	if _, lacked := c.members["c-b"].b.CompleteRecord(got); lacked {
		t.Error("the completed record is said to lack something")
	}
}

func TestReachReportsWhetherAnybodyIsThere(t *testing.T) {
	address := machine.Address(t)
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	if err := (transport.Transport{}).Reach(t.Context(), address); err != nil {
		t.Errorf("a listener is not reached: %v", err)
	}
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	if (transport.Transport{}).Reach(t.Context(), address) == nil {
		t.Error("a closed listener is reached")
	}
}
