package manifests

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/backup/store"
)

// storeConfig returns the configuration of a store for the agent, whose volumes are mounted below dir.
func storeConfig(spec *v1alpha1.BackupStore, encryption *v1alpha1.BackupEncryption, dir string) store.Config {
	var c store.Config
	if spec.Directory != nil {
		c.Directory = &store.Directory{Path: dir + "/" + config.StoreSubdir}
	} else if spec.S3 != nil {
		c.S3 = bucketConfig(spec.S3, dir)
	}
	if encryption != nil {
		c.ClientEncryption = &store.ClientEncryption{KeysDir: dir + "/" + config.KeysSubdir}
	}
	return c
}

func bucketConfig(spec *v1alpha1.S3Store, dir string) *store.S3 {
	s := &store.S3{
		Bucket: spec.Bucket, Prefix: spec.Prefix, Region: spec.Region, Endpoint: spec.Endpoint,
		PathStyle: spec.ForcePathStyle, Checksum: store.Checksum(spec.Checksum),
	}
	if spec.CredentialsSecretRef != nil {
		s.CredentialsDir = dir + "/" + config.CredentialsSubdir
	}
	if spec.CASecretRef != nil {
		s.CABundle = dir + "/" + config.CASubdir + "/" + config.CAFile
	}
	if sse := spec.SSE; sse != nil {
		s.Encryption = &store.Encryption{Mode: store.EncryptionMode(sse.Mode), KMSKeyID: sse.KMSKeyID}
		if sse.KeySecretRef != nil {
			s.Encryption.KeyFile = dir + "/" + config.KeySubdir + "/" + config.KeyFile
		}
	}
	if lock := spec.ObjectLock; lock != nil {
		s.ObjectLock = &store.ObjectLock{Mode: store.LockMode(lock.Mode), Days: int(lock.Days)}
	}
	return s
}

// storeInputs are the settings of a store that become volumes. The agents reload all others while they run. The hash of the Pod
// inputs has them, so the JSON of a store must never change.
type storeInputs struct {
	Directory   *v1alpha1.DirectoryStore `json:"directory,omitempty"`
	Credentials *v1alpha1.SecretRef      `json:"credentials,omitempty"`
	CA          *v1alpha1.SecretKeyRef   `json:"ca,omitempty"`
	Key         *v1alpha1.SecretKeyRef   `json:"key,omitempty"`
	Encryption  *v1alpha1.SecretRef      `json:"encryption,omitempty"`
}

// storeInputsOf returns what Pods mount for a store.
func storeInputsOf(store *v1alpha1.BackupStore, encryption *v1alpha1.BackupEncryption) storeInputs {
	in := storeInputs{Directory: store.Directory}
	if s3 := store.S3; s3 != nil {
		in.Credentials, in.CA = s3.CredentialsSecretRef, s3.CASecretRef
		if s3.SSE != nil {
			in.Key = s3.SSE.KeySecretRef
		}
	}
	if encryption != nil {
		in.Encryption = &encryption.KeySecretRef
	}
	return in
}

// backupInputs returns what the store of backups adds to the hash of the Pod inputs.
func backupInputs(spec *v1alpha1.BackupSpec) *storeInputs {
	if spec == nil {
		return nil
	}
	in := storeInputsOf(&spec.Store, spec.Encryption)
	if in == (storeInputs{}) {
		return nil // as for a cluster without backups: no Pod needs anything for such a store
	}
	return &in
}

// attached is a volume with its mount in the agent's container. The container of etcd has none of them, because it
// needs no credentials of a store.
type attached struct {
	volume corev1.Volume
	mount  corev1.VolumeMount
}

// secretMode lets the group of the Pod read files that the kubelet writes as root.
const secretMode = int32(0o440)

// storeAttached returns the volumes for a store. A Secret that does not exist does not block the start of a member.
// The kubelet adds it to the running Pod when it is created.
func storeAttached(store *v1alpha1.BackupStore, encryption *v1alpha1.BackupEncryption, use, dir string, readOnly bool) []attached {
	var all []attached
	attach := func(subdir string, source corev1.VolumeSource, readOnly bool) {
		name := use + "-" + subdir
		all = append(all, attached{
			volume: corev1.Volume{Name: name, VolumeSource: source},
			mount:  corev1.VolumeMount{Name: name, MountPath: dir + "/" + subdir, ReadOnly: readOnly},
		})
	}
	in := storeInputsOf(store, encryption)
	if in.Directory != nil {
		attach(config.StoreSubdir, directoryVolume(in.Directory, readOnly), readOnly)
	}
	if in.Encryption != nil {
		attach(config.KeysSubdir, secretVolume(in.Encryption.Name), true)
	}
	if in.Credentials != nil {
		attach(config.CredentialsSubdir, secretVolume(in.Credentials.Name), true)
	}
	if in.CA != nil {
		attach(config.CASubdir, secretVolume(in.CA.Name, corev1.KeyToPath{Key: in.CA.Key, Path: config.CAFile}), true)
	}
	if in.Key != nil {
		attach(config.KeySubdir, secretVolume(in.Key.Name, corev1.KeyToPath{Key: in.Key.Key, Path: config.KeyFile}), true)
	}
	return all
}

func secretVolume(name string, items ...corev1.KeyToPath) corev1.VolumeSource {
	return corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
		SecretName: name, Items: items, DefaultMode: new(secretMode), Optional: new(true),
	}}
}

// directoryVolume returns the volume of a directory. Kubernetes does not create a missing directory of the host,
// because root would own it.
func directoryVolume(d *v1alpha1.DirectoryStore, readOnly bool) corev1.VolumeSource {
	if d.HostPath != "" {
		exists := corev1.HostPathDirectory
		return corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: d.HostPath, Type: &exists}}
	}
	return corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{
		ClaimName: d.ClaimName, ReadOnly: readOnly,
	}}
}

// StoreURI returns the URI of a key in a backup store. status.artifact of an EtcdSnapshot has it.
func StoreURI(spec *v1alpha1.BackupStore, key string) string {
	return storeConfig(spec, nil, config.BackupDir).URI(key)
}

// SamePlace says whether backups in one store are also in the other. It compares buckets by name, because two endpoints can lead to
// one bucket.
func SamePlace(a, b *v1alpha1.BackupStore) bool {
	switch {
	case a.S3 != nil && b.S3 != nil:
		return a.S3.Bucket == b.S3.Bucket && strings.Trim(a.S3.Prefix, "/") == strings.Trim(b.S3.Prefix, "/")
	case a.Directory != nil && b.Directory != nil:
		return a.Directory.ClaimName != "" && a.Directory.ClaimName == b.Directory.ClaimName
	}
	return false
}
