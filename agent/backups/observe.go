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
	"github.com/etcd-druid/druid/backup/snapshot"
	"github.com/etcd-druid/druid/backup/store"
	"github.com/etcd-druid/druid/internal/crash"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
)

// One-bit enums, so that a rule's cell can hold several values.
type (
	// CatalogState is how the backups in the store relate to the revisions in etcd.
	CatalogState uint8
	// Recorder is the state of the recorder of delta backups.
	Recorder uint8
	// Full is the state of full backups.
	Full uint8
)

// CatalogUnknown: the store or etcd was not read yet or did not respond.
const (
	CatalogUnknown CatalogState = 1 << iota
	// CatalogEmpty: this lineage has no full backup.
	CatalogEmpty
	// CatalogComplete: etcd still has all revisions after the last saved one.
	CatalogComplete
	// CatalogBroken: revisions that were not saved are compacted, or the watch omitted some.
	CatalogBroken
	// CatalogBehind: etcd still has all revisions after the last saved one, but so many that a watch of them would delay
	// writes.
	CatalogBehind
	// CatalogAhead: the store has revisions that etcd never had, so its backups are of another history.
	CatalogAhead
)

// Resting: the recorder failed, and its pause is not over.
const (
	RecorderOff Recorder = 1 << iota
	RecorderOn
	RecorderResting
)

// Resting: the last attempt failed, and its pause is not over.
const (
	FullIdle Full = 1 << iota
	FullRunning
	FullResting
)

var (
	catalogNames = map[CatalogState]string{
		CatalogUnknown: "unknown", CatalogEmpty: "empty", CatalogComplete: "complete", CatalogBroken: "broken", CatalogBehind: "far behind",
		CatalogAhead: "ahead of etcd",
	}
	recorderNames = map[Recorder]string{RecorderOff: "off", RecorderOn: "on", RecorderResting: "resting"}
	fullNames     = map[Full]string{FullIdle: "idle", FullRunning: "running", FullResting: "resting"}
)

func (c CatalogState) String() string { return catalogNames[c] }
func (r Recorder) String() string     { return recorderNames[r] }
func (f Full) String() string         { return fullNames[f] }

// Facts is the complete input of Decide.
type Facts struct {
	CatalogState CatalogState `fact:"catalog"`
	Recorder     Recorder
	Full         Full
	// Asked: a full backup is requested now.
	Asked rules.YesNo `fact:"asked for"`
	// Due: another full backup is due by the schedule, by the age of the newest one, or by the size of the changes
	// since then.
	Due rules.YesNo
	// Doubted: the newest full backup and the changes after it were restored and found to be invalid, or it is of a member whose data was
	// found to differ later. The replacement table says that a new full backup is to be taken now.
	Doubted rules.YesNo `fact:"found broken"`
}

// anyKey is read only for the revision. The key does not have to exist.
const anyKey = "\x00"

// observe compares the store with etcd. If one of them does not respond, the state stays CatalogUnknown.
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
		s.reporter.failed(ctx, err)
		return
	}
	s.read.succeeded()
	s.looked = time.Now()
	s.reporter.read(ctx, s.newest, s.since, s.saved, s.catalogState, hindrances[s.catalogState], s.doubt)
}

// look ensures that the record of the lineage's bootstrap exists before any object of the lineage. It lists the store
// only after a linearizable read: the listing then contains everything that an earlier leader saved before, and what
// that leader saves later can only overlap. If the place now belongs to another cluster, saving continues and nothing
// is deleted.
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
	known := s.newest.Key
	err = s.know(h, time.Now())
	if s.newest.Key != known || s.newestBy == 0 && s.newest.Key != "" {
		s.newestBy = s.madeBy(ctx, s.newest)
	}
	return err
}

// madeBy returns the ID of the member whose database a full backup is, 0 if it is unknown.
func (s *session) madeBy(ctx context.Context, full catalog.Full) uint64 {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	trailer, err := snapshot.ReadTrailer(ctx, s.store, full.Key, full.Size)
	if err != nil {
		return 0 // a verification reports what is wrong with it
	}
	return uint64(trailer.MemberID)
}

// list lists the backups and ensures that the record of the lineage's bootstrap exists.
func (s *session) list(ctx context.Context) (catalog.History, error) {
	listed, unread, err := catalogOf(ctx, s.store, s.config.Prefix)
	if err != nil {
		return catalog.History{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, bearTimeout)
	defer cancel()
	h, _ := listed.History(s.self.Lineage)
	s.saved, s.doubt = h.LastSaved(), undeleted(unread)
	s.replacing.fulls, s.since = keysOf(h.Fulls), restorableSince(h)
	if err := s.bear(ctx); err != nil {
		return h, err
	}
	if l, found := superseding(listed, s.self); found {
		s.doubt = s.supersededBy(l)
	}
	return h, nil
}

// restorableSince is the beginning of the newest sequence of states without a gap, zero for none. It moves when
// retention deletes a full backup, so that each listing determines it.
func restorableSince(h catalog.History) time.Time {
	ranges := h.Ranges()
	if len(ranges) == 0 {
		return time.Time{}
	}
	return ranges[len(ranges)-1].Since
}

// catalogOf lists a store as long as the listing makes progress.
func catalogOf(ctx context.Context, in store.Store, prefix string) (c catalog.Catalog, unread, err error) {
	ctx, cancel := store.Patient(ctx, store.MaxWait)
	defer cancel()
	return catalog.Survey(ctx, in, prefix)
}

// undeleted wraps an error because of which nothing is deleted, or returns nil.
func undeleted(why error) error {
	if why == nil {
		return nil
	}
	return fmt.Errorf("nothing is deleted: %w", why)
}

// bear writes the record of the lineage's bootstrap if it is missing. The agent that restored a cluster has written
// its parent before, unless this store did not respond or was configured later. Then the identity file of each member
// names the parent. A record of another cluster and everything else in its place stay unchanged. A record
// that cannot be read can belong to this cluster, so saving continues and nothing is deleted.
func (s *session) bear(ctx context.Context) error {
	doubt, err := recordBootstrap(ctx, s.store, s.config.Prefix, s.self)
	if doubt != nil {
		s.doubt = undeleted(doubt)
	}
	return err
}

// recordBootstrap writes the record of a lineage below prefix. doubt is an error of a record that exists and cannot be
// read.
func recordBootstrap(ctx context.Context, in store.Store, prefix string, self Identity) (doubt, err error) {
	id := leases.FormatID(self.ClusterID)
	formation, err := catalog.ReadBootstrap(ctx, in, prefix, self.Lineage)
	switch {
	case errors.Is(err, store.ErrAbsent):
		reason, created := "bootstrap", time.Now().UTC()
		if self.Parent != "" {
			reason = "restore"
		}
		if !self.Forked.IsZero() { // the store or its configuration may have come later
			created = self.Forked
		}
		defer crash.Around("record-lineage")()
		return nil, catalog.WriteBootstrap(ctx, in, prefix, catalog.Formation{
			Lineage: self.Lineage, Parent: self.Parent, Fork: self.Fork, Reason: reason,
			ClusterID: id, ClusterUID: self.ClusterUID, Created: created,
		})
	case errors.Is(err, catalog.ErrBootstrap), catalog.Refused(err):
		return fmt.Errorf("the owner of this lineage cannot be determined: %w", err), nil
	case err != nil:
		return nil, err
	case formation.ClusterID != "" && formation.ClusterID != id, formation.ClusterUID != "" && formation.ClusterUID != self.ClusterUID:
		return nil, fmt.Errorf("%w: %s belongs to cluster %s of %q, and this is cluster %s of %q; give each cluster its own prefix", catalog.ErrBootstrap,
			catalog.BootstrapKey(prefix, self.Lineage), formation.ClusterID, formation.ClusterUID, id, self.ClusterUID)
	}
	return nil, nil
}

// after says whether etcd compacted the changes after the last saved revision, by a read at that revision. It also
// returns etcd's present revision, because a listing can take minutes.
func (s *session) after(ctx context.Context) (now int64, compacted bool, err error) {
	now, err = s.revision(ctx, s.saved)
	if compacted = errors.Is(err, rpctypes.ErrCompacted); compacted {
		now, err = s.revision(ctx, 0)
	}
	return now, compacted, err
}

// compare says whether etcd still has the changes after the last saved revision.
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

// revision returns the revision of a linearizable read at a revision, 0 for the latest. It accepts only answers of
// this raft group.
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

// know records the newest full backup. If the clock was ahead when it was taken, the next one is delayed by at most
// one period of the schedule.
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

// hindrances are the errors for the states of the backups.
var hindrances = map[CatalogState]error{
	CatalogAhead: errors.New("the store has revisions that etcd never had, so its backups are of another history"),
	CatalogBehind: errors.New("too many changes wait to be saved to read them without delaying writes. The leader takes a new full backup, and " +
		"no revision between the last saved one and that backup can be restored"),
	CatalogBroken: errors.New("the saved backups do not continue to the revisions in etcd: revisions in between are missing or differ. The " +
		"leader takes a new full backup, and no revision in between can be restored"),
}
