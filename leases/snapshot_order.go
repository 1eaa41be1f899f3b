package leases

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
)

// Annotations by which druid asks for one backup and the leader's agent answers. They stand on the snapshot Lease of the
// kind of backup that is meant, so the name of the Lease says which.
const (
	// AnnotationSnapshotOrder is the UID of the EtcdSnapshot that asks. druid alone writes it, and takes it away.
	AnnotationSnapshotOrder = Prefix + "snapshot-order"
	// AnnotationSnapshotOrderKind says what is ordered, where that is something else than what the Lease is for: a kind, a
	// slash, and the UID of the order that it is of. A druid that knows of no kinds leaves it behind, and orders again.
	AnnotationSnapshotOrderKind = Prefix + "snapshot-order-kind"
	// AnnotationSnapshotOrderTarget is what an order of a kind is about: the UID of the order, a slash, and a SnapshotTarget as
	// JSON. What is of another order is none.
	AnnotationSnapshotOrderTarget = Prefix + "snapshot-order-target"
	// AnnotationSnapshotAnswer is what became of it. The leader's agent writes it, druid takes it away together with the order.
	AnnotationSnapshotAnswer = Prefix + "snapshot-answer"
)

// SnapshotPhase is how far the answer to an order is.
type SnapshotPhase string

// The phases. The latter two are final: no one writes over them.
const (
	SnapshotRunning   SnapshotPhase = "Running"
	SnapshotSucceeded SnapshotPhase = "Succeeded"
	SnapshotFailed    SnapshotPhase = "Failed"
)

// SnapshotKind is what is ordered on a snapshot Lease; empty for the backup that the Lease is for.
type SnapshotKind string

// The kinds. All of them are ordered on the Lease of fulls.
const (
	// SnapshotFinal orders what is not saved yet and then a full that retention never deletes.
	SnapshotFinal SnapshotKind = "Final"
	// SnapshotElsewhere orders a full in the bucket that the target names.
	SnapshotElsewhere SnapshotKind = "Elsewhere"
	// SnapshotDelete orders that the full be deleted that the target names.
	SnapshotDelete SnapshotKind = "Delete"
)

// SnapshotVerified and SnapshotFinalVerified order, on the Lease of fulls, that what is saved is restored and compared before it
// counts as saved.
const (
	SnapshotVerified      SnapshotKind = "Verified"
	SnapshotFinalVerified SnapshotKind = "FinalVerified"
)

// OrderKind is what AnnotationSnapshotOrderKind says of an order that is of a kind.
func OrderKind(kind SnapshotKind, uid string) string { return string(kind) + "/" + uid }

// SnapshotTarget is what an order of a kind is about.
type SnapshotTarget struct {
	// URI of the full that is to be deleted, as the answer to its order reported it.
	URI string `json:"uri,omitempty"`
	// Place that a full is to be saved in, nil for the cluster's own.
	Place *SnapshotPlace `json:"place,omitempty"`
}

// SnapshotPlace is a bucket. What is empty is as in the agent's own store, but for Prefix, which is none then.
type SnapshotPlace struct {
	Bucket    string `json:"bucket"`
	Prefix    string `json:"prefix,omitempty"`
	Region    string `json:"region,omitempty"`
	Endpoint  string `json:"endpoint,omitempty"`
	PathStyle *bool  `json:"pathStyle,omitempty"`
}

// OrderTarget is what AnnotationSnapshotOrderTarget says of an order.
func OrderTarget(target SnapshotTarget, uid string) (string, error) {
	raw, err := json.Marshal(target)
	if err != nil {
		return "", fmt.Errorf("encode the target of order %s: %w", uid, err)
	}
	return uid + "/" + string(raw), nil
}

// SnapshotAnswer is what the leader's agent makes of an order.
type SnapshotAnswer struct {
	// UID of the order that is answered.
	UID string `json:"uid"`
	// Kind is that of the order. An agent that knows of no kinds answers without one: that is no answer to an order that has
	// one, which stays open until an agent that knows them leads.
	Kind  SnapshotKind  `json:"kind,omitempty"`
	Phase SnapshotPhase `json:"phase"`
	// Started and Finished by the clock of the agent that writes it.
	Started  time.Time `json:"started,omitzero"`
	Finished time.Time `json:"finished,omitzero"`
	// Object is the key of what was saved, empty where nothing was left to save, and URI where it is. Size is its bytes, SHA256 its
	// content's digest, hex.
	Object string `json:"object,omitempty"`
	URI    string `json:"uri,omitempty"`
	Size   int64  `json:"size,omitempty"`
	SHA256 string `json:"sha256,omitempty"`
	// Revision up to which everything is saved.
	Revision int64 `json:"revision,omitempty"`
	// StorageVersion of etcd that a full needs, as etcd reports it; empty of deltas and where etcd did not report it.
	StorageVersion string `json:"storageVersion,omitempty"`
	// Error of one that failed, for a person.
	Error string `json:"error,omitempty"`
}

// SnapshotOrder is what a snapshot Lease asks for and how that was answered.
type SnapshotOrder struct {
	// UID of the EtcdSnapshot that asks, empty for none.
	UID string
	// Kind of what it asks for, empty for what the Lease is for.
	Kind SnapshotKind
	// target of it as JSON, empty for none.
	target string
	// Answer to this order. What answers another, or cannot be read, is no answer.
	Answer SnapshotAnswer
	// Version of the Lease that says so.
	Version Version
}

// Open says whether there is something to do: an order without a final answer.
func (o SnapshotOrder) Open() bool {
	return o.UID != "" && o.Answer.Phase != SnapshotSucceeded && o.Answer.Phase != SnapshotFailed
}

// Target is what an order of a kind is about.
func (o SnapshotOrder) Target() (t SnapshotTarget, err error) {
	d := json.NewDecoder(strings.NewReader(o.target))
	d.DisallowUnknownFields() // a part that is ignored could mean to write elsewhere than was asked for
	if err := d.Decode(&t); err != nil {
		return t, fmt.Errorf("%w: target %q of order %s: %w", ErrUnreadable, o.target, o.UID, err)
	}
	return t, nil
}

// DecodeSnapshotOrder reads the order on a snapshot Lease.
func DecodeSnapshotOrder(lease *coordinationv1.Lease) SnapshotOrder {
	o := SnapshotOrder{UID: lease.Annotations[AnnotationSnapshotOrder], Version: Version(lease.ResourceVersion)}
	if kind, uid, _ := strings.Cut(lease.Annotations[AnnotationSnapshotOrderKind], "/"); uid == o.UID {
		o.Kind = SnapshotKind(kind)
	}
	if uid, target, _ := strings.Cut(lease.Annotations[AnnotationSnapshotOrderTarget], "/"); uid == o.UID {
		o.target = target
	}
	var a SnapshotAnswer
	if o.UID == "" || json.Unmarshal([]byte(lease.Annotations[AnnotationSnapshotAnswer]), &a) != nil || a.UID != o.UID || a.Kind != o.Kind {
		return o
	}
	switch a.Phase {
	case SnapshotRunning, SnapshotSucceeded, SnapshotFailed:
		o.Answer = a
	}
	return o
}

// SnapshotOrder reads the order on the snapshot Lease of component.
func (s *Store) SnapshotOrder(ctx context.Context, component Component) (SnapshotOrder, error) {
	lease, err := s.get(ctx, SnapshotName(s.cluster, component))
	if err != nil {
		return SnapshotOrder{}, err
	}
	return DecodeSnapshotOrder(lease), nil
}

// AnswerSnapshot writes an answer if the Lease still is at version, else nothing and ErrConflict: an order that was taken
// away or replaced meanwhile is not answered.
func (s *Store) AnswerSnapshot(ctx context.Context, component Component, version Version, a SnapshotAnswer) error {
	name := SnapshotName(s.cluster, component)
	if version == "" {
		return fmt.Errorf("patch Lease %s: a compare-and-set needs the version that was read", name)
	}
	a.Error = truncate(a.Error, maxReason)
	raw, err := json.Marshal(a)
	if err != nil {
		return fmt.Errorf("patch Lease %s: %w", name, err)
	}
	_, err = s.patch(ctx, name, leasePatch{Metadata: patchMetadata{
		ResourceVersion: version, Annotations: annotationPatch{AnnotationSnapshotAnswer: new(string(raw))},
	}})
	return err
}

// WatchSnapshotOrder calls seen with the order on the snapshot Lease of component, the present one first, whenever the Lease
// changes, until the server ends the watch (nil: begin again), it fails, or ctx ends. What was seen is a hint: what is acted
// upon is read live.
func (s *Store) WatchSnapshotOrder(ctx context.Context, component Component, seen func(SnapshotOrder)) error {
	return s.watch(ctx, SnapshotName(s.cluster, component), func(lease *coordinationv1.Lease) { seen(DecodeSnapshotOrder(lease)) })
}

// Snapshots say after how many raft entries the member's etcd takes a snapshot of its log, and of which Pod the member's agent said so:
// another Pod may have another setting. The zero value is not known.
type Snapshots struct {
	Entries uint64
	PodUID  string
}

// String writes it as ParseSnapshots reads it.
func (s Snapshots) String() string {
	if s.PodUID == "" {
		return ""
	}
	return fmt.Sprintf("entries=%d,pod=%s", s.Entries, s.PodUID)
}

// ParseSnapshots reads an annotation. What cannot be read is not known.
func ParseSnapshots(text string) Snapshots {
	var s Snapshots
	if _, err := fmt.Sscanf(text, "entries=%d,pod=%s", &s.Entries, &s.PodUID); err != nil || s.String() != text {
		return Snapshots{}
	}
	return s
}
