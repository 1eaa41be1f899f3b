package datadir

import (
	"context"
	"errors"
	"io"

	"github.com/etcd-druid/druid/backup/boltcheck"
	"github.com/etcd-druid/druid/backup/boltpage"
)

// checkPages reads the whole backend at path.
func checkPages(ctx context.Context, path string) error {
	f, _, err := openBackendFile(path)
	if err != nil {
		return err
	}
	defer f.Close() // only read
	return asDamage(boltcheck.File(ctx, f))
}

func readMeta(f io.ReaderAt, size int64) (boltpage.Meta, error) {
	meta, err := boltcheck.ReadMeta(f, size)
	return meta, asDamage(err)
}

// asDamage names the damage of a backend as that of a data directory.
func asDamage(err error) error {
	found, ok := errors.AsType[*boltcheck.DamagedError](err)
	if !ok {
		return err
	}
	kind := map[boltcheck.Kind]Kind{boltcheck.Truncated: TruncatedDB, boltcheck.BadMeta: BadMeta, boltcheck.BadPage: BadPage}[found.Kind]
	return damaged(kind, "%s", found.Reason)
}
