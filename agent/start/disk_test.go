package start

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/agent/datadir"
	"github.com/etcd-druid/druid/agent/launch"
	"github.com/etcd-druid/druid/leases"
)

func TestDiskReportDescribesTheDisk(t *testing.T) {
	cfg := config.Config{PodUID: "pod"}
	own := leases.Member{PodUID: "pod", VolumeUID: "volume"}
	v := volumeState{
		report: datadir.Report{
			State: datadir.Intact, ClusterID: 0xc, MemberID: 0xa, Commit: 48, Last: datadir.Position{Term: 3, Index: 50}, ConsistentIndex: 40,
			DBSize: 4096, Whole: true,
		},
		identityFile: datadir.IdentityFile{ClusterID: 0xc, MemberID: 0xa, Epoch: 2, Lineage: "00000002-n"},
	}
	h := datadir.Holding{Revision: 30, Voters: []uint64{0xa, 0xb}, Tail: 10}
	intact := leases.DiskReport{
		Pod: "pod", Volume: "volume", State: leases.DiskIntact, WholeDB: true, Cluster: leases.FormatID(0xc), Member: leases.FormatID(0xa),
		Epoch: 2, Lineage: "00000002-n", LastTerm: 3, Last: 50, Commit: 48, Applied: 40, Tail: 10, Revision: 30, Voters: "a,b", Size: 4096, Orders: true,
	}
	with := func(change func(*leases.DiskReport)) *leases.DiskReport { c := intact; change(&c); return &c }
	damaged := v
	damaged.report.Kind = datadir.BadWALRecord
	tests := map[string]struct {
		volume  volumeState
		data    Data
		failing bool
		want    *leases.DiskReport
	}{
		"intact":             {v, Intact, false, &intact},
		"etcd ends on it":    {v, Intact, true, with(func(c *leases.DiskReport) { c.State = leases.DiskFailing })},
		"it went back":       {v, Stale, false, with(func(c *leases.DiskReport) { c.State = leases.DiskStale })},
		"of a newer etcd":    {v, Newer, false, with(func(c *leases.DiskReport) { c.State = leases.DiskNewer })},
		"its log is damaged": {damaged, Corrupt, true, with(func(c *leases.DiskReport) { c.State, c.Kind = leases.DiskCorrupt, "bad-wal-record" })},
		"empty":              {volumeState{}, Empty, true, &leases.DiskReport{Pod: "pod", Volume: "volume", State: leases.DiskEmpty, Orders: true}},
		"of another cluster": {v, Foreign, false, &leases.DiskReport{Pod: "pod", Volume: "volume", State: leases.DiskForeign, Orders: true}},
		"it cannot be read":  {v, DataUnread, false, nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, known := reportOf(cfg, tc.volume, tc.data, h, tc.failing, own)
			if known != (tc.want != nil) {
				t.Fatalf("known is %v, want %v", known, tc.want != nil)
			}
			if !known {
				return
			}
			if diff := cmp.Diff(*tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if _, err := got.Encode(); err != nil {
				t.Error(err)
			}
		})
	}
}

// The largest cluster with the largest numbers fits.
func TestDiskReportOfALargeClusterFits(t *testing.T) {
	const most = 1<<63 - 1
	v := volumeState{
		report: datadir.Report{
			State: datadir.Corrupt, Kind: datadir.ConsistentIndexAhead, Commit: most, Last: datadir.Position{Term: most, Index: most},
			ConsistentIndex: most, DBSize: 1 << 40,
		},
		identityFile: datadir.IdentityFile{ClusterID: most, MemberID: most, Epoch: 1 << 30, Lineage: "ffffffff-" + strings.Repeat("f", 16)},
	}
	h := datadir.Holding{Revision: most, Tail: most, Voters: []uint64{most, most, most, most, most, most, most}}
	uid := strings.Repeat("u", 36)
	c, _ := reportOf(config.Config{PodUID: uid}, v, Corrupt, h, false, leases.Member{VolumeUID: uid})
	if raw, err := c.Encode(); err != nil {
		t.Errorf("%s: %v", raw, err)
	}
}

func TestEtcdThatEndsSoonIsFailing(t *testing.T) {
	for name, tc := range map[string]struct {
		crashes int
		ran     time.Duration
		want    bool
	}{
		"often, soon":        {5, time.Second, true},
		"often, after hours": {5, time.Hour, false},
		"a few times":        {4, time.Second, false},
	} {
		report := launch.Report{Crashes: tc.crashes, LastExit: &launch.Exit{RanFor: tc.ran}}
		if got := failing(report); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
	if failing(launch.Report{Crashes: 9}) {
		t.Error("an etcd of which nothing is known is failing")
	}
}
