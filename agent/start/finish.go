package start

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/agent/datadir"
	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/internal/crash"
	"github.com/etcd-druid/druid/internal/loop"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

// ErrAttemptLost: another attempt to form the cluster was claimed after this one. The etcd of this member is stopped,
// and its data is unused and quarantined at the next start.
var ErrAttemptLost = errors.New("another attempt to form the cluster superseded this one")

// finishPoll is how often a member that has not finished its start checks its own etcd and the member list. Promotions
// of a forming cluster follow one another within this interval.
const finishPoll = 200 * time.Millisecond

// bootTime is how long etcd may take to respond after a start before errors are logged.
const bootTime = 5 * time.Second

// finisher follows one run of etcd. It shares no state with Next, which can begin before the finisher sees that etcd
// exited.
type finisher struct {
	b            *Bootstrapper
	log          *slog.Logger
	identityFile datadir.IdentityFile
	since        time.Time
	word         string
	// What Kubernetes returned when a promotion last read it.
	asked            time.Time
	read             recordState
	leased, reported rules.Answer
	// turns counts the consecutive checks that allowed a promotion.
	turns int
}

// askAgain is the maximum age of a response of Kubernetes that a promotion uses. The member list is read more often
// than the API server may be.
const askAgain = time.Second

// FinishStart follows a started etcd until its start is complete: the cluster is recorded as Formed, the member votes,
// the replacement slot is free and quarantined data is deleted. ctx must end when etcd does. FinishStart returns nil then,
// and when all steps are done. stop must stop etcd and return when it has exited. FinishStart calls it if the attempt was
// lost.
func (b *Bootstrapper) FinishStart(ctx context.Context, stop func(ctx context.Context, reason string) error) error {
	identityFile, err := datadir.ReadIdentityFile(b.cfg.VolumePath)
	if err != nil {
		return fmt.Errorf("finish start: %w", err)
	}
	identityFile = withScheme(&b.cfg, identityFile)
	b.setIdentity(identityFile)
	b.held(nil)
	s := &finisher{b: b, log: b.log, identityFile: identityFile, since: time.Now()}
	if !identityFile.Formed {
		if err := s.until(ctx, "form", s.formed); err != nil {
			if errors.Is(err, ErrAttemptLost) {
				return errors.Join(err, stop(ctx, err.Error()))
			}
			return err
		}
	}
	for _, step := range []struct {
		name string
		done func(context.Context) (bool, error)
	}{
		{"vote", s.votes}, {"change the peer URL", s.listedAsItListens}, {"release the replacement slot", s.slotFree}, {"prune", s.pruned},
	} {
		if err := s.until(ctx, step.name, step.done); err != nil {
			return err
		}
	}
	return nil
}

// until repeats step until it is done, ctx ends, or the attempt is lost. It logs other errors once for each change.
func (s *finisher) until(ctx context.Context, name string, step func(context.Context) (bool, error)) error {
	s.since = time.Now()
	for ctx.Err() == nil {
		done, err := step(ctx)
		switch {
		case errors.Is(err, ErrAttemptLost), done:
			return err
		case err != nil && ctx.Err() == nil && err.Error() != s.word && time.Since(s.since) > bootTime:
			s.word = err.Error()
			s.log.WarnContext(ctx, "member start not finished, retrying", "step", name, "err", err)
		}
		interval := finishPoll
		if over := time.Since(s.since) - calmAfter; over > 0 {
			interval = min(calmInterval, finishPoll+over/8)
		}
		loop.Sleep(ctx, interval)
	}
	return nil
}

// local is the URL at which the agent reaches etcd in its own Pod.
func (b *Bootstrapper) local() string {
	host := b.cfg.ListenHost
	if host == "" {
		host = "localhost"
	}
	return b.transport.ClientURL(host, b.cfg.ClientPort)
}

// self queries the own etcd, which must match the identity file.
func (s *finisher) self(ctx context.Context) (membership.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, endpointTimeout)
	defer cancel()
	status, err := s.b.status(ctx, s.b.local())
	if err != nil {
		return status, err
	}
	if status.ClusterID != uint64(s.identityFile.ClusterID) || status.MemberID != uint64(s.identityFile.MemberID) {
		return status, fmt.Errorf("etcd runs as member %x of cluster %x, but the identity file names member %x of cluster %x",
			status.MemberID, status.ClusterID, uint64(s.identityFile.MemberID), uint64(s.identityFile.ClusterID))
	}
	return status, nil
}

func (s *finisher) record(ctx context.Context) recordState {
	ctx, cancel := context.WithTimeout(ctx, kubernetesTimeout)
	defer cancel()
	var r recordState
	r.record, r.version, r.err = s.b.store.Record(ctx)
	return r
}

// slotFree releases the replacement slot of this member. It reads the record before the Lease, so that a change in
// between makes the update fail.
func (s *finisher) slotFree(ctx context.Context) (bool, error) {
	r := s.record(ctx)
	switch {
	case errors.Is(r.err, leases.ErrAbsent):
		return true, nil // no record, no slot
	case r.err != nil:
		return false, r.err
	case r.record.Replacing == nil || r.record.Replacing.Member != s.b.cfg.Member:
		return true, nil
	}
	lease, detail := s.lease(ctx)
	if lease == LeaseUnread {
		return false, fmt.Errorf("release the replacement slot: read the member Lease: %s", detail)
	}
	if lease == Superseded {
		return true, nil // the slot is for the Pod that came after us to give back
	}
	r.record.Replacing = nil
	crash.Before("free-slot")
	_, err := s.b.store.UpdateRecord(ctx, r.version, r.record)
	crash.After("free-slot")
	if err != nil {
		return false, fmt.Errorf("release the replacement slot: %w", err)
	}
	return true, nil
}

func answer(yes bool) rules.Answer {
	if yes {
		return rules.Yes
	}
	return rules.No
}

// recordParent writes where the history of a restored group forked, to the place of the cluster's own backups. It
// runs before the cluster is Formed, so before clients write to it. Otherwise, a backup of later writes could be
// mistaken for more of the parent's history. A group that began from a file has no parent, and the record names the
// file. For a group that began empty, there is nothing to write.
func (b *Bootstrapper) recordParent(ctx context.Context, identityFile datadir.IdentityFile) error {
	if identityFile.Parent == "" && identityFile.File == "" {
		return nil
	}
	reloadable, err := config.ReadReloadable(b.cfg.ConfigPath)
	if err != nil {
		return fmt.Errorf("write the lineage to the backup store: %w", err)
	}
	if reloadable.Backup == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	store, err := b.storeOf(ctx, reloadable.Backup.Store)
	if err != nil {
		return err
	}
	formation := formationOf(identityFile, b.cfg.EtcdVersion, time.Now().UTC())
	crash.Before("write-lineage")
	err = catalog.WriteBootstrap(ctx, store, reloadable.Backup.Prefix, formation)
	crash.After("write-lineage")
	if err != nil {
		return fmt.Errorf("write the lineage to the backup store: %w", err)
	}
	return nil
}
