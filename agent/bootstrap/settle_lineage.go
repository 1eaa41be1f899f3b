package bootstrap

import (
	"context"
	"fmt"
	"time"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/backup/chain"
	"github.com/etcd-druid/druid/internal/crash"
)

// parentRecorded writes, of a group that was restored, where its history forked, into the place of the cluster's own
// backups. It comes before the cluster is Formed and so before anybody writes into it: a backup of what is written then
// must never be taken for more of the parent's history. A group that began with a file has no parent, and reports the file; of one that began
// empty there is nothing to report.
func (s *settler) parentRecorded(ctx context.Context) error {
	if s.stamp.Parent == "" && s.stamp.File == "" {
		return nil
	}
	reloadable, err := config.ReadReloadable(s.b.cfg.ConfigPath)
	if err != nil {
		return fmt.Errorf("record where the history forked: %w", err)
	}
	if reloadable.Backup == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	store, err := s.b.storeOf(ctx, reloadable.Backup.Store)
	if err != nil {
		return err
	}
	formation := forkOf(s.stamp, s.b.cfg.EtcdVersion, time.Now().UTC())
	crash.Before("write-lineage")
	err = chain.WriteBootstrap(ctx, store, reloadable.Backup.Prefix, formation)
	crash.After("write-lineage")
	if err != nil {
		return fmt.Errorf("record where the history forked: %w", err)
	}
	return nil
}
