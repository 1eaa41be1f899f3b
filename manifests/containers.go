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

// imageAgentPath is the path of the agent in its own image. It is not below config.AgentDir, which is mounted over it.
const imageAgentPath = "/usr/local/bin/agent"

// installContainer returns the container that copies the agent's binary to a shared volume. The container of etcd runs
// it from there, because the image of etcd does not have it.
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

// agentContainer returns the container of the agent as a native sidecar: it starts before etcd and ends after it. It
// has no readiness probe. That would count for the readiness of the Pod, so a crashing agent would take a serving etcd
// away from its clients. Its liveness probe checks only the agent's own loops.
func agentContainer(cluster *v1alpha1.EtcdCluster, agent config.Config, options Options) corev1.Container {
	always := corev1.ContainerRestartPolicyAlways
	mounts := []corev1.VolumeMount{
		{Name: volumeDruid, MountPath: config.AgentDir},
		{Name: volumeData, MountPath: config.VolumePath},
		{Name: volumeConfig, MountPath: config.ConfigDir, ReadOnly: true},
		{Name: volumeToken, MountPath: "/var/run/secrets/kubernetes.io/serviceaccount", ReadOnly: true},
	}
	mounts = append(mounts, certificateMounts(cluster)...)
	mounts = append(mounts, passwordMounts(cluster)...)
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
		Ports: []corev1.ContainerPort{
			{Name: "agent", ContainerPort: config.AgentPort, Protocol: corev1.ProtocolTCP},
			{Name: "api", ContainerPort: config.APIPort, Protocol: corev1.ProtocolTCP},
		},
		// The agent restarts after one minute without a response. The period is that of the renewals of a member
		// Lease.
		LivenessProbe:            httpProbe("/livez", config.AgentPort, corev1.Probe{PeriodSeconds: 15, TimeoutSeconds: 5, FailureThreshold: 4}),
		Resources:                agentResources(),
		SecurityContext:          containerSecurityContext(),
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
		VolumeMounts:             mounts,
	}
}

// etcdContainer returns the container with the stock image of etcd. Its command is launch, which asks the agent how to
// start etcd. While no etcd runs, launch answers the probes: live, and not ready.
func etcdContainer(cluster *v1alpha1.EtcdCluster, options Options) corev1.Container {
	return corev1.Container{
		Name:            ContainerEtcd,
		Image:           etcdImage(cluster, options),
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
		// The period of one second returns a member to its clients as soon as it serves. With three failures, one slow
		// response does not remove it.
		ReadinessProbe: httpProbe("/readyz", config.MetricsPort, corev1.Probe{PeriodSeconds: 1, TimeoutSeconds: 3, FailureThreshold: 3}),
		// The /livez endpoint of etcd is a serializable read. It waits during a defragmentation, a large snapshot from
		// the leader, a full or slow disk, and the replay of the log at a start. A restart repairs none of these and
		// makes each of them longer. Only an etcd that did not respond for ten minutes hangs. There is no startup
		// probe, because some kubelets never restart a container that has one. launch responds during the start.
		LivenessProbe:            httpProbe("/livez", config.MetricsPort, corev1.Probe{PeriodSeconds: 30, TimeoutSeconds: 20, FailureThreshold: 20}),
		Resources:                diskResources(cluster, etcdResources(cluster.Spec.Resources)),
		SecurityContext:          containerSecurityContext(),
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
		VolumeMounts: append([]corev1.VolumeMount{
			{Name: volumeDruid, MountPath: config.AgentDir},
			{Name: volumeData, MountPath: config.VolumePath},
		}, etcdCertificateMounts(cluster)...),
	}
}

// etcdEnv returns the environment variables of the user. druid never sets options of etcd by environment variables.
func etcdEnv(cluster *v1alpha1.EtcdCluster) []corev1.EnvVar {
	var all []corev1.EnvVar
	for _, e := range cluster.Spec.Env {
		all = append(all, corev1.EnvVar{Name: e.Name, Value: literal(e.Value)})
	}
	return all
}

// literal prevents Kubernetes from expanding $(NAME) in a value.
func literal(value string) string { return strings.ReplaceAll(value, "$", "$$") }

// etcdImage returns the image of the cluster's etcd, with its tag. An installation can have another default than the API.
func etcdImage(cluster *v1alpha1.EtcdCluster, options Options) string {
	repository := cluster.Spec.Image
	if repository == v1alpha1.DefaultImage && options.EtcdRepository != "" {
		repository = options.EtcdRepository
	}
	return repository + ":v" + cluster.Spec.Version
}

func httpProbe(path string, port int32, timing corev1.Probe) *corev1.Probe {
	timing.HTTPGet = &corev1.HTTPGetAction{Path: path, Port: intstr.FromInt32(port), Scheme: corev1.URISchemeHTTP}
	timing.SuccessThreshold = 1
	return &timing
}

// leastRequests are the requests of etcd for resources that the spec does not name. kubeadm uses the same values.
// Without them, etcd would get less CPU than its agent on a busy node, and the kernel would kill etcd first when the
// node runs out of memory.
var leastRequests = corev1.ResourceList{
	corev1.ResourceCPU:    resource.MustParse("100m"),
	corev1.ResourceMemory: resource.MustParse("100Mi"),
}

// etcdResources returns the resources of the user, with leastRequests for the others. If the user sets only a limit,
// Kubernetes uses it as the request.
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

// diskResources adds a request for the data on the disk of the node, unless the user sets another one. The scheduler then
// chooses a node with that much space. When the disk of a node is almost full, the kubelet first evicts Pods that use
// more than they request.
func diskResources(cluster *v1alpha1.EtcdCluster, all corev1.ResourceRequirements) corev1.ResourceRequirements {
	_, requested := all.Requests[corev1.ResourceEphemeralStorage]
	if cluster.Spec.Storage.Medium != v1alpha1.StorageDisk || requested {
		return all
	}
	if all.Requests == nil {
		all.Requests = corev1.ResourceList{}
	}
	all.Requests[corev1.ResourceEphemeralStorage] = cluster.Spec.Storage.Size
	return all
}

// agentResources returns the requests of the agent. Next to a healthy etcd it uses 30 MiB and a hundredth of a core.
// It has no limit: at a start it reads the write-ahead log, whose size depends on the writes of the user. An agent
// that is killed there repeatedly would keep its member down permanently.
func agentResources() corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Requests: corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse("10m"),
		corev1.ResourceMemory: resource.MustParse("32Mi"),
	}}
}

// neverRan is the value of AnnotationAgentBefore for a Pod in which no agent ran.
const neverRan = "none"

// AgentImage returns the image that druid last set for the agent of the Pod, or an empty string if unknown. A webhook
// can replace an image, for example with one of a mirror. So the annotation of druid counts, and the containers count
// only in a Pod without the annotation.
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

// AgentStatus returns the status of the agent that the kubelet last wrote, or nil.
func AgentStatus(pod *corev1.Pod) *corev1.ContainerStatus {
	i := slices.IndexFunc(pod.Status.InitContainerStatuses, func(s corev1.ContainerStatus) bool { return s.Name == ContainerAgent })
	if i < 0 {
		return nil
	}
	return &pod.Status.InitContainerStatuses[i]
}

// AgentPatch returns a strategic merge patch that gives the agent of this Pod, as it was read, another image. The
// kubelet then replaces only that container. It does not run completed init containers again while the main container
// runs. The patch also sets the image of the install container, for the day on which the node restarts and runs all
// containers again.
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

// AgentRun is what runs in a Pod whose agent got another image.
type AgentRun uint8

const (
	// AgentRunsNot: no agent runs, or only the previous one.
	AgentRunsNot AgentRun = iota
	// AgentRunsAgain: another container than before runs, possibly with the same image. It can be the previous agent,
	// which crashed before the kubelet saw the new image. Or both names are of one image.
	AgentRunsAgain
	// AgentRunsNew: an agent with another image than before runs.
	AgentRunsNew
)

// AgentReplaced reports whether druid gave the agent of the running Pod another image, and what runs in it since then.
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
