package leases

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// leasePatch is a JSON merge patch of a Lease. A key that is absent stays as it is, a nil value removes the key.
type leasePatch struct {
	Metadata patchMetadata `json:"metadata"`
	Spec     *patchSpec    `json:"spec,omitempty"`
}

type patchMetadata struct {
	// ResourceVersion makes the patch a compare-and-set: the API server answers Conflict when it is not the present one.
	ResourceVersion Version            `json:"resourceVersion,omitempty"`
	Annotations     map[string]*string `json:"annotations,omitempty"`
}

type patchSpec struct {
	HolderIdentity       *string           `json:"holderIdentity,omitempty"`
	RenewTime            *metav1.MicroTime `json:"renewTime,omitempty"`
	LeaseDurationSeconds *int32            `json:"leaseDurationSeconds,omitempty"`
	AcquireTime          *metav1.MicroTime `json:"acquireTime,omitempty"`
	LeaseTransitions     *int32            `json:"leaseTransitions,omitempty"`
}

// recordAnnotations are the keys that a record owns.
var recordAnnotations = []string{
	annotationPhase, annotationSeed, annotationEpoch, annotationFormedEpoch, annotationNonce, annotationExecutor,
	annotationLineage, annotationMaxLearners, annotationMembers, annotationReplacing, annotationPendingRemoval,
	annotationRecovery, annotationMemberList, annotationExternals, annotationLeaving,
}

// patch says the whole record: what is empty in it is removed from the Lease.
func (r Record) patch(version Version) (leasePatch, error) {
	var lease coordinationv1.Lease
	if err := r.Encode(&lease); err != nil {
		return leasePatch{}, err
	}
	annotations := make(map[string]*string, len(recordAnnotations))
	for _, key := range recordAnnotations {
		annotations[key] = nil
		if value, ok := lease.Annotations[key]; ok {
			annotations[key] = &value
		}
	}
	return leasePatch{
		Metadata: patchMetadata{ResourceVersion: version, Annotations: annotations},
		Spec:     &patchSpec{HolderIdentity: lease.Spec.HolderIdentity},
	}, nil
}

// MemberPatch is what an agent writes into its member's Lease. It never touches what druid writes there: the Pod's and
// the volume's UID and the retire mark (Store.Retire).
type MemberPatch struct {
	// Member holds the facts. What it leaves unknown (zero) stays in the Lease as it was, because a fact that was true
	// once is evidence: an agent that restarts must not wipe the ID that its member had. Two groups are written as a
	// whole: Rule with Reason, and ID with Role, Raft, Floor and Alarm.
	Member Member
	// At is the version of the Lease that the patch answers, empty for whatever is there. The Store fails with ErrConflict
	// when the Lease was changed since, so that no one overwrites what he has not read.
	At Version
	// RenewTime is set only while etcd is healthy and in the cluster; nil leaves the Lease's renewTime alone.
	RenewTime *time.Time
	// Duration after which an observer may call the Lease stale; 0 leaves it alone. Leases count whole seconds.
	Duration time.Duration
}

// MaxMemberPatch bounds a renewal on the wire, in bytes: with thousands of members it is what the API server's store and
// its watchers have to carry every few seconds.
const MaxMemberPatch = 2048

// maxReason bounds the only free text in a member's Lease, so that MaxMemberPatch holds.
const maxReason = 512

// encode cuts the reason, the only part whose length others decide, until the patch is small enough.
func (p MemberPatch) encode() (leasePatch, error) {
	for limit := maxReason; ; limit /= 2 {
		patch := leasePatch{Metadata: patchMetadata{ResourceVersion: p.At, Annotations: p.annotations(limit)}, Spec: p.spec()}
		raw, err := json.Marshal(patch)
		if err != nil {
			return leasePatch{}, err
		}
		if len(raw) <= MaxMemberPatch {
			return patch, nil
		}
		if limit == 0 {
			return leasePatch{}, fmt.Errorf("the patch has %d bytes, more than %d", len(raw), MaxMemberPatch)
		}
	}
}

func (p MemberPatch) annotations(reasonLimit int) annotationPatch {
	m, a := p.Member, annotationPatch{}
	a.known(annotationClusterID, formatKnownID(m.ClusterID))
	a.known(annotationLineage, m.Lineage)
	a.known(annotationEpoch, formatKnown(uint64(m.Epoch)))
	a.known(annotationRevision, formatKnown(uint64(m.Revision)))
	a.known(annotationDBSize, formatKnown(uint64(m.DBSize)))
	a.known(annotationDBSizeInUse, formatKnown(uint64(m.DBSizeInUse)))
	a.known(annotationVolumeFree, formatKnown(uint64(m.VolumeFree)))
	a.known(annotationSnapshots, m.Snapshots.String())
	a.known(annotationVersion, m.Version)
	a.known(annotationAgentVersion, m.AgentVersion)
	a.known(annotationData, m.Data)
	if m.Rule != "" {
		a.exactly(annotationRule, m.Rule)
		a.exactly(annotationReason, truncate(m.Reason, reasonLimit))
	}
	if m.ID != 0 {
		a.exactly(annotationRaft, formatRaft(m.Raft))
		a.exactly(annotationRaftFloor, formatRaft(m.Floor))
		a.exactly(annotationAlarm, truncate(m.Alarm, reasonLimit))
	}
	return a
}

func (p MemberPatch) spec() *patchSpec {
	var spec patchSpec
	if holder := p.Member.HolderIdentity(); holder != "" {
		spec.HolderIdentity = &holder
	}
	if p.RenewTime != nil {
		spec.RenewTime = &metav1.MicroTime{Time: *p.RenewTime}
	}
	if seconds := int32(p.Duration / time.Second); seconds > 0 {
		spec.LeaseDurationSeconds = &seconds
	}
	if spec == (patchSpec{}) {
		return nil
	}
	return &spec
}

// annotationPatch collects keys of a merge patch.
type annotationPatch map[string]*string

// known writes value unless it is empty, which says nothing.
func (a annotationPatch) known(key, value string) {
	if value != "" {
		a[key] = &value
	}
}

// exactly writes value, and removes the key when value is empty.
func (a annotationPatch) exactly(key, value string) {
	a[key] = nil
	if value != "" {
		a[key] = &value
	}
}

func formatKnown(n uint64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatUint(n, 10)
}

func formatKnownID(id uint64) string {
	if id == 0 {
		return ""
	}
	return FormatID(id)
}

func formatRaft(r Raft) string {
	if r.IsZero() {
		return ""
	}
	return r.String()
}

// truncate cuts s to at most limit bytes, between runes.
func truncate(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for limit > 0 && s[limit]&0xC0 == 0x80 {
		limit--
	}
	return s[:limit]
}

// Names, labels and annotations of a cluster's Leases. They are the contract between druid and the agents, so they stand
// in one place and never change their meaning.
const (
	// Prefix of every label and annotation that druid and the agents write.
	Prefix = "etcd.druid.dev/"

	// LabelCluster carries the EtcdCluster's name on every object of the cluster.
	LabelCluster = Prefix + "cluster"
	// LabelComponent says what a Lease is: one of the Component values.
	LabelComponent = Prefix + "component"
	// LabelMember carries the member's name on its Lease, PersistentVolumeClaim and Pod.
	LabelMember = Prefix + "member"
)

// Component says which of the cluster's Leases an object is.
type Component string

// The components of a cluster that have a Lease.
const (
	ComponentRecord        Component = "record"
	ComponentMember        Component = "member"
	ComponentLeader        Component = "leader"
	ComponentFullSnapshot  Component = "full-snapshot"
	ComponentDeltaSnapshot Component = "delta-snapshot"
)

// RecordName is the name of the cluster record.
func RecordName(cluster string) string { return cluster + "-cluster" }

// LeaderName is the name of the Lease for which the agents next to the raft leader campaign.
func LeaderName(cluster string) string { return cluster + "-leader" }

// FullSnapshotName is the name of the Lease that reports the last full snapshot.
func FullSnapshotName(cluster string) string { return cluster + "-full-snapshot" }

// DeltaSnapshotName is the name of the Lease that reports the last delta snapshot.
func DeltaSnapshotName(cluster string) string { return cluster + "-delta-snapshot" }

// MemberOfURL is the name of the member that is reached at a peer or client URL: the first label of its host, as the
// Service without an address of its own gives each member a name below it. It is empty for what is no such URL.
func MemberOfURL(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return ""
	}
	name, _, below := strings.Cut(u.Hostname(), ".")
	if !below {
		return ""
	}
	return name
}
