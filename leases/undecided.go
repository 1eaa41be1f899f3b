package leases

import (
	"context"
	"encoding/json"
	"fmt"
)

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
