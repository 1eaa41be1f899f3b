package start

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/etcd-druid/druid/agent/config"
	"github.com/etcd-druid/druid/agent/datadir"
	"github.com/etcd-druid/druid/backup/catalog"
	"github.com/etcd-druid/druid/leases"
)

// volumeState is what was found on the volume.
type volumeState struct {
	report       datadir.Report
	identityFile datadir.IdentityFile
	// built is the identity of data that was built next to the data directory, empty if there is none.
	built datadir.IdentityFile
	// identityFileErr is ErrNoIdentityFile, ErrBadIdentityFile or the error of the disk; err is the error of the
	// inspection.
	identityFileErr, err error
}

// ownLease is what was read from the member Lease of this member.
type ownLease struct {
	member leases.Member
	err    error
}

// classifyData returns whether this member may continue the data (R3), and the reason if not. If the Lease cannot be
// read now and could not be read before, the facts that only the Lease has are assumed to be good: R1 then permits only
// Resume.
func classifyData(cfg config.Config, v volumeState, own ownLease) (data Data, detail string) {
	switch identityFileLost := errors.Is(v.identityFileErr, datadir.ErrNoIdentityFile) || errors.Is(v.identityFileErr, datadir.ErrBadIdentityFile); {
	case v.err != nil:
		return DataUnread, v.err.Error()
	case v.report.State == datadir.Empty:
		return Empty, ""
	case v.identityFileErr != nil && !identityFileLost:
		return DataUnread, v.identityFileErr.Error()
	case v.identityFileErr != nil:
		return Foreign, "its identity file is missing or invalid: " + v.identityFileErr.Error()
	case v.identityFile.Cluster != cfg.ClusterUID:
		return Foreign, fmt.Sprintf("it belongs to the EtcdCluster with UID %s, and this one has UID %s", v.identityFile.Cluster, cfg.ClusterUID)
	case v.identityFile.Member != cfg.Member:
		return Foreign, fmt.Sprintf("it belongs to member %s, and this is member %s", v.identityFile.Member, cfg.Member)
	case v.report.State == datadir.Corrupt:
		return Corrupt, v.report.String() + ": " + v.report.Detail
	case v.report.ClusterID != uint64(v.identityFile.ClusterID) || v.report.MemberID != uint64(v.identityFile.MemberID):
		return Foreign, fmt.Sprintf("its log belongs to member %x in cluster %x, but its identity file names member %x in cluster %x",
			v.report.MemberID, v.report.ClusterID, uint64(v.identityFile.MemberID), uint64(v.identityFile.ClusterID))
	case v.report.State == datadir.NewerSchema:
		return Newer, "it was written by etcd " + v.report.StorageVersion
	case own.err == nil:
		return againstLease(v, own.member)
	default:
		return Intact, ""
	}
}

// againstLease compares intact data with what the member Lease recorded about it.
func againstLease(v volumeState, own leases.Member) (Data, string) {
	if own.VolumeUID != "" && v.identityFile.VolumeUID != "" && own.VolumeUID != v.identityFile.VolumeUID {
		return Stale, fmt.Sprintf("it was written on the volume with UID %s, but this volume has UID %s", v.identityFile.VolumeUID, own.VolumeUID)
	}
	if own.ClusterID != v.report.ClusterID {
		return Intact, ""
	}
	if own.ID != v.report.MemberID {
		return againstAnotherID(v, own)
	}
	if v.report.Term < own.Floor.Term || v.report.Last.Index < own.Floor.Committed {
		return Stale, fmt.Sprintf("its log ends at term %d, index %d, but the member Lease recorded term %d, index %d: the volume went back in time",
			v.report.Term, v.report.Last.Index, own.Floor.Term, own.Floor.Committed)
	}
	return Intact, ""
}

// differsAndConfirmed reports whether the data is known to differ from that of a majority of all voters. The mark on the member
// Lease says so, and this member took the slot for its replacement after it had compared again (duties.DifferingMember).
func differsAndConfirmed(cfg config.Config, v volumeState, own ownLease, r recordState) bool {
	id := v.report.MemberID
	return own.err == nil && own.member.Differs.Of(id) && r.err == nil && r.record.Phase == leases.PhaseFormed &&
		r.record.ClusterID == v.report.ClusterID && r.record.Replacing != nil && r.record.Replacing.Member == cfg.Member &&
		r.record.Replacing.MemberID == leases.FormatID(id)
}

// againstAnotherID compares the data with what the member Lease recorded for another raft ID of this member in the
// same raft group. The recorded index says nothing about this log, but the recorded term does. Terms belong to the
// group, and a member that joined later has the term of the leader that added it, or a higher one. So data with a
// lower term belongs to an earlier ID of this member, and other members may have voted without it since. A log of term
// 0 belongs to a member that no leader has contacted yet.
func againstAnotherID(v volumeState, own leases.Member) (Data, string) {
	reached := max(own.Floor.Term, own.Raft.Term)
	if v.report.Term == 0 || v.report.Term >= reached {
		return Intact, ""
	}
	return Stale, fmt.Sprintf("it belongs to member ID %x at term %d, but this member had ID %x at term %d in the same raft group: the volume went back in time",
		v.report.MemberID, v.report.Term, own.ID, reached)
}

// classifyLease returns what the member Lease says about this Pod.
func classifyLease(cfg config.Config, own ownLease) (lease Lease, detail string) {
	switch {
	case own.err != nil:
		return LeaseUnread, own.err.Error()
	case own.member.PodUID == "":
		return LeaseUnread, "druid has not written the UID of the Pod to it yet"
	case own.member.PodUID != cfg.PodUID:
		return Superseded, fmt.Sprintf("the member Lease names the Pod with UID %s, and this Pod has UID %s", own.member.PodUID, cfg.PodUID)
	case own.member.Removal.State == leases.RemovalRequested:
		return Leaving, ""
	case own.member.Removal.State != leases.RemovalNone:
		return RemovalAcknowledged, "the state of its removal request is " + string(own.member.Removal.State)
	default:
		return Fresh, ""
	}
}

// recordState is what was read of the cluster record.
type recordState struct {
	record  leases.Record
	version leases.Version
	err     error
}

// classifyRecord returns the state of the cluster according to the record.
func classifyRecord(cfg config.Config, r recordState) Record {
	switch {
	case errors.Is(r.err, leases.ErrAbsent):
		return RecordAbsent
	case r.err != nil:
		return RecordUnread
	}
	switch complete := isComplete(r.record); r.record.Phase {
	case leases.PhaseForming:
		switch r.record.Executor {
		case "":
			return Unclaimed
		case cfg.PodUID:
			return FormingByUs
		default:
			return FormingByAnother
		}
	case leases.PhaseFormed:
		if !complete {
			return FormedIncomplete
		}
		return Formed
	case leases.PhaseRecovering:
		return Recovering
	default:
		return RecordUnread
	}
}

// isComplete reports whether a Formed record has every field that a joining member writes to its identity file.
func isComplete(r leases.Record) bool {
	return r.ClusterID != 0 && r.Epoch != 0 && r.Nonce != "" && r.Lineage != "" && r.MaxLearners > 0
}

// classifyPlace returns the role that the record gives to this member.
func classifyPlace(cfg config.Config, r leases.Record) Place {
	switch {
	case !r.Lists(cfg.Member):
		return Undesired
	case r.Phase == leases.PhaseForming && r.Seed == cfg.Member:
		return Seed
	default:
		return Desired
	}
}

// classifySlot returns which member may replace itself or leave, and the name of that member. The slot to leave does not count
// for a member that is no longer desired. A replacement of this member that has begun continues.
func classifySlot(cfg config.Config, r leases.Record) (slot Slot, holder string) {
	switch pendingRemoval := r.PendingRemoval; {
	case r.Replaces() && r.Replacing.Member == cfg.Member:
		return SlotOurs, cfg.Member
	case pendingRemoval != nil && r.Lists(pendingRemoval.Member):
		return SlotLeaving, pendingRemoval.Member
	case r.Replaces():
		return SlotTaken, r.Replacing.Member
	default:
		return SlotFree, ""
	}
}

// classifyEpoch compares the raft group of the data with that of the record, and says whether a recovery order that the
// volume acknowledges prevents a start. The order is known to be released only by a record of the same raft group.
func classifyEpoch(cfg config.Config, v volumeState, own ownLease, r recordState) Epoch {
	epoch := groupOf(cfg, v, own, r)
	if epoch == Fenced || v.err != nil || v.identityFileErr != nil || v.report.State == datadir.Empty || v.identityFile.Prepared == 0 {
		return epoch
	}
	released := r.err == nil && r.record.Phase == leases.PhaseFormed && r.record.ClusterID == uint64(v.identityFile.ClusterID) &&
		r.record.Released >= v.identityFile.Prepared
	if released {
		return epoch
	}
	return Prepared
}

// ranInLaterGroup reports whether the member Lease says that this member ran in a later raft group than that of the data. An agent
// reports a raft group only after it was formed, and no later step goes back to an earlier one. So the volume went back in time.
func ranInLaterGroup(identityFile datadir.IdentityFile, own ownLease) bool {
	return own.err == nil && own.member.ClusterID != 0 && own.member.ClusterID != uint64(identityFile.ClusterID) && own.member.Epoch > identityFile.Epoch
}

// ofLaterGroup reports whether the data is of a raft group that was formed after the one that the record names.
func ofLaterGroup(identityFile datadir.IdentityFile, r leases.Record) bool {
	return identityFile.Formed && uint64(identityFile.ClusterID) != r.ClusterID && identityFile.Epoch > max(r.Epoch, r.FormedEpoch)
}

// groupOf compares the raft group of the data with that of the record, and with the one that the member Lease reports. The record can be
// absent, or an earlier copy of it can be restored, and a raft group that had one voter would then lead alone.
func groupOf(cfg config.Config, v volumeState, own ownLease, r recordState) Epoch {
	switch unread := v.err != nil || v.identityFileErr != nil || v.report.State == datadir.Empty; {
	case !unread && ranInLaterGroup(v.identityFile, own):
		return Fenced
	case unread, r.err != nil:
		return EpochUnknown
	}
	record, identityFile := r.record, v.identityFile
	switch {
	case record.Phase == leases.PhaseForming:
		return formingGroupOf(cfg, identityFile, record)
	case record.ClusterID == 0:
		return EpochUnknown
	case record.ClusterID == uint64(identityFile.ClusterID):
		return Current
	case identityFile.Epoch > max(record.Epoch, record.FormedEpoch):
		return EpochUnknown
	default:
		return Fenced
	}
}

// What a catalog of backups means for a bootstrap. Pure, as pure.go.

// epochAbove returns an epoch above that of every lineage in the catalog, because the epoch orders the lineages of a
// place.
func epochAbove(c catalog.Catalog) (uint32, error) {
	var highest uint32
	for _, h := range c.Histories {
		highest = max(highest, h.Lineage.Epoch())
	}
	if highest == math.MaxUint32 {
		return 0, fmt.Errorf("a lineage below %s has the highest possible epoch, so no new lineage can follow it; move that lineage away", c.Prefix)
	}
	return highest + 1, nil
}

// formedBefore returns an error that names a lineage which shows that the EtcdCluster with this UID was formed before.
// Lineages of other EtcdClusters with the same name do not count. A bootstrap record that cannot be read might belong
// to this EtcdCluster, so it counts too. It does not count if a restore is requested: the cluster is then lost, and
// one broken object must not prevent the restore. A lineage without backups does not count either in that case. It
// belongs to a lost attempt, because the bootstrap record is written before the cluster is formed.
func formedBefore(c catalog.Catalog, uid string, ordered bool) error {
	for _, h := range c.Histories {
		switch saved := len(h.Fulls)+len(h.Deltas) > 0; {
		case h.Formation == nil && saved && !ordered:
			return fmt.Errorf("the EtcdCluster of lineage %s below %s is unknown: %s", h.Lineage, c.Prefix, h.BootstrapProblem)
		case h.Formation != nil && h.Formation.ClusterUID == uid && (saved || !ordered):
			return fmt.Errorf("lineage %s below %s belongs to this EtcdCluster; to restore from it, create an EtcdCluster with another name",
				h.Lineage, c.Prefix)
		}
	}
	return nil
}

// withoutLost removes the lineages that lost attempts of this EtcdCluster left, because they are not part of the
// history to restore.
func withoutLost(c catalog.Catalog, uid string) catalog.Catalog {
	c.Histories = slices.DeleteFunc(slices.Clone(c.Histories), func(h catalog.History) bool {
		return h.Formation != nil && h.Formation.ClusterUID == uid
	})
	return c
}

// classifyPlan classifies the error of planning. Backups that are missing can still arrive, so it returns NoBackup for
// them.
func classifyPlan(err error) Backup {
	switch {
	case errors.Is(err, catalog.ErrEmpty), errors.Is(err, catalog.ErrUnknown), errors.Is(err, catalog.ErrOutside):
		return NoBackup
	default:
		return BackupUnusable
	}
}

// formationOf returns the bootstrap record of a restored group. now is the local clock.
func formationOf(identityFile datadir.IdentityFile, etcdVersion string, now time.Time) catalog.Formation {
	created := identityFile.Forked
	if created.IsZero() {
		created = now
	}
	return catalog.Formation{
		Lineage: catalog.Lineage(identityFile.Lineage), Parent: catalog.Lineage(identityFile.Parent), Fork: identityFile.Fork, Reason: "restore",
		File:      identityFile.File,
		ClusterID: leases.FormatID(uint64(identityFile.ClusterID)), ClusterUID: identityFile.Cluster,
		EtcdVersion: etcdVersion, Created: created,
	}
}

// formingGroupOf compares the raft group of the data with the one that the record says is being formed.
func formingGroupOf(cfg config.Config, identityFile datadir.IdentityFile, record leases.Record) Epoch {
	switch {
	case identityFile.Formed:
		return EpochUnknown // the record lost an epoch that this volume has
	case record.Nonce == "" && record.Seed == cfg.Member:
		return EpochUnknown // a record that forgot our claim: forming claims it again
	case leases.LineageOf(record.Epoch, record.Nonce) == identityFile.Lineage:
		return Current
	default:
		return Fenced
	}
}
