package manifests

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/api/v1alpha1"
)

// attached is a volume, and where it stands in the agent's container. etcd's own container has none of them: it needs no
// credentials of a store.
type attached struct {
	volume corev1.Volume
	mount  corev1.VolumeMount
}

// secretMode lets the group of the Pod read what the kubelet writes as root.
const secretMode = int32(0o440)

// storeVolumes are those that the agent needs for the cluster's stores, and to prove what is in them.
func storeVolumes(cluster *v1alpha1.EtcdCluster) []attached {
	all := []attached{scratch()}
	if cluster.Spec.Backup != nil {
		all = append(all, backupAttached(cluster.Spec.Backup)...)
	}
	// What cannot be understood of it makes no Pod at all: its agent could not be reported either.
	if spec, _, err := restoreSpec(cluster); err == nil && spec != nil && spec.From != nil && spec.From.Store != nil {
		all = append(all, storeAttached(spec.From.Store, spec.From.Encryption, "restore", config.RestoreDir, true)...)
	}
	return all
}

// backupAttached are the volumes that the store needs which is backed up to.
func backupAttached(backup *v1alpha1.BackupSpec) []attached {
	return storeAttached(&backup.Store, backup.Encryption, "backup", config.BackupDir, false)
}

// scratch is where backups are restored to be proven. Each Pod has it, as backups may begin at any time. It has no limit: the
// kubelet would evict the Pod, and etcd with it, that goes beyond. The agent looks at what is free instead, and lets enough
// be.
func scratch() attached {
	return attached{
		volume: corev1.Volume{Name: volumeScratch, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		mount:  corev1.VolumeMount{Name: volumeScratch, MountPath: config.ScratchDir},
	}
}

// storeAttached: a Secret that does not exist keeps no member from starting, and one that comes later is brought into the
// running Pod.
func storeAttached(store *v1alpha1.BackupStore, encryption *v1alpha1.BackupEncryption, use, dir string, readOnly bool) []attached {
	var all []attached
	attach := func(subdir string, source corev1.VolumeSource, readOnly bool) {
		name := use + "-" + subdir
		all = append(all, attached{
			volume: corev1.Volume{Name: name, VolumeSource: source},
			mount:  corev1.VolumeMount{Name: name, MountPath: dir + "/" + subdir, ReadOnly: readOnly},
		})
	}
	if d := store.Directory; d != nil {
		attach(config.StoreSubdir, directoryVolume(d, readOnly), readOnly)
	}
	if encryption != nil {
		attach(config.KeysSubdir, secretVolume(encryption.KeySecretRef.Name), true)
	}
	if store.S3 == nil {
		return all
	}
	if ref := store.S3.CredentialsSecretRef; ref != nil {
		attach(config.CredentialsSubdir, secretVolume(ref.Name), true)
	}
	if ref := store.S3.CASecretRef; ref != nil {
		attach(config.CASubdir, secretVolume(ref.Name, corev1.KeyToPath{Key: ref.Key, Path: config.CAFile}), true)
	}
	if sse := store.S3.SSE; sse != nil && sse.KeySecretRef != nil {
		key := corev1.KeyToPath{Key: sse.KeySecretRef.Key, Path: config.KeyFile}
		attach(config.KeySubdir, secretVolume(sse.KeySecretRef.Name, key), true)
	}
	return all
}

func secretVolume(name string, items ...corev1.KeyToPath) corev1.VolumeSource {
	return corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
		SecretName: name, Items: items, DefaultMode: new(secretMode), Optional: new(true),
	}}
}

// directoryVolume: a directory of the host is not made where it is missing, because it would be root's.
func directoryVolume(d *v1alpha1.DirectoryStore, readOnly bool) corev1.VolumeSource {
	if d.HostPath != "" {
		exists := corev1.HostPathDirectory
		return corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: d.HostPath, Type: &exists}}
	}
	return corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{
		ClaimName: d.ClaimName, ReadOnly: readOnly,
	}}
}

// ReachesStore says whether the Pod has what its agent needs for the store that is backed up to. A Pod that was made before
// the cluster had that store has not: volumes cannot be added to a Pod that exists.
func ReachesStore(cluster *v1alpha1.EtcdCluster, pod *corev1.Pod) bool {
	if cluster.Spec.Backup == nil {
		return true
	}
	for _, a := range backupAttached(cluster.Spec.Backup) {
		if !slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return equality.Semantic.DeepEqual(v, a.volume) }) {
			return false
		}
	}
	return true
}
