package duties

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/agent/transport"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

// foundWithin is how soon after the start of a comparison an odd member is known.
const foundWithin = 10 * time.Second

// compared is a cluster with a history, whose members have Leases.
type compared struct {
	*cluster
	names  []string
	leader string
}

// original is the value of the first key, of which flip changes one byte.
const original = "value that is damaged later"

func newCompared(t *testing.T, names []string) *compared {
	t.Helper()
	c := &compared{cluster: newClusterOf(t, names), names: names}
	c.lead()
	c.put("damaged", original)
	c.put("large", strings.Repeat("x", os.Getpagesize()))
	for i := range 10 {
		c.put(fmt.Sprint("key-", i), "value")
	}
	c.leases(c.leader, names)
	for _, name := range names {
		if name == c.leader {
			continue
		}
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{leases.AnnotationPodUID: "pod of " + name}}}
		if _, err := c.admin.CoordinationV1().Leases(c.namespace).Create(t.Context(), lease, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	c.compare = true
	return c
}

func (c *compared) lead() {
	c.t.Helper()
	c.eventually("the members follow one leader", func() (err error) { c.leader, err = c.cluster.leader(); return err })
}

func (c *compared) put(key, value string) {
	c.t.Helper()
	if _, err := c.client(c.leader).Put(c.t.Context(), key, value); err != nil {
		c.t.Fatal(err)
	}
}

// followers returns the members that do not lead, by name.
func (c *compared) followers() []string {
	return slices.DeleteFunc(slices.Clone(c.names), func(name string) bool { return name == c.leader })
}

// flip changes one byte of a value in the database file of a running member, as a disk would. etcd maps the file. It waits until
// etcd has nothing left to write: a page that etcd uses for something else must not be damaged. The bucket must be larger than a
// quarter of a page: bbolt keeps a smaller one within another page (bucket.go, maxInlineBucketSize), and a read transaction may
// hold a copy of it in memory that hides what changes in the file.
func (c *compared) flip(name string) { c.flipValue(name, original) }

func (c *compared) flipValue(name, value string) {
	c.t.Helper()
	path := filepath.Join(c.configs[name].Dir, "member", "snap", "db")
	var before []byte
	var at int
	since := time.Now()
	c.eventually("the value is on the disk of "+name, func() error {
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if !bytes.Equal(content, before) {
			before, since = content, time.Now()
		}
		if at = bytes.LastIndex(content, []byte(value)); at < 0 || time.Since(since) < quiet {
			return errors.New("etcd still writes")
		}
		return nil
	})
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		c.t.Fatal(err)
	}
	for ; at >= 0; at = bytes.LastIndex(before[:at], []byte(value)) {
		if _, err := file.WriteAt([]byte(strings.ToUpper(value[:1])), int64(at)); err != nil {
			c.t.Fatal(err)
		}
	}
	if err := errors.Join(file.Sync(), file.Close()); err != nil {
		c.t.Fatal(err)
	}
}

// quiet is several times the interval at which etcd commits (server/storage/backend, defaultBatchInterval: 100 ms).
const quiet = 500 * time.Millisecond

func (c *compared) id(name string) uint64 { return uint64(c.members[name].Server.MemberID()) }

func (c *compared) differs(name string) leases.Difference {
	c.t.Helper()
	lease, err := c.store.Marks(c.t.Context(), name)
	if err != nil {
		c.t.Fatal(err)
	}
	return lease.Differs
}

// marks waits until the Lease of exactly this member has the mark.
func (c *compared) marks(odd string) {
	c.t.Helper()
	began := time.Now()
	c.eventually("the odd member is marked", func() error {
		if d := c.differs(odd); !d.Of(c.id(odd)) || d.Confirmed == 0 || d.Confirmed == d.Revision || d.Hash == d.Majority {
			return fmt.Errorf("the mark of %s is %+v", odd, d)
		}
		return nil
	})
	if took := time.Since(began); took > foundWithin {
		c.t.Errorf("found after %s, want %s at most", took, foundWithin)
	}
	c.eventually("the duty waits for the member", func() error { return c.hasDecided("odd-marked") })
	for _, name := range c.names {
		if name != odd && c.differs(name) != (leases.Difference{}) {
			c.t.Errorf("member %s is marked too", name)
		}
	}
}

func (c *compared) hasDecided(rule string) error {
	if testutil.ToFloat64(c.decisions.WithLabelValues(comparisonTable, rule)) == 0 {
		return fmt.Errorf("rule %s has not decided", rule)
	}
	return nil
}

func TestTheMemberWhoseDataDiffersIsMarked(t *testing.T) {
	c := newCompared(t, names)
	c.flip(c.followers()[0])
	c.duties(c.leader, "mine")
	c.marks(c.followers()[0])
}

func TestTheLeaderWhoseDataDiffersIsMarked(t *testing.T) {
	c := newCompared(t, names)
	c.flip(c.leader)
	c.duties(c.leader, "mine")
	c.marks(c.leader)
}

func TestOfTwoMembersWhoseDataDiffersOneIsMarked(t *testing.T) {
	c := newCompared(t, []string{"demo-a", "demo-b", "demo-c", "demo-d", "demo-e"})
	c.flip(c.followers()[1])
	c.flip(c.followers()[0])
	c.duties(c.leader, "mine")
	c.marks(c.followers()[0])
}

func TestADifferenceInTheLastRevisionWaitsForAnotherOne(t *testing.T) {
	const value = "value of the last revision"
	c := newCompared(t, names)
	odd := c.followers()[0]
	c.put("last", value)
	c.flipValue(odd, value)
	c.duties(c.leader, "mine")
	c.eventually("a difference at one revision alone decides nothing", func() error { return c.hasDecided("incomplete") })
	if d := c.differs(odd); d != (leases.Difference{}) {
		t.Errorf("the mark of %s is %+v", odd, d)
	}
	c.put("k", "v")
	c.marks(odd)
}

func TestAMajorityOfAllVotersDecides(t *testing.T) {
	c := newCompared(t, names)
	away := c.followers()[1]
	c.stop(away)
	c.flip(c.followers()[0])
	c.duties(c.leader, "mine")
	began := time.Now()
	c.eventually("the record says that the members are undecided", func() error {
		record, _, err := c.store.Record(t.Context())
		if err == nil && (record.Undecided.Revision == 0 || record.Undecided.Confirmed == record.Undecided.Revision) {
			err = fmt.Errorf("it says %+v", record.Undecided)
		}
		return err
	})
	if took := time.Since(began); took > foundWithin {
		t.Errorf("found after %s, want %s at most", took, foundWithin)
	}
	for _, name := range names {
		if name != away && c.differs(name) != (leases.Difference{}) {
			t.Errorf("member %s is marked without a majority", name)
		}
	}
	c.start(away)
	c.eventually("the odd member is marked when the third one is back", func() error {
		record, _, err := c.store.Record(t.Context())
		if err == nil && (record.Undecided != leases.Undecided{} || !c.differs(c.followers()[0]).Of(c.id(c.followers()[0]))) {
			err = fmt.Errorf("the record says %+v, and the Lease %+v", record.Undecided, c.differs(c.followers()[0]))
		}
		return err
	})
}

func TestAMarkIsRemovedWhenAllAreEqual(t *testing.T) {
	c := newCompared(t, names)
	equal := c.followers()[0]
	lease, err := c.store.Marks(t.Context(), equal)
	if err == nil {
		err = c.store.MarkDifference(t.Context(), equal, lease.LeaseVersion, leases.Difference{MemberID: leases.FormatID(c.id(equal)), Hash: "x", Majority: "y"})
	}
	if err != nil {
		t.Fatal(err)
	}
	c.duties(c.leader, "mine")
	c.eventually("the mark is gone", func() error {
		if d := c.differs(equal); d != (leases.Difference{}) {
			return fmt.Errorf("it is %+v", d)
		}
		return c.hasDecided("same")
	})
}

func TestTheAlarmCorruptIsDisarmedWhenAllAreEqual(t *testing.T) {
	c := newCompared(t, names)
	odd := c.followers()[0]
	c.flip(odd)
	c.raise(odd)
	c.duties(c.leader, "mine")
	c.marks(odd)
	if _, err := c.client(c.leader).Put(t.Context(), "k", "v"); !errors.Is(err, rpctypes.ErrCorrupt) {
		t.Fatalf("a write while the alarm is raised: %v", err)
	}
	// The odd one leaves, as its replacement would have it. It does not run: an etcd that is not a member panics if it is asked for
	// its status.
	id := c.id(odd)
	c.stop(odd)
	if err := membership.Remove(t.Context(), c.client(c.leader), id); err != nil {
		t.Fatal(err)
	}
	c.eventually("writes succeed again", func() error {
		_, err := c.client(c.leader).Put(t.Context(), "k", "v")
		return err
	})
	if err := c.hasDecided("disarm"); err != nil {
		t.Error(err)
	}
}

func (c *compared) raise(name string) {
	c.t.Helper()
	_, err := c.members[c.leader].Server.Alarm(c.t.Context(), &etcdserverpb.AlarmRequest{
		Action: etcdserverpb.AlarmRequest_ACTIVATE, MemberID: c.id(name), Alarm: etcdserverpb.AlarmType_CORRUPT,
	})
	if err != nil {
		c.t.Fatal(err)
	}
}

// oddMember runs the part of the agent of a marked member, until it stops its etcd.
func (c *compared) oddMember(name, podUID string) <-chan error {
	stopped := make(chan error, 1)
	o := &OddMember{
		Store: c.store, Dial: transport.NewClients(transport.Transport{}).Dial, Local: c.endpoint(name), Decisions: c.decisions, Log: slog.New(slog.DiscardHandler),
		Self: func() (Cluster, bool) {
			return Cluster{ClusterID: uint64(c.members[name].Server.Cluster().ID()), MemberID: c.id(name), Member: name, PodUID: podUID}, true
		},
		Marked: func() bool { return true },
	}
	ctx, cancel := context.WithCancel(c.t.Context())
	c.t.Cleanup(cancel)
	go func() {
		stopped <- o.Run(ctx, func(context.Context, string) error {
			cancel()
			return nil
		})
	}()
	return stopped
}

func TestAMarkedLeaderTakesTheSlotAndMovesLeadership(t *testing.T) {
	c := newCompared(t, names)
	odd := c.leader
	c.flip(odd)
	c.duties(odd, "mine")
	c.marks(odd)
	select {
	case err := <-c.oddMember(odd, "mine"):
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(maxWait):
		t.Fatal("it does not stop its etcd")
	}
	record, _, err := c.store.Record(t.Context())
	want := leases.Replacing{Member: odd, PodUID: "mine", MemberID: leases.FormatID(c.id(odd))}
	if err != nil || record.Replacing == nil || *record.Replacing != want {
		t.Errorf("the slot is %+v, %v, want %+v", record.Replacing, err, want)
	}
	if leader, err := c.cluster.leader(); err != nil || leader == odd {
		t.Errorf("%s leads, %v", leader, err)
	}
}

func TestAMarkWithoutADifferenceStopsNoEtcd(t *testing.T) {
	c := newCompared(t, names)
	c.duties(c.leader, "mine")
	equal := c.followers()[0]
	c.eventually("the members are compared", func() error { return c.hasDecided("same") })
	lease, err := c.store.Marks(t.Context(), equal)
	if err != nil {
		t.Fatal(err)
	}
	mark := leases.Difference{MemberID: leases.FormatID(c.id(equal)), Hash: "x", Majority: "y"}
	stopped := c.oddMember(equal, "pod of "+equal)
	if err := c.store.MarkDifference(t.Context(), equal, lease.LeaseVersion, mark); err != nil {
		t.Fatal(err)
	}
	c.eventually("the mark is removed", func() error {
		if d := c.differs(equal); d != (leases.Difference{}) {
			return fmt.Errorf("it is %+v", d)
		}
		return nil
	})
	select {
	case err := <-stopped:
		t.Errorf("its etcd was stopped: %v", err)
	default:
	}
}
