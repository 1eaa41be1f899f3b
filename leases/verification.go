package leases

import (
	"context"
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
)

// Annotations of the full backups' Lease that report whether the backups were proven. The agent writes them that restored them.
const (
	annotationVerdict        = Prefix + "verdict"
	annotationVerified       = Prefix + "verified-at"
	annotationVerifiedFull   = Prefix + "verified-full"
	annotationVerifiedTo     = Prefix + "verified-revision"
	annotationVerifiedOf     = Prefix + "verified-lineage"
	annotationProvenFull     = Prefix + "proven-full"
	annotationBrokenObject   = Prefix + "broken-object"
	annotationBrokenObjects  = Prefix + "broken-objects"
	annotationVerifyTrouble  = Prefix + "verify-trouble"
	annotationVerifyTroubled = Prefix + "verify-tried-at"
)

// MaxKnownBroken bounds Verification.KnownBroken: at some 150 bytes each, that is a small part of what annotations of an object may take.
const MaxKnownBroken = 32

// Verdict on the backups of a cluster.
type Verdict string

// The verdicts; the empty one is that no one ever found out.
const (
	// VerdictProven: they were restored, and hold what etcd said that it held.
	VerdictProven Verdict = "Proven"
	// VerdictBroken: they do not lead to a state that the cluster had.
	VerdictBroken Verdict = "Broken"
)

// Verification is what the full backups' Lease says of the last one.
type Verification struct {
	Verdict Verdict
	// At is when that was found out, by the clock of the agent that did. Full is the key of the full that it began with, Revision
	// the one up to which all was compared, and Lineage whose backups they were.
	At       time.Time
	Full     string
	Revision int64
	Lineage  string
	// ProvenFull is the key of the last full that was proven, whatever was found since.
	ProvenFull string
	// Broken is the key of the object that is, and empty where the verdict is another.
	Broken string
	// KnownBroken are the keys of all objects that were found broken and that the store still has, the last one found at the end, and
	// MaxKnownBroken at most.
	KnownBroken []string
	// Trouble is why the backups are broken, or why the last attempt, at Tried, did not find out; empty after one that proved them.
	Trouble string
	Tried   time.Time
}

// DecodeVerification reads the Lease of the full backups. Any error wraps ErrUnreadable.
func DecodeVerification(lease *coordinationv1.Lease) (Verification, error) {
	d := decoder{annotations: lease.Annotations}
	v := Verification{
		Verdict: Verdict(d.text(annotationVerdict)), At: d.time(annotationVerified), Full: d.text(annotationVerifiedFull),
		Revision: int64(d.optional(annotationVerifiedTo, 63)), Lineage: d.text(annotationVerifiedOf),
		ProvenFull: d.text(annotationProvenFull), Broken: d.text(annotationBrokenObject),
		Trouble: d.text(annotationVerifyTrouble), Tried: d.time(annotationVerifyTroubled),
	}
	if known := d.text(annotationBrokenObjects); known != "" {
		v.KnownBroken = strings.Fields(known)
	}
	switch v.Verdict {
	case "", VerdictProven, VerdictBroken:
	default:
		d.fail(annotationVerdict, string(v.Verdict), "Proven or Broken")
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
	a.exactly(annotationProvenFull, v.ProvenFull)
	a.exactly(annotationBrokenObject, v.Broken)
	a.exactly(annotationBrokenObjects, strings.Join(v.KnownBroken[max(0, len(v.KnownBroken)-MaxKnownBroken):], " "))
	a.exactly(annotationVerifyTrouble, truncate(v.Trouble, maxReason))
	a.exactly(annotationVerifyTroubled, formatTime(v.Tried))
	return leasePatch{Metadata: patchMetadata{Annotations: a}}
}

// Full reads the Lease of the full backups, with what it says of their verification.
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

// ReportVerification writes all of v into the Lease of the full backups. Like RenewBackup it compares nothing: who restored
// reports what was found.
func (s *Store) ReportVerification(ctx context.Context, v Verification) error {
	_, err := s.patch(ctx, SnapshotName(s.cluster, ComponentFullSnapshot), v.encode())
	return err
}
