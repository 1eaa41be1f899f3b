package leases

import (
	"context"
	"fmt"
	"strconv"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Annotations of the two snapshot Leases, next to the lineage. The leader's agent writes them; druid makes the Lease.
const (
	annotationObject = Prefix + "object"
	annotationSize   = Prefix + "size"
	annotationSHA256 = Prefix + "sha256"
	annotationTaken  = Prefix + "taken"
	annotationLag    = Prefix + "lag"
	annotationError  = Prefix + "error"

	annotationSupersededBy = Prefix + "superseded-by"
)

// Backup is what a snapshot Lease says: that of the full backups, or that of the deltas.
type Backup struct {
	// Revision up to which everything is saved, 0 while nothing is. It is the Lease's holderIdentity.
	Revision int64
	// Lineage that the newest object belongs to.
	Lineage string
	// Object is the key of the newest object in the store, Size its bytes, SHA256 its content's digest, hex, and Taken when it
	// was put, by the clock of the agent that did.
	Object string
	Size   int64
	SHA256 string
	Taken  time.Time
	// Lag is how old the oldest acknowledged write was that was not saved when the Lease was renewed, 0 for none. It is reported
	// of deltas.
	Lag time.Duration
	// SupersededBy is the lineage in the same place that a restore of the latest backup would take instead of this one's; empty for none. The
	// Lease of the full backups says it.
	SupersededBy string
	// Error of the last attempt for a person, empty after one that succeeded.
	Error string
}

// EverSaved says whether there ever was a backup.
func (b Backup) EverSaved() bool { return b.Revision != 0 }

// SnapshotName is the name of the Lease of a component that reports backups.
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
		Lag:      d.duration(annotationLag),
		Error:    d.text(annotationError),

		SupersededBy: d.text(annotationSupersededBy),
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

// BackupPatch is what the leader's agent writes into a snapshot Lease. It compares nothing: two who take themselves for the
// leader both report what they know, and what is saved is in the store.
type BackupPatch struct {
	// Backup holds the facts. What is unknown in it (zero) stays in the Lease as it was, with two exceptions: Object is written
	// together with Size, SHA256 and Taken, and Lag, SupersededBy and Error are written as they are, so that a success wipes the last failure.
	Backup Backup
	// RenewTime is when it was last known that what is due is saved: for deltas all changes up to then, for fulls that the
	// newest is not overdue. nil, after a failure, leaves the Lease's renewTime alone.
	RenewTime *time.Time
	// Duration after which an observer may call the Lease stale; 0 leaves it alone. Leases count whole seconds.
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
	}
	a.exactly(annotationLag, formatLag(b.Lag))
	a.exactly(annotationSupersededBy, b.SupersededBy)
	a.exactly(annotationError, truncate(b.Error, maxReason))
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

// formatLag counts whole milliseconds: no one acts on less.
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

// RenewBackup writes what p says into the snapshot Lease of component. There is none (ErrAbsent) where druid has not made it
// yet or the cluster is not to be backed up any more: no reason to stop.
func (s *Store) RenewBackup(ctx context.Context, component Component, p BackupPatch) error {
	_, err := s.patch(ctx, SnapshotName(s.cluster, component), p.encode())
	return err
}
