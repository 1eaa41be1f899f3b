package plugin

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// druidLines is how many of the last lines of each log of druid are searched for one EtcdCluster. It is a chosen bound: druid
// logs all clusters to one log, and a line has about 300 bytes.
const druidLines = 20000

// druidLogs are the logs of druid, of which only the lines about the EtcdCluster are wanted. missing says why there are none.
func (k *kube) druidLogs(ctx context.Context, cluster string) (all []logStream, missing string) {
	pods, err := k.druidPods(ctx)
	if err != nil {
		return nil, fmt.Sprintf("The logs of druid are not shown: list the Pods of druid: %v", err)
	}
	about := func(line string) bool { return aboutCluster(line, k.namespace, cluster) }
	for _, pod := range pods {
		if slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == druidName }) {
			all = append(all, logStream{logSource{pod.Name, druidName}, pod.Namespace, about})
		}
	}
	if len(all) == 0 {
		return nil, "The logs of druid are not shown: no Pod has the label " + druidSelector
	}
	return all, ""
}

// druidPods lists druid's own Pods in all namespaces. Who may not do that gets those in the namespace of the manifests.
func (k *kube) druidPods(ctx context.Context) ([]corev1.Pod, error) {
	selector := metav1.ListOptions{LabelSelector: druidSelector}
	list, err := k.typed.CoreV1().Pods("").List(ctx, selector)
	if apierrors.IsForbidden(err) {
		list, err = k.typed.CoreV1().Pods(druidNamespace).List(ctx, selector)
	}
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// aboutCluster says whether a line of druid's log is about the EtcdCluster. Lines of druid have the name as cluster, and those of
// controller-runtime have it as name, with the kind.
func aboutCluster(line, namespace, cluster string) bool {
	var fields struct{ Namespace, Cluster, Name, ControllerKind string }
	_, text, _ := strings.Cut(line, " ")
	if json.Unmarshal([]byte(text), &fields) != nil || fields.Namespace != namespace {
		return false
	}
	return fields.Cluster == cluster || fields.Name == cluster && fields.ControllerKind == "EtcdCluster"
}
