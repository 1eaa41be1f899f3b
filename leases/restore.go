package leases

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
)

// Annotations of the record with which druid asks what a restore in place would read from the backup store, and the leader's agent
// answers. UpdateRecord does not write them.
const (
	// AnnotationRestoreRequest is a RestoreRequest. Only druid writes and removes it.
	AnnotationRestoreRequest = Prefix + "restore-request"
	// AnnotationRestorePlan is a RestorePlan. The leader's agent writes it, and druid removes it together with the request.
	AnnotationRestorePlan = Prefix + "restore-plan"
)

// RestoreTarget is the state that a restore in place brings back. Without a revision and a time it is the newest state in the lineage.
type RestoreTarget struct {
	// Lineage of the backups. It is empty for the one that the cluster record names.
	Lineage string `json:"lineage,omitempty"`
	// Revision of etcd, 0 if the target is a time or the newest state.
	Revision int64 `json:"revision,omitempty"`
	// Time up to which changes are restored, zero if the target is a revision or the newest state.
	Time time.Time `json:"time,omitzero"`
}

// String is the target in words.
func (t RestoreTarget) String() string {
	words := "the newest state"
	switch {
	case t.Revision > 0:
		words = fmt.Sprintf("revision %d", t.Revision)
	case !t.Time.IsZero():
		words = "the state at " + t.Time.UTC().Format(time.RFC3339)
	}
	if t.Lineage != "" {
		words += " of lineage " + t.Lineage
	}
	return words
}

// check returns what is wrong with the target.
func (t RestoreTarget) check() error {
	if t.Revision < 0 || t.Revision > 0 && !t.Time.IsZero() {
		return fmt.Errorf("%w: restore to revision %d and time %s", ErrUnreadable, t.Revision, t.Time)
	}
	return nil
}

// RestoreRequest requests a plan: nothing is changed.
type RestoreRequest struct {
	// Nonce identifies the request. druid draws it.
	Nonce string `json:"nonce"`
	// Key identifies what is requested: the target and the backup store. ClusterID, hex, is the raft group that is to be replaced.
	Key       string        `json:"key,omitempty"`
	ClusterID string        `json:"clusterID,omitempty"`
	Target    RestoreTarget `json:"target"`
	// Failed says why the restore did not begin for the plan before, or is empty.
	Failed string `json:"failed,omitempty"`
	// Known is the highest revision that druid saw when it wrote the request, 0 for none.
	Known int64 `json:"known,omitempty"`
}

// RestorePlan is what the backup store has for a target. It holds the answer of one moment: a later backup does not change it.
type RestorePlan struct {
	// Nonce of the request that is answered.
	Nonce string `json:"nonce"`
	// Error says why there is no plan, for users. The leader's agent tries again. The other fields are then empty.
	Error string `json:"error,omitempty"`
	// Lineage of the backups, Full, the key of the full backup, and Deltas, the number of delta backups after it.
	Lineage string `json:"lineage,omitempty"`
	Full    string `json:"full,omitempty"`
	Deltas  int    `json:"deltas,omitempty"`
	// Revision that the backups reach. If the target is a time, the restore can end before it.
	Revision int64 `json:"revision,omitempty"`
	// Bytes that the restore reads from the store, and Database, the estimated size of the restored database in bytes.
	Bytes    int64 `json:"bytes,omitempty"`
	Database int64 `json:"database,omitempty"`
	// Notes say in which way the plan differs from what was requested, for users.
	Notes []string `json:"notes,omitempty"`
	// At is when the agent made the plan, by its clock.
	At time.Time `json:"at,omitzero"`
}

// Final says whether the plan answers the request, so that it is not made again.
func (p RestorePlan) Final() bool {
	return p.Nonce != "" && p.Error == "" && p.Full != "" && p.Lineage != "" && p.Revision > 0
}

// Restore is the request on the record and its answer. The zero value is no request.
type Restore struct {
	Request RestoreRequest
	// Plan for this request. One for another request or an unreadable one does not count.
	Plan RestorePlan
}

// Open says whether a plan is still needed.
func (r Restore) Open() bool { return r.Request.Nonce != "" && !r.Plan.Final() }

// DecodeRestore reads the request on the record. An unreadable one is ignored, because druid repeats the request.
func DecodeRestore(lease *coordinationv1.Lease) Restore {
	var r Restore
	if decodeJSON(lease.Annotations[AnnotationRestoreRequest], &r.Request) != nil || r.Request.Nonce == "" || r.Request.Target.check() != nil {
		return Restore{}
	}
	var p RestorePlan
	if decodeJSON(lease.Annotations[AnnotationRestorePlan], &p) == nil && p.Nonce == r.Request.Nonce && (p.Final() || p.Error != "") {
		r.Plan = p
	}
	return r
}

// RequestRestorePlan writes a request to the record, and removes the plan for an earlier one, if the record still is at version.
// Otherwise it changes nothing and returns ErrConflict. A request without a nonce removes both.
func (s *Store) RequestRestorePlan(ctx context.Context, version Version, r RestoreRequest) error {
	annotations := annotationPatch{AnnotationRestoreRequest: nil, AnnotationRestorePlan: nil}
	if r.Nonce != "" {
		if err := r.Target.check(); err != nil {
			return err
		}
		raw, err := json.Marshal(r)
		if err != nil {
			return fmt.Errorf("encode annotation %s: %w", AnnotationRestoreRequest, err)
		}
		annotations[AnnotationRestoreRequest] = new(string(raw))
	}
	_, err := s.annotate(ctx, RecordName(s.cluster), version, annotations)
	return err
}

// maxNotes bounds the notes of a plan in a Lease.
const maxNotes = 8

// AnswerRestore writes a plan if the record still is at version. Otherwise it changes nothing and returns ErrConflict. It returns
// the new version.
func (s *Store) AnswerRestore(ctx context.Context, version Version, p RestorePlan) (Version, error) {
	name := RecordName(s.cluster)
	if p.Nonce == "" {
		return "", errors.New("answer a restore request: the plan names no request")
	}
	p.Error = truncate(p.Error, maxReason)
	if len(p.Notes) > maxNotes {
		p.Notes = p.Notes[:maxNotes]
	}
	for i := range p.Notes {
		p.Notes[i] = truncate(p.Notes[i], maxReason)
	}
	raw, err := json.Marshal(p)
	if err != nil {
		return "", fmt.Errorf("patch Lease %s: %w", name, err)
	}
	lease, err := s.annotate(ctx, name, version, annotationPatch{AnnotationRestorePlan: new(string(raw))})
	if err != nil {
		return "", err
	}
	return Version(lease.ResourceVersion), nil
}
