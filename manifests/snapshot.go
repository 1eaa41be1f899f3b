package manifests

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
)

// ContainerSnapshot is the only container of the Pod that saves an EtcdSnapshot in its own store.
const ContainerSnapshot = "snapshot"

// SnapshotTimeout bounds the Pod that saves an EtcdSnapshot. It is that of a backup by the agents.
const SnapshotTimeout = time.Hour

// SnapshotPodName returns the name of the Pod of an EtcdSnapshot. It is never that of a member, because names of members
// end in five letters. Another EtcdSnapshot of the same name has another Pod.
func SnapshotPodName(snapshot *v1alpha1.EtcdSnapshot) string {
	return "snapshot-" + string(snapshot.UID)
}

// SnapshotRun is what the Pod of an EtcdSnapshot does.
type SnapshotRun struct {
	// Record is the cluster record of a cluster that has formed. A deletion does not need it.
	Record leases.Record
	// Drop is the key of the object that is deleted. If it is empty, a backup is saved.
	Drop string
	// Within is the longest time that the Pod may take.
	Within time.Duration
}

// SnapshotPod returns the Pod that saves an EtcdSnapshot in its own store, or deletes it there. The kubelet mounts the
// Secrets by name, so neither druid nor an agent reads them. The Pod has no token of Kubernetes. It reports the result in its
// termination message. Its ServiceAccount is that of the agents, for the identity at a cloud that it may stand for.
func SnapshotPod(cluster *v1alpha1.EtcdCluster, snapshot *v1alpha1.EtcdSnapshot, run SnapshotRun, options Options) (*corev1.Pod, error) {
	labels := Labels(cluster.Name)
	labels[leases.LabelComponent] = string(leases.ComponentSnapshot)
	raw, err := json.Marshal(storeConfig(snapshot.Spec.Store, snapshot.Spec.Encryption, config.BackupDir))
	if err != nil {
		return nil, fmt.Errorf("encode the store of EtcdSnapshot %s: %w", snapshot.Name, err)
	}
	all := storeAttached(snapshot.Spec.Store, snapshot.Spec.Encryption, "backup", config.BackupDir, false)
	args := []string{
		"--store=" + string(raw), "--prefix=" + cluster.Namespace + "/" + cluster.Name,
		"--request=" + string(snapshot.UID), "--result=" + corev1.TerminationMessagePathDefault, "--timeout=" + run.Within.String(),
	}
	verb := "drop"
	if run.Drop != "" {
		args = append(args, "--key="+run.Drop)
	} else {
		verb = "save"
		args = append(args, "--lineage="+run.Record.Lineage, "--cluster-id="+leases.FormatID(run.Record.ClusterID),
			"--cluster-uid="+string(cluster.UID), "--endpoint="+Endpoints(cluster)[0])
		if cluster.Spec.Bootstrap != nil && cluster.Spec.Bootstrap.Restore != nil {
			args = append(args, "--restored")
		}
		if tls := dialAttached(cluster); tls != nil && clientsSecure(cluster) {
			all = append(all, *tls)
			args = append(args, "--tls-dir="+tls.mount.MountPath)
		}
	}
	pod := &corev1.Pod{
		ObjectMeta: owned(cluster, SnapshotPodName(snapshot), labels),
		Spec:       snapshotPodSpec(cluster, run.Within, options),
	}
	container := &pod.Spec.Containers[0]
	for _, a := range all {
		pod.Spec.Volumes = append(pod.Spec.Volumes, a.volume)
		container.VolumeMounts = append(container.VolumeMounts, a.mount)
		if a.volume.Secret != nil {
			args = append(args, "--secret="+a.mount.MountPath+"="+a.volume.Secret.SecretName)
		}
	}
	container.Command = append([]string{imageAgentPath, "backup", verb}, literals(args)...)
	pod.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: "EtcdSnapshot", Name: snapshot.Name, UID: snapshot.UID, Controller: new(true),
	}}
	return pod, nil
}

func literals(args []string) []string {
	all := make([]string, len(args))
	for i, arg := range args {
		all[i] = literal(arg)
	}
	return all
}

func snapshotPodSpec(cluster *v1alpha1.EtcdCluster, within time.Duration, options Options) corev1.PodSpec {
	return corev1.PodSpec{
		Containers: []corev1.Container{{
			Name:            ContainerSnapshot,
			Image:           options.AgentImage,
			ImagePullPolicy: corev1.PullIfNotPresent,
			// A backup of 8 GiB takes as much memory as one of 8 MiB: some parts of an upload.
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("64Mi"),
			}},
			SecurityContext:          containerSecurityContext(),
			TerminationMessagePath:   corev1.TerminationMessagePathDefault,
			TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
		}},
		RestartPolicy:                corev1.RestartPolicyNever,
		ActiveDeadlineSeconds:        new(int64((within + deadlineSlack) / time.Second)),
		ServiceAccountName:           AgentName(cluster.Name),
		AutomountServiceAccountToken: new(false),
		EnableServiceLinks:           new(false),
		SecurityContext:              podSecurityContext(),
		ImagePullSecrets:             cluster.Spec.ImagePullSecrets,
		Tolerations:                  cluster.Spec.Tolerations,
		NodeSelector:                 nodeSelector(cluster),
		RuntimeClassName:             cluster.Spec.RuntimeClassName,
	}
}

// deadlineSlack is how much later than the process the kubelet ends the Pod, so that the process can report the result.
const deadlineSlack = time.Minute

// dialAttached returns the volume with what a client of the agents' kind needs to connect to etcd, or nil without TLS. It
// takes the sources from the volume of the agents, so that both have the same certificates.
func dialAttached(cluster *v1alpha1.EtcdCluster) *attached {
	plane := string(PlaneClient) + "/"
	mode := secretMode
	projected := &corev1.ProjectedVolumeSource{DefaultMode: &mode}
	hasClient := false
	for _, volume := range certificateVolumes(cluster) {
		if volume.Projected == nil {
			continue
		}
		for _, source := range volume.Projected.Sources {
			if source.Secret == nil {
				continue
			}
			var items []corev1.KeyToPath
			for _, item := range source.Secret.Items {
				if file, ours := strings.CutPrefix(item.Path, plane); ours {
					items = append(items, corev1.KeyToPath{Key: item.Key, Path: file})
					hasClient = hasClient || file == KeyClient
				}
			}
			if len(items) > 0 {
				projected.Sources = append(projected.Sources, corev1.VolumeProjection{Secret: &corev1.SecretProjection{
					LocalObjectReference: source.Secret.LocalObjectReference, Items: items, Optional: source.Secret.Optional,
				}})
			}
		}
	}
	if len(projected.Sources) == 0 {
		return nil
	}
	if hasClient { // the key of the members stays with the members
		for i := range projected.Sources {
			secret := projected.Sources[i].Secret
			secret.Items = slices.DeleteFunc(secret.Items, func(item corev1.KeyToPath) bool {
				return item.Path == corev1.TLSCertKey || item.Path == corev1.TLSPrivateKeyKey
			})
		}
	}
	return &attached{
		volume: corev1.Volume{Name: volumeSecrets, VolumeSource: corev1.VolumeSource{Projected: projected}},
		mount:  corev1.VolumeMount{Name: volumeSecrets, MountPath: config.TLSSource + "/" + string(PlaneClient), ReadOnly: true},
	}
}
