package manifests

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/api/v1alpha1"
)

// Backup returns the configuration of the agents for backups, or nil for a cluster without backups. It replaces a schedule
// that cannot be parsed with the default schedule, because backups on another schedule are better than none.
func Backup(cluster *v1alpha1.EtcdCluster) (*config.Backup, error) {
	spec := cluster.Spec.Backup
	if spec == nil {
		return nil, nil
	}
	raw, err := json.Marshal(storeConfig(&spec.Store, spec.Encryption, config.BackupDir))
	if err != nil {
		return nil, fmt.Errorf("encode the backup store of %s/%s: %w", cluster.Namespace, cluster.Name, err)
	}
	b := &config.Backup{
		Store: raw, Prefix: cluster.Namespace + "/" + cluster.Name,
		Full:      config.Full{Schedule: spec.Full.Schedule, TimeZone: spec.Full.TimeZone},
		Delta:     config.Delta{Period: config.Duration(defaultDeltaPeriod), MaxBytes: defaultDeltaBytes},
		Retention: retention(spec.Retention), Compression: config.Compression{Level: string(spec.Compression.Level)},
	}
	if scheduleProblem(spec.Full) != nil {
		b.Full = config.Full{Schedule: DefaultSchedule}
	}
	b.Verify = config.Verify{Schedule: spec.Verify.Schedule, TimeZone: spec.Verify.TimeZone}
	if spec.Verify.Schedule == "" || verifyProblem(spec.Verify) != nil {
		b.Verify = config.Verify{Schedule: DefaultVerifySchedule}
	}
	if spec.Full.MaxAge != nil {
		b.Full.MaxAge = config.Duration(spec.Full.MaxAge.Duration)
	}
	if spec.Delta.Period != nil {
		b.Delta.Period = config.Duration(spec.Delta.Period.Duration)
	}
	if spec.Delta.MaxBytes != nil {
		b.Delta.MaxBytes = spec.Delta.MaxBytes.Value()
	}
	return b, nil
}

// DefaultSchedule of full backups, in UTC. It is the default of the API.
const DefaultSchedule = "0 0 * * *"

// DefaultVerifySchedule of verifications, in UTC. It is the default of the API.
const DefaultVerifySchedule = "0 3 * * *"

// The API's own defaults, which the API server fills in.
const (
	defaultDeltaPeriod = 10 * time.Second
	defaultDeltaBytes  = 8 << 20
	defaultKeepAll     = 7 * 24 * time.Hour
	defaultKeepDaily   = 30
)

// BackupProblem returns what is wrong with spec.backup that the API server cannot detect, or nil.
func BackupProblem(cluster *v1alpha1.EtcdCluster) error {
	spec := cluster.Spec.Backup
	if spec == nil {
		return nil
	}
	if err := scheduleProblem(spec.Full); err != nil {
		return fmt.Errorf("spec.backup.full: %w; druid uses %s UTC until you correct it", err, DefaultSchedule)
	}
	if err := verifyProblem(spec.Verify); err != nil {
		return fmt.Errorf("spec.backup.verify: %w; druid uses %s UTC until you correct it", err, DefaultVerifySchedule)
	}
	if err := storeConfig(&spec.Store, spec.Encryption, config.BackupDir).Validate(); err != nil {
		return fmt.Errorf("spec.backup.store: %w", err)
	}
	return nil
}

func scheduleProblem(full v1alpha1.FullBackup) error {
	_, err := config.ParseSchedule(full.Schedule, full.TimeZone)
	return err
}

// verifyProblem returns what is wrong with the schedule of verifications. An EtcdCluster from before verifications
// existed has no schedule, and gets the default one.
func verifyProblem(verify v1alpha1.BackupVerification) error {
	if verify.Schedule == "" {
		return nil
	}
	_, err := config.ParseSchedule(verify.Schedule, verify.TimeZone)
	return err
}

func retention(r v1alpha1.BackupRetention) config.Retention {
	if r == (v1alpha1.BackupRetention{}) {
		return config.Retention{KeepAll: config.Duration(defaultKeepAll), Daily: defaultKeepDaily}
	}
	kept := config.Retention{
		Hourly: int(r.Hourly), Daily: int(r.Daily), Weekly: int(r.Weekly), Monthly: int(r.Monthly), Count: int(r.Count),
	}
	if r.KeepAll != nil {
		kept.KeepAll = config.Duration(r.KeepAll.Duration)
	}
	return kept
}

// storeVolumes returns the volumes that the agent needs for the stores of the cluster and for verifications.
func storeVolumes(cluster *v1alpha1.EtcdCluster) []attached {
	all := []attached{scratch()}
	if cluster.Spec.Backup != nil {
		all = append(all, backupAttached(cluster.Spec.Backup)...)
	}
	// If the restore cannot be parsed, druid creates no Pod, so the volumes do not matter.
	if spec, _, err := restoreSpec(cluster); err == nil && spec != nil && spec.From != nil && spec.From.Store != nil {
		all = append(all, storeAttached(spec.From.Store, spec.From.Encryption, "restore", config.RestoreDir, true)...)
	}
	return all
}

// backupAttached returns the volumes for the store that backups are written to.
func backupAttached(backup *v1alpha1.BackupSpec) []attached {
	return storeAttached(&backup.Store, backup.Encryption, "backup", config.BackupDir, false)
}

// scratch returns the volume into which backups are restored for verification. Each Pod has it, because backups can be
// turned on at any time. It has no limit, because the kubelet would evict a Pod that exceeds one, and etcd with it.
// Instead, the agent checks the free space and leaves enough.
func scratch() attached {
	return attached{
		volume: corev1.Volume{Name: volumeScratch, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		mount:  corev1.VolumeMount{Name: volumeScratch, MountPath: config.ScratchDir},
	}
}

// ReachesStore reports whether the Pod has the volumes that its agent needs for the backup store. A Pod that is older
// than the configuration of the store does not have them, because Kubernetes cannot add volumes to an existing Pod.
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

// restore returns what the first start of the cluster restores. It is empty for a cluster that starts without data.
func restore(cluster *v1alpha1.EtcdCluster) (string, error) {
	spec, lineage, err := restoreSpec(cluster)
	if spec == nil || err != nil {
		return "", err
	}
	if from := spec.From; from != nil && from.SnapshotRef != nil {
		// A cluster that has formed needs no more of it; an agent that would form one waits, and says so.
		return config.Restore{Unresolved: fmt.Sprintf("the backup of EtcdSnapshot %s is unknown: status.restore of EtcdCluster %s does not have it yet",
			from.SnapshotRef.Name, cluster.Name)}.Encode()
	}
	order := config.Restore{Lineage: lineage}
	namespace, name := cluster.Namespace, cluster.Name
	if from := spec.From; from != nil {
		if from.Namespace != "" {
			namespace = from.Namespace
		}
		if from.Name != "" {
			name = from.Name
		}
		if from.Store != nil {
			raw, err := json.Marshal(storeConfig(from.Store, from.Encryption, config.RestoreDir))
			if err != nil {
				return "", fmt.Errorf("encode the store from which %s/%s is restored: %w", cluster.Namespace, cluster.Name, err)
			}
			order.Store = raw
		}
		order.File = from.File
	}
	if order.File == "" {
		order.Prefix = namespace + "/" + name
	}
	if to := spec.To; to != nil {
		order.Revision, order.Name = to.Revision, to.Name
		if to.Time != nil {
			moment := to.Time.UTC()
			order.Time = &moment
		}
	}
	return order.Encode()
}

// restoreSpec returns what the cluster starts with, or nil, and its lineage if known. That is what the spec says, or
// what druid found for the EtcdSnapshot that the spec names. Until druid has found it, the result has the snapshotRef.
func restoreSpec(cluster *v1alpha1.EtcdCluster) (spec *v1alpha1.RestoreSpec, lineage string, err error) {
	if cluster.Spec.Bootstrap == nil || cluster.Spec.Bootstrap.Restore == nil {
		return nil, "", nil
	}
	spec = cluster.Spec.Bootstrap.Restore
	if spec.From == nil || spec.From.SnapshotRef == nil {
		return spec, "", nil
	}
	resolved, err := cluster.Status.ResolvedRestore()
	if err != nil || resolved == nil {
		return spec, "", err
	}
	return &resolved.RestoreSpec, resolved.Lineage, nil
}
