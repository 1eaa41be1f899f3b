package plugin

import (
	"context"
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/etcd-druid/druid/api/v1alpha1"
)

// oldest is the oldest Kubernetes that runs druid: docs/how-to/install/install.md.
const oldest = "1.32"

func (k *kube) checkVersion(context.Context) finding {
	server, err := k.typed.Discovery().ServerVersion()
	if err != nil {
		return unread("the version of Kubernetes", err)
	}
	return versionFinding(server.GitVersion)
}

func versionFinding(text string) finding {
	found, err := version.ParseGeneric(text)
	switch {
	case err != nil:
		return warn("Check by hand that it is "+oldest+" or newer.", "the API server has the version %q, which is no version of Kubernetes", text)
	case found.LessThan(version.MustParseGeneric(oldest)):
		return fail("Upgrade Kubernetes to "+oldest+" or newer. The agent is a restartable init container. "+installPage, "%s is older than %s", text, oldest)
	default:
		return fine("%s is %s or newer", text, oldest)
	}
}

// neededAPIs are those that druid uses and that the installation has, each with a resource.
var neededAPIs = map[string]string{
	"v1": "pods", "apps/v1": "deployments", "coordination.k8s.io/v1": "leases", "policy/v1": "poddisruptionbudgets",
	"rbac.authorization.k8s.io/v1": "clusterroles",
	"networking.k8s.io/v1":         "networkpolicies", "discovery.k8s.io/v1": "endpointslices", "events.k8s.io/v1": "events",
	"storage.k8s.io/v1":       "storageclasses",
	"apiextensions.k8s.io/v1": "customresourcedefinitions", "admissionregistration.k8s.io/v1": "validatingadmissionpolicies",
}

func (k *kube) checkAPIs(context.Context) finding {
	var missing []string
	for api, resource := range neededAPIs {
		list, err := k.typed.Discovery().ServerResourcesForGroupVersion(api)
		if err != nil && !apierrors.IsNotFound(err) {
			return unread(api, err)
		}
		if err != nil || !slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == resource }) {
			missing = append(missing, resource+" of "+api)
		}
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		return fail("Switch these APIs on in the API server, or upgrade Kubernetes. "+installPage, "the API server does not serve %s", strings.Join(missing, ", "))
	}
	return fine("the API server serves all that druid uses")
}

func (k *kube) checkStorage(ctx context.Context) finding {
	list, err := k.typed.StorageV1().StorageClasses().List(ctx, metav1.ListOptions{})
	if err != nil {
		return unread("StorageClasses", err)
	}
	return storageFinding(list.Items)
}

const nameClass = "Set spec.storage.storageClassName in each EtcdCluster, or make one StorageClass the default."

func storageFinding(all []storagev1.StorageClass) finding {
	var names, defaults []string
	for _, class := range all {
		names = append(names, class.Name)
		if class.Annotations["storageclass.kubernetes.io/is-default-class"] == "true" {
			defaults = append(defaults, class.Name)
		}
	}
	switch {
	case len(all) == 0:
		return warn("Install a provisioner of volumes, or create the volumes yourself: "+
			"https://github.com/etcd-druid/druid/blob/main/docs/how-to/run/static-volumes.md", "there is no StorageClass")
	case len(defaults) == 0:
		return warn(nameClass, "none of %s is the default", strings.Join(names, ", "))
	case len(defaults) > 1:
		return warn(nameClass, "StorageClasses %s are the default, and Kubernetes uses the newest", strings.Join(defaults, " and "))
	default:
		return fine("StorageClass %s is the default", defaults[0])
	}
}

// checkOthers finds kinds of other operators with names that people mix up with those of druid.
func (k *kube) checkOthers(context.Context) finding {
	groups, err := k.typed.Discovery().ServerGroups()
	if err != nil {
		return unread("the API groups", err)
	}
	var same []string
	for _, group := range groups.Groups {
		if group.Name == gardenerGroup {
			return warn("Make sure which kubectl-druid comes first in your PATH.", "Gardener's etcd-druid is here (%s), and its plugin has the same name", gardenerGroup)
		}
		if group.Name == v1alpha1.GroupVersion.Group {
			continue
		}
		// An API that does not answer now has no name that matters.
		list, err := k.typed.Discovery().ServerResourcesForGroupVersion(group.PreferredVersion.GroupVersion)
		if err == nil && slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == clusterResource.Resource }) {
			same = append(same, group.Name)
		}
	}
	if len(same) > 0 {
		return warn("Use the full name in commands of kubectl: "+clusterResource.GroupResource().String()+".", "%s also has %s",
			strings.Join(same, ", "), clusterResource.Resource)
	}
	return fine("no other operator has the same names")
}

// right is something that a user may do, and for what it is needed.
type right struct {
	verb, group, resource, subresource, namespace string
	needed                                        string
}

func (r right) String() string {
	what := r.resource
	if r.subresource != "" {
		what += "/" + r.subresource
	}
	return r.verb + " " + what
}

// installing are the rights that the manifests need.
var installing = []right{
	{verb: "create", resource: "namespaces"},
	{verb: "create", group: "apiextensions.k8s.io", resource: "customresourcedefinitions"},
	{verb: "create", group: "rbac.authorization.k8s.io", resource: "clusterroles"},
	{verb: "escalate", group: "rbac.authorization.k8s.io", resource: "clusterroles"},
	{verb: "create", group: "rbac.authorization.k8s.io", resource: "clusterrolebindings"},
	{verb: "bind", group: "rbac.authorization.k8s.io", resource: "clusterroles"},
	{verb: "create", group: "admissionregistration.k8s.io", resource: "validatingadmissionpolicies"},
	{verb: "create", group: "admissionregistration.k8s.io", resource: "validatingadmissionpolicybindings"},
	{verb: "create", resource: "serviceaccounts", namespace: druidNamespace},
	{verb: "create", group: "rbac.authorization.k8s.io", resource: "roles", namespace: druidNamespace},
	{verb: "escalate", group: "rbac.authorization.k8s.io", resource: "roles", namespace: druidNamespace},
	{verb: "create", group: "rbac.authorization.k8s.io", resource: "rolebindings", namespace: druidNamespace},
	{verb: "bind", group: "rbac.authorization.k8s.io", resource: "roles", namespace: druidNamespace},
	{verb: "create", group: "apps", resource: "deployments", namespace: druidNamespace},
	{verb: "create", group: "policy", resource: "poddisruptionbudgets", namespace: druidNamespace},
}

func (k *kube) checkInstaller(ctx context.Context) finding {
	lacking, err := k.lacking(ctx, installing)
	switch {
	case err != nil:
		return unread("your permissions", err)
	case len(lacking) > 0:
		return fail("Install druid as a user with the role cluster-admin. "+installPage, "you may not %s", strings.Join(texts(lacking), ", "))
	default:
		return fine("you may create everything that the installation has")
	}
}

// using are the rights that the commands of the plugin need.
func using(namespace string) []right {
	group := v1alpha1.GroupVersion.Group
	all := []right{
		{verb: "get", group: group, resource: "etcdclusters", needed: "all commands"},
		{verb: "list", group: group, resource: "etcdclusters", needed: "get"},
		{verb: "list", group: "coordination.k8s.io", resource: "leases", needed: "status"},
		{verb: "list", resource: "pods", needed: "status"},
		{verb: "list", resource: "events", needed: "why"},
		{verb: "get", resource: "pods", subresource: "log", needed: "logs"},
		{verb: "create", resource: "pods", subresource: "exec", needed: "etcdctl and backups"},
		{verb: "patch", group: group, resource: "etcdclusters", needed: "pause, resume, replace, hands-off and recover"},
		{verb: "create", group: group, resource: "etcdsnapshots", needed: "snapshot"},
		{verb: "get", group: group, resource: "etcdsnapshots", needed: "snapshot --wait"},
	}
	for i := range all {
		all[i].namespace = namespace
	}
	return all
}

func (k *kube) checkUser(ctx context.Context) finding {
	lacking, err := k.lacking(ctx, using(k.namespace))
	if err != nil {
		return unread("your permissions", err)
	}
	if len(lacking) == 0 {
		return fine("you may use all commands of the plugin in namespace %s", k.namespace)
	}
	var without []string
	for _, r := range lacking {
		without = append(without, fmt.Sprintf("%s (for %s)", r, r.needed))
	}
	return warn("Ask an administrator, if you need them. The commands that only read show what you may see.", "in namespace %s you may not %s",
		k.namespace, strings.Join(without, ", "))
}

func texts(all []right) (words []string) {
	for _, r := range all {
		words = append(words, r.String())
	}
	return words
}

// lacking asks the API server which of the rights the user does not have.
func (k *kube) lacking(ctx context.Context, all []right) (missing []right, err error) {
	for _, r := range all {
		review, err := k.typed.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: r.namespace, Verb: r.verb, Group: r.group, Resource: r.resource, Subresource: r.subresource,
			}},
		}, metav1.CreateOptions{})
		if err != nil {
			return nil, err
		}
		if !review.Status.Allowed {
			missing = append(missing, r)
		}
	}
	return missing, nil
}
