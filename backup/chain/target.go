package chain

import (
	"errors"
	"slices"
	"time"
)

// Target is the state that a plan is to lead to. The zero value is the latest.
type Target struct {
	// Revision is the last one that is to be there; 0 does not say.
	Revision int64
	// Time is the moment whose state is wanted; zero does not say.
	Time time.Time
	// Name is a full or a delta: its key, or as much of the key's end as names one object. A full is taken as it is, a
	// delta to its last revision.
	Name string
	// Lineage wins over what Revision or Time would find by themselves; empty does not say.
	Lineage Lineage
	// Without names objects, by their keys, that the plan must do without: they are broken, or hold more than their name
	// reports. With the full of a plan in it the next older full is planned with.
	Without []string
}

// Except is t without one more object.
func (t Target) Except(key string) Target {
	t.Without = append(slices.Clone(t.Without), key)
	return t
}

// Plan is what to restore: a full, and deltas in their order, the first of which holds the full's revision + 1 or what
// follows it.
type Plan struct {
	Full   Full    `json:"full"`
	Deltas []Delta `json:"deltas,omitempty"`
	// Revision is the last one to apply; 0 means all that the objects hold.
	Revision int64 `json:"revision,omitempty"`
	// Until is the last moment to apply; zero means all that the objects hold.
	Until time.Time `json:"until,omitzero"`
	// Reach is the last revision that the names of the objects promise, cut at Revision. A full may hold a little more.
	Reach int64 `json:"reach"`
	// Notes are sentences that anyone who restores should read.
	Notes []string `json:"notes,omitempty"`
}

// Why there is no plan.
var (
	// ErrEmpty: there is no full at all.
	ErrEmpty = errors.New("nothing to restore")
	// ErrUnknown: no lineage or object is called so.
	ErrUnknown = errors.New("no such backup")
	// ErrOutside: no backup holds that state.
	ErrOutside = errors.New("not in the backups")
	// ErrGap: objects are missing between those that are there; see GapError.
	ErrGap = errors.New("gap in the backups")
	// ErrAmbiguous: more than one object or history is meant.
	ErrAmbiguous = errors.New("more than one backup is meant")
	// ErrTarget: the target contradicts itself.
	ErrTarget = errors.New("target")
)
