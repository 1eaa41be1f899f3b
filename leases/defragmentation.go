package leases

import (
	"context"
	"encoding/json"
	"time"
)

// annotationDefragmentation of a member Lease is written by the leader's agent.
const annotationDefragmentation = Prefix + "defragmentation"

// Defragmentation is what came of the last one of a member's database, as the leader's agent saw it. No one acts on it.
type Defragmentation struct {
	// At is when it ended, by the clock of that agent.
	At time.Time
	// Result is defragmented, failed, or left: the agent did not lead any more before etcd answered.
	Result string
	// Took is how long the member served no one; of one that was left, at least.
	Took time.Duration
	// Before and After are the file's size in bytes; After is 0 where it is not known.
	Before, After int64
}

// defragmentationJSON is the annotation. Its keys never change their meaning.
type defragmentationJSON struct {
	At     time.Time `json:"at"`
	Result string    `json:"result"`
	Took   string    `json:"took"`
	Before int64     `json:"before"`
	After  int64     `json:"after,omitempty"`
}

func (d Defragmentation) format() (string, error) {
	raw, err := json.Marshal(defragmentationJSON{d.At, d.Result, d.Took.String(), d.Before, d.After})
	return string(raw), err
}

// ParseDefragmentation reads the annotation. One that cannot be read says nothing: no one acts on it.
func ParseDefragmentation(s string) Defragmentation {
	var d defragmentationJSON
	if json.Unmarshal([]byte(s), &d) != nil {
		return Defragmentation{}
	}
	took, err := time.ParseDuration(d.Took)
	if err != nil {
		return Defragmentation{}
	}
	return Defragmentation{d.At, d.Result, took, d.Before, d.After}
}

// NoteDefragmentation writes d into the Lease of the member called name, over what stands there of the one before.
func (s *Store) NoteDefragmentation(ctx context.Context, name string, d Defragmentation) error {
	text, err := d.format()
	if err != nil {
		return err
	}
	_, err = s.patch(ctx, name, leasePatch{Metadata: patchMetadata{Annotations: annotationPatch{annotationDefragmentation: &text}}})
	return err
}
