package plugin

import (
	"context"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
)

// hostPathPage explains the label of a namespace with a store on the nodes.
const hostPathPage = installPage + "#permit-directories-of-the-nodes"

// checkDirectories checks that the namespace has the label if a store in it is a directory of the nodes. Without the label, running Pods
// continue, and the API server refuses the next Pod of a member.
func (i *installation) checkDirectories(ctx context.Context) finding {
	clusters, err := i.clusters(ctx, i.namespace)
	if err != nil {
		return unread("EtcdClusters", err)
	}
	var names []string
	for _, c := range clusters {
		if slices.ContainsFunc(storesOf(c), onNodes) {
			names = append(names, c.Name)
		}
	}
	if len(names) == 0 {
		return fine("no EtcdCluster in namespace %s has a store on a hostPath", i.namespace)
	}
	namespace, err := i.typed.CoreV1().Namespaces().Get(ctx, i.namespace, metav1.GetOptions{})
	switch {
	case apierrors.IsForbidden(err):
		return warn("Ask an administrator to run this command. "+hostPathPage,
			"namespace %s, which you may not read, needs the label %s for the stores on a hostPath of %s",
			i.namespace, v1alpha1.LabelAllowHostPath, strings.Join(names, ", "))
	case err != nil:
		return unread("namespace "+i.namespace, err)
	case namespace.Labels[v1alpha1.LabelAllowHostPath] != "true":
		label := "kubectl label ns " + i.namespace + " " + v1alpha1.LabelAllowHostPath + "=true"
		return warn("Ask an administrator to read "+hostPathPage+" and to label the namespace: "+i.command(label),
			"without its label, namespace %s gets no more Pods with a hostPath: the next Pod is refused for %s", i.namespace, strings.Join(names, ", "))
	}
	return fine("namespace %s has the label for stores on a hostPath: %s", i.namespace, strings.Join(names, ", "))
}

// storesOf are the stores that the Pods of a cluster mount.
func storesOf(c v1alpha1.EtcdCluster) (all []v1alpha1.BackupStore) {
	if c.Spec.Backup != nil {
		all = append(all, c.Spec.Backup.Store)
	}
	if b := c.Spec.Bootstrap; b != nil && b.Restore != nil && b.Restore.From != nil && b.Restore.From.Store != nil {
		all = append(all, *b.Restore.From.Store)
	}
	return all
}

// onNodes says whether a store is a directory of the nodes.
func onNodes(s v1alpha1.BackupStore) bool { return s.Directory != nil && s.Directory.HostPath != "" }
