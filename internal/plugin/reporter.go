package plugin

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/cli"
	"github.com/etcd-druid/druid/internal/view"
	"github.com/etcd-druid/druid/leases"
)

const (
	// maxLog bounds a log in a report, in bytes: its end stays.
	maxLog = 2 << 20
	// druidName is the name of druid's Deployment, of its Lease, and the value of its label.
	druidName = "druid"
	// druidSelector selects what belongs to druid itself.
	druidSelector = "app.kubernetes.io/name=" + druidName
	// druidNamespace is where druid runs, unless its Pods are found elsewhere.
	druidNamespace = "druid-system"
)

// reportedKind is a kind of objects in a report.
type reportedKind struct {
	file     string
	resource schema.GroupVersionResource
}

var (
	coreGroup = schema.GroupVersion{Version: "v1"}
	appsGroup = schema.GroupVersion{Group: "apps", Version: "v1"}
	leaseKind = schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}
	budgets   = schema.GroupVersionResource{Group: "policy", Version: "v1", Resource: "poddisruptionbudgets"}
	// definitions are the CustomResourceDefinitions.
	definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	eventKind   = coreGroup.WithResource("events")

	// clusterKinds have the label of the cluster.
	clusterKinds = []reportedKind{
		{"leases", leaseKind},
		{"pods", coreGroup.WithResource("pods")},
		{"persistentvolumeclaims", coreGroup.WithResource("persistentvolumeclaims")},
		{"services", coreGroup.WithResource("services")},
		{"configmaps", coreGroup.WithResource("configmaps")},
		{"poddisruptionbudgets", budgets},
	}
	// druidKinds have the label of druid.
	druidKinds = []reportedKind{
		{"druid-deployments", appsGroup.WithResource("deployments")},
		{"druid-pods", coreGroup.WithResource("pods")},
		{"druid-poddisruptionbudgets", budgets},
	}
)

// reporter fills a bundle. What cannot be read is missing in it, and the bundle says so.
type reporter struct {
	*kube
	bundle *bundle
	tail   int64
	images map[string]bool
}

// all reads everything.
func (r *reporter) all(ctx context.Context, clusters []v1alpha1.EtcdCluster) {
	r.images = map[string]bool{}
	names := make([]string, 0, len(clusters))
	for _, c := range clusters {
		names = append(names, c.Name)
		r.pages(ctx, c.Name)
	}
	r.clusters(ctx, names)
	for _, namespace := range r.druidNamespaces(ctx) {
		r.druid(ctx, namespace)
	}
	r.versions(ctx)
}

// pages adds what status and why print.
func (r *reporter) pages(ctx context.Context, name string) {
	objects, err := r.objects(ctx, name)
	if err != nil {
		r.bundle.problem("status and why of EtcdCluster "+name, err)
		return
	}
	c := view.Of(objects, r.bundle.now)
	var status, why strings.Builder
	(&page{w: &status, now: r.bundle.now}).status(c)
	(&page{w: &why, now: r.bundle.now}).why(c)
	r.bundle.text(r.namespace+"/"+name+"/status.txt", status.String())
	r.bundle.text(r.namespace+"/"+name+"/why.txt", why.String())
}

// clusters adds the objects of the EtcdClusters, and their logs.
func (r *reporter) clusters(ctx context.Context, names []string) {
	mine := func(o unstructured.Unstructured) bool {
		return slices.Contains(names, o.GetLabels()[leases.LabelCluster])
	}
	about := subjects{}
	for _, name := range names {
		about[subject{"EtcdCluster", name}] = true
	}
	r.list(ctx, r.namespace, reportedKind{"etcdclusters", clusterResource}, "",
		func(o unstructured.Unstructured) bool { return slices.Contains(names, o.GetName()) })
	about.add(r.list(ctx, r.namespace, reportedKind{"etcdsnapshots", snapshotResource}, "", func(o unstructured.Unstructured) bool {
		of, _, _ := unstructured.NestedString(o.Object, "spec", "clusterRef", "name")
		return slices.Contains(names, of)
	}))
	for _, kind := range clusterKinds {
		found := r.list(ctx, r.namespace, kind, leases.LabelCluster, mine)
		about.add(found)
		if kind.file == "pods" {
			r.logs(ctx, r.namespace, found)
		}
	}
	r.list(ctx, r.namespace, reportedKind{"events", eventKind}, "", about.of)
}

// druid adds druid itself.
func (r *reporter) druid(ctx context.Context, namespace string) {
	about := subjects{}
	for _, kind := range druidKinds {
		found := r.list(ctx, namespace, kind, druidSelector, nil)
		about.add(found)
		if kind.file == "druid-pods" {
			r.logs(ctx, namespace, found)
		}
	}
	about.add(r.list(ctx, namespace, reportedKind{"druid-leases", leaseKind}, "", func(o unstructured.Unstructured) bool { return o.GetName() == druidName }))
	r.list(ctx, namespace, reportedKind{"druid-events", eventKind}, "", about.of)
}

// subject is an object that Events can be about, and subjects are those in a report.
type (
	subject  struct{ kind, name string }
	subjects map[subject]bool
)

func (s subjects) add(all []unstructured.Unstructured) {
	for _, o := range all {
		s[subject{o.GetKind(), o.GetName()}] = true
	}
}

// of says whether an Event is about one of them, or about a ReplicaSet of one of them. The name of a ReplicaSet is that of its
// Deployment and a hash.
func (s subjects) of(event unstructured.Unstructured) bool {
	kind, _, _ := unstructured.NestedString(event.Object, "involvedObject", "kind")
	name, _, _ := unstructured.NestedString(event.Object, "involvedObject", "name")
	if kind == "ReplicaSet" {
		if dash := strings.LastIndexByte(name, '-'); dash > 0 {
			return s[subject{"Deployment", name[:dash]}]
		}
	}
	return s[subject{kind, name}]
}

// druidNamespaces are those in which druid runs.
func (k *kube) druidNamespaces(ctx context.Context) []string {
	found := map[string]bool{}
	pods, _ := k.druidPods(ctx) // without them, it is the namespace of the manifests
	for _, pod := range pods {
		found[pod.Namespace] = true
	}
	if len(found) == 0 {
		return []string{druidNamespace}
	}
	return slices.Sorted(maps.Keys(found))
}

// list adds the objects of a kind that are wanted, and returns them.
func (r *reporter) list(ctx context.Context, namespace string, kind reportedKind, selector string,
	wanted func(unstructured.Unstructured) bool) []unstructured.Unstructured {
	list, err := r.dynamic.Resource(kind.resource).Namespace(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		r.bundle.problem(kind.resource.Resource+" in namespace "+namespace, err)
		return nil
	}
	if wanted != nil {
		list.Items = slices.DeleteFunc(list.Items, func(o unstructured.Unstructured) bool { return !wanted(o) })
	}
	r.bundle.objects(namespace+"/"+kind.file+".yaml", list.Items)
	return list.Items
}

// logs adds the logs of druid's containers in Pods, also of containers that ended before.
func (r *reporter) logs(ctx context.Context, namespace string, pods []unstructured.Unstructured) {
	for _, object := range pods {
		pod, err := convert[corev1.Pod](object)
		if err != nil {
			r.bundle.problem("logs of Pod "+object.GetName(), err)
			continue
		}
		for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
			if !slices.Contains(ownContainers, c.Name) {
				continue
			}
			r.images[c.Image] = true
			r.oneLog(ctx, namespace, logSource{pod.Name, c.Name}, false)
			if restarted(pod, c.Name) {
				r.oneLog(ctx, namespace, logSource{pod.Name, c.Name}, true)
			}
		}
	}
}

func restarted(pod corev1.Pod, container string) bool {
	return slices.ContainsFunc(slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses), func(s corev1.ContainerStatus) bool {
		return s.Name == container && s.RestartCount > 0
	})
}

func (r *reporter) oneLog(ctx context.Context, namespace string, s logSource, previous bool) {
	name := s.container
	if previous {
		name += ".previous"
	}
	stream, err := r.typed.CoreV1().Pods(namespace).GetLogs(s.pod,
		&corev1.PodLogOptions{Container: s.container, TailLines: &r.tail, Timestamps: true, Previous: previous}).Stream(ctx)
	if err != nil {
		r.bundle.problem(fmt.Sprintf("log of %s in Pod %s/%s", name, namespace, s.pod), err)
		return
	}
	defer func() { _ = stream.Close() }()
	end := &lastBytes{max: maxLog}
	if _, err := io.Copy(end, stream); err != nil {
		r.bundle.problem(fmt.Sprintf("end of the log of %s in Pod %s/%s", name, namespace, s.pod), err)
	}
	r.bundle.text(fmt.Sprintf("%s/logs/%s/%s.log", namespace, s.pod, name), end.String())
}

// lastBytes keeps the end of what is written to it, from the beginning of a line.
type lastBytes struct {
	kept []byte
	cut  bool
	max  int
}

func (l *lastBytes) Write(p []byte) (int, error) {
	l.kept = append(l.kept, p...)
	if len(l.kept) > 2*l.max { // rarely, for it moves everything
		l.trim()
	}
	return len(p), nil
}

func (l *lastBytes) trim() {
	if extra := len(l.kept) - l.max; extra > 0 {
		l.kept, l.cut = append(l.kept[:0], l.kept[extra:]...), true
	}
}

func (l *lastBytes) String() string {
	l.trim()
	text := string(l.kept)
	if l.cut {
		_, text, _ = strings.Cut(text, "\n")
	}
	return text
}

// versions adds what runs.
func (r *reporter) versions(ctx context.Context) {
	var text strings.Builder
	fmt.Fprintf(&text, "plugin       %s\n", cli.Version())
	if server, err := r.typed.Discovery().ServerVersion(); err != nil {
		r.bundle.problem("version of Kubernetes", err)
	} else {
		fmt.Fprintf(&text, "kubernetes   %s on %s\n", server.GitVersion, server.Platform)
	}
	if served, err := r.served(); err != nil {
		r.bundle.problem("versions of druid's API", err)
	} else {
		fmt.Fprintf(&text, "api          %s\n", strings.Join(served, ", "))
	}
	for _, image := range slices.Sorted(maps.Keys(r.images)) {
		fmt.Fprintf(&text, "image        %s\n", image)
	}
	for _, resource := range []schema.GroupVersionResource{clusterResource, snapshotResource} {
		definition, err := r.dynamic.Resource(definitions).Get(ctx, resource.GroupResource().String(), metav1.GetOptions{})
		switch {
		case apierrors.IsForbidden(err): // of interest to few
		case err != nil:
			r.bundle.problem("CustomResourceDefinition "+resource.GroupResource().String(), err)
		default:
			stored, _, _ := unstructured.NestedStringSlice(definition.Object, "status", "storedVersions")
			fmt.Fprintf(&text, "definition   %s, generation %d, stored %s\n", definition.GetName(), definition.GetGeneration(), strings.Join(stored, ", "))
		}
	}
	r.bundle.text("versions.txt", text.String())
}
