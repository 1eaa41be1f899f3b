package agent

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/agent/leader"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/membership"
)

func TestTheConfigurationSaysWhenToDefragment(t *testing.T) {
	const yes, no, unknown = rules.Yes, rules.No, rules.Unknown
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		change func(*config.Defragmentation)
		want   leader.DefragPolicy
	}{
		"nothing":         {func(*config.Defragmentation) {}, leader.DefragPolicy{Enabled: no, Window: yes, Scheduled: no}},
		"on":              {func(d *config.Defragmentation) { d.Enabled = true }, leader.DefragPolicy{Enabled: yes, Window: yes, Scheduled: no}},
		"at noon":         {func(d *config.Defragmentation) { d.Schedule = "0 12 * * *" }, leader.DefragPolicy{Enabled: no, Window: yes, Scheduled: yes}},
		"at night":        {func(d *config.Defragmentation) { d.Schedule = "0 3 * * *" }, leader.DefragPolicy{Enabled: no, Window: no, Scheduled: yes}},
		"no one can read": {func(d *config.Defragmentation) { d.Schedule = "often" }, leader.DefragPolicy{Enabled: no, Window: unknown, Scheduled: yes}},
	} {
		t.Run(name, func(t *testing.T) {
			d := config.DefaultDefragmentation()
			tc.change(&d)
			tc.want.Interval = time.Minute
			tc.want.Cure = leader.CurePolicy{
				Enabled: tc.want.Enabled, Compact: yes, Window: 5 * time.Minute, Saved: true, Quota: 7,
			}
			tc.want.Thresholds = membership.Thresholds{FreePercent: 45, FreeBytes: 100 << 20}
			if diff := cmp.Diff(defragPolicy(d, true, 7, at), tc.want); diff != "" {
				t.Errorf("(-got +want)\n%s", diff)
			}
		})
	}
}

func TestTheConfigurationSaysWhatToDoWithoutSpace(t *testing.T) {
	const yes, no = rules.Yes, rules.No
	for word, want := range map[config.OutOfSpace]leader.CurePolicy{
		config.OutOfSpaceCompact:    {Enabled: yes, Compact: yes, Window: 5 * time.Minute},
		config.OutOfSpaceDefragment: {Enabled: yes, Compact: no, Window: 5 * time.Minute},
		config.OutOfSpaceNothing:    {Enabled: no, Compact: no, Window: 5 * time.Minute},
	} {
		d := config.DefaultDefragmentation()
		d.Enabled, d.OutOfSpace = true, word
		if diff := cmp.Diff(defragPolicy(d, false, 0, time.Now()).Cure, want); diff != "" {
			t.Errorf("%s (-got +want)\n%s", word, diff)
		}
	}
}

func TestStallsAreMeasuredByMemberAndResult(t *testing.T) {
	registry := prometheus.NewRegistry()
	m, err := newMetrics(registry, "v1")
	if err != nil {
		t.Fatal(err)
	}
	before, after := membership.Space{Size: 1000, InUse: 400}, membership.Space{Size: 400, InUse: 400}
	m.defragmented(leader.Defragmented{Member: "a", Took: time.Second, Before: before, After: after})
	m.defragmented(leader.Defragmented{Member: "a", Took: time.Second, Before: before, After: after})
	m.defragmented(leader.Defragmented{Member: "b", Took: time.Second, Before: before, Err: fmt.Errorf("defragment b: %w", context.Canceled)})
	m.defragmented(leader.Defragmented{Member: "b", Took: time.Second, Before: before, Err: errors.New("no space left on device")})
	if freed := testutil.ToFloat64(m.freed.WithLabelValues("a")); freed != 1200 {
		t.Errorf("%v bytes freed, want 1200", freed)
	}
	got := map[string]uint64{}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != "etcd_agent_defragmentation_seconds" {
			continue
		}
		for _, metric := range family.GetMetric() {
			got[metric.GetLabel()[0].GetValue()+" "+metric.GetLabel()[1].GetValue()] = metric.GetHistogram().GetSampleCount()
		}
	}
	if diff := cmp.Diff(got, map[string]uint64{"a defragmented": 2, "b left": 1, "b failed": 1}); diff != "" {
		t.Errorf("(-got +want)\n%s", diff)
	}
}
