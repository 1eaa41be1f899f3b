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
func upgradingOf(o view.Objects, c view.Cluster, to versions.Version) upgrading {
	spec := o.Cluster.Spec
	u := upgrading{Namespace: c.Namespace, Cluster: c.Name, From: spec.Version, To: to.String(), Members: changes(c, to)}
	step := versions.Judgement{Verdict: versions.Allowed, Rule: "unknown-version", Why: "the version that the members run is unknown"}
	from, known := versions.Parse(spec.Version)
	if known {
		step = versions.JudgeStep(from, to)
	}
	u.Verdict, u.Rule, u.Why = step.Verdict, step.Rule, step.Why
	u.judge(o, from, to, step)
	u.Waits = waitsOf(o.Cluster, c)
	u.warn(o.Cluster, from, to)
	if len(u.Refused) > 0 {
		u.Verdict = versions.Refused
		return u
	}
	if spec.Replicas > 0 && o.Cluster.Status.ClusterID != "" {
		u.Steps = stepsOf(o.Cluster, u, from, to)
	}
	return u
}

// changes are the members that run another release.
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
func (u *upgrading) judge(o view.Objects, from, to versions.Version, step versions.Judgement) {
	release := versions.JudgeRelease(to)
	switch release.Verdict {
	case versions.Refused:
		u.Refused = append(u.Refused, fmt.Sprintf("etcd %s: %s", to, release.Why))
	case versions.Warned:
		u.Warnings = append(u.Warnings, fmt.Sprintf("etcd %s: %s", to, release.Why))
	default: // no known problem
	}
	if step.Verdict == versions.Refused {
		u.Refused = append(u.Refused, fmt.Sprintf("etcd %s to %s: %s", from, to, step.Why))
	}
	lines := map[string]bool{}
	for _, m := range u.Members {
		runs, known := versions.Parse(m.Runs)
		if !known {
			continue
		}
		lines[runs.Line()] = true
		if j := versions.JudgeStep(runs, to); runs != from && j.Verdict == versions.Refused {
			u.Refused = append(u.Refused, fmt.Sprintf("member %s runs etcd %s: %s", m.Name, runs, j.Why))
		}
	}
	if len(lines) > 1 && to.Line() != from.Line() {
		u.Refused = append(u.Refused, "the members run two minor versions. Wait until all run the same one")
	}
	if learners, known := learnersOf(o); known {
		if j := versions.JudgeGroup(from, to, learners, valueOf(o.Cluster.Spec.Etcd.SnapshotCount)); j.Verdict == versions.Refused {
			u.Refused = append(u.Refused, j.Why)
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
func waitsOf(c v1alpha1.EtcdCluster, v view.Cluster) (all []string) {
	if reason := c.Annotations[v1alpha1.HandsOffAnnotation]; reason != "" {
		all = append(all, fmt.Sprintf("druid is kept off the cluster: %s. To end that: %s --end", strings.TrimRight(reason, "."), invoke(c, "hands-off")))
	}
	if c.Spec.Replicas == 0 {
		return append(all, fmt.Sprintf("the cluster is paused, and no member changes before you resume it: %s --replicas 3", invoke(c, "resume")))
	}
	if c.Status.ClusterID == "" {
		return append(all, "the cluster has not formed yet. Until then, druid replaces only Pods in which no etcd runs")
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
	if c.Spec.Replicas == 1 && c.Spec.Storage.Medium != "" {
		u.Warnings = append(u.Warnings, "druid does not replace the Pod of the only member, because it has the data. Set spec.replicas to 3 first")
	}
	if to.Minor != from.Minor {
		u.Warnings = append(u.Warnings, "after the first member has changed, you cannot request another minor version until all members run "+to.Line())
	}
}

// stepsOf are what druid and the agents do, in their order.
func stepsOf(c v1alpha1.EtcdCluster, u upgrading, from, to versions.Version) (all []string) {
	if c.Spec.Backup != nil {
		// druid.saveName makes this name. The change of the spec is the next generation.
		all = append(all, fmt.Sprintf("druid creates EtcdSnapshot %s-before-%s-%d. An agent makes this full backup and verifies it.", c.Name, strings.ReplaceAll(u.To, ".", "-"), c.Generation+1))
	}
	if to.Minor < from.Minor {
		all = append(all, fmt.Sprintf("The leader's agent enables the downgrade in etcd. druid waits until the storage of all members has the format of %s.", to.Line()))
	}
	if from.Minor == 6 && to.Minor == 7 {
		all = append(all, "If the cluster may have run 3.5, the leader's agent appends entries to the log until each member has taken a raft snapshot.")
	}
	for _, m := range u.Members {
		text := fmt.Sprintf("The leader's agent compares all members. druid replaces the Pod of %s: %s to %s.", m.Name, or(m.Runs), u.To)
		if m == u.Members[len(u.Members)-1] && m.Role == string(leases.RoleLeader) {
			text = fmt.Sprintf("The leader's agent compares all members. Leadership moves away from %s, and druid replaces its Pod: %s to %s.", m.Name, or(m.Runs), u.To)
		}
		all = append(all, text)
	}
	return append(all, "The leader's agent compares all members once more.")
}
