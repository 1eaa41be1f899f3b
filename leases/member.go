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

// The roles, as written after the member ID in holderIdentity.
const (
	RoleLeader  Role = "Leader"
	RoleMember  Role = "Member"
	RoleLearner Role = "Learner"
)

// DataEmpty is the state of a data directory in which etcd never ran.
const DataEmpty = "empty"

// Annotations of a member Lease. druid writes AnnotationPodUID, AnnotationVolumeUID and AnnotationRepairing. druid and
// the leader's agent write AnnotationRemoval. The leader's agent writes annotationDefragmentation. The leader's agent and
// the member's agent write annotationDiffers. The member's agent writes the others.
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
	annotationTLS          = Prefix + "tls"
	annotationRefused      = Prefix + "refused"

	annotationSnapshots = Prefix + "snapshot-count"
)

// Member is the content of a member Lease.
type Member struct {
	// LeaseUID is the UID of the Lease object. It changes if the Lease is deleted and created again.
	LeaseUID string
	// LeaseVersion is the version of the Lease that was read, for a compare-and-set.
	LeaseVersion Version
	// ID is etcd's member ID, 0 if the member was never in a cluster. ID and Role are the Lease's holderIdentity.
	ID   uint64
	Role Role
	// ClusterID is etcd's cluster ID, 0 if unknown.
	ClusterID uint64
	Lineage   string
	// Epoch of the raft group of the member's data.
	Epoch uint32
	// PodUID and VolumeUID identify the present Pod and PersistentVolumeClaim of the member.
	PodUID, VolumeUID string
	// Raft is the newest position. Floor is an older one (by at least one renewal interval) that is certainly on disk:
	// a volume with less has gone back in time.
	Raft, Floor Raft
	// Revision of the key space, and DBSize and DBSizeInUse in bytes, 0 if unknown.
	Revision, DBSize, DBSizeInUse int64
	// VolumeFree is the free space on the member's volume in bytes, 0 if unknown.
	VolumeFree int64
	// Snapshots is how often the member's etcd takes a raft snapshot.
	Snapshots Snapshots
	// Version of etcd, and AgentVersion of the agent.
	Version, AgentVersion string
	// Data is the last seen state of the data directory. Rule is the row of the last start decision, and Reason is its
	// explanation for users (Wait and Refuse only).
	Data, Rule, Reason string
	// Alarm is what the member's agent, while it leads, reports about a raised alarm of etcd: the rule, and why it
	// waits. It is empty without an alarm, and if another agent leads.
	Alarm string
	// TLS is the state of the member's certificates, zero without TLS.
	TLS TLS
	// Refused is etcd's error if it serves and refuses its agent, because authentication is on, and empty otherwise.
	Refused string
	// Defragmentation is the last one of the member's database, zero for none.
	Defragmentation Defragmentation
	// Removal is the removal request, zero for a member that stays.
	Removal RemovalRequest
	// Repairing is how druid repairs a member that does not recover by itself.
	Repairing Repairing
	// Differs says that the member's data differs from that of the other members, zero if that is not known.
	Differs Difference
	// Disk is what the volume holds while etcd does not run on it, nil if unknown.
	Disk *DiskReport
	// Fsync is how fast the member writes its log, zero if unknown.
	Fsync Fsync
}

// Raft is a position in the raft log.
type Raft struct {
	Term, Committed, LastTerm, LastIndex uint64
}

// IsZero says that the position is unknown.
func (r Raft) IsZero() bool { return r == Raft{} }

// String formats the position for ParseRaft.
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

// HolderIdentity is <memberID hex>:<Role>, or empty for a member that was never in a cluster.
func (m Member) HolderIdentity() string {
	if m.ID == 0 {
		return ""
	}
	return FormatID(m.ID) + ":" + string(m.Role)
}

// EverFormed says whether the member was ever in a raft group, which is evidence that forbids a second bootstrap.
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
		TLS:          ParseTLS(d.text(annotationTLS)),
		Refused:      d.text(annotationRefused),
		Removal:      ParseRemovalRequest(d.text(AnnotationRemoval)),
		Repairing:    ParseRepairing(d.text(AnnotationRepairing)),
		Disk:         ParseDiskReport(d.text(annotationDisk)),
		Fsync:        ParseFsync(d.text(annotationFsync)),
		Differs:      parseDifference(d.text(annotationDiffers)),

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

// optional reads a number of at most bits bits that can be absent.
func (d *decoder) optional(key string, bits int) uint64 {
	if d.annotations[key] == "" {
		return 0
	}
	return d.number(key, bits)
}

// AnnotationRepairing is written by druid on a member's Lease, next to the UIDs of its Pod and its volume.
const AnnotationRepairing = Prefix + "repair"

// Repairing is druid's record on a member Lease of how it repairs the member. It is written before each step, so that
// another replica of druid can continue the repair and the count. It is removed when the member is healthy again.
type Repairing struct {
	// Restarts is how often in a row druid deleted the member's Pod because its etcd did not become ready.
	Restarts int `json:"restarts,omitempty"`
	// PodUID is the Pod that the last restart deletes or deleted.
	PodUID string `json:"podUID,omitempty"`
	// ClaimUID is the PersistentVolumeClaim that is abandoned together with the only node that could mount its volume.
	ClaimUID string `json:"claimUID,omitempty"`
	// NotComing is the ID, hex, of a learner at the member's peer URL that no Pod will start: the Pod that added it is
	// deleted, and the next Pod did not start. A Pod that starts later adds a learner with its own ID, so NotComing
	// never refers to that one.
	NotComing string `json:"notComing,omitempty"`
}

// ParseRepairing reads the annotation. Invalid content is the zero Healing: no learner is marked as not coming, and
// druid starts to count again.
func ParseRepairing(s string) Repairing {
	var h Repairing
	if s == "" || decodeJSON(s, &h) != nil || h.Restarts < 0 {
		return Repairing{}
	}
	return h
}

// Encode returns the value of AnnotationRepairing, empty for the zero Healing.
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

// annotationDefragmentation on a member Lease is written by the leader's agent.
const annotationDefragmentation = Prefix + "defragmentation"

// Defragmentation is the result of the last defragmentation of a member's database, as the leader's agent saw it. It
// is information only.
type Defragmentation struct {
	// At is when it ended, by the clock of that agent.
	At time.Time
	// Result is defragmented, failed or left. left means that the agent lost leadership before etcd answered.
	Result string
	// Took is how long the member did not serve. If the result is left, it is a minimum.
	Took time.Duration
	// Before and After are the sizes of the file in bytes. After is 0 if it is unknown.
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

// ParseDefragmentation reads the annotation. It ignores an unreadable one, which is only information.
func ParseDefragmentation(s string) Defragmentation {
	var d defragmentationJSON
	if decodeJSON(s, &d) != nil {
		return Defragmentation{}
	}
	took, err := time.ParseDuration(d.Took)
	if err != nil {
		return Defragmentation{}
	}
	return Defragmentation{d.At, d.Result, took, d.Before, d.After}
}

// NoteDefragmentation writes d into the Lease of the member called name and replaces the previous result.
func (s *Store) NoteDefragmentation(ctx context.Context, name string, d Defragmentation) error {
	text, err := d.format()
	if err != nil {
		return err
	}
	_, err = s.patch(ctx, name, leasePatch{Metadata: patchMetadata{Annotations: annotationPatch{annotationDefragmentation: &text}}})
	return err
}
