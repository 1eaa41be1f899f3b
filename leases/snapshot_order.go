package leases

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
)

// Annotations with which druid requests one backup and the leader's agent answers. They are on the snapshot Lease for
// that kind of backup.
const (
	// AnnotationSnapshotOrder is the UID of the EtcdSnapshot that requests a backup. Only druid writes and removes it.
	AnnotationSnapshotOrder = Prefix + "snapshot-order"
	// AnnotationSnapshotOrderKind is the kind of the request, if it differs from the default of the Lease: a kind, a
	// slash, and the UID of the request. A druid that does not know kinds leaves it unchanged and writes another
	// request.
	AnnotationSnapshotOrderKind = Prefix + "snapshot-order-kind"
	// AnnotationSnapshotOrderTarget is the target of a request with a kind: the UID of the request, a slash, and a
	// SnapshotTarget as JSON. A target with another UID is ignored.
	AnnotationSnapshotOrderTarget = Prefix + "snapshot-order-target"
	// AnnotationSnapshotAnswer is the result of the request. The leader's agent writes it, and druid removes it
	// together with the request.
	AnnotationSnapshotAnswer = Prefix + "snapshot-answer"
)

// SnapshotPhase is the progress of the answer to a request.
type SnapshotPhase string

// The phases. The last two are final and are never overwritten.
const (
	SnapshotRunning   SnapshotPhase = "Running"
	SnapshotSucceeded SnapshotPhase = "Succeeded"
	SnapshotFailed    SnapshotPhase = "Failed"
)

// SnapshotKind is the kind of a request on a snapshot Lease, empty for the backup that the Lease is for.
type SnapshotKind string

// The kinds. All of them are requested on the Lease of full backups.
const (
	// SnapshotFinal requests the changes that are not saved yet, and then a full backup that retention never deletes.
	SnapshotFinal SnapshotKind = "Final"
	// SnapshotDelete requests the deletion of the full backup in the target.
	SnapshotDelete SnapshotKind = "Delete"
)

// SnapshotVerified and SnapshotFinalVerified request, on the Lease of full backups, a backup that counts as saved only
// after it was restored and compared.
const (
	SnapshotVerified      SnapshotKind = "Verified"
	SnapshotFinalVerified SnapshotKind = "FinalVerified"
)

// OrderKind returns the value of AnnotationSnapshotOrderKind for a request.
func OrderKind(kind SnapshotKind, uid string) string { return string(kind) + "/" + uid }

// SnapshotTarget is the target of a request with a kind.
type SnapshotTarget struct {
	// URI of the full backup to delete, as reported in the answer to its own request.
	URI string `json:"uri,omitempty"`
}

// OrderTarget returns the value of AnnotationSnapshotOrderTarget for a request.
func OrderTarget(target SnapshotTarget, uid string) (string, error) {
	raw, err := json.Marshal(target)
	if err != nil {
		return "", fmt.Errorf("encode the target of order %s: %w", uid, err)
	}
	return uid + "/" + string(raw), nil
}

// SnapshotAnswer is the answer of the leader's agent to a request.
type SnapshotAnswer struct {
	// UID of the request that is answered.
	UID string `json:"uid"`
	// Kind of the request. An agent that does not know kinds answers without one. That does not answer a request with
	// a kind, which stays open until an agent that knows kinds leads.
	Kind  SnapshotKind  `json:"kind,omitempty"`
	Phase SnapshotPhase `json:"phase"`
	// Started and Finished, by the clock of the agent that writes them.
	Started  time.Time `json:"started,omitzero"`
	Finished time.Time `json:"finished,omitzero"`
	// Object is the key of the backup, empty if there was nothing left to save, and URI is its location. Size is in
	// bytes. SHA256 is the digest of its content, hex.
	Object string `json:"object,omitempty"`
	URI    string `json:"uri,omitempty"`
	Size   int64  `json:"size,omitempty"`
	SHA256 string `json:"sha256,omitempty"`
	// Revision up to which everything is saved.
	Revision int64 `json:"revision,omitempty"`
	// StorageVersion is the etcd storage version that a full backup needs, as etcd reports it. It is empty for delta
	// backups and if etcd did not report it.
	StorageVersion string `json:"storageVersion,omitempty"`
	// Error of a failed request, for users.
	Error string `json:"error,omitempty"`
}

// maxResult bounds the result that a Pod reports. The kubelet keeps 4096 bytes of it.
const maxResult = 4096

// Result returns the answer as the Pod of an EtcdSnapshot reports it when it ends.
func (a SnapshotAnswer) Result() ([]byte, error) {
	for limit := maxResult / 2; ; limit /= 2 { // a character can take six bytes
		a.Error = truncate(a.Error, limit)
		raw, err := json.Marshal(a)
		if err != nil {
			return nil, fmt.Errorf("encode the result of the backup: %w", err)
		}
		if len(raw) <= maxResult || limit == 0 {
			return raw, nil
		}
	}
}

// ParseResult reads the result that the Pod of an EtcdSnapshot reported. Only a final answer to this request counts.
func ParseResult(raw, uid string) (a SnapshotAnswer, ok bool) {
	if decodeJSON(raw, &a) != nil || a.UID != uid || a.Phase != SnapshotSucceeded && a.Phase != SnapshotFailed {
		return SnapshotAnswer{}, false
	}
	return a, true
}

// SnapshotOrder is a request on a snapshot Lease, and its answer.
type SnapshotOrder struct {
	// UID of the EtcdSnapshot that requests the backup, empty for none.
	UID string
	// Kind of the request, empty for the backup that the Lease is for.
	Kind SnapshotKind
	// target of the request as JSON, empty for none.
	target string
	// Answer to this request. An answer to another request or an unreadable one does not count.
	Answer SnapshotAnswer
	// Version of the Lease that was read.
	Version Version
}

// Open says whether there is something to do: a request without a final answer.
func (o SnapshotOrder) Open() bool {
	return o.UID != "" && o.Answer.Phase != SnapshotSucceeded && o.Answer.Phase != SnapshotFailed
}

// Target returns the target of a request with a kind.
func (o SnapshotOrder) Target() (t SnapshotTarget, err error) {
	// A part that is ignored could mean another backup than the one that was asked for.
	if err := decodeKnown(o.target, &t); err != nil {
		return t, fmt.Errorf("%w: target %q of order %s: %w", ErrUnreadable, o.target, o.UID, err)
	}
	return t, nil
}

// DecodeSnapshotOrder reads the request on a snapshot Lease.
func DecodeSnapshotOrder(lease *coordinationv1.Lease) SnapshotOrder {
	o := SnapshotOrder{UID: lease.Annotations[AnnotationSnapshotOrder], Version: Version(lease.ResourceVersion)}
	if kind, uid, _ := strings.Cut(lease.Annotations[AnnotationSnapshotOrderKind], "/"); uid == o.UID {
		o.Kind = SnapshotKind(kind)
	}
	if uid, target, _ := strings.Cut(lease.Annotations[AnnotationSnapshotOrderTarget], "/"); uid == o.UID {
		o.target = target
	}
	var a SnapshotAnswer
	if o.UID == "" || decodeJSON(lease.Annotations[AnnotationSnapshotAnswer], &a) != nil || a.UID != o.UID || a.Kind != o.Kind {
		return o
	}
	switch a.Phase {
	case SnapshotRunning, SnapshotSucceeded, SnapshotFailed:
		o.Answer = a
	}
	return o
}

// SnapshotOrder reads the request on the snapshot Lease of component.
func (s *Store) SnapshotOrder(ctx context.Context, component Component) (SnapshotOrder, error) {
	lease, err := s.get(ctx, SnapshotName(s.cluster, component))
	if err != nil {
		return SnapshotOrder{}, err
	}
	return DecodeSnapshotOrder(lease), nil
}

// OrderSnapshot writes a request to the snapshot Lease of component, and removes the answer to an earlier one, if the
// Lease still is at version. Otherwise it changes nothing and returns ErrConflict. The kind is empty for the backup that
// the Lease is for. The target is nil for a kind without one.
func (s *Store) OrderSnapshot(ctx context.Context, component Component, version Version, uid string, kind SnapshotKind, target *SnapshotTarget) error {
	annotations := noOrder()
	annotations[AnnotationSnapshotOrder] = &uid
	if kind != "" {
		annotations[AnnotationSnapshotOrderKind] = new(OrderKind(kind, uid))
	}
	if target != nil {
		encoded, err := OrderTarget(*target, uid)
		if err != nil {
			return err
		}
		annotations[AnnotationSnapshotOrderTarget] = &encoded
	}
	return s.patchSnapshot(ctx, component, version, annotations)
}

// ClearSnapshotOrder removes the request and its answer from the snapshot Lease of component if the Lease still is at
// version. Otherwise it changes nothing and returns ErrConflict.
func (s *Store) ClearSnapshotOrder(ctx context.Context, component Component, version Version) error {
	return s.patchSnapshot(ctx, component, version, noOrder())
}

// noOrder removes a request and its answer.
func noOrder() annotationPatch {
	return annotationPatch{
		AnnotationSnapshotOrder: nil, AnnotationSnapshotOrderKind: nil, AnnotationSnapshotOrderTarget: nil, AnnotationSnapshotAnswer: nil,
	}
}

// AnswerSnapshot writes an answer if the Lease still is at version. Otherwise it changes nothing and returns
// ErrConflict: a request that was deleted or replaced meanwhile is not answered.
func (s *Store) AnswerSnapshot(ctx context.Context, component Component, version Version, a SnapshotAnswer) error {
	a.Error = truncate(a.Error, maxReason)
	raw, err := json.Marshal(a)
	if err != nil {
		return fmt.Errorf("patch Lease %s: %w", SnapshotName(s.cluster, component), err)
	}
	return s.patchSnapshot(ctx, component, version, annotationPatch{AnnotationSnapshotAnswer: new(string(raw))})
}

// patchSnapshot changes annotations of the snapshot Lease of component by compare-and-set.
func (s *Store) patchSnapshot(ctx context.Context, component Component, version Version, annotations annotationPatch) error {
	_, err := s.annotate(ctx, SnapshotName(s.cluster, component), version, annotations)
	return err
}

// WatchSnapshotOrder calls seen with the request on the snapshot Lease of component, first with the present one and
// then whenever the Lease changes, until the server ends the watch (nil: start again), the watch fails, or ctx ends.
// What was seen is a hint: read the Lease live before you act on it.
func (s *Store) WatchSnapshotOrder(ctx context.Context, component Component, seen func(SnapshotOrder)) error {
	return s.watch(ctx, SnapshotName(s.cluster, component), func(lease *coordinationv1.Lease) { seen(DecodeSnapshotOrder(lease)) })
}

// Snapshots says after how many raft entries the member's etcd takes a raft snapshot, and for which Pod the member's
// agent reported it, because another Pod can have another setting. The zero value means unknown.
type Snapshots struct {
	Entries uint64
	PodUID  string
}

// String formats it for ParseSnapshots.
func (s Snapshots) String() string {
	if s.PodUID == "" {
		return ""
	}
	return fmt.Sprintf("entries=%d,pod=%s", s.Entries, s.PodUID)
}

// ParseSnapshots reads an annotation. Invalid content means unknown.
func ParseSnapshots(text string) Snapshots {
	var s Snapshots
	if _, err := fmt.Sscanf(text, "entries=%d,pod=%s", &s.Entries, &s.PodUID); err != nil || s.String() != text {
		return Snapshots{}
	}
	return s
}
