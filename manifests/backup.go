package manifests

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/backup/store"
)

// Backup is what the cluster's agents are informed of its backups, nil for a cluster that has none. A schedule that cannot be
// understood is replaced: backups that go on by another one are better than none.
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

// DefaultSchedule of full backups, in UTC: the API's own default.
const DefaultSchedule = "0 0 * * *"

// DefaultVerifySchedule of proofs, in UTC: the API's own default.
const DefaultVerifySchedule = "0 3 * * *"

// The API's own defaults, which the API server fills in.
const (
	defaultDeltaPeriod = 10 * time.Second
	defaultDeltaBytes  = 8 << 20
	defaultKeepAll     = 7 * 24 * time.Hour
	defaultKeepDaily   = 30
)

// BackupProblem is what the API server cannot report spec.backup, and druid can: nil when nothing is wrong with it.
func BackupProblem(cluster *v1alpha1.EtcdCluster) error {
	spec := cluster.Spec.Backup
	if spec == nil {
		return nil
	}
	if err := scheduleProblem(spec.Full); err != nil {
		return fmt.Errorf("spec.backup.full: %w; until it is corrected %s UTC is used", err, DefaultSchedule)
	}
	if err := verifyProblem(spec.Verify); err != nil {
		return fmt.Errorf("spec.backup.verify: %w; until it is corrected %s UTC is used", err, DefaultVerifySchedule)
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

// verifyProblem: an EtcdCluster that was made before there were proofs has no schedule, and gets the default one.
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

// storeConfig is what a store is to the agent: its volumes stand below dir.
func storeConfig(spec *v1alpha1.BackupStore, encryption *v1alpha1.BackupEncryption, dir string) store.Config {
	var c store.Config
	if spec.Directory != nil {
		c.Directory = &store.Directory{Path: dir + "/" + config.StoreSubdir}
	} else if spec.S3 != nil {
		c.S3 = bucketConfig(spec.S3, dir)
	}
	if encryption != nil {
		c.Sealing = &store.Sealing{KeysDir: dir + "/" + config.KeysSubdir}
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
