package duties

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

// quota of a test, and the values that fill it, many in one transaction. A value fits into a page, so that the next
// commit reuses the space that a commit freed, and the space in use stays close to the size of the file.
const (
	quota     = 16 * mib
	valueSize = 1000
	perTxn    = 128
)

// fullCluster is a defragCluster with small quotas, whose agents resolve the alarm NOSPACE.
type fullCluster struct {
	*defragCluster
	reportedMu sync.Mutex
	reported   []membership.NospaceDecision
}

func repairable(p *DefragPolicy) {
	p.Nospace = NospacePolicy{Enabled: rules.Yes, Compact: rules.Yes, Window: 500 * time.Millisecond}
}

func newFullCluster(t *testing.T, members ...string) *fullCluster {
	t.Helper()
	c := newClusterWith(t, members, func(e *embed.Config) { e.QuotaBackendBytes = quota })
	d := &fullCluster{defragCluster: newDefragClusterOn(newDrainClusterOn(c, members), members)}
	d.alarmed = func(decision membership.NospaceDecision) {
		d.reportedMu.Lock()
		defer d.reportedMu.Unlock()
		d.reported = append(d.reported, decision)
	}
	d.setPolicy(repairable)
	return d
}

// lastReported returns what the agents reported last about an alarm.
func (d *fullCluster) lastReported() membership.NospaceDecision {
	d.reportedMu.Lock()
	defer d.reportedMu.Unlock()
	if len(d.reported) == 0 {
		return membership.NospaceDecision{}
	}
	return d.reported[len(d.reported)-1]
}

// fill writes values with the prefixes that key returns until etcd refuses writes. It returns the last revision.
func (d *fullCluster) fill(key func(n int) string) (revision int64) {
	d.t.Helper()
	value, client := strings.Repeat("x", valueSize), d.client(d.mustLead())
	n := 0
	d.eventually("etcd refuses writes", func() error {
		for ; ; n++ {
			var puts []clientv3.Op
			for i := range perTxn {
				puts = append(puts, clientv3.OpPut(fmt.Sprintf("%s/%03d", key(n), i), value))
			}
			put, err := client.Txn(d.t.Context()).Then(puts...).Commit()
			if errors.Is(err, rpctypes.ErrNoSpace) {
				return nil
			}
			if err != nil {
				return err
			}
			revision = put.Header.Revision
		}
	})
	d.eventually("the alarm stands", func() error {
		if alarms, err := membership.Alarms(d.t.Context(), client); err != nil || len(alarms) == 0 {
			return fmt.Errorf("alarms %v, %w", alarms, err)
		}
		return nil
	})
	return revision
}

func same(int) string { return "large" }

// writes waits until there is no alarm, a write is acknowledged, and every file is smaller than the margin.
func (d *fullCluster) writes() {
	d.t.Helper()
	d.eventually("a write is acknowledged", func() error {
		leader, err := d.leader()
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(d.t.Context(), 10*time.Second)
		defer cancel()
		if _, err := d.client(leader).Put(ctx, "written", "yes"); err != nil {
			return fmt.Errorf("%w; heard %+v", err, d.lastReported())
		}
		alarms, err := membership.Alarms(ctx, d.client(leader))
		if err == nil && len(alarms) != 0 {
			err = fmt.Errorf("alarms %+v", alarms)
		}
		return err
	})
	for name := range d.members {
		if s, err := d.space(name); err != nil || s.Size >= quota*9/10 {
			d.t.Errorf("%s holds %+v, %v", name, s, err)
		}
	}
	d.eventually("nothing is reported any more", func() error {
		if last := d.lastReported(); last != (membership.NospaceDecision{}) {
			return fmt.Errorf("heard %+v", last)
		}
		return nil
	})
}

func (d *fullCluster) nospaceRules(rule string) float64 {
	return testutil.ToFloat64(d.seen.WithLabelValues(nospaceTable, rule))
}

// waitsBy waits until a row decides again and gives its reason, and checks that the alarm stays.
func (d *fullCluster) waitsBy(rule string, change func()) {
	d.t.Helper()
	before := d.nospaceRules(rule)
	change()
	d.eventually("rule "+rule+" decides", func() error {
		if d.nospaceRules(rule) <= before {
			return fmt.Errorf("heard %+v", d.lastReported())
		}
		return nil
	})
	if last := d.lastReported(); last.Rule == rule && last.Why == "" {
		d.t.Errorf("%s gives no reason", rule)
	}
	if alarms, err := membership.Alarms(d.t.Context(), d.client(d.mustLead())); err != nil || len(alarms) == 0 {
		d.t.Errorf("rule %s: alarms %v, %v", rule, alarms, err)
	}
}

func (d *fullCluster) activate(kind etcdserverpb.AlarmType, action etcdserverpb.AlarmRequest_AlarmAction) {
	d.t.Helper()
	leader := d.mustLead()
	_, err := d.members[leader].Server.Alarm(d.t.Context(), &etcdserverpb.AlarmRequest{Action: action, MemberID: d.memberID(leader), Alarm: kind})
	if err != nil {
		d.t.Fatal(err)
	}
}

func TestAFullClusterWritesAgain(t *testing.T) {
	d := newFullCluster(t, names...)
	leader := d.mustLead()
	d.fill(same)
	d.agents()
	d.writes()
	for _, rule := range []string{"compact", "follower", "move-leader", "disarm"} {
		if d.nospaceRules(rule) == 0 {
			t.Errorf("rule %s decided nothing", rule)
		}
	}
	if d.mustLead() == leader {
		t.Errorf("%s leads, want that leadership moved before its turn", leader)
	}
	var order []string
	for _, done := range d.done() {
		order = append(order, done.Member)
	}
	slices.Sort(order)
	if order = slices.Compact(order); !slices.Equal(order, names) {
		t.Errorf("defragmented %v, want %v", order, names)
	}
	d.noted(names...)
	got, err := d.client(leader).Get(t.Context(), "large/000")
	if err != nil || len(got.Kvs) != 1 || len(got.Kvs[0].Value) != valueSize {
		t.Fatalf("the last value is lost: %v", err)
	}
	if _, err := d.client(leader).Get(t.Context(), "large/000", clientv3.WithRev(got.Kvs[0].ModRevision-1)); !errors.Is(err, rpctypes.ErrCompacted) {
		t.Errorf("the value before it: %v, want it compacted", err)
	}
}

// TestAnAlarmStaysUntilRepairIsPossible uses the only member of a cluster that is backed up.
func TestAnAlarmStaysUntilRepairIsPossible(t *testing.T) {
	d := newFullCluster(t, "demo-a")
	const lineage = "00000001-abc"
	d.edit(func(r *leases.Record) { r.Lineage = lineage })
	saved := func(p *DefragPolicy) { repairable(p); p.Nospace.Saved = true }
	d.setPolicy(func(p *DefragPolicy) { repairable(p); p.Nospace.Enabled = rules.No })
	revision := d.fill(same)
	var stop func()
	d.waitsBy("manual-action", func() { stop = d.agentUntil("demo-a", podUID("demo-a")) })
	d.waitsBy("history-kept", func() { d.setPolicy(func(p *DefragPolicy) { repairable(p); p.Nospace.Compact = rules.No }) })
	d.waitsBy("history-recent", func() { d.setPolicy(func(p *DefragPolicy) { repairable(p); p.Nospace.Window = time.Hour }) })
	d.waitsBy("corrupt", func() {
		d.activate(etcdserverpb.AlarmType_CORRUPT, etcdserverpb.AlarmRequest_ACTIVATE)
		d.setPolicy(saved)
	})
	d.waitsBy("history-unsaved", func() { d.activate(etcdserverpb.AlarmType_CORRUPT, etcdserverpb.AlarmRequest_DEACTIVATE) })
	if compacted, err := membership.CompactedAt(t.Context(), d.client("demo-a"), 2); err != nil || compacted != rules.No {
		t.Fatalf("compacted: %s, %v", compacted, err)
	}
	// The backups of another lineage and the first value of this one are not enough.
	d.backedUp("00000000-old", revision)
	d.waitsBy("history-unsaved", func() { d.backedUp(lineage, 2) })
	if d.nospaceRules("compact") == 0 {
		t.Error("nothing was compacted of what was saved")
	}
	d.backedUp(lineage, revision)
	d.writes()
	if d.nospaceRules("only-member") == 0 {
		t.Error("the only member was not defragmented")
	}
	stop()

	// The data in use is not history: the database stays full until keys are deleted.
	d.setPolicy(repairable)
	d.fill(func(n int) string { return "large/" + strconv.Itoa(n) })
	disarmed := d.nospaceRules("disarm")
	d.waitsBy("full", func() { d.agentUntil("demo-a", podUID("demo-a")) })
	if d.nospaceRules("disarm") != disarmed {
		t.Error("the alarm was disarmed above the margin")
	}
	if _, err := d.client("demo-a").Delete(t.Context(), "large/", clientv3.WithPrefix()); err != nil {
		t.Fatal(err)
	}
	d.writes()
}

// backedUp writes to the Lease of the delta backups which revision of a lineage is backed up.
func (d *fullCluster) backedUp(lineage string, revision int64) {
	d.t.Helper()
	api := d.admin.CoordinationV1().Leases(d.namespace)
	_, err := api.Create(d.t.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: leases.DeltaSnapshotName("demo")},
	}, metav1.CreateOptions{})
	if err == nil || strings.Contains(err.Error(), "already exists") {
		err = d.store.RenewBackup(d.t.Context(), leases.ComponentDeltaSnapshot, leases.BackupPatch{Backup: leases.Backup{
			Lineage: lineage, Revision: revision, Object: "an-object",
		}})
	}
	if err != nil {
		d.t.Fatal(err)
	}
}

func TestRevisionsAgeWithTheLeaderThatSawThem(t *testing.T) {
	start := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	at := func(minutes int) time.Time { return start.Add(time.Duration(minutes) * time.Minute) }
	const window = 5 * time.Minute
	var c spaceMemory
	type answer struct{ Aged, Newest int64 }
	if aged, newest := c.aged(start, window); aged != 0 || newest != 0 {
		t.Errorf("nothing was seen: %d, %d", aged, newest)
	}
	var got []answer
	for minute, revision := range []int64{10, 10, 12, 0, 13, 13, 13, 13, 13, 13} {
		c.see(revision, at(minute), window)
		aged, newest := c.aged(at(minute), window)
		got = append(got, answer{aged, newest})
	}
	want := []answer{{0, 10}, {0, 10}, {0, 12}, {0, 12}, {0, 13}, {10, 13}, {10, 13}, {12, 13}, {12, 13}, {13, 13}}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("(-got +want)\n%s", diff)
	}
	if len(c.seen) != 1 {
		t.Errorf("it remembers %v", c.seen)
	}
}

func TestAQuotaIsTheMembersOwnWord(t *testing.T) {
	for name, tc := range map[string]struct{ reported, ours, want int64 }{
		"it reports":             {7, 9, 7},
		"it has none":            {-1, 9, -1},
		"it is older than 3.6":   {0, 9, 9},
		"and none is configured": {0, 0, 2 << 30},
	} {
		t.Run(name, func(t *testing.T) {
			if got := quotaOf(membership.Status{Quota: tc.reported}, tc.ours); got != tc.want {
				t.Errorf("got %d, want %d", got, tc.want)
			}
		})
	}
}
