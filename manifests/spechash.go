package manifests

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/api/v1alpha1"
)

// podInputs has everything in a spec that decides about the Pods of members. All else in a Pod follows from the name
// of the member, or is the same for every cluster. A later version of druid compares its hash with that of a running
// Pod, so these fields are permanent. A new field is left out while it is not set. A field holds what the spec
// requests, not how druid renders it. So an upgrade of druid, which can render it differently, makes no Pod outdated.
// spec.bootstrap is left out, because it never changes. spec.additionalMetadata is left out, because a label does not
// justify the restart of an etcd.
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
	// Memory is the size of storage in memory, and Disk that of storage on the disks of the nodes.
	Memory string `json:"memory,omitempty"`
	Disk   string `json:"disk,omitempty"`
	// TLS are the planes with TLS and the Secrets that their Pods mount.
	TLS []tlsInputs `json:"tls,omitempty"`
	// Passwords is the Secret with the passwords of etcd's users.
	Passwords string `json:"passwords,omitempty"`
}

// tlsInputs is what a Pod has of the TLS of a plane. The content of Secrets changes without a new Pod.
type tlsInputs struct {
	Plane  Plane                  `json:"plane"`
	Mode   config.TLSMode         `json:"mode"`
	Secret *v1alpha1.TLSSecretRef `json:"secret,omitempty"`
	// Plaintext is set while TLS is being turned on or off.
	Plaintext bool `json:"plaintext,omitempty"`
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

// SpecHash returns the hash of what the spec requests of each Pod of the cluster. A Pod has it as AnnotationSpecHash.
// A Pod with another hash is outdated. Additions of others, such as webhooks, and the image of the agent do not
// matter.
func SpecHash(cluster *v1alpha1.EtcdCluster) (string, error) {
	agent, err := agentConfig(cluster, "")
	if err != nil {
		return "", err
	}
	sum, err := hash(podInputs{
		Image:            etcdImage(cluster, Options{}),
		ImagePullSecrets: cluster.Spec.ImagePullSecrets,
		Etcd: etcdInputs{
			QuotaBackendBytes:       agent.QuotaBackendBytes,
			AutoCompactionMode:      agent.AutoCompactionMode,
			AutoCompactionRetention: cluster.Spec.Etcd.AutoCompactionRetention,
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
		Memory:                    sizeOn(v1alpha1.StorageMemory, cluster),
		Disk:                      sizeOn(v1alpha1.StorageDisk, cluster),
		TLS:                       tlsInputsOf(cluster),
		Passwords:                 passwordsSecret(cluster),
	})
	if err != nil {
		return "", fmt.Errorf("hash the Pod inputs of EtcdCluster %s/%s: %w", cluster.Namespace, cluster.Name, err)
	}
	return sum, nil
}

func tlsInputsOf(cluster *v1alpha1.EtcdCluster) []tlsInputs {
	var all []tlsInputs
	for _, s := range mountedTLS(cluster) {
		all = append(all, tlsInputs{s.plane, s.mode, s.ref, s.plaintext()})
	}
	return all
}

// sizeOn returns the size of the volume if it is in the Pod, and of that medium. A Pod with a claim does not have it.
func sizeOn(medium v1alpha1.StorageMedium, cluster *v1alpha1.EtcdCluster) string {
	if cluster.Spec.Storage.Medium != medium {
		return ""
	}
	return cluster.Spec.Storage.Size.String()
}

// hash returns the first half of the SHA-256 of content as JSON. JSON sorts the keys of a map and keeps the fields of
// a struct in the order of their declaration.
func hash(content any) (string, error) {
	raw, err := json.Marshal(content)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:len(sum)/2]), nil
}
