package start

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/agent/datadir"
	"github.com/etcd-druid/druid/agent/datadir/volume"
	"github.com/etcd-druid/druid/agent/launch"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/test/machine"
)

const (
	// narrowDisk has room for the log of etcd, which takes two files of 64 MiB, but not for a second data directory. wideDisk has.
	narrowDisk, wideDisk = 224 << 20, 512 << 20
)

// TestSurvivorWithoutSpaceSaysSo: a member without space for the data of the new raft group reports that.
// Its disk report and its agent say why the order cannot be carried out. When the volume has grown, the same order is carried out, and no
// acknowledged write is lost.
func TestSurvivorWithoutSpaceSaysSo(t *testing.T) {
	t.Parallel()
	const writes = 20
	c := newCluster(t, "3.6.16", "c-a", "c-b", "c-c")
	chosen := c.members["c-a"]
	machine.SmallDisk(t, chosen.cfg.VolumePath, narrowDisk)
	t.Cleanup(chosen.crash) // before its disk is gone
	for _, m := range c.members {
		m.start()
	}
	c.voters("c-a", "c-b", "c-c")
	revision := c.writes("c-a", writes)
	for _, m := range c.members {
		m.kill()
	}
	for name, m := range c.members {
		if m.crash(); name != "c-a" {
			m.wipe()
		}
	}
	for _, m := range c.members {
		m.start()
	}
	order := c.orders(survivorOrder(revision), "c-a", "c-b", "c-c")
	c.executes(order)
	c.eventually("the disk report names a failure", func() error {
		if report := chosen.holds(); report == nil || report.Order != order.Name() || report.Failed != leases.FailedSpace {
			return fmt.Errorf("it is %+v", report)
		}
		return nil
	})
	if said := chosen.reported(func(p Published) bool { return strings.Contains(p.Reason, "not enough space") }); len(said) == 0 {
		t.Errorf("the agent does not say why: %+v", chosen.last())
	}
	must(t, machine.GrowDisk(chosen.cfg.VolumePath, wideDisk))
	c.formedAgain()
	chosen.mu.Lock()
	if chosen.failure != "" {
		t.Errorf("the last disk report still says %q", chosen.failure)
	}
	chosen.mu.Unlock()
	c.voters("c-a", "c-b", "c-c")
	c.has("c-b", writes)
}

// quarantines makes directories with data in quarantine by their names, that were moved so long ago.
func (m *member) quarantines(moved map[string]time.Duration) {
	m.c.t.Helper()
	for name, ago := range moved {
		_, reason, _ := strings.Cut(strings.TrimPrefix(name, volume.QuarantinePrefix), "-")
		content, err := json.Marshal(datadir.Content{Reason: reason, Moved: time.Now().Add(-ago)})
		must(m.c.t, err)
		path := filepath.Join(m.cfg.VolumePath, "new-"+name)
		must(m.c.t, os.MkdirAll(filepath.Join(path, "member", "snap"), 0o700))
		must(m.c.t, os.WriteFile(filepath.Join(path, "member", "snap", "db"), make([]byte, 1<<20), 0o600))
		must(m.c.t, os.WriteFile(filepath.Join(path, volume.QuarantineFile), content, 0o600))
		must(m.c.t, os.Rename(path, filepath.Join(m.cfg.VolumePath, name))) // a directory without its description can be deleted at once
	}
}

// quarantined are the names of the directories with data in quarantine.
func (m *member) quarantined() (names []string) {
	m.c.t.Helper()
	all, err := datadir.AllQuarantined(m.cfg.VolumePath)
	must(m.c.t, err)
	for _, a := range all {
		names = append(names, a.Name)
	}
	return names
}

// isStable waits until the start of etcd is complete.
func (m *member) isStable() {
	m.c.t.Helper()
	m.c.eventually("the start is complete", func() error {
		if log := m.log(); !strings.Contains(log, "stable: <nil>") {
			return fmt.Errorf("the log is %s", log)
		}
		return nil
	})
}

const day = 24 * time.Hour

// TestQuarantineEndsWhileEtcdRuns: data whose time ends while etcd runs is deleted without a restart.
// The agent looks again after the start is complete. It keeps younger data, and all of it while the clock of the node alone says that its
// time is over. It deletes nothing that it did not see for long enough.
func TestQuarantineEndsWhileEtcdRuns(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "3.6.16", "c-a")
	m := c.members["c-a"]
	b := m.boot()
	b.pruneInterval, b.watchTime = 50*time.Millisecond, time.Second
	m.ahead.Store(int64(2 * day))
	m.run(b)
	c.voters("c-a")
	m.isStable()
	m.quarantines(map[string]time.Duration{
		"data.quarantine-0001-survivor": 7*day - 3*time.Second, "data.quarantine-0002-superseded": 8 * day, "data.quarantine-0003-superseded": 6 * day,
	})
	c.eventually("the agent looks", func() error { // often enough for a deletion
		all, err := datadir.AllQuarantined(m.cfg.VolumePath)
		must(t, err)
		if seen := b.watch.Seen(all[1]); seen < 2*b.watchTime {
			return fmt.Errorf("it saw %s for %s", all[1].Name, seen)
		}
		return nil
	})
	if names := m.quarantined(); len(names) != 3 {
		t.Errorf("by one clock, the agent deleted all but %v", names)
	}
	m.ahead.Store(0)
	c.eventually("two directories are deleted", func() error {
		if names := m.quarantined(); !slices.Equal(names, []string{"data.quarantine-0003-superseded"}) {
			return fmt.Errorf("there are %v", names)
		}
		return nil
	})
	if log := m.log(); !strings.Contains(log, `msg="quarantined data deleted" rule=data-on-voters`) {
		t.Errorf("the log does not name a deletion: %s", log)
	}
}

// TestExpiredDataMakesRoomToStart: before etcd starts on a full volume, the agent deletes data whose time is over.
// It deletes neither younger data nor data that is the only copy. It deletes nothing while there is room, and nothing while the members
// differ without a majority.
func TestExpiredDataMakesRoomToStart(t *testing.T) {
	t.Parallel()
	const survivor, superseded, torn = "data.quarantine-0001-survivor", "data.quarantine-0002-superseded", "data.quarantine-0003-torn-wal"
	c := newCluster(t, "3.6.16", "c-a")
	m := c.members["c-a"]
	machine.SmallDisk(t, m.cfg.VolumePath, narrowDisk)
	t.Cleanup(m.crash)
	m.start()
	m.isStable()
	m.halt()
	m.quarantines(map[string]time.Duration{survivor: 8 * day, superseded: 6 * day, torn: 8 * day})
	starts := func(what string, want ...string) {
		t.Helper()
		m.next(m.boot())
		if diff := cmp.Diff(want, m.quarantined()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	starts("there is room", survivor, superseded, torn)
	m.ahead.Store(int64(2 * day))
	machine.FillDisk(t, m.cfg.VolumePath)
	differ := func(undecided leases.Undecided) {
		_, version := c.record()
		_, err := c.store.ReportUndecided(t.Context(), version, undecided)
		must(t, err)
	}
	differ(leases.Undecided{Revision: 5, Hashes: "c-a:1"})
	starts("members differ", survivor, superseded, torn)
	differ(leases.Undecided{})
	starts("the clock of the node is ahead", survivor, superseded, torn)
	m.ahead.Store(0)
	starts("the volume is full", superseded, torn)
	if log := m.log(); !strings.Contains(log, `msg="quarantined data deleted" rule=room-to-start quarantined=[`+survivor+"]") {
		t.Errorf("the log is %s", log)
	}
	m.start()
	c.voters("c-a")
}

// TestOrderAcknowledgedOnAFullVolume: an agent acknowledges an order although the volume is full.
// It writes the order to the volume, for which it first deletes data whose time is over.
func TestOrderAcknowledgedOnAFullVolume(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "3.6.16", "c-a")
	m := c.members["c-a"]
	machine.SmallDisk(t, m.cfg.VolumePath, narrowDisk)
	t.Cleanup(m.crash)
	m.start()
	m.isStable()
	m.halt()
	m.quarantines(map[string]time.Duration{"data.quarantine-0001-survivor": 8 * day, "data.quarantine-0002-superseded": 6 * day})
	machine.FillDisk(t, m.cfg.VolumePath)
	c.changeRecord("the order is written", func(r leases.Record) (leases.Record, error) { return r.Prepare(survivorOrder(1)) })
	m.start()
	c.orderAcknowledged("c-a")
	if diff := cmp.Diff([]string{"data.quarantine-0002-superseded"}, m.quarantined()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestDiskReportCountsExpiredCopies: the free space in the disk report includes the copies that the agent deletes for a recovery.
func TestDiskReportCountsExpiredCopies(t *testing.T) {
	t.Parallel()
	m := &member{c: &cluster{t: t}, cfg: config.Config{VolumePath: t.TempDir(), PodUID: "pod"}}
	machine.SmallDisk(t, m.cfg.VolumePath, narrowDisk) // nothing else writes to it
	m.quarantines(map[string]time.Duration{"data.quarantine-0001-survivor": 8 * day, "data.quarantine-0002-superseded": 6 * day})
	b := &Bootstrapper{cfg: m.cfg, serverTime: func() (time.Time, bool) { return time.Now(), true }, inspects: &volumeState{}, holding: &datadir.Holding{}}
	o := &observation{own: ownLease{member: leases.Member{PodUID: "pod"}}}
	o.Data, o.record.record = Intact, leases.Record{Phase: leases.PhaseFormed, ClusterID: 7, FormedEpoch: 1}
	o.volume.identityFile = datadir.IdentityFile{ClusterID: 7, Epoch: 1}
	disk := b.describe(t.Context(), launch.Report{}, o)
	free, err := volume.Free(m.cfg.VolumePath)
	must(t, err)
	expired := datadir.SpaceOf(m.cfg.VolumePath, "data.quarantine-0001-survivor")
	if disk == nil || expired < 1<<20 || disk.Free != free+expired {
		t.Errorf("%d bytes are free, and the copy takes %d: the report is %+v", free, expired, disk)
	}
}
