package manifests

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/api/v1alpha1"
)

// The containers of a member's Pod.
const (
	ContainerInstall = "install"
	ContainerAgent   = "agent"
	ContainerEtcd    = "etcd"
)

// The volumes of a member's Pod.
const (
	volumeDruid   = "druid"   // the agent's binary and the socket
	volumeScratch = "scratch" // where backups are restored to be verified
	volumeData    = "data"    // the member's PersistentVolumeClaim, or an emptyDir
	volumeConfig  = "config"  // what the agent reloads
	volumeToken   = "token"   // the agent's credentials for Kubernetes
	volumeSecrets = "secrets" // the Secrets with certificates
	volumeTLS     = "tls"     // the certificates in effect
	// volumePasswords has the passwords of etcd's users.
	volumePasswords = "passwords"
)

// terminationGracePeriodSeconds is twice the longest stop of etcd: 5 s for the agent to move leadership, then etcd
// drains its clients up to a request timeout and closes the database.
const terminationGracePeriodSeconds = 60

// Pod returns the Pod of a member. druid creates it once. Later it patches only labels, annotations and the image of
// the agent. AnnotationSpecHash shows for which spec it was created.
func Pod(cluster *v1alpha1.EtcdCluster, member string, options Options) (*corev1.Pod, error) {
	labels := MemberLabels(cluster.Name, member)
	labels[LabelClusterUID] = string(cluster.UID)
	agent, err := agentConfig(cluster, member)
	if err != nil {
		return nil, err
	}
	hash, err := SpecHash(cluster)
	if err != nil {
		return nil, err
	}
	pod := &corev1.Pod{
		ObjectMeta: owned(cluster, member, labels),
		Spec:       podSpec(cluster, agent, options),
	}
	pod.Annotations = annotated(cluster, map[string]string{
		AnnotationSpecHash:                        hash,
		AnnotationAgentImage:                      options.AgentImage,
		"kubectl.kubernetes.io/default-container": ContainerEtcd,
		// These volumes must not block the removal of a node.
		"cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes": expendable(cluster),
	})
	return pod, nil
}

// expendable are the names of the volumes whose content is not needed after the Pod ends.
func expendable(cluster *v1alpha1.EtcdCluster) string {
	all := []string{volumeDruid, volumeScratch}
	if len(mountedTLS(cluster)) > 0 {
		all = append(all, volumeTLS)
	}
	return strings.Join(all, ",")
}

func podSpec(cluster *v1alpha1.EtcdCluster, agent config.Config, options Options) corev1.PodSpec {
	grace := int64(terminationGracePeriodSeconds)
	return corev1.PodSpec{
		Hostname:                      agent.Member,
		Subdomain:                     PeerServiceName(cluster.Name),
		InitContainers:                []corev1.Container{installContainer(options), agentContainer(cluster, agent, options)},
		Containers:                    []corev1.Container{etcdContainer(cluster, options)},
		Volumes:                       volumes(cluster, agent.Member),
		RestartPolicy:                 corev1.RestartPolicyAlways,
		TerminationGracePeriodSeconds: &grace,
		ServiceAccountName:            AgentName(cluster.Name),
		// Only the agent gets the token, by its own mount.
		AutomountServiceAccountToken: new(false),
		// Environment variables of other Services could set flags of etcd (ETCD_*), and there can be thousands of
		// them.
		EnableServiceLinks:        new(false),
		SecurityContext:           podSecurityContext(),
		ImagePullSecrets:          cluster.Spec.ImagePullSecrets,
		PriorityClassName:         cluster.Spec.PriorityClassName,
		Affinity:                  affinity(cluster),
		Tolerations:               tolerations(cluster.Spec.Tolerations),
		TopologySpreadConstraints: topologySpreadConstraints(cluster),
		NodeSelector:              nodeSelector(cluster),
		RuntimeClassName:          cluster.Spec.RuntimeClassName,
	}
}

func volumes(cluster *v1alpha1.EtcdCluster, member string) []corev1.Volume {
	all := []corev1.Volume{
		{Name: volumeDruid, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		{Name: volumeData, VolumeSource: dataVolume(cluster, member)},
		{Name: volumeConfig, VolumeSource: corev1.VolumeSource{Projected: configProjection(cluster)}},
		{Name: volumeToken, VolumeSource: corev1.VolumeSource{Projected: tokenProjection()}},
	}
	all = append(all, certificateVolumes(cluster)...)
	all = append(all, passwordVolumes(cluster)...)
	for _, a := range storeVolumes(cluster) {
		all = append(all, a.volume)
	}
	return all
}

// configProjection returns the volume with what the agent reads while it runs: its configuration, and whether druid sends
// clients to the Pod. The kubelet writes it again soon after the label changes.
func configProjection(cluster *v1alpha1.EtcdCluster) *corev1.ProjectedVolumeSource {
	return &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
		{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: AgentName(cluster.Name)}}},
		{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{
			Path:     config.ServingFile,
			FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.labels['" + LabelServing + "']"},
		}}}},
	}}
}

// StoresInPods reports whether the members store their data in their Pods. They then have no claims.
func StoresInPods(cluster *v1alpha1.EtcdCluster) bool {
	return cluster.Spec.Storage.Medium != ""
}

// dataVolume returns the claim of the member, or a volume that lives as long as the Pod, also when a container of it
// ends. The volume in memory has a limit, which is the size of the tmpfs: etcd cannot write more. The volume on a disk has
// none, because it would not be enforced by the file system. The kubelet evicts a Pod that exceeds such a limit, and
// its data is lost with it. All members store the same data, so all would be evicted at about the same time. The quota
// of etcd limits the database, and the request of diskResources reserves space on the node.
func dataVolume(cluster *v1alpha1.EtcdCluster, member string) corev1.VolumeSource {
	switch cluster.Spec.Storage.Medium {
	case v1alpha1.StorageMemory:
		return corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{
			Medium: corev1.StorageMediumMemory, SizeLimit: &cluster.Spec.Storage.Size,
		}}
	case v1alpha1.StorageDisk:
		return corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
	default:
		return corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: member}}
	}
}

// tokenProjection returns the volume that Kubernetes itself would mount into every container of the Pod, so that
// client-go finds its in-cluster configuration. The lifetime of the token, 3607 s, is the value of Kubernetes too.
func tokenProjection() *corev1.ProjectedVolumeSource {
	expiration := int64(3607)
	return &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
		{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: &expiration}},
		{ConfigMap: &corev1.ConfigMapProjection{
			LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"},
			Items:                []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}},
		}},
		{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{
			Path:     "namespace",
			FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.namespace"},
		}}}},
	}}
}

// envPodUID is the environment variable in which the kubelet gives the agent the UID of its Pod. The UID does not
// exist before the Pod is created.
const envPodUID = "POD_UID"

// agentConfig returns the configuration with which the agent of a member starts.
func agentConfig(cluster *v1alpha1.EtcdCluster, member string) (config.Config, error) {
	etcd := cluster.Spec.Etcd
	c := config.Default()
	c.Namespace = cluster.Namespace
	c.Cluster = cluster.Name
	c.ClusterUID = string(cluster.UID)
	c.Member = member
	c.PodUID = "$(" + envPodUID + ")"
	c.PeerService = PeerServiceName(cluster.Name)
	c.ClientService = ClientServiceName(cluster.Name)
	c.EtcdVersion = cluster.Spec.Version
	c.QuotaBackendBytes = cluster.Spec.QuotaBytes()
	c.AutoCompactionMode = compactionModes[etcd.AutoCompactionMode]
	c.AutoCompactionRetention = cmp.Or(etcd.AutoCompactionRetention, defaultAutoCompactionRetention)
	if etcd.SnapshotCount != nil {
		c.SnapshotCount = *etcd.SnapshotCount
	}
	if etcd.HeartbeatInterval != nil {
		c.HeartbeatInterval = etcd.HeartbeatInterval.Duration
	}
	if etcd.ElectionTimeout != nil {
		c.ElectionTimeout = etcd.ElectionTimeout.Duration
	}
	if err := sourceless(cluster); err != nil {
		return c, err
	}
	setTLS(&c, cluster)
	order, err := restore(cluster)
	c.Restore, c.Join = order, join(cluster)
	if joinSecret(cluster) != "" {
		c.JoinTLS = config.TLSSource + "/" + config.JoinSubdir
	}
	return c, err
}

// compactionModes are the values of etcd for the modes. Without a mode, etcd uses its own default, periodic.
var compactionModes = map[v1alpha1.AutoCompactionMode]string{
	v1alpha1.AutoCompactionPeriodic: "periodic",
	v1alpha1.AutoCompactionRevision: "revision",
}

// defaultAutoCompactionRetention is how much history etcd keeps if the user does not say it. etcd itself keeps all, until its
// quota stops all writes. kube-apiserver compacts every five minutes what is older than that
// (--etcd-compaction-interval), which is too short for clients that do not expect compactions. An hour is also the interval
// in which etcd compacts at most (server/etcdserver/api/v3compactor, getCompactInterval), so the database has at most
// two hours of history. The hash of a Pod does not contain it: a Pod without it is not outdated.
const defaultAutoCompactionRetention = "1h"

// affinity returns the affinity of the user, or a preference for one member per node and, with less weight, per zone.
// It is only a preference, because a member next to another one is better than no member.
func affinity(cluster *v1alpha1.EtcdCluster) *corev1.Affinity {
	if cluster.Spec.Affinity != nil {
		return cluster.Spec.Affinity
	}
	apart := func(weight int32, topologyKey string) corev1.WeightedPodAffinityTerm {
		return corev1.WeightedPodAffinityTerm{Weight: weight, PodAffinityTerm: corev1.PodAffinityTerm{
			LabelSelector: &metav1.LabelSelector{MatchLabels: Selector(cluster.Name)},
			TopologyKey:   topologyKey,
		}}
	}
	return &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
		PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{
			apart(100, corev1.LabelHostname),
			apart(50, corev1.LabelTopologyZone),
		},
	}}
}

// tolerations prevent Kubernetes from evicting all members of a lost node at once after five minutes. Only druid
// deletes their Pods, one at a time.
func tolerations(users []corev1.Toleration) []corev1.Toleration {
	lost := func(taint string) corev1.Toleration {
		return corev1.Toleration{Key: taint, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}
	}
	return slices.Concat([]corev1.Toleration{lost(corev1.TaintNodeNotReady), lost(corev1.TaintNodeUnreachable)}, users)
}

// topologySpreadConstraints returns the constraints of the user. A constraint without a selector would count no Pods,
// so it gets one that counts the members.
func topologySpreadConstraints(cluster *v1alpha1.EtcdCluster) []corev1.TopologySpreadConstraint {
	constraints := slices.Clone(cluster.Spec.TopologySpreadConstraints)
	for i := range constraints {
		if constraints[i].LabelSelector == nil {
			constraints[i].LabelSelector = &metav1.LabelSelector{MatchLabels: Selector(cluster.Name)}
		}
	}
	return constraints
}

func nodeSelector(cluster *v1alpha1.EtcdCluster) map[string]string {
	if len(cluster.Spec.NodeSelector) == 0 {
		return nil
	}
	return plainStrings(cluster.Spec.NodeSelector)
}

// nonRoot is the user and the group of all containers: the nonroot user of the distroless images.
const nonRoot = int64(65532)

// podSecurityContext and containerSecurityContext together meet the Restricted level of the Pod Security Standards.
func podSecurityContext() *corev1.PodSecurityContext {
	onRootMismatch := corev1.FSGroupChangeOnRootMismatch
	return &corev1.PodSecurityContext{
		RunAsNonRoot: new(true),
		RunAsUser:    new(nonRoot),
		RunAsGroup:   new(nonRoot),
		FSGroup:      new(nonRoot),
		// Without it, the kubelet visits all files of the volume before each start.
		FSGroupChangePolicy: &onRootMismatch,
		SeccompProfile:      &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
}

func containerSecurityContext() *corev1.SecurityContext {
	return &corev1.SecurityContext{
		AllowPrivilegeEscalation: new(false),
		ReadOnlyRootFilesystem:   new(true),
		Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
}
