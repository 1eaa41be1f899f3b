package backups

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/backup/delta"
	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/internal/crash"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
)

// One-bit enums, so that a rule's cell may hold several values.
type (
	// Chain is how what the store holds goes together with what etcd holds.
	CatalogState uint8
	// Recorder is what the recorder of deltas does.
	Recorder uint8
	// Full is what becomes of fulls.
	Full uint8
)

// The chains. ChainUnknown: the store or etcd was not asked yet, or did not answer.
const (
	CatalogUnknown CatalogState = 1 << iota
	// ChainEmpty: no full of this lineage.
	CatalogEmpty
	// ChainWhole: etcd still holds all that follows what was saved last.
	CatalogComplete
	// ChainBroken: revisions that were not saved are compacted, or the watch left some out.
	CatalogBroken
	// ChainBehind: etcd still holds all that follows, and so much that a watch of it would hold up writes.
	CatalogBehind
	// ChainAhead: the store holds revisions that etcd never had. This history is not the one that was saved.
	CatalogAhead
)

// The recorder. Resting: it failed, and its pause is not over.
const (
	RecorderOff Recorder = 1 << iota
	RecorderOn
	RecorderResting
)

// The fulls. Resting: the last try failed, and its pause is not over.
const (
	FullIdle Full = 1 << iota
	FullRunning
	FullResting
)

var (
	catalogNames = map[CatalogState]string{
		CatalogUnknown: "unknown", CatalogEmpty: "empty", CatalogComplete: "whole", CatalogBroken: "broken", CatalogBehind: "far behind", CatalogAhead: "ahead of etcd",
	}
	recorderNames = map[Recorder]string{RecorderOff: "off", RecorderOn: "on", RecorderResting: "resting"}
	fullNames     = map[Full]string{FullIdle: "idle", FullRunning: "running", FullResting: "resting"}
)

func (c CatalogState) String() string { return catalogNames[c] }
func (r Recorder) String() string     { return recorderNames[r] }
func (f Full) String() string         { return fullNames[f] }

// Facts are all that Decide may look at.
type Facts struct {
	CatalogState CatalogState
	Recorder     Recorder
	Full         Full
	// Asked: someone wants a full now.
	Asked rules.YesNo `fact:"asked for"`
	// Due: by schedule, by age, or by the size of what follows it, the newest full is to be followed by another.
	Due rules.YesNo
	// Doubted: the backups that begin with the newest full were restored, and found to be broken, and another full is to be taken now by
	// the table of replacements.
	Doubted rules.YesNo `fact:"found broken"`
}

// anyKey is read for the revision alone; whether it exists does not matter.
const anyKey = "\x00"

// observe finds out how the store and etcd go together. When one of them does not answer the chain stays unknown.
func (s *session) observe(ctx context.Context) {
	err := s.look(ctx)
	if ctx.Err() != nil {
		s.catalogState = CatalogUnknown
		return
	}
	if err != nil {
		s.catalogState = CatalogUnknown
		s.read.failed(time.Now())
		s.Metrics.failed(kindStore)
		s.inform.failed(ctx, err)
		return
	}
	s.read.succeeded()
	s.looked = time.Now()
	s.inform.read(ctx, s.newest, s.saved, s.catalogState, hindrances[s.catalogState], s.doubt)
}

// look makes sure of the record of the lineage's bootstrap before any object of it, and lists only after a linearizable read:
// what another leader saved before us is in the listing then, and what it saves after that can only overlap. In a place
// that is another's by now saving goes on, and nothing is deleted.
func (s *session) look(ctx context.Context) error {
	now, err := s.revision(ctx, 0)
	if err != nil {
		return err
	}
	s.now, s.catalogState = now, CatalogUnknown
	h, err := s.list(ctx)
	if err != nil {
		return err
	}
	if s.catalogState, err = s.compare(ctx); err != nil {
		return err
	}
	s.digest, s.digestOf = delta.Digest{}, s.saved
	if s.catalogState == CatalogComplete {
		s.digest = s.tip(ctx, h, s.saved)
	}
	return s.know(h, time.Now())
}

// list what is saved, and make sure of the record of its bootstrap.
func (s *session) list(ctx context.Context) (catalog.History, error) {
	listed, unread, err := catalogOf(ctx, s.store, s.config.Prefix)
	if err != nil {
		return catalog.History{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, bearTimeout)
	defer cancel()
	h, _ := listed.History(s.self.Lineage)
	s.saved, s.doubt = h.LastSaved(), undeleted(unread)
	s.replacing.fulls = keysOf(h.Fulls)
	if err := s.bear(ctx); err != nil {
		return h, err
	}
	if l, found := superseding(listed, s.self); found {
		s.doubt = s.supersededBy(l)
	}
	return h, nil
}

// catalogOf lists a store, for as long as it gets on.
func catalogOf(ctx context.Context, in store.Store, prefix string) (c catalog.Catalog, unread, err error) {
	ctx, cancel := store.Patient(ctx, store.MaxWait)
	defer cancel()
	return catalog.Survey(ctx, in, prefix)
}

// undeleted is the doubt for which nothing is deleted; nil for none.
func undeleted(why error) error {
	if why == nil {
		return nil
	}
	return fmt.Errorf("nothing is deleted: %w", why)
}

// bear writes the record of the lineage's bootstrap where it is not there yet. Which parent a restored cluster has, who
// restored it has written before, unless backups, or this store, were configured later; our stamp reports it if it was us
// who restored. A record of another cluster is left as it is, and so is all else in its place. One that cannot be read may
// be ours: it does not hold up saving, which deletes nothing.
func (s *session) bear(ctx context.Context) error {
	doubt, err := recordBootstrap(ctx, s.store, s.config.Prefix, s.self)
	if doubt != nil {
		s.doubt = undeleted(doubt)
	}
	return err
}

// recordBirth of a lineage below prefix. The doubt is about a record that is there and cannot be read.
func recordBootstrap(ctx context.Context, in store.Store, prefix string, self Identity) (doubt, err error) {
	id := leases.FormatID(self.ClusterID)
	formation, err := catalog.ReadBootstrap(ctx, in, prefix, self.Lineage)
	switch {
	case errors.Is(err, store.ErrAbsent):
		reason := "bootstrap"
		if self.Parent != "" {
			reason = "restore"
		}
		defer crash.Around("record-lineage")()
		return nil, catalog.WriteBootstrap(ctx, in, prefix, catalog.Formation{
			Lineage: self.Lineage, Parent: self.Parent, Fork: self.Fork, Reason: reason,
			ClusterID: id, ClusterUID: self.ClusterUID, Created: time.Now().UTC(),
		})
	case errors.Is(err, catalog.ErrBootstrap), catalog.Refused(err):
		return fmt.Errorf("nothing reports for certain whose lineage this is: %w", err), nil
	case err != nil:
		return nil, err
	case formation.ClusterID != "" && formation.ClusterID != id, formation.ClusterUID != "" && formation.ClusterUID != self.ClusterUID:
		return nil, fmt.Errorf("%w: %s is of cluster %s of %q, and this is cluster %s of %q: give each its own prefix", catalog.ErrBootstrap,
			catalog.BootstrapKey(prefix, self.Lineage), formation.ClusterID, formation.ClusterUID, id, self.ClusterUID)
	}
	return nil, nil
}

// after says whether etcd compacted what follows the last saved revision, by reading at that very revision, and how far etcd is by now:
// a listing may take minutes.
func (s *session) after(ctx context.Context) (now int64, compacted bool, err error) {
	now, err = s.revision(ctx, s.saved)
	if compacted = errors.Is(err, rpctypes.ErrCompacted); compacted {
		now, err = s.revision(ctx, 0)
	}
	return now, compacted, err
}

// compare says whether etcd still has what follows the last saved revision.
func (s *session) compare(ctx context.Context) (CatalogState, error) {
	now, compacted, err := s.after(ctx)
	switch {
	case errors.Is(err, rpctypes.ErrFutureRev):
		return CatalogAhead, nil
	case err != nil:
		return CatalogUnknown, err
	}
	s.now = now
	switch {
	case s.saved == 0:
		return CatalogEmpty, nil
	case compacted, s.saved == s.gap:
		return CatalogBroken, nil
	case s.now-s.saved > s.backlog:
		return CatalogBehind, nil
	}
	return CatalogComplete, nil
}

// revision of a linearizable read at a revision, 0 for the latest, of our own raft group and no other.
func (s *session) revision(ctx context.Context, at int64) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	response, err := s.client.Get(ctx, anyKey, clientv3.WithCountOnly(), clientv3.WithRev(at))
	if err != nil {
		return 0, fmt.Errorf("read the revision from a quorum: %w", err)
	}
	if id := response.Header.GetClusterId(); id != s.self.ClusterID {
		return 0, fmt.Errorf("%w: %s, want %s", errOtherCluster, leases.FormatID(id), leases.FormatID(s.self.ClusterID))
	}
	return response.Header.GetRevision(), nil
}

var errOtherCluster = errors.New("another cluster answered")

// know takes note of the newest full. A clock that ran ahead when it was taken puts the next one off by no more than the
// schedule.
func (s *session) know(h catalog.History, now time.Time) error {
	s.measure(h)
	if len(h.Fulls) == 0 {
		s.newest, s.due = catalog.Full{}, time.Time{}
		return nil
	}
	newest := h.Fulls[len(h.Fulls)-1]
	if s.newest.Key == newest.Key {
		return nil
	}
	if newest.At.After(now) {
		newest.At = now
	}
	s.newest = newest
	due, err := s.config.FullDue(newest.At)
	s.due = due
	return err
}
