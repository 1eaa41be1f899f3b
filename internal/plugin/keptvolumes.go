package plugin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
)

// inspectPage explains how to keep, read and discard the volume of a member.
const inspectPage = "https://github.com/etcd-druid/druid/blob/main/docs/how-to/run/keep-volume.md"

func (o *options) keptVolumesCommand() *cobra.Command {
	output, discard := formatTable, ""
	command := o.forCluster(&cobra.Command{
		Use:   "kept-volumes CLUSTER",
		Short: "List the volumes of removed members that druid kept, or discard one",
		Long: "List the PersistentVolumeClaims of members that left the EtcdCluster and whose volume druid kept.\n" +
			"With --discard, delete the PersistentVolumeClaim of one of them, and with it the data. The command refuses the volume of a present member.",
		Example: "  kubectl druid kept-volumes demo\n  kubectl druid kept-volumes demo --discard demo-bqdq7",
	}, func(cmd *cobra.Command, k *kube, args []string) error {
		c, err := k.cluster(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		kept, err := k.keptVolumes(cmd.Context(), c)
		if err != nil {
			return err
		}
		if cmd.Flags().Changed("discard") {
			return o.discard(cmd, k, c, kept, discard)
		}
		return o.printAs(cmd, k, output, keptDataOf(c, kept), func(p *page) { p.keptVolumes(c, kept) })
	})
	bindOutput(command, &output, dataFormats...)
	command.Flags().StringVar(&discard, "discard", "", "`name` of the member whose volume to delete")
	command.MarkFlagsMutuallyExclusive("discard", "output")
	return command
}

// keptVolumes are the claims of removed members, the oldest first. druid takes the name of the member from a claim that it keeps.
func (k *kube) keptVolumes(ctx context.Context, c v1alpha1.EtcdCluster) ([]corev1.PersistentVolumeClaim, error) {
	list, err := k.typed.CoreV1().PersistentVolumeClaims(c.Namespace).List(ctx,
		metav1.ListOptions{LabelSelector: leases.LabelCluster + "=" + c.Name + ",!" + leases.LabelMember})
	if err != nil {
		return nil, fmt.Errorf("list the PersistentVolumeClaims of removed members of EtcdCluster %s/%s: %w", c.Namespace, c.Name, err)
	}
	slices.SortFunc(list.Items, func(a, b corev1.PersistentVolumeClaim) int {
		return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
	})
	return list.Items, nil
}

// keptData is what kept-volumes prints, as data.
type keptData struct {
	Namespace string       `json:"namespace"`
	Cluster   string       `json:"cluster"`
	Volumes   []keptVolume `json:"volumes"`
	Docs      string       `json:"docs"`
}

// keptVolume is the volume of a removed member. Deleting says that it is gone when no Pod uses it any more.
type keptVolume struct {
	Member   string    `json:"member"`
	Size     string    `json:"size,omitempty"`
	Volume   string    `json:"volume,omitempty"`
	Created  time.Time `json:"created"`
	Deleting bool      `json:"deleting,omitempty"`
}

func keptDataOf(c v1alpha1.EtcdCluster, kept []corev1.PersistentVolumeClaim) keptData {
	d := keptData{Namespace: c.Namespace, Cluster: c.Name, Volumes: []keptVolume{}, Docs: inspectPage}
	for _, claim := range kept {
		d.Volumes = append(d.Volumes, keptVolume{
			Member: claim.Name, Size: sizeOf(claim), Volume: claim.Spec.VolumeName, Created: claim.CreationTimestamp.Time, Deleting: claim.DeletionTimestamp != nil,
		})
	}
	return d
}

// sizeOf is the capacity of a bound claim, and otherwise the size that it requests.
func sizeOf(claim corev1.PersistentVolumeClaim) string {
	size, bound := claim.Status.Capacity[corev1.ResourceStorage]
	if !bound {
		size = claim.Spec.Resources.Requests[corev1.ResourceStorage]
	}
	return size.String()
}

func (p *page) keptVolumes(c v1alpha1.EtcdCluster, kept []corev1.PersistentVolumeClaim) {
	if len(kept) == 0 {
		p.line(cell{text: fmt.Sprintf("druid kept no volume of a removed member of EtcdCluster %s/%s.", c.Namespace, c.Name)})
		return
	}
	var rows [][]cell
	for _, claim := range kept {
		state := cell{text: "kept"}
		if claim.DeletionTimestamp != nil {
			state = cell{"is being deleted", middle}
		}
		rows = append(rows, []cell{{text: claim.Name}, {text: sizeOf(claim)}, {text: or(claim.Spec.VolumeName)}, {text: p.age(claim.CreationTimestamp.Time)}, state})
	}
	p.table([]string{"MEMBER", "SIZE", "VOLUME", "AGE", "STATE"}, rows)
	p.line(cell{text: "Discard one: " + p.invoke(c, "kept-volumes") + " --discard MEMBER"})
	p.line(cell{text: inspectPage})
}

// discard deletes exactly the claim that was listed.
func (o *options) discard(cmd *cobra.Command, k *kube, c v1alpha1.EtcdCluster, kept []corev1.PersistentVolumeClaim, member string) error {
	claim, err := keptOf(c, kept, member)
	if err != nil {
		return fmt.Errorf("discard the volume of member %q of EtcdCluster %s/%s: %w. Nothing was deleted", member, c.Namespace, c.Name, err)
	}
	// A kept claim that changed since it was listed can have a member again only by a user's own edit: then it is not deleted.
	listed := metav1.Preconditions{UID: &claim.UID, ResourceVersion: &claim.ResourceVersion}
	err = k.typed.CoreV1().PersistentVolumeClaims(c.Namespace).Delete(cmd.Context(), claim.Name, metav1.DeleteOptions{Preconditions: &listed})
	if apierrors.IsConflict(err) {
		return fmt.Errorf("delete PersistentVolumeClaim %s/%s: it changed meanwhile. Run the command again: %w", c.Namespace, claim.Name, err)
	}
	if err != nil {
		return fmt.Errorf("delete PersistentVolumeClaim %s/%s: %w", c.Namespace, claim.Name, err)
	}
	p := o.page(cmd, k)
	p.line(cell{text: fmt.Sprintf("You deleted PersistentVolumeClaim %s/%s of a removed member. Its reclaim policy decides whether the volume goes too.",
		c.Namespace, claim.Name)})
	p.line(cell{text: "If a Pod uses it, it goes when that Pod has ended: " + k.invoke(c, "kept-volumes")})
	return p.err
}

// keptOf returns the kept claim of the member, or why there is none.
func keptOf(c v1alpha1.EtcdCluster, kept []corev1.PersistentVolumeClaim, member string) (corev1.PersistentVolumeClaim, error) {
	var names []string
	for _, claim := range kept {
		if claim.Name == member {
			if claim.DeletionTimestamp != nil {
				return claim, errors.New("its PersistentVolumeClaim is being deleted already, and goes when no Pod uses it")
			}
			return claim, nil
		}
		names = append(names, claim.Name)
	}
	switch {
	case slices.Contains(memberNames(c), member):
		return corev1.PersistentVolumeClaim{}, errors.New("it is a present member, and its volume is in use")
	case len(names) == 0:
		return corev1.PersistentVolumeClaim{}, errors.New("druid kept no volume of a removed member")
	default:
		return corev1.PersistentVolumeClaim{}, fmt.Errorf("druid kept no volume of it. It kept those of %s", strings.Join(names, ", "))
	}
}

// keepable says why no volume can be kept.
func keepable(c v1alpha1.EtcdCluster) error {
	if c.Spec.Storage.Medium != "" {
		return fmt.Errorf("there is no volume to keep: spec.storage.medium is %s, and its data goes with its Pod", c.Spec.Storage.Medium)
	}
	return nil
}

// keeping is the annotation with one member more. Names of members that have left stay: druid might not have reached their claims yet.
func keeping(c v1alpha1.EtcdCluster, member string) string {
	names := v1alpha1.MemberNames(c.Annotations[v1alpha1.KeepVolumeAnnotation])
	if !slices.Contains(names, member) {
		names = append(names, member)
	}
	return strings.Join(names, ",")
}
