package manifests

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/api/v1alpha1"
)

// imageAgentPath is where the agent is in its own image. It is not below config.AgentDir, which is mounted over.
const imageAgentPath = "/usr/local/bin/agent"

// installContainer copies the agent's binary to where etcd's container, whose image knows nothing of it, can run it.
func installContainer(options Options) corev1.Container {
	return corev1.Container{
		Name:            ContainerInstall,
		Image:           options.AgentImage,
		ImagePullPolicy: corev1.PullIfNotPresent,
		Command:         []string{imageAgentPath, "install", "--to", config.AgentDir},
		Resources:       agentResources(),
		SecurityContext: containerSecurityContext(),
		// What a container said last is what druid reports about one that cannot start.
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
		VolumeMounts:             []corev1.VolumeMount{{Name: volumeDruid, MountPath: config.AgentDir}},
	}
}

// agentContainer runs the agent as a native sidecar: up before etcd, down after it. It has no readiness probe, because
// that would count in the Pod's readiness and let a crashing agent take a serving etcd away from its clients; and its
// liveness looks at nothing but its own loop.
func agentContainer(cluster *v1alpha1.EtcdCluster, agent config.Config, options Options) corev1.Container {
	always := corev1.ContainerRestartPolicyAlways
	mounts := []corev1.VolumeMount{
		{Name: volumeDruid, MountPath: config.AgentDir},
		{Name: volumeData, MountPath: config.VolumePath},
		{Name: volumeConfig, MountPath: config.ConfigDir, ReadOnly: true},
		{Name: volumeToken, MountPath: "/var/run/secrets/kubernetes.io/serviceaccount", ReadOnly: true},
	}
	for _, a := range storeVolumes(cluster) {
		mounts = append(mounts, a.mount)
	}
	return corev1.Container{
		Name:            ContainerAgent,
		Image:           options.AgentImage,
		ImagePullPolicy: corev1.PullIfNotPresent,
		RestartPolicy:   &always,
		Command:         append([]string{imageAgentPath, "run"}, agent.Args()...),
		Env: []corev1.EnvVar{{Name: envPodUID, ValueFrom: &corev1.EnvVarSource{
			FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.uid"},
		}}},
		Ports: []corev1.ContainerPort{{Name: "agent", ContainerPort: config.AgentPort, Protocol: corev1.ProtocolTCP}},
		// A minute without an answer, at the pace of a member Lease's renewal.
		LivenessProbe:            httpProbe("/livez", config.AgentPort, corev1.Probe{PeriodSeconds: 15, TimeoutSeconds: 5, FailureThreshold: 4}),
		Resources:                agentResources(),
		SecurityContext:          containerSecurityContext(),
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
		VolumeMounts:             mounts,
	}
}

// etcdContainer runs the stock image under launch, which asks the agent how etcd is to be started. While no etcd runs,
// launch itself answers the probes: alive, and not ready.
func etcdContainer(cluster *v1alpha1.EtcdCluster) corev1.Container {
	return corev1.Container{
		Name:            ContainerEtcd,
		Image:           EtcdImage(cluster),
		ImagePullPolicy: corev1.PullIfNotPresent,
		Command: []string{
			config.AgentPath, "launch",
			"--socket", config.SocketPath,
			"--volume", config.VolumePath,
			"--probe", fmt.Sprintf(":%d", config.MetricsPort),
		},
		Env: etcdEnv(cluster),
		Ports: []corev1.ContainerPort{
			{Name: "client", ContainerPort: config.ClientPort, Protocol: corev1.ProtocolTCP},
			{Name: "peer", ContainerPort: config.PeerPort, Protocol: corev1.ProtocolTCP},
			{Name: "metrics", ContainerPort: config.MetricsPort, Protocol: corev1.ProtocolTCP},
		},
		// Every second, so that a member is back with its clients as soon as it serves; three failures, so that one slow
		// answer does not take it away.
		ReadinessProbe: httpProbe("/readyz", config.MetricsPort, corev1.Probe{PeriodSeconds: 1, TimeoutSeconds: 3, FailureThreshold: 3}),
		// etcd's /livez is a serializable read, which waits for a defragmentation of the whole database, for a large
		// snapshot from the leader, for a full or slow disk, and for the replay of the log at a start. None of them is
		// repaired by a restart, all of them are made longer. Only an etcd that answered nothing for ten minutes is hung.
		// There is no startup probe: some kubelets never restart a container that has one, and launch answers meanwhile.
		LivenessProbe:            httpProbe("/livez", config.MetricsPort, corev1.Probe{PeriodSeconds: 30, TimeoutSeconds: 20, FailureThreshold: 20}),
		Resources:                etcdResources(cluster.Spec.Resources),
		SecurityContext:          containerSecurityContext(),
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
		VolumeMounts: []corev1.VolumeMount{
			{Name: volumeDruid, MountPath: config.AgentDir},
			{Name: volumeData, MountPath: config.VolumePath},
		},
	}
}

// etcdEnv is what the user sets next to etcd's options, which are never set by the environment.
func etcdEnv(cluster *v1alpha1.EtcdCluster) []corev1.EnvVar {
	var all []corev1.EnvVar
	for _, e := range cluster.Spec.Env {
		all = append(all, corev1.EnvVar{Name: e.Name, Value: literal(e.Value)})
	}
	return all
}

// literal keeps Kubernetes from taking $(NAME) in a value for a reference.
func literal(value string) string { return strings.ReplaceAll(value, "$", "$$") }

// EtcdImage is the image of the cluster's etcd, with its tag.
func EtcdImage(cluster *v1alpha1.EtcdCluster) string {
	return cluster.Spec.Image + ":v" + cluster.Spec.Version
}

func httpProbe(path string, port int32, timing corev1.Probe) *corev1.Probe {
	timing.HTTPGet = &corev1.HTTPGetAction{Path: path, Port: intstr.FromInt32(port), Scheme: corev1.URISchemeHTTP}
	timing.SuccessThreshold = 1
	return &timing
}

// leastRequests are what etcd requests of what its cluster does not speak of: as kubeadm has it for its own etcd. Without them
// its agent would go before it on a busy node, and it would be the first that a node short of memory ends.
var leastRequests = corev1.ResourceList{
	corev1.ResourceCPU:    resource.MustParse("100m"),
	corev1.ResourceMemory: resource.MustParse("100Mi"),
}

// etcdResources are what the user asks for, and least requests. A limit speaks of a resource too: Kubernetes requests what it
// says.
func etcdResources(asked corev1.ResourceRequirements) corev1.ResourceRequirements {
	all := *asked.DeepCopy()
	for name, least := range leastRequests {
		_, requested := all.Requests[name]
		_, limited := all.Limits[name]
		if requested || limited {
			continue
		}
		if all.Requests == nil {
			all.Requests = corev1.ResourceList{}
		}
		all.Requests[name] = least
	}
	return all
}

// agentResources are what an agent next to a healthy etcd uses: 30 MiB and a hundredth of a core. It has no limit: at a
// start it reads the write-ahead log, which is as large as the user's writes made it, and an agent that is killed there
// again and again would keep its member down for good.
func agentResources() corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Requests: corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse("10m"),
		corev1.ResourceMemory: resource.MustParse("32Mi"),
	}}
}

// neverRan is what AnnotationAgentBefore says where no agent ran.
const neverRan = "none"

// AgentImage is the image that druid last asked of the Pod's agent, empty where that is not known. What a webhook made of it, as
// one that sends all images to a mirror, is no difference: druid's own word counts, and only a Pod that bears none is judged by
// its containers.
func AgentImage(pod *corev1.Pod) string {
	if image, reported := pod.Annotations[AnnotationAgentImage]; reported {
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
