package leases

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// Phase of the cluster in its record. There is no zero phase: a record without a phase is unreadable, and no action
// follows from it.
type Phase string

const (
	// PhaseForming: no raft group was ever formed, and the seed may form one.
	PhaseForming Phase = "Forming"
	// PhaseFormed: the raft group of FormedEpoch exists. A second one must never be formed in this epoch.
	PhaseFormed Phase = "Formed"
	// PhaseRecovering: quorum was lost, and the request in Recovery is in progress.
	PhaseRecovering Phase = "Recovering"
)

// MaxLearners is the constant max-learners of a raft group that was formed on etcd 3.6 or later. etcd enforces the
// limit when a change is applied, with each member's own flag, so different limits would split the member list.
const MaxLearners = 16

// MaxLearners35 is the fixed limit of a raft group that was formed on etcd 3.5, which has no flag for it.
const MaxLearners35 = 1

// MaxLearnersAdopted is the limit of a joined raft group: etcd's default, with which its members run.
const MaxLearnersAdopted = 1

// Annotations of the cluster record.
const (
	annotationPhase          = Prefix + "phase"
	annotationSeed           = Prefix + "seed"
	annotationEpoch          = Prefix + "epoch"
	annotationFormedEpoch    = Prefix + "formed-epoch"
	annotationNonce          = Prefix + "nonce"
	annotationExecutor       = Prefix + "executor"
	annotationLineage        = Prefix + "lineage"
	annotationFork           = Prefix + "fork"
	annotationMaxLearners    = Prefix + "max-learners"
	annotationMembers        = Prefix + "members"
	annotationReplacing      = Prefix + "replacing"
	annotationPendingRemoval = Prefix + "pending-removal"
	annotationRecovery       = Prefix + "recovery"
	annotationMemberList     = Prefix + "member-list"
	annotationExternals      = Prefix + "external-members"
	annotationLeaving        = Prefix + "leaving"
)

// Record is the cluster record: what druid and the agents know of the raft group. It is written only by
// compare-and-set on the Lease's resourceVersion.
type Record struct {
	// ClusterID is etcd's cluster ID, or 0 before an attempt was claimed. In the phase Forming, it is the ID that the
	// attempt will have. It is the Lease's holderIdentity.
	ClusterID uint64
	Phase     Phase
	// Seed is the member that may form the group in the phase Forming. In other phases it has no meaning.
	Seed string
	// Epoch counts the bootstraps of a raft group, from 1. FormedEpoch is the last one that succeeded, 0 for none.
	Epoch, FormedEpoch uint32
	// Nonce of the attempt. It is part of the group's token and is generated again for every attempt.
	Nonce string
	// Executor is the UID of the Pod that claimed the attempt, or empty.
	Executor string
	// Lineage is the name of the history of the backups: <epoch:08x>-<nonce> of the last bootstrap.
	Lineage string
	// Fork says from where the data of the raft group came, nil if the group began without data. A member that joins copies it
	// into its identity file, so that the agent of each later leader writes the same lineage to the backup store.
	Fork *Fork
	// MaxLearners is set by the member that claims the bootstrap and never changes for this raft group. It is 0 if
	// unknown.
	MaxLearners int
	// Members are the names of the desired members, sorted. A name is never used twice.
	Members []string
	// Replacing is the slot in which one member at a time replaces itself, or nil.
	Replacing *Replacing
	// PendingRemoval is the slot of the member that is being removed, or nil. At most one of Replacing and
	// PendingRemoval is set.
	PendingRemoval *PendingRemoval
	// Recovery is the order to recover from a lost quorum, or nil, and Attempt the claim of its chosen agent.
	Recovery *Recovery
	Attempt  *RecoveryAttempt
	// Released is the highest epoch of a released order, 0 for none. Members that acknowledged an order of at most this
	// epoch resume the data of the raft group.
	Released uint32
	// Recovered is the result of the last recovery, or nil.
	Recovered *Recovered
	// MemberList is the list as the leader last saw it, or the last member that took the slot to replace itself. It is information,
	// never a request.
	MemberList *MemberList
	// Upgrade is the request to compare the members, and its answer. It is read with the record, but not written with
	// it.
	Upgrade Upgrade
	// Restore is the request to plan a restore in place, and its answer. It is read with the record, but not written with it.
	Restore Restore
	// Externals are the IDs, hex, of the voters that a group had before it was joined, empty for a group that was
	// formed here. They are written with the claim of the bootstrap and never change. While the list is not empty, a
	// member that is not desired stays until the user allows its removal.
	Externals []string
	// Leaving says that the EtcdCluster was deleted while the group that it joined had external members. Every desired
	// member leaves the group, including the last one, and the external members stay. It is written before the first
	// member leaves, and is never reset.
	Leaving bool
	// Auth is what the leader's agent last reported about authentication in etcd. It is read with the record, but not
	// written with it.
	Auth AuthReport
	// Undecided says that no majority of the voters has the same data. It is read with the record, but not written with it.
	Undecided Undecided
}

// Fork is where the history of a raft group left that of another one.
type Fork struct {
	// Parent is the backup lineage from which the data came, and Revision the last one from it.
	Parent   string `json:"parent"`
	Revision int64  `json:"revision"`
	// At is when the data was built, by the clock of the agent that built it.
	At time.Time `json:"at"`
}

// Replacing is the intent of a member to remove the member ID of its own name and to join again.
type Replacing struct {
	Member string `json:"member"`
	PodUID string `json:"podUID"`
	// MemberID is exactly the ID to remove, hex.
	MemberID string `json:"memberID"`
}

// Replace returns the record in which a member has the slot to replace itself. list is what a quorum listed after the record was read. The
// slot names only one ID, so the list shows each removal before. It is an error if an ID that the slot named is still listed: its
// removal can be in progress.
func (r Record) Replace(want Replacing, list MemberList) (Record, error) {
	if s := r.Replacing; s != nil && s.MemberID != want.MemberID && list.has(s.MemberID) {
		return r, fmt.Errorf("%w: it names ID %s of member %s, which is still a member", ErrSlot, s.MemberID, s.Member)
	}
	r.Replacing, r.MemberList = &want, &list
	return r, nil
}

// Replaces says whether a member has the slot to replace itself. The slot of a name that is not desired counts as long as the published list
// can have the ID that the slot names: only the slot shows then that the ID can have been removed.
func (r Record) Replaces() bool {
	return r.Replacing != nil && (r.Lists(r.Replacing.Member) || r.MemberList == nil || r.MemberList.has(r.Replacing.MemberID))
}

// ErrSlot says that the replacement slot of a record cannot be taken.
var ErrSlot = errors.New("the replacement slot of the cluster record is taken")

// MemberList is etcd's member list with a raft position that it includes.
type MemberList struct {
	RaftTerm  uint64         `json:"raftTerm"`
	RaftIndex uint64         `json:"raftIndex"`
	Members   []ListedMember `json:"members"`
}

// Add appends a member. Its name is empty if it was added and never started.
func (l *MemberList) Add(id uint64, name string, peerURLs []string, learner bool) {
	m := ListedMember{ID: FormatID(id), Name: name, Learner: learner}
	if len(peerURLs) > 0 {
		m.PeerURL = peerURLs[0]
	}
	l.Members = append(l.Members, m)
}

func (l *MemberList) has(id string) bool {
	return slices.ContainsFunc(l.Members, func(m ListedMember) bool { return m.ID == id })
}

// ListedMember is one entry of a MemberList. An entry without Name was added and never started.
type ListedMember struct {
	ID      string `json:"id"`
	Name    string `json:"name,omitempty"`
	PeerURL string `json:"peerURL"`
	Learner bool   `json:"learner,omitempty"`
}

// Token is the raft group's token. No two bootstraps share one, because etcd's IDs are hashes of name, peer URL and
// token.
func (r Record) Token(namespace, cluster, clusterUID string) string {
	return fmt.Sprintf("%s-%s-%s-%d-%s", namespace, cluster, clusterUID, r.Epoch, r.Nonce)
}

// LineageOf returns the name of the lineage of a bootstrap.
func LineageOf(epoch uint32, nonce string) string { return fmt.Sprintf("%08x-%s", epoch, nonce) }

// Adopted says whether the raft group existed before the EtcdCluster and was joined.
func (r Record) Adopted() bool { return len(r.Externals) > 0 }

// Others returns the entries of the published member list that are not desired members. Without a list they are
// unknown, and listed is false.
func (r Record) Others() (others []ListedMember, listed bool) {
	if r.MemberList == nil {
		return nil, false
	}
	for _, m := range r.MemberList.Members {
		if name := m.Name; name == "" && !r.Lists(MemberOfURL(m.PeerURL)) || name != "" && !r.Lists(name) {
			others = append(others, m)
		}
	}
	return others, true
}

// Lists says whether name is a desired member.
func (r Record) Lists(name string) bool { return slices.Contains(r.Members, name) }

// FormatID formats an etcd cluster or member ID as etcd's tools print it.
func FormatID(id uint64) string { return strconv.FormatUint(id, 16) }

// ParseID reads an ID written by FormatID. The empty string is 0, no ID.
func ParseID(s string) (uint64, error) {
	if s == "" {
		return 0, nil
	}
	id, err := strconv.ParseUint(s, 16, 64)
	if err != nil {
		return 0, fmt.Errorf("%w: ID %q is not hexadecimal", ErrUnreadable, s)
	}
	return id, nil
}
