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
	// Turn is whose turn it is to prove the backups.
	Turn uint8
	// Reported is what the full backups' Lease says of the last proof.
	Reported uint8
)

// The turns. TurnUnknown: our etcd does not say who is there.
const (
	TurnUnknown Turn = 1 << iota
	TurnOurs
	TurnOthers
)

// What the Lease says. ToldUnknown: it cannot be read. ToldUnsaved: nothing was ever saved.
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
		ReportedUnknown: "unknown", ReportedUnsaved: "nothing saved", ReportedNever: "never", ReportedVerified: "proven", ReportedBroken: "broken",
	}
)

func (t Turn) String() string     { return turnNames[t] }
func (t Reported) String() string { return reportedNames[t] }

// Prove is the verdict to prove now; the other one is Wait.
const VerifyBackups Verdict = "Prove"

// ProofFacts are all that DecideProof may look at.
type VerificationFacts struct {
	Turn     Turn
	Reported Reported
	// Resting: the last attempt did not find out, and its pause is not over.
	Resting rules.YesNo `fact:"tried just now"`
	// Newer: there is a full that is newer than what was looked at.
	Newer rules.YesNo `fact:"newer full"`
	// Due: by schedule, counted from the last time that it was found out.
	Due rules.YesNo
}

// proofRules are the whole policy on when backups are proven, and by whom. First match wins.
var verificationRules = rules.New(Wait, []rules.Row[VerificationFacts, Verdict]{
	{Name: "not-our-turn", When: VerificationFacts{Turn: TurnUnknown | TurnOthers}, Verdict: Wait,
		Why: "one member is enough: the voter with the smallest name that does not lead; the leader where it is alone"},
	{Name: "proof-not-read", When: VerificationFacts{Turn: TurnOurs, Reported: ReportedUnknown}, Verdict: Wait,
		Why: "no one could be reported what was found"},
	{Name: "nothing-saved", When: VerificationFacts{Turn: TurnOurs, Reported: ReportedUnsaved}, Verdict: Wait,
		Why: "there is nothing to prove"},
	{Name: "tried", When: VerificationFacts{Turn: TurnOurs, Reported: ReportedNever | ReportedVerified | ReportedBroken, Resting: rules.Yes}, Verdict: Wait,
		Why: "what was not found out is tried again after a pause"},
	{Name: "never-proven", When: VerificationFacts{Turn: TurnOurs, Reported: ReportedNever, Resting: rules.No}, Verdict: VerifyBackups,
		Why: "no one knows whether the backups are good"},
	{Name: "maybe-mended", When: VerificationFacts{Turn: TurnOurs, Reported: ReportedBroken, Resting: rules.No, Newer: rules.Yes}, Verdict: VerifyBackups,
		Why: "they were broken, and there is a new full"},
	{Name: "proof-due", When: VerificationFacts{Turn: TurnOurs, Reported: ReportedVerified | ReportedBroken, Resting: rules.No, Due: rules.Yes}, Verdict: VerifyBackups,
		Why: "by its schedule"},
	{Name: "found-out", When: VerificationFacts{Turn: TurnOurs, Reported: ReportedVerified | ReportedBroken, Resting: rules.No, Due: rules.No}, Verdict: Wait,
		Why: "it is known"},
})

// DecideProof says whether to prove the backups now.
func DecideVerification(f VerificationFacts) Decision { return verificationRules.Decide(f) }

// toldBy is what a Lease says about the backups of a lineage.
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

// turnTimeout of one member: a second is a long time for an answer that costs nothing.
const turnTimeout = 2 * time.Second

// turn asks our own member who is there and who leads, and those that come before us whether they answer. Who is not sure
// waits: at the next look someone is.
func (d *Duty) turn(ctx context.Context, self Identity) Turn {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	client, err := d.Dial(ctx, d.Local)
	if err != nil {
		return TurnUnknown
	}
	defer func() { _ = client.Close() }() // it was only asked
	status, err := membership.ReadStatus(ctx, client, d.Local)
	if err != nil || status.ClusterID != self.ClusterID || status.MemberID != self.MemberID || status.Leader == 0 {
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

// turnOf: the first voter by its name that does not lead and answers; the leader, where there is no such one.
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
	client, err := d.Dial(ctx, v.endpoints[0])
	if err != nil {
		return false
	}
	defer func() { _ = client.Close() }() // it was only asked
	status, err := membership.ReadStatus(ctx, client, v.endpoints[0])
	return err == nil && status.ClusterID == clusterID && status.Healthy()
}

const (
	// verifyTries of a backup that was ordered with its proof, verifyPause apart: what is compacted meanwhile, or a store that
	// does not answer, passes.
	verifyTries = 3
	verifyPause = 20 * time.Second
)

// errNotVerified: a backup was made, and it is not known to be good. It is final: who ordered it orders another one.
var errNotVerified = errors.New("saved, but not verified")

// verified saves, and then restores and compares the very full that was saved.
func (d *Duty) verified(ctx context.Context, save func() (Artifact, error)) (Artifact, error) {
	artifact, err := save()
	if err != nil {
		return Artifact{}, err
	}
	for try := 1; ; try++ {
		r := d.verifyOne(ctx, artifact.Key)
		d.Metrics.verifications.WithLabelValues(string(r.Verdict)).Inc()
		d.Log.InfoContext(ctx, "ordered backup verified", "object", artifact.Key, "found", string(r.Verdict), "reason", r.Reason,
			"revision", r.Revision, "keys", r.Keys, "compared", r.Compared, "took", r.Took)
		switch {
		case ctx.Err() != nil:
			return Artifact{}, ctx.Err()
		case r.Verdict == verify.IsVerified:
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

// tellBroken reports the full backups' Lease what is broken, as a proof by schedule would: retention and restores read it there, and the
// leader makes a new full.
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
		d.Log.WarnContext(ctx, "broken backup not reported", "object", r.Object, "err", err)
	}
}

// verifyOne restores the full called key as it is, and compares it with what our own member says of its revision.
func (d *Duty) verifyOne(ctx context.Context, key string) verify.Result {
	c, _ := d.configured()
	self, known := d.Self()
	if c == nil || !known {
		return verify.Result{Verdict: verify.Unknown, Reason: ErrIdle.Error()}
	}
	return d.verifyTarget(ctx, *c, self, catalog.Target{Name: key})
}
