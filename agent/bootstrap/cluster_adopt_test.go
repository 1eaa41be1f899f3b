package bootstrap

import (
	"fmt"
	"slices"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/agent/datadir"
	"github.com/etcd-druid/druid/leases"
	etcd "github.com/etcd-druid/druid/test/member"
)

// joining makes every member of c one of a cluster that is to join the running one.
func (c *cluster) joining(running []*etcd.Member) {
	var endpoints []string
	for _, m := range running {
		endpoints = append(endpoints, m.Endpoint)
	}
	for _, m := range c.members {
		m.cfg.Join = config.JoinOf(endpoints)
	}
}

// lists waits until a client of the running cluster lists exactly the voters.
func (c *cluster) lists(client *clientv3.Client, names ...string) {
	c.t.Helper()
	slices.Sort(names)
	c.eventually(fmt.Sprintf("%v vote", names), func() error {
		list, err := client.MemberList(c.t.Context())
		if err != nil {
			return err
		}
		var voters []string
		for _, m := range list.Members {
			if !m.IsLearner {
				voters = append(voters, m.Name)
			}
		}
		if slices.Sort(voters); !slices.Equal(voters, names) || len(list.Members) != len(names) {
			return fmt.Errorf("it lists %v", list.Members)
		}
		return nil
	})
}

func TestARunningClusterIsJoined(t *testing.T) {
	for _, version := range versions {
		t.Run("etcd "+version[:3], func(t *testing.T) {
			running := etcd.StartCluster(t, version[:3], 3)
			if _, err := running[0].Client.Put(t.Context(), "here", "before"); err != nil {
				t.Fatal(err)
			}
			c := newCluster(t, version, "c-a", "c-b")
			c.joining(running)
			for _, m := range c.members {
				m.start()
			}
			c.lists(running[0].Client, "etcd-0", "etcd-1", "etcd-2", "c-a", "c-b")
			c.adopted(running)
			if deeds := adoptedBy(c.members["c-a"]); !slices.Equal(deeds, []string{"intend-to-join", "adopt"}) {
				t.Errorf("the seed decided by %v", deeds)
			}
			if got := c.get("c-b", "here"); got != "before" {
				t.Errorf("the members that joined hold %q", got)
			}
		})
	}
}

// adopted checks what the record and the volumes say of a cluster that was joined.
func (c *cluster) adopted(running []*etcd.Member) {
	c.t.Helper()
	status, err := running[0].Client.Status(c.t.Context(), running[0].Endpoint)
	if err != nil {
		c.t.Fatal(err)
	}
	record, _ := c.record()
	if record.Phase != leases.PhaseFormed || record.ClusterID != status.Header.ClusterId || record.MaxLearners != leases.MaxLearnersAdopted ||
		len(record.Externals) != len(running) || !slices.Contains(record.Externals, leases.FormatID(status.Header.MemberId)) {
		c.t.Errorf("the record says %+v", record)
	}
	for name, m := range c.members {
		c.eventually("the stamp of "+name, func() error {
			stamp, err := datadir.ReadStamp(m.cfg.VolumePath)
			if err != nil || !stamp.Formed || uint64(stamp.ClusterID) != record.ClusterID || stamp.Lineage != record.Lineage ||
				!slices.Equal(externalsOf(stamp), record.Externals) {
				return fmt.Errorf("%+v: %w", stamp, err)
			}
			return nil
		})
	}
}

// A learner that was added, and whose agent died before its etcd started, is not started by a successor that knows nothing of it.
func TestALearnerOfAnAgentThatDiedIsAddedAgain(t *testing.T) {
	running := etcd.StartCluster(t, "3.6", 1)
	c := newCluster(t, "3.6.16", "c-a")
	c.joining(running)
	seed := c.members["c-a"]
	seed.next(seed.boot()) // the learner is listed, and no one starts its etcd
	before, _ := c.record()
	if before.Phase != leases.PhaseForming || before.ClusterID == 0 || len(before.Externals) != 1 {
		t.Fatalf("the record says %+v", before)
	}
	seed.start()
	c.lists(running[0].Client, "etcd-0", "c-a")
	if deeds := adoptedBy(seed); !slices.Equal(deeds, []string{"drop-old-learner", "adopt"}) {
		t.Errorf("it decided by %v", deeds)
	}
	c.adopted(running)

	// The record is lost, and comes back as druid makes it: a member that runs reports it whom the group had before.
	bare := leases.Record{Phase: leases.PhaseFormed, ClusterID: before.ClusterID, Members: before.Members}
	whole, lacked := seed.b.CompleteRecord(bare)
	if !lacked || !slices.Equal(whole.Externals, before.Externals) || whole.MaxLearners != leases.MaxLearnersAdopted {
		t.Errorf("completed to %+v", whole)
	}
}

func TestOnlyTheClusterThatWasBegunToBeJoinedIs(t *testing.T) {
	running, other := etcd.StartCluster(t, "3.6", 1), etcd.StartCluster(t, "3.6", 1, "--initial-cluster-token=other")
	c := newCluster(t, "3.6.16", "c-a")
	c.joining(append(running, other...))
	seed := c.members["c-a"]
	seed.start()
	c.decides("c-a", "source-other")
	seed.halt()

	record, version := c.record()
	if record.Executor != "" || record.ClusterID != 0 {
		t.Errorf("before it was decided whom to join the record says %+v", record)
	}
	status, err := running[0].Client.Status(t.Context(), running[0].Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	record.ClusterID, record.Executor = status.Header.ClusterId, "another Pod"
	if _, err := c.store.UpdateRecord(t.Context(), version, record); err != nil {
		t.Fatal(err)
	}
	c.joining(other)
	seed.start()
	c.decides("c-a", "source-other")
	if list, err := other[0].Client.MemberList(t.Context()); err != nil || len(list.Members) != 1 {
		t.Errorf("the other cluster lists %v, %v", list, err)
	}
	seed.halt()

	c.joining(running)
	seed.start()
	c.lists(running[0].Client, "etcd-0", "c-a")
}

func TestAClusterThatCannotBeJoinedIsLeftAlone(t *testing.T) {
	running := etcd.StartCluster(t, "3.6", 1)
	c := newCluster(t, "3.7.3", "c-a")
	c.joining(running)
	c.members["c-a"].start()
	c.decides("c-a", "source-unfit")
	running[0].Kill(t)
	c.decides("c-a", "source-silent")
	if record, _ := c.record(); record.Executor != "" || record.Phase != leases.PhaseForming {
		t.Errorf("the record says %+v", record)
	}
}

// adoptedBy is by what a seed decided, however often etcd did not answer in time: then it looks again, and finds what it did.
func adoptedBy(seed *member) []string {
	return slices.Compact(slices.DeleteFunc(seed.deeds(), func(rule string) bool { return rule == "finish-adoption" }))
}
