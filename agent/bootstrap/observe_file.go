package bootstrap

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/etcd-druid/druid/backup/restore"
	"github.com/etcd-druid/druid/backup/store"
)

// findFile looks for the file that is to be restored, and whether it can be, as far as a few pages of it report.
func (b *Bootstrapper) findFile(ctx context.Context, answer bootstraps, key string, raw json.RawMessage) bootstraps {
	c, err := store.ParseConfig(raw)
	if err != nil {
		return answer.because(StoreUnreachable, err)
	}
	c.Sealing = nil // it is as etcd wrote it, whatever becomes of the cluster's own backups
	if answer.source, err = b.opened(ctx, c); err != nil {
		return answer.because(StoreUnreachable, err)
	}
	file, err := store.Find(ctx, answer.source, key)
	switch {
	case errors.Is(err, store.ErrAbsent):
		return answer.because(NoBackup, fmt.Errorf("%w; put it there, and it is restored", err))
	case errors.Is(err, store.ErrInvalid):
		return answer.because(BackupUnusable, err)
	case err != nil:
		return answer.because(StoreUnreachable, err)
	}
	_, err = restore.CheckFile(ctx, restore.Config{
		Store: answer.source, File: file, EtcdVersion: b.cfg.EtcdVersion, Quota: quotaOf(&b.cfg), RefuseAuth: true,
	})
	switch {
	case err != nil && isUnusable(err):
		return answer.because(BackupUnusable, err)
	case err != nil:
		return answer.because(StoreUnreachable, err)
	}
	answer.fact, answer.file = BackupPresent, file
	return answer
}
