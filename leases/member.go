package leases

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
)

// Role of a member in the raft group, as its own agent sees it.
type Role string

// The roles. They are the words that follow the member ID in holderIdentity.
const (
	RoleLeader  Role = "Leader"
	RoleMember  Role = "Member"
	RoleLearner Role = "Learner"
)

// DataEmpty is the state of a data directory in which no etcd ever ran.
const DataEmpty = "empty"

// Annotations of a member Lease. AnnotationPodUID, AnnotationVolumeUID and AnnotationHealing are written by druid, AnnotationRetire by druid
// and the leader's agent, annotationDefragmentation by the leader's agent, the others by the member's agent.
const (
	AnnotationPodUID    = Prefix + "pod-uid"
	AnnotationVolumeUID = Prefix + "volume-uid"
	AnnotationRemoval   = Prefix + "removal"

	annotationClusterID    = Prefix + "cluster-id"
	annotationRaft         = Prefix + "raft"
	annotationRaftFloor    = Prefix + "raft-floor"
	annotationRevision     = Prefix + "revision"
	annotationDBSize       = Prefix + "db-size"
	annotationDBSizeInUse  = Prefix + "db-size-in-use"
	annotationVolumeFree   = Prefix + "volume-free"
	annotationVersion      = Prefix + "version"
	annotationAgentVersion = Prefix + "agent-version"
	annotationData         = Prefix + "data"
	annotationRule         = Prefix + "rule"
	annotationReason       = Prefix + "reason"
	annotationAlarm        = Prefix + "alarm"

	annotationSnapshots = Prefix + "snapshot-count"
)

// Member is what a member Lease says.
type Member struct {
	// LeaseUID is the UID of the Lease object itself: a Lease that was deleted and made again has another.
	LeaseUID string
	// LeaseVersion is the state of the Lease that was read, for a compare-and-set.
	LeaseVersion Version
	// ID is etcd's member ID, 0 while the member never was in a cluster. ID and Role are the Lease's holderIdentity.
	ID   uint64
	Role Role
	// ClusterID is etcd's cluster ID, 0 while unknown.
	ClusterID uint64
	Lineage   string
	// Epoch of the raft group that the member's data belongs to.
	Epoch uint32
	// PodUID and VolumeUID name the Pod and the PersistentVolumeClaim that bear the member's name now.
	PodUID, VolumeUID string
	// Raft is the newest position; Floor an older one (by at least one renewal interval) that was surely persisted: a
	// volume that holds less went back in time.
	Raft, Floor Raft
	// Revision of the key space, DBSize and DBSizeInUse in bytes; 0 while unknown.
	Revision, DBSize, DBSizeInUse int64
	// VolumeFree is what the member's volume has left, in bytes; 0 while unknown.
	VolumeFree int64
	// Snapshots that the member's etcd takes of its log.
	Snapshots Snapshots
	// Version of etcd and of the agent.
	Version, AgentVersion string
	// Data is the last seen state of the data directory, Rule the row of the start decision that was last taken and
	// Reason its words for a person (Wait and Refuse only).
	Data, Rule, Reason string
	// Alarm is what the member's agent, while it leads, says of an alarm of etcd that stands: the rule, and why it waits. Empty while none
	// does, and where another agent leads.
	Alarm string
	// Defragmentation is the last one of the member's database, zero for none.
	Defragmentation Defragmentation
	// Retire is the drain mark, zero for a member that is to stay.
	Removal RemovalRequest
	// Healing is what druid does about a member that does not get on its feet by itself.
	Repairing Repairing
}

// Raft is a position in the raft log.
type Raft struct {
	Term, Committed, LastTerm, LastIndex uint64
}

// IsZero says that the position is unknown.
func (r Raft) IsZero() bool { return r == Raft{} }

// String writes the position as ParseRaft reads it.
func (r Raft) String() string {
	return fmt.Sprintf("term=%d,committed=%d,lastTerm=%d,lastIndex=%d", r.Term, r.Committed, r.LastTerm, r.LastIndex)
}

// ParseRaft reads a position. The empty string is the unknown position.
func ParseRaft(s string) (Raft, error) {
	if s == "" {
		return Raft{}, nil
	}
	var r Raft
	_, err := fmt.Sscanf(s, "term=%d,committed=%d,lastTerm=%d,lastIndex=%d", &r.Term, &r.Committed, &r.LastTerm, &r.LastIndex)
	if err != nil || r.String() != s {
		return Raft{}, fmt.Errorf("%w: raft position %q", ErrUnreadable, s)
	}
	return r, nil
}

// HolderIdentity is <memberID hex>:<Role>, or empty for a member that never was in a cluster.
func (m Member) HolderIdentity() string {
	if m.ID == 0 {
		return ""
	}
	return FormatID(m.ID) + ":" + string(m.Role)
}

// EverFormed says whether the member ever was in a raft group: evidence that forbids a second bootstrap.
func (m Member) EverFormed() bool { return m.ID != 0 || m.ClusterID != 0 }

// DecodeMember reads a member Lease. Any error wraps ErrUnreadable.
func DecodeMember(lease *coordinationv1.Lease) (Member, error) {
	d := decoder{annotations: lease.Annotations}
	m := Member{
		LeaseUID:     string(lease.UID),
		LeaseVersion: Version(lease.ResourceVersion),
		ClusterID:    d.id(annotationClusterID),
		Lineage:      d.text(annotationLineage),
		Epoch:        uint32(d.optional(annotationEpoch, 32)),
		PodUID:       d.text(AnnotationPodUID),
		VolumeUID:    d.text(AnnotationVolumeUID),
		Raft:         d.raft(annotationRaft),
		Floor:        d.raft(annotationRaftFloor),
		Revision:     int64(d.optional(annotationRevision, 63)),
		DBSize:       int64(d.optional(annotationDBSize, 63)),
		DBSizeInUse:  int64(d.optional(annotationDBSizeInUse, 63)),
		VolumeFree:   int64(d.optional(annotationVolumeFree, 63)),
		Snapshots:    ParseSnapshots(d.text(annotationSnapshots)),
		Version:      d.text(annotationVersion),
		AgentVersion: d.text(annotationAgentVersion),
		Data:         d.text(annotationData),
		Rule:         d.text(annotationRule),
		Reason:       d.text(annotationReason),
		Alarm:        d.text(annotationAlarm),
		Removal:      ParseRemovalRequest(d.text(AnnotationRemoval)),
		Repairing:    ParseRepairing(d.text(AnnotationRepairing)),

		Defragmentation: ParseDefragmentation(d.text(annotationDefragmentation)),
	}
	m.ID, m.Role = d.holder(lease.Spec.HolderIdentity)
	if d.err != nil {
		return Member{}, fmt.Errorf("member Lease %s/%s: %w", lease.Namespace, lease.Name, d.err)
	}
	return m, nil
}

func (d *decoder) holder(holder *string) (uint64, Role) {
	if holder == nil || *holder == "" {
		return 0, ""
	}
	hex, role, _ := strings.Cut(*holder, ":")
	id, err := ParseID(hex)
	switch Role(role) {
	case RoleLeader, RoleMember, RoleLearner:
		if err == nil && id != 0 {
			return id, Role(role)
		}
	}
	if d.err == nil {
		d.err = fmt.Errorf("%w: holderIdentity %q, want <memberID hex>:<Leader|Member|Learner>", ErrUnreadable, *holder)
	}
	return 0, ""
}

func (d *decoder) raft(key string) Raft {
	r, err := ParseRaft(d.annotations[key])
	if err != nil {
		d.fail(key, d.annotations[key], "a raft position")
	}
	return r
}

// optional reads a number of at most bits bits that may be absent.
func (d *decoder) optional(key string, bits int) uint64 {
	if d.annotations[key] == "" {
		return 0
	}
	return d.number(key, bits)
}

// AnnotationHealing is written by druid on a member's Lease, next to the UIDs of its Pod and its volume.
const AnnotationRepairing = Prefix + "repair"

// Healing is druid's word on a member's Lease about what it does to get the member on its feet: written before the deed, so
// that a druid that takes over goes on with it, and counts on. It is taken away when the member is well again.
type Repairing struct {
	// Restarts is how often in a row the member's Pod was deleted because its etcd did not become ready.
	Restarts int `json:"restarts,omitempty"`
	// PodUID is the Pod that the last of them deletes, or has deleted.
	PodUID string `json:"podUID,omitempty"`
	// ClaimUID is the PersistentVolumeClaim that is given up together with the node that alone could mount its volume.
	ClaimUID string `json:"claimUID,omitempty"`
	// NotComing is the ID, hex, of a learner at the member's peer URL that no Pod starts any more: the Pod that added it is
	// gone, and the one after it did not come up. A Pod that does come adds a learner with an ID of its own, so that this
	// word never means that one.
	NotComing string `json:"notComing,omitempty"`
}

// ParseHealing reads the annotation. What cannot be understood is the zero Healing: it says of no learner that it is not
// coming, and druid begins to count again.
func ParseRepairing(s string) Repairing {
	var h Repairing
	if s == "" || json.Unmarshal([]byte(s), &h) != nil || h.Restarts < 0 {
		return Repairing{}
	}
	return h
}

// Encode is the value of AnnotationHealing, empty for the zero Healing.
func (h Repairing) Encode() (string, error) {
	if h == (Repairing{}) {
		return "", nil
	}
	raw, err := json.Marshal(h)
	if err != nil {
		return "", fmt.Errorf("encode annotation %s: %w", AnnotationRepairing, err)
	}
	return string(raw), nil
}

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
