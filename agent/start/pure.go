package start

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/agent/datadir"
	"github.com/etcd-druid/druid/internal/rules"
	"github.com/etcd-druid/druid/leases"
	"github.com/etcd-druid/druid/membership"
)

// This file holds what is pure about a start: what was read goes in, facts and intents come out. The observations and the
// acts call it, and so does the model test, which drives it through interleavings that no real cluster can be made to take.

// Sight is the input that the agent reads without a request to etcd.
type Sight struct {
	Report       datadir.Report
	IdentityFile datadir.IdentityFile
	// Built is the identity of data that was built next to the data directory, empty if there is none.
	Built datadir.IdentityFile
	// IdentityFileErr is ErrNoIdentityFile, ErrBadIdentityFile or the error of the disk; VolumeErr is the error of the
	// inspection.
	IdentityFileErr, VolumeErr error
	// Own is the member Lease of this member, Record the cluster record.
	Own       leases.Member
	OwnErr    error
	Record    leases.Record
	RecordErr error
}

// Facts returns the facts of a sight. Facts that only etcd, the Service or other member Leases can provide stay
// unknown.
func (s *Sight) Facts(cfg *config.Config) Facts {
	facts, _ := classify(*cfg, s.volume(), ownLease{member: s.Own, err: s.OwnErr}, recordState{record: s.Record, err: s.RecordErr})
	return facts
}

func (s *Sight) volume() volumeState {
	return volumeState{report: s.Report, identityFile: s.IdentityFile, built: s.Built, identityFileErr: s.IdentityFileErr, err: s.VolumeErr}
}

// DiskReport returns what the volume holds, and whether that is known. The report acknowledges an order only if it names one.
func (s *Sight) DiskReport(cfg *config.Config, h datadir.Holding) (leases.DiskReport, bool) {
	return reportOf(*cfg, s.volume(), s.Facts(cfg).Data, h, false, s.Own)
}

// OrderOf returns the part of the member in the recovery order of the record. acknowledged is the name of the order that its
// agent acknowledged since it started, and report what the volume holds.
func (s *Sight) OrderOf(cfg *config.Config, acknowledged string, report *leases.DiskReport) Order {
	return orderOf(*cfg, s.volume(), ownLease{member: s.Own, err: s.OwnErr}, recordState{record: s.Record, err: s.RecordErr}, acknowledged,
		func() *leases.DiskReport { return report })
}

// Stops says whether the agent stops an etcd that runs on the data, for what the sight has of the record.
func (s *Sight) Stops(serves rules.YesNo) bool {
	return runRules.Decide(RunFacts{Serves: rules.AnswerOf(serves == rules.Yes),
		Calls: callsOf(recordState{record: s.Record, err: s.RecordErr}, s.IdentityFile)}).Verdict == StopEtcd
}

// classify converts the input to facts. For each fact that can block a start, it returns an explanation.
func classify(cfg config.Config, v volumeState, own ownLease, r recordState) (Facts, map[string]string) {
	f, details := unknownFacts(), map[string]string{}
	note := func(fact, detail string) {
		if detail != "" {
			details[fact] = detail
		}
	}
	var detail string
	f.Data, detail = classifyData(cfg, v, own)
	if f.Data == Intact && differsAndConfirmed(cfg, v, own, r) {
		f.Data, detail = Differing, fmt.Sprintf("its hash is %s, and that of a majority is %s at revision %d", own.member.Differs.Hash,
			own.member.Differs.Majority, own.member.Differs.Revision)
	}
	note("data", detail)
	f.Lease, detail = classifyLease(cfg, own)
	note("lease", detail)
	f.Record = classifyRecord(cfg, r)
	f.Epoch = classifyEpoch(cfg, v, own, r)
	f.Backup, f.Order = NoBackup, NoOrder // they matter only where a cluster would be formed
	if r.err != nil {
		note("record", r.err.Error())
		return f, details
	}
	f.Restores = rules.YesNoOf(r.record.Order().Restores())
	f.Place = classifyPlace(cfg, r.record)
	f.Slot, detail = classifySlot(cfg, r.record)
	note("slot", detail)
	return f, details
}

// ListingOf returns what the member list of a quorum says about the member called name at peerURL. data is the raft ID
// of its data, 0 for none.
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

// JoiningOf reports whether the listed entry is the learner that this process added. asked says that the process sent
// an add request. id is the ID in the response, 0 if the response was lost. attempts counts how often etcd was started
// since.
func JoiningOf(asked bool, id uint64, attempts int, entry uint64) Joining {
	if asked && (id == 0 || id == entry) && attempts < maxJoinAttempts {
		return JoiningNow
	}
	return NotJoining
}

// SlotIn returns the slot after a comparison with the member list of a quorum. A taken slot counts while the list has
// the ID that the slot names, or its holder under another ID. A holder that is not listed has removed itself. The
// entry of another member whose data is lost might be all that prevents the holder from joining, so that other member
// does not wait for the slot: a voter without data does not support a quorum.
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

// RoomOf reports whether the raft group accepts one more learner. A learner entry of this member does not count,
// because it is removed first.
func RoomOf(view membership.View, entry membership.Member, listed Listed, limit int) (learners int, room bool) {
	learners = len(view.Learners())
	if listed&isListed != 0 && entry.Learner {
		learners--
	}
	return learners, learners < limit
}

// QuorumForReplacing returns the voters that remain after the entry is removed, and how many of them must be healthy
// before its removal. The number is what etcd requires for a member add, where the new member counts as down. The
// removal of a learner costs no vote. The only voter can never be replaced.
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

// Claim returns the record in which the Pod with UID executor claims a new attempt to form the group. The cluster ID
// follows from the token, and the caller that knows it sets it.
func Claim(record leases.Record, nonce, executor string, limit int) leases.Record {
	record.Epoch = max(record.Epoch, record.FormedEpoch+1)
	record.Nonce, record.Executor, record.MaxLearners = nonce, executor, limit
	record.Lineage = leases.LineageOf(record.Epoch, nonce)
	return record
}

// IdentityFileOf returns the identity of the data that etcd is about to write. own is the member Lease.
func IdentityFileOf(cfg *config.Config, record leases.Record, own leases.Member, clusterID, memberID uint64) datadir.IdentityFile {
	return withFork(datadir.IdentityFile{
		Cluster: cfg.ClusterUID, Member: cfg.Member,
		ClusterID: datadir.ID(clusterID), MemberID: datadir.ID(memberID),
		Epoch: record.Epoch, Lineage: record.Lineage,
		Token:       record.Token(cfg.Namespace, cfg.Cluster, cfg.ClusterUID),
		LeaseUID:    own.LeaseUID,
		VolumeUID:   own.VolumeUID,
		MaxLearners: record.MaxLearners,
		Externals:   strings.Join(record.Externals, ","),
		Formed:      record.Phase == leases.PhaseFormed,
		PeerScheme:  schemeOf(cfg.PeersSecure()),
	}, record.Fork)
}

// Limited returns the record of a raft group that is formed again, with the limit of learners of the raft group before: that of the record,
// else that of the volume, else that of a new raft group. A record that was lost while an order stood has none, and no member runs that
// could add it.
func Limited(record leases.Record, volume datadir.IdentityFile, bootstrap int) leases.Record {
	record.MaxLearners = cmp.Or(record.MaxLearners, volume.MaxLearners, bootstrap)
	return record
}

// withFork returns the identity with the fork from which the data of the raft group came. fork is nil for a group that began without data.
func withFork(identityFile datadir.IdentityFile, fork *leases.Fork) datadir.IdentityFile {
	if fork != nil {
		identityFile.Parent, identityFile.Fork, identityFile.Forked = fork.Parent, fork.Revision, fork.At
	}
	return identityFile
}

// forkIn returns what withFork wrote.
func forkIn(identityFile datadir.IdentityFile) *leases.Fork {
	if identityFile.Parent == "" {
		return nil
	}
	return &leases.Fork{Parent: identityFile.Parent, Revision: identityFile.Fork, At: identityFile.Forked}
}

// BootstrapOf compares the record, or the error of reading it, with the identity file of an attempt of the member
// called name.
func BootstrapOf(record leases.Record, err error, identityFile datadir.IdentityFile, name string) Formation {
	return classifyBootstrap(recordState{record: record, err: err}, identityFile, name)
}

// FormedBy returns the record of the group that the Pod with UID executor formed on data with this identity.
func FormedBy(record leases.Record, identityFile datadir.IdentityFile, executor string) leases.Record {
	record.Phase = leases.PhaseFormed
	record.ClusterID = uint64(identityFile.ClusterID)
	record.Epoch, record.FormedEpoch = identityFile.Epoch, identityFile.Epoch
	record.Nonce, record.Lineage = nonceOf(identityFile), identityFile.Lineage
	record.MaxLearners = identityFile.MaxLearners
	record.Executor = executor
	record.Externals = externalsOf(identityFile)
	record.Fork = forkIn(identityFile)
	return record
}

// startTable is the name of the start table in the metric of all decisions, and in docs/reference/decisions.md.
const startTable = "agent/start.startRules"

// newDecisions returns the counter of decisions by table and rule. All packages of the agent share it.
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
