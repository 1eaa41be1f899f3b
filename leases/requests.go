package leases

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
)

// RetireState says how far a member's way out of the cluster has come.
type RemovalState string

// The states. druid writes requested and takes it back; the leader's agent writes removing and done, and hands removing
// back to requested when another member must heal first.
const (
	// RetireNone: the member is to stay.
	RemovalNone RemovalState = ""
	// RetireRequested: the member is to go. It still is a full member, and the request may be taken back.
	RemovalRequested RemovalState = "requested"
	// RetireRemoving: the leader's agent has claimed the removal. No one else takes it back.
	RemovalBegun RemovalState = "removing"
	// RetireDone: the member is out of the raft group. Only on this its Pod and volume may be deleted.
	RemovalDone RemovalState = "done"
	// RetireUnreadable: there is a mark that cannot be understood. It is never written, orders nothing and cancels nothing.
	RemovalUnreadable RemovalState = "unreadable"
)

// Retirement is the drain mark on a member's Lease. It orders something only while the record's Retiring slot names the
// same member and the same mark. The zero value is no mark.
type RemovalRequest struct {
	State RemovalState `json:"state"`
	// Mark names the order: druid draws a new one for every request.
	Mark string `json:"mark,omitempty"`
	// At is when druid asked, RFC 3339: for people, never compared with a clock.
	At string `json:"at,omitempty"`
	// By is the UID of the Pod whose agent claimed the removal.
	By string `json:"by,omitempty"`
	// MemberID is exactly the ID that is being removed or was, hex; empty where the name never was a member. ClusterID is the
	// raft group that the claim and the acknowledgement speak of, hex.
	MemberID  string `json:"memberID,omitempty"`
	ClusterID string `json:"clusterID,omitempty"`
	// RaftTerm and RaftIndex, on done, are a position of a linearizable member list that was taken after the removal and
	// does not have the member.
	RaftTerm  uint64 `json:"raftTerm,omitempty"`
	RaftIndex uint64 `json:"raftIndex,omitempty"`
}

// Retiring is the record's slot for the one member at a time that is on its way out. druid takes it, only while Replacing
// is free, BEFORE it marks the member's Lease, and clears it: after a request that was taken back, and together with the
// name in Members after done.
type PendingRemoval struct {
	Member string `json:"member"`
	// Mark is that of the Retirement on the member's Lease.
	Mark string `json:"mark"`
}

// Orders says whether the mark on the Lease of the member called name is the one that the slot names.
func (r *PendingRemoval) Orders(name string, mark RemovalRequest) bool {
	return r != nil && r.Member == name && r.Mark != "" && r.Mark == mark.Mark
}

// ParseRetirement reads a mark. What cannot be understood is RetireUnreadable, never an error: the rest of the Lease still
// counts.
func ParseRemovalRequest(s string) RemovalRequest {
	if s == "" {
		return RemovalRequest{}
	}
	var r RemovalRequest
	if err := json.Unmarshal([]byte(s), &r); err != nil || !r.whole() {
		return RemovalRequest{State: RemovalUnreadable}
	}
	return r
}

// whole says whether the mark has all that its state needs.
func (r RemovalRequest) whole() bool {
	_, err1 := ParseID(r.MemberID)
	cluster, err2 := ParseID(r.ClusterID)
	if r.Mark == "" || errors.Join(err1, err2) != nil {
		return false
	}
	claimed := r.By != "" && cluster != 0
	switch r.State {
	case RemovalRequested:
		return r == RemovalRequest{State: RemovalRequested, Mark: r.Mark, At: r.At}
	case RemovalBegun:
		return claimed
	case RemovalDone:
		return claimed && r.RaftTerm != 0 && r.RaftIndex != 0
	case RemovalNone, RemovalUnreadable:
		return false
	default: // of another version
		return false
	}
}

// Encode is the value of AnnotationRetire, empty for the zero mark.
func (r RemovalRequest) Encode() (string, error) {
	if r == (RemovalRequest{}) {
		return "", nil
	}
	if !r.whole() {
		return "", fmt.Errorf("encode annotation %s: %+v lacks what its state needs", AnnotationRemoval, r)
	}
	raw, err := json.Marshal(r)
	if err != nil {
		return "", fmt.Errorf("encode annotation %s: %w", AnnotationRemoval, err)
	}
	return string(raw), nil
}

// Retire writes the mark of the member called name if its Lease still is at version, else nothing and ErrConflict. The
// zero mark removes it. Nothing else of the Lease changes. It returns what Marks returns, as it is after that.
func (s *Store) RequestRemoval(ctx context.Context, name string, at Version, r RemovalRequest) (Member, error) {
	if at == "" {
		return Member{}, fmt.Errorf("write the removal request of %s: a compare-and-set needs the version that was read", name)
	}
	value, err := r.Encode()
	if err != nil {
		return Member{}, fmt.Errorf("write the removal request of %s: %w", name, err)
	}
	marks := annotationPatch{}
	marks.exactly(AnnotationRemoval, value)
	lease, err := s.patch(ctx, name, leasePatch{Metadata: patchMetadata{ResourceVersion: at, Annotations: marks}})
	if err != nil {
		return Member{}, err
	}
	return marksOf(lease), nil
}

// Annotations of the record by which druid asks whether the members hold the same, while it changes their version, and the
// leader's agent answers. They are no part of what UpdateRecord writes.
const (
	// AnnotationUpgradeOrder is an UpgradeOrder. druid alone writes it, and takes it away.
	AnnotationUpgradeOrder = Prefix + "upgrade-order"
	// AnnotationUpgradeAnswer is an UpgradeAnswer. The leader's agent writes it, druid takes it away together with the order.
	AnnotationUpgradeAnswer = Prefix + "upgrade-answer"
)

// UpgradeOrder asks for a comparison of all members. It stands from before the first Pod of another version until the comparison
// after the last one.
type UpgradeOrder struct {
	// Nonce names the comparison. It is made of the version, the edit of the spec, and the Pods as they are, so that it is asked for
	// again whenever one of these changed.
	Nonce string `json:"nonce"`
	// Version that the members go to, as major.minor.patch.
	Version string `json:"version"`
	// Downgrade is the minor, as major.minor, whose format the storage of all members is to have before they are compared; empty
	// where none goes back, and then a downgrade that was announced before is cancelled.
	Downgrade string `json:"downgrade,omitempty"`
}

// UpgradeVerdict is what came of a comparison.
type UpgradeVerdict string

// The verdicts; an empty one is no answer. Agree and Differ are final.
const (
	// UpgradeAgree: all members list the same members, and hold the same at one revision.
	UpgradeAgree UpgradeVerdict = "Agree"
	// UpgradeDiffer: they do not.
	UpgradeDiffer UpgradeVerdict = "Differ"
	// UpgradeUnknown: it was not found out yet. The leader's agent goes on asking.
	UpgradeUnknown UpgradeVerdict = "Unknown"
	// UpgradeAwaitsEdit: it can be found out after an edit of the spec alone, which Why names. The leader's agent goes on asking, and druid
	// replaces Pods for that edit as etcd of the version that they run.
	UpgradeAwaitsEdit UpgradeVerdict = "AwaitsEdit"
)

// UpgradeAnswer is what the leader's agent found.
type UpgradeAnswer struct {
	// Nonce of the order that is answered.
	Nonce   string         `json:"nonce"`
	Verdict UpgradeVerdict `json:"verdict"`
	// Revision and CompactRevision at which Members members were compared; 0 where none were.
	Revision        int64 `json:"revision,omitempty"`
	CompactRevision int64 `json:"compactRevision,omitempty"`
	Members         int   `json:"members,omitempty"`
	// Why they differ, or why that is not known, for a person.
	Why string `json:"why,omitempty"`
}

// Upgrade is the order on the record and its answer, the zero one for none.
type Upgrade struct {
	Order UpgradeOrder
	// Answer to this order. What answers another one, or cannot be read, is no answer.
	Answer UpgradeAnswer
}

// Open says whether there is something to find out.
func (u Upgrade) Open() bool {
	return u.Order.Nonce != "" && u.Answer.Verdict != UpgradeAgree && u.Answer.Verdict != UpgradeDiffer
}

// DecodeUpgrade reads the order on the record. One that cannot be read is none: druid asks again.
func DecodeUpgrade(lease *coordinationv1.Lease) Upgrade {
	var u Upgrade
	if json.Unmarshal([]byte(lease.Annotations[AnnotationUpgradeOrder]), &u.Order) != nil || u.Order.Nonce == "" {
		return Upgrade{}
	}
	var a UpgradeAnswer
	if json.Unmarshal([]byte(lease.Annotations[AnnotationUpgradeAnswer]), &a) != nil || a.Nonce != u.Order.Nonce {
		return u
	}
	switch a.Verdict {
	case UpgradeAgree, UpgradeDiffer, UpgradeUnknown, UpgradeAwaitsEdit:
		u.Answer = a
	}
	return u
}

// Encode is the value of AnnotationUpgradeOrder.
func (o UpgradeOrder) Encode() (string, error) {
	raw, err := json.Marshal(o)
	if err != nil {
		return "", fmt.Errorf("encode annotation %s: %w", AnnotationUpgradeOrder, err)
	}
	return string(raw), nil
}

// AnswerUpgrade writes an answer if the record still is at version, else nothing and ErrConflict. It returns the version that
// the write made.
func (s *Store) AnswerUpgrade(ctx context.Context, version Version, a UpgradeAnswer) (Version, error) {
	name := RecordName(s.cluster)
	if version == "" {
		return "", fmt.Errorf("patch Lease %s: a compare-and-set needs the version that was read", name)
	}
	a.Why = truncate(a.Why, maxReason)
	raw, err := json.Marshal(a)
	if err != nil {
		return "", fmt.Errorf("patch Lease %s: %w", name, err)
	}
	lease, err := s.patch(ctx, name, leasePatch{Metadata: patchMetadata{
		ResourceVersion: version, Annotations: annotationPatch{AnnotationUpgradeAnswer: new(string(raw))},
	}})
	if err != nil {
		return "", err
	}
	return Version(lease.ResourceVersion), nil
}
