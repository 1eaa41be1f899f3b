package druid

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/api/v1alpha1"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/manifests"
)

const (
	// backupsOn asks for backups to a bucket that needs no Secret, and backupsOff for none.
	backupsOn  = `{"spec":{"backup":{"store":{"s3":{"bucket":"backups"}}}}}`
	backupsOff = `{"spec":{"backup":null}}`
)

// snapshotLeases says whether the Leases that report backups, and the agents' right to write them, are there or are gone.
func (s *stage) snapshotLeases(want bool) error {
	var role rbacv1.Role
	if err := s.fetch(manifests.AgentName("demo"), &role); err != nil {
		return err
	}
	for _, name := range []string{leases.FullSnapshotName("demo"), leases.DeltaSnapshotName("demo")} {
		gone := s.gone(name, &coordinationv1.Lease{})
		if want != (gone != nil) {
			return errors.Join(gone, fmt.Errorf("Lease %s is there: %t, want %t", name, !want, want))
		}
		if allowed := slices.Contains(role.Rules[0].ResourceNames, name); allowed != want {
			return fmt.Errorf("the agents may write Lease %s: %t, want %t", name, allowed, want)
		}
	}
	return nil
}

// backup is what the agents read of backups.
func (s *stage) backup() (*config.Backup, error) {
	var object corev1.ConfigMap
	if err := s.fetch(manifests.AgentName("demo"), &object); err != nil {
		return nil, err
	}
	read, err := config.ParseReloadable([]byte(object.Data[config.ConfigFile]))
	return read.Backup, err
}

// saves lets the leader's agent report that everything is saved, for as long as it says.
func (s *stage) saves(component leases.Component, duration time.Duration) {
	s.Helper()
	now := time.Now()
	s.eventually("report a backup", func() error {
		return s.store("demo").RenewBackup(s.Context(), component, leases.BackupPatch{
			Backup: leases.Backup{Revision: now.UnixNano(), Object: "some", Size: 1, SHA256: "ab"}, RenewTime: &now, Duration: duration,
		})
	})
}

// fails lets it report that it could not.
func (s *stage) fails(component leases.Component, why string) {
	s.Helper()
	s.eventually("report a failure", func() error {
		return s.store("demo").RenewBackup(s.Context(), component, leases.BackupPatch{Backup: leases.Backup{Error: why}})
	})
}

// supersedes lets it report that the latest backup in its place is of the lineage, or of none other.
func (s *stage) supersedes(lineage string) {
	s.Helper()
	s.eventually("report whose backup is the latest", func() error {
		return s.store("demo").RenewBackup(s.Context(), full, leases.BackupPatch{Backup: leases.Backup{SupersededBy: lineage}})
	})
}

// words waits until the message of the cluster's condition holds all of want and none of the others.
func (s *stage) words(kind string, want, others []string) {
	s.Helper()
	s.eventually("say "+strings.Join(want, ", "), func() error {
		var c v1alpha1.EtcdCluster
		if err := s.fetch("demo", &c); err != nil {
			return err
		}
		condition := meta.FindStatusCondition(c.Status.Conditions, kind)
		if condition == nil {
			return errors.New("there is no such condition")
		}
		missing := func(w string) bool { return !strings.Contains(condition.Message, w) }
		if slices.ContainsFunc(want, missing) || slices.ContainsFunc(others, func(w string) bool { return !missing(w) }) {
			return fmt.Errorf("it says %q, want %q and not %q", condition.Message, want, others)
		}
		return nil
	})
}
