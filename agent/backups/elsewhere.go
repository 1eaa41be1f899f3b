package backups

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/etcd-druid/druid/backup/chain"
	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/leases"
)

// ambientRegion is that of a bucket whose region no one reports: the API's own default.
const ambientRegion = "us-east-1"

// elsewhere saves one full in another bucket, under the record of the lineage's bootstrap, so that it is listed and restored as any
// other. Nothing that is known of the cluster's own place changes by it.
func (d *Duty) elsewhere(ctx context.Context, place *leases.SnapshotPlace) (a Artifact, err error) {
	s, _ := d.at()
	if s == nil {
		return Artifact{}, ErrIdle
	}
	own, err := store.ParseConfig(s.config.Store)
	if err != nil {
		return Artifact{}, fmt.Errorf("backup store: %w", err)
	}
	c, err := placed(own, place)
	if err != nil {
		return Artifact{}, err
	}
	opened, err := d.Open(ctx, c)
	if err != nil {
		return Artifact{}, fmt.Errorf("backup store: %w", err)
	}
	// The session's own client ends with the session.
	client, err := d.Dial(ctx, d.Local)
	if err != nil {
		return Artifact{}, err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	if err := s.bearElsewhere(ctx, opened); err != nil {
		return Artifact{}, err
	}
	began := time.Now()
	r, err := s.snapshot(ctx, client, opened, chain.FullKey)
	if err != nil {
		return Artifact{}, err
	}
	a = Artifact{
		Kind: kindFull, Key: r.Key, URI: c.URI(r.Key), Revision: r.Revision, Size: r.ObjectSize, SHA256: r.SHA256, StorageVersion: r.StorageVersion,
	}
	s.log.InfoContext(ctx, "full taken elsewhere", "uri", a.URI, "revision", a.Revision, "bytes", a.Size, "took", time.Since(began))
	return a, nil
}

// placed is the configuration of the place: the agent's own, with what the place says. Object lock is the bucket's.
func placed(own store.Config, place *leases.SnapshotPlace) (store.Config, error) {
	if place == nil {
		return store.Config{}, errors.New("the order names no bucket")
	}
	s := store.S3{Region: ambientRegion}
	if own.S3 != nil {
		s = *own.S3
	}
	was := s
	s.Bucket, s.Prefix, s.ObjectLock = place.Bucket, place.Prefix, nil
	if place.Region != "" {
		s.Region = place.Region
	}
	if place.Endpoint != "" {
		s.Endpoint = place.Endpoint
	}
	if place.PathStyle != nil {
		s.PathStyle = *place.PathStyle
	}
	moved := strings.TrimSuffix(s.Endpoint, "/") != strings.TrimSuffix(was.Endpoint, "/")
	switch {
	case own.S3 != nil && !moved && s.Bucket == was.Bucket && s.Prefix == was.Prefix:
		return store.Config{}, errors.New("that is where the cluster is backed up to anyway: leave spec.store out")
	case moved && s.Encryption != nil && s.Encryption.Mode == store.EncryptionCustomerKey:
		return store.Config{}, errors.New("the store's sse.mode is CustomerKey, and that key would be sent to another endpoint: leave spec.store.endpoint out")
	}
	c := store.Config{S3: &s, Sealing: own.Sealing}
	return c, c.Validate()
}

// bearElsewhere makes sure of the record of the lineage's bootstrap in another place. Which parent it has the record in our own
// place reports, where it can be read.
func (s *session) bearElsewhere(ctx context.Context, other store.Store) error {
	ctx, cancel := context.WithTimeout(ctx, bearTimeout)
	defer cancel()
	self := s.self
	if formation, err := chain.ReadBootstrap(ctx, s.store, s.config.Prefix, self.Lineage); err == nil {
		self.Parent, self.Fork = formation.Parent, formation.Fork
	}
	doubt, err := recordBootstrap(ctx, other, s.config.Prefix, self)
	return errors.Join(err, doubt)
}
