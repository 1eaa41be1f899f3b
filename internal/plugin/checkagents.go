package plugin

import (
	"context"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/etcd-druid/druid/leases"
)

// agentImageAnnotation is druid's annotation of a Pod with the image of its agent.
const agentImageAnnotation = leases.Prefix + "agent-image"

func (i *installation) checkAgents(ctx context.Context, args []string) finding {
	if len(i.deployments) == 0 {
		return warn("Resolve the check of the Deployment first.", "the image of druid is not known")
	}
	options := selecting("")
	if len(args) > 0 {
		options = selecting(args[0])
	}
	list, err := i.typed.CoreV1().Pods(i.namespace).List(ctx, options)
	if err != nil {
		return unread("Pods", err)
	}
	return agentsFinding(list.Items, agentImage(i.deployments[0]), i.namespace)
}

// imageOfAgent is the image that druid last set for the agent of a Pod. A webhook can replace the image of the container, so
// the container counts only if the Pod lacks druid's annotation.
func imageOfAgent(pod corev1.Pod) (image string, runs bool) {
	for _, c := range pod.Spec.InitContainers {
		if c.Name == containerAgent {
			image, runs = c.Image, true
		}
	}
	if set, ok := pod.Annotations[agentImageAnnotation]; ok {
		image = set
	}
	return image, runs
}

func agentsFinding(pods []corev1.Pod, wanted, namespace string) finding {
	var old []string
	agents := 0
	for _, pod := range pods {
		image, runs := imageOfAgent(pod)
		if !runs {
			continue
		}
		if agents++; image != wanted {
			old = append(old, pod.Name+" of "+pod.Labels[leases.LabelCluster]+" runs "+image)
		}
	}
	switch {
	case agents == 0:
		return fine("no agent runs in namespace %s", namespace)
	case len(old) > 0:
		return warn("Wait: druid replaces agents one at a time, unless an annotation keeps druid off the cluster, or the cluster is paused or not well. "+crdPage,
			"%d of %d agents do not run %s: %s", len(old), agents, wanted, strings.Join(old, ", "))
	default:
		return fine("%s in namespace %s run %s", counted(agents, "agent"), namespace, wanted)
	}
}

// agentImage is the image that druid gives to the agents.
func agentImage(d appsv1.Deployment) string {
	c := druidContainer(d)
	for _, arg := range c.Args {
		if image, ok := strings.CutPrefix(arg, "--agent-image="); ok && image != "" {
			return image
		}
	}
	return c.Image
}
