package plugin

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// limitPage explains how druid is limited to namespaces.
const limitPage = "https://github.com/etcd-druid/druid/blob/main/docs/how-to/install/limit-namespaces.md"

// olmAnnotation is the annotation of a Pod's template in which the Operator Lifecycle Manager lists the namespaces that an operator
// watches. It is empty if these are all. olmNamespaces is the field of a Pod with it.
const (
	olmAnnotation = "olm.targetNamespaces"
	olmNamespaces = "metadata.annotations['" + olmAnnotation + "']"
)

// variable is a reference to an environment variable in an argument of a container.
var variable = regexp.MustCompile(`\$\(([A-Za-z_][A-Za-z0-9_.-]*)\)`)

// checkWatched checks that druid watches the namespace.
func (i *installation) checkWatched(ctx context.Context) finding {
	if len(i.deployments) == 0 {
		return warn("Resolve the check of the Deployment first.", "druid's Deployment is not known")
	}
	var others []string
	for _, d := range i.deployments {
		watched, err := i.watched(ctx, d)
		switch {
		case err != nil:
			return unread("the namespaces that druid watches", err)
		case len(watched) == 0:
			return fine("druid watches all namespaces")
		case slices.Contains(watched, i.namespace):
			return fine("druid watches namespace %s", i.namespace)
		}
		others = append(others, watched...)
	}
	return fail("Add the namespace to the flag --namespaces of druid, or use a namespace that druid watches. "+limitPage,
		"druid watches only %s, and not namespace %s", strings.Join(others, ", "), i.namespace)
}

// watched are the namespaces in --namespaces of a Deployment of druid. None stands for all namespaces.
func (i *installation) watched(ctx context.Context, d appsv1.Deployment) (names []string, err error) {
	c := druidContainer(d)
	for _, value := range arguments(c, "namespaces") {
		value, err := i.expand(ctx, d, c, value)
		if err != nil {
			return nil, err
		}
		for name := range strings.SplitSeq(value, ",") {
			if name = strings.TrimSpace(name); name != "" {
				names = append(names, name)
			}
		}
	}
	return names, nil
}

// leaderNamespace is the namespace of the Lease of druid's leader.
func (i *installation) leaderNamespace(ctx context.Context, d appsv1.Deployment) (string, error) {
	c := druidContainer(d)
	values := arguments(c, "leader-namespace")
	if len(values) == 0 || values[len(values)-1] == "" {
		return d.Namespace, nil
	}
	return i.expand(ctx, d, c, values[len(values)-1])
}

// arguments are the values of a flag in the arguments of a container.
func arguments(c corev1.Container, flag string) (values []string) {
	for n, arg := range c.Args {
		if value, ok := strings.CutPrefix(arg, "--"+flag+"="); ok {
			values = append(values, value)
		} else if arg == "--"+flag && n+1 < len(c.Args) {
			values = append(values, c.Args[n+1])
		}
	}
	return values
}

// expand puts the values of environment variables into an argument, as Kubernetes does.
func (i *installation) expand(ctx context.Context, d appsv1.Deployment, c corev1.Container, text string) (string, error) {
	var failed error
	expanded := variable.ReplaceAllStringFunc(text, func(found string) string {
		name := variable.FindStringSubmatch(found)[1]
		n := slices.IndexFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == name })
		if n < 0 {
			return found
		}
		value, err := i.valueOf(ctx, d, c.Env[n])
		if err != nil {
			failed = err
		}
		return value
	})
	return expanded, failed
}

func (i *installation) valueOf(ctx context.Context, d appsv1.Deployment, e corev1.EnvVar) (string, error) {
	from := e.ValueFrom
	switch {
	case from == nil:
		return e.Value, nil
	case from.ConfigMapKeyRef != nil:
		object, err := i.typed.CoreV1().ConfigMaps(d.Namespace).Get(ctx, from.ConfigMapKeyRef.Name, metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		return object.Data[from.ConfigMapKeyRef.Key], nil
	case from.FieldRef != nil && from.FieldRef.FieldPath == "metadata.namespace":
		return d.Namespace, nil
	case from.FieldRef != nil && from.FieldRef.FieldPath == olmNamespaces:
		return d.Spec.Template.Annotations[olmAnnotation], nil
	default:
		return "", fmt.Errorf("the variable %s has a value that this command does not read", e.Name)
	}
}
