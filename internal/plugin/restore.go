package plugin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/internal/view"
	"github.com/etcd-druid/druid/leases"
)

// restoreTimeout is how long --apply waits for the plan. The agent lists the store, which takes seconds, or minutes with many objects.
const restoreTimeout = 2 * time.Minute

// restoreFlags are those of the command restore.
type restoreFlags struct {
	time                  string
	revision              int64
	latest, apply, cancel bool
	lineage, toNew        string
	timeout               time.Duration
	waiting               waiting
	output                string
}

func (o *options) restoreCommand() *cobra.Command {
	f := restoreFlags{timeout: restoreTimeout, waiting: waiting{timeout: waitTimeout}, output: formatTable}
	command := o.forCluster(&cobra.Command{
		Use:   "restore CLUSTER",
		Short: "Show what a restore would read and undo, and request it",
		Long: "Show what a restore of an earlier state would read and undo. This changes nothing. The agent of a member plans it, so you need " +
			"create of pods/exec.\n" +
			"With --apply, set spec.recovery.restore, and show the plan of druid. druid changes nothing before you approve that plan with kubectl druid recover.\n" +
			"With --to-new, print an EtcdCluster that starts with that state, and leave this one as it is. With --cancel, withdraw the request.\n" +
			"The exit code is 2 if no backup leads to that state.",
		Example: "  kubectl druid restore demo --time 2026-11-23T02:50:00Z\n  kubectl druid restore demo --revision 48000 --apply\n" +
			"  kubectl druid restore demo --latest --to-new copy > copy.yaml\n  kubectl druid restore demo --cancel",
	}, func(cmd *cobra.Command, k *kube, args []string) error {
		if err := f.waiting.needs(cmd, "apply"); err != nil {
			return err
		}
		return o.restore(cmd, k, args[0], f)
	})
	flags := command.Flags()
	flags.StringVar(&f.time, "time", "", "`time` of the state, with a time zone: 2026-11-23T02:50:00Z is UTC, 2026-11-23T03:50:00+01:00 is the same time")
	flags.Int64Var(&f.revision, "revision", 0, "`revision` of etcd: the state right after it")
	flags.BoolVar(&f.latest, "latest", false, "the newest state in the backups")
	flags.StringVar(&f.lineage, "lineage", "",
		"`lineage` of the backups. If not set, it is the one in which the cluster saves now. With --to-new, it is the newest")
	flags.BoolVar(&f.apply, "apply", false, "request the restore, and show the plan of druid")
	flags.DurationVar(&f.timeout, "timeout", f.timeout, "how long --apply waits for that plan")
	flags.BoolVar(&f.waiting.wait, "wait", false, "show the progress, and wait until you or others approved that plan and it was carried out. It needs --apply")
	flags.StringVar(&f.toNew, "to-new", "", "print an EtcdCluster of this `name` that starts with that state")
	flags.BoolVar(&f.cancel, "cancel", false, "withdraw the request: remove spec.recovery.restore")
	bindOutput(command, &f.output, dataFormats...)
	command.MarkFlagsMutuallyExclusive("time", "revision", "latest", "cancel")
	command.MarkFlagsOneRequired("time", "revision", "latest", "cancel")
	command.MarkFlagsMutuallyExclusive("apply", "to-new", "cancel")
	command.MarkFlagsMutuallyExclusive("apply", "output")
	return command
}

// target reads the flags that select the state.
func (f restoreFlags) target(now time.Time) (t leases.RestoreTarget, err error) {
	t.Lineage = f.lineage
	if f.lineage != "" {
		if _, err := catalog.ParseLineage(f.lineage); err != nil {
			return t, fmt.Errorf("--lineage is %q, want that of a backup, like 00000001-6f1c0e9a2b3c4d5e. To see all: kubectl druid backups CLUSTER", f.lineage)
		}
	}
	switch {
	case f.latest:
		return t, nil
	case f.time != "":
		t.Time, err = momentOf(f.time, now)
		return t, err
	case f.revision > 0:
		t.Revision = f.revision
		return t, nil
	default:
		return t, errors.New("it is not known which state to restore. Set --revision to 1 or more, or set --time, or set --latest")
	}
}

// momentOf reads --time.
func momentOf(text string, now time.Time) (time.Time, error) {
	at, err := time.Parse(time.RFC3339, text)
	switch {
	case err != nil && slices.ContainsFunc([]string{"2006-01-02T15:04:05", time.DateTime, "2006-01-02T15:04", "2006-01-02 15:04"}, func(layout string) bool {
		_, err := time.Parse(layout, text)
		return err == nil
	}):
		return at, fmt.Errorf("--time is %q and has no time zone. Write 2026-11-23T02:50:00Z for UTC, or 2026-11-23T03:50:00+01:00 for a zone one hour ahead of UTC",
			text)
	case err != nil:
		return at, fmt.Errorf("--time is %q, want a time with a time zone, like 2026-11-23T02:50:00Z", text)
	case at.Nanosecond() != 0:
		return at, fmt.Errorf("--time is %q, want whole seconds", text)
	case at.After(now):
		return at, fmt.Errorf("--time is %s, and the clock of this computer says %s. For the newest state, use --latest", stamp(at), stamp(now))
	default:
		return at.UTC(), nil
	}
}

// restoring is what a restore reads and undoes.
type restoring struct {
	Namespace string `json:"namespace"`
	Cluster   string `json:"cluster"`
	// Member is the one whose agent made the plan.
	Member string       `json:"member"`
	Target string       `json:"target"`
	Plan   catalog.Plan `json:"plan"`
	// Bytes that are read from the store.
	Bytes int64 `json:"bytes"`
	// Undone is how many revisions the restore undoes at least, nil if the revisions are unknown, or of another lineage.
	Undone *int64 `json:"undoneRevisions,omitempty"`
	// Blockers are what prevents a restore in place now.
	Blockers []string `json:"blockers,omitempty"`
	// Request is for spec.recovery.restore.
	Request v1alpha1.RestoreInPlace `json:"request"`
	// lineage is the one in which the cluster saves now, empty if it is unknown.
	lineage string
}

func (o *options) restore(cmd *cobra.Command, k *kube, name string, f restoreFlags) error {
	if f.cancel {
		return o.cancelRestore(cmd, k, name)
	}
	target, err := f.target(o.now())
	if err != nil {
		return err
	}
	objects, err := k.objects(cmd.Context(), name)
	if err != nil {
		return err
	}
	c := view.Of(objects, o.now())
	if f.toNew != "" {
		return o.restoreToNew(cmd, k, objects, c, target, f)
	}
	doing := fmt.Sprintf("restore EtcdCluster %s/%s", k.namespace, name)
	err = k.restorable(objects.Cluster, c)
	if err == nil && f.apply {
		err = k.requestable(objects.Cluster, target)
	}
	if err != nil {
		return fmt.Errorf("%s: %w. Nothing was changed", doing, err)
	}
	r, err := awaited(cmd, agentReads, func() (restoring, error) { return k.planRestore(cmd.Context(), objects, c, target) })
	_, ended := errors.AsType[answer](err)
	switch {
	case err != nil && (ended || !f.apply):
		return fmt.Errorf("%s: %w. Nothing was changed", doing, err)
	case f.apply: // druid and the leader's agent plan it again, also if this command could ask no agent
		return o.requestRestore(cmd, k, name, target, r.Plan.Notes, f)
	}
	if f.output != formatTable {
		return printData(cmd.OutOrStdout(), r, f.output)
	}
	p := o.page(cmd, k)
	p.restoring(r, objects.Cluster)
	return p.err
}

// restorable says why an EtcdCluster cannot be restored in place.
func (s selection) restorable(c v1alpha1.EtcdCluster, v view.Cluster) error {
	other := ". Or restore into a new cluster: add --to-new NAME"
	switch {
	case c.DeletionTimestamp != nil:
		return errors.New("the EtcdCluster is being deleted" + other)
	case c.Spec.Backup == nil:
		return errors.New("it has no spec.backup, so druid has no backups of it. For a backup in another store, see " + restorePage)
	case c.Spec.Replicas == 0:
		return fmt.Errorf("it is paused. Resume it first: %s", s.resume(c))
	case c.Status.ClusterID == "":
		return errors.New("it has not formed yet, so it has nothing to replace. To start a cluster with a backup, see " + restorePage)
	case v.State == view.StateQuorumLost:
		return fmt.Errorf("no quorum serves. Recover the quorum first: %s%s", s.invoke(c, "recover"), other)
	default:
		return nil
	}
}

// planRestore has an agent plan the restore.
func (k *kube) planRestore(ctx context.Context, o view.Objects, c view.Cluster, target leases.RestoreTarget) (restoring, error) {
	asked := target
	if asked.Lineage == "" {
		asked.Lineage = lineageOf(o, c)
	}
	member, plan, err := k.askPlan(ctx, o, c, asked)
	if err != nil {
		return restoring{}, err
	}
	return k.restoringOf(o, c, target, member, plan), nil
}

// restoringOf compares a plan with what the members have.
func (s selection) restoringOf(o view.Objects, c view.Cluster, target leases.RestoreTarget, member string, plan catalog.Plan) restoring {
	r := restoring{
		Namespace: c.Namespace, Cluster: c.Name, Member: member, Target: target.String(), Plan: plan, Bytes: bytesOf(plan), Request: requestOf(target),
		Blockers: s.blockers(o.Cluster, c), lineage: lineageOf(o, c),
	}
	if string(plan.Full.Lineage) == r.lineage {
		r.Undone = undone(c, plan.Reach)
	}
	return r
}

// lineageOf is the lineage in which the cluster saves now: that of the leader, and otherwise that of the newest backup. It is empty if the
// Leases do not say it.
func lineageOf(o view.Objects, c view.Cluster) string {
	for i := range o.Leases {
		if o.Leases[i].Name != c.Leader {
			continue
		}
		if m, err := leases.DecodeMember(&o.Leases[i]); err == nil && m.Lineage != "" {
			return m.Lineage
		}
	}
	if c.Backup == nil {
		return ""
	}
	return c.Backup.Lineage
}

// askPlan has an agent plan a restore of the target, and changes nothing.
func (k *kube) askPlan(ctx context.Context, o view.Objects, c view.Cluster, t leases.RestoreTarget) (member string, plan catalog.Plan, err error) {
	question := []string{"backup", "plan", "--agent-config", agentConfig, "--output", formatJSON}
	if t.Lineage != "" {
		question = append(question, "--lineage", t.Lineage)
	}
	if t.Revision > 0 {
		question = append(question, "--revision", strconv.FormatInt(t.Revision, 10))
	}
	if !t.Time.IsZero() {
		question = append(question, "--time", t.Time.Format(time.RFC3339))
	}
	member, err = k.askAgents(ctx, o, c, question, &plan)
	return member, plan, err
}

func bytesOf(plan catalog.Plan) int64 {
	total := plan.Full.Size
	for _, d := range plan.Deltas {
		total += d.Size
	}
	return total
}

// undone is how many revisions that a member reported are after the one that the plan reaches.
func undone(c view.Cluster, reach int64) *int64 {
	var newest *int64
	for _, m := range c.Members {
		if m.Revision != nil && (newest == nil || *m.Revision > *newest) {
			newest = m.Revision
		}
	}
	if newest == nil {
		return nil
	}
	return new(max(0, *newest-reach))
}

// blockers are what the restore waits for after an approval, or refuses.
func (s selection) blockers(c v1alpha1.EtcdCluster, v view.Cluster) (all []string) {
	if reason := s.keptOff(c); reason != "" {
		all = append(all, reason)
	}
	for _, condition := range v.Conditions {
		switch {
		case condition.Type == v1alpha1.ConditionBackupReady && condition.Status != string(metav1.ConditionTrue):
			all = append(all, "the restore begins with a backup of the present data, and backups do not work. "+condition.Message)
		case condition.Type == v1alpha1.ConditionAllMembersReady && condition.Status == string(metav1.ConditionFalse):
			all = append(all, "all members must stop etcd before the restore. "+condition.Message)
		default: // it does not matter for a restore
		}
	}
	if r := c.Status.Recovery; r != nil && underWay(r.Phase) {
		all = append(all, fmt.Sprintf("a restore or a recovery is under way, in the phase %s: %s", r.Phase, s.invoke(c, "recover")))
	}
	return all
}

// underWay says whether druid carries out a plan.
func underWay(phase v1alpha1.RecoveryPhase) bool {
	return phase == v1alpha1.RecoverySaving || phase == v1alpha1.RecoveryPreparing || phase == v1alpha1.RecoveryExecuting
}
