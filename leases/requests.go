package leases

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
)

// RemovalState is the progress of the removal of a member from the cluster.
type RemovalState string

// The states. druid writes requested and cancels it. The leader's agent writes removing and done, and reverts removing
// to requested if another member must recover first.
const (
	// RemovalNone: the member stays.
	RemovalNone RemovalState = ""
	// RemovalRequested: the removal of the member is requested. It is still a full member, and the request can be
	// canceled.
	RemovalRequested RemovalState = "requested"
	// RemovalBegun: the leader's agent has claimed the removal. Only the leader's agent can revert it.
	RemovalBegun RemovalState = "removing"
	// RemovalDone: the member is out of the raft group. Only in this state may its Pod and volume be deleted.
	RemovalDone RemovalState = "done"
	// RemovalUnreadable: the removal request is invalid. This state is never written, requests nothing and cancels
	// nothing.
	RemovalUnreadable RemovalState = "unreadable"
)

// RemovalRequest is the removal request on a member Lease. It is in effect only while the record's PendingRemoval slot
// names the same member and the same mark. The zero value is no removal request.
type RemovalRequest struct {
	State RemovalState `json:"state"`
	// Mark identifies the request. druid generates a new one for every request.
	Mark string `json:"mark,omitempty"`
	// At is when druid made the request, RFC 3339. It is information for users and is never compared with a clock.
	At string `json:"at,omitempty"`
	// By is the UID of the Pod whose agent claimed the removal, or acknowledged it.
	By string `json:"by,omitempty"`
	// MemberID is exactly the ID that is being or was removed, hex. It is empty if the name was never a member.
	// ClusterID is the raft group of the claim and the acknowledgement, hex.
	MemberID  string `json:"memberID,omitempty"`
	ClusterID string `json:"clusterID,omitempty"`
	// RaftTerm and RaftIndex, in the state done, are the position of a linearizable member list that was read after
	// the removal and does not have the member.
	RaftTerm  uint64 `json:"raftTerm,omitempty"`
	RaftIndex uint64 `json:"raftIndex,omitempty"`
}

// PendingRemoval is the record's slot for the member that is being removed. Only one member at a time can have it.
// druid sets it, only while Replacing is free, BEFORE it writes the removal request on the member's Lease. druid clears
// it after a canceled request, or together with the name in Members after done.
type PendingRemoval struct {
	Member string `json:"member"`
	// Mark is that of the Retirement on the member's Lease.
	Mark string `json:"mark"`
}

// Orders says whether the removal request on the Lease of the member called name is the one that the slot names.
func (r *PendingRemoval) Orders(name string, mark RemovalRequest) bool {
	return r != nil && r.Member == name && r.Mark != "" && r.Mark == mark.Mark
}

// ParseRemovalRequest reads a removal request, exactly as Encode writes it. Other content is RemovalUnreadable, never an error, because
// the rest of the Lease is still valid. So a key of a later version holds up the removal until all agents and druid know the key.
func ParseRemovalRequest(s string) RemovalRequest {
	if s == "" {
		return RemovalRequest{}
	}
	var r RemovalRequest
	err := decodeJSON(s, &r)
	if again, invalid := r.Encode(); err != nil || invalid != nil || again != s {
		return RemovalRequest{State: RemovalUnreadable}
	}
	return r
}

// whole says whether the removal request has all fields that its state needs.
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

// Encode returns the value of AnnotationRemoval, empty for no removal request.
func (r RemovalRequest) Encode() (string, error) {
	if r == (RemovalRequest{}) {
		return "", nil
	}
	if !r.whole() {
		return "", fmt.Errorf("encode annotation %s: %+v lacks fields that its state needs", AnnotationRemoval, r)
	}
	raw, err := json.Marshal(r)
	if err != nil {
		return "", fmt.Errorf("encode annotation %s: %w", AnnotationRemoval, err)
	}
	return string(raw), nil
}

// RequestRemoval writes the mark of the member called name if its Lease still is at version, else nothing and ErrConflict. The
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

// Annotations of the record with which druid asks, during a version change, whether the members have the same data,
// and the leader's agent answers. UpdateRecord does not write them.
const (
	// AnnotationUpgradeOrder is an UpgradeOrder. Only druid writes and removes it.
	AnnotationUpgradeOrder = Prefix + "upgrade-order"
	// AnnotationUpgradeAnswer is an UpgradeAnswer. The leader's agent writes it, and druid removes it together with
	// the request.
	AnnotationUpgradeAnswer = Prefix + "upgrade-answer"
)

// UpgradeOrder requests a comparison of all members. It exists from before the first Pod of another version until the
// comparison after the last one.
type UpgradeOrder struct {
	// Nonce identifies the comparison. It is derived from the version, the edit of the spec and the present Pods, so
	// that a change of any of these requests a new comparison.
	Nonce string `json:"nonce"`
	// Version that the members change to, as major.minor.patch.
	Version string `json:"version"`
	// Downgrade is the minor version, as major.minor, whose format the storage of all members must have before the
	// comparison. It is empty if no member is downgraded; a downgrade that was announced before is then canceled.
	Downgrade string `json:"downgrade,omitempty"`
}

// UpgradeVerdict is the result of a comparison.
type UpgradeVerdict string

// The verdicts. An empty one is no answer. Agree and Differ are final.
const (
	// UpgradeAgree: all members list the same members, and have the same data at one revision.
	UpgradeAgree UpgradeVerdict = "Agree"
	// UpgradeDiffer: the member lists or the data differ.
	UpgradeDiffer UpgradeVerdict = "Differ"
	// UpgradeUnknown: the result is not known yet. The leader's agent keeps trying.
	UpgradeUnknown UpgradeVerdict = "Unknown"
	// UpgradeAwaitsEdit: the comparison is possible only after an edit of the spec, which Why names. The leader's
	// agent keeps trying, and for that edit druid replaces Pods with the etcd version that they run.
	UpgradeAwaitsEdit UpgradeVerdict = "AwaitsEdit"
)

// UpgradeAnswer is the result from the leader's agent.
type UpgradeAnswer struct {
	// Nonce of the request that is answered.
	Nonce   string         `json:"nonce"`
	Verdict UpgradeVerdict `json:"verdict"`
	// Revision and CompactRevision at which Members members were compared, 0 for none.
	Revision        int64 `json:"revision,omitempty"`
	CompactRevision int64 `json:"compactRevision,omitempty"`
	Members         int   `json:"members,omitempty"`
	// Why the members differ, or why the result is unknown, for users.
	Why string `json:"why,omitempty"`
}

// Upgrade is the request on the record and its answer. The zero value is no request.
type Upgrade struct {
	Order UpgradeOrder
	// Answer to this request. An answer to another request or an unreadable one does not count.
	Answer UpgradeAnswer
}

// Open says whether a comparison is still needed.
func (u Upgrade) Open() bool {
	return u.Order.Nonce != "" && u.Answer.Verdict != UpgradeAgree && u.Answer.Verdict != UpgradeDiffer
}

// DecodeUpgrade reads the request on the record. An unreadable one is ignored, because druid repeats the request.
func DecodeUpgrade(lease *coordinationv1.Lease) Upgrade {
	var u Upgrade
	if decodeJSON(lease.Annotations[AnnotationUpgradeOrder], &u.Order) != nil || u.Order.Nonce == "" {
		return Upgrade{}
	}
	var a UpgradeAnswer
	if decodeJSON(lease.Annotations[AnnotationUpgradeAnswer], &a) != nil || a.Nonce != u.Order.Nonce {
		return u
	}
	switch a.Verdict {
	case UpgradeAgree, UpgradeDiffer, UpgradeUnknown, UpgradeAwaitsEdit:
		u.Answer = a
	}
	return u
}

// Encode returns the value of AnnotationUpgradeOrder.
func (o UpgradeOrder) Encode() (string, error) {
	raw, err := json.Marshal(o)
	if err != nil {
		return "", fmt.Errorf("encode annotation %s: %w", AnnotationUpgradeOrder, err)
	}
	return string(raw), nil
}

// OrderUpgrade writes a request to the record, and removes the answer to an earlier one, if the record still is at
// version. Otherwise it changes nothing and returns ErrConflict. A request without a nonce removes both.
func (s *Store) OrderUpgrade(ctx context.Context, version Version, o UpgradeOrder) error {
	annotations := annotationPatch{AnnotationUpgradeOrder: nil, AnnotationUpgradeAnswer: nil}
	if o.Nonce != "" {
		value, err := o.Encode()
		if err != nil {
			return err
		}
		annotations[AnnotationUpgradeOrder] = &value
	}
	_, err := s.annotate(ctx, RecordName(s.cluster), version, annotations)
	return err
}

// AnswerUpgrade writes an answer if the record still is at version. Otherwise it changes nothing and returns
// ErrConflict. It returns the new version.
func (s *Store) AnswerUpgrade(ctx context.Context, version Version, a UpgradeAnswer) (Version, error) {
	name := RecordName(s.cluster)
	a.Why = truncate(a.Why, maxReason)
	raw, err := json.Marshal(a)
	if err != nil {
		return "", fmt.Errorf("patch Lease %s: %w", name, err)
	}
	lease, err := s.annotate(ctx, name, version, annotationPatch{AnnotationUpgradeAnswer: new(string(raw))})
	if err != nil {
		return "", err
	}
	return Version(lease.ResourceVersion), nil
}
