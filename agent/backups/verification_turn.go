package backups

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/backup/verify"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

type (
	// Turn is which agent's turn it is to verify the backups.
	Turn uint8
	// Reported is what the Lease of full backups reports about the last verification.
	Reported uint8
)

// TurnUnknown: the agent's own etcd does not report the members.
const (
	TurnUnknown Turn = 1 << iota
	TurnOurs
	TurnOthers
)

// ReportedUnknown: the Lease cannot be read. ReportedUnsaved: nothing was ever saved.
const (
	ReportedUnknown Reported = 1 << iota
	ReportedUnsaved
	ReportedNever
	ReportedVerified
	ReportedBroken
)

var (
	turnNames     = map[Turn]string{TurnUnknown: "unknown", TurnOurs: "ours", TurnOthers: "another's"}
	reportedNames = map[Reported]string{
		ReportedUnknown: "unknown", ReportedUnsaved: "nothing saved", ReportedNever: "never", ReportedVerified: "verified", ReportedBroken: "broken",
	}
)

func (t Turn) String() string     { return turnNames[t] }
func (t Reported) String() string { return reportedNames[t] }

// VerifyBackups is the verdict to verify now. The alternative is Wait.
const VerifyBackups Verdict = "Verify"

// VerificationFacts is the complete input of DecideVerification.
type VerificationFacts struct {
	Turn     Turn
	Reported Reported
	// Resting: the last attempt had no result, and its pause is not over.
	Resting rules.YesNo `fact:"tried just now"`
	// Newer: there is a newer full backup than the verified one.
	Newer rules.YesNo `fact:"newer full"`
	// Due: a verification is due by the schedule, counted from the last result.
	Due rules.YesNo
}

// verificationTable is the name of verificationRules in the metric of all decisions, and in docs/reference/decisions.md.
const verificationTable = "agent/backups.verificationRules"

// verificationRules is the complete policy on when backups are verified, and by which agent. The first match wins.
var verificationRules = rules.New(Wait, []rules.Row[VerificationFacts, Verdict]{
	{Name: "not-selected", When: VerificationFacts{Turn: TurnUnknown | TurnOthers}, Verdict: Wait,
		Why: "one member verifies: the first voter by name that does not lead, or the leader if it is the only voter"},
	{Name: "verification-not-read", When: VerificationFacts{Turn: TurnOurs, Reported: ReportedUnknown}, Verdict: Wait,
		Why: "the result could not be reported"},
	{Name: "nothing-saved", When: VerificationFacts{Turn: TurnOurs, Reported: ReportedUnsaved}, Verdict: Wait,
		Why: "there is nothing to verify"},
	{Name: "retry-paused", When: VerificationFacts{Turn: TurnOurs, Reported: ReportedNever | ReportedVerified | ReportedBroken, Resting: rules.Yes}, Verdict: Wait,
		Why: "a verification without a result is retried after a pause"},
	{Name: "never-verified", When: VerificationFacts{Turn: TurnOurs, Reported: ReportedNever, Resting: rules.No}, Verdict: VerifyBackups,
		Why: "the backups were never verified"},
	{Name: "maybe-repaired", When: VerificationFacts{Turn: TurnOurs, Reported: ReportedBroken, Resting: rules.No, Newer: rules.Yes}, Verdict: VerifyBackups,
		Why: "the backups were invalid, and there is a new full backup"},
	{Name: "verification-due", When: VerificationFacts{Turn: TurnOurs, Reported: ReportedVerified | ReportedBroken, Resting: rules.No, Due: rules.Yes},
		Verdict: VerifyBackups,
		Why:     "the schedule requires it"},
	{Name: "result-known", When: VerificationFacts{Turn: TurnOurs, Reported: ReportedVerified | ReportedBroken, Resting: rules.No, Due: rules.No}, Verdict: Wait,
		Why: "the result is known, and no verification is due"},
})

// DecideVerification says whether to verify the backups now.
func DecideVerification(f VerificationFacts) Decision { return verificationRules.Decide(f) }

// reportedBy returns what a Lease reports about the backups of a lineage.
func reportedBy(b leases.Backup, v leases.Verification, lineage string) Reported {
	switch {
	case !b.EverSaved() || b.Lineage != lineage:
		return ReportedUnsaved
	case v.Lineage != lineage:
		return ReportedNever
	case v.Verdict == leases.VerdictVerified:
		return ReportedVerified
	case v.Verdict == leases.VerdictBroken:
		return ReportedBroken
	default:
		return ReportedNever
	}
}

// turnTimeout bounds the answer of one member. A second is long for an answer that costs nothing.
const turnTimeout = 2 * time.Second

// turn asks the agent's own member for the members and the leader, and the members before it whether they respond. If
// that is uncertain, the agent waits for the next look.
func (d *Duty) turn(ctx context.Context, self Identity) Turn {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	client, done, err := d.Dial(ctx, d.Local)
	if err != nil {
		return TurnUnknown
	}
	defer func() { done(err) }()
	status, err := membership.ReadStatus(ctx, client, d.Local)
	if err == nil && (status.ClusterID != self.ClusterID || status.MemberID != self.MemberID) {
		err = membership.ErrOtherMember
	}
	if err != nil || status.Leader == 0 {
		return TurnUnknown
	}
	list, err := client.MemberList(ctx)
	if err != nil || list.Header.GetClusterId() != self.ClusterID {
		return TurnUnknown
	}
	var voters []voter
	for _, m := range list.Members {
		if !m.IsLearner {
			voters = append(voters, voter{m.ID, m.Name, m.ClientURLs})
		}
	}
	return turnOf(self.MemberID, status.Leader, voters, func(v voter) bool { return d.answers(ctx, v, self.ClusterID) })
}

type voter struct {
	id        uint64
	name      string
	endpoints []string
}

// turnOf selects the first voter by name that does not lead and responds, or the leader if there is none.
func turnOf(self, leader uint64, voters []voter, answers func(voter) bool) Turn {
	voters = slices.Clone(voters)
	slices.SortFunc(voters, func(a, b voter) int { return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.id, b.id)) })
	for _, v := range voters {
		switch {
		case v.id == leader:
		case v.id == self:
			return TurnOurs
		case answers(v):
			return TurnOthers
		}
	}
	if self == leader {
		return TurnOurs
	}
	return TurnOthers
}

func (d *Duty) answers(ctx context.Context, v voter, clusterID uint64) bool {
	if len(v.endpoints) == 0 {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, turnTimeout)
	defer cancel()
	client, done, err := d.Dial(ctx, v.endpoints[0])
	if err != nil {
		return false
	}
	status, err := membership.ReadStatus(ctx, client, v.endpoints[0])
	if err == nil && status.ClusterID != clusterID {
		err = errOtherCluster
	}
	done(err)
	return err == nil && status.Healthy()
}

const (
	// verifyTries is how often a requested backup is verified, with verifyPause in between. A compaction or a store
	// that does not respond is temporary.
	verifyTries = 3
	verifyPause = 20 * time.Second
)

// errNotVerified means that a backup was made and is not known to be intact. It is final: request another backup.
var errNotVerified = errors.New("saved, but not verified")

// verified makes a backup, and then restores and compares exactly that full backup.
func (d *Duty) verified(ctx context.Context, save func() (Artifact, error)) (Artifact, error) {
	artifact, err := save()
	if err != nil {
		return Artifact{}, err
	}
	for try := 1; ; try++ {
		r := d.verifyOne(ctx, artifact.Key)
		d.Metrics.verifications.WithLabelValues(string(r.Verdict)).Inc()
		d.Log.InfoContext(ctx, "requested backup verified", "object", artifact.Key, "found", string(r.Verdict), "reason", r.Reason,
			"revision", r.Revision, "keys", r.Keys, "compared", r.Compared, "took", r.Took)
		switch {
		case ctx.Err() != nil:
			return Artifact{}, ctx.Err()
		case r.Verdict == verify.Verified:
			return artifact, nil
		case r.Verdict == verify.Broken:
			d.reportBroken(ctx, r)
			fallthrough
		case try == verifyTries:
			return Artifact{}, fmt.Errorf("%s: %w: %s", artifact.Key, errNotVerified, r.Reason)
		}
		await(ctx, nil, d.verifyPause)
	}
}

// reportBroken writes to the Lease of full backups what is invalid, as a scheduled verification would. Retention and
// restores read it there, and the leader takes a new full backup.
func (d *Duty) reportBroken(ctx context.Context, r verify.Result) {
	self, known := d.Self()
	if !known {
		return
	}
	_, before, err := d.Leases.Full(ctx)
	if err == nil {
		err = d.Leases.ReportVerification(ctx, found(before, r, self, time.Now(), false))
	}
	if err != nil && ctx.Err() == nil {
		d.Log.WarnContext(ctx, "invalid backup not written to the Lease", "object", r.Object, "err", err)
	}
}

// verifyOne restores the full backup called key alone, and compares it with the hash that the agent's own member has
// of its revision.
func (d *Duty) verifyOne(ctx context.Context, key string) verify.Result {
	c, _ := d.configured()
	self, known := d.Self()
	if c == nil || !known {
		return verify.Result{Verdict: verify.Unknown, Reason: ErrIdle.Error()}
	}
	return d.verifyTarget(ctx, *c, self, catalog.Target{Name: key})
}
