package manifests

import (
	"fmt"
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
