package start

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/etcd-druid/druid/agent/datadir"
	"github.com/etcd-druid/druid/internal/crash"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

// Formation is what the record says about the attempt that the data belongs to.
type Formation uint8

// What the record can say about the attempt.
const (
	BootstrapUnknown  Formation = 1 << iota // the record cannot be read or does not report
	BootstrapOurs                           // the attempt is the record's, and not Formed yet
	BootstrapRecorded                       // Formed, as this raft group
	BootstrapLost                           // another attempt was claimed or succeeded
)

// classifyBootstrap compares the record with the identity file of an attempt of the member called name.
func classifyBootstrap(r recordState, identityFile datadir.IdentityFile, name string) Formation {
	switch record := r.record; {
	case r.err != nil:
		return BootstrapUnknown
	case record.Phase != leases.PhaseForming && record.ClusterID == 0:
		return BootstrapUnknown
	case record.Phase != leases.PhaseForming && record.ClusterID == uint64(identityFile.ClusterID):
		return BootstrapRecorded
	case record.Phase != leases.PhaseForming:
		return BootstrapLost
	case leases.LineageOf(record.Epoch, record.Nonce) == identityFile.Lineage:
		return BootstrapOurs
	case record.Nonce == "" && record.Seed == name && record.FormedEpoch == 0:
		return BootstrapOurs // a record that forgot our claim; it is claimed and Formed in one write
	default:
		return BootstrapLost
	}
}

// formed records the healthy etcd of this member as the cluster, by compare-and-set on the claim with its nonce. Until
// then, no member joins and druid publishes nothing.
func (s *finisher) formed(ctx context.Context) (bool, error) {
	r := s.record(ctx)
	switch classifyBootstrap(r, s.identityFile, s.b.cfg.Member) {
	case BootstrapLost:
		return false, fmt.Errorf("%w: this attempt is lineage %s, the cluster record names %s", ErrAttemptLost, s.identityFile.Lineage, r.record.Lineage)
	case BootstrapRecorded:
		return s.identityFileFormed(ctx)
	case BootstrapOurs:
		if err := s.lives(ctx, r.record); err != nil {
			return false, err
		}
		if err := s.ours(ctx); err != nil {
			return false, err
		}
		if err := s.b.recordParent(ctx, s.identityFile); err != nil {
			return false, err
		}
		return s.claimFormed(ctx, r)
	default:
		return false, errors.Join(errors.New("the cluster record does not show whether the cluster is formed"), r.err)
	}
}

// ours checks that the member Lease names this Pod (R1). If it names a later Pod, the volume of that Pod is the
// member's.
func (s *finisher) ours(ctx context.Context) error {
	lease, detail := s.lease(ctx)
	if lease != Fresh {
		return fmt.Errorf("form: this member's Lease is %s: %s", lease, detail)
	}
	return nil
}

// lives verifies that the raft group exists and has this member. A group that was formed here must serve. A joined
// group must list this member.
func (s *finisher) lives(ctx context.Context, record leases.Record) error {
	if s.identityFile.Externals == "" {
		return s.healthy(ctx)
	}
	return s.adopted(ctx, FormedBy(record, s.identityFile, s.b.cfg.PodUID))
}

// healthy verifies that the own etcd matches the identity file and serves.
func (s *finisher) healthy(ctx context.Context) (err error) {
	if _, err := s.self(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, endpointTimeout)
	defer cancel()
	client, done, err := s.b.dial(ctx, s.b.local())
	if err != nil {
		return err
	}
	defer func() { done(err) }()
	return membership.Linearizable(ctx, client)
}

func (s *finisher) claimFormed(ctx context.Context, r recordState) (bool, error) {
	record := FormedBy(r.record, s.identityFile, s.b.cfg.PodUID)
	crash.Before("record-formed")
	_, err := s.b.store.UpdateRecord(ctx, r.version, record)
	crash.After("record-formed")
	if errors.Is(err, leases.ErrConflict) {
		return false, nil // look again: the other write may have been another's claim
	}
	if err != nil {
		return false, fmt.Errorf("record the cluster as Formed: %w", err)
	}
	s.log.InfoContext(ctx, "cluster formed", "clusterID", leases.FormatID(record.ClusterID), "epoch", record.Epoch)
	return s.identityFileFormed(ctx)
}

// identityFileFormed records on the volume that the group exists.
func (s *finisher) identityFileFormed(context.Context) (bool, error) {
	s.identityFile.Formed = true
	crash.Before("identity-file-formed")
	err := datadir.WriteIdentityFile(s.b.cfg.VolumePath, s.identityFile)
	crash.After("identity-file-formed")
	if err != nil {
		return false, err
	}
	s.b.setIdentity(s.identityFile)
	return true, nil
}

// nonceOf returns the nonce of the bootstrap in the identity file. A lineage is <epoch>-<nonce>.
func nonceOf(identityFile datadir.IdentityFile) string {
	_, nonce, _ := strings.Cut(identityFile.Lineage, "-")
	return nonce
}

// externalsOf returns the IDs of the voters that the group had before this cluster joined it.
func externalsOf(identityFile datadir.IdentityFile) []string {
	if identityFile.Externals == "" {
		return nil
	}
	return strings.Split(identityFile.Externals, ",")
}

// CompleteRecord fills the missing fields of a re-created record from the identity file of a running member. No member
// joins while the record is incomplete. It never lowers an epoch. It reports whether there is anything to write.
// An etcd whose raft group the record replaced is stopped.
func (b *Bootstrapper) CompleteRecord(record leases.Record) (leases.Record, bool) {
	identityFile, ok := b.Identity()
	if !ok || !identityFile.Formed {
		return record, false
	}
	b.compareGroup(record, identityFile)
	return Completed(record, identityFile)
}

// Completed does the work of CompleteRecord for an identity file. It changes only a record that is Formed, has the same
// cluster ID, and has no later epoch. It changes no field that the record has: the admission policy refuses that.
func Completed(record leases.Record, identityFile datadir.IdentityFile) (leases.Record, bool) {
	if record.Phase != leases.PhaseFormed || record.ClusterID != uint64(identityFile.ClusterID) ||
		max(record.Epoch, record.FormedEpoch) > identityFile.Epoch {
		return record, false
	}
	if isComplete(record) && record.FormedEpoch != 0 &&
		(record.Adopted() || identityFile.Externals == "") && (record.Fork != nil || identityFile.Parent == "") {
		return record, false
	}
	record.Epoch, record.FormedEpoch = cmp.Or(record.Epoch, identityFile.Epoch), cmp.Or(record.FormedEpoch, identityFile.Epoch)
	record.Nonce, record.Lineage = cmp.Or(record.Nonce, nonceOf(identityFile)), cmp.Or(record.Lineage, identityFile.Lineage)
	record.MaxLearners = cmp.Or(record.MaxLearners, identityFile.MaxLearners)
	if record.Fork == nil {
		record.Fork = forkIn(identityFile)
	}
	if !record.Adopted() {
		record.Externals = externalsOf(identityFile)
	}
	return record, true
}

// promotionTable is the name of the promotions table in the metric of all decisions.
const promotionTable = "membership.promotions"

// votes reports whether this member votes. If not, it requests its promotion when the promotions table allows it.
func (s *finisher) votes(ctx context.Context) (bool, error) {
	status, err := s.self(ctx)
	if err != nil {
		return false, err
	}
	if status.Role != membership.RoleLearner {
		return status.Leader != 0, nil
	}
	if time.Since(s.asked) > askAgain || s.reported != rules.Yes && time.Since(s.asked) > pollInterval {
		s.read = s.record(ctx)
		s.leased, s.reported = s.ownLease(ctx)
		s.asked = time.Now()
	}
	r := s.read
	if r.err != nil {
		return false, r.err
	}
	view, err := s.b.list(ctx, r.record, uint64(s.identityFile.ClusterID))
	if err != nil {
		return false, err
	}
	d := membership.DecidePromotion(s.promotionFacts(r, view))
	if "promotion "+d.Rule != s.word {
		s.word = "promotion " + d.Rule
		s.b.metrics.WithLabelValues(promotionTable, d.Rule).Inc()
		s.log.InfoContext(ctx, "promotion decided", "mode", d.Verdict, "rule", d.Rule)
	}
	if d.Verdict != membership.PromoteMember {
		s.turns = 0
		return d.Verdict == membership.Done, nil
	}
	// raft accepts one change at a time, and etcd lets the others wait for seconds. So learners ask one after another.
	if s.turns++; s.turns <= before(view, uint64(s.identityFile.MemberID)) {
		return false, nil
	}
	return false, s.promote(ctx, view)
}

func (s *finisher) promotionFacts(r recordState, view membership.View) membership.PromotionFacts {
	f := membership.PromotionFacts{
		Kind: membership.LearnerUnstarted, Authoritative: rules.No, Reported: s.reported, Voters: membership.VotersOf(view),
		Joined: rules.AnswerOf(allStarted(view, r.record.Members)),
		Room:   rules.AnswerOf(len(view.Learners()) < r.record.MaxLearners),
	}
	if entry, ok := view.Member(uint64(s.identityFile.MemberID)); ok {
		f.Kind = membership.KindOf(entry)
	}
	if r.record.Phase == leases.PhaseFormed && r.record.Lists(s.b.cfg.Member) && r.record.ClusterID == view.ClusterID {
		f.Authoritative = s.leased
	}
	return f
}

func (s *finisher) lease(ctx context.Context) (lease Lease, detail string) {
	return classifyLease(s.b.cfg, s.b.askLease(ctx))
}

// ownLease reads the member Lease, and says whether it names this Pod, and whether it shows that the member runs.
func (s *finisher) ownLease(ctx context.Context) (fresh, reported rules.Answer) {
	own := s.b.askLease(ctx)
	fresh = freshness(s.b.cfg, own)
	if fresh == rules.Unknown {
		return fresh, rules.Unknown
	}
	if own.member.Disk != nil {
		s.b.held(nil) // it was on its way when etcd started
	}
	return fresh, rules.AnswerOf(ShowsRunning(own.member, s.identityFile))
}

// ShowsRunning reports whether a member Lease says that the member runs in the raft group of its data, under the ID
// there. An agent writes that and withdraws its disk report in two patches. A disk report that was sent before has no
// effect after them: it is a compare-and-set.
func ShowsRunning(lease leases.Member, identityFile datadir.IdentityFile) bool {
	return lease.Disk == nil && lease.ID == uint64(identityFile.MemberID) && lease.ClusterID == uint64(identityFile.ClusterID)
}

// allStarted reports whether every desired member is in the list and has published itself.
func allStarted(view membership.View, desired []string) bool {
	return !slices.ContainsFunc(desired, func(name string) bool {
		return !slices.ContainsFunc(view.Members, func(m membership.Member) bool { return m.Name == name })
	})
}

// before returns how many other started learners come before this one.
func before(view membership.View, id uint64) int {
	n := 0
	for _, m := range view.Learners() {
		if m.Started() && m.ID < id {
			n++
		}
	}
	return n
}

// promote asks a voter for the promotion. A learner that has not caught up is not an error: the request is repeated.
func (s *finisher) promote(ctx context.Context, view membership.View) (err error) {
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	client, done, err := s.b.dial(ctx, view.Endpoint)
	if err != nil {
		return err
	}
	defer func() { done(err) }()
	crash.Before("promote")
	err = membership.Promote(ctx, client, uint64(s.identityFile.MemberID))
	crash.After("promote")
	switch {
	case errors.Is(err, membership.ErrLearnerNotReady), errors.Is(err, membership.ErrNotLearner):
		return nil
	case err != nil:
		return fmt.Errorf("promote: %w", err)
	}
	s.log.InfoContext(ctx, "learner promoted", "memberID", leases.FormatID(uint64(s.identityFile.MemberID)))
	return nil
}
