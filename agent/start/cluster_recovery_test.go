package start

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/agent/datadir"
	"github.com/etcd-druid/druid/agent/datadir/volume"
	"github.com/etcd-druid/druid/agent/launch"
	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/internal/loop"
	"github.com/etcd-druid/druid/leases"
)

// changeRecord writes what change makes of the record, as druid does.
func (c *cluster) changeRecord(what string, change func(leases.Record) (leases.Record, error)) {
	c.t.Helper()
	c.eventually(what, func() error {
		record, version, err := c.store.Record(c.t.Context())
		if err != nil {
			return err
		}
		if record, err = change(record); err != nil {
			return err
		}
		_, err = c.store.UpdateRecord(c.t.Context(), version, record)
		return err
	})
}

// orders writes the first stage of an order, and waits until all of names acknowledged it.
func (c *cluster) orders(order leases.Recovery, names ...string) leases.Recovery {
	c.t.Helper()
	c.changeRecord("the order is written", func(r leases.Record) (leases.Record, error) { return r.Prepare(order) })
	return c.orderAcknowledged(names...)
}

// orderAcknowledged waits until the members acknowledge the order in the record.
func (c *cluster) orderAcknowledged(names ...string) leases.Recovery {
	c.t.Helper()
	record, _ := c.record()
	for _, name := range names {
		c.eventually(name+" acknowledges the order", func() error {
			if report := c.members[name].holds(); report == nil || report.Order != record.Recovery.Name() {
				return fmt.Errorf("it reports %+v", report)
			}
			return nil
		})
	}
	return *record.Recovery
}

// executes writes the second stage.
func (c *cluster) executes(order leases.Recovery) {
	c.t.Helper()
	order.Report = c.members[order.Chosen].holds().Digest()
	c.changeRecord("the order is executed", func(r leases.Record) (leases.Record, error) { return r.Execute(order) })
}

// formedAgain waits until the record names the raft group of the order.
func (c *cluster) formedAgain() {
	c.t.Helper()
	c.eventually("the cluster is formed again", func() error {
		if record, _ := c.record(); record.Phase != leases.PhaseFormed || record.FormedEpoch != 2 {
			return fmt.Errorf("the record is %+v", record)
		}
		return nil
	})
}

// holds is what the volume holds as the agent reported it.
func (m *member) holds() *leases.DiskReport {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.report
}

// writes makes so many acknowledged writes, and returns the last revision.
func (c *cluster) writes(name string, n int) (revision int64) {
	c.t.Helper()
	client := c.client(name)
	defer func() { _ = client.Close() }()
	for i := range n {
		answer, err := client.Put(c.t.Context(), fmt.Sprintf("write-%04d", i), fmt.Sprint(i))
		if err != nil {
			c.t.Fatal(err)
		}
		revision = answer.Header.Revision
	}
	return revision
}

// has checks that all of n acknowledged writes are there.
func (c *cluster) has(name string, n int) {
	c.t.Helper()
	for i := range n {
		if got := c.get(name, fmt.Sprintf("write-%04d", i)); got != fmt.Sprint(i) {
			c.t.Fatalf("write %d of %d is %q", i, n, got)
		}
	}
}

// crashed is a cluster whose members died at the same moment, after acknowledged writes.
func crashed(t *testing.T, writes int) (c *cluster, revision int64) {
	t.Helper()
	c, _ = formed(t)
	revision = c.writes("c-a", writes)
	for _, m := range c.members {
		m.kill()
	}
	for _, m := range c.members {
		m.crash()
	}
	return c, revision
}

func survivorOrder(known int64) leases.Recovery {
	return leases.Recovery{Epoch: 2, Nonce: "0123", Mode: leases.RecoverSurvivor, Chosen: "c-a", Known: known}
}

// Two of three volumes are wiped. The survivor forms the cluster again, and the others join it. No acknowledged write is
// lost.
func TestASurvivorFormsTheClusterAgain(t *testing.T) {
	const writes = 300
	c, revision := crashed(t, writes)
	before, _ := c.record()
	c.members["c-b"].wipe()
	c.members["c-c"].wipe()
	for _, m := range c.members {
		m.start()
	}
	c.decides("c-a", "resume-majority")
	c.executes(c.orders(survivorOrder(revision), "c-a", "c-b", "c-c"))
	c.formedAgain()
	c.voters("c-a", "c-b", "c-c")
	for _, name := range []string{"c-a", "c-b", "c-c"} {
		c.has(name, writes)
	}
	if after := c.writes("c-b", 1); after <= revision+1_000_000_000 {
		t.Errorf("the revision after the recovery is %d, and was %d", after, revision)
	}
	record, _ := c.record()
	if record.ClusterID == before.ClusterID || record.Recovered == nil || record.Fork == nil || record.Fork.Parent != before.Lineage ||
		record.Fork.Revision != revision {
		t.Errorf("the record is %+v with %+v; the writes ended at revision %d of lineage %s", record, record.Fork, revision, before.Lineage)
	}
	if rules := c.members["c-a"].deeds(); !inOrder(rules, "prepare-ordered", "form-ordered", "place-recovered", "resume-majority") {
		t.Errorf("it decided by %v", rules)
	}
	quarantined, err := datadir.AllQuarantined(c.members["c-a"].cfg.VolumePath)
	if err != nil || len(quarantined) != 1 || !strings.HasSuffix(quarantined[0].Name, "-survivor") ||
		quarantined[0].Content.FormedInto != record.Lineage || quarantined[0].Content.Lineage != before.Lineage {
		t.Errorf("the old data is %+v, %v", quarantined, err)
	}
}

// TestLateMemberKnowsLineageParent: a member that joins later knows the parent of the lineage.
// The backup store does not respond while the cluster is formed again, and the record is lost after that. Each member that
// joins knows from where the data came, so that the agent of each leader can write the lineage.
func TestLateMemberKnowsLineageParent(t *testing.T) {
	c, revision := crashed(t, 20)
	before, _ := c.record()
	for name, m := range c.members {
		m.savedAt(t.TempDir())
		m.openStore = func(context.Context, store.Config) (store.Store, error) { return nil, errBroken }
		if name != "c-a" {
			m.wipe()
		}
	}
	c.members["c-a"].start()
	c.members["c-b"].start()
	c.executes(c.orders(survivorOrder(revision), "c-a", "c-b"))
	c.formedAgain()
	c.eventually("the second member joins", func() error {
		if identityFile, _ := c.members["c-b"].b.Identity(); identityFile.Epoch != 2 {
			return fmt.Errorf("its data is %+v", identityFile)
		}
		return nil
	})
	c.changeRecord("the record loses the parent", func(r leases.Record) (leases.Record, error) {
		r.Fork, r.MaxLearners = nil, 0 // as druid makes it again from the Leases
		return r, nil
	})
	c.changeRecord("an agent completes the record", func(r leases.Record) (leases.Record, error) {
		completed, _ := c.members["c-b"].b.CompleteRecord(r)
		return completed, nil
	})
	c.members["c-c"].start()
	c.voters("c-a", "c-b", "c-c")
	record, _ := c.record()
	for name, m := range c.members {
		identityFile, err := datadir.ReadIdentityFile(m.cfg.VolumePath)
		if got := forkIn(identityFile); err != nil || got == nil || *got != *record.Fork || got.Parent != before.Lineage || got.Revision != revision ||
			got.At.IsZero() {
			t.Errorf("%s knows the fork %+v, %v; the record has %+v", name, got, err, record.Fork)
		}
	}
}

// inOrder says whether rules has all of want in this order.
func inOrder(rules []string, want ...string) bool {
	for _, rule := range rules {
		if len(want) > 0 && rule == want[0] {
			want = want[1:]
		}
	}
	return len(want) == 0
}

// A release puts the old raft group back: nothing of it was moved.
func TestAReleasedOrderResumesTheOldRaftGroup(t *testing.T) {
	const writes = 20
	c, revision := crashed(t, writes)
	before, _ := c.record()
	c.members["c-a"].start()
	c.decides("c-a", "resume-majority")
	order := c.orders(survivorOrder(revision), "c-a")
	// The record is gone: the volume alone says that etcd must not start.
	record, _ := c.record()
	if err := c.leases.Delete(t.Context(), leases.RecordName("c"), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.decides("c-a", "prepared")
	c.members["c-a"].crash()
	c.members["c-a"].start()
	c.decides("c-a", "prepared")
	c.createRecord(record)
	c.eventually("it acknowledges again", func() error {
		if report := c.members["c-a"].holds(); report == nil || report.Order != order.Name() {
			return fmt.Errorf("it reports %+v", report)
		}
		return nil
	})
	c.changeRecord("the order is released", func(r leases.Record) (leases.Record, error) { return r.Release(order.Name()) })
	c.members["c-b"].start()
	c.members["c-c"].start()
	c.voters("c-a", "c-b", "c-c")
	c.has("c-c", writes)
	if after, _ := c.record(); after.ClusterID != before.ClusterID || after.FormedEpoch != 1 {
		t.Errorf("the record is %+v, was %+v", after, before)
	}
	identityFile, err := datadir.ReadIdentityFile(c.members["c-a"].cfg.VolumePath)
	if err != nil || identityFile.Prepared != 0 {
		t.Errorf("%+v, %v: the order is still on the volume", identityFile, err)
	}
}

// A member acknowledged an order. The others are a quorum again, and the record still has the order. The Lease stops to
// acknowledge the order before etcd starts: otherwise druid would count a member that votes as one that cannot.
func TestAnAcknowledgementEndsBeforeItsFence(t *testing.T) {
	const writes = 20
	c, revision := crashed(t, writes)
	c.members["c-a"].start()
	c.decides("c-a", "resume-majority")
	c.orders(survivorOrder(revision), "c-a")
	c.members["c-a"].crash()
	lease, err := c.store.Marks(t.Context(), "c-a")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.store.PublishDiskReport(t.Context(), "c-a", lease.LeaseVersion, c.members["c-a"].holds()); err != nil {
		t.Fatal(err)
	}
	reached := c.store
	serve := func() {
		c.store = c.unreached()
		c.members["c-b"].start()
		c.members["c-c"].start()
		c.eventually("the others serve", func() error {
			_, err := c.view("c-b")
			return err
		})
		c.store = reached
	}
	serve()
	b := c.members["c-a"].boot()
	step := func() {
		if order, reason, err := b.step(t.Context(), launch.Report{Clean: true}); order != nil || err != nil {
			t.Fatalf("the agent orders %+v, %s, %v; want to look again", order, reason, err)
		}
	}
	// druid can count the acknowledgement until it ends. So what the agent saw before that does not count.
	c.eventually("the acknowledgement ends", func() error {
		step()
		if lease, err = c.store.Marks(t.Context(), "c-a"); err != nil || lease.Disk != nil {
			return fmt.Errorf("the Lease says %+v, %w", lease.Disk, err)
		}
		return nil
	})
	c.members["c-b"].crash()
	c.members["c-c"].crash()
	if step(); b.last.Rule != "prepare-ordered" {
		t.Fatalf("without a quorum, the agent decided by %s", b.last.Rule)
	}
	serve()
	if order := c.members["c-a"].next(b); order.Kind != launch.OrderStart {
		t.Fatalf("the agent orders %+v", order)
	}
	if lease, err = c.store.Marks(t.Context(), "c-a"); err != nil || lease.Disk != nil {
		t.Errorf("etcd can start, and the Lease says %+v, %v", lease.Disk, err)
	}
	if identityFile, err := datadir.ReadIdentityFile(c.members["c-a"].cfg.VolumePath); err != nil || identityFile.Prepared != 0 {
		t.Errorf("%+v, %v: the order is still on the volume", identityFile, err)
	}
}

// A member that was off comes back with its data after the cluster was formed again without it. Its etcd finds no quorum
// and stops, its data is kept, and it joins. So does a member with a damaged disk, whose data is kept for the same reason.
func TestLateMemberJoinsReformedCluster(t *testing.T) {
	const writes = 20
	c, revision := crashed(t, writes)
	for _, name := range []string{"c-a", "c-b"} {
		c.members[name].start()
	}
	damaged := c.members["c-b"]
	damaged.crash()
	must(t, os.Truncate(filepath.Join(volume.DataPath(damaged.cfg.VolumePath), "member", "snap", "db"), 4096))
	damaged.start()
	c.executes(c.orders(survivorOrder(revision), "c-a", "c-b"))
	c.formedAgain()
	c.eventually("the first member serves", func() error {
		_, err := c.view("c-a")
		return err
	})
	late := c.members["c-c"]
	late.start()
	c.voters("c-a", "c-b", "c-c")
	for m, intact := range map[*member]bool{late: true, damaged: false} {
		c.has(m.name, writes)
		quarantined, err := datadir.AllQuarantined(m.cfg.VolumePath)
		if err != nil || !slices.ContainsFunc(quarantined, func(a datadir.Quarantined) bool {
			return strings.HasSuffix(a.Name, "-superseded") && a.Content.Intact == intact
		}) {
			t.Errorf("the old data of %s is %+v, %v", m.name, quarantined, err)
		}
	}
}

// The survivor keeps the users and roles of etcd, and the agents log in with their certificates as before.
func TestASurvivorKeepsTLSAndAuthentication(t *testing.T) {
	t.Parallel()
	const writes = 40
	c := newCluster(t, "3.7.3", "c-a", "c-b", "c-c")
	c.withTLS()
	for _, m := range c.members {
		m.start()
	}
	c.voters("c-a", "c-b", "c-c")
	c.enableAuth("c-a")
	revision := c.writes("c-a", writes)
	for _, m := range c.members {
		m.kill()
	}
	for _, m := range c.members {
		m.crash()
	}
	c.members["c-b"].wipe()
	c.members["c-c"].wipe()
	for _, m := range c.members {
		m.start()
	}
	c.executes(c.orders(survivorOrder(revision), "c-a", "c-b", "c-c"))
	c.formedAgain()
	c.voters("c-a", "c-b", "c-c")
	c.has("c-b", writes)
	client := c.client("c-c")
	defer func() { _ = client.Close() }()
	if status, err := client.AuthStatus(t.Context()); err != nil || !status.Enabled {
		t.Errorf("authentication is %+v, %v", status, err)
	}
	c.outsidersStayOut()
}

// leads says whether the member called name is the leader of a quorum.
func (c *cluster) leads(name string) bool {
	client := c.client(name)
	defer func() { _ = client.Close() }()
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Second)
	defer cancel()
	status, err := client.Status(ctx, c.endpoint(name))
	return err == nil && status.Leader == status.Header.MemberId
}

// A majority that serves learns from the record that the cluster was formed again without it: it was cut off, and given up.
// The leader's agent stops its etcd, and then the others, which have no quorum, stop theirs. All data is kept.
func TestAMajorityThatWasReplacedStops(t *testing.T) {
	replacedMajority(t, func(m *member, record leases.Record, leads bool) {
		if leads {
			m.b.CompleteRecord(record) // as the duties of the leader do with each record that they read
		}
	})
}

// The agent of the leader is still cut off, and those of the followers renew their Leases again.
func TestFollowersOfAReplacedMajorityStop(t *testing.T) {
	replacedMajority(t, func(m *member, _ leases.Record, leads bool) {
		if !leads {
			m.b.Renewed(errors.New("cut off"))
			m.b.Renewed(nil)
		}
	})
}

// replacedMajority waits until each member of a cluster that was formed again elsewhere stopped. learn says what an agent learns.
func replacedMajority(t *testing.T, learn func(m *member, record leases.Record, leads bool)) {
	t.Helper()
	c, _ := formed(t)
	loop.Sleep(t.Context(), 2*watchInterval) // each agent read the record in this raft term
	order := leases.Recovery{Epoch: 2, Nonce: "0123", Mode: leases.RecoverSurvivor, Chosen: "c-x", Report: "report"}
	attempt := leases.RecoveryAttempt{Order: order.Name(), Nonce: "4567", PodUID: "other", ClusterID: "abc"}
	c.changeRecord("the cluster is formed again elsewhere", func(r leases.Record) (leases.Record, error) {
		for _, change := range []func() (leases.Record, error){
			func() (leases.Record, error) { return r.Prepare(order) },
			func() (leases.Record, error) { return r.Execute(order) },
			func() (leases.Record, error) { return r.Claimed(attempt) },
			func() (leases.Record, error) {
				return r.Reformed(attempt, leases.Recovered{Epoch: 2, Mode: order.Mode, Member: order.Chosen}, leases.Fork{Parent: "00000001-aa", Revision: 7})
			},
		} {
			next, err := change()
			if err != nil {
				return r, err
			}
			r = next
		}
		return r, nil
	})
	record, _ := c.record()
	stopped := map[string]bool{}
	c.eventually("each agent stops its etcd", func() error {
		for name, m := range c.members {
			learn(m, record, c.leads(name))
			if rules := m.rules(); len(rules) > 0 && rules[len(rules)-1] == "await-quorum" {
				stopped[name] = true
			}
		}
		if len(stopped) < len(c.members) {
			return fmt.Errorf("stopped are %v", stopped)
		}
		return nil
	})
	for name, m := range c.members {
		if report, err := datadir.Inspect(t.Context(), m.cfg.VolumePath, datadir.Options{EtcdVersion: m.cfg.EtcdVersion}); err != nil ||
			report.State != datadir.Intact {
			t.Errorf("the data of %s is %v, %v", name, report, err)
		}
	}
}
