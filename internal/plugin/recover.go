package plugin

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/view"
)

// recoveryPage explains a recovery from a lost quorum, and inPlacePage a restore in place.
const (
	recoveryPage = "https://github.com/etcd-druid/druid/blob/main/docs/how-to/rescue/quorum-lost.md"
	inPlacePage  = "https://github.com/etcd-druid/druid/blob/main/docs/how-to/back-up/restore-in-place.md"
)

func (o *options) recoverCommand() *cobra.Command {
	var hash string
	w := waiting{timeout: waitTimeout}
	output := formatTable
	command := o.forCluster(&cobra.Command{
		Use:   "recover CLUSTER",
		Short: "Show the plan of a recovery or of a restore in place, or approve it",
		Long: "Show the plan of druid to recover an EtcdCluster from a lost quorum, or to restore it in place. This changes nothing.\n" +
			"With --approve, set the annotation " + v1alpha1.RecoverAnnotation + " to the hash of the plan. druid then carries out this plan and no other.\n" +
			"With --wait too, show the progress, and end when the cluster was formed again. An interrupt ends the command, and not the recovery.",
		Example: "  kubectl druid recover demo\n  kubectl druid recover demo --approve 5d41402abc4b2a76 --wait",
	}, func(cmd *cobra.Command, k *kube, args []string) error {
		if err := w.needs(cmd, "approve"); err != nil {
			return err
		}
		cluster, err := k.cluster(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		if !cmd.Flags().Changed("approve") {
			return o.printAs(cmd, k, output, k.recoveryData(cluster), func(p *page) { p.recovery(cluster) })
		}
		if err := k.approvable(cluster, hash); err != nil {
			return fmt.Errorf("approve the plan of EtcdCluster %s/%s: %w", cluster.Namespace, cluster.Name, err)
		}
		patch := map[string]any{"metadata": map[string]any{"annotations": map[string]any{v1alpha1.RecoverAnnotation: hash}}}
		if err := k.patch(cmd, cluster, patch); err != nil {
			return err
		}
		p := o.page(cmd, k)
		p.line(cell{text: fmt.Sprintf("You approved plan %s of EtcdCluster %s/%s. druid carries it out.", hash, cluster.Namespace, cluster.Name)})
		p.line(cell{text: "See the progress: " + k.invoke(cluster, "recover")})
		return w.awaitRecovery(cmd, k, p, cluster, hash)
	})
	command.Flags().StringVar(&hash, "approve", "", "`hash` of the plan that you approve")
	w.bind(command, "the plan was carried out, or druid refuses it. It needs --approve")
	bindOutput(command, &output, dataFormats...)
	command.MarkFlagsMutuallyExclusive("approve", "output")
	return command
}

// approvable says why the plan cannot be approved.
func (s selection) approvable(c v1alpha1.EtcdCluster, hash string) error {
	r := c.Status.Recovery
	switch {
	case r == nil || r.Plan == nil:
		return errors.New("druid has no plan. Nothing was changed")
	case r.Approve == "":
		return fmt.Errorf("the plan needs no approval: its phase is %s. Nothing was changed", r.Phase)
	case r.Plan.Hash != hash:
		return fmt.Errorf("the plan has the hash %s now, and not %q. Nothing was changed. Read the plan again", r.Plan.Hash, hash)
	case !strings.HasSuffix(r.Approve, v1alpha1.RecoverAnnotation+"="+hash):
		return fmt.Errorf("another version of druid wants another command: %s", r.Approve)
	default:
		return nil
	}
}

// patch changes an EtcdCluster by a merge patch.
func (k *kube) patch(cmd *cobra.Command, c v1alpha1.EtcdCluster, patch map[string]any) error {
	raw, err := json.Marshal(patch)
	if err != nil {
		return fmt.Errorf("patch EtcdCluster %s/%s: %w", c.Namespace, c.Name, err)
	}
	_, err = k.dynamic.Resource(clusterResource).Namespace(c.Namespace).Patch(cmd.Context(), c.Name, types.MergePatchType, raw,
		metav1.PatchOptions{FieldManager: manager})
	if apierrors.IsConflict(err) {
		return fmt.Errorf("patch EtcdCluster %s/%s: it changed meanwhile, and nothing was written. Run the command again: %w", c.Namespace, c.Name, err)
	}
	if err != nil {
		return fmt.Errorf("patch EtcdCluster %s/%s: %w", c.Namespace, c.Name, err)
	}
	return nil
}

// recovery prints status.recovery.
func (p *page) recovery(c v1alpha1.EtcdCluster) {
	r := c.Status.Recovery
	if r == nil {
		p.line(cell{text: fmt.Sprintf("EtcdCluster %s/%s needs no recovery, as far as druid knows.", c.Namespace, c.Name)})
		return
	}
	p.line(cell{c.Namespace + "/" + c.Name, strong}, cell{text: "  Recovery: "}, cell{or(string(r.Phase)), middle})
	p.line(cell{text: sentence(r.Message)})
	if r.Plan != nil {
		p.plan(*r.Plan)
	}
	if r.Last != nil {
		p.field("Last", cell{text: fmt.Sprintf("epoch %d from %s of %s, %s ago", r.Last.Epoch, r.Last.Source, or(r.Last.Member), p.age(r.Last.At.Time))})
	}
	p.line()
	if approve := p.approveCommand(c); approve != "" {
		advice := "Bring the members back instead, if you can: then no write is lost. Otherwise approve the plan:"
		if restores(r.Plan) {
			advice = "Approve the plan:"
		}
		p.line(cell{text: advice})
		p.line(cell{text: "  " + approve})
	}
	p.line(cell{text: pageOfRecovery(c)})
}

// approveCommand is the command that approves the plan. It is empty if no plan waits for an approval.
func (s selection) approveCommand(c v1alpha1.EtcdCluster) string {
	r := c.Status.Recovery
	if r.Plan == nil || r.Approve == "" {
		return ""
	}
	return s.invoke(c, "recover") + " --approve " + r.Plan.Hash
}

// pageOfRecovery is the page about what status.recovery says.
func pageOfRecovery(c v1alpha1.EtcdCluster) string {
	if r := c.Status.Recovery; restores(r.Plan) || r.Plan == nil && planless(c) {
		return inPlacePage
	}
	return recoveryPage
}

// restores says whether the plan is that of a restore in place.
func restores(plan *v1alpha1.RecoveryPlan) bool {
	return plan != nil && plan.Source == v1alpha1.RecoveryFromRestore
}

// planless says whether a requested restore in place has no plan yet. The request can stay in the spec after the restore, so a lost
// quorum counts more.
func planless(c v1alpha1.EtcdCluster) bool {
	requested := c.Spec.Recovery != nil && c.Spec.Recovery.Restore != nil
	switch c.Status.Recovery.Phase {
	case v1alpha1.RecoveryPlanning:
		return requested
	case v1alpha1.RecoveryRefused:
		lost := slices.ContainsFunc(c.Status.Conditions, func(one metav1.Condition) bool { return one.Reason == v1alpha1.ReasonRecoveryRefused })
		return requested && !lost
	default:
		return false
	}
}

// restorePlan prints the plan of a restore in place.
func (p *page) restorePlan(plan v1alpha1.RecoveryPlan) {
	p.line()
	p.field("Target", cell{text: plan.Target})
	p.field("Source", cell{text: fmt.Sprintf("%s, from %s and %s", plan.Backup, plan.Full, counted(int(plan.Deltas), "delta backup"))})
	undone := cell{text: "nothing, or not comparable"}
	if plan.LostRevisions != nil {
		undone = cell{"at least " + number(plan.LostRevisions) + " revisions", bad}
	}
	p.field("Undone", undone)
	for _, note := range plan.Notes {
		p.field("Note", cell{text: note})
	}
	p.field("Hash", cell{text: plan.Hash})
}

func (p *page) plan(plan v1alpha1.RecoveryPlan) {
	if restores(&plan) {
		p.restorePlan(plan)
		return
	}
	p.line()
	source := "the disk of member " + plan.Member
	if plan.Source == v1alpha1.RecoveryFromBackup {
		source = "the backup " + plan.Backup + ", on member " + plan.Member
	}
	p.field("Source", cell{text: source})
	p.field("Data", cell{text: "certain up to revision " + number(view.Known(plan.Revision))})
	p.field("Lost", cell{lost(plan), bad})
	if len(plan.GiveUp) > 0 {
		p.field("Gives up", cell{strings.Join(plan.GiveUp, ", ") + ". Your approval asserts that their data is destroyed", bad})
	}
	p.field("Hash", cell{text: plan.Hash})
}

// lost is the loss of a plan.
func lost(plan v1alpha1.RecoveryPlan) string {
	var parts []string
	if plan.LostRevisions != nil {
		parts = append(parts, number(plan.LostRevisions)+" revisions")
	}
	if plan.LostSeconds != nil {
		parts = append(parts, number(plan.LostSeconds)+" seconds of writes")
	}
	if len(parts) == 0 {
		return unknown
	}
	return "at most " + strings.Join(parts, " and ")
}
