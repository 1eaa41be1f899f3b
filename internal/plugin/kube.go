package plugin

import (
	"context"
	"errors"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	// Users of an auth-provider in their kubeconfig need it. Credential plugins need nothing.
	_ "k8s.io/client-go/plugin/pkg/client/auth"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/view"
	"github.com/etcd-druid/druid/leases"
)

var (
	clusterResource  = v1alpha1.GroupVersion.WithResource("etcdclusters")
	snapshotResource = v1alpha1.GroupVersion.WithResource("etcdsnapshots")
)

// manager is the name under which the API server notes what the plugin writes.
const manager = "kubectl-druid"

// gardenerGroup is the API group of another etcd operator that is called etcd-druid, whose plugin has the same name.
const gardenerGroup = "druid.gardener.cloud"

// kube is a Kubernetes, with the permissions of the user.
type kube struct {
	config    *rest.Config
	dynamic   dynamic.Interface
	typed     kubernetes.Interface
	namespace string
	selection
}

// connect reads the kubeconfig.
func (o *options) connect() (*kube, error) {
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(&o.loading, &o.overrides)
	config, err := loader.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	namespace, _, err := loader.Namespace()
	if err != nil {
		return nil, fmt.Errorf("read the namespace in the kubeconfig: %w", err)
	}
	// The API server limits requests; a plugin makes a few.
	config.QPS, config.WarningHandler = -1, rest.NoWarnings{}
	k := &kube{config: config, namespace: namespace, selection: o.selected()}
	if k.dynamic, err = dynamic.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("connect to Kubernetes: %w", err)
	}
	if k.typed, err = kubernetes.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("connect to Kubernetes: %w", err)
	}
	return k, nil
}

// clusters reads the EtcdClusters of a namespace, or of all if it is empty.
func (k *kube) clusters(ctx context.Context, namespace string) ([]v1alpha1.EtcdCluster, error) {
	list, err := k.dynamic.Resource(clusterResource).Namespace(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, k.explain(ctx, "list EtcdClusters", err)
	}
	return converted[v1alpha1.EtcdCluster](list.Items)
}

// cluster reads one EtcdCluster.
func (k *kube) cluster(ctx context.Context, name string) (v1alpha1.EtcdCluster, error) {
	object, err := k.dynamic.Resource(clusterResource).Namespace(k.namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return v1alpha1.EtcdCluster{}, k.explain(ctx, fmt.Sprintf("get EtcdCluster %s/%s", k.namespace, name), err)
	}
	return convert[v1alpha1.EtcdCluster](*object)
}

// converted reads objects. Fields that this version of the plugin does not know are ignored.
func converted[T any](objects []unstructured.Unstructured) (all []T, err error) {
	for _, object := range objects {
		one, err := convert[T](object)
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}

func convert[T any](object unstructured.Unstructured) (T, error) {
	var one T
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &one); err != nil {
		return one, fmt.Errorf("read %s %s/%s, which another version of druid defines: %w. Use the plugin of that version",
			object.GetKind(), object.GetNamespace(), object.GetName(), err)
	}
	return one, nil
}

// explain says why druid's kinds are unknown to the API server.
func (k *kube) explain(ctx context.Context, what string, err error) error {
	if !apierrors.IsNotFound(err) {
		return fmt.Errorf("%s: %w", what, err)
	}
	groups, discovery := k.typed.Discovery().ServerGroups()
	if discovery != nil || ctx.Err() != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	gardener := false
	for _, group := range groups.Groups {
		if group.Name == v1alpha1.GroupVersion.Group {
			return fmt.Errorf("%s: %w", what, err)
		}
		gardener = gardener || group.Name == gardenerGroup
	}
	if gardener {
		return fmt.Errorf("%s: this Kubernetes has the CustomResourceDefinitions of Gardener's etcd-druid, and not those of this druid. Use the "+
			"plugin of Gardener's etcd-druid, which has the same name", what)
	}
	return fmt.Errorf("%s: %w", what, errNotInstalled)
}

var errNotInstalled = errors.New("druid's CustomResourceDefinitions are not installed in this Kubernetes. Install druid, or choose another " +
	"context with --context")

// optional keeps what could not be read.
type optional struct{ unread []view.Unread }

// keep notes what the user may not read. Any other error ends the command: what is missing then could be what is wrong.
func (o *optional) keep(kind string, err error) error {
	if apierrors.IsForbidden(err) {
		o.unread = append(o.unread, view.Unread{Kind: kind, Problem: err.Error()})
		return nil
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", kind, err)
	}
	return nil
}

func selecting(cluster string) metav1.ListOptions {
	if cluster == "" {
		return metav1.ListOptions{LabelSelector: leases.LabelCluster}
	}
	return metav1.ListOptions{LabelSelector: leases.LabelCluster + "=" + cluster}
}

// leasesOf reads the Leases of a cluster, or of all clusters if its name is empty.
func (k *kube) leasesOf(ctx context.Context, namespace, cluster string, o *optional) ([]coordinationv1.Lease, error) {
	list, err := k.typed.CoordinationV1().Leases(namespace).List(ctx, selecting(cluster))
	if err != nil {
		return nil, o.keep("Leases", err)
	}
	return list.Items, nil
}

// objects reads everything about one cluster.
func (k *kube) objects(ctx context.Context, name string) (view.Objects, error) {
	cluster, err := k.cluster(ctx, name)
	if err != nil {
		return view.Objects{}, err
	}
	var missing optional
	o := view.Objects{Cluster: cluster}
	if o.Leases, err = k.leasesOf(ctx, k.namespace, name, &missing); err != nil {
		return o, err
	}
	if o.Pods, err = k.pods(ctx, name, &missing); err != nil {
		return o, err
	}
	if o.Nodes, err = k.nodes(ctx, o.Pods, &missing); err != nil {
		return o, err
	}
	o.Events, err = k.events(ctx, name, &missing)
	o.Unread = missing.unread
	return o, err
}

func (k *kube) pods(ctx context.Context, cluster string, missing *optional) ([]corev1.Pod, error) {
	list, err := k.typed.CoreV1().Pods(k.namespace).List(ctx, selecting(cluster))
	if err != nil {
		return nil, missing.keep("Pods", err)
	}
	return list.Items, nil
}

func (k *kube) events(ctx context.Context, cluster string, missing *optional) ([]corev1.Event, error) {
	list, err := k.typed.CoreV1().Events(k.namespace).List(ctx,
		metav1.ListOptions{FieldSelector: "involvedObject.kind=EtcdCluster,involvedObject.name=" + cluster})
	if err != nil {
		return nil, missing.keep("Events", err)
	}
	return list.Items, nil
}

// nodes reads the nodes of Pods. Most users may not read nodes, so it stops at the first one that is refused.
func (k *kube) nodes(ctx context.Context, pods []corev1.Pod, missing *optional) (all []corev1.Node, err error) {
	seen := map[string]bool{"": true}
	for _, pod := range pods {
		if seen[pod.Spec.NodeName] {
			continue
		}
		seen[pod.Spec.NodeName] = true
		node, err := k.typed.CoreV1().Nodes().Get(ctx, pod.Spec.NodeName, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err): // it was removed from Kubernetes
		case err != nil:
			return all, missing.keep("Nodes", err)
		default:
			all = append(all, *node)
		}
	}
	return all, nil
}
