package open

import (
	"context"

	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/backup/store/dir"
	"github.com/etcd-druid/druid/backup/store/encrypt"
	"github.com/etcd-druid/druid/backup/store/s3"
)

// Open returns the store that c describes. A directory must exist. For a bucket, Open sends no request. Keys are read
// when they are needed; planning and listing need none.
func Open(ctx context.Context, c store.Config) (store.Store, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	inner, err := bare(ctx, c)
	if err != nil {
		return nil, err
	}
	// Also without keys, so that the listing has encrypted objects with their decrypted sizes.
	return encrypt.Around(inner, c.ClientEncryption), nil
}

// bare opens the store without encryption. It returns a nil interface for an error, never a nil pointer in one.
func bare(ctx context.Context, c store.Config) (store.Store, error) {
	if c.Directory != nil {
		return opened(dir.Open(*c.Directory))
	}
	return opened(s3.Open(ctx, *c.S3))
}

func opened[S store.Store](s S, err error) (store.Store, error) {
	if err != nil {
		return nil, err
	}
	return s, nil
}
