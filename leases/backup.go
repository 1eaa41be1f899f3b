package leases

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Annotations of the two snapshot Leases, in addition to the lineage. The leader's agent writes them. druid creates
// the Lease.
const (
	annotationObject = Prefix + "object"
	annotationSize   = Prefix + "size"
	annotationSHA256 = Prefix + "sha256"
	annotationTaken  = Prefix + "taken"
	annotationLag    = Prefix + "lag"
	// annotationSince is only in the Lease of full backups.
	annotationSince = Prefix + "restorable-since"
	annotationError = Prefix + "error"
	// annotationErrorCause is the kind of the error.
	annotationErrorCause = Prefix + "error-cause"

	annotationSupersededBy = Prefix + "superseded-by"
)

// Backup is the content of a snapshot Lease, for full or for delta backups.
type Backup struct {
	// Revision up to which everything is saved, 0 for none. It is the Lease's holderIdentity.
	Revision int64
	// Lineage of the newest object.
	Lineage string
	// Object is the key of the newest object in the store, Size is in bytes, and SHA256 is the digest of its content,
	// hex. Taken is when it was written, by the clock of that agent.
	Object string
	Size   int64
	SHA256 string
	Taken  time.Time
	// Since is the beginning of the newest sequence of states without a gap that can be restored, by the clocks of the
	// agents that saved them. Only the Lease of full backups has it.
	Since time.Time
	// Lag is how old the oldest acknowledged write was that was not saved when the Lease was renewed, 0 for none. Only
	// the Lease of delta backups has it.
	Lag time.Duration
	// Auth is what a full backup has of authentication. It is zero if that is not known. Only the Lease of full backups has it.
	Auth BackupAuth
	// SupersededBy is the lineage in the same place that a restore of the latest backup would use instead of this one,
	// empty for none. Only the Lease of full backups has it.
	SupersededBy string
	// Error of the last attempt, for users. It is empty after a success.
	Error string
	// Cause is the kind of the error, empty if it is not known. An agent of another version can report another one.
	Cause BackupCause
}

// BackupCause is the kind of the error of a backup, for which druid knows what to do. Its values are those of
// store.Cause (package backup/store), which the agent copies.
type BackupCause string

// The causes.
const (
	BackupUnauthorized BackupCause = "Unauthorized" // the credentials are missing or wrong, or they do not permit the call
	BackupNotFound     BackupCause = "NotFound"     // there is no such bucket or directory
	BackupUnreachable  BackupCause = "Unreachable"  // the store did not respond, or it responded that it is down
	BackupThrottled    BackupCause = "Throttled"    // the store responded that there are too many requests
	BackupFull         BackupCause = "Full"         // the store has no space left, or its quota is used up
	BackupKeyMissing   BackupCause = "KeyMissing"   // the key to encrypt or decrypt backups is missing or different
)

// BackupCauses returns all causes.
func BackupCauses() []BackupCause {
	return []BackupCause{BackupUnauthorized, BackupNotFound, BackupUnreachable, BackupThrottled, BackupFull, BackupKeyMissing}
}

// EverSaved says whether there ever was a backup.
func (b Backup) EverSaved() bool { return b.Revision != 0 }

// SnapshotName returns the name of the Lease of a component that reports backups.
func SnapshotName(cluster string, component Component) string {
	if component == ComponentFullSnapshot {
		return FullSnapshotName(cluster)
	}
	return DeltaSnapshotName(cluster)
}

// DecodeBackup reads a snapshot Lease. Any error wraps ErrUnreadable.
func DecodeBackup(lease *coordinationv1.Lease) (Backup, error) {
	d := decoder{annotations: lease.Annotations}
	b := Backup{
		Revision: d.revision(lease.Spec.HolderIdentity),
		Lineage:  d.text(annotationLineage),
		Object:   d.text(annotationObject),
		Size:     int64(d.optional(annotationSize, 63)),
		SHA256:   d.text(annotationSHA256),
		Taken:    d.time(annotationTaken),
		Since:    d.time(annotationSince),
		Lag:      d.duration(annotationLag),
		Error:    d.text(annotationError),
		Cause:    BackupCause(d.text(annotationErrorCause)),

		SupersededBy: d.text(annotationSupersededBy),
		Auth:         d.backupAuth(annotationSavedAuth),
	}
	if d.err != nil {
		return Backup{}, fmt.Errorf("snapshot Lease %s/%s: %w", lease.Namespace, lease.Name, d.err)
	}
	return b, nil
}

func (d *decoder) revision(holder *string) int64 {
	if holder == nil || *holder == "" {
		return 0
	}
	n, err := strconv.ParseUint(*holder, 10, 63)
	if err != nil && d.err == nil {
		d.err = fmt.Errorf("%w: holderIdentity %q, want a revision", ErrUnreadable, *holder)
	}
	return int64(n)
}

func (d *decoder) time(key string) time.Time {
	value := d.annotations[key]
	if value == "" {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339, value)
	if err != nil {
		d.fail(key, value, "a time like 2006-01-02T15:04:05Z")
	}
	return t
}

func (d *decoder) duration(key string) time.Duration {
	value := d.annotations[key]
	if value == "" {
		return 0
	}
	t, err := time.ParseDuration(value)
	if err != nil {
		d.fail(key, value, "a duration like 1.5s")
	}
	return t
}

// BackupPatch is what the leader's agent writes into a snapshot Lease. It is not a compare-and-set: two agents that
// both act as leader both report what they know, and the store has what is saved.
type BackupPatch struct {
	// Backup holds the facts. An unknown (zero) fact leaves the Lease as it was, with two exceptions: Object is
	// written together with Size, SHA256, Taken and Since, and Lag, SupersededBy, Error and Cause are always written, so that a
	// success clears the last failure.
	Backup Backup
	// RenewTime is when everything due was last known to be saved: for delta backups, all changes up to then; for full
	// backups, that the newest one is not overdue. nil, after a failure, leaves the Lease's renewTime unchanged.
	RenewTime *time.Time
	// Duration after which an observer may call the Lease stale. 0 leaves it unchanged. Leases count whole seconds.
	Duration time.Duration
}

func (p BackupPatch) encode() leasePatch {
	b, a := p.Backup, annotationPatch{}
	a.known(annotationLineage, b.Lineage)
	if b.Object != "" {
		a.exactly(annotationObject, b.Object)
		a.exactly(annotationSize, formatKnown(uint64(b.Size)))
		a.exactly(annotationSHA256, b.SHA256)
		a.exactly(annotationTaken, formatTime(b.Taken))
		a.exactly(annotationSince, formatTime(b.Since))
	}
	a.known(annotationSavedAuth, b.Auth.String())
	a.exactly(annotationLag, formatLag(b.Lag))
	a.exactly(annotationSupersededBy, b.SupersededBy)
	a.exactly(annotationError, truncate(b.Error, maxReason))
	a.exactly(annotationErrorCause, string(b.Cause))
	return leasePatch{Metadata: patchMetadata{Annotations: a}, Spec: p.spec()}
}

func (p BackupPatch) spec() *patchSpec {
	var spec patchSpec
	if p.Backup.Revision > 0 {
		spec.HolderIdentity = new(strconv.FormatInt(p.Backup.Revision, 10))
	}
	if p.RenewTime != nil {
		spec.RenewTime = &metav1.MicroTime{Time: *p.RenewTime}
	}
	if seconds := int32(p.Duration / time.Second); seconds > 0 {
		spec.LeaseDurationSeconds = &seconds
	}
	if spec == (patchSpec{}) {
		return nil
	}
	return &spec
}

func formatTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

// formatLag formats milliseconds, because no consumer needs more precision.
func formatLag(d time.Duration) string {
	if d <= 0 {
		return ""
	}
	return d.Round(time.Millisecond).String()
}

// Backup reads the snapshot Lease of component.
func (s *Store) Backup(ctx context.Context, component Component) (Backup, error) {
	lease, err := s.get(ctx, SnapshotName(s.cluster, component))
	if err != nil {
		return Backup{}, err
	}
	return DecodeBackup(lease)
}

// RenewBackup writes p into the snapshot Lease of component. It returns ErrAbsent if druid has not created the Lease
// yet or backups were disabled, which is no reason to stop.
func (s *Store) RenewBackup(ctx context.Context, component Component, p BackupPatch) error {
	_, err := s.patch(ctx, SnapshotName(s.cluster, component), p.encode())
	return err
}

// Annotations of the Lease of full backups that report verifications. The agent that restored the backups writes them.
const (
	annotationVerdict        = Prefix + "verdict"
	annotationVerified       = Prefix + "verified-at"
	annotationVerifiedFull   = Prefix + "verified-full"
	annotationVerifiedTo     = Prefix + "verified-revision"
	annotationVerifiedOf     = Prefix + "verified-lineage"
	annotationFullVerified   = Prefix + "newest-verified-full"
	annotationBrokenObject   = Prefix + "broken-object"
	annotationBrokenObjects  = Prefix + "broken-objects"
	annotationVerifyTrouble  = Prefix + "verify-trouble"
	annotationVerifyTroubled = Prefix + "verify-tried-at"
)

// MaxKnownBroken bounds Verification.KnownBroken. At about 150 bytes each, this is a small part of the space for the
// annotations of an object.
const MaxKnownBroken = 32

// Verdict on the backups of a cluster.
type Verdict string

// The verdicts. The empty one means that there was never a result.
const (
	// VerdictVerified: the backups were restored, and equal what etcd reported.
	VerdictVerified Verdict = "Verified"
	// VerdictBroken: the backups do not lead to a state that the cluster had.
	VerdictBroken Verdict = "Broken"
	// verdictBefore is how earlier agents wrote VerdictVerified.
	verdictBefore Verdict = "Proven"
)

// Verification is the last verification in the Lease of full backups.
type Verification struct {
	Verdict Verdict
	// At is when the verdict was found, by the clock of that agent. Full is the key of the full backup that was
	// restored, Revision is the revision up to which everything was compared, and Lineage is that of the backups.
	At       time.Time
	Full     string
	Revision int64
	Lineage  string
	// VerifiedFull is the key of the last verified full backup, independent of later verdicts.
	VerifiedFull string
	// Broken is the key of the invalid object. It is empty with any other verdict.
	Broken string
	// KnownBroken are the keys of all invalid objects that the store still has, at most MaxKnownBroken, the last one
	// found at the end.
	KnownBroken []string
	// Trouble is why the backups are invalid, or why the last attempt, at Tried, had no result. It is empty after a
	// successful verification.
	Trouble string
	Tried   time.Time
}

// AllBroken returns the invalid objects, with the one of the verdict.
func (v Verification) AllBroken() []string {
	known := slices.Clone(v.KnownBroken)
	if v.Broken != "" && !slices.Contains(known, v.Broken) {
		known = append(known, v.Broken)
	}
	return known
}

// DecodeVerification reads the Lease of full backups. Any error wraps ErrUnreadable.
func DecodeVerification(lease *coordinationv1.Lease) (Verification, error) {
	d := decoder{annotations: lease.Annotations}
	v := Verification{
		Verdict: Verdict(d.text(annotationVerdict)), At: d.time(annotationVerified), Full: d.text(annotationVerifiedFull),
		Revision: int64(d.optional(annotationVerifiedTo, 63)), Lineage: d.text(annotationVerifiedOf),
		VerifiedFull: d.text(annotationFullVerified), Broken: d.text(annotationBrokenObject),
		Trouble: d.text(annotationVerifyTrouble), Tried: d.time(annotationVerifyTroubled),
	}
	if known := d.text(annotationBrokenObjects); known != "" {
		v.KnownBroken = strings.Fields(known)
	}
	switch v.Verdict {
	case "", VerdictVerified, VerdictBroken:
	case verdictBefore:
		v.Verdict = VerdictVerified
	default:
		d.fail(annotationVerdict, string(v.Verdict), "Verified or Broken")
	}
	if d.err != nil {
		return Verification{}, fmt.Errorf("snapshot Lease %s/%s: %w", lease.Namespace, lease.Name, d.err)
	}
	return v, nil
}

func (v Verification) encode() leasePatch {
	a := annotationPatch{}
	a.exactly(annotationVerdict, string(v.Verdict))
	a.exactly(annotationVerified, formatTime(v.At))
	a.exactly(annotationVerifiedFull, v.Full)
	a.exactly(annotationVerifiedTo, formatKnown(uint64(v.Revision)))
	a.exactly(annotationVerifiedOf, v.Lineage)
	a.exactly(annotationFullVerified, v.VerifiedFull)
	a.exactly(annotationBrokenObject, v.Broken)
	a.exactly(annotationBrokenObjects, strings.Join(v.KnownBroken[max(0, len(v.KnownBroken)-MaxKnownBroken):], " "))
	a.exactly(annotationVerifyTrouble, truncate(v.Trouble, maxReason))
	a.exactly(annotationVerifyTroubled, formatTime(v.Tried))
	return leasePatch{Metadata: patchMetadata{Annotations: a}}
}

// Full reads the Lease of full backups, with their last verification.
func (s *Store) Full(ctx context.Context) (Backup, Verification, error) {
	lease, err := s.get(ctx, SnapshotName(s.cluster, ComponentFullSnapshot))
	if err != nil {
		return Backup{}, Verification{}, err
	}
	b, err := DecodeBackup(lease)
	if err != nil {
		return Backup{}, Verification{}, err
	}
	v, err := DecodeVerification(lease)
	return b, v, err
}

// ReportVerification writes all of v into the Lease of full backups. Like RenewBackup, it is not a compare-and-set.
func (s *Store) ReportVerification(ctx context.Context, v Verification) error {
	_, err := s.patch(ctx, SnapshotName(s.cluster, ComponentFullSnapshot), v.encode())
	return err
}
