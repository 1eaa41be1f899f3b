package leases

import (
	"context"
	"encoding/json"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
)

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
