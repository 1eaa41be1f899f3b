package plugin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/internal/view"
)

// leaderTolerance is how much the clocks of this computer and of druid's node may differ.
const leaderTolerance = time.Minute

// installation is druid as it is installed.
type installation struct {
	*kube
	now         time.Time
	deployments []appsv1.Deployment
	err         error
	// part are the only namespaces in which read looked, if the user may not list Deployments in all of them.
	part []string
}

// read finds druid's Deployments: in all namespaces, or where druid's Pods are, or in the namespace of the manifests.
func (i *installation) read(ctx context.Context) {
	all, err := i.typed.AppsV1().Deployments("").List(ctx, metav1.ListOptions{LabelSelector: druidSelector})
	if err == nil {
		i.deployments = all.Items
		return
	}
	i.part = i.druidNamespaces(ctx)
	for _, namespace := range i.part {
		list, err := i.typed.AppsV1().Deployments(namespace).List(ctx, metav1.ListOptions{LabelSelector: druidSelector})
		if err != nil {
			i.err = err
			return
		}
		i.deployments = append(i.deployments, list.Items...)
	}
}

func (i *installation) checkDefinitions(ctx context.Context) finding {
	var named []string
	for _, resource := range []schema.GroupVersionResource{clusterResource, snapshotResource} {
		name := resource.GroupResource().String()
		object, err := i.dynamic.Resource(definitions).Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return fail("Apply the CustomResourceDefinitions of druid. "+installPage, "%s is missing", name)
		}
		if err != nil {
			return unread("CustomResourceDefinition "+name, err)
		}
		if bad := definitionFinding(*object); bad.Result != checkOK {
			return bad
		}
		named = append(named, name)
	}
	return fine("%s serve %s", strings.Join(named, " and "), v1alpha1.GroupVersion.Version)
}

const crdPage = "https://github.com/etcd-druid/druid/blob/main/docs/how-to/install/upgrade-druid.md"

// definitionFinding looks at the conditions and the versions of a CustomResourceDefinition.
func definitionFinding(o unstructured.Unstructured) finding {
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, item := range conditions {
		c, _ := item.(map[string]any)
		if wanted, known := map[string]string{"Established": "True", "NamesAccepted": "True", "Terminating": "False",
			"NonStructuralSchema": "False"}[fmt.Sprint(c["type"])]; known && c["status"] != wanted {
			return fail("Read its conditions: kubectl describe crd "+o.GetName(), "%s has the condition %v=%v: %v", o.GetName(), c["type"], c["status"], c["message"])
		}
	}
	versions, _, _ := unstructured.NestedSlice(o.Object, "spec", "versions")
	served := map[string]bool{}
	for _, item := range versions {
		v, _ := item.(map[string]any)
		served[fmt.Sprint(v["name"])] = v["served"] == true
	}
	if !served[v1alpha1.GroupVersion.Version] {
		return fail("Use the plugin of the version of druid.", "%s does not serve %s, which this plugin reads", o.GetName(), v1alpha1.GroupVersion.Version)
	}
	stored, _, _ := unstructured.NestedStringSlice(o.Object, "status", "storedVersions")
	for _, name := range stored {
		if _, known := served[name]; !known {
			return fail("Install a version of druid that has it. "+crdPage, "%s has stored objects of version %s, which it does not define", o.GetName(), name)
		}
	}
	return fine("it is established")
}

func (i *installation) checkWebhooks(ctx context.Context) finding {
	validating, err := i.typed.AdmissionregistrationV1().ValidatingWebhookConfigurations().List(ctx, metav1.ListOptions{})
	if err != nil {
		return unread("webhooks", err)
	}
	mutating, err := i.typed.AdmissionregistrationV1().MutatingWebhookConfigurations().List(ctx, metav1.ListOptions{})
	if err != nil {
		return unread("webhooks", err)
	}
	var names []string
	for _, c := range validating.Items {
		for _, w := range c.Webhooks {
			if stopsWrites(w.FailurePolicy, w.Rules) {
				names = append(names, c.Name+"/"+w.Name)
			}
		}
	}
	for _, c := range mutating.Items {
		for _, w := range c.Webhooks {
			if stopsWrites(w.FailurePolicy, w.Rules) {
				names = append(names, c.Name+"/"+w.Name)
			}
		}
	}
	if len(names) > 0 {
		slices.Sort(names)
		return warn("Exclude EtcdClusters and Leases from them, or set failurePolicy: Ignore.",
			"druid has no webhook, but while the servers of these do not answer, neither druid nor the agents can write: %s", strings.Join(names, ", "))
	}
	return fine("no webhook can stop writes of EtcdClusters and Leases")
}

// stopsWrites says whether a webhook that does not answer stops writes of druid's kinds or of Leases.
func stopsWrites(policy *admissionv1.FailurePolicyType, rules []admissionv1.RuleWithOperations) bool {
	if policy != nil && *policy == admissionv1.Ignore {
		return false
	}
	matches := func(r admissionv1.Rule, group, resource string) bool {
		return (slices.Contains(r.APIGroups, "*") || slices.Contains(r.APIGroups, group)) &&
			slices.ContainsFunc(r.Resources, func(one string) bool {
				return one == "*" || one == "*/*" || one == "*/status" && resource != "leases" || strings.HasPrefix(one+"/", resource+"/") // a Lease has no status
			})
	}
	return slices.ContainsFunc(rules, func(r admissionv1.RuleWithOperations) bool {
		return matches(r.Rule, v1alpha1.GroupVersion.Group, "etcdclusters") || matches(r.Rule, v1alpha1.GroupVersion.Group, "etcdsnapshots") ||
			matches(r.Rule, coordinationv1.GroupName, "leases")
	})
}

func (i *installation) checkDeployment(context.Context) finding {
	if i.err != nil {
		return unread("druid's Deployment", i.err)
	}
	if len(i.deployments) == 0 && len(i.part) > 0 {
		return warn("Ask an administrator to run this command.",
			"there is no Deployment with the label %s in namespace %s, and you may not look in all namespaces", druidSelector, strings.Join(i.part, ", "))
	}
	return i.deploymentFinding(i.deployments)
}

func (i *installation) deploymentFinding(all []appsv1.Deployment) finding {
	if len(all) == 0 {
		return fail("Install druid, or start it if it was scaled to zero. "+installPage, "there is no Deployment with the label %s where you may look", druidSelector)
	}
	if len(all) > 1 {
		var where []string
		ready := int32(0)
		for _, d := range all {
			where = append(where, d.Namespace+"/"+d.Name)
			ready += d.Status.ReadyReplicas
		}
		if ready == 0 {
			return fail("Read why: "+i.command("kubectl describe deployment,pods -A -l "+druidSelector),
				"druid is installed more than once, and no replica is ready: %s", strings.Join(where, ", "))
		}
		return warn("Make sure that no two of them watch the same namespace.", "druid is installed more than once: %s", strings.Join(where, ", "))
	}
	d := all[0]
	wanted := int32(1)
	if d.Spec.Replicas != nil {
		wanted = *d.Spec.Replicas
	}
	name, look := d.Namespace+"/"+d.Name, "Read why: "+i.command(fmt.Sprintf("kubectl -n %s describe deployment,pods -l %s", d.Namespace, druidSelector))
	switch {
	case wanted == 0:
		return fail("Start druid: "+i.command(fmt.Sprintf("kubectl -n %s scale deployment %s --replicas 2", d.Namespace, d.Name)), "%s has no replicas", name)
	case d.Status.ReadyReplicas == 0:
		return fail(look, "no replica of %s is ready", name)
	case d.Status.ReadyReplicas < wanted || d.Status.ObservedGeneration < d.Generation || d.Status.UpdatedReplicas < wanted:
		return warn(look, "%d of %d replicas of %s are ready, and %d are up to date", d.Status.ReadyReplicas, wanted, name, d.Status.UpdatedReplicas)
	default:
		return fine("%d of %d replicas of %s are ready", d.Status.ReadyReplicas, wanted, name)
	}
}

func (i *installation) checkLeader(ctx context.Context) finding {
	if len(i.deployments) == 0 {
		return warn("Resolve that check first.", "druid's Deployment is not known")
	}
	d := i.deployments[0]
	if slices.Contains(druidContainer(d).Args, "--leader-elect=false") {
		return fine("the election is switched off")
	}
	namespace, err := i.leaderNamespace(ctx, d)
	if err != nil {
		return unread("the namespace of the Lease of druid's leader", err)
	}
	lease, err := i.typed.CoordinationV1().Leases(namespace).Get(ctx, druidName, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return unread("the Lease of druid's leader", err)
	}
	if err != nil {
		lease = &coordinationv1.Lease{}
	}
	return leaderFinding(*lease, i.now, "Read the logs of druid: "+i.command(fmt.Sprintf("kubectl -n %s logs -l %s", d.Namespace, druidSelector)))
}

func leaderFinding(lease coordinationv1.Lease, now time.Time, look string) finding {
	holder, renewed, lasts := lease.Spec.HolderIdentity, lease.Spec.RenewTime, lease.Spec.LeaseDurationSeconds
	if holder == nil || *holder == "" || renewed == nil || lasts == nil {
		return fail(look, "no replica of druid leads")
	}
	if age := now.Sub(renewed.Time); age > time.Duration(*lasts)*time.Second+leaderTolerance {
		return fail(look, "%s led last, %s ago, and no replica leads now", *holder, age.Round(time.Second))
	}
	return fine("%s leads", *holder)
}

// druidContainer is the container of druid.
func druidContainer(d appsv1.Deployment) corev1.Container {
	for _, c := range d.Spec.Template.Spec.Containers {
		if c.Name == druidName {
			return c
		}
	}
	return corev1.Container{}
}

func (i *installation) checkCluster(ctx context.Context, name string) finding {
	objects, err := i.objects(ctx, name)
	if err != nil {
		if apierrors.IsNotFound(errors.Unwrap(err)) {
			return fail("Read which there are: "+i.command("kubectl druid -n "+i.namespace+" get"), "it does not exist in namespace %s", i.namespace)
		}
		return unread("EtcdCluster "+name, err)
	}
	c := view.Of(objects, i.now)
	next := "See what to do: " + i.invoke(objects.Cluster, "status")
	problem := string(c.State) + ": " + strings.TrimSuffix(c.Explanation(), ".")
	switch c.Health {
	case view.Well:
		return fine("%s", string(c.State)+": "+c.Why)
	case view.NotWell:
		return fail(next, "%s", problem)
	default:
		return warn(next, "%s", problem)
	}
}
