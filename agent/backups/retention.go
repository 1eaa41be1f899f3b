package backups

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/internal/crash"
	"github.com/etcd-druid/druid/leases"
)

// orphanAge is the minimum age of an unfinished upload before it is removed. No upload of a full backup takes a day.
const orphanAge = 24 * time.Hour

// Prune deletes what retention does not keep, once at the start and after each full backup, until ctx ends and at most
// hangTimeout longer. It needs the leader's Lease, which Run does not need. It does nothing while Run has no session,
// or one whose backups are not complete: the objects might belong to another cluster, or be the only ones left. Unfinished
// uploads are removed also if the objects might belong to another cluster.
func (d *Duty) Prune(ctx context.Context) error {
	tries := attempts{pace: d.readPace}
	d.prune()
	for ctx.Err() == nil {
		s, changed := d.at()
		if s == nil {
			await(ctx, changed, maxRest)
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
			continue
		case <-d.pruning:
		}
		work := s.deletions()
		if work == nil {
			continue // the session says when there is some
		}
		err := d.pass(ctx, work)
		if err == nil {
			tries.succeeded()
			continue
		}
		tries.failed(time.Now())
		d.Metrics.failed(kindStore)
		if tries.failures == 1 && ctx.Err() == nil {
			d.Log.WarnContext(ctx, "retention failed, retrying", "err", err)
		}
		d.prune()
		await(ctx, nil, time.Until(tries.next))
	}
	return nil
}

// retain deletes the superfluous objects of a new listing, oldest first, and removes unfinished uploads. It can stop
// at any point.
func (s *session) retain(ctx context.Context) (err error) {
	t, err := s.begins(ctx)
	if err != nil {
		return err
	}
	defer func() { t.done(err) }()
	listed, evidence, err := s.survey(ctx)
	if err != nil {
		return err
	}
	if s.config.Verify.Schedule != "" && !knowsVerified(listed, evidence) {
		s.log.InfoContext(ctx, "nothing deleted, no full backup is verified")
		return s.sweep(ctx)
	}
	for _, v := range listed.Retain(s.self.Lineage, policy(s.config.Retention), evidence, time.Now()) {
		if v.Keep {
			continue
		}
		if err := t.lasts(ctx); err != nil {
			return err
		}
		if restores, err := s.restores(ctx); restores || err != nil {
			return err
		}
		err := s.drop(ctx, v)
		if errors.Is(err, store.ErrLocked) {
			s.log.DebugContext(ctx, "locked backup kept", "object", v.Key) // a later pass deletes it when the lock has expired
			continue
		}
		if err != nil {
			return err
		}
	}
	return s.sweep(ctx)
}

// knowsVerified reports whether the store has a full backup that was verified, and is not known to be broken since. Otherwise each full backup
// can be the only intact one: the backups were not verified yet, or the Lease with the results was deleted.
func knowsVerified(c catalog.Catalog, e catalog.Evidence) bool {
	for key := range e.Verified {
		if c.Holds(key) && !e.Broken[key] {
			return true
		}
	}
	return false
}

// restores says whether a restore in place is requested or ordered. Nothing is deleted meanwhile: the final backup before it must not make
// those backups superfluous from which the cluster is restored.
func (s *session) restores(ctx context.Context) (bool, error) {
	record, _, err := s.Leases.Record(ctx)
	switch {
	case errors.Is(err, leases.ErrAbsent):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("read whether a restore is requested: %w", err)
	}
	return record.Restore.Request.Nonce != "" || record.Order().Restores(), nil
}

// survey lists the store and reads the results of verifications. In a place that belongs to another cluster, nothing
// is deleted.
func (s *session) survey(ctx context.Context) (catalog.Catalog, catalog.Evidence, error) {
	listed, unread, err := catalogOf(ctx, s.store, s.config.Prefix)
	if err = errors.Join(err, undeleted(unread)); err != nil {
		return listed, catalog.Evidence{}, err
	}
	if l, found := superseding(listed, s.self); found {
		return listed, catalog.Evidence{}, s.supersededBy(l)
	}
	evidence, err := s.evidence(ctx)
	return listed, evidence, err
}

// evidence returns the results of verifications. While they cannot be read, nothing is deleted. Without a Lease, there
// are no results, see knowsVerified.
func (s *session) evidence(ctx context.Context) (catalog.Evidence, error) {
	e := catalog.Evidence{Verified: map[string]bool{}, Broken: map[string]bool{}}
	_, v, err := s.Leases.Full(ctx)
	switch {
	case errors.Is(err, leases.ErrAbsent):
		return e, nil
	case err != nil:
		return e, fmt.Errorf("read the results of verifications: %w", err)
	}
	if v.VerifiedFull != "" {
		e.Verified[v.VerifiedFull] = true
	}
	for _, key := range v.AllBroken() {
		e.Broken[key] = true
	}
	return e, nil
}

// drop deletes one object. A locked object stays, with store.ErrLocked.
func (s *session) drop(ctx context.Context, v catalog.Verdict) error {
	crash.Before("delete-backup")
	err := s.store.Delete(ctx, v.Key)
	crash.After("delete-backup")
	if err != nil {
		return err
	}
	s.Metrics.deleted.Inc()
	s.log.InfoContext(ctx, "backup deleted", "object", v.Key, "rule", string(v.Reason))
	return nil
}

// deletions returns what may be deleted now, nil for nothing. Where only a doubt blocks retention, unfinished uploads may be.
func (s *session) deletions() func(context.Context) error {
	switch {
	case s.sound.Load():
		return s.retain
	case s.whole.Load():
		return s.sweepAlone
	default:
		return nil
	}
}

// sweepAlone removes unfinished uploads while doubt about the store blocks deletions: no process continues an upload of another one.
func (s *session) sweepAlone(ctx context.Context) (err error) {
	t, err := s.begins(ctx)
	if err != nil {
		return err
	}
	defer func() { t.done(err) }()
	return s.sweep(ctx)
}

func (s *session) sweep(ctx context.Context) error {
	return sweep(ctx, s.store, s.config.Prefix, s.log)
}

// sweep removes the uploads below a prefix that did not end.
func sweep(ctx context.Context, in store.Store, prefix string, log *slog.Logger) error {
	crash.Before("sweep-uploads")
	n, err := in.Sweep(ctx, prefix+"/", orphanAge)
	crash.After("sweep-uploads")
	if n > 0 {
		log.InfoContext(ctx, "orphaned uploads removed", "uploads", n)
	}
	return err
}

func policy(r config.Retention) catalog.Policy {
	return catalog.Policy{
		KeepAll: time.Duration(r.KeepAll), Hourly: r.Hourly, Daily: r.Daily, Weekly: r.Weekly, Monthly: r.Monthly, Count: r.Count,
	}
}
