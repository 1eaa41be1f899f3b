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

// leasePatch is a JSON merge patch of a Lease. An absent key leaves the value unchanged, and a nil value removes the
// key.
type leasePatch struct {
	Metadata patchMetadata `json:"metadata"`
	Spec     *patchSpec    `json:"spec,omitempty"`
}

type patchMetadata struct {
	// ResourceVersion makes the patch a compare-and-set: the API server answers Conflict if it is not the present one.
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

// recordAnnotations are the keys that belong to a record.
var recordAnnotations = []string{
	annotationPhase, annotationSeed, annotationEpoch, annotationFormedEpoch, annotationNonce, annotationExecutor,
	annotationLineage, annotationFork, annotationMaxLearners, annotationMembers, annotationReplacing, annotationPendingRemoval,
	annotationRecovery, annotationRecoveryAttempt, annotationReleased, annotationRecovered, annotationMemberList,
	annotationExternals, annotationLeaving,
}

// patch writes the complete record: empty fields are removed from the Lease.
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

// MemberPatch is what an agent writes into its member's Lease. It never changes what druid writes there: the UIDs of
// the Pod and the volume, and the removal request (Store.Retire).
type MemberPatch struct {
	// Member holds the facts. An unknown (zero) fact leaves the Lease as it was, because a fact that was once true is
	// evidence: an agent that restarts must not delete the ID that its member had. Two groups are always written
	// completely: Rule with Reason, and ID with Role, Raft, Floor, Fsync and Alarm.
	Member Member
	// At is the version of the Lease on which the patch is based, empty for any version. If the Lease has changed
	// since, the Store returns ErrConflict, so that no content is overwritten unread.
	At Version
	// RenewTime is set only while etcd is healthy and in the cluster. nil leaves the Lease's renewTime unchanged.
	RenewTime *time.Time
	// Duration after which an observer may call the Lease stale. 0 leaves it unchanged. Leases count whole seconds.
	Duration time.Duration
}

// MaxMemberPatch bounds a renewal on the wire, in bytes. With thousands of members, the API server's store and its
// watchers handle one every few seconds per member.
const MaxMemberPatch = 2048

// maxReason bounds the only free text in a member Lease, so that MaxMemberPatch holds.
const maxReason = 512

// maxRefused bounds etcd's error.
const maxRefused = 128

// encode shortens the reason until the patch is small enough. It is the only part with a variable length from outside.
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
		if limit == 0 && p.Member.TLS != (TLS{}) {
			p.Member.TLS = TLS{} // the rest is more important, and the Lease keeps what it has
			continue
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
	a.known(annotationTLS, m.TLS.format())
	a.known(annotationData, m.Data)
	if m.Rule != "" {
		a.exactly(annotationRule, m.Rule)
		a.exactly(annotationReason, truncate(m.Reason, reasonLimit))
	}
	if m.ID != 0 {
		a.exactly(annotationRaft, formatRaft(m.Raft))
		a.exactly(annotationRaftFloor, formatRaft(m.Floor))
		a.exactly(annotationFsync, m.Fsync.format())
		a.exactly(annotationAlarm, truncate(m.Alarm, reasonLimit))
		a.exactly(annotationRefused, truncate(m.Refused, min(reasonLimit, maxRefused)))
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

// known writes value unless it is empty. An empty value leaves the key unchanged.
func (a annotationPatch) known(key, value string) {
	if value != "" {
		a[key] = &value
	}
}

// exactly writes value, and removes the key if value is empty.
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

// truncate shortens s to at most limit bytes, between runes.
func truncate(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for limit > 0 && s[limit]&0xC0 == 0x80 {
		limit--
	}
	return s[:limit]
}

// Names, labels and annotations of a cluster's Leases. They are the contract between druid and the agents. All of them
// are defined here, and they never change their meaning.
const (
	// Prefix of every label and annotation that druid and the agents write.
	Prefix = "etcd.druid.dev/"

	// LabelCluster has the name of the EtcdCluster on every object of the cluster.
	LabelCluster = Prefix + "cluster"
	// LabelComponent is the kind of a Lease: one of the Component values.
	LabelComponent = Prefix + "component"
	// LabelMember has the member's name on its Lease, PersistentVolumeClaim and Pod.
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

// ComponentSnapshot is the component of the Pods that save an EtcdSnapshot in its own store. They have no Lease.
const ComponentSnapshot Component = "snapshot"

// ComponentOf returns the component in the Lease's label.
func ComponentOf(lease *coordinationv1.Lease) Component {
	return Component(lease.Labels[LabelComponent])
}

// ReportsBackups says whether it is one of the Leases that report backups, on which backups are requested too.
func ReportsBackups(lease *coordinationv1.Lease) bool {
	c := ComponentOf(lease)
	return c == ComponentFullSnapshot || c == ComponentDeltaSnapshot
}

// RecordName returns the name of the cluster record.
func RecordName(cluster string) string { return cluster + "-cluster" }

// LeaderName returns the name of the Lease for which the agent of the raft leader campaigns.
func LeaderName(cluster string) string { return cluster + "-leader" }

// FullSnapshotName returns the name of the Lease that reports the last full backup.
func FullSnapshotName(cluster string) string { return cluster + "-full-snapshot" }

// DeltaSnapshotName returns the name of the Lease that reports the last delta backup.
func DeltaSnapshotName(cluster string) string { return cluster + "-delta-snapshot" }

// MemberOfURL returns the name of the member in a peer or client URL: the first label of its host, because the
// headless Service gives each member a DNS name below its own. It returns the empty string for other URLs.
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
