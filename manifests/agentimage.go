package manifests

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// neverRan is what AnnotationAgentBefore says where no agent ran.
const neverRan = "none"

// AgentImage is the image that druid last asked of the Pod's agent, empty where that is not known. What a webhook made of it, as
// one that sends all images to a mirror, is no difference: druid's own word counts, and only a Pod that bears none is judged by
// its containers.
func AgentImage(pod *corev1.Pod) string {
	if image, notified := pod.Annotations[AnnotationAgentImage]; notified {
		return image
	}
	install, agent := initContainer(pod, ContainerInstall), initContainer(pod, ContainerAgent)
	if install == nil || agent == nil || install.Image != agent.Image {
		return ""
	}
	return agent.Image
}

func initContainer(pod *corev1.Pod, name string) *corev1.Container {
	i := slices.IndexFunc(pod.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	return &pod.Spec.InitContainers[i]
}

// AgentStatus is what the kubelet last said of the Pod's agent, nil where it said nothing.
func AgentStatus(pod *corev1.Pod) *corev1.ContainerStatus {
	i := slices.IndexFunc(pod.Status.InitContainerStatuses, func(s corev1.ContainerStatus) bool { return s.Name == ContainerAgent })
	if i < 0 {
		return nil
	}
	return &pod.Status.InitContainerStatuses[i]
}

// AgentPatch is a strategic merge patch by which the agent of this very Pod, as it was read, gets another image. The kubelet then
// replaces that container alone: an init container that ended is not run again in a Pod whose main container runs. That it asks
// for the image as well is for the day on which the node starts again, and with it all of the Pod.
func AgentPatch(pod *corev1.Pod, image string) map[string]any {
	before := neverRan
	if status := AgentStatus(pod); status != nil && status.ContainerID != "" {
		before = strings.TrimSpace(status.ContainerID + " " + status.ImageID)
	}
	return map[string]any{
		"metadata": map[string]any{
			"uid": pod.UID, "resourceVersion": pod.ResourceVersion,
			"annotations": map[string]string{AnnotationAgentImage: image, AnnotationAgentBefore: before},
		},
		"spec": map[string]any{"initContainers": []map[string]string{
			{"name": ContainerInstall, "image": image},
			{"name": ContainerAgent, "image": image},
		}},
	}
}

// AgentRun is what runs in a Pod whose agent was given another image.
type AgentRun uint8

const (
	// AgentRunsNot: none, or the one that ran before.
	AgentRunsNot AgentRun = iota
	// AgentRunsAgain: another container than before, and not known to be of another image. It may be the former agent, which
	// crashed before the kubelet knew of the new image, or both names are of one image.
	AgentRunsAgain
	// AgentRunsNew: one of another image than before.
	AgentRunsNew
)

// AgentReplaced says whether druid gave the agent of the running Pod another image, and what runs in it since.
func AgentReplaced(pod *corev1.Pod) (replaced bool, runs AgentRun) {
	before, replaced := pod.Annotations[AnnotationAgentBefore]
	container, image, _ := strings.Cut(before, " ")
	status := AgentStatus(pod)
	switch {
	case status == nil || status.State.Running == nil || status.ContainerID == container:
		return replaced, AgentRunsNot
	case before != neverRan && (image == "" || status.ImageID == "" || status.ImageID == image):
		return replaced, AgentRunsAgain
	default:
		return replaced, AgentRunsNew
	}
}
