package manifests

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/etcd-druid/druid/api/v1alpha1"
)

// podInputs is what a spec decides about the members' Pods: whatever else stands in a Pod follows from the member's name, or
// is the same for every cluster of one druid. The hash of a running Pod is compared by druids that are younger than the Pod,
// so these fields are permanently: a new one is left out while it is not set, and what the spec asks for stands here, not how it
// is rendered. Then the upgrade of druid itself, which may render all of it otherwise, makes no Pod outdated.
// Not here are spec.bootstrap, which never changes, and spec.additionalMetadata: no label is worth the restart of an etcd.
type podInputs struct {
	Image                     string                            `json:"image"`
	ImagePullSecrets          []corev1.LocalObjectReference     `json:"imagePullSecrets,omitempty"`
	Etcd                      etcdInputs                        `json:"etcd"`
	Resources                 corev1.ResourceRequirements       `json:"resources"`
	Affinity                  *corev1.Affinity                  `json:"affinity,omitempty"`
	TopologySpreadConstraints []corev1.TopologySpreadConstraint `json:"topologySpreadConstraints,omitempty"`
	Tolerations               []corev1.Toleration               `json:"tolerations,omitempty"`
	PriorityClassName         string                            `json:"priorityClassName,omitempty"`
	NodeSelector              map[string]v1alpha1.LabelValue    `json:"nodeSelector,omitempty"`
	RuntimeClassName          *string                           `json:"runtimeClassName,omitempty"`
	Env                       []v1alpha1.EnvVar                 `json:"env,omitempty"`
	Backup                    *storeInputs                      `json:"backup,omitempty"`
	// Memory is the size of storage that is memory.
	Memory string `json:"memory,omitempty"`
}

// etcdInputs are the start options of etcd.
type etcdInputs struct {
	QuotaBackendBytes       int64         `json:"quotaBackendBytes"`
	AutoCompactionMode      string        `json:"autoCompactionMode,omitempty"`
	AutoCompactionRetention string        `json:"autoCompactionRetention,omitempty"`
	SnapshotCount           int64         `json:"snapshotCount,omitempty"`
	HeartbeatInterval       time.Duration `json:"heartbeatInterval,omitempty"`
	ElectionTimeout         time.Duration `json:"electionTimeout,omitempty"`
}

// storeInputs are those of backups that become volumes. Everything else of it the agents take up while they run.
type storeInputs struct {
	Directory   *v1alpha1.DirectoryStore `json:"directory,omitempty"`
	Credentials *v1alpha1.SecretRef      `json:"credentials,omitempty"`
	CA          *v1alpha1.SecretKeyRef   `json:"ca,omitempty"`
	Key         *v1alpha1.SecretKeyRef   `json:"key,omitempty"`
	Encryption  *v1alpha1.SecretRef      `json:"encryption,omitempty"`
}

// SpecHash is the hash of what the spec asks of each of the cluster's Pods. A Pod bears it as AnnotationSpecHash: one that
// bears another is outdated. What others add to a Pod, as webhooks do, is no part of it, nor is the agent's image.
func SpecHash(cluster *v1alpha1.EtcdCluster) (string, error) {
	agent, err := agentConfig(cluster, "")
	if err != nil {
		return "", err
	}
	sum, err := hash(podInputs{
		Image:            EtcdImage(cluster),
		ImagePullSecrets: cluster.Spec.ImagePullSecrets,
		Etcd: etcdInputs{
			QuotaBackendBytes:       agent.QuotaBackendBytes,
			AutoCompactionMode:      agent.AutoCompactionMode,
			AutoCompactionRetention: agent.AutoCompactionRetention,
			SnapshotCount:           agent.SnapshotCount,
			HeartbeatInterval:       agent.HeartbeatInterval,
			ElectionTimeout:         agent.ElectionTimeout,
		},
		Resources:                 cluster.Spec.Resources,
		Affinity:                  cluster.Spec.Affinity,
		TopologySpreadConstraints: cluster.Spec.TopologySpreadConstraints,
		Tolerations:               cluster.Spec.Tolerations,
		PriorityClassName:         cluster.Spec.PriorityClassName,
		NodeSelector:              cluster.Spec.NodeSelector,
		RuntimeClassName:          cluster.Spec.RuntimeClassName,
		Env:                       cluster.Spec.Env,
		Backup:                    backupInputs(cluster.Spec.Backup),
		Memory:                    memoryInput(cluster),
	})
	if err != nil {
		return "", fmt.Errorf("hash the Pod inputs of EtcdCluster %s/%s: %w", cluster.Namespace, cluster.Name, err)
	}
	return sum, nil
}

// memoryInput is the limit of the volume, which is no part of a Pod that has a claim.
func memoryInput(cluster *v1alpha1.EtcdCluster) string {
	if !InMemory(cluster) {
		return ""
	}
	return cluster.Spec.Storage.Size.String()
}

func backupInputs(spec *v1alpha1.BackupSpec) *storeInputs {
	if spec == nil {
		return nil
	}
	in := storeInputs{Directory: spec.Store.Directory}
	if s3 := spec.Store.S3; s3 != nil {
		in.Credentials, in.CA = s3.CredentialsSecretRef, s3.CASecretRef
		if s3.SSE != nil {
			in.Key = s3.SSE.KeySecretRef
		}
	}
	if spec.Encryption != nil {
		in.Encryption = &spec.Encryption.KeySecretRef
	}
	if in == (storeInputs{}) {
		return nil // as for a cluster without backups: no Pod needs anything for such a store
	}
	return &in
}

// hash is the first half of the SHA-256 of content as JSON, in which the keys of a map are sorted and the fields of a
// struct stand in the order of their declaration.
func hash(content any) (string, error) {
	raw, err := json.Marshal(content)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:len(sum)/2]), nil
}
