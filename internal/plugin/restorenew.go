package plugin

import (
	"context"
	"errors"
	"fmt"
	"path"
	"regexp"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/cli"
	"github.com/etcd-druid/druid/internal/view"
	"github.com/etcd-druid/druid/leases"
)

// clusterName and maxClusterName are what the API server accepts as the name of an EtcdCluster.
var clusterName = regexp.MustCompile(`^[a-z]([a-z0-9-]*[a-z0-9])?$`)

const maxClusterName = 50

// restoreToNew prints an EtcdCluster that starts with a backup of this one.
func (o *options) restoreToNew(cmd *cobra.Command, k *kube, objects view.Objects, c view.Cluster, target leases.RestoreTarget, f restoreFlags) error {
	doing := fmt.Sprintf("restore EtcdCluster %s/%s into a new one", k.namespace, c.Name)
	if err := k.nameable(cmd.Context(), c.Name, f.toNew); err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	r := restoring{Namespace: k.namespace, Cluster: c.Name, Target: target.String()}
	// A cluster that is paused, or lost all its Pods, can start again elsewhere. Its backups need no agent of its own.
	err := cli.NewProgress(cmd.ErrOrStderr()).During(agentReads, func() (err error) {
		r.Member, r.Plan, err = k.askPlan(cmd.Context(), objects, c, target)
		return err
	})
	if err != nil && (!errors.Is(err, errNoAgent) || target.Lineage != "") {
		return fmt.Errorf("%s: %w", doing, err)
	}
	r.Bytes = bytesOf(r.Plan)
	if target.Lineage != "" {
		if err := k.sameWithoutLineage(cmd.Context(), objects, c, target, r); err != nil {
			return fmt.Errorf("%s: %w", doing, err)
		}
	}
	source, err := k.dynamic.Resource(clusterResource).Namespace(k.namespace).Get(cmd.Context(), c.Name, metav1.GetOptions{})
	if err != nil {
		return k.explain(cmd.Context(), fmt.Sprintf("get EtcdCluster %s/%s", k.namespace, c.Name), err)
	}
	created := successor(source.Object, f.toNew, target)
	if f.output == formatJSON {
		return printData(cmd.OutOrStdout(), created, formatJSON)
	}
	p := newPage(cmd.OutOrStdout(), o.now())
	p.print(commented(warnings(r, objects.Cluster, f.toNew)...))
	if p.err != nil {
		return p.err
	}
	return printData(cmd.OutOrStdout(), created, formatYAML)
}

// nameable says why the new EtcdCluster cannot have the name.
func (k *kube) nameable(ctx context.Context, source, name string) error {
	if !clusterName.MatchString(name) || len(name) > maxClusterName {
		return fmt.Errorf("--to-new is %q, want at most %d lower-case letters, digits and dashes, with a letter first", name, maxClusterName)
	}
	if name == source {
		return errors.New("--to-new is the name of this EtcdCluster. To restore in place, leave it out")
	}
	_, err := k.dynamic.Resource(clusterResource).Namespace(k.namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case err == nil:
		return fmt.Errorf("EtcdCluster %s/%s exists already. A restore needs a new one: choose another name for --to-new", k.namespace, name)
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err): // a user may be restricted to some names
		return nil
	default:
		return fmt.Errorf("get EtcdCluster %s/%s: %w", k.namespace, name, err)
	}
}

// sameWithoutLineage says that a new EtcdCluster would be restored to another state: its spec has no field for a lineage.
func (k *kube) sameWithoutLineage(ctx context.Context, o view.Objects, c view.Cluster, target leases.RestoreTarget, r restoring) error {
	target.Lineage = ""
	_, plain, err := k.askPlan(ctx, o, c, target)
	if _, ended := errors.AsType[answer](err); err != nil && !ended {
		return err
	}
	if err == nil && plain.Full.Key == r.Plan.Full.Key && plain.Reach == r.Plan.Reach {
		return nil
	}
	return fmt.Errorf("spec.bootstrap.restore.to cannot name a lineage, and without one %s is not in lineage %s. "+
		"To restore a full backup of that lineage, set spec.bootstrap.restore.to.name, for example to %s", target, r.Plan.Full.Lineage, path.Base(r.Plan.Full.Key))
}

// successor is an EtcdCluster with the spec of another one, that starts with a backup of it.
func successor(source map[string]any, name string, target leases.RestoreTarget) map[string]any {
	// It was read from the API server, so its spec is a map.
	spec, _, _ := unstructured.NestedMap(source, "spec")
	sourceName, _, _ := unstructured.NestedString(source, "metadata", "name")
	namespace, _, _ := unstructured.NestedString(source, "metadata", "namespace")
	unstructured.RemoveNestedField(spec, "recovery", "restore")
	if replicas, found, _ := unstructured.NestedInt64(spec, "replicas"); found && replicas == 0 {
		delete(spec, "replicas") // the default starts members, and 0 would start none
	}
	restore := map[string]any{"from": map[string]any{"name": sourceName}}
	to := fieldsOf(requestOf(target))
	delete(to, "latest") // it is the default here, and the newest lineage too
	delete(to, "lineage")
	if len(to) > 0 {
		restore["to"] = to
	}
	spec["bootstrap"] = map[string]any{"restore": restore}
	return map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": "EtcdCluster",
		"metadata": map[string]any{"namespace": namespace, "name": name}, "spec": spec,
	}
}

// warnings are what a user must know before the EtcdCluster is created.
func warnings(r restoring, c v1alpha1.EtcdCluster, name string) []string {
	lines := []string{
		fmt.Sprintf("EtcdCluster %s/%s starts with %s of EtcdCluster %s/%s, which stays as it is.", r.Namespace, name, r.Target, r.Namespace, r.Cluster),
	}
	if r.Member == "" {
		lines = append(lines, "No agent of that cluster could be reached, so it is not known whether its backups lead to this state. See "+commandLinePage)
	} else {
		lines = append(lines, fmt.Sprintf("It reads %s of lineage %s, up to revision %s.", reads(r), r.Plan.Full.Lineage, number(&r.Plan.Reach)))
	}
	for _, note := range r.Plan.Notes {
		lines = append(lines, sentence(note))
	}
	if tls := c.Spec.TLS; tls != nil && (tls.Client != nil && tls.Client.SecretRef != nil || tls.Peer != nil && tls.Peer.SecretRef != nil) {
		lines = append(lines, "Your own certificates must also cover the names of the new cluster.")
	}
	if c.Spec.ClientService != nil && len(c.Spec.ClientService.Annotations) > 0 {
		lines = append(lines, "Check spec.clientService.annotations: a DNS name or an address there belongs to the other cluster.")
	}
	if c.Spec.Replicas == 0 {
		lines = append(lines, "The other cluster is paused. This one has the default number of members.")
	}
	return append(lines, "Read the spec, and create the EtcdCluster: kubectl apply -f FILE. "+restorePage)
}
