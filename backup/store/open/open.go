package open

import (
	"context"

	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/backup/store/dir"
	"github.com/etcd-druid/druid/backup/store/s3"
)

// Open returns the store that c describes. A directory must be there; a bucket is asked for nothing yet.
func Open(ctx context.Context, c store.Config) (store.Store, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if c.Directory != nil {
		return opened(dir.Open(*c.Directory))
	}
	return opened(s3.Open(ctx, *c.S3))
}

// opened keeps a nil pointer from becoming a store that is not nil.
func opened[S store.Store](s S, err error) (store.Store, error) {
	if err != nil {
		return nil, err
	}
	return s, nil
}
