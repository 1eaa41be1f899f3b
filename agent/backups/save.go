package backups

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/backup/snapshot"
	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/backup/verify"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

// Save is one full backup that no agent of the cluster makes. Its process needs a client certificate of the cluster and
// access to the store, and nothing of Kubernetes.
type Save struct {
	// Endpoint is the URL of the client port of the members, and Dial connects to it.
	Endpoint string
	Dial     membership.Dial
	Store    store.Store
	// URI returns the URI of a key in the store.
	URI    func(key string) string
	Prefix string
	// Self is the identity of the history that is saved. The member does not matter.
	Self Identity
	// Restored says that the lineage has a parent, which is not known. Then no record of the lineage is written.
	Restored bool
	Log      *slog.Logger
}

const (
	// maxUnavailable is how long a Save waits for an etcd that does not answer. An election takes seconds, and a Pod that
	// moves to another node a minute or two.
	maxUnavailable = 5 * time.Minute
	// etcdTimeout bounds one question whether etcd answers.
	etcdTimeout = 10 * time.Second
)

// savePace is the pause after etcd ended an attempt.
var savePace = pace{time.Second, 15 * time.Second}

// Run streams the database of one member into the store, and reads the object back. It tries again while etcd is the
// reason of a failure. A failure of the store is final: the store has a limit of its own.
func (s *Save) Run(ctx context.Context) (a Artifact, err error) {
	if err := s.record(ctx); err != nil {
		return Artifact{}, err
	}
	client, done, err := s.Dial(ctx, s.Endpoint)
	if err != nil {
		return Artifact{}, err
	}
	defer func() { done(err) }()
	answered := time.Now()
	for failures := 1; ; failures++ {
		err := s.reach(ctx, client)
		if err == nil {
			answered = time.Now()
			if a, err = s.take(ctx, client); err == nil {
				s.sweep(ctx)
				return a, s.readBack(ctx, a)
			}
		}
		switch {
		case ctx.Err() != nil, !passing(err):
			return Artifact{}, err
		case time.Since(answered) > maxUnavailable:
			return Artifact{}, fmt.Errorf("etcd at %s did not answer for %s: %w", s.Endpoint, maxUnavailable, err)
		}
		s.Log.WarnContext(ctx, "snapshot of etcd failed, retrying", "endpoint", s.Endpoint, "err", err)
		await(ctx, nil, savePace.after(failures))
	}
}

// sweep removes the uploads of this cluster that did not end. The cluster can have ended, and then no agent removes them. A failure does not
// matter to the backup.
func (s *Save) sweep(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, bearTimeout)
	defer cancel()
	if err := sweep(ctx, s.Store, s.Prefix, s.Log); err != nil {
		s.Log.WarnContext(ctx, "orphaned uploads not removed", "err", err)
	}
}

// record writes the record of the lineage, so that the backup can be listed and restored like any other.
func (s *Save) record(ctx context.Context) error {
	if s.Restored {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, bearTimeout)
	defer cancel()
	doubt, err := recordBootstrap(ctx, s.Store, s.Prefix, s.Self)
	return errors.Join(err, doubt)
}

// reach returns nil if the etcd at the endpoint answers, and is the cluster that is to be saved.
func (s *Save) reach(ctx context.Context, client *clientv3.Client) error {
	ctx, cancel := context.WithTimeout(ctx, etcdTimeout)
	defer cancel()
	now, err := membership.ReadStatus(ctx, client, s.Endpoint)
	if err != nil {
		return err
	}
	if s.Self.ClusterID != 0 && now.ClusterID != s.Self.ClusterID {
		return fmt.Errorf("etcd at %s is cluster %s, and the EtcdCluster is %s; nothing was saved",
			s.Endpoint, leases.FormatID(now.ClusterID), leases.FormatID(s.Self.ClusterID))
	}
	return nil
}

func (s *Save) take(ctx context.Context, client *clientv3.Client) (Artifact, error) {
	r, err := snapshot.Take(ctx, snapshot.Config{
		Client: client, Store: s.Store, Lineage: string(s.Self.Lineage),
		Key: func(revision int64, at time.Time) string {
			return catalog.FullKey(s.Prefix, s.Self.Lineage, revision, at)
		},
	})
	if err != nil {
		return Artifact{}, err
	}
	return Artifact{
		Kind: kindFull, Key: r.Key, URI: s.URI(r.Key), Revision: r.Revision, Size: r.ObjectSize, SHA256: r.SHA256, StorageVersion: r.StorageVersion,
	}, nil
}

// readBack reads the object to its end. An object that is broken stays, so that an operator can inspect it.
func (s *Save) readBack(ctx context.Context, a Artifact) error {
	full, ok := catalog.ParseFull(s.Prefix, a.Key)
	if !ok {
		return fmt.Errorf("read back %s: its name is not that of a full backup", a.URI)
	}
	full.Size = a.Size
	// Only a history with a record is complete, and here the object alone counts.
	written := catalog.Catalog{Prefix: s.Prefix,
		Histories: []catalog.History{{Lineage: s.Self.Lineage, Formation: &catalog.Formation{}, Fulls: []catalog.Full{full}}}}
	return verify.Check(ctx, s.Store, written, func(f verify.Finding) error {
		switch f.State {
		case verify.ObjectIntact:
			return nil
		case verify.ObjectBroken:
			return fmt.Errorf("the object %s was saved and is broken: %s; delete it in the store", a.URI, f.Reason)
		default:
			return fmt.Errorf("the object %s was saved, and could not be read back: %s", a.URI, f.Reason)
		}
	})
}

// passing says that etcd is the reason of a failure, and that it can pass.
func passing(err error) bool {
	switch {
	case errors.Is(err, snapshot.ErrTorn), errors.Is(err, snapshot.ErrEndpoints):
		return true
	}
	code := status.Code(err)
	if known, ok := errors.AsType[rpctypes.EtcdError](err); ok {
		code = known.Code()
	}
	pass := []codes.Code{codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Aborted, codes.ResourceExhausted, codes.Internal}
	return slices.Contains(pass, code) || errors.Is(err, context.DeadlineExceeded)
}

// Drop deletes one full backup that was saved by a Save, of the lineage that its key names. A process that records
// delta backups in that place needs the full backup before them, so it refuses to delete one there. It succeeds if
// there is no such object.
func (s *Save) Drop(ctx context.Context, key string) (a Artifact, err error) {
	a = Artifact{Kind: kindFull, Key: key, URI: s.URI(key)}
	full, ok := catalog.ParseFull(s.Prefix, key)
	if !ok {
		return a, fmt.Errorf("%s is not a full backup of this cluster; delete it in the store", a.URI)
	}
	listed, err := catalog.Read(ctx, s.Store, s.Prefix)
	if err != nil {
		return a, err
	}
	s.sweep(ctx)
	found, exists := find(listed, key)
	if !exists {
		return a, nil
	}
	a.Revision, a.Size = found.Revision, found.Size
	if h, _ := listed.History(full.Lineage); len(h.Deltas) > 0 {
		return a, fmt.Errorf("the store has delta backups of this lineage, and they need %s; delete it in the store when you do not need them", a.URI)
	}
	return a, s.Store.Delete(ctx, key)
}
