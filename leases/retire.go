package leases

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

// RetireState says how far a member's way out of the cluster has come.
type RetireState string

// The states. druid writes requested and takes it back; the leader's agent writes removing and done, and hands removing
// back to requested when another member must heal first.
const (
	// RetireNone: the member is to stay.
	RetireNone RetireState = ""
	// RetireRequested: the member is to go. It still is a full member, and the request may be taken back.
	RetireRequested RetireState = "requested"
	// RetireRemoving: the leader's agent has claimed the removal. No one else takes it back.
	RetireRemoving RetireState = "removing"
	// RetireDone: the member is out of the raft group. Only on this its Pod and volume may be deleted.
	RetireDone RetireState = "done"
	// RetireUnreadable: there is a mark that cannot be understood. It is never written, orders nothing and cancels nothing.
	RetireUnreadable RetireState = "unreadable"
)

// Retirement is the drain mark on a member's Lease. It orders something only while the record's Retiring slot names the
// same member and the same mark. The zero value is no mark.
type Retirement struct {
	State RetireState `json:"state"`
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
type Retiring struct {
	Member string `json:"member"`
	// Mark is that of the Retirement on the member's Lease.
	Mark string `json:"mark"`
}

// Orders says whether the mark on the Lease of the member called name is the one that the slot names.
func (r *Retiring) Orders(name string, mark Retirement) bool {
	return r != nil && r.Member == name && r.Mark != "" && r.Mark == mark.Mark
}

// ParseRetirement reads a mark. What cannot be understood is RetireUnreadable, never an error: the rest of the Lease still
// counts.
func ParseRetirement(s string) Retirement {
	if s == "" {
		return Retirement{}
	}
	var r Retirement
	if err := json.Unmarshal([]byte(s), &r); err != nil || !r.whole() {
		return Retirement{State: RetireUnreadable}
	}
	return r
}

// whole says whether the mark has all that its state needs.
func (r Retirement) whole() bool {
	_, err1 := ParseID(r.MemberID)
	cluster, err2 := ParseID(r.ClusterID)
	if r.Mark == "" || errors.Join(err1, err2) != nil {
		return false
	}
	claimed := r.By != "" && cluster != 0
	switch r.State {
	case RetireRequested:
		return r == Retirement{State: RetireRequested, Mark: r.Mark, At: r.At}
	case RetireRemoving:
		return claimed
	case RetireDone:
		return claimed && r.RaftTerm != 0 && r.RaftIndex != 0
	case RetireNone, RetireUnreadable:
		return false
	default: // of another version
		return false
	}
}

// Encode is the value of AnnotationRetire, empty for the zero mark.
func (r Retirement) Encode() (string, error) {
	if r == (Retirement{}) {
		return "", nil
	}
	if !r.whole() {
		return "", fmt.Errorf("encode annotation %s: %+v lacks what its state needs", AnnotationRetire, r)
	}
	raw, err := json.Marshal(r)
	if err != nil {
		return "", fmt.Errorf("encode annotation %s: %w", AnnotationRetire, err)
	}
	return string(raw), nil
}

// Retire writes the mark of the member called name if its Lease still is at version, else nothing and ErrConflict. The
// zero mark removes it. Nothing else of the Lease changes. It returns what Marks returns, as it is after that.
func (s *Store) Retire(ctx context.Context, name string, at Version, r Retirement) (Member, error) {
	if at == "" {
		return Member{}, fmt.Errorf("retire %s: a compare-and-set needs the version that was read", name)
	}
	value, err := r.Encode()
	if err != nil {
		return Member{}, fmt.Errorf("retire %s: %w", name, err)
	}
	marks := annotationPatch{}
	marks.exactly(AnnotationRetire, value)
	lease, err := s.patch(ctx, name, leasePatch{Metadata: patchMetadata{ResourceVersion: at, Annotations: marks}})
	if err != nil {
		return Member{}, err
	}
	return marksOf(lease), nil
}
