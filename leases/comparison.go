package leases

import (
	"context"
	"encoding/json"
	"fmt"
)

// annotationDiffers on a member Lease is a Difference. The leader's agent and the member's own agent write it, and a renewal
// leaves it unchanged.
const annotationDiffers = Prefix + "differs"

// Difference says that the data of a member differs from that of a majority of all voters. It belongs to one member ID: after
// the member joined again with another ID, it says nothing. The zero value is no difference.
type Difference struct {
	// MemberID whose data differs, hex.
	MemberID string `json:"memberID"`
	// Revision and CompactRevision at which the hashes were compared last, and Confirmed, the other revision.
	Revision        int64 `json:"revision"`
	CompactRevision int64 `json:"compactRevision"`
	Confirmed       int64 `json:"confirmed"`
	// Hash of the member, and Majority of the others, hex.
	Hash     string `json:"hash"`
	Majority string `json:"majority"`
}

// Of says whether the difference belongs to the member ID.
func (d Difference) Of(id uint64) bool { return id != 0 && d.MemberID == FormatID(id) }

// DataDiffers says whether the data of the member with its present ID is known to differ from that of a majority of all voters.
func (m Member) DataDiffers() bool { return m.Differs.Of(m.ID) }

// parseDifference reads the annotation. An unreadable one says nothing: the next comparison writes it again.
func parseDifference(s string) Difference {
	var d Difference
	if decodeJSON(s, &d) != nil {
		return Difference{}
	}
	return d
}

// MarkDifference writes d to the Lease of the member called name, if the Lease still is at version. Otherwise it changes
// nothing and returns ErrConflict. The zero Difference removes the mark.
func (s *Store) MarkDifference(ctx context.Context, name string, version Version, d Difference) error {
	annotations := annotationPatch{annotationDiffers: nil}
	if d != (Difference{}) {
		raw, err := json.Marshal(d)
		if err != nil {
			return fmt.Errorf("patch Lease %s: %w", name, err)
		}
		annotations[annotationDiffers] = new(string(raw))
	}
	_, err := s.annotate(ctx, name, version, annotations)
	return err
}

// annotationUndecided on the record is an Undecided. Only the leader's agent writes it, and UpdateRecord does not.
const annotationUndecided = Prefix + "undecided"

// Undecided says that members have different data, and that no majority of all voters has the same. The zero value says
// nothing.
type Undecided struct {
	// Revision and Confirmed are the revisions of the two comparisons that found it.
	Revision  int64 `json:"revision,omitempty"`
	Confirmed int64 `json:"confirmed,omitempty"`
	// Hashes of the voters that answered, for users.
	Hashes string `json:"hashes,omitempty"`
}

// maxHashes bounds the text, in bytes.
const maxHashes = 512

// parseUndecided reads the annotation. A value that cannot be read still says that a tie was found.
func parseUndecided(s string) Undecided {
	var u Undecided
	if s == "" {
		return u
	}
	if decodeJSON(s, &u) != nil || u == (Undecided{}) {
		return Undecided{Hashes: "not readable"}
	}
	return u
}

// ReportUndecided writes u if the record still is at version. Otherwise it changes nothing and returns ErrConflict. The zero
// value removes it. It returns the new version.
func (s *Store) ReportUndecided(ctx context.Context, version Version, u Undecided) (Version, error) {
	name := RecordName(s.cluster)
	annotations := annotationPatch{annotationUndecided: nil}
	if u != (Undecided{}) {
		u.Hashes = truncate(u.Hashes, maxHashes)
		raw, err := json.Marshal(u)
		if err != nil {
			return "", fmt.Errorf("patch Lease %s: %w", name, err)
		}
		annotations[annotationUndecided] = new(string(raw))
	}
	lease, err := s.annotate(ctx, name, version, annotations)
	if err != nil {
		return "", err
	}
	return Version(lease.ResourceVersion), nil
}
