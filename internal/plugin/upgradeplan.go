package plugin

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/versions"
	"github.com/etcd-druid/druid/internal/view"
	"github.com/etcd-druid/druid/leases"
)

// upgrading is what a change of spec.version would do.
type upgrading struct {
	Namespace string `json:"namespace"`
	Cluster   string `json:"cluster"`
	// From is spec.version, and To the requested one.
	From string `json:"from"`
	To   string `json:"to"`
	// Verdict on the step, the rule that gave it, and the reason.
	Verdict versions.Verdict `json:"verdict"`
	Rule    string           `json:"rule"`
	Why     string           `json:"why"`
	// Members that change, in this order: the followers by name, and the leader last.
	Members []changing `json:"members,omitempty"`
	Steps   []string   `json:"steps,omitempty"`
	// Refused says why the step is impossible, Waits what druid waits for before the first member changes, and Warnings what a user must know.
	Refused  []string `json:"refused,omitempty"`
	Waits    []string `json:"waits,omitempty"`
	Warnings []string `json:"warnings,omitempty"`
}

// changing is a member that changes its version.
type changing struct {
	Name string `json:"name"`
	Role string `json:"role,omitempty"`
	// Runs is the version that the member reported, empty if it is unknown.
	Runs  string `json:"runs,omitempty"`
	State string `json:"state,omitempty"`
}

// blocked says whether druid would not begin now.
func (u upgrading) blocked() bool { return len(u.Refused)+len(u.Waits) > 0 }

// upgradingOf describes a change of spec.version to another release.
func (s selection) upgradingOf(o view.Objects, c view.Cluster, to versions.Version) upgrading {
	spec := o.Cluster.Spec
	u := upgrading{Namespace: c.Namespace, Cluster: c.Name, From: spec.Version, To: to.String(), Members: changes(c, to)}
	u.Verdict, u.Rule, u.Why = versions.Allowed, "unknown-version", "the version that the members run is unknown"
	from, known := runningOf(c, spec.Version, to)
	if known {
		u.decide(versions.JudgeStep(from, to), fmt.Sprintf("etcd %s to %s: ", from, to))
	}
	u.judge(o, from, to)
	if known && from == to && len(u.Refused) == 0 {
		u.Rule, u.Why = "no-change", "no member changes"
		if len(u.Members) > 0 {
			u.Why = "no member that reports its version changes"
		}
		return u
	}
	u.Waits = s.waitsOf(o.Cluster, c)
	u.warn(o.Cluster, from, to)
	if len(u.Refused) > 0 {
		return u
	}
	if spec.Replicas > 0 && o.Cluster.Status.ClusterID != "" && !keepsOnlyData(o.Cluster) {
		u.Steps = stepsOf(o.Cluster, u, from, to)
	}
	return u
}

// decide takes a judgement of the step. The first one that refuses gives the verdict.
func (u *upgrading) decide(j versions.Judgement, about string) {
	if j.Verdict == versions.Refused {
		u.Refused = append(u.Refused, about+j.Why)
	}
	if u.Verdict != versions.Refused {
		u.Verdict, u.Rule, u.Why = j.Verdict, j.Rule, j.Why
	}
}

// reported says whether a member reported that it runs another release.
func (u *upgrading) reported() bool {
	return slices.ContainsFunc(u.Members, func(m changing) bool { return m.Runs != "" })
}

// runningOf is the release that is furthest from the requested one, of those that the members run. It is spec.version
// if no member reports one.
func runningOf(c view.Cluster, spec string, to versions.Version) (from versions.Version, known bool) {
	for _, m := range c.Members {
		runs, reported := versions.Parse(m.Version)
		if reported && (!known || from == to || distance(runs, to) > distance(from, to)) {
			from, known = runs, true
		}
	}
	if !known {
		return versions.Parse(spec)
	}
	return from, known
}

// distance is the number of minors between two releases.
func distance(a, b versions.Version) int { return max(a.Minor-b.Minor, b.Minor-a.Minor) }

// keepsOnlyData says whether druid replaces no Pod because the only member has its data there.
func keepsOnlyData(c v1alpha1.EtcdCluster) bool {
	return c.Spec.Replicas == 1 && c.Spec.Storage.Medium != ""
}

// changes are the members that do not report the requested release: they run another one, or it is unknown.
func changes(c view.Cluster, to versions.Version) (all []changing) {
	for _, m := range c.Members {
		if m.Version != to.String() {
			all = append(all, changing{Name: m.Name, Role: m.Role, Runs: m.Version, State: m.State})
		}
	}
	rank := func(m changing) int {
		if m.Name == c.Leader {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(all, func(a, b changing) int { return cmp.Or(rank(a)-rank(b), strings.Compare(a.Name, b.Name)) })
	return all
}

// judge applies the rules of versions to the spec, and to what each member runs.
func (u *upgrading) judge(o view.Objects, from, to versions.Version) {
	release := versions.JudgeRelease(to)
	switch release.Verdict {
	case versions.Refused:
		u.decide(release, fmt.Sprintf("etcd %s: ", to))
	case versions.Warned:
		u.Warnings = append(u.Warnings, fmt.Sprintf("etcd %s: %s", to, release.Why))
	default: // no known problem
	}
	lines := map[string]bool{}
	for _, m := range u.Members {
		runs, known := versions.Parse(m.Runs)
		if !known {
			continue
		}
		lines[runs.Line()] = true
		if j := versions.JudgeStep(runs, to); runs != from && j.Verdict == versions.Refused {
			u.decide(j, fmt.Sprintf("member %s runs etcd %s: ", m.Name, runs))
		}
	}
	if spec, _ := versions.Parse(o.Cluster.Spec.Version); len(lines) > 1 && to.Line() != spec.Line() {
		u.decide(versions.Judgement{Verdict: versions.Refused, Rule: "mixed-minors", Why: "the members run two minor versions. Wait until all run the same one"}, "")
	}
	if learners, known := learnersOf(o); known {
		if j := versions.JudgeGroup(from, to, learners, valueOf(o.Cluster.Spec.Etcd.SnapshotCount)); j.Verdict == versions.Refused {
			u.decide(j, "")
		}
	} else if to.Minor == 5 && from.Minor > to.Minor {
		u.Warnings = append(u.Warnings, "only a cluster that was formed on etcd 3.5 can go back to it, and the Lease that says so could not be read")
	}
}

// learnersOf is the limit of learners with which the raft group was formed, if its record can be read.
func learnersOf(o view.Objects) (int, bool) {
	for i := range o.Leases {
		if leases.ComponentOf(&o.Leases[i]) != leases.ComponentRecord {
			continue
		}
		record, err := leases.DecodeRecord(&o.Leases[i])
		return record.MaxLearners, err == nil
	}
	return 0, false
}

func valueOf(n *int64) int64 {
	if n == nil {
		return 0
	}
	return *n
}

// waitsOf are what druid waits for before the first member changes.
func (s selection) waitsOf(c v1alpha1.EtcdCluster, v view.Cluster) (all []string) {
	if reason := s.keptOff(c); reason != "" {
		all = append(all, reason)
	}
	if c.Spec.Replicas == 0 {
		return append(all, fmt.Sprintf("the cluster is paused, and no member changes before you resume it: %s", s.resume(c)))
	}
	if c.Status.ClusterID == "" {
		return append(all, "the cluster has not formed yet. Until then, druid replaces only Pods in which no etcd runs")
	}
	if keepsOnlyData(c) {
		all = append(all, "druid does not replace the Pod of the only member, because it has the data. Set spec.replicas to 3 first")
	}
	for _, condition := range v.Conditions {
		if wait := waitFor(condition, c.Spec.Backup != nil); wait != "" {
			all = append(all, wait+" "+condition.Message)
		}
	}
	return all
}

// waitFor is what druid waits for because of a condition, empty for nothing.
func waitFor(condition view.Condition, backup bool) string {
	is := condition.Status == string(metav1.ConditionTrue)
	switch condition.Type {
	case v1alpha1.ConditionReady:
		if !is && condition.Reason != v1alpha1.ReasonClientsCutOff {
			return "the cluster does not serve, or it is not known whether it does."
		}
	case v1alpha1.ConditionAllMembersReady:
		if !is {
			return "druid compares the members before each step, and only members that serve can be compared."
		}
	case v1alpha1.ConditionBackupReady:
		if !is && backup {
			return "druid makes and verifies a full backup before the first step, and backups do not work."
		}
	case v1alpha1.ConditionDegraded:
		if is {
			return "the cluster has a problem."
		}
	case v1alpha1.ConditionProgressing:
		if is {
			return "a change is under way, and druid completes it first."
		}
	default: // it does not matter for an upgrade
	}
	return ""
}

// warn adds what a user must know, and what does not prevent the step.
func (u *upgrading) warn(c v1alpha1.EtcdCluster, from, to versions.Version) {
	if c.Spec.Backup == nil {
		u.Warnings = append(u.Warnings, "spec.backup is not set, so druid makes no backup first. Without a backup, you cannot undo a failed upgrade")
	}
	if c.Spec.Replicas == 1 && c.Spec.Storage.Medium == "" {
		u.Warnings = append(u.Warnings, "the only member restarts, and clients wait meanwhile")
	}
	if to.Minor != from.Minor {
		u.Warnings = append(u.Warnings, "after the first member has changed, you cannot request another minor version until all members run "+to.Line())
	}
}

// stepsOf are what druid and the agents do, in their order.
func stepsOf(c v1alpha1.EtcdCluster, u upgrading, from, to versions.Version) (all []string) {
	if c.Spec.Backup != nil {
		// druid.saveName makes this name. The change of the spec is the next generation.
		all = append(all, fmt.Sprintf("druid creates EtcdSnapshot %s-before-%s-%d. An agent makes this full backup and verifies it.", c.Name,
			strings.ReplaceAll(u.To, ".", "-"), c.Generation+1))
	}
	if to.Minor < from.Minor {
		all = append(all, fmt.Sprintf("The leader's agent enables the downgrade in etcd. druid waits until the storage of all members has the format of %s.",
			to.Line()))
	}
	if from.Minor == 6 && to.Minor == 7 {
		all = append(all, "If the cluster may have run 3.5, the leader's agent appends entries to the log until each member has taken a raft snapshot.")
	}
	for _, m := range u.Members {
		text := fmt.Sprintf("The leader's agent compares all members. druid replaces the Pod of %s: %s to %s.", m.Name, or(m.Runs), u.To)
		if c.Spec.Replicas > 1 && m == u.Members[len(u.Members)-1] && m.Role == string(leases.RoleLeader) {
			text = fmt.Sprintf("The leader's agent compares all members. Leadership moves away from %s, and druid replaces its Pod: %s to %s.", m.Name, or(m.Runs), u.To)
		}
		all = append(all, text)
	}
	return append(all, "The leader's agent compares all members once more.")
}
