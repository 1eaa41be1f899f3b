package start

import (
	"errors"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/agent/datadir"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

// This file holds what is pure about a start: what was read goes in, facts and intents come out. The observations and the
// acts call it, and so does the model test, which drives it through interleavings that no real cluster can be made to take.

// Sight is what a look reads without asking any etcd.
type Sight struct {
	Report       datadir.Report
	IdentityFile datadir.IdentityFile
	// StampErr is ErrNoStamp, ErrBadStamp or what the disk answered; VolumeErr is the inspection's.
	IdentityFileErr, VolumeErr error
	// Own is our own Lease, Record the cluster's.
	Own       leases.Member
	OwnErr    error
	Record    leases.Record
	RecordErr error
}

// Facts of a sight. What only etcd, the Service or the other members' Leases can report is left unknown.
func (s *Sight) Facts(cfg *config.Config) Facts {
	facts, _ := classify(*cfg,
		volumeState{report: s.Report, identityFile: s.IdentityFile, identityFileErr: s.IdentityFileErr, err: s.VolumeErr},
		ownLease{member: s.Own, err: s.OwnErr},
		recordState{record: s.Record, err: s.RecordErr})
	return facts
}

// classify makes facts of what was read, and words of what stands in the way, by fact.
func classify(cfg config.Config, v volumeState, own ownLease, r recordState) (Facts, map[string]string) {
	f, details := unknownFacts(), map[string]string{}
	note := func(fact, detail string) {
		if detail != "" {
			details[fact] = detail
		}
	}
	var detail string
	f.Data, detail = classifyData(cfg, v, own)
	note("data", detail)
	f.Lease, detail = classifyLease(cfg, own)
	note("lease", detail)
	f.Record = classifyRecord(cfg, r)
	f.Epoch = classifyEpoch(cfg, v, r)
	f.Backup, f.Order = NoBackup, NoOrder // asked for where a cluster would be formed without
	if r.err != nil {
		note("record", r.err.Error())
		return f, details
	}
	f.Place = classifyPlace(cfg, r.record)
	f.Slot, detail = classifySlot(cfg, r.record)
	note("slot", detail)
	return f, details
}

// ListingOf is what a quorum's list says of the member called name at peerURL whose data bears the ID data, 0 for none.
func ListingOf(view membership.View, name, peerURL string, data uint64) (entry membership.Member, listed Listed, own Own) {
	entry, ok := view.Find(name, peerURL)
	if !ok {
		return membership.Member{}, Unconfirmed, OtherID
	}
	switch {
	case !entry.Started():
		listed = Unstarted
	case entry.Learner:
		listed = Learner
	default:
		listed = Voter
	}
	if own = OtherID; data == entry.ID {
		own = OwnID
	}
	return entry, listed, own
}

// JoiningOf says whether the listed entry is the learner that this process added: asked says that it sent an add, id
// what was answered, 0 if the answer was lost, and attempts how often its etcd was started since.
func JoiningOf(asked bool, id uint64, attempts int, entry uint64) Joining {
	if asked && (id == 0 || id == entry) && attempts < maxJoinAttempts {
		return JoiningNow
	}
	return NotJoining
}

// SlotIn is the slot in the light of a quorum's list. It binds while the ID that it names, or its holder under another ID,
// is listed. A holder that is neither has removed itself, and may be kept from joining by nothing but the entry of another
// member whose data is lost: that one need not wait for it, for a voter without data carries no quorum.
func SlotIn(view membership.View, slot Slot, taken *leases.Replacing, peerURL func(name string) string) Slot {
	if slot != SlotTaken || taken == nil {
		return slot
	}
	_, holder := view.Find(taken.Member, peerURL(taken.Member))
	if holder || slices.ContainsFunc(view.Members, func(m membership.Member) bool { return leases.FormatID(m.ID) == taken.MemberID }) {
		return SlotTaken
	}
	return SlotFree
}

// RoomOf says whether the raft group takes one more learner, where entry, listed so, is our own that would go first.
func RoomOf(view membership.View, entry membership.Member, listed Listed, limit int) (learners int, room bool) {
	learners = len(view.Learners())
	if listed&isListed != 0 && entry.Learner {
		learners--
	}
	return learners, learners < limit
}

// QuorumForReplacing is how many of the voters that are left when our entry is gone must be healthy before it goes, and
// which they are: as many as etcd asks for at an add, where the new member counts as down. A learner's removal takes no
// vote, and the only voter can never be replaced.
func QuorumForReplacing(view membership.View, entry membership.Member, listed Listed) (others []membership.Member, want int) {
	if listed != Voter && (listed != Unstarted || entry.Learner) {
		return nil, 0
	}
	others = slices.DeleteFunc(view.Voters(), func(m membership.Member) bool { return m.ID == entry.ID })
	if len(others) == 1 {
		return others, 1
	}
	return others, membership.Quorum(len(others) + 1)
}

// Claim is the record in which the Pod with UID executor claims an attempt of its own to form the group. IDs follow from
// the token, so the cluster ID is put in by anyone who knows it.
func Claim(record leases.Record, nonce, executor string, limit int) leases.Record {
	record.Epoch = max(record.Epoch, record.FormedEpoch+1)
	record.Nonce, record.Executor, record.MaxLearners = nonce, executor, limit
	record.Lineage = leases.LineageOf(record.Epoch, nonce)
	return record
}

// StampOf says whose the data is going to be that etcd is about to write; own is the member's Lease.
func IdentityFileOf(cfg *config.Config, record leases.Record, own leases.Member, clusterID, memberID uint64) datadir.IdentityFile {
	return datadir.IdentityFile{
		Cluster: cfg.ClusterUID, Member: cfg.Member,
		ClusterID: datadir.ID(clusterID), MemberID: datadir.ID(memberID),
		Epoch: record.Epoch, Lineage: record.Lineage,
		Token:       record.Token(cfg.Namespace, cfg.Cluster, cfg.ClusterUID),
		LeaseUID:    own.LeaseUID,
		VolumeUID:   own.VolumeUID,
		MaxLearners: record.MaxLearners,
		Externals:   strings.Join(record.Externals, ","),
		Formed:      record.Phase == leases.PhaseFormed,
	}
}

// Formation is what the record says of the attempt that our data belongs to.
type Formation = formation

// The bootstraps.
const (
	BootstrapUnknown  = bootstrapUnknown
	BootstrapOurs     = bootstrapOurs
	BootstrapRecorded = bootstrapRecorded
	BootstrapLost     = bootstrapLost
)

// BootstrapOf compares the record, or the error of reading it, with the stamp of an attempt of the member called name.
func BootstrapOf(record leases.Record, err error, identityFile datadir.IdentityFile, name string) Formation {
	return classifyBootstrap(recordState{record: record, err: err}, identityFile, name)
}

// FormedBy is the record of the group that the Pod with UID executor formed on data with this stamp.
func FormedBy(record leases.Record, identityFile datadir.IdentityFile, executor string) leases.Record {
	record.Phase = leases.PhaseFormed
	record.ClusterID = uint64(identityFile.ClusterID)
	record.Epoch, record.FormedEpoch = identityFile.Epoch, identityFile.Epoch
	record.Nonce, record.Lineage = nonceOf(identityFile), identityFile.Lineage
	record.MaxLearners = identityFile.MaxLearners
	record.Executor = executor
	record.Externals = externalsOf(identityFile)
	return record
}

// Completed is the record with what it lacks of its own cluster, from the stamp of a member that runs in it, and whether
// it lacked anything.
func Completed(record leases.Record, identityFile datadir.IdentityFile) (leases.Record, bool) {
	return complete(record, identityFile)
}

// startTable is this package's table in the metric of all decisions.
const startTable = "bootstrap.rules"

// newDecisions returns the counter of decisions by table and rule, which all packages of the agent share.
func newDecisions(registerer prometheus.Registerer) (*prometheus.CounterVec, error) {
	decisions := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "etcd_agent_decisions_total",
		Help: "Decisions by table and by the rule that decided; a repeated decision counts once.",
	}, []string{"table", "rule"})
	var registered prometheus.AlreadyRegisteredError
	if err := registerer.Register(decisions); errors.As(err, &registered) {
		if existing, ok := registered.ExistingCollector.(*prometheus.CounterVec); ok {
			return existing, nil
		}
	} else if err != nil {
		return nil, err
	}
	return decisions, nil
}
