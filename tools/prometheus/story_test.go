package prometheus

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// The dashboard shows one hour of 40 EtcdClusters. In some of them something is wrong for a time. In payments/orders you replace the member
// that leads. The times are minutes of that hour. The series begin earlier, so that rates have a past.
const (
	before, shown  = 30, 60
	scrapes        = 2 // in a minute
	joins, votes   = 18, 20
	moves, removed = 23, 26 // leadership moves, and the old leader is removed
)

// value of a series at a minute.
type value = func(minute float64) float64

var absent, always = math.NaN(), math.Inf(1)

// story is what Prometheus has scraped, in the notation of promtool.
type story struct{ strings.Builder }

// load returns the whole story.
func load() string {
	var s story
	fmt.Fprintf(&s, "load %ds\n", 60/scrapes)
	s.fleet()
	for _, m := range members {
		s.member(m)
	}
	return s.String()
}

// add a series. Its value is asked for in the order of time.
func (s *story) add(series string, of value) {
	s.WriteString("  " + series)
	last := absent
	for i := -before * scrapes; i <= shown*scrapes; i++ {
		v := of(float64(i) / scrapes)
		switch {
		case !math.IsNaN(v):
			fmt.Fprintf(s, " %.5g", v)
		case math.IsNaN(last):
			s.WriteString(" _")
		default:
			s.WriteString(" stale")
		}
		last = v
	}
	s.WriteString("\n")
}

// rare adds counters of what happened once before, and in these minutes. Each has the labels, and those after its name.
func (s *story) rare(labels string, counters map[string][]float64) {
	for _, named := range slices.Sorted(maps.Keys(counters)) {
		metric, more, _ := strings.Cut(named, ",")
		s.add(metric+labels+","+more+"}", func(m float64) float64 {
			n := 1.0
			for _, when := range counters[named] {
				n += number(when <= m)
			}
			return n
		})
	}
}

func constant(v float64) value { return func(float64) float64 { return v } }

func during(from, until float64, of value) value {
	return func(m float64) float64 {
		if m < from || m >= until {
			return absent
		}
		return of(m)
	}
}

// counter adds up a rate in things a second.
func counter(rate value) value {
	total := 0.0
	return func(m float64) float64 {
		total += rate(m) * 60 / scrapes
		return math.Round(total)
	}
}

// noise is between 0.8 and 1.2.
func noise(m float64, which int) float64 {
	k := float64(which)
	return 1 + 0.09*math.Sin(m*0.37+k*1.7) + 0.06*math.Sin(m*1.3+k) + 0.05*math.Sin(m*2.9+k*2.3)
}

func number(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// state of a condition: its type, its status and its reason.
type state [3]string

// resting are the conditions of a cluster at rest.
var resting = []state{
	{"AllMembersReady", "True", "AllReady"}, {"BackupReady", "True", "DeltaBackupSucceeded"}, {"BackupVerified", "True", "VerificationSucceeded"},
	{"Degraded", "False", "AsExpected"}, {"Progressing", "False", "Reconciled"}, {"Ready", "True", "Quorate"}, {"Spread", "True", "MembersSpread"},
}

// troubles are conditions that are not as in a cluster at rest.
var troubles = []struct {
	namespace, cluster string
	state              state
	from, until        float64
}{
	{"ci", "builds", state{"AllMembersReady", "False", "MembersNotReady"}, -172, always},
	{"ci", "builds", state{"Degraded", "True", "PodUnschedulable"}, -170, always},
	{"ci", "builds", state{"Progressing", "True", "ScalingUp"}, -172, always},
	{"geo", "tiles", state{"BackupVerified", "Unknown", "NotYetVerified"}, -300, 52},
	{"iot", "telemetry", state{"AllMembersReady", "False", "MembersNotReady"}, 29, 38},
	{"iot", "telemetry", state{"Degraded", "True", "QuorumLost"}, 31, 36},
	{"iot", "telemetry", state{"Ready", "False", "QuorumLost"}, 30, 36},
	{"logs", "shards", state{"BackupReady", "False", "FullBackupFailed"}, -20, 14},
	{"logs", "shards", state{"BackupVerified", "Unknown", "NotYetVerified"}, -200, always},
	{"media", "catalog", state{"AllMembersReady", "False", "MembersNotReady"}, 8, always},
	{"media", "catalog", state{"Degraded", "True", "NodeLost"}, 9, always},
	{"payments", "orders", state{"AllMembersReady", "False", "MembersNotReady"}, joins, votes},
	{"payments", "orders", state{"Progressing", "True", "ReplacingMember"}, joins, removed},
	{"search", "index", state{"BackupReady", "False", "DeltaBackupFailed"}, 38, always},
}

// in is the number of clusters with this state, or absent.
func (s state) in(m float64) float64 {
	n := 0.0
	rests := slices.Contains(resting, s)
	if rests {
		n = 40
	}
	for _, t := range troubles {
		switch {
		case m < t.from || m >= t.until:
		case t.state == s:
			n++
		case t.state[0] == s[0] && rests:
			n--
		}
	}
	if n == 0 {
		return absent
	}
	return n
}

// fleet is what the leading replica of druid exports.
func (s *story) fleet() {
	const druid = `{namespace="druid-system",pod="druid-6f9c7d5b8-4kq2z"`
	s.add("etcd_druid_leading"+druid+"}", constant(1))
	s.add(`etcd_druid_leading{namespace="druid-system",pod="druid-6f9c7d5b8-x7t9m"}`, constant(0))
	states := slices.Clone(resting)
	for _, t := range troubles {
		states = append(states, t.state)
		s.add(fmt.Sprintf("etcd_druid_condition_transition_timestamp_seconds%s,cluster_namespace=%q,etcd_cluster=%q,condition=%q,status=%q,reason=%q}",
			druid, t.namespace, t.cluster, t.state[0], t.state[1], t.state[2]), during(t.from, t.until, constant((t.from+before)*60)))
	}
	slices.SortFunc(states, func(a, b state) int { return slices.Compare(a[:], b[:]) })
	for _, one := range slices.Compact(states) {
		s.add(fmt.Sprintf("etcd_druid_clusters%s,condition=%q,status=%q,reason=%q}", druid, one[0], one[1], one[2]), one.in)
	}
	down := func(m float64) float64 { // two are down while the quorum is lost
		return max(state{"AllMembersReady", "False", "MembersNotReady"}.in(m), 0) + number(m >= 30 && m < 36)
	}
	s.add("etcd_druid_members"+druid+`,status="NotReady"}`, down)
	s.add("etcd_druid_members"+druid+`,status="Ready"}`, func(m float64) float64 { return 112 + number(m >= joins && m < removed) - down(m) })
	s.add("etcd_druid_members"+druid+`,status="Unknown"}`, constant(0))
	s.add("etcd_druid_snapshots"+druid+`,phase="Failed"}`, constant(1))
	s.add("etcd_druid_snapshots"+druid+`,phase="Pending"}`, constant(0))
	s.add("etcd_druid_snapshots"+druid+`,phase="Running"}`, func(m float64) float64 { return number(m >= 26 && m < 28) })
	s.add("etcd_druid_snapshots"+druid+`,phase="Succeeded"}`, func(m float64) float64 { return 11 + number(m >= 28) })
	s.rare(druid, seen)
}

// member of payments/orders, which exists and leads between two minutes each.
type member struct {
	pod                               string
	from, until, leads, leadsNoLonger float64
}

var members = []member{
	{"orders-bqdq7", -before, always, moves, always},
	{"orders-h7n3p", joins, always, always, always},
	{"orders-k4x2m", -before, removed, -before, moves},
	{"orders-w9t5c", -before, always, always, always},
}

// member adds what etcd and the agent of a member export. The database of orders-w9t5c is defragmented in minute 45.
func (s *story) member(self member) {
	which := slices.Index(members, self)
	labels := fmt.Sprintf(`{namespace="payments",etcd_cluster="orders",pod=%q`, self.pod)
	add := func(metric, more string, of value) { s.add(metric+labels+more+"}", during(self.from, self.until, of)) }
	leads := func(m float64) float64 { return number(self.leads <= m && m < self.leadsNoLonger) }
	writes := func(m float64) float64 { return 180 * noise(m, 9) }
	add("etcd_agent_member_healthy", "", func(m float64) float64 { return number(self.from != joins || m >= votes) })
	add("etcd_server_is_leader", "", leads)
	add("etcd_agent_member_alarm", `,alarm="CORRUPT"`, constant(0))
	add("etcd_agent_member_alarm", `,alarm="NOSPACE"`, constant(0))
	add("etcd_server_proposals_committed_total", "", counter(writes))
	add("etcd_server_proposals_failed_total", "", constant(2))
	add("etcd_server_leader_changes_seen_total", "", func(m float64) float64 { return 1 + number(m >= moves) })
	add("etcd_agent_backup_rpo_seconds", "", func(m float64) float64 { return math.Mod((m+before)*60, 300) * leads(m) })
	add("etcd_agent_backup_bytes_total", `,kind="Delta"`, counter(func(m float64) float64 { return 150 * writes(m) * leads(m) }))
	add("etcd_agent_backup_bytes_total", `,kind="Full"`, counter(func(m float64) float64 { return 1.5e6 * leads(m) * number(m == 10) }))
	add("etcd_agent_lease_renewals_total", `,result="renewed"`, counter(constant(0.1)))
	add("etcd_agent_lease_renewals_total", `,result="failed"`, constant(1))
	s.rare(labels, happened[self.pod])
	inUse := func(m float64) float64 { return 171e6 + 0.3e6*m + 4e6*noise(m, 7) }
	size := func(m float64) float64 {
		if self.from == joins || self.pod == "orders-w9t5c" && m >= 45 {
			return inUse(m) * 1.02
		}
		return 262e6 + 2e6*float64(which)
	}
	add("etcd_mvcc_db_total_size_in_bytes", "", size)
	add("etcd_mvcc_db_total_size_in_use_in_bytes", "", inUse)
	add("etcd_server_quota_backend_bytes", "", constant(2<<30))
	add("etcd_agent_volume_free_bytes", "", func(m float64) float64 { return 10<<30 - size(m) - 5*64e6 - 4e6*m })
	for _, metric := range slices.Sorted(maps.Keys(bounds)) {
		add(metric, bounds[metric][0], counter(func(m float64) float64 { return writes(m) * (0.968 + 0.08*(noise(m, which+len(metric))-1)) }))
		add(metric, bounds[metric][1], counter(func(m float64) float64 { return writes(m) * 0.998 }))
		add(metric, `,le="+Inf"`, counter(writes))
	}
}

// seen is what druid counted, and when.
var seen = map[string][]float64{
	`etcd_druid_events_total,type="Normal",reason="MemberReady"`:         {votes, 36, 38},
	`etcd_druid_events_total,type="Normal",reason="MemberRemoved"`:       {removed},
	`etcd_druid_events_total,type="Normal",reason="QuorumRecovered"`:     {36},
	`etcd_druid_events_total,type="Warning",reason="MemberNotReady"`:     {8, 29, 30},
	`etcd_druid_events_total,type="Warning",reason="NodeLost"`:           {9},
	`etcd_druid_events_total,type="Warning",reason="QuorumLost"`:         {30},
	`etcd_druid_step_failures_total,step="CreatePod",rule="pod-missing"`: {33, 33.5, 34, 34.5},
	`etcd_druid_steps_total,step="CreatePod",rule="pod-missing"`:         {joins - 0.5, 35},
	`etcd_druid_steps_total,step="DeletePod",rule="removed-pod"`:         {removed + 0.5},
	`etcd_druid_steps_total,step="LabelPod",rule="etcd-not-ready"`:       {8, 29, 30},
	`etcd_druid_steps_total,step="LabelPod",rule="voter-serves"`:         {votes, 36, 36, 38},
	`etcd_druid_steps_total,step="OpenSlot",rule="too-many"`:             {votes + 0.5},
	`etcd_druid_steps_total,step="RemoveName",rule="removed"`:            {removed},
	`etcd_druid_steps_total,step="RequestRemoval",rule="request"`:        {moves - 1},
	`etcd_druid_steps_total,step="UpdateRecord",rule="request-grows"`:    {joins - 1},
}

// happened is what each member counted, and when.
var happened = map[string]map[string][]float64{
	"orders-bqdq7": {
		`etcd_agent_backup_failures_total,kind="Delta"`:                                        {41, 41.5},
		`etcd_agent_decisions_total,table="agent/backups.backupRules",rule="resume-recording"`: {moves},
		`etcd_agent_decisions_total,table="membership.defrags",rule="follower"`:                {45},
		`etcd_agent_decisions_total,table="membership.drains",rule="remove"`:                   {removed},
		`etcd_agent_defragmentation_seconds_sum,member="orders-w9t5c",result="defragmented"`:   {45, 45},
	},
	"orders-k4x2m": {
		`etcd_agent_decisions_total,table="agent/backups.backupRules",rule="due"`: {10},
		`etcd_agent_decisions_total,table="membership.drains",rule="move-leader"`: {moves},
	},
	"orders-w9t5c": {
		`etcd_agent_backup_verifications_total,verdict="Verified"`:                                   {50},
		`etcd_agent_decisions_total,table="agent/backups.verificationRules",rule="verification-due"`: {50},
	},
}

// bounds of the buckets between which 99 % of the writes to a disk end.
var bounds = map[string][2]string{
	"etcd_disk_backend_commit_duration_seconds_bucket": {`,le="0.008"`, `,le="0.016"`},
	"etcd_disk_wal_fsync_duration_seconds_bucket":      {`,le="0.002"`, `,le="0.004"`},
}
